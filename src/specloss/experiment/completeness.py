"""Whether a cell on disk is complete and is the one that the experiment means; if not, why, in one line."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from specloss.experiment import schema
from specloss.experiment.cells import FAILURE, GENERATIONS, GRADED, META, STEPS, Cell

WHOLE = "whole"
SCHEMAS = {STEPS: schema.STEPS, GENERATIONS: schema.GENERATIONS, GRADED: schema.GRADED}


def cell_status(cell: Cell, results: Path) -> str:
    """`WHOLE`, or the reason why the cell's numbers must not be used."""
    folder = cell.folder(results)
    if not cell.is_whole(results):
        return _failure(folder) or ("decoded in part" if _has_files(folder) else "not decoded")
    if not (folder / GRADED).exists():
        return _failure(folder) or "not graded"
    if stale := cell.stale_reason(results):
        return stale
    rows = {}
    for name, columns in SCHEMAS.items():
        try:
            metadata = pq.read_metadata(folder / name)
        except (pa.ArrowException, OSError):
            return f"{name} cannot be read"
        lacking = set(columns.names) - set(metadata.schema.to_arrow_schema().names)
        if lacking:
            return f"{name} is of another version (no {', '.join(sorted(lacking))})"
        rows[name] = metadata.num_rows
    if rows[GRADED] != rows[GENERATIONS]:
        return f"{rows[GRADED]} of {rows[GENERATIONS]} answers graded"
    if rows[GENERATIONS] == 0:
        return "no problems in it"
    try:
        calls = pq.read_table(folder / GENERATIONS, columns=["target_calls"])["target_calls"].to_numpy().sum()
    except (pa.ArrowException, OSError):
        return f"{GENERATIONS} cannot be read"
    if calls != rows[STEPS]:
        return f"{rows[STEPS]} of {calls} target calls in {STEPS}"
    return WHOLE


def damage(cell: Cell, results: Path) -> str | None:
    """Which of a complete cell's files is damaged, in one line. Reads them all: call it when a scan has failed."""
    for name in SCHEMAS:
        try:
            pq.read_table(cell.folder(results) / name)
        except (pa.ArrowException, OSError):
            return f"{name} cannot be read"
    return None


def _has_files(folder: Path) -> bool:
    return any((folder / name).exists() for name in (STEPS, GENERATIONS, META))


def _failure(folder: Path) -> str | None:
    """The last line of `failure.txt`, where a traceback has its message."""
    path = folder / FAILURE
    if not path.exists():
        return None
    lines = [line.strip() for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return f"failed: {lines[-1] if lines else 'no message'}"
