"""A cell is one (pair, benchmark, method, param, seed): everything that determines its tokens, and its folder.

A cell folder holds, in the order in which they are written,

    steps.parquet        a row per target call (specloss.experiment.schema.STEPS)
    generations.parquet  a row per problem (specloss.experiment.schema.GENERATIONS)
    cell.json            the settings and how it was run; written last: its presence means that the two files are whole
    graded.parquet       a row per problem (specloss.experiment.schema.GRADED), by the scoring rule

or, in place of the first three, `failure.txt`: why the cell could not be decoded.

This module imports neither torch nor pyarrow, so that thin clients stay thin.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from specloss.common.files import config_hash, read_json

STEPS, GENERATIONS, GRADED, META = "steps.parquet", "generations.parquet", "graded.parquet", "cell.json"
FAILURE = "failure.txt"

EXPERIMENT = "experiment.json"  # of the experiment's folder: the config and all cells


def format_param(param: float | None) -> str:
    """The parameter as written in paths and tables: `0.4`, or `none` for a rule that takes none."""
    return "none" if param is None else repr(float(param)).removesuffix(".0")


def parse_param(text: str) -> float | None:
    """The inverse of `format_param`."""
    return None if text == "none" else float(text)


@dataclass(frozen=True)
class Cell:
    """One cell. `settings` is everything that determines its tokens on a type of device; any change makes another cell.

    `settings` holds `pair`, `benchmark` and `decoding` (each a plain dict from the config), `weights` (fingerprints of
    local models), `files` (those of the benchmark's local files, if any), `rule` (its name) and `options` (of the
    rule). The pair's `device` is in it, for whoever loads the pair, but makes no other cell: which type of device and
    of numbers a cell was decoded with is provenance, in `cell.json`. On the same type of device the tokens are the
    same; in bfloat16 and float16 only if the batches are too. Batch size and actors are no settings of a cell, nor is
    how answers are graded.
    """

    experiment: str
    pair: str
    benchmark: str
    method: str
    param: float | None
    seed: int
    settings: dict[str, Any]

    @property
    def id(self) -> str:
        """Hive-style path below the experiment's `cells/`: `pair=…/benchmark=…/method=…/param=…/seed=…`."""
        return (
            f"pair={self.pair}/benchmark={self.benchmark}/method={self.method}"
            f"/param={format_param(self.param)}/seed={self.seed}"
        )

    @property
    def label(self) -> str:
        """Short name for logs: `demo/chain_l4/lenience(0.4)/seed 0`."""
        param = "" if self.param is None else f"({format_param(self.param)})"
        return f"{self.pair}/{self.benchmark}/{self.method}{param}/seed {self.seed}"

    @cached_property
    def key(self) -> str:
        """Config hash: the same key means the same tokens on the same device type."""
        return config_hash(self._determines)

    @property
    def _determines(self) -> dict[str, Any]:
        pair = {name: value for name, value in self.settings.get("pair", {}).items() if name != "device"}
        return {"param": self.param, "seed": self.seed, **self.settings, "pair": pair}

    def folder(self, results: Path) -> Path:
        """The cell's folder below the results folder."""
        return results / self.experiment / "cells" / self.id

    def is_whole(self, results: Path) -> bool:
        """Whether the cell is completely decoded. Checks only that files exist: `stale_reason` compares settings."""
        folder = self.folder(results)
        return all((folder / name).exists() for name in (META, GENERATIONS, STEPS))

    def stale_reason(self, results: Path) -> str | None:
        """Why the finished cell on disk is not this cell: the first setting that differs; None if it is this cell."""
        try:
            meta = read_json(self.folder(results) / META)
            then = Cell.from_dict(meta["cell"])  # not its key as written: what a key is made of may have changed
            if then.key == self.key:
                return None
            was = then._determines
        except (ValueError, KeyError, TypeError):
            return f"{META} cannot be read"
        difference = _first_difference(was, json.loads(json.dumps(self._determines)), "")
        return f"decoded with other settings ({difference})"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Cell:
        """The inverse of `to_dict`."""
        return cls(**values)


def experiment_folder(cell_folder: Path) -> Path:
    """The experiment's folder, from that of one of its cells: the inverse of `Cell.folder`."""
    return cell_folder.resolve().parents[5]


def _first_difference(old: Any, new: Any, at: str) -> str:
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted(old.keys() | new.keys()):
            if old.get(name) != new.get(name):
                return _first_difference(old.get(name), new.get(name), f"{at}.{name}".lstrip("."))
    return f"{at}: {json.dumps(old)} -> {json.dumps(new)}"
