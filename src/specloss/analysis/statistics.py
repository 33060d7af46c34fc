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
from numpy.typing import NDArray
from scipy.stats import norm
from statsmodels.stats.multitest import multipletests

from specloss.analysis.study import Place, Setting, Study
from specloss.analysis.summary import read_problems

Draws = NDArray[np.float64]

# metric -> (numerator, denominator, factor) in columns of problems.parquet
METRICS = {
    "accuracy": ("correct", "graded", 100.0),
    "parse_failures": ("unparsed", "graded", 100.0),
    "be": ("be_sum", "full_blocks", 1.0),
    "be_expected": ("be_expected_sum", "full_blocks", 1.0),
    "be_eagle": ("accepted", "blocks", 1.0),
    "be_eagle_expected": ("expected_sum", "blocks", 1.0),
    "tokens_per_call": ("tokens", "blocks", 1.0),
    "ds": ("drafted_full", "seconds", 1.0),
    "ds_eagle": ("tokens", "seconds", 1.0),
}


@dataclass(frozen=True)
class Interval:
    """An estimate with its 95 % bootstrap percentile interval and bootstrap standard error. NaN: a cell is missing."""

    estimate: float
    low: float
    high: float
    error: float

    @property
    def missing(self) -> bool:
        """Whether a cell that it needs is missing."""
        return bool(np.isnan(self.estimate))

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
    if np.isnan(draws[0]):
        return MISSING
    low, high = np.nanquantile(draws[1:], [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(draws[0]), float(low), float(high), float(np.nanstd(draws[1:], ddof=1)))


class Bootstrap:
    """Replicates of every setting's metrics over resampled problems, the same problems for all settings."""

    def __init__(self, study: Study, problems: pd.DataFrame, draws: int = 2000, seed: int = 0) -> None:
        self.study = study
        self._draws = draws
        self._columns = self._arrange(problems)
        self._weights = {
            place: self._draw(place, len(table.index), seed) for place, table in self._columns.items() if len(table)
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

    def _value(self, metric: str, place: Place, setting: Setting) -> Draws:
        top, bottom, factor = METRICS[metric]
        seeds = [self._seed(place, setting, seed) for seed in self.study.seeds]
        if any(table is None for table in seeds):
            return np.full(self._draws + 1, np.nan)
        weights = self._weights[place]
        with np.errstate(invalid="ignore", divide="ignore"):
            ratios = [(weights @ t[top].to_numpy(float)) / (weights @ t[bottom].to_numpy(float)) for t in seeds]
        return factor * np.mean(ratios, axis=0)

    def _seed(self, place: Place, setting: Setting, seed: int) -> pd.DataFrame | None:
        table = self._columns[place]
        key = (setting.method, _param_key(setting.param), seed)
        return table.xs(key, axis=1, level=("method", "param", "seed")) if key in self._keys[place] else None

    def _arrange(self, problems: pd.DataFrame) -> dict[Place, pd.DataFrame]:
        """Per place a table with a row per problem and columns (sum, method, param, seed)."""
        table = problems.assign(
            unparsed=problems["graded"] - problems["parsed"],
            drafted_full=problems["full_blocks"] * self.study.gamma,
            seconds=problems["draft_s"] + problems["verify_s"] + problems["overhead_s"],
            param=[_param_key(p) for p in problems["param"]],
        )
        sums = sorted({column for top, bottom, _ in METRICS.values() for column in (top, bottom)})
        arranged, self._keys = {}, {}
        for place in self.study.places:
            here = table[(table["pair"] == place.pair) & (table["benchmark"] == place.benchmark)]
            arranged[place] = here.pivot(index="index", columns=["method", "param", "seed"], values=sums)
            self._keys[place] = set(here[["method", "param", "seed"]].itertuples(index=False, name=None))
        return arranged

    def _draw(self, place: Place, count: int, seed: int) -> NDArray[np.float64]:
        """`[draws + 1, problems]`: how often each problem is in each resample; row 0 is the sample itself."""
        rng = np.random.default_rng([seed, zlib.crc32(f"{place.pair}/{place.benchmark}".encode())])
        resamples = rng.multinomial(count, np.full(count, 1 / count), size=self._draws)
        return np.vstack([np.ones(count), resamples])


def _param_key(param: float | None) -> float:
    """Pandas keys cannot hold NaN; no rule has a negative parameter."""
    return -1.0 if param is None or np.isnan(param) else float(param)


def over_seeds(study: Study, summary: pd.DataFrame, metric: str, place: Place, setting: Setting) -> tuple[float, float]:
    """(mean, sample std) over seeds as the paper prints them; NaN if a seed's cell is missing. One seed: std NaN."""
    values = cells_of(summary, place, setting)[metric]
    if len(values) < len(study.seeds) or values.isna().any():
        return np.nan, np.nan
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


def holm_below_zero(effects: Sequence[Interval], alpha: float = 0.05) -> list[bool]:
    """Which effects are below zero, one-sided, with Holm's control over all of them (normal, bootstrap errors).

    An effect without any variation is below zero if it is negative.
    """
    if not effects:
        return []
    errors = [max(effect.error, 1e-12) for effect in effects]
    p = [norm.cdf(effect.estimate / error) for effect, error in zip(effects, errors, strict=True)]
    return list(multipletests(p, alpha=alpha, method="holm")[0])
