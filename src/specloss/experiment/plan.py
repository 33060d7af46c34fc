"""From a config to everything that the workflow must know before its first job, checked before any work."""

from __future__ import annotations

import difflib
import json
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from specloss.benchmarks import get_benchmark
from specloss.common.files import write_text
from specloss.common.yamlfile import ConfigError
from specloss.experiment.batches import CellBatch, batch_folder, batch_mark, plan_batches, read_batch, write_batches
from specloss.experiment.cells import EXPERIMENT, GRADED, Cell, format_param
from specloss.experiment.checks import check_benchmarks, check_finished, check_pairs, check_prompts, check_writable
from specloss.experiment.config import Experiment, parse_config, read_config, read_values
from specloss.experiment.grid import expand
from specloss.experiment.sections import Benchmark
from specloss.verification.binding import bound_rule, matched_setting

SCORING_THREADS = 8  # at most, of one cell whose grading is slow: other cells are graded beside it


@dataclass(frozen=True)
class Plan:
    """An experiment's cells and where everything goes."""

    experiment: Experiment
    source: str
    cells: tuple[Cell, ...]
    targets: frozenset[str] = frozenset()  # files of single cells that are asked for

    @property
    def results(self) -> Path:
        """Folder of all experiments' outputs."""
        return Path(self.experiment.results)

    @property
    def folder(self) -> Path:
        """This experiment's results."""
        return self.results / self.experiment.name

    def summary_of(self, experiment: str) -> str:
        """The summary of another experiment, which a run of that one makes."""
        return str(self.results / experiment / "summary.parquet")

    @property
    def reports(self) -> Path:
        """This experiment's tables, figures and report."""
        return Path(self.experiment.reports) / self.experiment.name

    @property
    def file(self) -> Path:
        """The effective config and all cells, for everything downstream."""
        return self.folder / EXPERIMENT

    @cached_property
    def content(self) -> dict[str, Any]:
        """What `file` has."""
        return {
            "source": self.source,
            # not where it runs: the same tables follow on a cluster and on a laptop, none is made again for that
            "config": self.experiment.model_dump(exclude={"cluster"}),
            "settings": self._settings(),
            "cells": [cell.to_dict() for cell in self.cells],
        }

    @cached_property
    def batches(self) -> dict[str, CellBatch | None]:
        """Decode job of each cell id; None for a cell that is already complete.

        Cells requested by file get jobs of their own, so that no other cell is decoded with them.
        """
        size = self.experiment.cluster.cells_per_job
        asked = [cell for cell in self.cells if self.graded_file(cell) in self.targets]
        rest = [cell for cell in self.cells if self.graded_file(cell) not in self.targets]
        return plan_batches(asked, self.results, size) | plan_batches(rest, self.results, size)

    def graded_file(self, cell: Cell) -> str:
        """The scored file of a cell."""
        return str(cell.folder(self.results) / GRADED)

    def graded(self) -> list[str]:
        """The scored file of every cell."""
        return [self.graded_file(cell) for cell in self.cells]

    def asking_for(self, cells: Iterable[Cell]) -> Plan:
        """The same plan with the files of these cells requested as well."""
        return replace(self, targets=self.targets.union(map(self.graded_file, cells)))

    def batch_marks(self, cell_id: str) -> list[str]:
        """What a cell's scoring waits for: its decode job's mark, or nothing. ConfigError if there is no such cell."""
        if cell_id not in self.batches:
            raise ConfigError(f"{self.source} has no cell {cell_id!r}; for example {self.cells[0].id!r}")
        batch = self.batches[cell_id]
        return [str(batch_mark(self.results, batch))] if batch else []

    def grading(self, cell_id: str) -> dict[str, Any]:
        """How a cell's benchmark is graded."""
        return self._benchmark(cell_id).grading

    def scoring_threads(self, cell_id: str) -> int:
        """Cores for scoring a cell: several where grading is slow. Snakemake caps it at what the machine has."""
        return SCORING_THREADS if get_benchmark(self._benchmark(cell_id).task).slow else 1

    def _benchmark(self, cell_id: str) -> Benchmark:
        return next(
            benchmark for name, benchmark in self.experiment.benchmarks.items() if f"/benchmark={name}/" in cell_id
        )

    def made_models(self, pair: str) -> list[str]:
        """The files of a pair's models that the workflow makes."""
        chosen = self.experiment.pairs[pair]
        return self.experiment.recipes.files(chosen.target, chosen.draft)

    @cached_property
    def _batches_by_id(self) -> dict[str, CellBatch]:
        return {batch.id: batch for batch in self.batches.values() if batch}

    def batch_models(self, batch_id: str) -> list[str]:
        """The same for a decode job's pair."""
        # in a job that is tried again, some of its cells are whole by now, and what is left would be cut otherwise
        batch = (
            self._batches_by_id.get(batch_id)
            or read_batch(batch_folder(self.results, self.experiment.name) / f"{batch_id}.json")[0]
        )
        return self.made_models(batch.cells[0].pair)

    def write(self) -> None:
        """Write `experiment.json` (if it changed), the batch files, and what is pending for the progress line."""
        cluster = self.experiment.cluster.model_dump()
        decoding = self.experiment.decoding.model_dump(include={"batch_size", "trace"})
        write_text(self.file, json.dumps(self.content, indent=1))
        write_batches(list(self._batches_by_id.values()), self.results, cluster | decoding)
        left = [cell for cell in self.cells if not cell.is_whole(self.results)]
        for batch in {batch.id: batch for cell in left if (batch := self.batches[cell.id])}.values():
            batch_mark(self.results, batch).unlink(missing_ok=True)  # finished once, but its cells were removed since
        pending = sum(not self.targets or self.graded_file(cell) in self.targets for cell in left)
        if (self.folder / "summary.parquet").exists() and not all(map(os.path.exists, self.graded())):
            self.file.touch()  # a missing cell does not move Snakemake to make the summary again, a newer input does
        if pending:
            write_text(self.folder / "run.json", json.dumps({"pending": pending, "started": time.time()}))

    def _settings(self) -> list[dict[str, Any]]:
        """Each (method, param) once, with the setting that it is compared with."""
        tree = self.experiment.decoding.tree is not None
        settings = {}
        for cell in self.cells:
            if (cell.method, cell.param) not in settings:
                rule, options = cell.settings["rule"], cell.settings["options"]
                matched = matched_setting(cell.method, rule, cell.param, options, tree=tree)
                settings[cell.method, cell.param] = {
                    "method": cell.method,
                    "rule": rule,
                    "param": cell.param,
                    "options": options,
                    "matched": [matched[0], matched[2]] if matched else None,
                    "lossless": bound_rule(rule, cell.param, options, tree).lossless,
                }
        return list(settings.values())


def make_plan(config: Any, source: str, check: bool = True, targets: Iterable[str] = ()) -> Plan:
    """Validate a config's plain values and expand them. ConfigError, in one line, if anything is wrong.

    `check` also looks at what the config names: models, benchmarks, the results folder, and cells of an earlier run
    that were made with other settings. Among `targets`, the files of single cells are decoded by themselves.
    """
    experiment = parse_config(config, source)
    try:
        plan = Plan(experiment, source, tuple(expand(experiment)))
        files = set(plan.graded())
        for target in targets:
            if target.startswith(f"{plan.folder}/cells/") and target not in files:
                near = difflib.get_close_matches(target, files, n=1, cutoff=0)
                raise ConfigError(f"no cell has the file {target}; the nearest is {near[0]}")
        plan = replace(plan, targets=frozenset(files.intersection(targets)))
        if check:
            check_pairs(experiment)
            check_prompts(experiment, check_benchmarks(experiment))
            check_writable(plan.folder)
            check_writable(plan.reports)
            check_finished(plan)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None
    return plan


def plan_of(path: Path, check: bool = True) -> Plan:
    """The plan of a config (YAML) or of an `experiment.json`, by `make_plan`. ConfigError, in one line."""
    return make_plan(read_values(path), str(path), check)


def outline_of(path: Path) -> Plan:
    """The plan without its cells, for code that only reads results: neither models nor benchmarks need exist."""
    return Plan(read_config(path), str(path), ())


def describe(plan: Plan) -> str:
    """One line on the size of the experiment."""
    experiment = plan.experiment
    settings = {(cell.method, format_param(cell.param)) for cell in plan.cells}
    whole = sum(cell.is_whole(plan.results) for cell in plan.cells)
    return (
        f"{experiment.name}: {len(plan.cells)} cells = {len(experiment.pairs)} pair x {len(experiment.benchmarks)} "
        f"benchmarks x {len(settings)} settings x {len(experiment.seeds)} seeds; {whole} decoded already"
    )
