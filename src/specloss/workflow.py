"""What the Snakefile needs of the operating system: whether the run that locked this folder still lives."""

from __future__ import annotations

import os
from pathlib import Path

from specloss.cluster.head import owner_id, process_alive
from specloss.files import write_text

_OWNER = Path(".snakemake/specloss-owner")
_LOCKS = Path(".snakemake/locks")


def remember_owner() -> None:
    """Record that this process, the main Snakemake, holds the folder's lock."""
    write_text(_OWNER, owner_id(os.getpid()))


def release_stale_lock() -> None:
    """Remove Snakemake's lock if the run that took it was killed; Snakemake itself leaves that to its user."""
    if _OWNER.exists() and not process_alive(_OWNER.read_text()):
        for lock in _LOCKS.glob("*.lock"):
            lock.unlink(missing_ok=True)
