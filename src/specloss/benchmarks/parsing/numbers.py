r"""Final answers of mathematical solutions: where they stand, and whether they equal the reference.

A final answer is what the last `\boxed{}` or `\fbox{}` holds, else what follows the last `####`, else what follows the
last "final answer is", "answer is" or "answer:". There is no guess: a text without any of them is a parse failure.

"Answer" may also be a heading, with the final answer below it.

Plain arithmetic is compared exactly (`parsing.rationals`), all else by `math-verify`. Its time-outs are
signals, so `grade_answer` must be called from a main thread. What would cost too much to compute equals nothing but the
same text.
"""

from __future__ import annotations

import re
import threading
from functools import lru_cache
from typing import Any

from specloss.benchmarks import Grade
from specloss.benchmarks.parsing.rationals import TooLargeError, may_be_large, rational

MAX_CHARACTERS = 500  # of an answer that is looked at; a longer one is no final answer

_BOX = re.compile(r"\\(?:f?boxed|fbox)(?![A-Za-z])\s*+(\{|[^\s{$][^\s$]{0,40}+\$)")
_HASHES = re.compile(r"^[ \t]*+####[ \t]*+(\S.*)$", re.MULTILINE)
_PHRASE = re.compile(
    r"(?:(?<![^\W_])answer(?![^\W_])[*_]*+\s*+(?:is\b\s*+:?|:)"
    r"|^[ \t]*+(?:#{1,6}[ \t]|[*_]{2})[^\n]{0,40}?(?<![^\W_])answer[*_]*+[ \t]*+\n)"  # a heading
    r"[\s*]*+(?=\S)(?!(?:not|right|wrong|(?:in)?correct)\b)",  # these state none
    re.IGNORECASE | re.MULTILINE,
)
_WRAPPED_NUMBER = re.compile(r"\\(?:text|mathrm|textbf|mathbf)\s*\{\s*([-+]?[0-9][0-9.,]*)\s*\}")
_THIN_SPACE = re.compile(r"\\!|(?<=[0-9])(?:\\[,:; ]|~)(?=[0-9]{3}(?![0-9]))")  # within a number


def final_answer(text: str) -> str | None:
    """The final answer as it is written, None if the text does not say which it is."""
    for find in (last_boxed, _after_hashes, _after_phrase):
        answer = find(text)
        if answer is not None:
            answer = answer.strip()
            return answer if 0 < len(answer) <= MAX_CHARACTERS else None
    return None


def last_boxed(text: str) -> str | None:
    r"""What the last `\boxed{}` of a text holds, braces balanced; None if there is none or it is left open.

    Without braces, as in `$\boxed 5$`, it holds the rest of the formula, as MATH's own evaluation has it.
    """
    last = None
    for match in _BOX.finditer(text):
        last = match
    if last is None:
        return None
    if last[1] != "{":
        return last[1].rstrip("$")
    start = last.end()
    depth, place = 1, start
    while place < len(text):
        if text[place] == "\\":  # an escaped brace is no brace
            place += 2
            continue
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return text[start:place]
        place += 1
    return None


def grade_answer(text: str, reference: str) -> Grade:
    """Grade a solution by its final answer."""
    answer = final_answer(text)
    return Grade(answer is not None and equal(reference, answer), answer)


def equal(gold: str, answer: str) -> bool:
    """Whether two final answers are the same mathematically, or word for word but for spaces and `\\text`."""
    gold, answer = _tidy(gold), _tidy(answer)
    if _plain(gold) == _plain(answer):
        return True
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("math-verify's time-outs are signals: call it from a main thread")
    try:
        exact = rational(gold), rational(answer)
    except TooLargeError:
        return False
    if exact[0] is not None and exact[1] is not None:
        return exact[0].equals(exact[1])
    if may_be_large(gold) or may_be_large(answer):
        return False
    try:
        return _verified(gold, answer)
    except Exception:  # sympy and its parser meet untrusted text
        return False


def _verified(gold: str, answer: str) -> bool:
    import math_verify  # a second of imports

    ours, theirs = _parsed(gold), _parsed(answer)
    if not ours or not theirs or not math_verify.verify(list(ours), list(theirs)):
        return False
    if "%" in gold + answer:
        return True
    # math-verify takes what is below 1e-15 for zero
    constants = [(one, other) for one in ours for other in theirs if _is_constant(one) and _is_constant(other)]
    return not constants or any(_near(one, other) for one, other in constants)


def _is_constant(value: Any) -> bool:
    from sympy import Expr

    return isinstance(value, Expr) and bool(value.is_number)


def _near(one: Any, other: Any) -> bool:
    """Whether two constants are equal as far as 30 digits show, or five where one of them is a decimal."""
    from sympy import Float

    size, difference = abs(one.doit().evalf(30)), abs((one.doit() - other.doit()).evalf(30))
    tolerance = 1e-5 if one.has(Float) or other.has(Float) else 1e-20
    return not difference > tolerance * (size if size != 0 else 1)


@lru_cache(maxsize=4096)
def _parsed(answer: str) -> tuple[Any, ...]:
    r"""As math-verify reads it within a `\boxed{}`: what it makes of a bare text is a fifth less."""
    from math_verify import LatexExtractionConfig, parse

    return tuple(parse(f"\\boxed{{{answer}}}", extraction_config=[LatexExtractionConfig(boxed_match_priority=0)]))


def _tidy(answer: str) -> str:
    r"""Numbers as math-verify reads them: `10,\!000`, `10\,000` and `\textbf{040}` are beyond it."""
    return _WRAPPED_NUMBER.sub(r"\1", _THIN_SPACE.sub("", answer))


def _plain(answer: str) -> str:
    answer = re.sub(r"\\(?:text|mathrm|textbf)\s*\{([^{}]*)\}", r"\1", answer)
    return re.sub(r"\s+", "", answer.strip(" .$*"))


def _after_hashes(text: str) -> str | None:
    found = _HASHES.findall(text)
    return found[-1] if found else None


def _after_phrase(text: str) -> str | None:
    last = None
    for match in _PHRASE.finditer(text):
        last = match
    if last is None:
        return None
    line = text[last.end() :].partition("\n")[0]
    first_sentence = re.split(r"\.(?:\s|$)|\*\*", line, maxsplit=1)[0]
    return first_sentence.strip().strip("*$").strip()
