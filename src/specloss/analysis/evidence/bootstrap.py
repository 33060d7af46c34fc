"""Uncertainty: problems are the unit, seeds are clustered within them.

Two kinds are reported and never mixed. *Mean and std over seeds* (sample standard deviation) is what the paper prints.
*Intervals* come from a paired bootstrap: problems are drawn with replacement, a drawn problem brings its answers under
every setting and seed, and all settings see the same draws. So the interval of any contrast of settings is paired.

Every quantity is an array `[draws + 1]` whose element 0 is the estimate itself and whose others are its bootstrap
replicates; a contrast is plain arithmetic on such arrays, and `interval` reads the result. A quantity that needs a
missing cell is NaN throughout: an average over fewer seeds, benchmarks or parameters is never passed off as the whole.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.stats import norm, t

from specloss.analysis.evidence.summary import read_problems
from specloss.common.files import config_hash
from specloss.experiment.metrics import METRICS, with_derived
from specloss.experiment.study import Place, Setting, Study

Draws = NDArray[np.float64]

# Below it no resample tells how far a mean may be off: 95 % intervals of 4 problems would cover 83 to 94 %, of 3 or 2
# about half (normal, skewed and discrete data).
FEWEST = 5
TOO_FEW = f"fewer than {FEWEST} problems"


@dataclass(frozen=True)
class Interval:
    """An estimate with its 95 % bootstrap percentile interval and bootstrap standard error.

    NaN: a cell is missing; with an estimate: there are fewer than `FEWEST` problems.
    """

    estimate: float
    low: float
    high: float
    error: float

    @property
    def missing(self) -> bool:
        """Whether a cell that it needs is missing."""
        return bool(np.isnan(self.estimate))

    @property
    def too_few(self) -> bool:
        """Whether there are too few problems for an interval."""
        return bool(np.isnan(self.low)) and not self.missing

    @property
    def above_zero(self) -> bool:
        """Whether the whole interval is above zero."""
        return self.low > 0

    @property
    def below_zero(self) -> bool:
        """Whether the whole interval is below zero."""
        return self.high < 0


MISSING = Interval(np.nan, np.nan, np.nan, np.nan)


def interval(draws: Draws, level: float = 0.95) -> Interval:
    """Estimate and percentile interval of a quantity given as `[draws + 1]`."""
    if not np.isfinite(draws[0]):
        return MISSING
    if np.isnan(draws[1:]).all():
        return Interval(float(draws[0]), np.nan, np.nan, np.nan)
    return Interval(*map(float, spread(draws, level)))


def ends_text(low: float, high: float, digits: int, sign: str = "") -> str:
    """`[3.12, 3.50]`, or why there is no interval around an estimate that there is."""
    return f"(no interval: {TOO_FEW})" if np.isnan(low) else f"[{low:{sign}.{digits}f}, {high:{sign}.{digits}f}]"


def spread(draws: Draws, level: float = 0.95) -> tuple[Draws, Draws, Draws, Draws]:
    """Estimate, ends of the percentile interval and standard error of quantities `[draws + 1, ...]`, each `[...]`."""
    low, high = np.nanquantile(draws[1:], [(1 - level) / 2, (1 + level) / 2], axis=0)
    return draws[0], low, high, np.nanstd(draws[1:], ddof=1, axis=0)


def resamples(count: int, draws: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """`[draws + 1, problems]`: how often each problem is in each resample; row 0 is the sample itself.

    With as many problems as the sample a percentile interval is too narrow (Hesterberg 2015): its variance is that of
    the sample, not of an estimate, and its tails are normal. A resample has so many fewer that the 95 % interval of a
    mean is as wide as by Student's t. Fewer than `FEWEST` problems have no resamples: NaN.
    """
    if count < FEWEST:
        return np.vstack([np.ones(count), np.full((draws, count), np.nan)])
    size = round((count - 1) * (norm.ppf(0.975) / t.ppf(0.975, count - 1)) ** 2)
    drawn = rng.multinomial(size, np.full(count, 1 / count), size=draws)
    return np.vstack([np.ones(count), drawn])


def ratio(weights: NDArray[np.float64], top: NDArray[np.float64], bottom: NDArray[np.float64]) -> Draws:
    """`[draws + 1, ...]`: ratio of the sums over problems (the first axis of both) in each resample."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return (weights @ top) / (weights @ bottom)


class Bootstrap:
    """Replicates of every setting's metrics over resampled problems, the same problems for all settings."""

    def __init__(self, study: Study, problems: pd.DataFrame, draws: int = 2000, seed: int = 0) -> None:
        self.study = study
        self._draws = draws
        self._index: dict[Place, list[int]] = {}
        self._cells = self._arrange(problems)
        self.problems = self._identify(problems)
        # the same problems get the same resamples, under any pair and in any experiment: contrasts of those are paired
        self._weights = {
            place: resamples(len(ids), draws, np.random.default_rng([seed, zlib.crc32("\n".join(ids).encode())]))
            for place, ids in self.problems.items()
            if ids
        }
        self._cache: dict[tuple[str, Place, Setting], Draws] = {}

    @classmethod
    def read(cls, experiment_json: Path, results: Path, draws: int = 2000, seed: int = 0) -> Bootstrap:
        """From the experiment's `problems.parquet`."""
        return cls(Study.read(experiment_json), read_problems(experiment_json, results), draws, seed)

    def value(self, metric: str, place: Place, setting: Setting) -> Draws:
        """`[draws + 1]`: mean over seeds of the metric, a ratio of sums over problems. NaN if any seed is missing."""
        key = (metric, place, setting)
        if key not in self._cache:
            self._cache[key] = self._value(*key)
        return self._cache[key]

    def mean(self, metric: str, places: Sequence[Place], settings: Sequence[Setting]) -> Draws:
        """Plain mean over benchmarks and settings (a method's grid)."""
        values = [self.value(metric, place, setting) for place in places for setting in settings]
        return np.mean(values, axis=0) if values else np.full(self._draws + 1, np.nan)

    def difference(
        self, metric: str, places: Sequence[Place], settings: Sequence[Setting], baselines: Sequence[Setting]
    ) -> Draws:
        """Mean over settings less mean over their baselines, paired by problem."""
        return self.mean(metric, places, settings) - self.mean(metric, places, baselines)

    def sums(self, column: str, place: Place, setting: Setting) -> NDArray[np.float64]:
        """`[problems, seeds]` of a column of `problems.parquet`; ValueError if a seed is missing."""
        tables = [self._seed(place, setting, seed) for seed in self.study.seeds]
        if any(table is None for table in tables):
            raise ValueError(f"{setting.label} on {place.benchmark}: cells are missing")
        return np.column_stack([table[column] for table in tables])  # type: ignore[index]

    def _value(self, metric: str, place: Place, setting: Setting) -> Draws:
        top, bottom, factor = METRICS[metric].top, METRICS[metric].bottom, METRICS[metric].factor
        seeds = [self._seed(place, setting, seed) for seed in self.study.seeds]
        if any(table is None or top not in table or bottom not in table for table in seeds):
            return np.full(self._draws + 1, np.nan)
        weights = self._weights[place]
        ratios = [ratio(weights, sums[top], sums[bottom]) for sums in seeds]
        return factor * np.mean(ratios, axis=0)

    def _seed(self, place: Place, setting: Setting, seed: int) -> dict[str, NDArray[np.float64]] | None:
        """A cell's sums over each problem's calls, `[problems]` each; None if the cell is missing."""
        return self._cells[place].get((setting.method, _param_key(setting.param), seed))

    def _identify(self, problems: pd.DataFrame) -> dict[Place, tuple[str, ...]]:
        """The problems at each place, in the order of its sums; the same ones have the same names anywhere."""
        found = {}
        for place in self.study.places:
            here = problems[(problems["pair"] == place.pair) & (problems["benchmark"] == place.benchmark)]
            names = _identities(here)
            benchmark = self.study.config["benchmarks"][place.benchmark]
            which = config_hash([benchmark.get("task"), benchmark.get("options", {})])
            found[place] = tuple(f"{which}/{names[i]}" for i in self._index[place])
        return found

    def _arrange(self, problems: pd.DataFrame) -> dict[Place, dict[tuple, dict[str, NDArray[np.float64]]]]:
        """Per place and (method, param, seed) the sums, a number per problem, in the order of `_index`."""
        table = with_derived(problems, self.study.gamma).assign(param=[_param_key(p) for p in problems["param"]])
        sums = sorted({column for metric in METRICS.values() for column in (metric.top, metric.bottom)} & {*table})
        arranged: dict[Place, dict[tuple, dict[str, NDArray[np.float64]]]] = {}
        for place in self.study.places:
            here = table[(table["pair"] == place.pair) & (table["benchmark"] == place.benchmark)]
            self._index[place] = sorted(here["index"].unique())
            arranged[place] = {
                key: dict(
                    zip(sums, cell.set_index("index")[sums].reindex(self._index[place]).to_numpy(float).T, strict=True)
                )
                for key, cell in here.groupby(["method", "param", "seed"])
            }
        return arranged


def _identities(here: pd.DataFrame) -> pd.Series:
    """What a problem is called, by its index in the benchmark."""
    names = here["problem"] if "problem" in here else here["index"]
    return pd.Series(names.astype(str).to_numpy(), index=here["index"]).groupby(level=0).first()


def _param_key(param: float | None) -> float:
    """Pandas keys cannot hold NaN; no rule has a negative parameter."""
    return -1.0 if param is None or np.isnan(param) else float(param)


def over_seeds(study: Study, summary: pd.DataFrame, metric: str, place: Place, setting: Setting) -> tuple[float, float]:
    """(mean, sample std) over seeds as the paper prints them; NaN if a seed's cell is missing. One seed: std NaN."""
    return mean_over_seeds(study, summary, metric, [place], [setting])


def mean_over_seeds(
    study: Study, summary: pd.DataFrame, metric: str, places: Sequence[Place], settings: Sequence[Setting]
) -> tuple[float, float]:
    """The same of each seed's plain mean over benchmarks and settings (a method's grid)."""
    cells = [
        cells_of(summary, place, setting).set_index("seed")[metric].reindex(study.seeds)
        for place in places
        for setting in settings
    ]
    values = np.mean([cell.to_numpy(float) for cell in cells], axis=0)
    return float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else np.nan


def cells_of(summary: pd.DataFrame, place: Place, setting: Setting) -> pd.DataFrame:
    """The rows of a summary that are one setting at one place: a row per seed."""
    param = summary["param"].isna() if setting.param is None else summary["param"] == setting.param
    mask = (summary["pair"] == place.pair) & (summary["benchmark"] == place.benchmark) & param
    return summary[mask & (summary["method"] == setting.method)]


def slope(levels: Sequence[float], values: Sequence[Draws]) -> Draws:
    """`[draws + 1]`: least-squares slope of the values over the levels, per level."""
    x = np.asarray(levels, float) - np.mean(levels)
    return x @ np.asarray(values) / (x @ x)


def holm(p: ArrayLike) -> NDArray[np.float64]:
    """Holm's (1979) adjusted p values, in the order of `p`.

    As statsmodels' `multipletests`, which collects garbage at each call: a third of the time of a report.
    """
    p = np.asarray(p, float)
    order = np.argsort(p)
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1.0)
    return adjusted


def holm_below_zero(effects: Sequence[Interval], alpha: float = 0.05) -> list[bool]:
    """Which effects are below zero, one-sided, with Holm's control over all of them (normal, bootstrap errors).

    An effect without any variation is below zero if it is negative; one of too few problems never is.
    """
    known = [number for number, effect in enumerate(effects) if not effect.too_few]
    below = [False] * len(effects)
    p = [norm.cdf(effects[number].estimate / max(effects[number].error, 1e-12)) for number in known]
    for number, adjusted in zip(known, holm(p) if known else (), strict=True):
        below[number] = bool(adjusted <= alpha)
    return below
