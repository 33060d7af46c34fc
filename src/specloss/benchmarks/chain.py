"""Chain arithmetic: a synthetic ladder of difficulty for the demo pair, with exact grading and no download.

A problem of level `n` applies `n` operations modulo 100 from left to right:

    prompt    37+03*07-20?
    solution  start 37 then +03=40 so *07 is 80 next -20=60 thus #60

Every value is two digits. The words of a solution are free (they carry entropy), its digits are not (they carry
correctness). Most operations are easy: plus or minus 1, 2, 3, 10, 20 or 30. A few are hard, times 2 to 9: none at
levels 1 and 2, then one more every second level, which is what makes the ladder steep. No operation comes twice in a
problem, so a model finds its place in the prompt by the operation it did last.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from specloss.benchmarks import Grade, Item

LEVELS = range(1, 9)
EASY_OPERATIONS = tuple((operator, operand) for operator in "+-" for operand in (1, 2, 3, 10, 20, 30))
HARD_OPERATIONS = tuple(("*", factor) for factor in range(2, 10))

# The free words of a solution, by the place where they stand. Each is one token of the demo tokenizer, spaces included.
OPENERS = ("start ", "from ", "take ", "begin ")
VERBS = ("=", " is ", " gives ", " makes ")
CONNECTIVES = (" then ", " so ", " next ", " now ", " and ")
CLOSERS = (" thus ", " hence ", " finally ")

_HELD_OUT_SHARE = 10  # one prompt in ten is for evaluation
_FINAL_ANSWER = re.compile(r"(?:^|\s)#([0-9]{2})\s*\Z")


@dataclass(frozen=True, slots=True)
class Problem:
    """A start value and the operations on it, each an operator in `+-*` and an operand, all values 0 to 99."""

    start: int
    operations: tuple[tuple[str, int], ...]

    @property
    def prompt(self) -> str:
        """As the model gets it: `37+03*07-20?`."""
        return f"{self.start:02d}" + "".join(f"{operator}{operand:02d}" for operator, operand in self.operations) + "?"

    @property
    def values(self) -> list[int]:
        """The start value and the value after each operation, modulo 100."""
        values = [self.start]
        for operator, operand in self.operations:
            values.append(_apply(values[-1], operator, operand))
        return values

    @property
    def answer(self) -> str:
        """The last value, two digits."""
        return f"{self.values[-1]:02d}"


def draw_problem(rng: random.Random, level: int) -> Problem:
    """A random problem with `level` operations, `(level - 1) // 2` of them hard, all different."""
    _check_level(level)
    hard = (level - 1) // 2
    operations = rng.sample(HARD_OPERATIONS, hard) + rng.sample(EASY_OPERATIONS, level - hard)
    rng.shuffle(operations)
    return Problem(rng.randrange(100), tuple(operations))


def write_solution(problem: Problem, rng: random.Random, skew: float = 0.0) -> str:
    """A worked solution with random words; the k-th word of a list has weight `k ** -skew`, so 0 is uniform."""
    first, *results = problem.values
    parts = [f"{_draw_word(rng, OPENERS, skew)}{first:02d}"]
    for (operator, operand), result in zip(problem.operations, results, strict=True):
        connective, verb = _draw_word(rng, CONNECTIVES, skew), _draw_word(rng, VERBS, skew)
        parts.append(f"{connective}{operator}{operand:02d}{verb}{result:02d}")
    parts.append(f"{_draw_word(rng, CLOSERS, skew)}#{problem.answer}")
    return "".join(parts)


def is_held_out(prompt: str) -> bool:
    """Whether a prompt is for evaluation; training never sees it. A property of the text alone, whatever the seed."""
    digest = hashlib.sha256(prompt.encode()).digest()
    return int.from_bytes(digest[:4], "big") % _HELD_OUT_SHARE == 0


def load(level: int, problems: int, seed: int = 0) -> list[Item]:
    """The first `problems` held-out problems of a level, all different, fixed by `(level, seed)`.

    Fewer problems are a prefix of more. Raises ValueError for a level outside 1 to 8, for `problems` below 1, and when
    the level has not that many different held-out problems (only levels 1 and 2 can run out).
    """
    _check_level(level)
    if problems < 1:
        raise ValueError(f"problems must be at least 1, got {problems}")
    rng = random.Random(f"chain-{level}-{seed}")
    items: dict[str, Item] = {}
    misses = 0
    while len(items) < problems:
        problem = draw_problem(rng, level)
        if is_held_out(problem.prompt) and problem.prompt not in items:
            item = Item(f"chain-l{level}-{len(items):04d}", problem.prompt, problem.answer)
            items[item.prompt] = item
            misses = 0
        elif (misses := misses + 1) == 10_000:
            raise ValueError(f"chain level {level} has only {len(items)} held-out problems, {problems} were asked for")
    return list(items.values())


def grade(text: str, reference: str) -> Grade:
    """Grade a solution by its final answer: `#` and two digits as the last word, with no other `#` in the text."""
    match = _FINAL_ANSWER.search(text) if text.count("#") == 1 else None
    answer = match.group(1) if match else None
    return Grade(answer is not None and answer == reference, answer)


def _check_level(level: int) -> None:
    if level not in LEVELS:
        raise ValueError(f"chain level must be {LEVELS.start} to {LEVELS.stop - 1}, got {level}")


def _apply(value: int, operator: str, operand: int) -> int:
    match operator:
        case "+":
            return (value + operand) % 100
        case "-":
            return (value - operand) % 100
        case "*":
            return (value * operand) % 100
        case _:
            raise ValueError(f"operator must be one of + - *, got {operator!r}")


def _draw_word(rng: random.Random, words: Sequence[str], skew: float) -> str:
    return rng.choices(words, cum_weights=_cumulative_weights(len(words), skew))[0]


@cache
def _cumulative_weights(count: int, skew: float) -> list[float]:
    weights = [(rank + 1) ** -skew for rank in range(count)]
    return [sum(weights[: end + 1]) for end in range(count)]
