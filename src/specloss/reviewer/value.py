"""The value of one cell of a table, from the runs on disk, with its interval, the paper's number and a baseline."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from specloss import paper
from specloss.analysis.evidence.bootstrap import Bootstrap, ends_text, interval, mean_over_seeds
from specloss.analysis.evidence.summary import measure
from specloss.experiment.cells import Cell
from specloss.experiment.completeness import WHOLE, cell_status
from specloss.experiment.study import Setting
from specloss.paper import AVERAGE, BENCHMARKS, MODELS, QUANTITIES
from specloss.reviewer.names import GAP, SETTING, TableCell

WIDTH = 100


def measure_cell(cell: TableCell, results: Path) -> pd.DataFrame:
    """A row per quantity of a table cell, from the runs in `results`.

    Columns `quantity`, `value`, `low`, `high` (95 % interval), `std` (over seeds, for a single setting), `paper`,
    `paper_std`, `agrees` (the paper's number lies in the interval; none without one), and for cells that are no
    difference `baseline`, `delta`, `delta_low`, `delta_high` against the baseline, NaN where its runs are missing.
    A missing run makes the value NaN: see `missing_runs`.
    """
    runs = list(dict.fromkeys(c.id for c in cell.cells + cell.baseline_cells))
    study = replace(
        cell.study,
        cells=tuple(c for c in cell.study.cells if c.id in set(runs)),
        settings=tuple(s for s in cell.study.settings if s in cell.settings or s in cell.baselines),
    )
    summary, problems = measure(study, Path(results))
    bootstrap = Bootstrap(study, problems)
    places, settings = list(cell.places), list(cell.settings)
    references = [study.reference(setting) for setting in settings]
    printed = papers_numbers(cell)
    rows = []
    for quantity in QUANTITIES if cell.kind.over != GAP else ("be", "accuracy"):
        metric = study.metric(quantity, cell.pair)
        own = bootstrap.mean(metric, places, settings)
        row: dict[str, Any] = {"quantity": quantity, "std": np.nan}
        difference = None
        if None not in references:
            difference = interval(bootstrap.difference(metric, places, settings, references))  # type: ignore[arg-type]
        if cell.kind.over == GAP:
            row["quantity"] = f"delta_{quantity}"
            found, difference = difference, None
        else:
            found = interval(own)
        if cell.kind.over == SETTING:
            row["std"] = mean_over_seeds(study, summary, metric, places, settings)[1]
        row |= {"value": found.estimate, "low": found.low, "high": found.high}  # type: ignore[union-attr]
        row["paper"], row["paper_std"] = (printed.get(row["quantity"] + end, np.nan) for end in ("", "_std"))
        row["agrees"] = None
        if not (np.isnan(row["paper"]) or np.isnan(row["low"])):
            row["agrees"] = bool(row["low"] <= row["paper"] <= row["high"])
        if difference is not None:
            row["baseline"] = interval(bootstrap.mean(metric, places, references)).estimate  # type: ignore[arg-type]
            row |= {"delta": difference.estimate, "delta_low": difference.low, "delta_high": difference.high}
        rows.append(row)
    return pd.DataFrame(rows)


def missing_runs(cell: TableCell, results: Path) -> list[tuple[Cell, str]]:
    """The runs that the cell's value needs and that are missing, each with the reason."""
    status = [(run, cell_status(run, Path(results))) for run in cell.cells]
    return [(run, why) for run, why in status if why != WHOLE]


def papers_numbers(cell: TableCell) -> dict[str, float]:
    """The numbers that the paper prints there; empty if it has no such cell."""
    method = cell.settings[0]
    if cell.table not in paper.TABLES or method.rule not in ("", method.method):
        return {}
    param = method.param if cell.kind.over == SETTING else None
    name = _papers_benchmark(cell)
    return paper.lookup(cell.table, method.method, name, param, cell.framework) if name else {}


def _papers_benchmark(cell: TableCell) -> str | None:
    """The paper's name of the cell's benchmark, by its task; the average is the paper's only over the same four."""
    tasks = [cell.study.config["benchmarks"][place.benchmark].get("task") for place in cell.places]
    if cell.benchmark == AVERAGE:
        return AVERAGE if sorted(tasks) == sorted(BENCHMARKS) else None
    return BENCHMARKS.get(tasks[0])


def cell_text(cell: TableCell, rows: pd.DataFrame) -> str:
    """The rows as text, with definitions of their terms."""
    study, pair = cell.study, cell.study.config["pairs"][cell.pair]
    head = ["", "value", "95 % interval", "std over seeds", "the paper", "agrees"]
    compared = not rows["paper"].isna().all()
    based = "delta" in rows and not rows["delta"].isna().all()
    keep = [0, 1, 2, *([] if rows["std"].isna().all() else [3]), *([4, 5] if compared else [])]
    lines = [[*head, _names(cell.baselines), "difference"]]
    for row in rows.to_dict("records"):
        digits = 0 if abs(row["value"]) >= 100 else 1 if "accuracy" in row["quantity"] else 2
        sign = "+" if cell.kind.over == GAP else ""
        spread = "" if np.isnan(row["paper_std"]) else f" ± {row['paper_std']:.2f}"
        lines.append(
            [
                study.metric(row["quantity"], cell.pair),
                _number(row["value"], digits, sign),
                "missing" if np.isnan(row["value"]) else ends_text(row["low"], row["high"], digits, sign),
                _number(row["std"], digits),
                "" if np.isnan(row["paper"]) else f"{row['paper']:{sign}.2f}{spread}",
                {None: "", True: "yes", False: "no"}[row["agrees"]],
                _number(row.get("baseline", np.nan), digits),
                _difference(row, digits),
            ]
        )
    keep += [6, 7] if based else []
    widths = [max(len(line[k]) for line in lines) for k in keep]
    table = ["  ".join(line[k].ljust(w) for k, w in zip(keep, widths, strict=True)).rstrip() for line in lines]
    seeds = f"seed {cell.seeds[0]}" if len(cell.seeds) == 1 else f"seeds {', '.join(map(str, cell.seeds))}"
    title = f"{cell.name}: {study.name}, pair {cell.pair} ({pair['target']}), {seeds}"
    meaning = [textwrap.fill(said, WIDTH, break_on_hyphens=False) for said in _meaning(cell, compared, based)]
    return "\n".join([title, "", *table, "", *meaning]) + "\n"


def _meaning(cell: TableCell, compared: bool, based: bool) -> list[str]:
    definitions = cell.study.define(*(("be",) if cell.kind.over == GAP else ("be", "ds")))
    said = [
        f"{definitions} Accuracy is in percent of answers. The interval is a bootstrap over problems, a problem's "
        "seeds kept together: how far another draw of problems would have moved the value."
    ]
    if based:
        said.append("The difference is paired by problem.")
    elif cell.baselines and cell.kind.over != GAP:
        said.append(
            f"What it is to be compared with, {_names(cell.baselines)}, is not decoded (--baseline does it too)."
        )
    if compared:
        said.append(
            f"It agrees if the paper's number (Table {cell.table}; {MODELS[cell.framework]}) lies in the interval; the "
            "paper's own uncertainty is not in it, so that a near miss is no contradiction."
            + ("" if cell.kind.over == GAP else " DS depends on the machine.")
        )
    else:
        said.append(f"Nothing of the paper to compare with: {_why_not_compared(cell)}.")
    return said


def _why_not_compared(cell: TableCell) -> str:
    if cell.table not in paper.TABLES:
        return f"the numbers of its Table {cell.table} do not come with specloss"
    if cell.kind.over == SETTING and cell.benchmark == AVERAGE:
        return f"its Table {cell.table} has no average"
    if _papers_benchmark(cell) is None and cell.benchmark == AVERAGE:
        return f"its average is over {', '.join(BENCHMARKS.values())}"
    if _papers_benchmark(cell) is None:
        return f"{cell.benchmark} is none of its benchmarks ({', '.join(BENCHMARKS.values())})"
    return f"its Table {cell.table} has no such cell"


def _names(settings: Iterable[Setting]) -> str:
    settings = list(settings)
    return settings[0].label if len(settings) == 1 else ", ".join(dict.fromkeys(s.method for s in settings))


def _difference(row: dict[str, Any], digits: int) -> str:
    difference = row.get("delta", np.nan)
    ends = "" if np.isnan(difference) else f" {ends_text(row['delta_low'], row['delta_high'], digits, '+')}"
    return _number(difference, digits, "+") + ends


def _number(value: float, digits: int, sign: str = "") -> str:
    return "missing" if np.isnan(value) else f"{value:{sign}.{digits}f}"
