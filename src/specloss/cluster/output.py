"""The files of a decoded cell: two tables and, last of all, cell.json."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from specloss.cluster.worker import CellOutput
from specloss.common.files import replacing, write_text
from specloss.common.oneline import OneLine, plain, plain_lines
from specloss.common.provenance import code_version
from specloss.experiment.cells import FAILURE, GENERATIONS, META, STEPS, Cell
from specloss.experiment.schema import SYSTEM_TEXT


class ResultsError(OneLine, OSError):
    """Results cannot be written, e.g. on a full disk; the message is one line meant for users."""


def write_cell(cell: Cell, results: Path, parts: Sequence[CellOutput]) -> int:
    """Write a cell from the chunks that it was decoded in; the number of tokens generated.

    The rows are sorted, so that the files do not depend on the order in which a batch finished its problems.
    ResultsError if they cannot be written: no fault of the cell, and the other cells would meet it too.
    """
    folder = cell.folder(results)
    try:
        return _write(folder, cell, parts)
    except OSError as error:
        raise ResultsError(f"cannot write {folder}: {' '.join(str(error).split())}") from error


def _write(folder: Path, cell: Cell, parts: Sequence[CellOutput]) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    for part in folder.glob(".*.part"):  # of a client that was killed while it wrote
        part.unlink(missing_ok=True)
    run = provenance(cell, parts)
    steps = pa.concat_tables([part.steps for part in parts])
    generations = pa.concat_tables([part.generations for part in parts])
    _write_table(folder / STEPS, steps, ("index", "sample", "step"), cell, run)
    _write_table(folder / GENERATIONS, generations, ("index", "sample"), cell, run)
    (folder / FAILURE).unlink(missing_ok=True)
    write_text(folder / META, json.dumps({"key": cell.key, "cell": cell.to_dict(), "run": run}, indent=1) + "\n")
    return pc.sum(pc.list_value_length(generations["token_ids"])).as_py() or 0


def provenance(cell: Cell, parts: Sequence[CellOutput]) -> dict[str, Any]:
    """How a cell was made. Nothing in it names a host, a user or a path."""
    return {
        "code": code_version(),
        "packages": parts[0].made["packages"],
        "device": ", ".join(sorted({part.made["device"] for part in parts})),
        "dtype": parts[0].made["dtype"],
        "models": parts[0].made["models"],
        "generation": effective_settings(cell) | _chat(parts),
        "seed": cell.seed,
        "decode_seconds": round(sum(part.seconds for part in parts), 3),
    }


def _chat(parts: Sequence[CellOutput]) -> dict[str, str]:
    """Where the chat template has what the system says; empty if there are no system messages."""
    told = {(part.generations.schema.metadata or {}).get(SYSTEM_TEXT, b"").decode() for part in parts}
    return {SYSTEM_TEXT.decode(): ", ".join(sorted(told - {""}))} if told - {""} else {}


def effective_settings(cell: Cell) -> dict[str, Any]:
    """What shaped the text beside rule and models: the config's settings, and no others."""
    limit = cell.settings["benchmark"]["max_new_tokens"]
    return {**cell.settings["decoding"], "max_new_tokens": limit, "repetition_penalty": 1.0}


def write_failure(cell: Cell, results: Path, reason: str, trace: str) -> Path:
    """Explain in the cell's folder why it could not be decoded; the file goes when it is decoded. ResultsError."""
    path = cell.folder(results) / FAILURE
    try:
        write_text(path, f"{cell.label}\n{plain(reason)}\n\n{plain_lines(trace)}")
    except OSError as error:
        raise ResultsError(f"cannot write {path}: {' '.join(str(error).split())}") from error
    return path


def _write_table(path: Path, table: pa.Table, order: tuple[str, ...], cell: Cell, run: dict[str, Any]) -> None:
    table = table.sort_by([(column, "ascending") for column in order])
    table = table.replace_schema_metadata({"specloss": json.dumps({"key": cell.key, "run": run})})
    with replacing(path) as part:
        pq.write_table(table, part, compression="zstd")
