"""`make ui` serves what `specloss.tracking` wrote."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import stat
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
from tracked_study import Study

from specloss.tracking.entries import AGGREGATE, PARENT, Entry
from specloss.tracking.store import CELL, Store

pytestmark = pytest.mark.timeout(180)

ROOT = Path(__file__).parents[2]


def _project(folder: Path) -> None:
    """`make ui` in another folder than the repository, with this test's interpreter in the place of .venv."""
    for name in ("Makefile", "pyproject.toml", "envs"):
        (folder / name).symlink_to(ROOT / name)
    (folder / ".venv").mkdir()
    (folder / ".venv" / "bin").symlink_to(Path(sys.executable).parent)
    (folder / ".venv" / ".installed").touch()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ui")


@pytest.fixture(scope="module")
def served(root: Path) -> Iterator[str]:
    """Address of `make ui` over a store with three runs; the server, all of it, is ended afterwards."""
    _project(root)
    results = root / "results"
    results.mkdir()
    reports = root / "reports"
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
    log = root / "ui.log"
    with log.open("w") as output:
        server = subprocess.Popen(
            ["make", "ui", f"PORT={port}"],
            cwd=root,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "MAKEFLAGS": ""},
            start_new_session=True,
        )
    family: list[psutil.Process] = []
    environment = pytest.MonkeyPatch()
    try:
        address = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + 90
        while not _answers(f"{address}/health"):
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.3)
        environment.setenv("MLFLOW_TRACKING_USERNAME", "admin")
        environment.setenv("MLFLOW_TRACKING_PASSWORD", (results / ".mlflow-ui" / "password").read_text().strip())
        family = [psutil.Process(server.pid), *psutil.Process(server.pid).children(recursive=True)]
        yield address
        # as Ctrl-C in a terminal does
        os.killpg(server.pid, signal.SIGINT)
        _, left = psutil.wait_procs(family, timeout=20)
        assert not left
        assert not _answers(f"{address}/health")
    finally:
        environment.undo()
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


def _request(url: str, body: dict | None = None, method: str | None = None) -> urllib.request.Request:
    data = None if body is None else json.dumps(body).encode()
    return urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)


def _known(request: urllib.request.Request) -> urllib.request.Request:
    """The same of one who has the password."""
    login = f"admin:{os.environ['MLFLOW_TRACKING_PASSWORD']}"
    request.add_header("Authorization", f"Basic {base64.b64encode(login.encode()).decode()}")
    return request


def _ask(address: str, path: str, body: dict | None = None) -> dict:
    with urllib.request.urlopen(_known(_request(f"{address}/api/2.0/mlflow/{path}", body)), timeout=30) as reply:
        return json.load(reply)


def _refusal(request: urllib.request.Request) -> int | None:
    """The status of an answer that is an error."""
    try:
        urllib.request.urlopen(request, timeout=30).close()
    except urllib.error.HTTPError as error:
        return error.code
    return None


def test_make_ui_serves_the_runs_on_loopback_alone_and_ends_on_ctrl_c(served: str):
    experiment = _ask(served, "experiments/get-by-name?experiment_name=tiny")["experiment"]
    runs = _ask(served, "runs/search", {"experiment_ids": [experiment["experiment_id"]]})["runs"]
    tags = {run["info"]["run_name"]: {tag["key"]: tag["value"] for tag in run["data"]["tags"]} for run in runs}
    assert tags.keys() == {"tiny", "lenience(0.4)", "standard_sd"}
    assert tags["lenience(0.4)"][CELL] == "pair=demo/lenience(0.4)"

    aggregate = next(run for run in runs if run["info"]["run_name"] == "tiny")
    files = _ask(served, f"artifacts/list?run_id={aggregate['info']['run_id']}")["files"]
    assert [file["path"] for file in files] == ["index.html"]

    with urllib.request.urlopen(_known(_request(served)), timeout=30) as page:
        assert b"<title>MLflow</title>" in page.read()

    port = int(served.rpartition(":")[2])
    listening = {c.laddr.ip for c in psutil.net_connections("tcp") if c.status == "LISTEN" and c.laddr.port == port}
    assert listening == {"127.0.0.1"}


def test_who_has_no_password_reads_and_writes_no_files_through_the_server(served: str, root: Path):
    run = _ask(served, "runs/search", {"experiment_ids": ["1"]})["runs"][0]["info"]["run_id"]
    # what a user of the machine did before there was a password: artifacts anywhere, and a link to more
    secret = root / "secret"
    secret.mkdir()
    (secret / "key").write_text("private")
    place = {"name": "mine", "artifact_location": secret.as_uri()}
    experiment = _ask(served, "experiments/create", place)[
        "experiment_id"
    ]  # the user's own server does it for the user
    mine = _ask(served, "runs/create", {"experiment_id": experiment})["run"]["info"]["run_id"]
    folder = secret / mine / "artifacts"
    folder.mkdir(parents=True)
    (folder / "key").write_text("private")
    (folder / "link").symlink_to(secret)
    with urllib.request.urlopen(
        _known(_request(f"{served}/get-artifact?path=key&run_uuid={mine}")), timeout=30
    ) as reply:
        assert reply.read() == b"private"
    attacks = [
        _request(f"{served}/api/2.0/mlflow/experiments/create", place | {"name": "theirs"}),
        _request(f"{served}/ajax-api/2.0/mlflow/experiments/create", place | {"name": "theirs"}),
        _request(f"{served}/api/2.0/mlflow/experiments/search", {"max_results": 10}),
        _request(f"{served}/api/2.0/mlflow/artifacts/list?run_id={run}"),
        _request(f"{served}/get-artifact?path=index.html&run_uuid={run}"),
        _request(f"{served}/get-artifact?path=key&run_uuid={mine}"),
        _request(f"{served}/get-artifact?path=link/key&run_uuid={mine}"),
        _request(f"{served}/api/2.0/mlflow/artifacts/list?run_id={mine}&path=link"),
        _request(f"{served}/ajax-api/2.0/mlflow/upload-artifact?run_uuid={run}&path=x", {"a": 1}),
        _request(f"{served}/api/2.0/mlflow-artifacts/artifacts/x", {"a": 1}, "PUT"),
        _request(f"{served}/api/2.0/mlflow-artifacts/artifacts/x"),
        _request(f"{served}/api/2.0/mlflow/users/create", {"username": "theirs", "password": "a long password"}),
        _request(f"{served}/graphql", {"query": "{ __typename }"}),
        _request(f"{served}/v1/traces", {}),
        _request(f"{served}/"),
    ]
    assert [_refusal(request) for request in attacks] == [401] * len(attacks)
    assert not list((root / "results" / "mlflow-artifacts").rglob("x"))

    wrong = _request(f"{served}/api/2.0/mlflow/experiments/search", {"max_results": 10})
    wrong.add_header("Authorization", f"Basic {base64.b64encode(b'admin:password1234').decode()}")
    assert _refusal(wrong) == 401

    private = root / "results" / ".mlflow-ui"
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    assert stat.S_IMODE((private / "password").stat().st_mode) == 0o600
    assert os.environ["MLFLOW_TRACKING_PASSWORD"] in (root / "ui.log").read_text()  # told, the first time


def test_a_password_in_the_address_of_the_environment_gets_the_runs_there_and_stands_nowhere(
    served: str, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    password = os.environ["MLFLOW_TRACKING_PASSWORD"]
    monkeypatch.delenv("MLFLOW_TRACKING_USERNAME")
    monkeypatch.delenv("MLFLOW_TRACKING_PASSWORD")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", served.replace("//", f"//admin:{password}@"))
    study = Study(tmp_path)
    assert study.track() > 0
    assert study.track() == 0
    said = "".join(capfd.readouterr())
    assert served in said and password not in said
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", password)
    runs = _ask(served, "runs/search", {"experiment_ids": ["1", "2", "3", "4"], "max_results": 100})
    assert password not in json.dumps(runs)
    places = [tmp_path, root / "results" / "mlflow-artifacts", root / "results" / "mlflow.db"]
    files = [path for place in places for path in [place, *place.rglob("*")] if path.is_file()]
    assert any(path.name == "table4.csv" for path in files)
    assert not [path for path in files if password.encode() in path.read_bytes()]


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
    _project(tmp_path)
    done = subprocess.run(
        ["make", "ui"], cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "MAKEFLAGS": ""}
    )
    assert done.returncode != 0
    assert "make demo" in done.stderr
