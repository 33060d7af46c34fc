"""`make ui` serves what `specloss.tracking` wrote."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import mlflow_pages
import psutil
import pytest
from browser import WIDTHS

from specloss.tracking.entries import AGGREGATE, PARENT, Entry
from specloss.tracking.store import CELL, Store

pytestmark = pytest.mark.timeout(180)

ROOT = Path(__file__).parents[2]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    """Address of `make ui` over a store with three runs; the server, all of it, is ended afterwards."""
    # `make ui` in another folder than the repository, with this test's interpreter in the place of .venv
    (tmp_path / "envs").mkdir()
    for name in ("Makefile", "pyproject.toml", "envs/requirements.lock"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "bin").symlink_to(Path(sys.executable).parent)
    (tmp_path / ".venv" / ".installed").touch()
    results = tmp_path / "results"
    results.mkdir()
    reports = tmp_path / "reports"
    reports.mkdir()
    (reports / "index.html").write_text("<html>the report</html>")
    store = Store(f"sqlite:///{results / 'mlflow.db'}", "tiny", results)
    experiment = Entry(AGGREGATE, "tiny", {}, {"cells": 1.0}, {}, reports)
    store.write(experiment)
    tags = {"table": "table 4, table 2", PARENT: store.find_or_create(experiment)}
    for name, be in (("lenience(0.4)", 7.0), ("standard_sd", 5.0)):
        store.write(Entry(f"pair=demo/{name}", name, {"gamma": "8"}, {"be": be}, tags))

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path / "ui.log"
    with log.open("w") as output:
        server = subprocess.Popen(
            ["make", "ui", f"PORT={port}"],
            cwd=tmp_path,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "MAKEFLAGS": ""},
            start_new_session=True,
        )
    family: list[psutil.Process] = []
    try:
        address = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + 90
        while not _answers(f"{address}/health"):
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.3)
        family = [psutil.Process(server.pid), *psutil.Process(server.pid).children(recursive=True)]
        yield address
        # as Ctrl-C in a terminal does
        os.killpg(server.pid, signal.SIGINT)
        _, left = psutil.wait_procs(family, timeout=20)
        assert not left
        assert not _answers(f"{address}/health")
    finally:
        for process in family:
            if process.is_running():
                process.kill()
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGKILL)
        server.wait(20)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:
            return reply.status == 200
    except (urllib.error.URLError, OSError):
        return False


def _ask(address: str, path: str, body: dict | None = None) -> dict:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{address}/api/2.0/mlflow/{path}", data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as reply:
        return json.load(reply)


def test_make_ui_serves_the_runs_on_loopback_alone_and_ends_on_ctrl_c(served: str):
    experiment = _ask(served, "experiments/get-by-name?experiment_name=tiny")["experiment"]
    runs = _ask(served, "runs/search", {"experiment_ids": [experiment["experiment_id"]]})["runs"]
    tags = {run["info"]["run_name"]: {tag["key"]: tag["value"] for tag in run["data"]["tags"]} for run in runs}
    assert tags.keys() == {"tiny", "lenience(0.4)", "standard_sd"}
    assert tags["lenience(0.4)"][CELL] == "pair=demo/lenience(0.4)"

    aggregate = next(run for run in runs if run["info"]["run_name"] == "tiny")
    files = _ask(served, f"artifacts/list?run_id={aggregate['info']['run_id']}")["files"]
    assert [file["path"] for file in files] == ["index.html"]

    with urllib.request.urlopen(served, timeout=30) as page:
        assert b"<title>MLflow</title>" in page.read()

    port = int(served.rpartition(":")[2])
    listening = {c.laddr.ip for c in psutil.net_connections("tcp") if c.status == "LISTEN" and c.laddr.port == port}
    assert listening == {"127.0.0.1"}


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_the_pages_of_an_experiment_open_without_a_complaint_and_ask_nobody_else(served: str, width: int):
    pages = (
        mlflow_pages.runs_page(served, "tiny", mlflow_pages.METHODS, width),
        mlflow_pages.artifacts_page(served, "tiny", width),
        mlflow_pages.compare_page(served, "tiny", ("standard_sd", "lenience(0.4)"), width),
    )
    for page, shown in zip(pages, ("lenience(0.4)", "index.html", "lenience(0.4)"), strict=True):
        with page as watched:
            watched.page.get_by_text(shown).first.wait_for(state="attached")
            watched.page.wait_for_timeout(3000)  # what it asks for late
            assert mlflow_pages.complaints(watched) == []
            assert [url for url in watched.requests if not url.startswith((served, "data:", "blob:"))] == []


def test_make_ui_without_runs_says_what_to_do(tmp_path: Path):
    (tmp_path / "envs").mkdir()
    (tmp_path / ".venv").mkdir()
    for name in ("Makefile", "pyproject.toml", "envs/requirements.lock"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / ".venv" / ".installed").touch()
    done = subprocess.run(
        ["make", "ui"], cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "MAKEFLAGS": ""}
    )
    assert done.returncode != 0
    assert "make demo" in done.stderr
