"""The paper's findings, checked on this experiment: computed, with intervals, and reported whichever way they come out.

Each claim is one-sided and has three outcomes beside "missing": true (the 95 % interval lies where the claim says),
false (it lies where the claim says it does not) and "not distinguishable" (this size cannot tell).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Literal

import pandas as pd

from specloss.analysis.evidence.bootstrap import Draws, Interval, ends_text, holm_below_zero, interval, slope
from specloss.analysis.evidence.evidence import Evidence
from specloss.analysis.evidence.verdicts import NOT_GRADED
from specloss.experiment.study import CEILING, INTERPOLATION, LOSSLESS, Place, Setting, level_text

Holds = Literal["true", "false", "not distinguishable", "missing"]

HARDLY = 0.2  # a change of BE below this share of another's is "hardly" one; it is on all of the paper's benchmarks
MANY_POINTS = 5.0  # accuracy points: a loss of more is "many", an interval within +-this is "within noise"


@dataclass(frozen=True)
class Finding:
    """One claim of the paper, its outcome here and a sentence with the numbers; `missing`: what it lacks and why."""

    name: str
    pair: str
    claim: str
    holds: Holds
    sentence: str
    missing: str = ""


def find(experiment_json: Path, results: Path) -> list[Finding]:
    """All findings of an experiment, from its summary files."""
    return check(Evidence.read(experiment_json, results))


def check(evidence: Evidence) -> list[Finding]:
    """All findings for every pair; claims about methods that the experiment does not have are left out."""
    study, found = evidence.study, []
    for pair in study.pairs:
        gates = [setting for gate in study.gates for setting in study.methods[gate]]
        found += [
            _with_reason(evidence, _cos(evidence, pair), [*_heavy(evidence), study.lossless]),
            _with_reason(evidence, _lenience(evidence, pair), [*_mild(evidence), study.lossless]),
        ]
        for gate in study.gates:
            grid = study.methods[gate]
            compared = [*grid, *study.references(grid)]
            found += [_with_reason(evidence, f(evidence, pair, gate), compared) for f in (_gate, _gate_trend)]
        found += [
            _with_reason(
                evidence, _never_slower(evidence, pair), [*study.with_rule("lenience", "cos"), study.lossless]
            ),
            _with_reason(evidence, _gate_slower(evidence, pair), [*gates, study.lossless]),
            *ceiling_or_mixture(evidence, pair),
        ]
    return [finding for finding in found if finding is not None]


def _with_reason(evidence: Evidence, finding: Finding | None, settings: list[Setting]) -> Finding | None:
    """The finding with the missing cells that it needs. One that cannot be decided says only that."""
    if finding is None:
        return None
    why = evidence.why_missing(evidence.places(finding.pair), settings)
    if finding.holds == "missing":
        why = why or NOT_GRADED
        return replace(finding, missing=why, sentence=f"{verdict('missing')}: {why.removeprefix('missing: ')}.")
    return replace(
        finding, missing=why, sentence=f"{finding.sentence} Not among them, {why}." if why else finding.sentence
    )


def to_frame(findings: list[Finding]) -> pd.DataFrame:
    """A row per finding."""
    return pd.DataFrame([vars(finding) for finding in findings], columns=list(Finding.__dataclass_fields__))


def _heavy(evidence: Evidence) -> list[Setting]:
    return [s for s in evidence.study.with_rule("cos") if s.param is not None and s.param >= 0.4]


def _mild(evidence: Evidence) -> list[Setting]:
    return [s for s in evidence.study.with_rule("lenience") if s.param == 0.8]


def _cos(evidence: Evidence, pair: str) -> Finding | None:
    grid = _heavy(evidence)
    if not grid:
        return None
    places, be = evidence.places(pair), evidence.study.metric("be", pair)
    accuracy, gain = evidence.loss("accuracy", places, grid), [evidence.loss(be, places, [s]) for s in grid]
    growth = [
        interval(evidence.bootstrap.difference(be, places, [after], [before])) for before, after in pairwise(grid)
    ]
    holds = _all(_below(accuracy, -MANY_POINTS), *(_above(effect, 0) for effect in gain + growth))
    steps = ", ".join(f"{points(effect, 2, '')} at {s.param:g}" for s, effect in zip(grid, gain, strict=True))
    return Finding(
        "cos_trades_accuracy",
        pair,
        f"CoS with a draft weight of 0.4 or more loses many accuracy points (over {MANY_POINTS:g}) while its BE grows.",
        holds,
        f"{verdict(holds)}: over weights {_params(grid)} and all benchmarks the accuracy changes by "
        f"{points(accuracy)} against {LOSSLESS}, and the BE by {steps}.",
    )


def _lenience(evidence: Evidence, pair: str) -> Finding | None:
    grid = _mild(evidence)
    if not grid:
        return None
    effect = evidence.loss("accuracy", evidence.places(pair), grid)
    holds: Holds = "not distinguishable"
    if effect.missing:
        holds = "missing"
    elif effect.below_zero or effect.above_zero:
        holds = "false"
    elif effect.low > -MANY_POINTS and effect.high < MANY_POINTS:
        holds = "true"
    reach = max(-effect.low, effect.high)
    end = {
        "true": f"; a loss beyond {reach:.1f} points would have shown",
        "false": ", which noise does not explain",
        "not distinguishable": f"; this size cannot rule out a change of {reach:.1f} points",
    }.get(holds, "")
    end = "" if effect.too_few else end
    return Finding(
        "lenience_within_noise",
        pair,
        "Lenience at 0.8 is within noise of lossless.",
        holds,
        f"{verdict(holds)}: its accuracy differs from {LOSSLESS} by {points(effect)}{end}.",
    )


def _gate(evidence: Evidence, pair: str, gate: str) -> Finding:
    grid = evidence.study.methods[gate]
    places, be = evidence.places(pair), evidence.study.metric("be", pair)
    baseline = evidence.study.reference(grid[0]).method  # type: ignore[union-attr]
    accuracy, speed = evidence.gap("accuracy", places, grid), evidence.gap(be, places, grid)
    holds = _below(accuracy, 0)
    return Finding(
        f"{gate}_loses_to_baseline",
        pair,
        f"{gate} is less accurate than {baseline} with the same truncation.",
        holds,
        f"{verdict(holds)}: over parameters {_params(grid)} and all benchmarks its accuracy differs from {baseline} "
        f"by {points(accuracy)} and its BE by {points(speed, 2, '')}.",
    )


def _gate_trend(evidence: Evidence, pair: str, gate: str) -> Finding | None:
    study = evidence.study
    if not study.has_levels:
        return None
    grid, places = study.methods[gate], sorted(evidence.places(pair), key=lambda p: study.levels[p.benchmark])
    baselines = study.references(grid)
    levels = [study.levels[place.benchmark] for place in places]
    draws = [evidence.bootstrap.difference("accuracy", [place], grid, baselines) for place in places]
    trend = interval(slope(levels, draws))
    holds = _below(trend, 0)
    by_level = "; ".join(
        f"level {level_text(level)}: {points(interval(gap))}" for level, gap in zip(levels, draws, strict=True)
    )
    return Finding(
        f"{gate}_gap_grows",
        pair,
        f"The accuracy that {gate} loses against its matched baseline grows with the difficulty.",
        holds,
        f"{verdict(holds)}: the gap changes by {points(trend, 2)} per level ({by_level}).",
    )


def _never_slower(evidence: Evidence, pair: str) -> Finding | None:
    settings = evidence.study.with_rule("lenience", "cos")
    if not settings:
        return None
    effects, slower = _slower(evidence, pair, settings)
    holds: Holds = "false" if slower else "true"
    lowest = min(effects, key=lambda e: e[2].estimate) if effects else None
    if not slower:
        if len(effects) < len(settings) * len(evidence.places(pair)):
            holds = "missing"
        elif any(
            effect.too_few for *_, effect in effects
        ):  # nothing is "beyond noise" that has no noise to compare with
            holds = "not distinguishable"
    names = [name for rule, name in (("lenience", "Lenience"), ("cos", "CoS")) if evidence.study.with_rule(rule)]
    named = " and ".join(names)
    told = f"{len(slower)} of {len(effects)} comparisons are below {LOSSLESS} beyond noise (Holm over all, 5 %)"
    return Finding(
        "lenience_cos_never_slower",
        pair,
        f"{named} never {'has' if len(names) == 1 else 'have'} less BE than standard SD, beyond noise.",
        holds,
        f"{verdict(holds)}: {told}{_worst(slower or ([lowest] if lowest else []))}.",
    )


def _gate_slower(evidence: Evidence, pair: str) -> Finding | None:
    settings = [setting for gate in evidence.study.gates for setting in evidence.study.methods[gate]]
    if not settings:
        return None
    effects, slower = _slower(evidence, pair, settings)
    complete = len(effects) == len(settings) * len(evidence.places(pair))
    if slower:
        holds: Holds = "true"
    elif not complete:
        holds = "missing"
    else:
        holds = "false" if all(effect.low > 0 for *_, effect in effects) else "not distinguishable"
    lowest = [min(effects, key=lambda e: e[2].estimate)] if effects else []
    return Finding(
        "gate_may_be_slower",
        pair,
        "A gate with a strict threshold may have less BE than standard SD.",
        holds,
        f"{verdict(holds)}: {len(slower)} of {len(effects)} comparisons are below {LOSSLESS} beyond noise "
        f"(Holm over all, 5 %){_worst(slower or lowest)}.",
    )


def ceiling_or_mixture(evidence: Evidence, pair: str) -> list[Finding]:
    """The trends of the paper's Table 1: the ceiling beside each mixture that the experiment has over l."""
    grids = evidence.study.mixtures_and_ceilings
    ceilings = [method for method in grids if grids[method][0][1].rule == CEILING and len(grids[method]) > 1]
    mixtures = [m for m in grids if grids[m][0][1].rule in (INTERPOLATION, "cos") and len(grids[m]) > 1]
    return [
        _with_reason(evidence, _flatter(evidence, pair, c, m), [s for _, s in grids[c] + grids[m]])  # type: ignore[misc]
        for c in ceilings
        for m in mixtures
    ]


def _flatter(evidence: Evidence, pair: str, ceiling: str, mixture: str) -> Finding:
    be = evidence.study.metric("be", pair)
    flat, steep = over_l(evidence, pair, be, ceiling), over_l(evidence, pair, be, mixture)
    small = _above(interval(flat - HARDLY * steep), 0), _below(interval(flat + HARDLY * steep), 0)
    holds = _all(_below(interval(steep), 0), *small)
    fixed = evidence.study.methods[mixture][0].rule == "cos"
    return Finding(
        f"{ceiling}_flatter_than_{mixture}",
        pair,
        f"As l grows, the BE of {mixture}{' (lambda = 1 - l)' if fixed else ''} falls while that of the ceiling p / l "
        f"hardly moves (by less than {HARDLY:g} of that).",
        holds,
        f"{verdict(holds)}: for each 0.1 of l the BE changes by {points(interval(steep), 3, '')} with {mixture} and by "
        f"{points(interval(flat), 3, '')} with {ceiling}.",
    )


def over_l(evidence: Evidence, pair: str, metric: str, method: str) -> Draws:
    """`[draws + 1]`: slope of a metric for each 0.1 of l, mean over the benchmarks, of a method of Table 1."""
    grid = evidence.study.mixtures_and_ceilings[method]
    values = [evidence.bootstrap.mean(metric, evidence.places(pair), [setting]) for _, setting in grid]
    return slope([10 * l for l, _ in grid], values)  # noqa: E741


Compared = tuple[Setting, Place, Interval]


def _slower(evidence: Evidence, pair: str, settings: list[Setting]) -> tuple[list[Compared], list[Compared]]:
    """BE against the lossless run for every setting and benchmark that is there; and those below it, lowest first."""
    be = evidence.study.metric("be", pair)
    compared = [(s, place, evidence.loss(be, [place], [s])) for s in settings for place in evidence.places(pair)]
    there = [item for item in compared if not item[2].missing]
    below = [item for item, low in zip(there, holm_below_zero([e for *_, e in there]), strict=True) if low]
    return there, sorted(below, key=lambda item: item[2].estimate)


def _worst(items: list[Compared]) -> str:
    if not items:
        return ""
    setting, place, effect = items[0]
    return f"; the lowest is {setting.label} on {place.benchmark}: BE {points(effect, 2, '')}"


def _below(effect: Interval, bound: float) -> Holds:
    return _claim(effect, lambda value: value < bound)


def _above(effect: Interval, bound: float) -> Holds:
    return _claim(effect, lambda value: value > bound)


def _claim(effect: Interval, true: Callable[[float], bool]) -> Holds:
    if effect.missing:
        return "missing"
    if effect.too_few:
        return "not distinguishable"
    ends = true(effect.low), true(effect.high)
    return "true" if all(ends) else "not distinguishable" if any(ends) else "false"


def _all(*parts: Holds) -> Holds:
    """True if all parts hold, false if one does not, else "not distinguishable"."""
    for outcome in ("missing", "false", "not distinguishable"):
        if outcome in parts:
            return outcome  # type: ignore[return-value]
    return "true"


def verdict(holds: Holds) -> str:
    """The outcome in words."""
    return {
        "true": "Seen here",
        "false": "Not so here",
        "not distinguishable": "Not distinguishable at this size",
        "missing": "Cannot be told here",
    }[holds]


def points(effect: Interval, digits: int = 1, unit: str = " points") -> str:
    """`-3.2 points [-5.0, -1.4]`."""
    if effect.missing:
        return "missing"
    return f"{effect.estimate:+.{digits}f}{unit} {ends_text(effect.low, effect.high, digits, '+')}"


def _params(grid: list[Setting]) -> str:
    return ", ".join(f"{s.param:g}" for s in grid if s.param is not None)
