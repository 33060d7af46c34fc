"""Faster and not worse? Verdicts on settings against their baselines, and how often verdicts may be wrong.

Four claims are tested, each one-sided at level (1 - confidence) / 2 (2.5 % for 95 %), by the estimate over its
standard error from the bootstrap over problems (t with problems - 1 degrees of freedom):

    not worse   the accuracy difference is above -margin
    worse       it is below zero
    faster      the speed ratio is above 1
    slower      it is below 1

Over a table each kind of claim is adjusted for the number of comparisons (Holm by default). "faster and not worse"
needs two claims to hold, so it is wrong no more often than either.

A bootstrap sees no noise where hardly any answer differs: with 0 of 100 problems lost its interval is [0, 0], though a
true loss of 2 points looks so 13 times in 100. So for "not worse" the standard error is never taken for less than that
of the rarest way to lose the margin: a share `margin` of the problems lost under all seeds, none gained.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import false_discovery_control, norm, t
from statsmodels.stats.contingency_tables import mcnemar

from specloss.analysis.evidence.bootstrap import TOO_FEW, Interval, holm
from specloss.experiment.sections import Analysis

FASTER, FASTER_BUT_WORSE, WORSE = "faster and not worse", "faster but worse", "worse, not shown to be faster"
NOT_FASTER, UNCLEAR = "not faster", "not distinguishable at this size"
NOT_GRADED, MISSING, FEW = "not graded", "missing", "too few problems"
METHODS = {"holm": holm, "bh": false_discovery_control}
ADJUSTED = {"holm": "Holm", "bh": "Benjamini-Hochberg", "none": "none"}


@dataclass(frozen=True)
class Contrast:
    """Settings minus their baselines, paired by problem.

    `accuracy` in points; `speed` a ratio, `log_speed` its logarithm; `won` and `lost` the problems with more and with
    fewer right answers; `problems` at each benchmark; `why` says why there are no numbers, if so.
    """

    accuracy: Interval
    speed: Interval
    log_speed: Interval
    be: Interval
    problems: tuple[int, ...] = ()
    won: int = 0
    lost: int = 0
    why: str = ""

    @property
    def absent(self) -> str:
        """What to print for a number that is NaN; '' if none is, leaving aside the ends of intervals."""
        return self.why or (NOT_GRADED if self.accuracy.missing else "")

    @property
    def lacks(self) -> str:
        """The same of the ends of intervals as well."""
        return self.absent or (TOO_FEW if self.speed.too_few else "")

    @property
    def p_mcnemar(self) -> float:
        """Exact McNemar, two-sided, NaN without accuracies. A problem is won or lost by its right answers over all
        seeds (and parameters, if several are averaged), so that it counts once however alike its answers are.
        """
        if self.accuracy.missing:
            return np.nan
        return float(mcnemar([[0, self.won], [self.lost, 0]], exact=True).pvalue) if self.won + self.lost else 1.0


@dataclass(frozen=True)
class Verdict:
    """A name among those of `definitions`; p values are adjusted over the table.

    Where nothing could be decided, the smallest effects that would have been detected: `loss` in points, `gain` in
    percent of the baseline's speed; else NaN.
    """

    name: str
    p_mcnemar: float = np.nan
    p_not_worse: float = np.nan
    p_faster: float = np.nan
    loss: float = np.nan
    gain: float = np.nan

    @property
    def found(self) -> str:
        """These effects in words; '' if there are none."""
        parts = [] if np.isnan(self.loss) else [f"a loss of {self.loss:.1f} points"]
        parts += [] if np.isnan(self.gain) else [f"a speed-up of {self.gain:.1f} %"]
        return f"could have found {' and '.join(parts)}" if parts else ""

    @property
    def text(self) -> str:
        """The verdict's name, with what this size could have detected if it decided nothing."""
        return f"{self.name} ({self.found})" if self.found else self.name


@dataclass(frozen=True)
class Claims:
    """One-sided p values of the four claims, an element per comparison; NaN without an accuracy."""

    not_worse: NDArray[np.float64]
    worse: NDArray[np.float64]
    faster: NDArray[np.float64]
    slower: NDArray[np.float64]

    def adjusted(self, multiplicity: str) -> Claims:
        """Adjusted for the number of comparisons, each kind of claim by itself."""
        return Claims(*(adjust(getattr(self, name), multiplicity) for name in self.__dataclass_fields__))

    def names(self, confidence: float) -> NDArray[np.str_]:
        """The verdict on each comparison."""
        level = (1 - confidence) / 2
        with np.errstate(invalid="ignore"):
            not_worse, faster, slower = self.not_worse <= level, self.faster <= level, self.slower <= level
            worse = ~not_worse & (self.worse <= level)
        ungraded = np.isnan(self.not_worse)
        conditions = [ungraded, faster & not_worse, faster & worse, worse, slower]
        return np.select(conditions, [NOT_GRADED, FASTER, FASTER_BUT_WORSE, WORSE, NOT_FASTER], UNCLEAR)


def claims(
    accuracy: ArrayLike,
    error: ArrayLike,
    log_speed: ArrayLike,
    speed_error: ArrayLike,
    freedom: ArrayLike,
    margin: float,
    floor: ArrayLike,
) -> Claims:
    """From estimates and standard errors; `floor` is that of the accuracy's (`error_floor`). Shapes `[comparisons]`."""
    accuracy, log_speed = np.asarray(accuracy, float), np.asarray(log_speed, float)
    return Claims(
        _above(accuracy + margin, np.maximum(error, floor), freedom),
        _above(-accuracy, error, freedom),
        _above(log_speed, speed_error, freedom),
        # a ratio that never varies and is not above 1 is no gain
        np.where((np.asarray(speed_error) == 0) & (log_speed <= 0), 0.0, _above(-log_speed, speed_error, freedom)),
    )


def _above(estimate: NDArray[np.float64], error: ArrayLike, freedom: ArrayLike) -> NDArray[np.float64]:
    """One-sided p of the claim that the true value is above zero."""
    return t.sf(estimate / np.maximum(error, 1e-12), freedom)


def error_floor(margin: float, problems: Sequence[int]) -> float:
    """Smallest standard error, in points, of an accuracy difference over benchmarks of so many problems each."""
    share = margin / 100
    return 100 * float(np.sqrt(sum(share * (1 - share) / n for n in problems))) / len(problems)


def adjust(p: NDArray[np.float64], multiplicity: str) -> NDArray[np.float64]:
    """p values adjusted over all that are not NaN."""
    p = np.asarray(p, float)
    there = ~np.isnan(p)
    if multiplicity == "none" or not there.any():
        return p
    adjusted = np.full(p.shape, np.nan)
    adjusted[there] = METHODS[multiplicity](p[there])
    return adjusted


def judge(contrasts: Sequence[Contrast], analysis: Analysis) -> list[Verdict]:
    """A verdict on each of a table's comparisons, adjusted for those that can be tested."""
    there = [c for c in contrasts if not (c.speed.missing or c.speed.too_few)]
    if not there:
        return [Verdict(FEW if c.speed.too_few else MISSING) for c in contrasts]
    floors = [error_floor(analysis.margin, c.problems) for c in there]
    raw = claims(
        [c.accuracy.estimate for c in there],
        [c.accuracy.error for c in there],
        [c.log_speed.estimate for c in there],
        [c.log_speed.error for c in there],
        [_freedom(c) for c in there],
        analysis.margin,
        floors,
    )
    adjusted = raw.adjusted(analysis.multiplicity)
    p = adjust(np.array([c.p_mcnemar for c in there]), analysis.multiplicity)
    level = (1 - analysis.confidence) / 2
    found = {}
    for number, (contrast, name) in enumerate(zip(there, adjusted.names(analysis.confidence), strict=True)):
        decided = min(adjusted.not_worse[number], adjusted.worse[number]) <= level, adjusted.faster[number] <= level
        could = _could_find(contrast, floors[number], decided, analysis) if name == UNCLEAR else (np.nan, np.nan)
        found[id(contrast)] = Verdict(
            str(name), float(p[number]), float(adjusted.not_worse[number]), float(adjusted.faster[number]), *could
        )
    return [found.get(id(c), Verdict(FEW if c.speed.too_few else MISSING)) for c in contrasts]


def _freedom(contrast: Contrast) -> int:
    return max(sum(contrast.problems) - len(contrast.problems), 1)


def _could_find(
    contrast: Contrast, floor: float, decided: tuple[bool, bool], analysis: Analysis
) -> tuple[float, float]:
    """The smallest loss (points) and gain in speed (%) that this size finds with the config's power; NaN if decided."""
    reach = smallest_effect(1.0, analysis)
    loss, gain = reach * max(contrast.accuracy.error, floor), 100 * np.expm1(reach * contrast.log_speed.error)
    return (np.nan if decided[0] else loss), (np.nan if decided[1] else float(gain))


def smallest_effect(error: float, analysis: Analysis) -> float:
    """The true effect that one test at the config's confidence finds with the config's power, given its error."""
    return float(norm.ppf((1 + analysis.confidence) / 2) + norm.ppf(analysis.power)) * error


def definitions(analysis: Analysis) -> dict[str, str]:
    """What each verdict means."""
    margin = f"{analysis.margin:g} points"
    return {
        FASTER: f"speed is above the baseline's, and accuracy is shown to lose less than {margin} (the margin)",
        FASTER_BUT_WORSE: "speed is above the baseline's; accuracy is below it, and not shown to be within the margin",
        WORSE: "accuracy is below the baseline's, and not shown to be within the margin; no gain in speed is shown",
        NOT_FASTER: "speed is below the baseline's, or the same on every problem; accuracy is not shown to be worse",
        UNCLEAR: "none of these is shown; in brackets, the smallest effects that one comparison of "
        f"this size would detect with {100 * analysis.power:g} % power",
        NOT_GRADED: "the problems have no reference answers",
        FEW: f"there are {TOO_FEW}, which do not say how much problems differ",
        MISSING: "a cell that the comparison needs is missing",
    }


def explain(analysis: Analysis, comparisons: int, speed: str, named: Sequence[str]) -> str:
    """How to read a table's verdicts: the definition of each one `named`, and how often they may be wrong."""
    level = f"{100 * (1 - analysis.confidence) / 2:g} %"
    over = f"the {comparisons} comparisons of this table"
    if MISSING in named or FEW in named:
        over = f"those of {over} that can be tested"
    errs = {
        "holm": f"adjusted with Holm over {over}: the chance that it makes any "
        f"false claim of one kind (not worse, worse, faster, slower) is at most {level}",
        "bh": f"adjusted with Benjamini-Hochberg over {over}: of its claims of "
        f"one kind (not worse, worse, faster, slower) at most {level} are expected to be false",
        "none": f"not adjusted for {over}: each claim is wrong in {level} of cases where it does not hold",
    }[analysis.multiplicity]
    said = "; ".join(f"'{name}': {text}" for name, text in definitions(analysis).items() if name in named)
    return (
        f"Intervals are {100 * analysis.confidence:g} %, from a paired bootstrap over problems, not adjusted "
        "for the number of comparisons. "
        "p is from an exact McNemar test in which a problem is won or lost by its correct answers over all seeds. "
        f"p values and verdicts are {errs}. Speed is {speed}. Verdicts: {said}."
    )
