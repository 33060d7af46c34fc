"""Find, start and end exactly our own Ray head. See `find_head` for the order.

State is in a private folder, `<TMPDIR or /tmp>/specloss-<uid>/<4 hex of the host, 4 of the working directory>`:
head.json, Ray's own temporary folder, logs. The supervisor (specloss.cluster.supervisor) removes it when it ends the
head. Beside it lie the token, one for all heads of a user (a process keeps the first that it reads), and the lock.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specloss.cluster.supervisor import NODE_IP, RECORD, START_SECONDS, head_environment
from specloss.common.files import write_text
from specloss.common.oneline import OneLine
from specloss.common.private import PrivateError, make_private
from specloss.common.processes import end_session, owner_id, process_alive

OWNER = "SPECLOSS_OWNER"  # <owner id>@<place>, see `owner_here`
# On a cluster that several users share, nobody meets, or ends, the actors of another
NAMESPACE = f"specloss-{os.getuid()}"
# Sockets are at <folder>/ray/session_2026-01-01_00-00-00_000000_1234567/sockets/plasma_store; a path may have 107 bytes
LONGEST_FOLDER = 107 - 68


class RayHeadError(OneLine, RuntimeError):
    """No head is available; the message is one line meant for users."""


class RayHeadLost(RayHeadError):
    """The head that was in use is gone."""


@dataclass(frozen=True)
class RayHead:
    """A Ray head to connect to. `supervisor` and `ports` are empty for a given address, which is never stopped."""

    address: str
    folder: Path | None = None
    supervisor: str = ""
    ports: tuple[int, ...] = ()
    private: bool = False  # to this process, and ended with it
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def given(self) -> bool:
        """Whether it was given by address, so that it is not ours."""
        return self.folder is None

    def check(self) -> None:
        """RayHeadLost if a head of ours no longer answers, RayHeadError if a given one does not."""
        if not self.given:
            if not (process_alive(self.supervisor) and _answers(NODE_IP, *self.ports)):
                raise RayHeadLost(f"the Ray head at {self.address} is gone")
            return
        host, _, port = self.address.removeprefix("ray://").rpartition(":")
        if port.isdigit() and not _answers(host, int(port)):
            raise RayHeadError(f"the Ray cluster at {self.address} does not answer")

    @contextmanager
    def connected(self) -> Iterator[Any]:
        """The `ray` module, connected. RayHeadError if that fails; a private head is ended on leaving."""
        if not self.given:
            # a token in the variable would win over the file
            os.environ.pop("RAY_AUTH_TOKEN", None)
            os.environ.update(self.environment)
        import ray

        try:
            ray.init(address=self.address, namespace=NAMESPACE, log_to_driver=False, logging_level="ERROR")
        except Exception as error:
            self.check()
            raise RayHeadError(
                f"cannot connect to Ray at {self.address}: {' '.join(str(error).split())[:300]}"
            ) from error
        try:
            yield ray
        finally:
            ray.shutdown()
            if self.private:
                _end(self.folder)


def find_head(address: str | None = None) -> RayHead:
    """The head to use, started if necessary. RayHeadError if none is available.

    1. `address`, else RAY_ADDRESS: used as it is, never stopped. Authentication is as the environment says.
    2. In a Slurm job that was submitted for this process: a head private to it, ended with it. One decode job is one
       allocation, and a head that outlived its job step would be killed by cgroup tracking, or leak without it.
    3. Otherwise one head per working directory, shared by all clients. Its owner is named by SPECLOSS_OWNER (the main
       Snakemake process sets it), else it is the first client; it ends when the owner dies, or by `stop_head`. That is
       also what a Snakemake with local jobs inside an allocation has.
    """
    if given := given_address(address):
        return RayHead(given)
    owner, private = _owner()
    if not process_alive(owner):
        raise RayHeadError(f"{OWNER}={owner} names no living process")
    folder = state_folder(Path.cwd(), private)
    with _lock(folder.parent):
        record = _read(folder)
        if record is None or not _usable(record):
            _sweep(folder.parent)
            _end(folder)
            record = _start(folder, owner)
    return RayHead(
        address=record["address"],
        folder=folder,
        supervisor=record["supervisor"],
        ports=tuple(record["ports"]),
        private=private,
        environment=head_environment(folder.parent / "token"),
    )


def given_address(address: str | None = None) -> str | None:
    """The address of an existing cluster: `address` (the config's), else RAY_ADDRESS."""
    return address or os.environ.get("RAY_ADDRESS") or None


def stop_head(cwd: Path | None = None) -> bool:
    """End our head of a working directory, if there is one; returns whether there was.

    With SPECLOSS_OWNER set, a head of another living owner is left alone.
    """
    folder = state_folder(cwd or Path.cwd(), private=False)
    with _lock(folder.parent):
        record = _read(folder)
        if record is None:
            return False
        owner = _owner()[0] if OWNER in os.environ else record["owner"]
        if owner != record["owner"] and process_alive(record["owner"]):
            return False
        _end(folder)
    return True


def owner_here() -> str:
    """What the main process of a run puts into SPECLOSS_OWNER: itself, and where its pid means something.

    Slurm gives a job the environment of the submit host, so that the variable also comes where it must not count.
    """
    return f"{owner_id()}@{_place()}"


def _place() -> str:
    return f"{socket.gethostname()}/{os.environ.get('SLURM_JOB_ID', '')}"


def _owner() -> tuple[str, bool]:
    """Whom a head here lives for, and whether it is for this process alone."""
    owner, _, place = os.environ.get(OWNER, "").partition("@")
    if owner and place == _place():
        return owner, False
    return owner_id(), "SLURM_JOB_ID" in os.environ


def state_folder(cwd: Path, private: bool) -> Path:
    """Where the state of a working directory's head is, of one for this process alone if `private`.

    RayHeadError if that is not a safe place.
    """
    # two allocations on a node have GPUs of their own
    key = f"{cwd.resolve()}:{os.environ.get('SLURM_JOB_ID', '')}"
    if private:
        key += f":{os.getpid()}"
    name = Path(f"specloss-{os.getuid()}", _host() + _hex4(key))
    base = Path(os.environ.get("TMPDIR") or "/tmp")
    folder = base / name if len(str(base / name)) <= LONGEST_FOLDER else Path("/tmp") / name
    try:
        make_private(folder.parent)
    except PrivateError as error:
        raise RayHeadError(f"{error} or set TMPDIR") from None
    return folder


def _hex4(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:4]


def _host() -> str:
    """Part of the folder's name, because TMPDIR may be shared by several hosts, and a pid is only of one."""
    return _hex4(socket.gethostname())


@contextmanager
def _lock(base: Path) -> Iterator[None]:
    with (base / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # the kernel drops it when its holder dies
        yield


def _read(folder: Path) -> dict[str, Any] | None:
    with suppress(FileNotFoundError):
        return json.loads((folder / RECORD).read_text())
    return None


def _usable(record: dict[str, Any]) -> bool:
    """Whether a recorded head is fully up, and its owner and supervisor are alive."""
    return (
        "address" in record
        and process_alive(record["owner"])
        and process_alive(record["supervisor"])
        and _answers(NODE_IP, *record["ports"])
    )


def _answers(host: str, *ports: int) -> bool:
    """Whether GCS and raylet accept connections: `ray start` does not notice when one is ended by SIGTERM."""
    try:
        for port in ports:
            socket.create_connection((host, port), timeout=2).close()
    except OSError:
        return False
    return True


def _start(folder: Path, owner: str) -> dict[str, Any]:
    token = folder.parent / "token"
    if not token.exists():
        write_text(token, secrets.token_hex(32))
    token.chmod(0o600)  # within a 0700 folder from the start
    folder.mkdir(mode=0o700)
    supervisor = subprocess.Popen(
        [sys.executable, "-m", "specloss.cluster.supervisor", str(folder), str(token), owner],
        stdin=subprocess.DEVNULL,
        # not ours: the supervisor outlives us, and who waits for the end of our output must not wait for it
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 3 * START_SECONDS
    while supervisor.poll() is None and time.monotonic() < deadline:
        record = _read(folder)
        if record and "address" in record:
            return record
        time.sleep(0.05)
    log = folder / "start.log"
    last = [line for line in log.read_text(errors="replace").splitlines() if line.strip()][-1:] if log.exists() else []
    _end(folder)
    raise RayHeadError(f"Ray could not be started: {last[0] if last else 'its supervisor exited without a message'}")


def _end(folder: Path | None) -> None:
    """End the head that is recorded in `folder`: ask its supervisor, and do it ourselves if that is dead or stuck."""
    if folder is None:
        return
    record = _read(folder)
    if record is not None:
        pid = int(record["supervisor"].partition(":")[0])
        if process_alive(record["supervisor"]):
            os.kill(pid, 15)
            deadline = time.monotonic() + 10
            while process_alive(record["supervisor"]) and time.monotonic() < deadline:
                time.sleep(0.05)
        if process_alive(record["supervisor"]):
            os.kill(pid, 9)
        end_session(record["session"])
    shutil.rmtree(folder, ignore_errors=True)


def _sweep(base: Path) -> None:
    """Clear what runs left whose owner and supervisor were killed together, e.g. all of a Slurm job."""
    for folder in base.glob(f"{_host()}????"):
        if folder.is_dir():
            record = _read(folder)
            if record is None or not (process_alive(record["owner"]) or process_alive(record["supervisor"])):
                _end(folder)
