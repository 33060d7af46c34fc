"""What this machine allows: the layers that work, and what they do not enforce together, found by trying."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from specloss.benchmarks.sandbox.box import LAYERS, NOT_ISOLATED, Limits, SandboxError, box

PROMISES = {
    "files": "hide the machine's files from the code",
    "network": "keep the code off the network and off the machine's sockets",
    "signals": "keep the code from signalling other processes",
    "processes": "be sure to end every process that the code starts",
    "user": "run the code as a user other than root",
    "disk": "bound what the code writes to disk",
    "limits": "limit memory, CPU time, file sizes and open files",
}


@dataclass(frozen=True, slots=True)
class Isolation:
    """The layers in use, why others are not, and the promises (keys of PROMISES) that do not hold."""

    layers: tuple[str, ...]
    refused: dict[str, str]
    broken: tuple[str, ...]

    @property
    def lines(self) -> list[str]:
        """A line for each promise that does not hold here, for a user."""
        because = "; ".join(f"no {layer}: {reason}" for layer, reason in self.refused.items())
        return [f"the sandbox cannot {PROMISES[name]} on this machine ({because})" for name in self.broken]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for a file's metadata."""
        return {"layers": list(self.layers), "cannot": [PROMISES[name] for name in self.broken]}


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
    with tempfile.TemporaryDirectory(prefix="specloss-probe-") as folder:
        file = Path(folder) / "canary"
        file.write_text("seen")
        # readable by everyone: it must be the sandbox that hides them
        file.chmod(0o666)
        Path(folder).chmod(0o777)
        tcp, unix, abstract = socket.socket(), socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
        with tcp, unix, abstract:
            tcp.bind(("127.0.0.1", 0))
            unix.bind(f"{folder}/socket")
            abstract.bind(f"\0{folder}")
            for listener in (tcp, unix, abstract):
                listener.listen(1)
            request = {
                "file": str(file),
                "port": tcp.getsockname()[1],
                "socket": f"{folder}/socket",
                "abstract": folder,
                "process": os.getpid(),
                "ends_all": "namespaces" in layers,
                "disk_bytes": limits.disk_bytes,
            }
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            with box(["probe"], layers, limits, **pipes) as process:
                try:
                    out, error = process.communicate(json.dumps(request).encode(), limits.wall_seconds)
                except subprocess.TimeoutExpired:
                    return "it did not answer in time"
    if process.returncode == 0:
        return json.loads(out)
    said = " ".join(error.decode(errors="replace").split()) or f"exit status {process.returncode}"
    return said if process.returncode == NOT_ISOLATED else f"Python does not run under it: {said[-200:]}"
