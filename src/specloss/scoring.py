"""Grading one cell: reads its generations, writes `graded.parquet`. No model, no torch: untrusted text stays here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from specloss.benchmarks import get_benchmark
from specloss.cells import EXPERIMENT, FAILURE, GENERATIONS, GRADED, META, Cell, experiment_folder
from specloss.files import replacing
from specloss.schema import GRADED as SCHEMA


class NotDecoded(RuntimeError):
    """The cell has no generations; the message says why, in one line."""


def score_cell(folder: Path) -> None:
    """Grade the cell in `folder`. NotDecoded if its decoding failed or never ran."""
    if not (folder / META).exists():
        failure = folder / FAILURE
        # its first two lines are the cell and the reason
        reason = ": ".join(failure.read_text().splitlines()[:2]) if failure.exists() else "it was never decoded"
        raise NotDecoded(f"{folder}: nothing to grade: {reason}")
    cell = Cell.from_dict(json.loads((folder / META).read_text())["cell"])
    grade, grading = get_benchmark(cell.settings["benchmark"]["task"]).grade, _grading(folder, cell)
    columns = ["problem", "index", "sample", "text", "reference"]
    try:
        # not read_table: it imports pandas, for every cell again
        generations = pq.ParquetFile(folder / GENERATIONS)
        rows = generations.read(columns)
    except (OSError, pa.ArrowException) as error:
        reason = " ".join(str(error).split())
        raise NotDecoded(
            f"{folder / GENERATIONS} cannot be read ({reason}); remove {folder} to decode it again"
        ) from None
    grades = [grade(row["text"], row["reference"], **grading) for row in rows.to_pylist()]
    names = sorted({name for grade in grades for name in grade.scores})
    graded = pa.table(
        {
            "problem": rows["problem"],
            "index": rows["index"],
            "sample": rows["sample"],
            "correct": [grade.correct for grade in grades],
            "parsed": [None if grade.correct is None else grade.answer is not None for grade in grades],
            "answer": [grade.answer for grade in grades],
            "scores": [[(name, grade.scores.get(name, False)) for name in names] for grade in grades],
        },
        schema=SCHEMA,
    )
    metadata = (generations.schema_arrow.metadata or {}) | {b"grading": json.dumps(grading).encode()}
    with replacing(folder / GRADED) as part:
        pq.write_table(graded.replace_schema_metadata(metadata), part, compression="zstd")


def _grading(folder: Path, cell: Cell) -> dict[str, Any]:
    """The benchmark's `grading` as the experiment has it now: it may have changed since the cell was decoded."""
    path = experiment_folder(folder) / EXPERIMENT
    if not path.exists():
        return {}
    benchmarks = json.loads(path.read_text(encoding="utf-8"))["config"]["benchmarks"]
    return benchmarks.get(cell.benchmark, {}).get("grading", {})
