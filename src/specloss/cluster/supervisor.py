"""The supervisor of one Ray head: starts it, ends it when its owner is gone, and cleans up after it.

    python -m specloss.cluster.supervisor <state folder> <token file> <owner>

It is a small process in a session of its own, so that neither Ctrl-C nor the death of the client that started it takes
the head away from the other clients. `ray stop` is never used: it ends every Ray on the machine.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import psutil

from specloss.common.files import write_text
from specloss.common.processes import die_with_parent, end_session, owner_id, process_alive

RECORD = "head.json"
POLL_SECONDS = 0.5
START_SECONDS = 90  # 4 on a free machine
NODE_IP = "127.0.0.1"  # of a cluster of one node: with this very address all of Ray listens on loopback alone
NODE_PORTS = (
    "node-manager-port",
    "object-manager-port",
    "metrics-export-port",
    "runtime-env-agent-port",
    "dashboard-agent-listen-port",
    "dashboard-agent-grpc-port",
)
# Ray replaces 127.0.0.1 by the machine's outward address, which others can reach and which changes with a laptop's
# networks; but not where it is told that it has no other nodes, for which this is the switch on any system
_ALONE = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
FIXED_PORTS = ("port", *NODE_PORTS, "dashboard-port")  # of a head
# Below the kernel's ephemeral ports (from 32768), above Ray's own choice for workers (10002-19999), where heads of
# other users are. Each actor and each client takes one of the block.
PORTS = range(20000, 32000)
PORT_BLOCK = 250


class _End(Exception):
    """SIGTERM, or the owner is gone."""


def head_environment(token: Path) -> dict[str, str]:
    """Environment of everything that talks to our head, which is all of its cluster.

    The token keeps other users of the machine out. It is set explicitly everywhere, because a stray token in the home
    folder changes Ray's default.
    """
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token), "RAY_USAGE_STATS_ENABLED": "0"} | _ALONE


def available_cores() -> int:
    """Cores of this process: Slurm's allocation (without cgroups its affinity is the whole node), else the affinity."""
    for name in ("SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE"):
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def allocated_gpus() -> int | None:
    """GPUs of this Slurm job; None outside of one, where Ray counts the machine's.

    Inside, Ray must not count: where no cgroup hides them, the driver shows it all GPUs of the node, other users' too.
    """
    if "SLURM_JOB_ID" not in os.environ:
        return None
    for name in ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        if name in os.environ:
            devices = [device.strip() for device in os.environ[name].split(",")]
            # indices, or GPU-... and MIG-... ids; Slurm writes NoDevFiles where there are none
            return len([device for device in devices if device not in ("", "-1", "NoDevFiles")])
    count = os.environ.get("SLURM_GPUS_ON_NODE", "")
    return int(count) if count.isdigit() else 0


def free_ports() -> int:
    """First port of a block of PORT_BLOCK whose fixed ports are free. OSError if none is found."""
    starts = list(range(PORTS.start, PORTS.stop, PORT_BLOCK))
    random.shuffle(starts)
    for start in starts:
        try:
            for port in range(start, start + len(FIXED_PORTS)):
                with socket.socket() as probe:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind(("", port))
        except OSError:
            continue
        return start
    raise OSError(f"no free block of ports in {PORTS.start}-{PORTS.stop}")


def object_store_bytes() -> int:
    """Results are a few MB; a machine's shared memory may be little (64 MB in a container). Ray's minimum is 75 MB."""
    shared = Path("/dev/shm")
    free = shutil.disk_usage(shared).free if shared.exists() else psutil.virtual_memory().available // 4
    return max(80_000_000, min(1 << 30, free // 2))


def _command(folder: Path, first_port: int, ip: str, head: str | None) -> list[str]:
    names = NODE_PORTS if head else FIXED_PORTS
    ports = [f"--{name}={first_port + i}" for i, name in enumerate(FIXED_PORTS) if name in names]
    # Without grpcio there is no Ray client server, and naming a port for one is an error; with it, the default is 10001
    if head is None and importlib.util.find_spec("grpc"):
        ports.append(f"--ray-client-server-port={first_port + PORT_BLOCK - 1}")
    role = [f"--address={head}"] if head else ["--head", "--include-dashboard=false", "--no-monitor"]
    gpus = allocated_gpus()
    return [
        *(sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *role),
        f"--node-ip-address={ip}",
        *ports,
        f"--min-worker-port={first_port + len(FIXED_PORTS)}",
        f"--max-worker-port={first_port + PORT_BLOCK - 2}",
        f"--temp-dir={folder / 'ray'}",
        f"--num-cpus={available_cores()}",
        *([] if gpus is None else [f"--num-gpus={gpus}"]),
        f"--object-store-memory={object_store_bytes()}",
        "--include-log-monitor=false",
        "--disable-usage-stats",
    ]


def _start(folder: Path, token: Path, log: IO[bytes], ip: str, head: str | None) -> tuple[subprocess.Popen[bytes], int]:
    first_port = free_ports()
    environment = {k: v for k, v in os.environ.items() if k not in ("RAY_ADDRESS", "RAY_AUTH_TOKEN")}
    environment |= head_environment(token)
    if ip != NODE_IP:
        environment = {k: v for k, v in environment.items() if k not in _ALONE}
    environment |= {
        "RAY_worker_niceness": "0",  # Ray's workers run at nice 15 otherwise
        "RAY_prestart_worker_first_driver": "0",  # no idle worker for each core of a large machine
    }
    process = subprocess.Popen(
        _command(folder, first_port, ip, head),
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        preexec_fn=die_with_parent,
    )
    return process, first_port


def supervise(
    folder: Path,
    token: Path,
    owner: str,
    ip: str = NODE_IP,
    head: str | None = None,
    when_up: Callable[[str], None] = lambda address: None,
) -> int:
    """Start a head and stay until the owner or the head dies or SIGTERM comes; then end all of it. Exit status.

    `folder/head.json` says what there is to end from the first moment, and the address once the head answers; then
    `when_up` is called with it, too. `ip` is the node's. With the address of another node's head in `head` it is a
    further node of that cluster, and the same holds for it.
    """

    def end(*_: object) -> None:
        raise _End

    signal.signal(signal.SIGTERM, end)
    session = ""
    try:
        for attempt in range(3):
            with (folder / "start.log").open("wb") as log:
                process, first_port = _start(folder, token, log, ip, head)
            session = owner_id(process.pid)
            record = {"owner": owner, "supervisor": owner_id(), "session": session}
            write_text(folder / RECORD, json.dumps(record))
            if _wait_until_up(process, owner, folder / "start.log"):
                break
            hangs = process.poll() is None
            end_session(session)
            # one that ended by itself found a port taken in between, perhaps
            if hangs or attempt == 2:
                session = ""  # the folder stays: the client reads start.log
                return 1
        ports = [first_port, first_port + 1]
        address = head or f"{ip}:{first_port}"
        write_text(folder / RECORD, json.dumps(record | {"address": address, "ports": ports}))
        when_up(address)
        while process_alive(owner) and process.poll() is None:
            time.sleep(POLL_SECONDS)
    except _End:
        pass
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough; ending must not be interrupted
        if session:
            end_session(session)
            shutil.rmtree(folder, ignore_errors=True)
    return 0


def _wait_until_up(process: subprocess.Popen[bytes], owner: str, log: Path) -> bool:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        if not process_alive(owner):
            raise _End
        if b"Ray runtime started" in log.read_bytes():
            return True
        time.sleep(0.05)
    return False


if __name__ == "__main__":
    sys.exit(supervise(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
