"""One MLflow experiment: its runs are found again, brought up to date and never made twice."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from specloss.common.files import replacing
from specloss.tracking.entries import Entry, files_of

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

CELL, FINGERPRINT = "specloss.cell", "specloss.fingerprint"
PROGRESS_SECONDS = 3.0


class Store:
    """One MLflow experiment, and the run of each cell."""

    def __init__(self, uri: str, name: str, results: Path) -> None:
        from mlflow import MlflowClient

        for noisy in ("alembic", "mlflow.store.db.utils", "urllib3.connectionpool"):
            logging.getLogger(noisy).setLevel(logging.ERROR)
        create_sqlite(uri)
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
        if run is not None and not can_become(run, entry):
            self.client.delete_run(run.info.run_id)
            run = None
        if run is None:
            tags = {CELL: entry.cell, **entry.tags}
            run = self.client.create_run(self._experiment, run_name=entry.name, tags=tags)
            self._runs[entry.cell] = run
        return run.info.run_id

    def write(self, entry: Entry) -> None:
        """Write the entry's content to its run."""
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
        for path in files_of(folder):
            parent = path.parent.relative_to(folder).as_posix()
            self.client.log_artifact(run_id, str(path), None if parent == "." else parent)

    def _open_experiment(self, uri: str, name: str, results: Path) -> str:
        from mlflow.exceptions import MlflowException

        experiment = self.client.get_experiment_by_name(name)
        if experiment is None:
            # a server knows where its artifacts go; with a bare database, files go beside the results
            bare = not uri.startswith(("http://", "https://", "databricks"))
            place = (results / "mlflow-artifacts").resolve().as_uri() if bare else None
            try:
                return self.client.create_experiment(name, artifact_location=place)
            except MlflowException as error:
                if error.error_code != "RESOURCE_ALREADY_EXISTS":
                    raise
                experiment = self.client.get_experiment_by_name(name)  # somebody was faster
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


def can_become(run: Run, entry: Entry) -> bool:
    """Whether adding to the run makes it say what the entry says: no parameter changes, nothing has to go."""
    params, metrics = run.data.params, run.data.metrics
    return (
        all(entry.params.get(key) == value for key, value in params.items()) and metrics.keys() <= entry.metrics.keys()
    )


def create_sqlite(uri: str) -> None:
    """Make a new SQLite store under another name first: a migration that is cut short cannot be taken up again."""
    from mlflow import MlflowClient

    path = Path(uri.removeprefix("sqlite:///"))
    if not uri.startswith("sqlite:///") or path.exists():
        return
    with replacing(path) as part:
        MlflowClient(f"sqlite:///{part.resolve()}").search_experiments(max_results=1)
