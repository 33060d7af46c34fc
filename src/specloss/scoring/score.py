"""Grading one cell: reads its generations, writes `graded.parquet`. No model, no torch: untrusted text stays here.

A benchmark that runs model-written code has `permitted()`: where its sandbox is not safe nothing is graded, unless the
config says so; what it cannot enforce is reported once, before any grading, and recorded in the file's metadata.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from specloss.benchmarks import get_benchmark
from specloss.common.files import read_json, replacing
from specloss.common.oneline import OneLine, plain
from specloss.experiment.cells import EXPERIMENT, FAILURE, GENERATIONS, GRADED, META, Cell, experiment_folder
from specloss.experiment.schema import GRADED as SCHEMA
from specloss.scoring.grade import grade_all

PARTIAL = ".graded.partial.jsonl"  # grades of a scoring that has not ended


class NotDecoded(OneLine, RuntimeError):
    """The cell has no generations; the message says why, in one line."""


def score_cell(folder: Path, workers: int = 1) -> None:
    """Grade the cell in `folder`, a slow benchmark in `workers` processes.

    If it is killed, finished grades are in a partial file, from which the next try continues. NotDecoded if the
    cell's decoding failed or never ran, SandboxError if model-written code must not run here.
    """
    if not (folder / META).exists():
        failure = folder / FAILURE
        # its first two lines are the cell and the reason
        reason = ": ".join(failure.read_text().splitlines()[:2]) if failure.exists() else "it was never decoded"
        raise NotDecoded(f"{folder}: nothing to grade: {reason}")
    try:
        cell = Cell.from_dict(read_json(folder / META)["cell"])
    except (KeyError, TypeError):
        raise NotDecoded(f"{folder / META}: not the cell.json of a cell") from None
    task, grading = cell.settings["benchmark"]["task"], _grading(folder, cell)
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
    metadata = (generations.schema_arrow.metadata or {}) | {b"grading": json.dumps(grading).encode()}
    if permitted := get_benchmark(task).permitted:
        sandbox = permitted(grading.get("sandbox", "required"))
        for line in sandbox.lines:
            print(f"specloss: {plain(line)}", file=sys.stderr)
        metadata[b"sandbox"] = json.dumps(sandbox.to_dict()).encode()
    answers = [(row["text"], row["reference"]) for row in rows.select(["text", "reference"]).to_pylist()]
    partial = folder / PARTIAL
    grades = grade_all(task, answers, grading, workers, partial, cell.label)
    if errors := Counter(grade.error for grade in grades if grade.error):
        named = ", ".join(f"{name} ({count})" for name, count in errors.most_common())
        print(
            f"specloss: {cell.label}: {errors.total()} of {len(grades)} answers broke their grader and count as parse "
            f"failures: {named}",
            file=sys.stderr,
        )
        metadata[b"errors"] = json.dumps(errors).encode()
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
    with replacing(folder / GRADED) as part:
        pq.write_table(graded.replace_schema_metadata(metadata), part, compression="zstd")
    partial.unlink(missing_ok=True)


def _grading(folder: Path, cell: Cell) -> dict[str, Any]:
    """The benchmark's `grading` as the experiment has it now: it may have changed since the cell was decoded."""
    path = experiment_folder(folder) / EXPERIMENT
    if not path.exists():
        return {}
    benchmarks = read_json(path)["config"]["benchmarks"]
    return benchmarks.get(cell.benchmark, {}).get("grading", {})
