"""The content of MLflow's runs: the experiment, its methods, their settings and cells, each nested in the one before.

Key metrics come first because MLflow sorts by name: `accuracy`, `be`, the differences from what a setting is compared
with, and `ds` stand alone, everything else has a prefix that is its section on MLflow's pages. Names are the columns of
`summary.parquet`; for an EAGLE-3 pair the keys are `be_eagle` and `ds_eagle`.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from specloss import __version__
from specloss.common.files import config_hash
from specloss.experiment.cells import META, Cell, format_param
from specloss.experiment.names import mlflow_key
from specloss.experiment.schema import DISTORTION

AGGREGATE = "aggregate"  # in place of a cell: the run of the whole experiment
LONGEST_TEXT = 5000  # of the 6,000 characters that MLflow gives a parameter
PARENT, NOTE = "mlflow.parentRunId", "mlflow.note.content"
KEYS = ("pair", "benchmark", "method", "param", "seed")
# the tables in which a run's numbers stand: of the cells of a setting, and of a method's mean over its grid
TABLES = {"draft": ("table 4", "table 2"), "eagle3": ("table 5", "table 3")}
SECTIONS = {
    "time": ("seconds", "draft_share", "verify_share", "overhead_share", "tokens_per_s"),
    "size": ("problems", "samples", "graded", "blocks", "full_blocks", "tokens"),
    "trace": DISTORTION,
}
SECTION = {name: section for section, names in SECTIONS.items() for name in names}

Metrics = dict[tuple[str, ...], dict[str, float]]  # by cell, see `key`


@dataclass(frozen=True)
class Entry:
    """The content of one run. `cell` is its identity within the MLflow experiment."""

    cell: str
    name: str
    params: dict[str, str]
    metrics: dict[str, float]
    tags: dict[str, str]
    artifacts: Path | None = None

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the content, the artifacts' included."""
        return config_hash([self.name, self.params, self.metrics, self.tags, _folder_hash(self.artifacts)])


def cell_entry(cell: Cell, metrics: dict[str, float], results: Path, parent: str) -> Entry:
    """The run of a cell, below the run of its setting, whose id is `parent`."""
    pair, benchmark = cell.settings["pair"], cell.settings["benchmark"]
    param = format_param(cell.param)
    method = cell.method if cell.param is None else f"{cell.method} ({param})"
    named = {"pair": cell.pair, "benchmark": cell.benchmark, "method": cell.method, "param": param, "seed": cell.seed}
    params = {
        **named,
        "rule": cell.settings["rule"],
        **cell.settings["decoding"],
        "max_new_tokens": benchmark["max_new_tokens"],
        "task": benchmark["task"],
        **{key: value for key, value in pair.items() if value is not None},
        **{f"options.{key}": value for key, value in cell.settings["options"].items()},
    }
    kind = pair.get("kind", "draft")
    made = _made(cell, results)
    tags = {**named, "level": "cell", "table": TABLES[kind][0], "config_hash": cell.key, **made, PARENT: parent}
    name = f"{method} · {cell.benchmark} · seed {cell.seed}"
    sections = {_sectioned(column, kind): value for column, value in metrics.items()}
    return Entry(cell.id, name, _texts(params), sections, _texts(tags))


def _sectioned(column: str, kind: str) -> str:
    """A column's name, behind its section unless it is a key metric."""
    return column if column in _keys(kind) else f"{SECTION.get(column, 'more')}/{mlflow_key(column)}"


def group_entries(plan: dict[str, Any], metrics: Metrics) -> list[tuple[Entry, str, list[Cell]]]:
    """Runs between the experiment's and the cells': (entry, the identity of its parent, its measured cells).

    Methods come before their settings. Numbers are plain means over seeds, benchmarks and a method's grid; a mean
    that lacks a cell is left out.
    """
    cells = [Cell.from_dict(values) for values in plan["cells"]]
    matched = {(s["method"], s["param"]): s["matched"] for s in plan.get("settings", [])}
    several = len({cell.pair for cell in cells}) > 1
    groups: dict[tuple[str, str], dict[float | None, list[Cell]]] = {}
    for cell in cells:
        groups.setdefault((cell.pair, cell.method), {}).setdefault(cell.param, []).append(cell)
    found = []
    for (pair, method), grid in groups.items():
        if not any(metrics.get(key(cell)) for runs in grid.values() for cell in runs):
            continue
        name = f"{pair} · {method}" if several else method
        top = f"pair={pair}/method={method}"
        levels = [(top, name, AGGREGATE, list(grid), 1)]
        levels += [(f"{top}/param={format_param(p)}", f"{name} ({format_param(p)})", top, [p], 0) for p in grid]
        for identity, shown, parent, params, average in levels if grid.keys() != {None} else levels[:1]:
            own = [cell for param in params for cell in grid[param]]
            pairs = [matched.get((method, param)) for param in params]
            bases = [groups.get((pair, base[0]), {}).get(base[1], []) for base in pairs if base]
            baseline = [cell for runs in bases for cell in runs] if len(bases) == len(pairs) else []
            kind = own[0].settings["pair"].get("kind", "draft")
            values = _means(own, metrics, kind) | _differences(own, baseline, metrics, kind)
            measured = [cell for cell in own if metrics.get(key(cell))]
            alone = average == 0 or grid.keys() == {None}
            tags = {
                "level": "setting" if alone else "method",
                "table": ", ".join(TABLES[kind] if grid.keys() == {None} else TABLES[kind][average : average + 1]),
                "pair": pair,
                "method": method,
                "param": format_param(params[0]) if alone else ", ".join(map(format_param, params)),
                "against": ", ".join(dict.fromkeys(base[0] for base in pairs if base)),
                "benchmarks": ", ".join(dict.fromkeys(cell.benchmark for cell in own)),
                "seeds": ", ".join(dict.fromkeys(str(cell.seed) for cell in own)),
                "cells": f"{len(measured)} of {len(own)}",
            }
            entry_params = {"pair": pair, "method": method, "param": tags["param"], "rule": own[0].settings["rule"]}
            entry = Entry(identity, shown, _texts(entry_params), values, _texts(tags))
            found.append((entry, parent, measured if alone else []))
    return found


def _keys(kind: str) -> tuple[str, str, str]:
    return ("accuracy", "be", "ds") if kind == "draft" else ("accuracy", "be_eagle", "ds_eagle")


def _means(cells: list[Cell], metrics: Metrics, kind: str) -> dict[str, float]:
    """Key metrics over all benchmarks, and on each in a section of its own if there are several."""
    values: dict[str, float] = {}
    benchmarks = list(dict.fromkeys(cell.benchmark for cell in cells))
    for name in _keys(kind):
        means = {}
        for benchmark in benchmarks:
            found = [metrics.get(key(cell), {}).get(name) for cell in cells if cell.benchmark == benchmark]
            if None not in found:
                means[benchmark] = sum(found) / len(found)  # type: ignore[arg-type]
        if len(means) == len(benchmarks):
            values[name] = sum(means.values()) / len(means)
        if len(benchmarks) > 1:
            values |= {f"on {mlflow_key(benchmark)}/{name}": mean for benchmark, mean in means.items()}
    return values


def _differences(cells: list[Cell], baseline: list[Cell], metrics: Metrics, kind: str) -> dict[str, float]:
    """Accuracy and block efficiency minus those of the cells' baselines."""
    if not baseline:
        return {}
    own, base = _means(cells, metrics, kind), _means(baseline, metrics, kind)
    return {f"delta_{name}": own[name] - base[name] for name in _keys(kind)[:2] if name in own and name in base}


def aggregate_entry(name: str, config: dict[str, Any], cells: list[Cell], reports: Path) -> Entry:
    """The run of the whole experiment, with its report, tables and figures as artifacts."""
    tags = {
        "config_hash": config_hash(config),
        "code_version": __version__,
        "level": "experiment",
        "seeds": ", ".join(map(str, config.get("seeds", []))),
        **{f"{key}s": ", ".join(dict.fromkeys(getattr(cell, key) for cell in cells)) for key in KEYS[:3]},
        NOTE: "The report is `index.html` under Artifacts. Below this run: a run for each method (its mean over the "
        "grid), below it one for each setting, below that one for each cell. Compare settings with the filter "
        "`tags.level = 'setting'`, methods with `tags.level = 'method'`, or group by the tag `table`.",
    }
    artifacts = reports if reports.is_dir() else None
    params = _texts(config.get("decoding", {}))
    return Entry(AGGREGATE, f"{name} · report", params, {"cells": float(len(cells))}, tags, artifacts)


def _texts(values: dict[str, Any]) -> dict[str, str]:
    """Texts as MLflow stores them. It would truncate a long one, so that is done here, with its hash."""
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}
    return {
        key: text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}… ({config_hash(text)})"
        for key, text in texts.items()
    }


def _made(cell: Cell, results: Path) -> dict[str, str]:
    """Tags on how the cell was decoded: by the code of that day, which may be older than this."""
    path = cell.folder(results) / META
    run = json.loads(path.read_text(encoding="utf-8")).get("run", {}) if path.exists() else {}
    code = run.get("code") or {"version": __version__}
    made = {"code_version": " ".join(filter(None, (code.get("version"), code.get("commit"))))}
    return made | {key: str(run[key]) for key in ("device", "dtype") if key in run}


def key(cell: Cell) -> tuple[str, ...]:
    """What names a cell in `summary.parquet`."""
    return (cell.pair, cell.benchmark, cell.method, format_param(cell.param), str(cell.seed))


def read_metrics(summary: Path) -> Metrics:
    """Finite values of the numeric columns, by cell. A column's name needs no change to be a metric's name."""
    import pyarrow.parquet as pq
    import pyarrow.types as types

    table = pq.read_table(summary, partitioning=None)
    numeric = [
        field.name
        for field in table.schema
        if field.name not in KEYS
        and (types.is_integer(field.type) or types.is_floating(field.type) or types.is_boolean(field.type))
    ]
    metrics = {}
    for row in table.to_pylist():
        param = row["param"]
        # a table that went through pandas says NaN for "none"
        none = param is None or (isinstance(param, float) and math.isnan(param))
        text = param if isinstance(param, str) else format_param(None if none else float(param))
        key = (row["pair"], row["benchmark"], row["method"], text, str(row["seed"]))
        metrics[key] = {
            column: float(row[column]) for column in numeric if row[column] is not None and math.isfinite(row[column])
        }
    return metrics


def _folder_hash(folder: Path | None) -> str:
    digest = hashlib.sha256()
    for path in files_of(folder) if folder else ():
        digest.update(f"{path.relative_to(folder)}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def files_of(folder: Path) -> list[Path]:
    """The finished files below a folder, sorted."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(".part"))
