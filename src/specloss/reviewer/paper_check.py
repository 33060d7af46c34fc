"""Do the paper's summary tables follow from its detailed ones? Tables 2, 3 and 7 recomputed from Tables 4 and 5.

Its settings go through the same aggregation as ours: each printed number becomes a cell of one problem that measures
exactly that, and `Bootstrap.mean` and `Evidence.gap` average and subtract as they do for our own tables.

A printed number stands for anything within half a unit of its last decimal, so what follows from an average of printed
numbers may be off by that much, and the number that it is compared with by as much again; a difference of two averages
by one more half. Only what is further off does not follow. Rounding alone would rarely use all of that room.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from specloss import paper
from specloss.analysis.evidence.bootstrap import Bootstrap
from specloss.analysis.evidence.evidence import OVERALL, Evidence
from specloss.experiment.plan import make_plan
from specloss.experiment.study import Study
from specloss.paper import AVERAGE, BENCHMARKS, EAGLE3, HALF_UNIT, QUANTITIES, SINGLE_DRAFT

SOURCES = {SINGLE_DRAFT: (4, 2), EAGLE3: (5, 3)}  # the detailed table, and the one that averages it
COLUMNS = ["table", "of", "framework", "benchmark", "method", "against", "quantity", "printed", "recomputed", "room"]
_GAMMA = 1


def check_paper() -> pd.DataFrame:
    """A row per number of Tables 2, 3 and 7: `COLUMNS`, `difference` (printed less recomputed) and `follows`.

    `of` names what it was recomputed from: the detailed tables, and for Table 7 also Tables 2 and 3 as printed.
    """
    rows: list[dict] = []
    for framework, (detailed, averaged) in SOURCES.items():
        evidence = paper_evidence(detailed)
        rows += _averages(evidence, framework, detailed, averaged)
        rows += _gaps(evidence, framework, detailed)
        rows += _printed_gaps(framework, averaged)
    found = pd.DataFrame(rows, columns=COLUMNS).sort_values(["table", "of"], kind="stable", ignore_index=True)
    found["difference"] = found["printed"] - found["recomputed"]
    found["follows"] = found["difference"].abs() <= found["room"] + 1e-9
    return found


def paper_evidence(table: int) -> Evidence:
    """Table 4 or 5 as if it had been measured here: one pair, one seed, one problem per cell with the printed means."""
    frame = paper.frame(table)
    grids = {method: rows["param"].dropna().unique().tolist() for method, rows in frame.groupby("method", sort=False)}
    config: dict[str, Any] = {
        "name": f"table{table}",
        "pairs": {"paper": {"target": "paper/target", "draft": "paper/draft"}},
        "benchmarks": {name: {"task": task, "max_new_tokens": 1} for task, name in BENCHMARKS.items()},
        "methods": {method: {"params": grid} if grid else {} for method, grid in grids.items()},
        "seeds": [0],
        "decoding": {"gamma": _GAMMA},
    }
    study = Study.from_dict(make_plan(config, f"the paper's Table {table}", check=False).content)
    seconds = _GAMMA / frame["ds"]
    problems = frame[["method", "param", "benchmark"]].assign(
        pair="paper",
        seed=0,
        index=0,
        samples=100.0,
        graded=100.0,
        correct=frame["accuracy"],
        parsed=100.0,
        blocks=1.0,
        full_blocks=1.0,
        accepted=frame["be"],
        be_sum=frame["be"],
        expected_sum=float("nan"),
        be_expected_sum=float("nan"),
        tokens=float(_GAMMA),
        draft_s=0.0,
        verify_s=seconds,
        overhead_s=0.0,
    )
    return Evidence(study, pd.DataFrame(), Bootstrap(study, problems, draws=2))


def report_lines(found: pd.DataFrame, everything: bool = False) -> list[str]:
    """What to print: for each table how many numbers follow, and which do not (or all of them)."""
    lines = []
    for (table, of), rows in found.groupby(["table", "of"], sort=False):
        wrong = rows[~rows["follows"]]
        counts = [
            f"{name} {group['follows'].sum()}/{len(group)}" for name, group in rows.groupby("quantity", sort=False)
        ]
        whole = "all follow" if wrong.empty else f"{len(wrong)} of {len(rows)} do not follow"
        lines.append(f"Table {table} from {of}: {whole} ({', '.join(counts)})")
        lines += ["  " + _line(row) for row in (rows if everything else wrong).to_dict("records")]
    return lines


def _line(row: dict) -> str:
    what = row["method"] + (f" less {row['against']}" if row["against"] else "")
    sign = "+" if row["table"] == 7 else ""
    return (
        f"{row['quantity']:15} {row['framework']:13}{row['benchmark']:8} {what:38} printed {row['printed']:{sign}.2f}, "
        f"recomputed {row['recomputed']:{sign}.3f}, off by {row['difference']:+.3f}"
        + (f" (rounding explains at most {row['room']:.3f})" if not row["follows"] else "")
    )


def _metric(quantity: str, framework: str) -> str:
    return quantity if framework == SINGLE_DRAFT or quantity == "accuracy" else f"{quantity}_eagle"


def _averages(evidence: Evidence, framework: str, detailed: int, averaged: int) -> list[dict]:
    study, rows = evidence.study, []
    places = {place.benchmark: place for place in study.places}
    for printed in paper.frame(averaged).to_dict("records"):
        grid, place = study.methods[printed["method"]], places[printed["benchmark"]]
        for quantity in QUANTITIES:
            mean = evidence.bootstrap.mean(_metric(quantity, framework), [place], grid)[0]
            rows.append(_row(averaged, f"Table {detailed}", framework, printed, quantity, mean, 2))
    return rows


def _gaps(evidence: Evidence, framework: str, detailed: int) -> list[dict]:
    study, rows = evidence.study, []
    for printed in _table7(framework):
        grid = study.methods[printed["method"]]
        places = [p for p in study.places if printed["benchmark"] in (p.benchmark, AVERAGE)]
        if {study.reference(setting).method for setting in grid} != {printed["against"]}:  # type: ignore[union-attr]
            raise ValueError(f"{printed['method']} is matched with another baseline here than in the paper's Table 7")
        for quantity in ("be", "accuracy"):
            gap = evidence.gap(_metric(quantity, framework), places, grid).estimate
            rows.append(_row(7, f"Table {detailed}", framework, printed, f"delta_{quantity}", gap, 3))
    return rows


def _printed_gaps(framework: str, averaged: int) -> list[dict]:
    rows = []
    table = paper.frame(averaged).set_index(["method", "benchmark"])
    for printed in _table7(framework):
        names = BENCHMARKS.values() if printed["benchmark"] == AVERAGE else [printed["benchmark"]]
        for quantity in ("be", "accuracy"):
            gaps = [
                table.loc[(printed["method"], name), quantity] - table.loc[(printed["against"], name), quantity]
                for name in names
            ]
            # a difference of two printed numbers is exact if Table 7 was made of these, as it seems to be
            mean = sum(gaps) / len(gaps)
            rows.append(_row(7, f"Table {averaged}", framework, printed, f"delta_{quantity}", mean, 1))
    return rows


def _table7(framework: str) -> list[dict]:
    table = paper.frame(7)
    return table[table["framework"] == framework].to_dict("records")


def _row(table: int, of: str, framework: str, printed: dict, quantity: str, value: float, halves: int) -> dict:
    benchmark = OVERALL if printed["benchmark"] == AVERAGE else printed["benchmark"]
    return {
        "table": table, "of": of, "framework": framework, "benchmark": benchmark, "method": printed["method"],
        "against": printed.get("against", ""), "quantity": quantity, "printed": printed[quantity],
        "recomputed": float(value), "room": halves * HALF_UNIT,
    }  # fmt: skip
