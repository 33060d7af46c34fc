"""The reviewer's entry point: one cell of one table, decoded if necessary, with its value beside the paper's.

The cell's runs are Snakemake targets, so finished ones are reused. A rerun leaves them alone: it decodes
again below `<results>/reruns`, by the same config, and says whether every answer is the same.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from specloss.common.oneline import OneLine
from specloss.common.yamlfile import ConfigError
from specloss.experiment.cells import GRADED

if TYPE_CHECKING:
    import pandas as pd

    from specloss.reviewer.names import TableCell

RERUNS = "reruns"


class CellError(OneLine, RuntimeError):
    """The cell has no value; the message says why, in one line."""


@dataclass(frozen=True)
class CellRequest:
    """What `specloss cell` was asked for, as it was typed."""

    config: Path
    table: int | None = None
    benchmark: str | None = None
    method: str | None = None
    param: str | None = None
    pair: str | None = None
    seed: str | None = None
    baseline: bool = False
    rerun: bool = False


def answer(request: CellRequest, snakemake: Callable[[Sequence[str]], int] | None) -> tuple[str, pd.DataFrame, bool]:
    """The text to print, the rows of `measure_cell`, and whether a rerun, if there was one, matched where it should.

    `snakemake` makes targets, with further arguments behind them, and returns its exit status; without it only what is
    on disk is read. ConfigError for names that do not exist; CellError if a run that the value needs is missing.
    """
    from specloss.experiment.plan import outline_of, plan_of
    from specloss.experiment.study import Study
    from specloss.reviewer.names import find_table_cell
    from specloss.reviewer.rerun import compare_runs
    from specloss.reviewer.value import cell_text, measure_cell, missing_runs

    if snakemake is None and request.config.suffix == ".json":
        # the cells as they were decoded: made from the config anew, without the models they would be others
        plan, study = outline_of(request.config), Study.read(request.config)
    else:
        plan = plan_of(request.config, check=False)  # a wrong name is told where models and data are out of reach too
        study = Study.from_dict(plan.content)
    try:
        cell = find_table_cell(
            study,
            table=request.table,
            benchmark=request.benchmark,
            method=request.method,
            param=request.param,
            pair=request.pair,
            seed=request.seed,
        )
    except ConfigError as error:
        raise ConfigError(f"{request.config}: {error}") from None
    if snakemake is not None:
        plan_of(request.config)
    runs = list({run.id: run for run in cell.cells + (cell.baseline_cells if request.baseline else [])}.values())
    results, overrides = plan.results, []
    if request.rerun:
        results = plan.results / RERUNS
        overrides = ["--config", f"results={results}", f"reports={plan.experiment.reports}/{RERUNS}"]
    if snakemake is not None:
        if request.rerun:
            for run in runs:
                shutil.rmtree(run.folder(results), ignore_errors=True)
        targets = [str(run.folder(results) / GRADED) for run in runs]
        status = snakemake([*targets, *overrides])
        if status and not missing_runs(cell, results):
            raise CellError(f"Snakemake failed (exit status {status}), see above")
    _no_run_is_missing(cell, results)
    rows = measure_cell(cell, results)
    text = cell_text(cell, rows)
    if not request.rerun:
        return text, rows, True
    compared = compare_runs(runs, results, plan.results)
    return text + compared.text(results), rows, compared.as_it_should_be


def _no_run_is_missing(cell: TableCell, results: Path) -> None:
    from specloss.reviewer.value import missing_runs

    missing = missing_runs(cell, results)
    if missing:
        reasons = "; ".join(f"{run.label}: {why}" for run, why in missing[:3])
        more = f" (and {len(missing) - 3} more)" if len(missing) > 3 else ""
        raise CellError(
            f"{cell.name} has no value, {len(missing)} of {len(cell.cells)} runs are missing: {reasons}{more}"
        )
