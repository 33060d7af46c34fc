"""From the cells' files to tables, figures, findings and the report.

    results/<exp>/cells/…  --summarise-->  summary.parquet, problems.parquet  -->  tables, figures, findings, report

Everything after `summarise` reads the two small files alone. This module imports nothing heavy: the workflow needs
the names of the outputs while it parses. The analysis knows nothing of models, decoding or Snakemake.

Units everywhere: accuracy and parse failures in percent of answers, times in seconds, BE in tokens, DS in tokens / s,
shares and probability masses from 0 to 1.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from specloss.experiment.study import Study


def summarise(experiment_json: Path, results: Path) -> pd.DataFrame:
    """Write `summary.parquet` and `problems.parquet` of an experiment; see `specloss.analysis.evidence.summary`."""
    from specloss.analysis.evidence.evidence import summary

    return summary.summarise(experiment_json, results)


def write_table(name: str, experiment_json: Path, results: Path, out: Path) -> list[Path]:
    """Write one of `tables_for` the experiment as `out/<name>.{csv,md,tex}`; see `analysis.tables`."""
    from specloss.analysis.tables.catalogue import catalogue as tables

    return tables.write_table(name, experiment_json, results, out)


def write_figure(name: str, experiment_json: Path, results: Path, out: Path) -> list[Path]:
    """Write one of `FIGURES` as `out/<name>.{svg,pdf,png,csv}`; see `specloss.analysis.figures.catalogue`."""
    from specloss.analysis.figures.catalogue import catalogue as figures

    return figures.write_figure(name, experiment_json, results, out)


def write_report(experiment_json: Path, results: Path, out: Path) -> Path:
    """Write the self-contained `out/index.html`; see `specloss.analysis.report.page`."""
    from specloss.analysis.report.page import page as report

    return report.write_report(experiment_json, results, out)
