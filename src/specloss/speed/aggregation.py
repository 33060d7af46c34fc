"""How long aggregation takes: makes an experiment of MADE-UP target calls, summarises it, prints time and peak memory.

    python -m specloss.speed.aggregation [--rows 10_000_000] [--folder FOLDER]

The shape is that of the paper's single-draft grid: 348 cells, blocks of 10 tokens, the full trace. Numbers are random,
so that files are larger than real ones and compress worse. The files, about 0.5 GB for each million rows, are kept and
used again if FOLDER is given.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from specloss.common.files import write_text
from specloss.experiment.cells import Cell
from specloss.experiment.schema import GENERATIONS, GRADED, STEPS

GAMMA, SETTINGS, SEEDS, BENCHMARKS, PROBLEMS = 10, 29, 3, 4, 300


def make(folder: Path, rows: int) -> Path:
    """Write the experiment below `folder` unless it is there; returns its experiment.json."""
    path = folder / "scale" / "experiment.json"
    if path.exists():
        return path
    settings = [{"method": "standard_sd", "rule": "standard_sd", "param": None, "options": {}, "lossless": True}]
    for number in range(1, SETTINGS):
        settings.append({"method": "cos", "rule": "cos", "param": number / 100, "options": {}, "lossless": False})
    cells = [
        Cell("scale", "pair", f"benchmark_{b}", s["method"], s["param"], seed, {"rule": s["rule"], "options": {}})
        for b in range(BENCHMARKS)
        for seed in range(SEEDS)
        for s in settings
    ]
    each = -(-rows // len(cells) // PROBLEMS)
    for number, cell in enumerate(cells):
        _write_cell(cell, folder, each, np.random.default_rng(number))
    config = {
        "name": "scale",
        "pairs": {"pair": {"target": "none", "draft": "none"}},
        "benchmarks": {f"benchmark_{b}": {"task": "none"} for b in range(BENCHMARKS)},
        "methods": {"standard_sd": {}, "cos": {}},
        "seeds": list(range(SEEDS)),
        "decoding": {"gamma": GAMMA},
    }
    content = {"source": "scale", "config": config, "settings": settings, "cells": [cell.to_dict() for cell in cells]}
    write_text(path, json.dumps(content))
    return path


def _write_cell(cell: Cell, results: Path, calls: int, rng: np.random.Generator) -> None:
    """One cell of `PROBLEMS` problems, `calls` target calls each."""
    folder, rows = cell.folder(results), PROBLEMS * calls
    folder.mkdir(parents=True, exist_ok=True)
    accepted = rng.integers(0, GAMMA + 1, rows).astype(np.int32)
    given = {
        "problem": pa.array(np.repeat([f"p{i}" for i in range(PROBLEMS)], calls)),
        "index": pa.array(np.repeat(np.arange(PROBLEMS, dtype=np.int32), calls)),
        "step": pa.array(np.tile(np.arange(calls, dtype=np.int32), PROBLEMS)),
        "drafted": pa.array(np.full(rows, GAMMA, np.int32)),
        "accepted": pa.array(accepted),
        "emitted": _lists(rng.integers(0, 150_000, int(accepted.sum()) + rows).astype(np.int32), accepted + 1),
    }
    for name in ("node", "depth", "mass", "threshold", "kept", "path", "stop"):  # of trees, and of last calls
        given[name] = pa.nulls(rows, STEPS.field(name).type)
    columns = [given.get(field.name, _random(field.type, rows, rng)) for field in STEPS]
    pq.write_table(pa.table(columns, schema=STEPS), folder / "steps.parquet", compression="zstd")
    each = {
        "index": pa.array(np.arange(PROBLEMS, dtype=np.int32)),
        "problem": given["problem"][::calls],
    }
    told = each | {"target_calls": pa.array(np.full(PROBLEMS, calls, np.int32))}
    graded = each | {"correct": pa.array(rng.random(PROBLEMS) < 0.7), "parsed": pa.array(np.full(PROBLEMS, True))}
    for name, schema, values in (("generations", GENERATIONS, told), ("graded", GRADED, graded)):
        filled = [values.get(field.name, pa.nulls(PROBLEMS, field.type)) for field in schema]
        pq.write_table(pa.table(filled, schema=schema), folder / f"{name}.parquet")
    write_text(folder / "cell.json", json.dumps({"key": cell.key, "cell": cell.to_dict(), "run": {}}))


def _random(kind: pa.DataType, rows: int, rng: np.random.Generator) -> pa.Array:
    if pa.types.is_list(kind):
        return _lists(_random(kind.value_type, rows * GAMMA, rng), np.full(rows, GAMMA))
    if pa.types.is_floating(kind):
        return pa.array(rng.random(rows, np.float32))
    if pa.types.is_integer(kind):
        return pa.array(rng.integers(0, 150_000, rows).astype(np.int32))
    return pa.nulls(rows, kind)


def _lists(values: np.ndarray | pa.Array, lengths: np.ndarray) -> pa.Array:
    return pa.ListArray.from_arrays(np.append(0, np.cumsum(lengths)).astype(np.int32), values)


def _measure(path: Path, results: Path) -> None:
    """Summarise in this process, which has done nothing else, and print."""
    from specloss.analysis.evidence.summary import summarise
    from specloss.experiment.completeness import WHOLE

    begin = time.perf_counter(), time.process_time()
    summary = summarise(path, results)
    wall, cpu = time.perf_counter() - begin[0], time.process_time() - begin[1]
    assert (summary["status"] == WHOLE).all(), summary["status"].value_counts()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{summary['blocks'].sum():,.0f} target calls in {len(summary)} cells: {wall:.1f} s ({cpu:.1f} s of CPU, "
        f"{len(os.sched_getaffinity(0))} cores), peak {peak:.2f} GiB"
    )


def main() -> None:
    """The command; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=lambda text: int(text.replace("_", "")), default=10_000_000)
    parser.add_argument("--folder", type=Path, help="where to keep the files; none: a temporary folder")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        results = arguments.folder or Path(temporary)
        path = make(results, arguments.rows)
        process = get_context("spawn").Process(target=_measure, args=(path, results))
        process.start()
        process.join()
    raise SystemExit(process.exitcode)


if __name__ == "__main__":
    main()
