r"""MATH (Hendrycks et al. 2021): competition problems with a final answer in `\boxed{}`.

The default is what the paper's code ran: of the train split of `qwedsacf/competition_math` the first 500 rows (its
EAGLE-3 runs; all of them are Algebra) or a seeded choice of 500 (its single-draft runs). This is not MATH-500.
"""

from __future__ import annotations

from typing import Literal

from specloss.benchmarks import Grade, Item, LocalFile
from specloss.benchmarks.parsing.numbers import grade_answer, last_boxed
from specloss.benchmarks.sources.hub import HubSet
from specloss.benchmarks.sources.rows import Row, chat, make_items, read_rows

HUB, SPLIT = "qwedsacf/competition_math", "train"
SYSTEM = "You are a careful mathematician. Work the problem out step by step and put the final answer in \\boxed{}."


def load(
    file: LocalFile | None = None,
    problems: int | None = 500,
    seed: int | None = None,
    level: Literal[1, 2, 3, 4, 5] | None = None,
    revision: str | None = None,
) -> list[Item]:
    """Problems of the hub, or of a local `file` with its fields: problem, solution, level ("Level 4") if it is asked.

    The first `problems` of them, all if None, or with a `seed` that many by lot; only those of one `level` if given.
    """
    rows = read_rows(file, HubSet(HUB, SPLIT, revision=revision))
    if level is not None:
        rows = [row for row in rows if row.text("level") == f"Level {level}"]
    return make_items(rows, _item, problems, seed)


def grade(text: str, reference: str) -> Grade:
    """Grade a solution by its final answer, mathematically (`specloss.benchmarks.parsing.numbers`)."""
    return grade_answer(text, reference)


def _item(row: Row) -> Item:
    answer = last_boxed(row.text("solution"))
    if not answer or not answer.strip():
        raise row.error("'solution' has no final answer in \\boxed{}")
    return Item(f"math-{row.number:05d}", None, answer.strip(), chat(row.text("problem"), SYSTEM), row.where)
