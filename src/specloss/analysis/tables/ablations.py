"""Tables of the ablations: what the ceiling is for, where it applies, and what a better coupling gains for free."""

from __future__ import annotations

from typing import Any

import pandas as pd

from specloss.analysis.evidence.bootstrap import Interval, cells_of, interval
from specloss.analysis.evidence.evidence import OVERALL, Evidence
from specloss.analysis.evidence.findings import ceiling_or_mixture, over_l, points, verdict
from specloss.analysis.tables.table import (
    HEADS,
    Table,
    effect_columns,
    effect_text,
    interval_text,
    number,
    rounded,
    with_pair,
)
from specloss.experiment.cells import format_param
from specloss.experiment.study import Place, Setting

PLAIN = "cap_nowhere_keep_tail"  # the combination that the others of Table 6 are compared with
NUMBERS = (("be", 2), ("be_expected", 2), ("accuracy", 1))
INTERVALS = "Intervals are 95 %, from a bootstrap over problems, paired."


def table1(evidence: Evidence) -> Table:
    """The paper's Table 1: mixtures of p and q and ceilings over l."""
    study, rows, shown = evidence.study, [], []
    for pair in study.pairs:
        for method, grid in study.mixtures_and_ceilings.items():
            for l, setting in grid:  # noqa: E741
                line = {"variant": method, "l": format_param(l)}
                for benchmark, places in _groups(evidence, pair):
                    values = _values(evidence, pair, places, [setting])
                    key = {"pair": pair, "method": method, "param": setting.param, "l": l, "benchmark": benchmark}
                    rows.append(key | _columns(values) | _missing(evidence, values, places, [setting]))
                    prefix = "" if places == evidence.places(pair) else f"{benchmark} "
                    absent = {name: evidence.why_absent(name, places, [setting]) for name, _ in NUMBERS}
                    line |= _table1_cells(values, prefix, absent)
                shown.append(with_pair(evidence, pair, line))
    return Table(
        "table1",
        "Table 1: one mixture for all tokens, or a ceiling for each",
        "Means over seeds; columns without a benchmark's name are means over all benchmarks, with their intervals. "
        f"{INTERVALS} {study.define('be', 'be_expected')} {' '.join(_trends(evidence, pair) for pair in study.pairs)} "
        "For a chain overshoot_ceiling and lenience are one rule, so any difference between their rows is noise. The "
        "strength of adaptive_interpolation is set so that it accepts as much as the ceiling at every position: their "
        "BE can differ only through the prefixes that they write. cos is the mixture of fixed strength, "
        "q + l (p - q) with l = 1 - lambda. Where the warpers leave p at zero a ceiling p / l is zero for any l.",
        rounded(rows),
        pd.DataFrame(shown),
    )


def _table1_cells(values: dict[str, Interval], prefix: str, absent: dict[str, str]) -> dict[str, str]:
    if prefix:
        return {f"{prefix}{HEADS[n]}": number(values[n].estimate, digits, absent[n]) for n, digits in NUMBERS}
    return {HEADS[n]: interval_text(values[n], digits, absent[n]) for n, digits in NUMBERS}


def _trends(evidence: Evidence, pair: str) -> str:
    """The slope of BE over l for each method with its interval, and whether the paper's trend appears."""
    study, said = evidence.study, []
    for method, grid in study.mixtures_and_ceilings.items():
        if len(grid) > 1:
            metrics = [study.metric(name, pair) for name in ("be", "be_expected")]
            slopes = [interval(over_l(evidence, pair, m, method)) for m in metrics]
            counted, expected = (points(value, 3, "") for value in slopes)
            said.append(f"{method} {counted} (expected {expected})")
    changes = f"Change of BE for each 0.1 of l: {'; '.join(said)}. " if said else ""
    trends = " ".join(f"{found.claim} {verdict(found.holds)}." for found in ceiling_or_mixture(evidence, pair))
    return f"{pair}: {changes}{trends}" if len(study.pairs) > 1 else changes + trends


def table6(evidence: Evidence) -> Table:
    """The paper's Table 6: where the ceiling applies x what happens to the tail, averaged over l."""
    study, rows, shown = evidence.study, [], []
    for pair in study.pairs:
        for method, (cap, tail) in study.capped.items():
            grid = study.methods[method]
            reference = _plain(evidence, grid)
            line = {"cap": cap, "tail": tail, "method": method, "accepts": accepts(cap, tail)}
            for benchmark, places in _groups(evidence, pair):
                values = _values(evidence, pair, places, grid)
                row = {"pair": pair, "cap": cap, "tail": tail, "method": method, "benchmark": benchmark}
                row |= _columns(values)
                changes = {}
                for name, _ in NUMBERS:
                    metric = study.metric(name, pair)
                    changes[name] = _difference(evidence, metric, places, grid, reference) if reference else None
                    row |= effect_columns(f"delta_{name}", changes[name])
                rows.append(row | _missing(evidence, values, places, [*grid, *reference]))
                if places == evidence.places(pair):
                    absent = {name: evidence.why_absent(name, places, [*grid, *reference]) for name, _ in NUMBERS}
                    line |= {HEADS[n]: number(values[n].estimate, digits, absent[n]) for n, digits in NUMBERS}
                    line |= {
                        f"Δ {HEADS[name]}": effect_text(changes[name], digits, absent[name]) if changes[name] else ""  # type: ignore[arg-type]
                        for name, digits in NUMBERS
                    }
            shown.append(with_pair(evidence, pair, line))
    return Table(
        "table6",
        "Table 6: where the ceiling applies, and what becomes of the tail",
        f"Means over l, seeds and benchmarks; Δ is the difference from {PLAIN}, which accepts whatever is drafted. "
        f"{INTERVALS} {study.define('be', 'be_expected')} {_allowed(evidence)} 'all' is accepted whenever it is "
        "drafted; 'up to p / l' limits the accepted mass of a token to p / l. A token overshoots if its q is above "
        "p / l. The two factors act on different tokens: dropping rejects the tail tokens that do not overshoot, and "
        "those that do follow the cap alone. So dropping without a cap is not a gate, which would reject the whole "
        "tail. With the tail kept, the cap everywhere is lenience, and outside A the combined rule, capped_truncation.",
        rounded(rows),
        pd.DataFrame(shown),
    )


def accepts(cap: str, tail: str) -> str:
    """What a combination of Table 6 accepts, in words."""
    inside, outside = ("up to p / l" if cap in (region, "everywhere") else "all" for region in ("inside", "outside"))
    if tail == "drop":
        outside = f"{outside} where it overshoots, nothing elsewhere"
    return f"in A {inside}; in the tail {outside}"


def _plain(evidence: Evidence, grid: list[Setting]) -> list[Setting]:
    """The settings of `PLAIN` at the parameters of the grid; empty if any is lacking, or for its own grid."""
    there = {s.param: s for s in evidence.study.with_rule(PLAIN)}
    own = all(s.rule == PLAIN for s in grid)
    return [] if own or not all(s.param in there for s in grid) else [there[s.param] for s in grid]


def _allowed(evidence: Evidence) -> str:
    settings = [s for method in evidence.study.capped for s in evidence.study.methods[method]]
    bases = sorted({f"{s.options['p_base']:g}" for s in settings if "p_base" in s.options})
    value = f" (p_base {', '.join(bases)})" if bases else ""
    return f"A holds the tokens with p of at least p_base times the largest p{value}, the tail is all others."


def coupling(evidence: Evidence) -> Table:
    """Settings with a maximal coupling or a block rule beside the one that emits the same distribution."""
    study, rows, shown = evidence.study, [], []
    grids: dict[str, list[tuple[Setting, Setting]]] = {}
    for setting, other in study.same_output:
        grids.setdefault(setting.method, []).append((setting, other))
    for pair in study.pairs:
        for method, couples in grids.items():
            couples = sorted(couples, key=lambda couple: couple[0].param or 0.0)
            lines = [(format_param(couple[0].param), [couple]) for couple in couples]
            for param, chosen in lines + ([(OVERALL, couples)] if len(couples) > 1 else []):
                line = {"method": method, "param": param, "against": chosen[0][1].method}
                for benchmark, places in _groups(evidence, pair):
                    row, text = _coupling_row(evidence, pair, places, *map(list, zip(*chosen, strict=True)))
                    rows.append({"pair": pair, **line, "benchmark": benchmark} | row)
                shown.append(with_pair(evidence, pair, line | text))
    return Table(
        "coupling",
        "More acceptance at the same output distribution",
        "A method under the maximal coupling of its own output distribution, or deciding on whole blocks, less the "
        "method named in 'against', which emits the same distribution: a gain of BE costs nothing, and the accuracy "
        f"differs by noise alone. Means over benchmarks and seeds. {INTERVALS} Acceptance is alpha, the probability "
        "to keep a drafted token, mean over the positions at which the rule decided; a block rule has none. "
        f"{study.define('be', 'be_expected')}",
        rounded(rows),
        pd.DataFrame(shown),
    )


def _coupling_row(
    evidence: Evidence, pair: str, places: list[Place], settings: list[Setting], others: list[Setting]
) -> tuple[dict[str, Any], dict[str, str]]:
    row: dict[str, Any] = {}
    line: dict[str, str] = {}
    for who, grid in (("other_", others), ("", settings)):
        row[f"{who}alpha"] = _alpha(evidence, places, grid)
        for name in ("be", "accuracy"):
            row[f"{who}{name}"] = evidence.bootstrap.mean(evidence.study.metric(name, pair), places, grid)[0]
    for name, digits in (("alpha", 3), ("be", 2), ("accuracy", 1)):
        why = evidence.why_absent(name, places, [*settings, *others])
        texts = [number(row[f"{who}{name}"], digits, why) for who in ("other_", "")]
        untraced = name == "alpha" and why in texts and not why.startswith("missing")  # a block rule has none
        line[HEADS[name]] = "" if untraced else " → ".join(dict.fromkeys(texts)) if why in texts else " → ".join(texts)
    for name, digits in NUMBERS:
        change = _difference(evidence, evidence.study.metric(name, pair), places, settings, others)
        row |= effect_columns(f"delta_{name}", change)
        line[f"Δ {HEADS[name]}"] = effect_text(change, digits, evidence.why_absent(name, places, [*settings, *others]))
    row["missing"] = evidence.reason({"accuracy": row["delta_accuracy"]}, places, [*settings, *others], intervals=True)
    return row, line


def _alpha(evidence: Evidence, places: list[Place], grid: list[Setting]) -> float:
    cells = [cells_of(evidence.summary, place, setting)["alpha"] for place in places for setting in grid]
    return float(pd.concat(cells).mean(skipna=False))


def _groups(evidence: Evidence, pair: str) -> list[tuple[str, list[Place]]]:
    """Each benchmark, and last all of them."""
    each = [(place.benchmark, [place]) for place in evidence.places(pair)]
    return [*each, (OVERALL, evidence.places(pair))] if len(each) > 1 else each


def _values(evidence: Evidence, pair: str, places: list[Place], grid: list[Setting]) -> dict[str, Interval]:
    metrics = {name: evidence.study.metric(name, pair) for name, _ in NUMBERS}
    return {name: interval(evidence.bootstrap.mean(metric, places, grid)) for name, metric in metrics.items()}


def _difference(
    evidence: Evidence, metric: str, places: list[Place], settings: list[Setting], others: list[Setting]
) -> Interval:
    return interval(evidence.bootstrap.difference(metric, places, settings, others))


def _missing(
    evidence: Evidence, values: dict[str, Interval], places: list[Place], settings: list[Setting]
) -> dict[str, str]:
    estimates = {name: found.estimate for name, found in values.items()}
    return {"missing": evidence.reason(estimates, places, settings, intervals=True)}


def _columns(values: dict[str, Interval]) -> dict[str, float]:
    return {key: value for name, found in values.items() for key, value in effect_columns(name, found).items()}
