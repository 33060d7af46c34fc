"""Batches: the cells of one decode job, fixed once named."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from specloss.common.files import FileError, config_hash, read_json, write_text
from specloss.experiment.cells import Cell


@dataclass(frozen=True)
class CellBatch:
    """The cells of one decode job. The id contains the hash of its cells, so a batch never changes under its name."""

    cells: tuple[Cell, ...]

    @cached_property
    def id(self) -> str:
        """The job's name: the pair and the hash of its cells."""
        return f"{self.cells[0].pair}-{config_hash([[c.id, c.key] for c in self.cells])}"


def read_batch(path: Path) -> tuple[CellBatch, dict[str, Any]]:
    """The batch and the `cluster` settings of the config that a batch file carries."""
    content = read_json(path)
    try:
        return CellBatch(tuple(Cell.from_dict(c) for c in content["cells"])), content["cluster"]
    except (KeyError, TypeError):
        raise FileError(f"{path}: not a batch file of specloss") from None


def plan_batches(cells: list[Cell], results: Path, cells_per_job: int) -> dict[str, CellBatch | None]:
    """The batch that each cell (by id) is decoded in; None for a cell that is complete and needs none.

    A finished batch keeps its whole cells for good, so that a later run sees the same job graph and does nothing. All
    other cells are divided again, per pair, into batches of `cells_per_job`.
    """
    if not cells:
        return {}
    done: dict[str, CellBatch] = {}
    whole = {cell.id for cell in cells if cell.is_whole(results)}
    folder = batch_folder(results, cells[0].experiment)
    for marker in sorted(folder.glob("*.done")):
        batch, _ = read_batch(marker.with_suffix(".json"))
        done |= {cell.id: batch for cell in batch.cells if cell.id in whole}
    plan: dict[str, CellBatch | None] = {cell.id: done.get(cell.id) for cell in cells if cell.id in whole}
    for pair in dict.fromkeys(cell.pair for cell in cells):
        todo = [cell for cell in cells if cell.pair == pair and cell.id not in whole]
        for start in range(0, len(todo), cells_per_job):
            batch = CellBatch(tuple(todo[start : start + cells_per_job]))
            plan |= {cell.id: batch for cell in batch.cells}
    return plan


def batch_folder(results: Path, experiment: str) -> Path:
    """Where an experiment's batch files (`<id>.json`) and the marks of finished batches (`<id>.done`) are."""
    return results / experiment / "batches"


def batch_mark(results: Path, batch: CellBatch) -> Path:
    """The file that marks the batch as finished."""
    return batch_folder(results, batch.cells[0].experiment) / f"{batch.id}.done"


def write_batches(batches: list[CellBatch], results: Path, cluster: dict[str, Any]) -> None:
    """Write the batch files that decode jobs read. Existing files are left as they are: the name fixes the content."""
    for batch in batches:
        path = batch_folder(results, batch.cells[0].experiment) / f"{batch.id}.json"
        content = {"cluster": cluster, "cells": [cell.to_dict() for cell in batch.cells]}
        write_text(path, json.dumps(content, indent=1))
