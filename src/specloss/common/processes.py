"""Processes by pid and start time: who is alive, and how to end exactly those that we started.

A pid alone is no identity, because pids are used again; with the start time it is one. No heavy imports here.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil


def owner_id(pid: int | None = None) -> str:
    """`<pid>:<start time>` of a process, this one by default. ProcessLookupError if there is none."""
    pid = os.getpid() if pid is None else pid
    start = _start_time(pid)
    if start is None:
        raise ProcessLookupError(f"no process {pid}")
    return f"{pid}:{start}"


def process_alive(owner: str) -> bool:
    """Whether the process that `owner_id` named still runs (a zombie does not)."""
    pid, _, start = owner.partition(":")
    return pid.isdigit() and _start_time(int(pid)) == start


def _start_time(pid: int) -> str | None:
    """Start of a living process as text; None if it is gone or a zombie.

    Clock ticks since boot where /proc has them: psutil's wall-clock time moves when the clock is set.
    """
    if Path("/proc/self/stat").exists():
        try:
            # the command, in brackets, may hold spaces and brackets of its own
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            return None
        return None if fields[0] in "ZX" else fields[19]
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else str(int(process.create_time() * 100))
    except psutil.NoSuchProcess:
        return None


def die_with_parent() -> None:
    """As `preexec_fn`: the new process is killed with -9 when the one that started it goes, however that went.

    Of `ray start` then a reaper ends the processes, workers follow their raylet at once and Ray's agents half a minute
    later; with TERM it would wait 30 seconds for the node to drain. Snakemake, whose errors nobody reads any more,
    might otherwise wait for ever; its Ray head ends with it, and the next run releases its lock.
    """
    if sys.platform == "linux":
        set_death_signal = 1
        ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)


def session_members(leader: str) -> list[psutil.Process]:
    """Living processes of the session that `leader` (an `owner_id`) opened, and their descendants.

    Ray gives each worker a process group of its own but none a session, so the session is what holds them together,
    also after the leader and the raylet have been killed and the workers belong to init. Descendants are added in case
    something in a worker opens a session of its own.
    """
    session = int(leader.partition(":")[0])
    if _start_time(session) not in (None, leader.partition(":")[2]):
        return []  # the pid is someone else's by now, so the old session has no members left
    members: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if os.getsid(process.pid) == session and process.uids().real == os.getuid():
                members |= {p.pid: p for p in (process, *process.children(recursive=True))}
    return [p for p in members.values() if _start_time(p.pid) is not None]


def end_session(leader: str, grace: float = 1.0) -> None:
    """End every member of a session: TERM, after `grace` seconds KILL, until none is left.

    RuntimeError names those that outlive even that (stuck in the kernel).
    """
    # Those seen once are remembered: a child loses its link to the session when its parent goes first.
    known: dict[int, psutil.Process] = {}

    def living() -> list[psutil.Process]:
        known.update({p.pid: p for p in session_members(leader)})
        return [p for p in known.values() if p.is_running() and _start_time(p.pid) is not None]

    _signal(living(), psutil.Process.terminate)
    deadline = time.monotonic() + grace
    while (left := living()) and time.monotonic() < deadline:
        psutil.wait_procs(left, timeout=0.1)
    deadline = time.monotonic() + 10
    while left := living():
        if time.monotonic() > deadline:
            raise RuntimeError(f"processes {[p.pid for p in left]} cannot be ended")
        _signal(left, psutil.Process.kill)
        psutil.wait_procs(left, timeout=0.1)


def _signal(processes: Iterable[psutil.Process], send: object) -> None:
    for process in processes:
        with suppress(psutil.Error):
            send(process)  # type: ignore[operator]  # psutil compares start times before it signals
