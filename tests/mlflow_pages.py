"""MLflow's own pages of an experiment, opened in a real browser; as a program it takes the pictures of docs/mlflow.md:

python tests/mlflow_pages.py http://127.0.0.1:5000 demo docs

Name and password are those of MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, as for every client of MLflow.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import quote

from browser import Watched, opened
from mlflow import MlflowClient
from playwright.sync_api import Page

METHODS = "tags.table LIKE '%table 2%'"  # a run for each method; 'table 3' for EAGLE-3
COMPARED = (
    "standard_sd",
    "min_p_sampling (0.1)",
    "spec_cascade (0.1)",
    "eta_sampling (0.05)",
    "typical_acceptance (0.05)",
)
# MLflow's own: it asks who the user is though nobody logs in, its table is told old options and grows while it is
# measured; and Chromium has no GPU
NOISE = (
    "Failed to load resource: the server responded with a status of 404",
    "AG Grid: ",
    "null ResizeObserver loop completed",
    "[.WebGL-",
)
ASKED = "/ajax-api/2.0/mlflow/users/current"


@contextmanager
def runs_page(address: str, experiment: str, search: str, width: int, height: int = 1000) -> Iterator[Watched]:
    """The experiment's runs that match a search, as charts beside the unfolded list."""
    number = MlflowClient(address).get_experiment_by_name(experiment).experiment_id
    url = f"{address}/#/experiments/{number}/runs?compareRunsMode=CHART&searchFilter={quote(search)}"
    with opened(url, width, height, _login()) as watched:
        fold = watched.page.locator(".ag-row button").first
        fold.wait_for()
        _close_assistant(watched.page)
        if fold.is_visible():
            fold.click(force=True)
        yield watched


@contextmanager
def compare_page(
    address: str, experiment: str, names: Sequence[str], width: int, height: int = 1000
) -> Iterator[Watched]:
    """The page that compares runs, by their names."""
    client = MlflowClient(address)
    number = client.get_experiment_by_name(experiment).experiment_id
    runs = {run.info.run_name: run.info.run_id for run in client.search_runs([number], max_results=5000)}
    chosen, numbers = (quote(json.dumps(x)) for x in ([runs[name] for name in names], [number]))
    with opened(f"{address}/#/compare-runs?runs={chosen}&experiments={numbers}", width, height, _login()) as watched:
        watched.page.get_by_text("Metrics", exact=True).last.wait_for()
        _close_assistant(watched.page)
        yield watched


@contextmanager
def artifacts_page(address: str, experiment: str, width: int) -> Iterator[Watched]:
    """The artifacts of the experiment's own run: its report."""
    client = MlflowClient(address)
    number = client.get_experiment_by_name(experiment).experiment_id
    run = client.search_runs([number], "tags.`specloss.cell` = 'aggregate'")[0].info.run_id
    with opened(f"{address}/#/experiments/{number}/runs/{run}/artifacts", width, login=_login()) as watched:
        watched.page.get_by_text("index.html").first.wait_for()
        yield watched


def complaints(watched: Watched) -> list[str]:
    """What is not MLflow's known noise."""
    return [said for said in watched.errors if not said.startswith(NOISE)] + [
        url for url in watched.refused if ASKED not in url
    ]


def _login() -> tuple[str, str]:
    return os.environ["MLFLOW_TRACKING_USERNAME"], os.environ["MLFLOW_TRACKING_PASSWORD"]


def _close_assistant(page: Page) -> None:
    for button in page.locator('button[aria-label="Close"]').all():
        button.evaluate("button => button.click()")  # on a phone it lies under something else


def main() -> None:
    """Write `mlflow_methods.png` and `mlflow_compare.png`."""
    address, experiment, folder = sys.argv[1:]
    with runs_page(address, experiment, METHODS, 1400) as watched:
        watched.page.wait_for_timeout(4000)  # bars grow
        watched.page.screenshot(path=f"{folder}/mlflow_methods.png")
    with compare_page(address, experiment, COMPARED, 1400) as watched:
        watched.page.get_by_text("Metrics", exact=True).last.scroll_into_view_if_needed()
        watched.page.wait_for_timeout(1000)
        watched.page.screenshot(path=f"{folder}/mlflow_compare.png")


if __name__ == "__main__":
    main()
