"""The tables of every experiment; those of the ablations are in `ablations`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from specloss.analysis.evidence.bootstrap import Interval, cells_of
from specloss.analysis.evidence.evidence import OVERALL, Evidence
from specloss.analysis.evidence.findings import check, to_frame
from specloss.analysis.outputs import tables_for
from specloss.analysis.tables.ablations import coupling, table1, table6
from specloss.analysis.tables.amplification import table7
from specloss.analysis.tables.frameworks import frameworks
from specloss.analysis.tables.settings import table2, table4, verdicts
from specloss.analysis.tables.table import Table, effect_columns, effect_text, number, rounded, with_pair
from specloss.common.files import write_text
from specloss.experiment.cells import format_param
from specloss.experiment.metrics import EAGLE, METRICS
from specloss.experiment.study import Place, Setting, Study, level_text


def make_table(name: str, evidence: Evidence) -> Table:
    """The table of that name, one of those that the experiment has (`specloss.analysis.tables_for`)."""
    there = tables_for(evidence.study)
    if name not in there:
        why = f"no table {name!r}" if name not in MAKERS else f"{evidence.study.name} has no methods for {name!r}"
        raise ValueError(f"{why}; there are {', '.join(there)}")
    return MAKERS[name](evidence)


def write_table(name: str, experiment_json: Path, results: Path, out: Path) -> list[Path]:
    """Write `out/<name>.csv`, `.md` and `.tex`; returns their paths."""
    return write_texts(make_table(name, Evidence.read(experiment_json, results)), out)


def write_joined(name: str, first: Path, second: Path, results: Path, out: Path) -> list[Path]:
    """The same for a table of `JOINED`, from two `experiment.json` in either order. TableError if they do not fit."""
    return write_texts(JOINED[name](Evidence.read(first, results), Evidence.read(second, results)), out)


def write_texts(table: Table, out: Path) -> list[Path]:
    """Write a table in each format, named by its name; returns the paths."""
    texts = {"csv": table.csv(), "md": table.markdown(), "tex": table.latex()}
    paths = {suffix: Path(out) / f"{table.name}.{suffix}" for suffix in texts}
    for suffix, path in paths.items():
        write_text(path, texts[suffix])
    return list(paths.values())


def write_tables(experiment_json: Path, results: Path, out: Path) -> list[Path]:
    """Write every table that the experiment has."""
    return [
        path
        for name in tables_for(Study.read(experiment_json))
        for path in write_table(name, experiment_json, results, out)
    ]


def gaps(evidence: Evidence) -> Table:
    """Accuracy of each gate less its matched truncation baseline, by level and parameter."""
    study, rows, shown = evidence.study, [], []
    for pair in study.pairs:
        groups = [(p.benchmark, level_text(study.levels[p.benchmark]), [p]) for p in evidence.places(pair)]
        groups += [(OVERALL, OVERALL, evidence.places(pair))] if len(groups) > 1 else []
        for gate in study.gates:
            grid = study.methods[gate]
            lines = [(format_param(s.param), [s]) for s in grid] + ([(OVERALL, grid)] if len(grid) > 1 else [])
            for param, settings in lines:
                line = {"method": gate, "param": param, "against": study.reference(grid[0]).method}  # type: ignore[union-attr]
                for benchmark, level, places in groups:
                    row = _gap_row(evidence, places, settings)
                    gap = Interval(row["gap"], row["gap_low"], row["gap_high"], np.nan)
                    compared = [*settings, *study.references(settings)]
                    row["missing"] = evidence.reason({"accuracy": gap.estimate}, places, compared, intervals=True)
                    rows.append({"pair": pair, **line, "benchmark": benchmark, "level": level} | row)
                    why = evidence.why_absent("accuracy", places, compared)
                    line[benchmark] = effect_text(gap, 1, why)
                shown.append(with_pair(evidence, pair, dict(line)))
    rows = [{key: row.get(key) for key in GAP_COLUMNS} for row in rows]
    return Table(
        "gaps",
        "Accuracy gap of each gate by level",
        "Accuracy points of the gate minus its matched truncation baseline at the same parameter, with the paired 95 % "
        "interval over problems. Below zero the gate loses accuracy that truncation alone does not.",
        rounded(rows, GAP_COLUMNS),
        pd.DataFrame(shown),
    )


def _gap_row(evidence: Evidence, places: list[Place], settings: list[Setting]) -> dict[str, Any]:
    baselines, boot = evidence.study.references(settings), evidence.bootstrap
    return {
        "accuracy": boot.mean("accuracy", places, settings)[0],
        "baseline_accuracy": boot.mean("accuracy", places, baselines)[0],
    } | effect_columns("gap", evidence.gap("accuracy", places, settings))


def distortion(evidence: Evidence) -> Table:
    """How far each setting's output distribution is from the target's, beside its accuracy."""
    names = {
        **{name: METRICS[name].head for name in ("accuracy", "parse_failures")},
        "tv_pi_p": "TV(pi, p)",
        "tv_pi_target": "TV(pi, matched)",
        "overshoot": "overshoot",
        "coupling_loss": "coupling loss",
        "allowed_mass": "p(A)",
        "alpha": "alpha",
    }
    return _averages(
        evidence,
        "distortion",
        "Distortion beside accuracy",
        names,
        "Means over benchmarks and seeds; the columns after the two percentages are means over the positions at which "
        "the rule decided. TV(pi, p) is the distance between the rule's output and the target, overshoot the "
        "probability mass above the target, coupling loss the acceptance left unused at the same output distribution.",
    )


def time(evidence: Evidence) -> Table:
    """Where the time goes, and the measures of speed in the convention for chains or trees."""
    names = {
        "draft_share": "draft",
        "verify_share": "verify",
        "overhead_share": "overhead",
        **{name: metric.head for name, metric in METRICS.items() if name not in ("accuracy", "parse_failures")},
    }
    other = EAGLE if evidence.study.tree else EAGLE.values()
    names = {name: head for name, head in names.items() if name not in other}
    return _averages(
        evidence,
        "time",
        "Time and speed",
        names,
        "Means over benchmarks and seeds. Draft, verify and overhead are shares of the decode time; BE expected is BE "
        f"from the closed-form acceptance probabilities: the same mean with less noise. "
        f"{evidence.study.define('be', 'ds')}",
    )


def _averages(evidence: Evidence, name: str, title: str, names: dict[str, str], reading: str) -> Table:
    study, rows, shown = evidence.study, [], []
    for pair in study.pairs:
        for setting in _in_order(evidence):
            places = evidence.places(pair)
            cells = pd.concat([cells_of(evidence.summary, place, setting) for place in places])
            means = cells[list(names)].mean(skipna=False)
            key = {"pair": pair, "method": setting.method, "param": setting.param}
            rows.append(key | means.to_dict() | {"missing": evidence.reason(means, places, [setting])})
            line = {"method": setting.method, "param": format_param(setting.param)}
            for column, head in names.items():
                digits = METRICS[column].digits if column in METRICS else 3
                line[head] = number(means[column], digits, evidence.why_absent(column, places, [setting]))
            shown.append(with_pair(evidence, pair, line))
    return Table(name, title, reading, rounded(rows), pd.DataFrame(shown))


def findings(evidence: Evidence) -> Table:
    """The paper's findings, checked here."""
    frame = to_frame(check(evidence))
    shown = frame.drop(columns=["name", "missing"])
    return Table(
        "findings",
        "The paper's findings, checked on this experiment",
        "Each claim is computed from the cells; intervals are 95 %. 'not distinguishable' means that the data "
        "neither support nor contradict the claim at this size.",
        frame,
        shown if len(evidence.study.pairs) > 1 else shown.drop(columns="pair"),
    )


GAP_COLUMNS = [
    "pair", "method", "param", "against", "benchmark", "level",
    "accuracy", "baseline_accuracy", "gap", "gap_low", "gap_high", "missing",
]  # fmt: skip
MAKERS: dict[str, Callable[[Evidence], Table]] = {
    "verdicts": verdicts,
    "table2": table2,
    "table3": table2,
    "table4": table4,
    "table5": table4,
    "gaps": gaps,
    "distortion": distortion,
    "time": time,
    "findings": findings,
    "table1": table1,
    "table6": table6,
    "coupling": coupling,
}
JOINED: dict[str, Callable[[Evidence, Evidence], Table]] = {"frameworks": frameworks, "table7": table7}


def _in_order(evidence: Evidence) -> list[Setting]:
    return [setting for grid in evidence.study.methods.values() for setting in grid]
