"""All that tables, figures and findings are made of: the experiment, its summary and its bootstrap."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pandas as pd

from specloss.analysis.statistics import Bootstrap, Interval, interval
from specloss.analysis.study import Place, Setting, Study
from specloss.analysis.summary import PROBLEMS, read_problems, read_summary


@dataclass(frozen=True)
class Evidence:
    """Read once, used by all."""

    study: Study
    summary: pd.DataFrame
    bootstrap: Bootstrap

    @classmethod
    def read(cls, experiment_json: Path, results: Path) -> Evidence:
        """From the two files that `summarise` writes."""
        path = Path(results) / Study.read(experiment_json).name / PROBLEMS
        changed = path.stat().st_mtime_ns if path.exists() else 0
        return _read(Path(experiment_json), Path(results), changed)

    def places(self, pair: str) -> list[Place]:
        """The pair on every benchmark."""
        return [place for place in self.study.places if place.pair == pair]

    def gap(self, metric: str, places: list[Place], settings: list[Setting]) -> Interval:
        """Mean difference of the settings from what each is compared with (`Study.reference`), paired by problem."""
        baselines = [self.study.reference(setting) for setting in settings]
        if any(baseline is None for baseline in baselines):
            raise ValueError("the lossless run is not compared with anything")
        return interval(self.bootstrap.difference(metric, places, settings, baselines))  # type: ignore[arg-type]

    def loss(self, metric: str, places: list[Place], settings: list[Setting]) -> Interval:
        """Mean difference of the settings from the lossless run, paired by problem."""
        return interval(self.bootstrap.difference(metric, places, settings, [self.study.lossless]))

    def graded(self, places: list[Place]) -> bool:
        """Whether answers are graded on all benchmarks, as far as their cells are there."""
        names = {place.benchmark for place in places}
        cells = self.summary[self.summary["benchmark"].isin(names) & (self.summary["status"] == "whole")]
        return not (cells.groupby("benchmark")["graded"].max() == 0).any()

    @property
    def missing(self) -> pd.DataFrame:
        """The cells that are not whole, with their reason in `status`."""
        return self.summary[self.summary["status"] != "whole"]


@lru_cache(maxsize=1)
def _read(experiment_json: Path, results: Path, changed: int) -> Evidence:
    study = Study.read(experiment_json)
    summary = read_summary(experiment_json, results)
    return Evidence(study, summary, Bootstrap(study, read_problems(experiment_json, results)))
