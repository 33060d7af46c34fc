"""Tries, from inside, what must not work, and says on stdout what did. A request (JSON) on stdin names the targets."""

from __future__ import annotations

import json
import os
import resource
import socket
import sys
from collections.abc import Callable, Iterable
from typing import Any


def main() -> None:
    """Write a JSON object: promise of the sandbox -> whether it holds here."""
    request = json.load(sys.stdin)
    limits = (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE)
    space = os.statvfs(".")
    kept = {
        "files": not _any_works(_file_accesses(request["file"])),
        "network": not _any_works(_connections(request)),
        "signals": not _any_works([lambda: os.kill(request["process"], 0)]),
        "processes": request["ends_all"] or not _any_works([_fork]),
        "user": os.getuid() != 0,
        "disk": space.f_blocks * space.f_frsize <= 2 * request["disk_bytes"],
        "limits": all(resource.getrlimit(limit)[1] != resource.RLIM_INFINITY for limit in limits),
    }
    print(json.dumps(kept))


def _file_accesses(path: str) -> Iterable[Callable[[], Any]]:
    yield lambda: open(path).close()
    yield lambda: open(path, "a").close()
    yield lambda: os.listdir(os.path.dirname(path))
    yield lambda: os.mkdir(path + ".new")


def _connections(request: dict[str, Any]) -> Iterable[Callable[[], Any]]:
    here = ("127.0.0.1", request["port"])
    yield lambda: socket.create_connection(here, 1).close()
    yield lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b".", here)
    yield lambda: socket.socket(socket.AF_UNIX).connect(request["socket"])
    yield lambda: socket.socket(socket.AF_UNIX).connect("\0" + request["abstract"])


def _fork() -> None:
    if os.fork() == 0:
        os._exit(0)


def _any_works(attempts: Iterable[Callable[[], Any]]) -> bool:
    for attempt in attempts:
        try:
            attempt()
        except OSError:
            continue
        return True
    return False
