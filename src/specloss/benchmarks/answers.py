r"""Final answers of mathematical solutions: where they stand, and whether they equal the reference.

A final answer is what the last `\boxed{}` holds, else what follows the last `####`, else what follows the last
"final answer is", "answer is" or "answer:". There is no guess: a text without any of them is a parse failure.

Equality is decided by `math-verify`. Its time-outs are signals, so `grade_answer` must be called from a main thread.
"""

from __future__ import annotations

import re
import threading
from functools import lru_cache
from typing import Any

from specloss.benchmarks import Grade

MAX_CHARACTERS = 500  # of an answer that is looked at; a longer one is no final answer

_BOX = re.compile(r"\\f?boxed\s*+\{")
_HASHES = re.compile(r"^[ \t]*+####[ \t]*+(\S.*)$", re.MULTILINE)
_PHRASE = re.compile(r"\banswer\b\s*+(?:is\b\s*+:?|:)[ \t*]*+(\S[^\n]*+)", re.IGNORECASE)


def final_answer(text: str) -> str | None:
    """The final answer as it is written, None if the text does not say which it is."""
    for find in (last_boxed, _after_hashes, _after_phrase):
        answer = find(text)
        if answer is not None:
            answer = answer.strip()
            return answer if 0 < len(answer) <= MAX_CHARACTERS else None
    return None


def last_boxed(text: str) -> str | None:
    r"""What the last `\boxed{}` of a text holds, braces balanced; None if there is none or it is left open."""
    start = None
    for match in _BOX.finditer(text):
        start = match.end()
    if start is None:
        return None
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
    if _plain(gold) == _plain(answer):
        return True
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("math-verify's time-outs are signals: call it from a main thread")
    import math_verify  # a second of imports

    ours, theirs = _parsed(gold), _parsed(answer)
    return bool(ours and theirs and math_verify.verify(list(ours), list(theirs)))


@lru_cache(maxsize=4096)
def _parsed(answer: str) -> tuple[Any, ...]:
    r"""As math-verify reads it within a `\boxed{}`: what it makes of a bare text is a fifth less."""
    from math_verify import LatexExtractionConfig, parse

    return tuple(parse(f"\\boxed{{{answer}}}", extraction_config=[LatexExtractionConfig(boxed_match_priority=0)]))


def _plain(answer: str) -> str:
    answer = re.sub(r"\\(?:text|mathrm|textbf)\s*\{([^{}]*)\}", r"\1", answer)
    return re.sub(r"\s+", "", answer.strip(" .$*"))


def _after_hashes(text: str) -> str | None:
    found = _HASHES.findall(text)
    return found[-1] if found else None


def _after_phrase(text: str) -> str | None:
    found = _PHRASE.findall(text)
    if not found:
        return None
    first_sentence = re.split(r"\.(?:\s|$)|\*\*", found[-1], maxsplit=1)[0]
    return first_sentence.strip().strip("*$").strip()
