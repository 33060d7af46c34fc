"""Two experiments over the same benchmarks, joined: one of chains (a draft model), one of trees (an EAGLE-3 head).

Here is the table of every rule under both; the matched gaps and their amplification (Table 7) are in `amplification`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from specloss.analysis.evidence.bootstrap import MISSING, interval
from specloss.analysis.evidence.evidence import OVERALL, Evidence
from specloss.analysis.tables.table import Table, effect_columns, effect_text, number, rounded
from specloss.common.oneline import OneLine
from specloss.experiment.cells import format_param
from specloss.experiment.study import Place, Setting

NAME = "frameworks"


class TableError(OneLine, ValueError):
    """The experiments cannot be joined; the message is one line meant for users."""


@dataclass(frozen=True)
class Frameworks:
    """The experiment of chains, that of trees, and the benchmarks that both have."""

    single: Evidence
    eagle: Evidence
    benchmarks: list[str]

    @classmethod
    def join(cls, table: str, first: Evidence, second: Evidence) -> Frameworks:
        """In either order. TableError, naming the table, unless of chains and of trees on a shared benchmark."""
        trees = [evidence for evidence in (first, second) if evidence.study.tree]
        chains = [evidence for evidence in (first, second) if not evidence.study.tree]
        names = f"{first.study.name} and {second.study.name}"
        if not (trees and chains):
            kind = "trees (EAGLE-3)" if trees else "chains (single draft)"
            raise TableError(f"{table} needs an experiment of chains and one of trees: {names} are both of {kind}")
        benchmarks = [name for name in chains[0].study.benchmarks if name in trees[0].study.benchmarks]
        if not benchmarks:
            raise TableError(f"{table}: {chains[0].study.name} and {trees[0].study.name} have no benchmark in common")
        return cls(chains[0], trees[0], benchmarks)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Every pair of the one with every pair of the other."""
        return [(one, other) for one in self.single.study.pairs for other in self.eagle.study.pairs]

    def keys(self, one: str, other: str) -> dict[str, str]:
        """The columns that name the pairs, if there are several."""
        return {"pair": one, "eagle3_pair": other} if len(self.pairs) > 1 else {}

    @property
    def groups(self) -> list[tuple[str, list[str]]]:
        """Each common benchmark, and all of them if there are several."""
        each = [(name, [name]) for name in self.benchmarks]
        return [*each, (OVERALL, self.benchmarks)] if len(each) > 1 else each

    def shared(self, method: str) -> list[float | None]:
        """The parameters of a method that both have."""
        other = {setting.param for setting in self.eagle.study.methods.get(method, [])}
        return [setting.param for setting in self.single.study.methods.get(method, []) if setting.param in other]

    @property
    def pairing(self) -> str:
        """Whether differences of the two are paired."""
        one, other = self.single.study.pairs[0], self.eagle.study.pairs[0]
        same = [
            name
            for name in self.benchmarks
            if self.single.bootstrap.problems[Place(one, name)] == self.eagle.bootstrap.problems[Place(other, name)]
        ]
        if len(same) == len(self.benchmarks):
            return "paired over the problems, which are the same"
        return f"paired where the problems are the same ({', '.join(same) or 'nowhere'}), independent elsewhere"

    @property
    def left_out(self) -> str:
        """A sentence about benchmarks that only one of them has; '' if there are none."""
        alone = sorted({*self.single.study.benchmarks, *self.eagle.study.benchmarks} - {*self.benchmarks})
        return f"In one of the two experiments alone, so left out: {', '.join(alone)}." if alone else ""

    @property
    def conventions(self) -> str:
        """A sentence saying which BE is meant on which side."""
        return (
            f"Single draft: {self.single.study.name}; EAGLE-3: {self.eagle.study.name}. BE by each framework's own "
            f"convention: {self.single.study.define('be')} {self.eagle.study.define('be')}"
        )


def frameworks(first: Evidence, second: Evidence) -> Table:
    """BE and accuracy of every setting on trees beside chains. TableError if the two cannot be joined."""
    both = Frameworks.join(NAME, first, second)
    settings = list(_settings(both))
    if not settings:
        raise TableError(f"{NAME}: {both.single.study.name} and {both.eagle.study.name} have no setting in common")
    level = both.single.study.analysis.confidence
    rows, shown = [], []
    for one, other in both.pairs:
        for setting, twin in settings:
            sides = ((both.single, one, setting), (both.eagle, other, twin))
            keys = both.keys(one, other) | {"method": setting.method, "param": format_param(setting.param)}
            for benchmark, names in both.groups:
                row: dict = {}
                line: dict[str, str] = {}
                accuracy, absent = [], {}
                for head, (evidence, pair, which) in zip(("single draft", "EAGLE-3"), sides, strict=True):
                    places = [Place(pair, name) for name in names]
                    for quantity, digits in (("be", 2), ("accuracy", 1)):
                        metric = evidence.study.metric(quantity, pair)
                        draws = evidence.bootstrap.mean(metric, places, [which])
                        row[f"{head.replace(' ', '_').replace('-', '').lower()}_{quantity}"] = draws[0]
                        text = "BE" if quantity == "be" else quantity
                        why = evidence.why_absent(metric, places, [which])
                        line[f"{text}, {head}"] = number(draws[0], digits, why)
                        if np.isnan(draws[0]):
                            absent[head] = f"{why}, {head}"
                    accuracy.append(draws)
                less = accuracy[1] - accuracy[0]
                effect = interval(less, level) if np.isfinite(less[0]) else MISSING
                row |= effect_columns("more_accuracy", effect)
                line["accuracy, EAGLE-3 less single draft"] = effect_text(effect, 1, next(iter(absent.values()), ""))
                rows.append(keys | {"benchmark": benchmark} | row | {"missing": "; ".join(absent.values())})
                shown.append(keys | {"benchmark": benchmark} | line)
    reading = (
        f"{both.conventions} Means over seeds. The last column is with its {100 * level:g} % bootstrap interval, "
        f"{both.pairing}; lossless rules differ by chance alone. {both.left_out}"
    )
    title = "Every rule with a single draft and with EAGLE-3"
    return Table(NAME, title, reading.rstrip(), rounded(rows), pd.DataFrame(shown))


def _settings(both: Frameworks) -> Iterator[tuple[Setting, Setting]]:
    """Those with the same method and parameter in both."""
    for method in both.single.study.methods:
        for param in both.shared(method):
            yield both.single.study.setting(method, param), both.eagle.study.setting(method, param)
