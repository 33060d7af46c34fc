"""One node of a Ray cluster that spans a Slurm allocation: `srun python -m specloss.cluster.node <shared folder>`.

The first task of the step starts the head and writes its address to `address` in the shared folder, which all nodes
see and which has the `token`; the others join it. Each says so in a file `up-<task>`, and ends all that it started when
it is ended. workflow/scripts/ray_on_slurm.sbatch is what runs it.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path

from specloss.cluster.ray_head import state_folder
from specloss.cluster.supervisor import START_SECONDS, supervise
from specloss.common.files import write_text
from specloss.common.processes import owner_id

LOCAL = "127.0.0.2"  # of a single node: who is given its address alone could not say 127.0.0.1, which Ray replaces


def run_node(shared: Path) -> int:
    """Be one node until SIGTERM comes; exit status. TimeoutError if the head's node writes no address."""
    task, nodes = os.environ.get("SLURM_PROCID", "0"), int(os.environ.get("SLURM_STEP_NUM_NODES", "1"))
    head = None if task == "0" else _wait_for(shared / "address")
    folder = state_folder(Path.cwd(), private=True)
    folder.mkdir(mode=0o700)

    def when_up(address: str) -> None:
        write_text(shared / "address", address)
        write_text(shared / f"up-{task}", "")

    return supervise(folder, shared / "token", owner_id(), LOCAL if nodes == 1 else outward_ip(), head, when_up)


def outward_ip() -> str:
    """This node's address on the network of the others. Often several: SPECLOSS_NODE_IP, if set, has the last word."""
    if given := os.environ.get("SPECLOSS_NODE_IP"):
        return given
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("10.255.255.255", 1))  # sends nothing: it only picks the way out
        return probe.getsockname()[0]


def _wait_for(file: Path) -> str:
    deadline = time.monotonic() + 3 * START_SECONDS
    while not file.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the head's node has not written {file}")
        time.sleep(0.5)
    return file.read_text()


if __name__ == "__main__":
    sys.exit(run_node(Path(sys.argv[1])))
