"""What the Snakefile asks the system and Slurm: whether the runs that locked this folder are still alive."""

from __future__ import annotations

import shutil
import socket
import subprocess
from pathlib import Path

from specloss.cluster.ray_head import owner_here
from specloss.common.files import write_text
from specloss.common.processes import process_alive
from specloss.common.yamlfile import ConfigError
from specloss.experiment.batches import batch_folder

_OWNERS = Path(".snakemake/specloss")  # a file for each experiment that was run here: its main process
_LOCKS = Path(".snakemake/locks")


def remember_owner(experiment: str) -> None:
    """Record that this process, the main Snakemake, runs the experiment and holds its lock."""
    write_text(_OWNERS / experiment, owner_here())


def claim_folder(experiment: str) -> None:
    """ConfigError if a living run has the experiment; else remove the locks of runs that were killed.

    Snakemake itself leaves a dead run's lock to its user. Of a run on another host (a cluster has several login nodes)
    nobody here can say whether it is alive, so it is taken to be.
    """
    locks = list(_LOCKS.glob("*.lock"))
    alive = {path.name: owner for path in _OWNERS.glob("*") if _may_live(owner := path.read_text())}
    if locks and experiment in alive:
        owner, _, place = alive[experiment].partition("@")
        host = place.partition("/")[0]
        pid = owner.partition(":")[0]
        where, advice = "", "wait for it or end it"
        if host != socket.gethostname():
            where, advice = f" on {host}", f"{advice}; if it is gone, remove {_OWNERS / experiment}"
        raise ConfigError(f"another run of {experiment} (process {pid}{where}) is running in {Path.cwd()}; {advice}")
    if locks and not alive and _OWNERS.exists():
        for lock in locks:
            lock.unlink(missing_ok=True)


def _may_live(owner: str) -> bool:
    process, _, place = owner.partition("@")
    return place.partition("/")[0] != socket.gethostname() or process_alive(process)


def cancel_orphans(experiment: str, results: Path) -> list[str]:
    """Cancel the Slurm jobs that a killed run of this experiment left in the queue; their ids.

    They are those that were submitted here and name a batch of this experiment. No living run has any: see
    `claim_folder`. They would decode the cells that the jobs of the new run decode.
    """
    if not Path(".snakemake/slurm_logs").exists() or shutil.which("squeue") is None:
        return []
    queue = ["squeue", "--me", "--noheader", "--format=%i|%Z|%k"]  # id, folder, comment: rule_decode_wildcards_<batch>
    try:
        rows = subprocess.run(queue, check=True, capture_output=True, text=True, timeout=60).stdout.splitlines()
        found = [row.split("|", 2) for row in rows]
        batches = {f"rule_decode_wildcards_{path.stem}" for path in batch_folder(results, experiment).glob("*.json")}
        jobs = [job for job, folder, comment in found if folder == str(Path.cwd()) and comment in batches]
        if jobs:
            subprocess.run(["scancel", *jobs], check=True, capture_output=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return []  # they do no harm: a cell's files appear at once, whole, and are the same whoever writes them
    return jobs
