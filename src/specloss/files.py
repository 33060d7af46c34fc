"""Files that are either whole or absent: written beside their name, then renamed. No heavy imports here."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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
    """16 hex digits of SHA-256 over a file's content. OSError if it cannot be read."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path` in one step. A file that already says so is left alone, with its time stamp."""
    if path.exists() and path.read_text() == text:
        return
    with replacing(path) as part:
        part.write_text(text)
