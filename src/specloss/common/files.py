"""Files of users, read with care, and files of ours, which are either whole or absent. No heavy imports here.

What a user names may be anything: a folder, a device, a pipe that nobody writes to, 40 GB of noise. `read_bytes`,
`read_text` and `read_json` take regular files of a bounded size alone; `check_file` is for what a library reads.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from specloss.common.oneline import OneLine

LARGEST = 1 << 28  # bytes of a file that is read whole, unless its reader says less


class FileError(OneLine, ValueError):
    """A file that cannot be read as what it should be; the message is one line that begins with its name."""


def read_bytes(path: Path | str, limit: int = LARGEST) -> bytes:
    """The content of a regular file of at most `limit` bytes. FileError, at once, for anything else."""
    handle = _opened(path)
    with os.fdopen(handle, "rb") as file:
        size = os.fstat(handle).st_size
        try:
            content = b"" if size > limit else file.read(limit + 1)
        except OSError as error:
            raise FileError(f"{shown_path(path)}: {_reason(error)}") from None
    if size > limit or len(content) > limit:
        raise FileError(f"{shown_path(path)}: too large, more than {limit:,} bytes")
    return content


def read_text(path: Path | str, limit: int = LARGEST) -> str:
    """The same of a UTF-8 text, without a byte order mark."""
    try:
        return read_bytes(path, limit).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileError(f"{shown_path(path)}: not UTF-8 text (byte {error.start})") from None


def read_json(path: Path | str, limit: int = LARGEST) -> Any:
    """The same of a JSON file, as plain values."""
    try:
        return json.loads(read_text(path, limit))
    except FileError:
        raise
    except (ValueError, RecursionError) as error:  # also nested too deeply, or a number of thousands of digits
        raise FileError(f"{shown_path(path)}: not JSON: {' '.join(str(error).split())}") from None


def check_file(path: Path | str) -> None:
    """FileError unless `path` is a regular file that can be opened."""
    os.close(_opened(path))


def shown_path(path: Path | str) -> str:
    """A path for a message: as it is, or quoted with escapes if it has what does not print on one line."""
    return str(path) if str(path).isprintable() else repr(str(path))


def _opened(path: Path | str) -> int:
    """The handle of a regular file, open for reading. FileError if it is none."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe would wait for its other end
    except (OSError, ValueError) as error:
        raise FileError(f"{shown_path(path)}: {_reason(error)}") from None
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        raise FileError(f"{shown_path(path)}: {'a folder' if stat.S_ISDIR(mode) else 'no regular file'}")
    return handle


def _reason(error: OSError | ValueError) -> str:
    """Why a file cannot be opened or read: `no such file or directory`."""
    return (getattr(error, "strerror", None) or str(error)).lower()


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the same folder; on success it is synced and renamed to `path`, else removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    os.close(handle)
    part = Path(name)
    try:
        yield part
        with part.open("rb") as file:
            os.fsync(file.fileno())
        # mkstemp makes private files; results are shared as the user's umask says
        umask = os.umask(0)
        os.umask(umask)
        part.chmod(0o666 & ~umask)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def file_hash(path: Path) -> str:
    """16 hex digits of SHA-256 over a regular file's content. FileError if it cannot be read."""
    with os.fdopen(_opened(path), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path` in one step. A file that already says so is left alone, with its time stamp."""
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")


def config_hash(value: Any) -> str:
    """16 hex digits of SHA-256 over the canonical JSON of `value`."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
