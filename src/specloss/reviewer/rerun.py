"""Compares cells decoded again with the earlier ones: how many answers are identical, and how many should be.

On one type of device, with one set of packages, float32 gives the same tokens whatever the batches were. In bfloat16
and float16 some change with the batches, as expected: see `specloss.experiment.cells.EXACT`.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from specloss.common.provenance import EXACT
from specloss.experiment.cells import GENERATIONS, META, Cell

WIDTH = 120


@dataclass(frozen=True, slots=True)
class Rerun:
    """Answers that are the same token for token, answers compared, runs that were not there before, and `excuses`: why
    some answers may differ; without any all must be the same."""

    same: int
    compared: int
    new: int
    excuses: tuple[str, ...]

    @property
    def as_it_should_be(self) -> bool:
        """False if answers differ that should not."""
        return self.same == self.compared or bool(self.excuses)

    def text(self, results: Path) -> str:
        """For reading."""
        said = f"Decoded again in {results}: "
        if not self.compared:
            return said + "there was no earlier decode to compare with.\n"
        verdict = "the same, token for token" if self.same == self.compared else "the same tokens as before"
        said += f"{self.same} of {self.compared} answers are {verdict}"
        said += f"; {self.new} runs are new.\n" if self.new else ".\n"
        if self.same == self.compared:
            return said
        if not self.excuses:
            return said + "All of them should be: on one type of device, float32 gives the same tokens.\n"
        why = f"Some may differ: {'; '.join(self.excuses)}."
        return said + textwrap.fill(why, WIDTH, break_on_hyphens=False) + "\n"


def compare_runs(runs: Iterable[Cell], results: Path, before: Path) -> Rerun:
    """The runs below `results` beside those below `before`."""
    same = compared = new = 0
    excuses: dict[str, None] = {}
    for run in runs:
        folders = [run.folder(folder) for folder in (results, before)]
        if not all((folder / name).exists() for folder in folders for name in (GENERATIONS, META)):
            new += 1
            continue
        ours, theirs = (_tokens(folder / GENERATIONS) for folder in folders)
        same += sum(theirs.get(key) == tokens for key, tokens in ours.items())
        compared += len(ours.keys() | theirs.keys())
        excuses |= dict.fromkeys(_excuses(*(_made(folder) for folder in folders)))
    return Rerun(same, compared, new, tuple(excuses))


def _tokens(path: Path) -> dict[tuple[str, int], list[int]]:
    rows = pq.ParquetFile(path).read(["problem", "sample", "token_ids"]).to_pylist()
    return {(row["problem"], row["sample"]): row["token_ids"] for row in rows}


def _made(folder: Path) -> dict[str, Any]:
    """How a cell was made."""
    return json.loads((folder / META).read_text())["run"]


def _excuses(now: dict[str, Any], then: dict[str, Any]) -> list[str]:
    """Legitimate reasons for tokens to differ."""
    types = [_types(run) for run in (now, then)]
    found = []
    if types[0] != types[1]:
        found.append(f"the models are in {_listing(types[0])} now and were in {_listing(types[1])}")
    elif rough := types[0] - set(EXACT):
        found.append(f"in {_listing(rough)} near ties depend on how a forward pass of the batch's shape rounds")
    if now["device"] != then["device"]:
        found.append(f"it ran on {now['device']} now and on {then['device']} then")
    for package in sorted(now["packages"].keys() | then["packages"].keys()):
        versions = [run["packages"].get(package, "none") for run in (now, then)]
        if versions[0] != versions[1]:
            found.append(f"{package} is {versions[0]} now and was {versions[1]}")
    return found


def _types(run: dict[str, Any]) -> set[str]:
    """The dtypes of a run's models."""
    roles = (run.get("models", {}).get(role, {}).get("dtype") for role in ("target", "draft"))
    return {run["dtype"], *filter(None, roles)}


def _listing(names: set[str]) -> str:
    return " and ".join(sorted(names))
