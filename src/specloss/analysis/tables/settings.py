"""The paper's Tables 2 to 5: methods and settings on every benchmark, and below them each one against its baseline.

Tables 2 and 4 cover chains; Tables 3 and 5 are the same for trees, in the EAGLE-3 convention. Where the paper prints a
cell of the same table, method, parameter and benchmark, its number stands beside ours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from specloss import paper
from specloss.analysis.evidence.bootstrap import mean_over_seeds
from specloss.analysis.evidence.evidence import OVERALL, Evidence
from specloss.analysis.evidence.verdicts import Contrast, Verdict, explain, judge
from specloss.analysis.tables.table import (
    HEADS,
    Table,
    best_marks,
    effect_columns,
    effect_text,
    interval_text,
    listed,
    p_text,
    plus_minus,
    rounded,
    shown_digits,
    with_pair,
)
from specloss.experiment.cells import format_param
from specloss.experiment.study import Place, Setting

SHOWN = (("be", 2), ("ds", 2), ("accuracy", 1))
SPEEDS = {
    "tokens_per_call": "output tokens per target call",
    "be": "BE",
    "tokens_per_s": "output tokens per second of decoding (its interval does not know how times vary between runs)",
}
VERDICT_HEADS = {
    "matched": {"against": "against", "speed": "speed", "Δ accuracy": "Δ accuracy", "verdict": "verdict"},
    "lossless": {"speed": "lossless: speed", "Δ accuracy": "lossless: Δ accuracy", "verdict": "lossless: verdict"},
}


@dataclass(frozen=True)
class Line:
    """A line of the table: a setting, or a method's whole grid."""

    method: str
    grid: tuple[Setting, ...]
    param: float | None = None
    averaged: bool = False

    @property
    def keys(self) -> dict[str, str]:
        """Its first columns, as text."""
        return {"method": self.method} | ({} if self.averaged else {"param": format_param(self.param)})


def table2(evidence: Evidence) -> Table:
    """Each method averaged over its grid; for trees this is the paper's Table 3."""
    lines = [Line(method, tuple(grid), averaged=True) for method, grid in evidence.study.methods.items()]
    return _table(evidence, 3 if evidence.study.tree else 2, "Each method, averaged over its parameters", lines)


def table4(evidence: Evidence) -> Table:
    """Every setting; for trees this is the paper's Table 5."""
    lines = [Line(s.method, (s,), s.param) for grid in evidence.study.methods.values() for s in grid]
    return _table(evidence, 5 if evidence.study.tree else 4, "Every setting", lines)


def verdicts(evidence: Evidence) -> Table:
    """Every setting over all benchmarks against its matched baseline and against the lossless run."""
    study, rows, shown = evidence.study, [], []
    settings = [s for grid in study.methods.values() for s in grid if study.reference(s) is not None]
    compared = [(pair, s) for pair in study.pairs for s in settings]
    against: dict[str, list[tuple[Contrast, Verdict]]] = {}
    for kind in ("matched", "lossless"):
        contrasts = [evidence.contrast(evidence.places(pair), [s], [_other(evidence, s, kind)]) for pair, s in compared]
        against[kind] = list(zip(contrasts, judge(contrasts, study.analysis), strict=True))
    for number, (pair, setting) in enumerate(compared):
        row: dict = {"pair": pair, "method": setting.method, "param": setting.param}
        line = {"method": setting.method, "param": format_param(setting.param)}
        for kind, judged in against.items():
            contrast, verdict = judged[number]
            other = _other(evidence, setting, kind).method
            row |= {f"{kind}_{name}": value for name, value in _effect_row(contrast, verdict, other).items()}
            texts = _effect_line(contrast, verdict, other)
            line |= {head: texts[name] for name, head in VERDICT_HEADS[kind].items()}
        rows.append(row)
        shown.append(with_pair(evidence, pair, line))
    named = {verdict.name for judged in against.values() for _, verdict in judged}
    return Table(
        "verdicts",
        "Faster and not worse?",
        "Each setting over all benchmarks, against its matched baseline ('against') and against the lossless run. "
        + explain(study.analysis, len(compared), SPEEDS[study.analysis.speed], named)
        + " Comparisons with matched baselines and with the lossless run are adjusted separately.",
        rounded(rows),
        pd.DataFrame(shown),
    )


def _other(evidence: Evidence, setting: Setting, kind: str) -> Setting:
    reference = evidence.study.reference(setting) if kind == "matched" else evidence.study.lossless
    assert reference is not None
    return reference


def _table(evidence: Evidence, number: int, title: str, lines: list[Line]) -> Table:
    study, rows, shown, values = evidence.study, [], [], []
    effects: list[tuple[dict, dict, Contrast]] = []
    for pair in study.pairs:
        groups = [(place.benchmark, [place]) for place in evidence.places(pair)]
        if lines[0].averaged and len(groups) > 1:
            groups.append((OVERALL, evidence.places(pair)))
        for line in lines:
            texts, numbers = dict(line.keys), {}
            for benchmark, places in groups:
                row, cells, printed = _cell(evidence, number, line, places)
                keys = {"pair": pair, "method": line.method} | ({} if line.averaged else {"param": line.param})
                rows.append(keys | {"benchmark": benchmark} | row | {"comparison_missing": ""})
                texts |= {f"{benchmark} {name}": text for name, text in cells.items()}
                numbers |= {f"{benchmark} {name}": value for name, value in printed.items()}
                if study.reference(line.grid[0]) is not None:
                    shown_keys = with_pair(evidence, pair, line.keys | {"benchmark": benchmark})
                    effects.append((rows[-1], shown_keys, _contrast(evidence, places, line)))
            shown.append(with_pair(evidence, pair, texts))
            values.append(numbers)
    judged = judge([contrast for *_, contrast in effects], study.analysis)
    below = []
    for (row, keys, contrast), verdict in zip(effects, judged, strict=True):
        against = study.reference(study.methods[row["method"]][0]).method  # type: ignore[union-attr]
        row |= _effect_row(contrast, verdict, against)
        below.append(keys | _effect_line(contrast, verdict, against))
    frame = pd.DataFrame(shown)
    return Table(
        f"table{number}",
        f"Table {number}: {title.lower()}",
        _reading(evidence, number, rows, judged),
        rounded(rows),
        frame,
        best_marks(frame, pd.DataFrame(values), [pair for pair in study.pairs for _ in lines]),
        pd.DataFrame(below) if below else None,
        (*study.benchmarks, OVERALL),
    )


def _cell(evidence: Evidence, number: int, line: Line, places: list[Place]) -> tuple[dict, dict[str, str], dict]:
    """Numbers for the CSV, texts, and the numbers as printed."""
    study, row, texts, printed = evidence.study, {}, {}, {}
    theirs = _paper(evidence, number, line, places)
    for name, digits in (*SHOWN, ("be_expected", 2)):
        mean, std = mean_over_seeds(study, evidence.summary, study.metric(name, places[0].pair), places, line.grid)
        row |= {f"{name}_mean": mean, f"{name}_std": std}
        if name == "be_expected":
            continue
        text = plus_minus(mean, std, digits, evidence.why_absent(name, places, [*line.grid]) if np.isnan(mean) else "")
        if name in theirs:
            row |= {f"{name}_paper": theirs[name], f"{name}_less_paper": mean - theirs[name]}
            less = "" if np.isnan(mean) else f", {mean - theirs[name]:+.{digits}f}"
            text += f" (paper {theirs[name]:.2f}{less})"
        texts[HEADS[name]], printed[HEADS[name]] = text, round(mean, shown_digits(mean, digits))
    cells = len(study.seeds) * len(places) * len(line.grid)
    measured = {name: row[f"{name}_mean"] for name, _ in SHOWN}
    return row | {"cells": cells, "missing": evidence.reason(measured, places, [*line.grid])}, texts, printed


def _paper(evidence: Evidence, number: int, line: Line, places: list[Place]) -> dict[str, float]:
    """The paper's numbers for the same cell, if it has one: a benchmark is known by its task."""
    task = evidence.study.config["benchmarks"][places[0].benchmark].get("task")
    if len(places) > 1 or task not in paper.BENCHMARKS:
        return {}
    return paper.lookup(number, line.method, paper.BENCHMARKS[task], None if line.averaged else line.param)


def _contrast(evidence: Evidence, places: list[Place], line: Line) -> Contrast:
    return evidence.contrast(places, [*line.grid], evidence.study.references(line.grid))


def _effect_row(contrast: Contrast, verdict: Verdict, against: str) -> dict:
    return {
        "against": against,
        **effect_columns("delta_be", contrast.be),
        **effect_columns("speed_ratio", contrast.speed),
        **effect_columns("delta_accuracy", contrast.accuracy),
        "won": None if contrast.absent else contrast.won,
        "lost": None if contrast.absent else contrast.lost,
        "p_mcnemar": contrast.p_mcnemar,
        "p_mcnemar_adjusted": verdict.p_mcnemar,
        "p_not_worse_adjusted": verdict.p_not_worse,
        "p_faster_adjusted": verdict.p_faster,
        "verdict": verdict.name,
        "comparison_missing": contrast.lacks,
        "could_have_found_loss": verdict.loss,
        "could_have_found_gain": verdict.gain,
    }


def _effect_line(contrast: Contrast, verdict: Verdict, against: str) -> dict[str, str]:
    absent = contrast.absent
    return {
        "against": against,
        "Δ BE": effect_text(contrast.be, 2, absent),
        "speed": interval_text(contrast.speed, 3, absent),
        "Δ accuracy": effect_text(contrast.accuracy, 1, absent),
        "p": p_text(verdict.p_mcnemar, contrast.lacks),
        "verdict": contrast.why or verdict.text,
    }


def _reading(evidence: Evidence, number: int, rows: list[dict], judged: list[Verdict]) -> str:
    study = evidence.study
    over = "Mean ± sample standard deviation over seeds" if len(study.seeds) > 1 else "One seed, so no deviation: seed"
    parts = [f"{over} {listed(study.seeds)}; accuracy in percent of answers. {study.define('be', 'ds')}"]
    parts.append("A column's largest number is bold, the second underlined, whether or not they differ beyond noise.")
    if any("be_paper" in row for row in rows):
        framework = paper.MODELS[paper.FRAMEWORKS[number]]
        parts.append(f"In brackets what the paper prints (with {framework}), and our number less the paper's.")
    if judged:
        parts.append("Below: each line minus its baseline ('against', at the same parameters).")
        parts.append(
            explain(study.analysis, len(judged), SPEEDS[study.analysis.speed], {verdict.name for verdict in judged})
        )
    return " ".join(parts)
