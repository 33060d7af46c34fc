"""Files and folders that no other user of the machine reads: tokens, passwords, sockets."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from specloss.common.oneline import OneLine


class PrivateError(OneLine, RuntimeError):
    """A place that another user could read or has made; the message is one line meant for users."""


def make_private(folder: Path) -> None:
    """Make a folder that is this user's alone. PrivateError if there is another under its name."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    # in a place where everyone writes, a folder that someone else put there could feed us a token of theirs
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise PrivateError(f"{folder} is not a private folder of this user (mode 0700); remove it")


def write_private(path: Path, text: str) -> None:
    """A new file with mode 0600 from its first byte on. FileExistsError if there is one, a link included."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
