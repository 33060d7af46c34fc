"""The paper's Table 7: what each gate gains and loses against its matched baseline, with a separate draft model and
with an EAGLE-3 head, and how many times larger the loss of accuracy is on the trees.

Two experiments are joined: one of chains, one of trees. Where both have the same problems the two gaps are paired.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import norm

from specloss import paper
from specloss.analysis.evidence.bootstrap import MISSING, Draws, ends_text, interval
from specloss.analysis.evidence.evidence import Evidence
from specloss.analysis.tables.frameworks import Frameworks, TableError
from specloss.analysis.tables.table import Table, effect_columns, effect_text, rounded
from specloss.experiment.cells import format_param
from specloss.experiment.study import Place, Setting

NAME = "table7"
QUANTITIES = (("be", 2), ("accuracy", 1))


@dataclass(frozen=True)
class Ratio:
    """A ratio with its confidence set by Fieller's theorem: all ratios that the data do not contradict.

    `inside`: they are from `low` to `high`; else all that are not between the two (both NaN: any at all), which is so
    when the denominator is not distinguishable from zero. None: there are too few problems to tell.
    """

    estimate: float
    low: float
    high: float
    inside: bool | None

    @property
    def text(self) -> str:
        """`4.2 [1.3, 20.1]`, or in words that it has no bounds."""
        if np.isnan(self.estimate):
            return "missing"
        if self.inside is None:
            return f"{self.estimate:.1f} {ends_text(np.nan, np.nan, 1)}"
        if self.inside:
            return f"{self.estimate:.1f} [{self.low:.1f}, {self.high:.1f}]"
        if np.isnan(self.low):
            return f"{self.estimate:.1f}, unbounded: any ratio fits"
        return f"{self.estimate:.1f}, unbounded: below {self.low:.1f} or above {self.high:.1f}"


def fieller(top: Draws, bottom: Draws, confidence: float) -> Ratio:
    """The ratio of two quantities given as `[draws + 1]` (Fieller 1954, errors and covariance from the draws).

    The set is {r : (top - r bottom)^2 <= z^2 var(top - r bottom)}, a quadratic in r.
    """
    if not (np.isfinite(top[0]) and np.isfinite(bottom[0])):
        return Ratio(np.nan, np.nan, np.nan, False)
    estimate = top[0] / bottom[0] if bottom[0] else np.inf
    if np.isnan(top[1:] - bottom[1:]).all():
        return Ratio(float(estimate), np.nan, np.nan, None)
    z2 = norm.ppf((1 + confidence) / 2) ** 2
    (var_top, both), (_, var_bottom) = np.cov(top[1:], bottom[1:])
    a = bottom[0] ** 2 - z2 * var_bottom
    b = -2 * (top[0] * bottom[0] - z2 * both)
    c = top[0] ** 2 - z2 * var_top
    inner = b**2 - 4 * a * c
    if a == 0 or inner < 0:
        return Ratio(float(estimate), np.nan, np.nan, False)
    low, high = sorted(((-b - np.sqrt(inner)) / (2 * a), (-b + np.sqrt(inner)) / (2 * a)))
    return Ratio(float(estimate), float(low), float(high), bool(a > 0))


def table7(first: Evidence, second: Evidence) -> Table:
    """Each matched gap under both frameworks. TableError unless one is of chains, one of trees, with shared gates."""
    both = Frameworks.join(NAME, first, second)
    single, eagle = both.single.study, both.eagle.study
    gates = {gate: both.shared(gate) for gate in single.gates if gate in eagle.gates}
    gates = {gate: grid for gate, grid in gates.items() if grid}
    if not gates:
        raise TableError(f"{NAME}: {single.name} and {eagle.name} share no gate at the same parameters")
    rows, shown = [], []
    for one, other in both.pairs:
        for gate, params in gates.items():
            for benchmark, names in both.groups:
                sides = [
                    _Side(
                        evidence,
                        [Place(pair, name) for name in names],
                        [evidence.study.setting(gate, p) for p in params],
                    )
                    for evidence, pair in ((both.single, one), (both.eagle, other))
                ]
                row, line = _row(*sides, single.analysis.confidence)
                keys = both.keys(one, other)
                keys |= {"method": gate, "against": sides[0].baselines[0].method, "benchmark": benchmark}
                rows.append(keys | row)
                shown.append(keys | line)
    return Table(
        NAME,
        "Table 7: matched gaps with a single draft and with EAGLE-3",
        _reading(both, gates, rows),
        rounded(rows),
        pd.DataFrame(shown),
    )


@dataclass(frozen=True)
class _Side:
    """A gate at some places in one of the two experiments."""

    evidence: Evidence
    places: list[Place]
    grid: list[Setting]

    @property
    def baselines(self) -> list[Setting]:
        return self.evidence.study.references(self.grid)

    @property
    def framework(self) -> str:
        return paper.EAGLE3 if self.evidence.study.tree else paper.SINGLE_DRAFT

    def gap(self, quantity: str) -> Draws:
        """`[draws + 1]` of the gate less its baseline."""
        metric = self.evidence.study.metric(quantity, self.places[0].pair)
        return self.evidence.bootstrap.difference(metric, self.places, self.grid, self.baselines)

    def absent(self, quantity: str) -> str:
        return self.evidence.why_absent(quantity, self.places, [*self.grid, *self.baselines])

    def printed(self) -> dict[str, float]:
        """The paper's gaps at these benchmarks; their average if these are all of the paper's."""
        tasks = [self.evidence.study.config["benchmarks"][place.benchmark].get("task") for place in self.places]
        if set(tasks) == set(paper.BENCHMARKS):
            name = "average"
        elif len(tasks) == 1 and tasks[0] in paper.BENCHMARKS:
            name = paper.BENCHMARKS[tasks[0]]
        else:
            return {}
        return paper.lookup(7, self.grid[0].method, name, framework=self.framework)


def _row(single: _Side, eagle: _Side, confidence: float) -> tuple[dict, dict[str, str]]:
    row: dict = {}
    line: dict[str, str] = {}
    heads = {paper.SINGLE_DRAFT: "single draft", paper.EAGLE3: "EAGLE-3"}
    for quantity, digits in QUANTITIES:
        for side in (single, eagle):
            effect = interval(side.gap(quantity), confidence)
            name = f"{side.framework}_delta_{quantity}"
            row |= effect_columns(name, effect)
            text = effect_text(effect, digits, side.absent(quantity))
            theirs = side.printed().get(f"delta_{quantity}", np.nan)
            if not np.isnan(theirs):  # zero is a number
                row |= {f"{name}_paper": theirs, f"{name}_less_paper": effect.estimate - theirs}
                text += (
                    f" (paper {theirs:+.2f}"
                    + ("" if effect.missing else f", {effect.estimate - theirs:+.{digits}f}")
                    + ")"
                )
            line[f"Δ {'BE' if quantity == 'be' else quantity}, {heads[side.framework]}"] = text
    top, bottom = eagle.gap("accuracy"), single.gap("accuracy")
    more = interval(top - bottom, confidence) if np.isfinite(top[0] - bottom[0]) else MISSING
    ratio = fieller(top, bottom, confidence)
    row |= effect_columns("more", more)
    row |= {"amplification": ratio.estimate, "amplification_low": ratio.low, "amplification_high": ratio.high}
    row["amplification_bounded"] = None if np.isnan(ratio.estimate) else ratio.inside
    absent = [
        f"{side.absent('accuracy')}, {heads[side.framework]}"
        for side, gap in ((single, bottom), (eagle, top))
        if not np.isfinite(gap[0])
    ]
    line["EAGLE-3 less single draft"] = effect_text(more, 1, "".join(absent[:1]))
    line["amplification"] = absent[0] if absent else ratio.text + _printed_ratio(single, eagle)
    row["missing"] = "; ".join(absent)
    return row, line


def _printed_ratio(single: _Side, eagle: _Side) -> str:
    ours, theirs = single.printed().get("delta_accuracy"), eagle.printed().get("delta_accuracy")
    return f" (paper {theirs / ours:.1f})" if ours and theirs else ""


def _reading(both: Frameworks, gates: dict[str, list[float | None]], rows: list[dict]) -> str:
    percent = f"{100 * both.single.study.analysis.confidence:g} %"
    grids = "; ".join(f"{gate} at {', '.join(map(format_param, grid))}" for gate, grid in gates.items())
    parts = [
        f"{both.conventions} Each gate minus its matched baseline, averaged over the parameters that both have "
        f"({grids}) and the seeds. {percent} intervals are bootstraps over problems, {both.pairing}. Amplification is "
        f"the accuracy gap with EAGLE-3 over that with a single draft, with the {percent} "
        "set of Fieller's theorem: 'unbounded' says that the single-draft gap cannot be told from zero, so that no "
        "finite interval is honest; the difference of the two gaps before it always has one.",
        both.left_out,
    ]
    if any("_paper" in name for row in rows for name in row):
        parts.append("In brackets what the paper prints, and our number less the paper's.")
    return " ".join(filter(None, parts))
