"""A group's MLflow: a real server with PostgreSQL as its store. Nothing is lost and nothing is there twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest
from postgres import free_port, kill, mlflow_server, postgres

from specloss.experiment.cells import Cell
from specloss.tracking.store import CELL

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

CELLS = 20


@dataclass
class Server:
    """Where it is, and how it is started again."""

    store: str
    folder: Path
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def up(self):
        return mlflow_server(self.store, self.folder, self.port)

    def runs(self, experiment: str) -> list:
        """All runs that are not deleted, of an experiment."""
        from mlflow import MlflowClient

        client = MlflowClient(self.url)
        found = client.get_experiment_by_name(experiment)
        return list(client.search_runs([found.experiment_id], max_results=1000)) if found else []


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("group")
    folder.chmod(0o755)
    for parent in folder.parents[:2]:
        parent.chmod(0o755)  # PostgreSQL may be another user
    artifacts = folder / "artifacts"
    artifacts.mkdir()
    with postgres(folder / "postgres") as store:
        yield Server(store, artifacts, free_port())


def experiment(root: Path, name: str, cells: int = CELLS) -> Path:
    """An experiment as the workflow leaves it: `cells` seeds of the lossless run; its experiment.json."""
    settings = {
        "pair": {"kind": "draft", "target": "target", "draft": "draft"},
        "benchmark": {"task": "chain", "options": {}, "max_new_tokens": 8},
        "decoding": {"gamma": 8},
        "rule": "standard_sd",
        "options": {},
    }
    all_cells = [Cell(name, "demo", "chain", "standard_sd", None, seed, settings) for seed in range(cells)]
    folder = root / "results" / name
    folder.mkdir(parents=True)
    (root / "reports" / name).mkdir(parents=True)
    (root / "reports" / name / "index.html").write_text("<html></html>")
    keys = {"pair": "demo", "benchmark": "chain", "method": "standard_sd", "param": None, "status": "whole"}
    rows = [keys | {"seed": seed, "accuracy": 50.0 + seed, "be": 5.0, "ds": 100.0} for seed in range(cells)]
    pd.DataFrame(rows).to_parquet(folder / "summary.parquet")
    plan = {"config": {"name": name, "decoding": {"gamma": 8}, "mlflow": {"uri": None}}, "source": "x.yaml"}
    path = folder / "experiment.json"
    path.write_text(json.dumps(plan | {"cells": [cell.to_dict() for cell in all_cells]}))
    return path


def start(path: Path, url: str) -> subprocess.Popen:
    """`specloss track` on an experiment, in a process of its own."""
    results, name = path.parents[1], path.parent.name
    command = [sys.executable, "-m", "specloss.cli", "track", path, results.parent / "reports" / name]
    return subprocess.Popen(
        [*command, "--results", results],
        env=os.environ | {"MLFLOW_TRACKING_URI": url},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )


def ended(process: subprocess.Popen) -> tuple[int, str]:
    _, said = process.communicate(timeout=600)
    return process.returncode, said


def names(runs: list) -> list[str]:
    return sorted(run.data.tags[CELL] for run in runs)


def expected(path: Path) -> list[str]:
    cells = [Cell.from_dict(cell).id for cell in json.loads(path.read_text())["cells"]]
    return sorted([*cells, "pair=demo/method=standard_sd", "aggregate"])


def test_twenty_cells_that_finish_at_once_are_twenty_runs(server: Server, tmp_path: Path):
    """Twenty processes, each with a cell of its own: experiments of one cell, from folders of their own."""
    paths = [experiment(tmp_path / str(number), f"one{number}", cells=1) for number in range(CELLS)]
    with server.up():
        processes = [start(path, server.url) for path in paths]
        assert [ended(process)[0] for process in processes] == [0] * CELLS
        for path in paths:
            runs = server.runs(path.parent.name)
            assert names(runs) == expected(path)
            assert {run.info.status for run in runs} == {"FINISHED"}


def test_twenty_processes_on_one_experiment_write_each_of_its_runs_once(server: Server, tmp_path: Path):
    path = experiment(tmp_path, "crowd")
    with server.up():
        processes = [start(path, server.url) for _ in range(CELLS)]
        assert [ended(process)[0] for process in processes] == [0] * CELLS
        assert names(server.runs("crowd")) == expected(path)


def test_a_server_that_is_down_is_one_line_and_tracking_again_repairs_it(server: Server, tmp_path: Path):
    path = experiment(tmp_path, "down")
    before = {p: p.read_bytes() for p in path.parent.rglob("*") if p.is_file()}
    code, said = ended(start(path, server.url))
    assert code == 1
    assert said.count("\n") == 1 and said.startswith(f"specloss: error: MLflow store {server.url} failed")
    assert all(p.read_bytes() == content for p, content in before.items())
    with server.up():
        assert ended(start(path, server.url))[0] == 0
        assert names(server.runs("down")) == expected(path)


def test_a_server_killed_midway_is_one_line_and_tracking_again_completes_it(server: Server, tmp_path: Path):
    path = experiment(tmp_path, "midway", cells=300)
    with server.up() as process:
        tracking = start(path, server.url)
        while len(server.runs("midway")) < 10 and tracking.poll() is None:
            time.sleep(0.2)
        kill(process)
        code, said = ended(tracking)
    assert code == 1
    errors = [line for line in said.splitlines() if not line.startswith("MLflow: ")]
    assert len(errors) == 1 and errors[0].startswith("specloss: error: MLflow store")
    with server.up():
        assert ended(start(path, server.url))[0] == 0
        runs = server.runs("midway")
        assert names(runs) == expected(path)
        assert {run.info.status for run in runs} == {"FINISHED"}
        cells = {
            run.data.tags["seed"]: run.data.metrics["accuracy"] for run in runs if run.data.tags["level"] == "cell"
        }
        assert cells == {str(n): 50.0 + n for n in range(300)}
