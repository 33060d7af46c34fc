"""The verdicts in plain words: which settings are safe to use, which are not, and what this size cannot tell."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from specloss.analysis.evidence.evidence import Evidence
from specloss.analysis.evidence.verdicts import (
    FASTER,
    FASTER_BUT_WORSE,
    FEW,
    MISSING,
    NOT_FASTER,
    NOT_GRADED,
    UNCLEAR,
    WORSE,
    definitions,
)
from specloss.analysis.tables.settings import SPEEDS, verdicts
from specloss.experiment.cells import format_param

ORDER = (FASTER, FASTER_BUT_WORSE, WORSE, UNCLEAR, NOT_FASTER, NOT_GRADED, FEW, MISSING)


@dataclass(frozen=True)
class Group:
    """Settings of one verdict: their names, and the ranges of what was measured."""

    verdict: str
    settings: str
    numbers: str


@dataclass(frozen=True)
class PairAnswer:
    """The answer to one question: a sentence, then the settings by verdict, and what each verdict means."""

    question: str
    sentence: str
    groups: list[Group]
    definitions: dict[str, str]


def answers(evidence: Evidence) -> list[PairAnswer]:
    """Against the lossless run (is it safe to turn on?), and of the gates against their matched baselines."""
    study = evidence.study
    table = verdicts(evidence).data
    if table.empty:
        return []
    gates = table[table["method"].isin(study.gates)]
    margin = f"{study.analysis.margin:g} points"
    asked = [
        (
            "lossless",
            table,
            "Instead of lossless decoding?",
            f"{{}} faster than lossless decoding with an accuracy loss shown to be below {margin}",
        ),
        (
            "matched",
            gates,
            "Better than truncation alone?",
            "{} faster than lossless decoding of the truncated target that the gate aims at, with an accuracy loss "
            f"shown to be below {margin}",
        ),
    ]
    return [_answer(evidence, rows, kind, question, sentence) for kind, rows, question, sentence in asked if len(rows)]


def scope(evidence: Evidence) -> str:
    """What all verdicts of the page share: benchmarks, margin, adjustment, what speed is."""
    study, analysis = evidence.study, evidence.study.analysis
    over = " and ".join(filter(None, [", ".join(study.benchmarks[:-1]), study.benchmarks[-1]]))
    adjusted = {"holm": "adjusted with Holm", "bh": "adjusted with Benjamini-Hochberg", "none": "not adjusted"}
    return (
        f"Over {over} together, with equal weight for each benchmark; margin {analysis.margin:g} accuracy points; "
        f"claims at {100 * (1 - analysis.confidence) / 2:g} %, {adjusted[analysis.multiplicity]} over all "
        f"settings; speed is {SPEEDS[analysis.speed]}. The tables below have the verdicts by benchmark."
    )


def _answer(evidence: Evidence, rows: pd.DataFrame, kind: str, question: str, sentence: str) -> PairAnswer:
    good = int((rows[f"{kind}_verdict"] == FASTER).sum())
    count = f"{good or 'None'} of {len(rows)} settings {'is' if good <= 1 else 'are'}"
    groups = []
    for verdict in ORDER:
        here = rows[rows[f"{kind}_verdict"] == verdict]
        if len(here):
            groups.append(Group(verdict, _named(here), _numbers(here, kind, verdict)))
    said = definitions(evidence.study.analysis)
    return PairAnswer(
        question, sentence.format(count) + ".", groups, {group.verdict: said[group.verdict] for group in groups}
    )


def _named(rows: pd.DataFrame) -> str:
    """`cos 0.2, 0.4; lenience 0.8`, with the pair if there are several."""
    several = rows["pair"].nunique() > 1
    parts = []
    for (pair, method), group in rows.groupby(["pair", "method"], sort=False):
        params = ", ".join(format_param(None if pd.isna(p) else p) for p in group["param"])
        parts.append(f"{method} {params}".rstrip() + (f" ({pair})" if several else ""))
    return "; ".join(parts)


def _numbers(rows: pd.DataFrame, kind: str, verdict: str) -> str:
    """`speed 1.09 to 1.45, accuracy -64.2 to -35.0 points`; of what is unclear also what could have been found; of what
    is missing why."""
    if verdict == MISSING:
        return "; ".join(dict.fromkeys(why.removeprefix("missing: ") for why in rows[f"{kind}_comparison_missing"]))
    parts = [f"speed {_span(rows[f'{kind}_speed_ratio'], '.2f')} times"]
    if not rows[f"{kind}_delta_accuracy"].isna().any():
        parts.append(f"accuracy {_span(rows[f'{kind}_delta_accuracy'], '+.1f')} points")
    if verdict == UNCLEAR:
        losses, gains = (rows[f"{kind}_could_have_found_{name}"].dropna() for name in ("loss", "gain"))
        found = [f"losses of {_span(losses, '.1f')} points and more"] if len(losses) else []
        found += [f"speed-ups of {_span(gains, '.1f')} % and more"] if len(gains) else []
        parts.append(f"this size could have found {' and '.join(found)}")
    return "; ".join(parts)


def _span(values: pd.Series, style: str) -> str:
    low, high = (format(value, style) for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"
