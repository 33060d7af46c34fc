"""MLflow: nested runs for the experiment, its methods, settings and cells.

The experiment's run carries its report, tables and figures.

One rule writes them, after the summaries and never beside it, so the first use may migrate the store without a race;
processes that write from the same results folder wait for one another. Everything is read
from files; writing again brings the store up to date and never adds a run twice:

- a run is known by its tag `specloss.cell`: the cell's id, or that of a setting or a method, or `aggregate`. It is made
  with that tag in one call, so a run that was cut short is found, and finished, by the next try;
- the tag `specloss.fingerprint`, written last, is the hash of everything in a run. A finished run with the right
  fingerprint is left alone;
- what MLflow cannot change in place (a parameter's value, a metric that is no more) makes a new run; the old one is
  deleted the MLflow way, which `mlflow gc` or the UI can undo.

The store is the config's `mlflow.uri`, else the environment's MLFLOW_TRACKING_URI, else `<results>/mlflow.db`. A
config with a password is refused; one in the environment is for MLflow's client alone: nothing that we write or print
has it.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from specloss.common.address import has_secret, login, public, without_secrets
from specloss.common.files import FileError, read_json
from specloss.common.oneline import OneLine, plain
from specloss.experiment.cells import Cell
from specloss.tracking.entries import PARENT, aggregate_entry, cell_entry, group_entries, key, read_metrics
from specloss.tracking.environment import ENVIRONMENT
from specloss.tracking.store import Store

LOCK = "tracking.lock"


class TrackingError(OneLine, RuntimeError):
    """MLflow's store failed; the message is one line meant for users."""


def track(experiment_json: Path, results: Path, reports: Path) -> int:
    """Bring MLflow up to date with an experiment's files; returns how many runs had to be written.

    `experiment_json` is the plan that the workflow wrote: `config` and `cells`. Metrics are the numeric columns of
    `<results>/<name>/summary.parquet`; the files below `reports`, the experiment's tables, figures and report, become
    the artifacts of the aggregate run. Cells without results get no run. TrackingError if the store cannot be reached
    or written.
    """
    plan = read_json(experiment_json)
    try:
        name = plan["config"]["name"] + ""
        cells = [Cell.from_dict(values) for values in plan["cells"]]
    except (KeyError, TypeError) as error:
        raise FileError(f"{experiment_json}: not an experiment.json ({type(error).__name__} {error})") from None
    metrics = read_metrics(results / name / "summary.parquet")
    measured = [cell for cell in cells if metrics.get(key(cell))]
    for variable, value in ENVIRONMENT.items():
        os.environ.setdefault(variable, value)
    uri = tracking_uri(plan["config"], results)
    with _one_at_a_time(results / LOCK), _one_line_errors(uri, results / name):
        store = Store(_logged_in(uri), name, results)
        aggregate = aggregate_entry(name, plan["config"], measured, reports)
        ids = {aggregate.cell: store.find_or_create(aggregate)}
        done, groups = 0, group_entries(plan, metrics)
        for group, parent, group_cells in groups:
            entry = replace(group, tags={**group.tags, PARENT: ids[parent]})
            ids[entry.cell] = store.find_or_create(entry)
            for cell in group_cells:
                store.write(cell_entry(cell, metrics[key(cell)], results, ids[entry.cell]))
                done += 1
                store.progress(done, len(measured))
            store.write(entry)
        store.write(aggregate)
    total = len(measured) + len(groups) + 1
    say = f"MLflow: {store.written} of {total} runs written to {public(uri)}, the others were up to date"
    if len(measured) < len(cells):
        say += f"; {len(cells) - len(measured)} cells have no results yet"
    print(plain(say), file=sys.stderr)
    return store.written


def tracking_uri(config: dict[str, Any], results: Path) -> str:
    """The store: the config's `mlflow.uri`, else MLFLOW_TRACKING_URI, else the SQLite file under the results folder.

    TrackingError if the config's has a secret: the plan that carries the config is no place for one.
    """
    configured = (config.get("mlflow") or {}).get("uri")
    if configured and has_secret(configured):  # of a plan that an older version wrote
        raise TrackingError("mlflow.uri has a password or token, which belongs into the environment (docs/mlflow.md)")
    return configured or os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{(results / 'mlflow.db').resolve()}"


def _logged_in(uri: str) -> str:
    """The address of a server without user and password, which MLflow, who prints addresses, has by the environment."""
    found = login(uri) if uri.startswith("http") else None
    if found is None:
        return uri
    os.environ["MLFLOW_TRACKING_USERNAME"], os.environ["MLFLOW_TRACKING_PASSWORD"] = found
    os.environ["MLFLOW_TRACKING_URI"] = public(uri)
    return public(uri)


@contextmanager
def _one_at_a_time(lock: Path) -> Iterator[None]:
    """Wait until no other process writes from this results folder."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _one_line_errors(uri: str, results: Path) -> Iterator[None]:
    """Turn whatever the store raises into one line that says what is safe and what to do."""
    from mlflow.exceptions import MlflowException
    from requests import RequestException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except OneLine:
        raise
    # ImportError and ValueError: of an address whose driver is not here, or that is none
    except (MlflowException, RequestException, SQLAlchemyError, OSError, ImportError, ValueError) as error:
        plainly = " ".join(str(error).split())
        reason = without_secrets(plainly, uri)
        hidden = None if reason != plainly or has_secret(uri) else error  # a traceback would show it
        if len(reason) > 240:
            reason = f"{reason[:90]} ... {reason[-145:]}"  # the cause of a chain of errors stands at its end
        raise TrackingError(
            f"MLflow store {public(uri)} failed: {reason} "
            f"(the results in {results} are complete; run again once the store works, "
            "or clear mlflow.uri and MLFLOW_TRACKING_URI to use a local file)"
        ) from hidden
