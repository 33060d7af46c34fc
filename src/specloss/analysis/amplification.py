"""The paper's Table 7: what each gate gains and loses against its matched baseline, with a separate draft model and
with an EAGLE-3 head, and how many times larger the loss of accuracy is on the trees.

Two experiments are joined: one of chains, one of trees. Where both have the same problems the two gaps are paired.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import norm

from specloss import paper
from specloss.analysis.evidence import Evidence
from specloss.analysis.statistics import MISSING, Draws, interval
from specloss.analysis.study import Place, Setting
from specloss.analysis.table import OVERALL, Table, effect_columns, effect_text, rounded
from specloss.cells import format_param

NAME = "table7"
QUANTITIES = (("be", 2), ("accuracy", 1))


class TableError(ValueError):
    """The experiments cannot be joined; the message is one line fit for a user."""


@dataclass(frozen=True)
class Ratio:
    """A ratio with its confidence set by Fieller's theorem: all ratios that the data do not contradict.

    `inside`: they are from `low` to `high`; else all that are not between the two (both NaN: any at all), which is so
    when the denominator is not distinguishable from zero.
    """

    estimate: float
    low: float
    high: float
    inside: bool

    @property
    def text(self) -> str:
        """`4.2 [1.3, 20.1]`, or in words that it has no bounds."""
        if np.isnan(self.estimate):
            return "missing"
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


def write_table7(first: Path, second: Path, results: Path, out: Path) -> list[Path]:
    """Write `out/table7.csv`, `.md` and `.tex` from two experiments, in either order. TableError if they do not fit."""
    from specloss.analysis.tables import write_texts

    return write_texts(table7(Evidence.read(first, results), Evidence.read(second, results)), out)


def table7(first: Evidence, second: Evidence) -> Table:
    """Each matched gap under both frameworks. TableError unless one is of chains, one of trees, with shared gates."""
    trees = [evidence for evidence in (first, second) if evidence.study.tree]
    chains = [evidence for evidence in (first, second) if not evidence.study.tree]
    if not (trees and chains):
        kind = "trees (EAGLE-3)" if trees else "chains (single draft)"
        raise TableError(
            f"{NAME} needs an experiment of chains and one of trees: {first.study.name} and {second.study.name} are "
            f"both of {kind}"
        )
    single, eagle = chains[0], trees[0]
    benchmarks = [name for name in single.study.benchmarks if name in eagle.study.benchmarks]
    gates = {gate: _shared(single, eagle, gate) for gate in single.study.gates if gate in eagle.study.gates}
    gates = {gate: grid for gate, grid in gates.items() if grid}
    if not benchmarks or not gates:
        lacking = "benchmark" if not benchmarks else "gate at the same parameters"
        raise TableError(f"{NAME}: {single.study.name} and {eagle.study.name} have no {lacking} in common")
    rows, shown = [], []
    pairs = [(one, other) for one in single.study.pairs for other in eagle.study.pairs]
    for one, other in pairs:
        groups = [(name, [name]) for name in benchmarks] + ([(OVERALL, benchmarks)] if len(benchmarks) > 1 else [])
        for gate, params in gates.items():
            for benchmark, names in groups:
                sides = [
                    _Side(
                        evidence,
                        [Place(pair, name) for name in names],
                        [evidence.study.setting(gate, p) for p in params],
                    )
                    for evidence, pair in ((single, one), (eagle, other))
                ]
                keys = {"pair": one, "eagle3_pair": other} if len(pairs) > 1 else {}
                row, line = _row(*sides, single.study.analysis.confidence)
                keys |= {"method": gate, "against": sides[0].baselines[0].method, "benchmark": benchmark}
                rows.append(keys | row)
                shown.append(keys | line)
    return Table(
        NAME,
        "Table 7: matched gaps with a single draft and with EAGLE-3",
        _reading(single, eagle, gates, benchmarks, rows),
        rounded(rows),
        pd.DataFrame(shown),
    )


def _shared(single: Evidence, eagle: Evidence, gate: str) -> list[float | None]:
    other = {setting.param for setting in eagle.study.methods[gate]}
    return [setting.param for setting in single.study.methods[gate] if setting.param in other]


@dataclass(frozen=True)
class _Side:
    """A gate at some places in one of the two experiments."""

    evidence: Evidence
    places: list[Place]
    grid: list[Setting]

    @property
    def baselines(self) -> list[Setting]:
        return [self.evidence.study.reference(setting) for setting in self.grid]  # type: ignore[misc]

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
            if theirs := side.printed().get(f"delta_{quantity}"):
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
    row["amplification_bounded"] = ratio.inside
    absent = [side.absent("accuracy") for side in (single, eagle)]
    ungraded = "missing" if any(why.startswith("missing") for why in absent) else "not graded"
    line["EAGLE-3 less single draft"] = effect_text(more, 1, ungraded)
    line["amplification"] = ungraded if more.missing else ratio.text + _printed_ratio(single, eagle)
    return row, line


def _printed_ratio(single: _Side, eagle: _Side) -> str:
    ours, theirs = single.printed().get("delta_accuracy"), eagle.printed().get("delta_accuracy")
    return f" (paper {theirs / ours:.1f})" if ours and theirs else ""


def _reading(
    single: Evidence, eagle: Evidence, gates: dict[str, list[float | None]], benchmarks: list[str], rows: list[dict]
) -> str:
    percent = f"{100 * single.study.analysis.confidence:g} %"
    grids = "; ".join(f"{gate} at {', '.join(map(format_param, grid))}" for gate, grid in gates.items())
    places = [(Place(single.study.pairs[0], name), Place(eagle.study.pairs[0], name)) for name in benchmarks]
    same = [a.benchmark for a, b in places if single.bootstrap.problems[a] == eagle.bootstrap.problems[b]]
    paired = (
        "paired over the problems, which are the same"
        if len(same) == len(places)
        else (f"paired where the problems are the same ({', '.join(same) or 'nowhere'}), independent elsewhere")
    )
    left_out = sorted({*single.study.benchmarks, *eagle.study.benchmarks} - {*benchmarks})
    parts = [
        f"Single draft: {single.study.name}; EAGLE-3: {eagle.study.name}. Each gate less its matched baseline, "
        f"averaged over the parameters that both have ({grids}) and the seeds. BE by each framework's own convention: "
        f"{single.study.define('be')} {eagle.study.define('be')} {percent} intervals are bootstraps over problems, "
        f"{paired}. Amplification is the accuracy gap with EAGLE-3 over that with a single draft, with the {percent} "
        "set of Fieller's theorem: 'unbounded' says that the single-draft gap cannot be told from zero, so that no "
        "finite interval is honest; the difference of the two gaps before it always has one."
    ]
    if left_out:
        parts.append(f"In one of the two experiments alone, so left out: {', '.join(left_out)}.")
    if any("_paper" in name for row in rows for name in row):
        parts.append("In brackets what the paper prints, and our number less the paper's.")
    return " ".join(parts)
