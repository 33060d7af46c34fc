"""A real Slurm on this machine for the tests: slurmctld, slurmd and munged of their own, with GPUs that are not there.

`PROCTRACK=cgroup pytest …` tracks jobs by cgroup, as large clusters do, where cgroup v1 is writable; the default,
linuxproc, goes by parents and lets a process that has left its parents live on.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import socket
import string
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

TEMPLATES = Path(__file__).parent / "data/slurm"
# Where the tools look by default. SLURM_CONF would not do: the executor's job steps run without any SLURM_ variable
ETC = Path("/etc/slurm")
PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "srun")
CPUS, GPUS = 4, 4


@dataclass(frozen=True)
class Job:
    """A job of the queue, as squeue shows it."""

    id: str
    state: str
    folder: str  # where it was submitted
    comment: str


@dataclass(frozen=True)
class Slurm:
    """The running cluster of one node."""

    folder: Path
    host: str

    def jobs(self, folder: Path | None = None, states: str = "all") -> list[Job]:
        """Jobs in the queue, finished ones included, those submitted in a folder if one is given."""
        rows = command("squeue", "-h", f"--states={states}", "--format=%i|%T|%Z|%k").splitlines()
        jobs = [Job(*row.split("|", 3)) for row in rows]
        return [job for job in jobs if folder is None or job.folder == str(folder)]

    def alive(self, folder: Path) -> list[Job]:
        """Jobs submitted in a folder that have not ended."""
        return self.jobs(folder, states="PENDING,RUNNING,COMPLETING,CONFIGURING,SUSPENDED")


def command(*words: str) -> str:
    """Run a Slurm command; what it prints. A short wait for a controller that is busy."""
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=60).stdout


def why_not() -> str | None:
    """Why no Slurm can be started here, and what to do; None if it can."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        return f"needs {', '.join(missing)}: as root, apt-get install --no-install-recommends slurm-wlm munge"
    if os.geteuid() != 0:
        return "needs root, to start the daemons of a Slurm (slurmctld, slurmd, munged)"
    if (ETC / "slurm.conf").exists() and not _ours(ETC / "slurm.conf"):
        return f"{ETC}/slurm.conf is there: the tests do not touch a Slurm that this machine has already"
    return None


@contextmanager
def running_slurm() -> Iterator[Slurm]:
    """Bring a Slurm up, and take it down with all its jobs. Skips the test where that cannot be done."""
    if reason := why_not():
        pytest.skip(reason)
    with open("/tmp/specloss-slurm.lock", "w") as lock:  # one at a time on a machine
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = Path(tempfile.mkdtemp(prefix="specloss-slurm-", dir="/tmp"))
        folder.chmod(0o755)  # users other than root submit jobs
        try:
            yield _start(folder)
        finally:
            _stop(folder)


def _start(folder: Path) -> Slurm:
    for name in ("munge", "spool", "state", "log", "dev"):
        (folder / name).mkdir(mode=0o755)
    host = socket.gethostname().partition(".")[0]
    values = {
        "folder": folder,
        "host": host,
        "cpus": CPUS,
        "gpus": GPUS,
        "last_gpu": GPUS - 1,
        "memory": psutil.virtual_memory().total // (1 << 20) - 512,
        "proctrack": os.environ.get("PROCTRACK", "linuxproc"),
        "slurmctld_port": _free_port(),
        "slurmd_port": _free_port(),
    }
    ETC.mkdir(exist_ok=True)
    for name in ("slurm.conf", "gres.conf", "cgroup.conf"):
        text = string.Template((TEMPLATES / f"{name}.in").read_text()).substitute(values)
        (folder / name).write_text(text)
        (ETC / name).unlink(missing_ok=True)
        (ETC / name).symlink_to(folder / name)
    for gpu in range(GPUS):
        os.mknod(folder / f"dev/fakegpu{gpu}", 0o666 | 0o020000, os.makedev(1, 3))  # as /dev/null
    key = folder / "munge/key"
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o400)
    munge = {"key-file": key, "socket": folder / "munge/socket", "pid-file": folder / "munged.pid"}
    munge |= {"log-file": folder / "log/munged.log", "seed-file": folder / "munge/seed"}
    command("munged", "--force", "--num-threads=2", *(f"--{name}={path}" for name, path in munge.items()))
    command("slurmctld")
    command("slurmd", "-N", host)
    deadline = time.monotonic() + 30
    while (state := _node_state()) not in ("idle", "mixed", "allocated"):
        if time.monotonic() > deadline:
            log = (folder / "log/slurmctld.log").read_text()[-1000:]
            raise RuntimeError(f"Slurm did not come up; its node is {state or 'unknown'}\n{log}")
        time.sleep(0.1)
    return Slurm(folder, host)


def _stop(folder: Path) -> None:
    with suppress(subprocess.SubprocessError, OSError):
        command("scancel", "--state=PENDING,RUNNING", "--user=root")
        command("scancel", "--state=PENDING,RUNNING", "--user=nobody")
        deadline = time.monotonic() + 15
        while command("squeue", "-h") and time.monotonic() < deadline:
            time.sleep(0.1)
    for name in ("slurmd", "slurmctld", "munged"):
        with suppress(FileNotFoundError, psutil.NoSuchProcess):
            process = psutil.Process(int((folder / f"{name}.pid").read_text()))
            process.terminate()
            _, alive = psutil.wait_procs([process], timeout=10)
            for one in alive:
                one.kill()
    for process in psutil.process_iter():  # a job that was just being started when it was cancelled
        with suppress(psutil.Error):
            if process.cwd().startswith(str(folder)):
                for one in (process, *process.children(recursive=True)):
                    one.kill()
    for path in ETC.glob("*.conf"):
        if path.is_symlink() and path.readlink().parent == folder:
            path.unlink()
    shutil.rmtree(folder, ignore_errors=True)


def _ours(path: Path) -> bool:
    """Whether an earlier run of the tests left it, killed before it could clean up."""
    return path.is_symlink() and path.readlink().parent.name.startswith("specloss-slurm-")


def _node_state() -> str:
    shown = subprocess.run(["sinfo", "-h", "-o", "%T"], capture_output=True, text=True)
    return shown.stdout.strip()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
