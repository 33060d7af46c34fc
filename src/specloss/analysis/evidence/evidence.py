"""The evidence behind tables, figures and findings: the experiment, its summary and its bootstrap."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
import pandas as pd

from specloss.analysis.evidence.bootstrap import FEWEST, MISSING, TOO_FEW, Bootstrap, Interval, interval
from specloss.analysis.evidence.summary import PROBLEMS, read_problems, read_summary
from specloss.analysis.evidence.verdicts import Contrast
from specloss.experiment.completeness import WHOLE
from specloss.experiment.study import Place, Setting, Study


@dataclass(frozen=True)
class Evidence:
    """The evidence, read once and shared by all outputs."""

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
        return interval(self.bootstrap.difference(metric, places, settings, self.study.references(settings)))

    def loss(self, metric: str, places: list[Place], settings: list[Setting]) -> Interval:
        """Mean difference of the settings from the lossless run, paired by problem."""
        return interval(self.bootstrap.difference(metric, places, settings, [self.study.lossless]))

    def contrast(self, places: list[Place], settings: list[Setting], baselines: list[Setting]) -> Contrast:
        """Settings minus baselines, with everything that a verdict needs."""
        boot, pair = self.bootstrap, places[0].pair
        if why := self.why_missing(places, [*settings, *baselines]):
            return Contrast(MISSING, MISSING, MISSING, MISSING, why=why)
        level, speed = self.study.analysis.confidence, self.study.metric(self.study.analysis.speed, pair)
        ratios = boot.mean(speed, places, settings) / boot.mean(speed, places, baselines)
        with np.errstate(divide="ignore"):
            log_ratios = np.log(ratios)
        won, lost = self._won_and_lost(places, settings, baselines)
        return Contrast(
            interval(boot.difference("accuracy", places, settings, baselines), level),
            interval(ratios, level),
            interval(log_ratios, level),
            interval(boot.difference(self.study.metric("be", pair), places, settings, baselines), level),
            tuple(len(boot.problems[place]) for place in places),
            won,
            lost,
        )

    def _won_and_lost(self, places: list[Place], settings: list[Setting], baselines: list[Setting]) -> tuple[int, int]:
        """How many problems have a larger, and how many a smaller share of correct answers, over seeds and settings."""
        won = lost = 0
        for place in places:
            share = [
                np.mean([self.bootstrap.sums("correct", place, s).sum(axis=1) for s in grid], axis=0)
                for grid in (settings, baselines)
            ]
            change = np.round(share[0] - share[1], 9)
            won, lost = won + int((change > 0).sum()), lost + int((change < 0).sum())
        return won, lost

    def why_absent(self, metric: str, places: list[Place], settings: list[Setting]) -> str:
        """What to say in place of a number that is NaN: which cells are missing and why, or that it is not measured."""
        unmeasured = "not graded" if metric in ("accuracy", "parse_failures") else "not traced"
        return self.why_missing(places, settings) or unmeasured

    def reason(
        self, values: Mapping[str, float], places: list[Place], settings: list[Setting], intervals: bool = False
    ) -> str:
        """What a CSV says about a row's empty fields: which cells are missing and why, or what was not measured.

        With `intervals`, also why expected intervals are absent.
        """
        if why := self.why_missing(places, settings):
            return why
        absent: dict[str, list[str]] = {}
        for name, value in values.items():
            if np.isnan(value):
                absent.setdefault(self.why_absent(name, places, settings), []).append(name)
        told = [f"{', '.join(names)} {why}" for why, names in absent.items()]
        few = any(len(self.bootstrap.problems[place]) < FEWEST for place in places)
        return "; ".join(told + [f"no intervals: {TOO_FEW}"] * (intervals and few))

    def why_missing(self, places: list[Place], settings: list[Setting]) -> str:
        """Why a number over these cells is missing: how many of them, and the most frequent reason; '' if none is."""
        cells = [why for place in places for s in dict.fromkeys(settings) for why in self._statuses[place, s]]
        reasons = Counter(why for why in cells if why != WHOLE).most_common()
        if not reasons:
            return ""
        more = f", {len(reasons)} reasons" if len(reasons) > 1 else ""
        count = sum(number for _, number in reasons)
        return f"missing: {textwrap.shorten(reasons[0][0], 50)} ({count}/{len(cells)} cells{more})"

    @cached_property
    def _statuses(self) -> dict[tuple[Place, Setting], list[str]]:
        """The status of the cells of each setting at each place."""
        found: dict[tuple[Place, Setting], list[str]] = {}
        for row in self.summary.to_dict("records"):
            param = None if pd.isna(row["param"]) else row["param"]
            found.setdefault((Place(row["pair"], row["benchmark"]), Setting(row["method"], param)), []).append(
                row["status"]
            )
        return found

    @property
    def missing(self) -> pd.DataFrame:
        """The cells that are not whole, with their reason in `status`."""
        return self.summary[self.summary["status"] != "whole"]


@lru_cache(maxsize=2)  # a table may join two
def _read(experiment_json: Path, results: Path, changed: int) -> Evidence:
    study = Study.read(experiment_json)
    summary = read_summary(experiment_json, results)
    return Evidence(study, summary, Bootstrap(study, read_problems(experiment_json, results)))


OVERALL = "(mean)"  # in place of a benchmark or a parameter: the plain mean over all of them
