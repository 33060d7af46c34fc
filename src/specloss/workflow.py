"""What the Snakefile needs of the operating system: whether the runs that locked this folder still live."""

from __future__ import annotations

import os
from pathlib import Path

from specloss.cluster.head import owner_id, process_alive
from specloss.config import ConfigError
from specloss.files import write_text

_OWNERS = Path(".snakemake/specloss")  # a file for each experiment that was run here: its main process
_LOCKS = Path(".snakemake/locks")


def remember_owner(experiment: str) -> None:
    """Record that this process, the main Snakemake, runs the experiment and holds its lock."""
    write_text(_OWNERS / experiment, owner_id(os.getpid()))


def claim_folder(experiment: str) -> None:
    """ConfigError if a living run has the experiment; else remove the locks of runs that were killed.

    Snakemake itself leaves a dead run's lock to its user.
    """
    locks = list(_LOCKS.glob("*.lock"))
    alive = {path.name: owner for path in _OWNERS.glob("*") if process_alive(owner := path.read_text())}
    if locks and experiment in alive:
        pid = alive[experiment].partition(":")[0]
        raise ConfigError(
            f"another run of {experiment} (process {pid}) is at work in {Path.cwd()}; wait for it or end it"
        )
    if locks and not alive and _OWNERS.exists():
        for lock in locks:
            lock.unlink(missing_ok=True)
