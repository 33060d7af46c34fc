"""How many problems and seeds a verdict needs, and how long decoding them takes, estimated from a finished pilot.

The pilot tells how much the accuracy difference of a setting and its baseline varies from problem to problem and, for
one problem, from seed to seed; with N problems and S seeds the variance of the mean is (between + within / S) / N. More
seeds therefore reduce only the second part. "Faster and not worse" takes two one-sided tests, each at level
(1 - confidence) / 2, divided by the number of comparisons if those are adjusted for (the strictest step of Holm, so the
plan is on the safe side); the power of both is taken to be the product of their powers. A plan delivers its power
within 3 points if the noise is as in the pilot; within 6 where few problems are planned, as the accuracy then moves in
steps of a test's size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import chi2, norm, t

from specloss.analysis.evidence.bootstrap import FEWEST, TOO_FEW, Bootstrap
from specloss.analysis.evidence.evidence import Evidence
from specloss.common.section import validated
from specloss.experiment.metrics import METRICS
from specloss.experiment.sections import Analysis
from specloss.experiment.study import Place, Setting

MOST = 10_000_000  # problems
COARSE = 150  # problems; accuracies of fewer go in steps that a plan cannot hit
QUANTILES = (np.arange(200) + 0.5) / 200  # of a distribution to be averaged over


@dataclass(frozen=True)
class Noise:
    """Variances of a problem's part in a mean: from problem to problem, and of one problem from seed to seed.

    Of the accuracy difference in points^2, of the logarithm of the speed ratio without unit.
    """

    between: float
    within: float
    speed_between: float
    speed_within: float

    def accuracy(self, seeds: int) -> float:
        """Variance of a problem's mean difference over so many seeds."""
        return self.between + self.within / seeds

    def log_speed(self, seeds: int) -> float:
        """The same of its part in the log speed ratio."""
        return self.speed_between + self.speed_within / seeds


@dataclass(frozen=True)
class Aim:
    """What a verdict must detect: `difference` is the true accuracy difference (points), `ratio` the true speed ratio.

    With a ratio of at most 1, only "not worse" is asked for.
    """

    difference: float
    ratio: float
    comparisons: int = 1


@dataclass(frozen=True)
class Size:
    """A plan: the problems of each benchmark and the seeds. None: no number of problems is enough."""

    problems: int | None
    seeds: int

    @property
    def answers(self) -> float:
        """Of each setting on each benchmark; infinite if there is no such number."""
        return np.inf if self.problems is None else self.problems * self.seeds


def noise_of(differences: NDArray[np.float64], log_speed: NDArray[np.float64]) -> Noise:
    """From accuracy differences in points and parts in the log speed ratio, `[problems, seeds]` each."""
    return Noise(*_components(differences), *_components(log_speed))


def _components(values: NDArray[np.float64]) -> tuple[float, float]:
    """Variance between and within problems (one-way analysis of variance, problems at random, by REML)."""
    seeds = values.shape[1]
    within = float(values.var(axis=1, ddof=1).mean()) if seeds > 1 else 0.0
    between = float(values.mean(axis=1).var(ddof=1)) - within / seeds
    return (between, within) if between >= 0 else (0.0, float(values.var(ddof=1)))


def power(aim: Aim, noise: Noise, seeds: int, problems: float, analysis: Analysis, benchmarks: int = 1) -> float:
    """Probability of the verdict with so many problems of each benchmark, `noise` being that of their mean."""
    alpha = (1 - analysis.confidence) / 2
    if analysis.multiplicity != "none":
        alpha /= aim.comparisons
    freedom = benchmarks * (problems - 1)
    floor = np.sqrt(analysis.margin * (100 - analysis.margin) / benchmarks / problems)  # verdicts.error_floor
    error, speed_error = (np.sqrt(variance / problems) for variance in (noise.accuracy(seeds), noise.log_speed(seeds)))
    found = _test_power(aim.difference + analysis.margin, error, freedom, alpha, floor)
    if aim.ratio > 1:
        found *= _test_power(np.log(aim.ratio), speed_error, freedom, alpha)
    return found


def _test_power(effect: float, error: float, freedom: float, alpha: float, floor: float = 0.0) -> float:
    """Probability that an estimate of `effect` is above t times its standard error, as estimated but at least `floor`.

    The estimate varies by the true `error`, the estimated one around it by chi-square; without a floor this is the
    power of the t test. Where the floor is the larger, the estimate varies less than the test takes it to.
    """
    if effect <= 0:
        return 0.0
    error = max(error, 1e-6)
    estimated = error * np.sqrt(chi2.ppf(QUANTILES, freedom) / freedom)
    return float(norm.cdf((effect - t.isf(alpha, freedom) * np.maximum(estimated, floor)) / error).mean())


def size(aim: Aim, noise: Noise, seeds: int, analysis: Analysis, benchmarks: int = 1) -> Size:
    """The fewest problems of each benchmark with which the verdict has the config's power."""

    def lacking(problems: float) -> float:
        return power(aim, noise, seeds, problems, analysis, benchmarks) - analysis.power

    if lacking(FEWEST) >= 0:
        return Size(FEWEST, seeds)
    if lacking(MOST) < 0:
        return Size(None, seeds)
    return Size(int(np.ceil(brentq(lacking, FEWEST, MOST, xtol=0.1))), seeds)


def cheapest(sizes: Sequence[Size], at_most: int | None) -> Size | None:
    """The plan with the fewest answers among those with enough problems available; ties go to fewer seeds."""
    fitting = [s for s in sizes if s.problems is not None and (at_most is None or s.problems <= at_most)]
    return min(fitting, key=lambda s: (s.answers, s.seeds)) if fitting else None


def plan_sizes(
    evidence: Evidence, difference: float = 0.0, most_seeds: int = 5, at_most: int | None = None
) -> pd.DataFrame:
    """A row per setting and pair: what "faster and not worse" over all benchmarks needs, judging by this pilot.

    `difference` is the true accuracy difference to assume. Columns: pair, method, param, against, `pilot_difference`,
    `pilot_high` (the upper end of its interval), `pilot_speed`, `aim`, `problems` (of each benchmark) and `seeds` (NaN:
    not to be reached), `hours` of decoding both.
    """
    study, rows = evidence.study, []
    settings = [(s, study.reference(s)) for grid in study.methods.values() for s in grid]
    compared = [(s, other) for s, other in settings if other is not None]
    for pair in study.pairs:
        places = evidence.places(pair)
        for setting, other in compared:
            row = {"pair": pair, "method": setting.method, "param": setting.param, "against": other.method}
            contrast = evidence.contrast(places, [setting], [other])
            if contrast.why or contrast.accuracy.missing:
                rows.append(row | {"aim": contrast.why or "not graded"})
                continue
            if contrast.accuracy.too_few:
                rows.append(row | {"aim": f"the pilot has {TOO_FEW}, which do not say how much problems differ"})
                continue
            noise = _noise(evidence, places, setting, other)
            aim = Aim(difference, contrast.speed.estimate, len(compared))
            sizes = [size(aim, noise, seeds, study.analysis, len(places)) for seeds in range(1, most_seeds + 1)]
            best = cheapest(sizes, at_most)
            rows.append(
                row
                | {
                    "pilot_difference": contrast.accuracy.estimate,
                    "pilot_high": contrast.accuracy.high,
                    "pilot_speed": contrast.speed.estimate,
                    "aim": "faster and not worse" if aim.ratio > 1 else "not worse (no gain of speed in the pilot)",
                    "problems": best.problems if best else np.nan,
                    "seeds": best.seeds if best else np.nan,
                    "hours": best.answers * _seconds(evidence, places, [setting, other]) / 3600 if best else np.nan,
                }
            )
    return pd.DataFrame(rows)


def _noise(evidence: Evidence, places: Sequence[Place], setting: Setting, other: Setting) -> Noise:
    """Of the mean over the benchmarks, for each problem of every benchmark."""
    boot, speed = evidence.bootstrap, evidence.study.metric(evidence.study.analysis.speed, places[0].pair)
    means = [boot.mean(speed, places, [s])[0] for s in (setting, other)]
    parts = []
    for place in places:
        share = [100 * boot.sums("correct", place, s) / boot.sums("graded", place, s) for s in (setting, other)]
        moves = [_moves(boot, speed, place, s) / mean for s, mean in zip((setting, other), means, strict=True)]
        parts.append(noise_of(share[0] - share[1], moves[0] - moves[1]))
    return Noise(*(sum(getattr(p, name) for p in parts) / len(parts) ** 2 for name in Noise.__dataclass_fields__))


def _moves(boot: Bootstrap, metric: str, place: Place, setting: Setting) -> NDArray[np.float64]:
    """`[problems, seeds]`: how each answer moves the metric, a ratio of sums, to first order; their mean is zero."""
    top, bottom = (boot.sums(column, place, setting) for column in (METRICS[metric].top, METRICS[metric].bottom))
    return (top - bottom * top.sum(axis=0) / bottom.sum(axis=0)) / bottom.mean(axis=0)


def _seconds(evidence: Evidence, places: Sequence[Place], settings: Sequence[Setting]) -> float:
    """Decode seconds of one answer on each benchmark under each of the settings."""
    here = evidence.summary[evidence.summary["pair"] == places[0].pair]
    wanted = {(s.method, s.param) for s in settings}
    params = [None if pd.isna(param) else param for param in here["param"]]
    rows = here[[key in wanted for key in zip(here["method"], params, strict=True)]]
    by = rows.groupby(["benchmark", "method", "param"], dropna=False)[["seconds", "samples"]].sum()
    return float((by["seconds"] / by["samples"]).sum())


def experiment_hours(evidence: Evidence, planned: Size) -> float:
    """Hours of decoding for every setting on every benchmark and pair at that size."""
    study = evidence.study
    seconds = sum(_seconds(evidence, evidence.places(pair), study.settings) for pair in study.pairs)
    return planned.answers * seconds / 3600


def with_options(evidence: Evidence, margin: float | None, chance: float | None) -> Evidence:
    """The evidence with another margin and power than its config's. ConfigError outside the keys' ranges."""
    given = {"margin": margin, "power": chance}
    analysis = evidence.study.analysis.model_dump() | {
        name: value for name, value in given.items() if value is not None
    }
    validated(Analysis, analysis, "plan-size")
    study = replace(evidence.study, config={**evidence.study.config, "analysis": analysis})
    return replace(evidence, study=study)


def plan_text(evidence: Evidence, planned: pd.DataFrame, difference: float) -> list[str]:
    """The plan in lines, and what the whole experiment would take at the largest size in it."""
    study, analysis = evidence.study, evidence.study.analysis
    lines = []
    for row in planned.to_dict("records"):
        setting = Setting(row["method"], None if pd.isna(row["param"]) else row["param"])
        name = f"{row['pair']}: {setting.label}" if len(study.pairs) > 1 else setting.label
        if pd.isna(row.get("problems")):
            why = row["aim"] if pd.isna(row.get("pilot_speed")) else "out of reach with the problems allowed"
            lines.append(f"{name:28} against {row['against']}: {why}")
            continue
        against = " (which contradicts the assumption)" if row["pilot_high"] < difference else ""
        lines.append(
            f"{name:28} against {row['against']}: {_count(Size(int(row['problems']), int(row['seeds'])))}, "
            f"{row['hours']:.3g} h for both; {row['aim']}; pilot {row['pilot_difference']:+.1f} points at "
            f"{row['pilot_speed']:.3f} of the speed{against}"
        )
    adjusted = "" if analysis.multiplicity == "none" else f", adjusted for {len(planned)} comparisons"
    lines.append(
        f"Power {analysis.power:g} at a margin of {analysis.margin:g} points and a true difference of {difference:g}"
        f"{adjusted}, if the noise is as in the pilot; accurate to 3 points, or to 6 where fewer than {COARSE} "
        "problems are planned, because single problems then decide. Hours are those of one pair's device at the "
        f"pilot's speed, without loading; the pilot has {len(evidence.bootstrap.problems[study.places[0]])} problems x "
        f"{len(study.seeds)} seeds."
    )
    reached = planned.dropna(subset=["problems"]) if "problems" in planned else planned.iloc[:0]
    if len(reached):
        largest = Size(int(reached["problems"].max()), int(reached["seeds"].max()))
        lines.append(
            f"All {len(study.settings)} settings at the largest of these ({_count(largest)}): "
            f"{experiment_hours(evidence, largest):.3g} h"
        )
    return lines


def _count(planned: Size) -> str:
    return f"{planned.problems} problems of each benchmark x {planned.seeds} seed{'s' if planned.seeds > 1 else ''}"
