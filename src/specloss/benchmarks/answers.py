"""The former home of `specloss.benchmarks.parsing.numbers`, kept for those who import it from here."""

from specloss.benchmarks.parsing.numbers import equal, final_answer, grade_answer, last_boxed

__all__ = ["equal", "final_answer", "grade_answer", "last_boxed"]
