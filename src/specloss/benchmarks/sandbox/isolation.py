"""What this machine allows: the layers that work, and what they do not enforce together, found by trying."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import psutil

from specloss.benchmarks.sandbox.box import LAYERS, NOT_ISOLATED, Limits, box
from specloss.benchmarks.sandbox.errors import SandboxError
from specloss.benchmarks.sandbox.targets import targets

PROMISES = {
    "files": "keep the code from reading, listing and changing the machine's files",
    "network": "keep the code off the network and off the machine's sockets and shared memory",
    "signals": "keep the code from signalling, changing and reading other processes",
    "verdict": "keep the code out of the process that has the expected values and writes the verdict",
    "user": "run the code as a user other than root",
    "processes": "be sure to end every process that the code starts",
    "disk": "bound what the code writes to disk",
    "limits": "limit memory, CPU time, file sizes and open files",
}
# without one of these, nothing is run unless the config says so
ESSENTIAL = ("files", "network", "signals", "verdict", "user")
Sandbox = Literal["required", "unsafe"]


@dataclass(frozen=True, slots=True)
class Isolation:
    """The layers in use, why others are not, and the promises (keys of PROMISES) that do not hold."""

    layers: tuple[str, ...]
    refused: dict[str, str]
    broken: tuple[str, ...]

    @property
    def unsafe(self) -> bool:
        """Whether a promise is broken without which nothing should be run."""
        return not set(ESSENTIAL).isdisjoint(self.broken)

    @property
    def lines(self) -> list[str]:
        """A line for each promise that does not hold here, for a user."""
        return [f"the sandbox cannot {PROMISES[name]} on this machine ({self._because})" for name in self.broken]

    @property
    def refusal(self) -> str:
        """Why nothing is run here, and what to do about it, in a line."""
        broken = "; ".join(PROMISES[name] for name in self.broken if name in ESSENTIAL)
        return (
            f"model-written code is not run on this machine: the sandbox cannot {broken} ({self._because}). "
            f"{_advice()}; or, on a machine that you can afford to lose, say sandbox: unsafe in the benchmark's grading"
        )

    @property
    def _because(self) -> str:
        return "; ".join(f"no {layer}: {reason}" for layer, reason in self.refused.items()) or "though all layers work"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for a file's metadata."""
        return {"layers": list(self.layers), "cannot": [PROMISES[name] for name in self.broken], "unsafe": self.unsafe}


def permitted(sandbox: Sandbox = "required") -> Isolation:
    """The isolation of this machine. SandboxError if it does not keep what is essential, and `sandbox` requires it."""
    found = isolation()
    if found.unsafe and sandbox != "unsafe":
        raise SandboxError(found.refusal)
    return found


@cache
def isolation(without: tuple[str, ...] = ()) -> Isolation:
    """The strongest isolation of this machine; `without` leaves layers out. SandboxError where nothing can be started.

    A layer is in use if a program starts under it; a promise holds if a program that tries to break it fails.
    """
    if sys.platform != "linux":
        raise SandboxError("model-written code runs in a sandbox that needs Linux")
    wanted = [layer for layer in LAYERS if layer not in without and (layer != "user" or os.geteuid() == 0)]
    refused = dict.fromkeys(without, "left out")
    kept = _probe(wanted)
    if isinstance(kept, str):
        working: list[str] = []
        for layer in wanted:
            if isinstance(reason := _probe([*working, layer]), str):
                refused[layer] = reason
            else:
                working.append(layer)
        wanted = working
        if isinstance(kept := _probe(wanted), str):
            raise SandboxError(f"no program can be started in the sandbox: {kept}")
    return Isolation(tuple(wanted), refused, tuple(name for name in PROMISES if not kept[name]))


def _probe(layers: Sequence[str]) -> dict[str, bool] | str:
    """What holds under these layers, by promise; why they cannot be had, if they cannot."""
    limits = Limits()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with targets() as request, box(["probe", "1"], layers, limits, **pipes) as judge:
        assert judge.stdout is not None
        if not judge.stdout.readline():
            return _failure(judge, judge.communicate()[1])
        process = psutil.Process(judge.pid).children(recursive=True)[-1]
        request |= {"judge": process.pid, "ends_all": "namespaces" in layers, "disk_bytes": limits.disk_bytes}
        with box(["probe"], layers, limits, **pipes) as code:
            try:
                out, error = code.communicate(json.dumps(request).encode(), limits.wall_seconds)
            except subprocess.TimeoutExpired:
                return "it did not answer in time"
        if code.returncode != 0:
            return _failure(code, error)
        kept = json.loads(out)
        # who it is in a namespace is not who it is for the rest of the machine
        kept["user"] = kept["user"] and 0 not in process.uids()
        return kept


def _failure(process: subprocess.Popen[bytes], error: bytes) -> str:
    said = " ".join(error.decode(errors="replace").split()) or f"exit status {process.returncode}"
    return said if process.returncode == NOT_ISOLATED else f"Python does not run under it: {said[-200:]}"


def _advice() -> str:
    """What makes the layers work on this machine."""
    if any(map(os.path.exists, ("/.dockerenv", "/run/.containerenv"))):
        return (
            "Start the container with Docker's own seccomp profile, or with --security-opt seccomp=FILE and a profile "
            "that allows seccomp, landlock_* or unshare, mount and pivot_root (docs/security.md)"
        )
    for name, refuses, instead in (
        (
            "kernel.apparmor_restrict_unprivileged_userns",
            "1",
            "=0, or with an AppArmor profile that has userns for this Python (docs/security.md)",
        ),
        ("kernel.unprivileged_userns_clone", "0", "=1"),
        ("user.max_user_namespaces", "0", "=10000"),
    ):
        with suppress(OSError):
            if Path("/proc/sys", *name.split(".")).read_text().strip() == refuses:
                return f"Allow user namespaces: sysctl -w {name}{instead}"
    return "It needs user namespaces, or Landlock (Linux 5.13) and seccomp (docs/security.md)"
