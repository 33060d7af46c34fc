"""Verdicts from a sandbox that could not keep an essential promise; the report warns of them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from specloss.experiment.cells import GRADED
from specloss.experiment.study import Study


def unsafe_benchmarks(study: Study, results: Path) -> dict[str, list[str]]:
    """By benchmark, what the sandbox could not do where any cell of it was graded unsafely."""
    found: dict[str, list[str]] = {}
    for cell in study.cells:
        try:
            metadata = pq.read_metadata(cell.folder(results) / GRADED).metadata or {}
            sandbox = json.loads(metadata.get(b"sandbox", b"{}"))
        except (OSError, ValueError, pa.ArrowException):
            continue  # such a cell is missing
        if sandbox.get("unsafe"):
            seen = found.setdefault(cell.benchmark, [])
            seen += [promise for promise in sandbox["cannot"] if promise not in seen]
    return found
