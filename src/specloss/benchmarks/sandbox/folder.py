"""Private folders that are removed whatever is in them, at the latest by a later process if their owner was killed."""

from __future__ import annotations

import fcntl
import os
import secrets
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache

PREFIX = "specloss-sandbox-"
_YOUNG = 60.0  # seconds within which a folder may not be locked yet


@contextmanager
def private_folder() -> Iterator[str]:
    """A new folder, others may pass through but not list it; it is locked as long as this process wants it."""
    sweep(tempfile.gettempdir())
    path = tempfile.mkdtemp(prefix=PREFIX)
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        os.chmod(path, 0o711)
        yield path
    finally:
        remove(path)
        os.close(handle)


@cache
def sweep(folder: str) -> None:
    """Remove the private folders in `folder` that killed processes of this user left. Once in a process."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                if entry.name.startswith(PREFIX) and entry.is_dir(follow_symlinks=False):
                    _remove_stale(entry.path, entry.stat(follow_symlinks=False))


def _remove_stale(path: str, found: os.stat_result) -> None:
    if found.st_uid != os.geteuid() or time.time() - found.st_ctime < _YOUNG:
        return
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        # a lock, not a process id, which means something else in another container that shares the folder
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        remove(path)
    finally:
        os.close(handle)


def remove(path: str) -> None:
    """Remove a folder to which no process writes any more: however deep, whatever the modes. No link is followed.

    What cannot be removed stays: it must fail nothing.
    """
    moved, unused = 0, secrets.token_hex(8)
    with suppress(OSError):
        os.chmod(path, 0o700)
        # folders of folders move up to `path`, so that no path grows long and nothing recurses
        while folders := [entry.path for entry in os.scandir(path) if not _unlinked(entry)]:
            for folder in folders:
                os.chmod(folder, 0o700)
                for entry in os.scandir(folder):
                    if not _unlinked(entry):
                        moved += 1
                        # to move a folder takes the right to write to it
                        os.chmod(entry.path, 0o700)
                        os.rename(entry.path, f"{path}/{unused}-{moved}")
                os.rmdir(folder)
        os.rmdir(path)


def _unlinked(entry: os.DirEntry[str]) -> bool:
    """Remove what is no folder."""
    if stat.S_ISDIR(entry.stat(follow_symlinks=False).st_mode):
        return False
    os.unlink(entry.path)
    return True
