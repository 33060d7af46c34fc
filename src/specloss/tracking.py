"""MLflow: one run per cell below one run per experiment that carries the tables and plots.

One rule writes them, after the summaries and never beside it, so the first use may migrate the store without a race.
Everything is read from files; writing again brings the store up to date and never adds a run twice:

- a run is known by its tag `specloss.cell`: the cell's id, or `aggregate`. It is made with that tag in one call, so a
  run that was cut short is found, and finished, by the next try;
- the tag `specloss.fingerprint`, written last, is the hash of all that a run says. A finished run with the right
  fingerprint is left alone;
- what MLflow cannot change in place (a parameter's value, a metric that is no more) makes a new run; the old one is
  deleted the MLflow way, which `mlflow gc` or the UI can undo.

The store is the config's `mlflow.uri`, else the environment's MLFLOW_TRACKING_URI, else `<results>/mlflow.db`.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specloss import __version__
from specloss.cells import META, Cell, config_hash, format_param
from specloss.files import replacing

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

CELL, FINGERPRINT, PARENT = "specloss.cell", "specloss.fingerprint", "mlflow.parentRunId"
AGGREGATE = "aggregate"
KEYS = ("pair", "benchmark", "method", "param", "seed")
PROGRESS_SECONDS = 3.0

# Nothing leaves this machine but to the given store, and a server that does not answer is told in seconds, not minutes.
_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
}


class TrackingError(RuntimeError):
    """MLflow's store failed; the message is one line fit for a user."""


@dataclass(frozen=True)
class Entry:
    """All that one run says. `cell` is its identity within the MLflow experiment."""

    cell: str
    name: str
    params: dict[str, str]
    metrics: dict[str, float]
    tags: dict[str, str]
    artifacts: Path | None = None

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the content, the artifacts' included."""
        return config_hash([self.name, self.params, self.metrics, self.tags, _folder_hash(self.artifacts)])


def track(experiment_json: Path, results: Path, reports: Path) -> int:
    """Bring MLflow up to date with an experiment's files; returns how many runs had to be written.

    `experiment_json` is the plan that the workflow wrote: `config` and `cells`. Metrics are the numeric columns of
    `<results>/<name>/summary.parquet`; the files below `reports`, the experiment's tables, figures and report, become
    the artifacts of the aggregate run. Cells without results get no run. TrackingError if the store cannot be reached
    or written.
    """
    plan = json.loads(experiment_json.read_text(encoding="utf-8"))
    name = plan["config"]["name"]
    cells = [Cell.from_dict(values) for values in plan["cells"]]
    metrics = _read_metrics(results / name / "summary.parquet")
    measured = [cell for cell in cells if metrics.get(_key(cell))]
    for key, value in _ENVIRONMENT.items():
        os.environ.setdefault(key, value)
    uri = tracking_uri(plan["config"], results)
    with _one_line_errors(uri, results / name):
        store = _Store(uri, name, results)
        aggregate = _aggregate_entry(name, plan["config"], measured, reports)
        parent = store.find_or_create(aggregate)
        for done, cell in enumerate(measured, start=1):
            store.write(_cell_entry(cell, metrics[_key(cell)], results, parent))
            store.progress(done, len(measured))
        store.write(aggregate)
    say = f"MLflow: {store.written} of {len(measured) + 1} runs written to {_public(uri)}, the others were up to date"
    if len(measured) < len(cells):
        say += f"; {len(cells) - len(measured)} cells have no results yet"
    print(say, file=sys.stderr)
    return store.written


def tracking_uri(config: dict[str, Any], results: Path) -> str:
    """The store: the config's `mlflow.uri`, else MLFLOW_TRACKING_URI, else the SQLite file under the results folder."""
    configured = (config.get("mlflow") or {}).get("uri")
    return configured or os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{(results / 'mlflow.db').resolve()}"


def _cell_entry(cell: Cell, metrics: dict[str, float], results: Path, parent: str) -> Entry:
    pair, benchmark = cell.settings["pair"], cell.settings["benchmark"]
    param = format_param(cell.param)
    method = cell.method if cell.param is None else f"{cell.method}({param})"
    named = {"pair": cell.pair, "benchmark": cell.benchmark, "method": cell.method, "param": param, "seed": cell.seed}
    params = {
        **named,
        "rule": cell.settings["rule"],
        **cell.settings["decoding"],
        "max_new_tokens": benchmark["max_new_tokens"],
        "task": benchmark["task"],
        **{key: value for key, value in pair.items() if value is not None},
        **{f"options.{key}": value for key, value in cell.settings["options"].items()},
    }
    tags = {**named, "config_hash": cell.key, **_made(cell, results), PARENT: parent}
    return Entry(cell.id, f"{method} · {cell.benchmark} · seed {cell.seed}", _texts(params), metrics, _texts(tags))


def _aggregate_entry(name: str, config: dict[str, Any], cells: list[Cell], reports: Path) -> Entry:
    params = {
        **config.get("decoding", {}),
        "seeds": ",".join(map(str, config.get("seeds", []))),
        **{f"{key}s": ",".join(dict.fromkeys(getattr(cell, key) for cell in cells)) for key in KEYS[:3]},
    }
    tags = {"config_hash": config_hash(config), "code_version": __version__}
    artifacts = reports if reports.is_dir() else None
    return Entry(AGGREGATE, f"{name} · tables and plots", _texts(params), {"cells": float(len(cells))}, tags, artifacts)


def _texts(values: dict[str, Any]) -> dict[str, str]:
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}


def _made(cell: Cell, results: Path) -> dict[str, str]:
    """Tags on how the cell was decoded: by the code of that day, which may be older than this."""
    path = cell.folder(results) / META
    run = json.loads(path.read_text(encoding="utf-8")).get("run", {}) if path.exists() else {}
    code = run.get("code") or {"version": __version__}
    made = {"code_version": " ".join(filter(None, (code.get("version"), code.get("commit"))))}
    return made | {key: str(run[key]) for key in ("device", "dtype") if key in run}


def _key(cell: Cell) -> tuple[str, ...]:
    return (cell.pair, cell.benchmark, cell.method, format_param(cell.param), str(cell.seed))


def _read_metrics(summary: Path) -> dict[tuple[str, ...], dict[str, float]]:
    """Finite values of the numeric columns, by cell. A column's name needs no change to be a metric's name."""
    import pyarrow.parquet as pq
    import pyarrow.types as types

    table = pq.read_table(summary, partitioning=None)
    numeric = [
        field.name
        for field in table.schema
        if field.name not in KEYS
        and (types.is_integer(field.type) or types.is_floating(field.type) or types.is_boolean(field.type))
    ]
    metrics = {}
    for row in table.to_pylist():
        param = row["param"]
        # a table that went through pandas says NaN for "none"
        none = param is None or (isinstance(param, float) and math.isnan(param))
        text = param if isinstance(param, str) else format_param(None if none else float(param))
        key = (row["pair"], row["benchmark"], row["method"], text, str(row["seed"]))
        metrics[key] = {
            column: float(row[column]) for column in numeric if row[column] is not None and math.isfinite(row[column])
        }
    return metrics


def _folder_hash(folder: Path | None) -> str:
    digest = hashlib.sha256()
    for path in _files(folder) if folder else ():
        digest.update(f"{path.relative_to(folder)}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(".part"))


class _Store:
    """One MLflow experiment, and which run is which cell's."""

    def __init__(self, uri: str, name: str, results: Path) -> None:
        from mlflow import MlflowClient

        for noisy in ("alembic", "mlflow.store.db.utils", "urllib3.connectionpool"):
            logging.getLogger(noisy).setLevel(logging.ERROR)
        _create_sqlite(uri)
        self.client: MlflowClient = MlflowClient(uri)
        self.written = 0
        self._said = time.monotonic()
        self._experiment = self._open_experiment(uri, name, results)
        self._runs: dict[str, Run] = {}
        for run in self._all_runs():
            cell = run.data.tags.get(CELL)
            if cell in self._runs:  # two processes at once, against the rules: one of the two is enough
                self.client.delete_run(run.info.run_id)
            elif cell is not None:
                self._runs[cell] = run

    def find_or_create(self, entry: Entry) -> str:
        """The id of the entry's run, which is made, empty and running, if there is none that can take the entry."""
        run = self._runs.get(entry.cell)
        if run is not None and not _can_become(run, entry):
            self.client.delete_run(run.info.run_id)
            run = None
        if run is None:
            tags = {CELL: entry.cell, **entry.tags}
            run = self.client.create_run(self._experiment, run_name=entry.name, tags=tags)
            self._runs[entry.cell] = run
        return run.info.run_id

    def write(self, entry: Entry) -> None:
        """Make the entry's run say what the entry says."""
        from mlflow.entities import Metric, Param, RunTag

        run_id = self.find_or_create(entry)
        run = self._runs[entry.cell]
        finished = run.info.status == "FINISHED"
        if finished and run.data.tags.get(FINGERPRINT) == entry.fingerprint:
            return
        if finished:
            self.client.update_run(run_id, status="RUNNING", name=entry.name)
        if entry.artifacts is not None:
            self._log_artifacts(run_id, entry.artifacts)
        now = int(time.time() * 1000)
        # one call; MLflow writes tags after parameters and metrics, so the fingerprint vouches for them
        self.client.log_batch(
            run_id,
            metrics=[Metric(key, value, now, 0) for key, value in entry.metrics.items()],
            params=[Param(key, value) for key, value in entry.params.items() if key not in run.data.params],
            tags=[
                *(RunTag(key, value) for key, value in entry.tags.items() if run.data.tags.get(key) != value),
                RunTag(FINGERPRINT, entry.fingerprint),
            ],
        )
        self.client.set_terminated(run_id)
        self.written += 1

    def progress(self, done: int, total: int) -> None:
        """Tell how far it is, every few seconds."""
        if time.monotonic() - self._said >= PROGRESS_SECONDS:
            self._said = time.monotonic()
            print(f"MLflow: {done} of {total} cells", file=sys.stderr, flush=True)

    def _log_artifacts(self, run_id: str, folder: Path) -> None:
        for path in _files(folder):
            parent = path.parent.relative_to(folder).as_posix()
            self.client.log_artifact(run_id, str(path), None if parent == "." else parent)

    def _open_experiment(self, uri: str, name: str, results: Path) -> str:
        experiment = self.client.get_experiment_by_name(name)
        if experiment is None:
            # a server knows where its artifacts go; with a bare database, files go beside the results
            bare = not uri.startswith(("http://", "https://", "databricks"))
            return self.client.create_experiment(
                name, artifact_location=(results / "mlflow-artifacts").resolve().as_uri() if bare else None
            )
        if experiment.lifecycle_stage == "deleted":
            self.client.restore_experiment(experiment.experiment_id)
        return experiment.experiment_id

    def _all_runs(self) -> Iterable[Run]:
        token = None
        while True:
            page = self.client.search_runs([self._experiment], max_results=1000, page_token=token)
            yield from page
            token = page.token
            if not token:
                return


def _can_become(run: Run, entry: Entry) -> bool:
    """Whether adding to the run makes it say what the entry says: no parameter changes, nothing has to go."""
    params, metrics = run.data.params, run.data.metrics
    return (
        all(entry.params.get(key) == value for key, value in params.items()) and metrics.keys() <= entry.metrics.keys()
    )


def _create_sqlite(uri: str) -> None:
    """Make a new SQLite store under another name first: a migration that is cut short cannot be taken up again."""
    from mlflow import MlflowClient

    path = Path(uri.removeprefix("sqlite:///"))
    if not uri.startswith("sqlite:///") or path.exists():
        return
    with replacing(path) as part:
        MlflowClient(f"sqlite:///{part.resolve()}").search_experiments(max_results=1)


@contextmanager
def _one_line_errors(uri: str, results: Path) -> Iterator[None]:
    """Turn whatever the store raises into one line that says what is safe and what to do."""
    from mlflow.exceptions import MlflowException
    from requests import RequestException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, RequestException, SQLAlchemyError, OSError) as error:
        reason = " ".join(str(error).replace(uri, _public(uri)).split())
        raise TrackingError(
            f"MLflow store {_public(uri)} failed: {reason if len(reason) < 200 else reason[:197] + '...'} "
            f"(the results in {results} are whole; run again once the store works, "
            "or clear mlflow.uri and MLFLOW_TRACKING_URI to use a local file)"
        ) from error


def _public(uri: str) -> str:
    """The address without a user's name and password."""
    scheme, separator, rest = uri.partition("://")
    return scheme + separator + rest.rpartition("@")[2]
