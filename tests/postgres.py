"""Real services for tests: a PostgreSQL server of this test's own, and an MLflow server on it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

PASSWORD = "made-for-this-test"
_FOLDERS = [*os.environ.get("PATH", "").split(os.pathsep), *map(str, Path("/usr/lib/postgresql").glob("*/bin"))]


def free_port() -> int:
    """A port of loopback that nothing listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def _program(name: str) -> str:
    found = shutil.which(name, path=os.pathsep.join(_FOLDERS))
    if not found:
        pytest.skip(f"needs PostgreSQL's {name} (Debian: apt-get install postgresql)")
    return found


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """SQLAlchemy's address of a new database on loopback with a password; the server is ended afterwards.

    PostgreSQL refuses to run as root: there it runs as `nobody`.
    """
    pytest.importorskip("psycopg2", reason="needs psycopg2: pip install -r envs/requirements.lock")
    initdb, server = _program("initdb"), _program("postgres")
    user = {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.getuid() == 0 else {}
    folder.mkdir(mode=0o700)
    secret = folder / "password"
    secret.write_text(PASSWORD)
    if user:
        for path in (folder, secret):
            shutil.chown(path, user["user"], user["group"])
    data, port = folder / "data", free_port()
    made = [initdb, "-D", data, "-U", "mlflow", "--auth=scram-sha-256", f"--pwfile={secret}", "--no-sync"]
    subprocess.run(made, check=True, capture_output=True, cwd=folder, **user)
    settings = ["-h", "127.0.0.1", "-p", str(port), "-c", "unix_socket_directories=", "-c", "fsync=off"]
    with (folder.parent / "postgres.log").open("w") as log:
        process = subprocess.Popen([server, "-D", data, *settings], cwd=folder, stdout=log, stderr=log, **user)
    try:
        _wait(lambda: _connects(port), process, folder.parent / "postgres.log")
        yield f"postgresql://mlflow:{PASSWORD}@127.0.0.1:{port}/postgres"
    finally:
        process.send_signal(signal.SIGQUIT)  # at once, children and all
        process.wait(30)


@contextmanager
def mlflow_server(store: str, folder: Path, port: int) -> Iterator[subprocess.Popen]:
    """`mlflow server` on loopback, artifacts through it into `folder`; all of it is ended afterwards."""
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", store, "--workers", "1"]
    command += ["--artifacts-destination", str(folder), "--host", "127.0.0.1", "--port", str(port)]
    environment = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    path = folder.parent / "mlflow.log"
    with path.open("a") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
    try:
        _wait(lambda: _answers(f"http://127.0.0.1:{port}/health"), process, path)
        yield process
    finally:
        kill(process)


def kill(process: subprocess.Popen) -> None:
    """End a server and its workers at once."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)


def _wait(ready, process: subprocess.Popen, log: Path, seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        assert process.poll() is None and time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.2)


def _connects(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:
            return reply.status == 200
    except (urllib.error.URLError, OSError):
        return False
