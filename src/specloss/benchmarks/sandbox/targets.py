"""Things of this process that code in the sandbox must not reach: a probe tries to, and tests do."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_PRIVATE, _NEW_SEGMENT, _REMOVE = 0, 0o1666, 0


@contextmanager
def targets() -> Iterator[dict[str, Any]]:
    """A file, sockets, shared memory and a process, open to every user, as plain values by which to reach them.

    It must be the sandbox that keeps code away from them, not their modes.
    """
    with tempfile.TemporaryDirectory(prefix="specloss-probe-") as folder, _sleeper() as process:
        Path(folder).chmod(0o777)
        file = Path(folder) / "canary"
        file.write_text("seen")
        file.chmod(0o666)
        kinds = {
            "port": (socket.AF_INET, socket.SOCK_STREAM),
            "stream": (socket.AF_UNIX, socket.SOCK_STREAM),
            "datagram": (socket.AF_UNIX, socket.SOCK_DGRAM),
            "abstract": (socket.AF_UNIX, socket.SOCK_STREAM),
        }
        sockets = {name: socket.socket(*kind) for name, kind in kinds.items()}
        segment = _shared_segment()
        try:
            sockets["port"].bind(("127.0.0.1", 0))
            sockets["abstract"].bind(f"\0{folder}")
            for name in ("stream", "datagram"):
                sockets[name].bind(f"{folder}/{name}")
                os.chmod(f"{folder}/{name}", 0o777)
            for name in ("port", "stream", "abstract"):
                sockets[name].listen(1)
            yield {
                "file": str(file),
                "port": sockets["port"].getsockname()[1],
                "stream": f"{folder}/stream",
                "datagram": f"{folder}/datagram",
                "abstract": folder,
                "segment": segment,
                "process": process,
            }
        finally:
            for opened in sockets.values():
                opened.close()
            if segment >= 0:
                ctypes.CDLL(None).shmctl(segment, _REMOVE, None)


@contextmanager
def _sleeper() -> Iterator[int]:
    """The id of another process of this user."""
    command = [sys.executable, "-I", "-S", "-c", "import sys; print(flush=True); sys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.kill()


def _shared_segment() -> int:
    """The id of new System V shared memory; -1 where there is none to be had."""
    return ctypes.CDLL(None).shmget(_PRIVATE, 4096, _NEW_SEGMENT)
