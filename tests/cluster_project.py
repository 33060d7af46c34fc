"""A project's root as a fresh clone has it, with a small grid: what the Slurm tests run Snakemake in."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
import psutil
import pyarrow.parquet as pq
import yaml
from places import DEMO, ROOT

from specloss.experiment.plan import Plan, make_plan

BIN = Path(sys.executable).parent
PACED = Path(__file__).parent / "workflow/paced_decoding"
PROFILE = "workflow/profiles/slurm/config.yaml"
# a site's own values, and less waiting than a cluster would want
SITE = {
    "cells_per_job: 60": "cells_per_job: 3",
    "cpus_per_task: 2": "cpus_per_task: 1",
    "mem_mb: 8000": "mem_mb: 1000",
    "status-checks: 10": "status-checks: 2",
}
SUMMARY = "results/grid/summary.parquet"
TIMES = ["seconds", "ds", "ds_eagle", "tokens_per_s", "draft_share", "verify_share", "overhead_share"]


@dataclass
class Project:
    """A working directory with the workflow and a grid of six cells: two Slurm jobs at three cells each."""

    folder: Path
    config: dict
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def plan(self) -> Plan:
        return make_plan(self.config, "grid.yaml", check=False)

    def write_config(self) -> None:
        (self.folder / "grid.yaml").write_text(yaml.safe_dump(self.config))

    def start(self, *arguments: str, slurm: bool = True, prefix: Sequence[str] = ()) -> Run:
        """Snakemake, in a process group of its own as a shell would start it, on the summary if nothing else.

        `prefix`: a command that runs it.
        """
        self.write_config()
        command = [str(BIN / "snakemake"), "--cores", "all", "--configfile", "grid.yaml"]
        command += ["--profile", "slurm"] if slurm else ["--rerun-incomplete", "--keep-going", "--retries", "1"]
        command += arguments or [SUMMARY]
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "SLURM_", "SPECLOSS_"))}
        environment = inherited | {"OMP_NUM_THREADS": "1", "PWD": str(self.folder)} | self.environment
        log = self.folder.parent / f"{self.folder.name}-{time.monotonic_ns()}.log"
        with log.open("w") as file:
            process = subprocess.Popen(
                [*prefix, *command],
                cwd=self.folder,
                env=environment,
                stdout=file,
                stderr=file,
                start_new_session=True,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored by what runs in background
            )
        return Run(process, log)

    def run(self, *arguments: str, fails: bool = False, slurm: bool = True, seconds: float = 900) -> str:
        """Run to the end; what was said."""
        run = self.start(*arguments, slurm=slurm)
        said = run.end(seconds)
        assert (run.process.returncode != 0) == fails, said
        return said

    def finished(self) -> dict[str, int]:
        """Time stamps of the finished cells, by id."""
        cells = {cell.id: self.folder / cell.folder(self.plan.results) / "cell.json" for cell in self.plan.cells}
        return {name: path.stat().st_mtime_ns for name, path in cells.items() if path.exists()}

    def tokens(self) -> dict[tuple[str, str], list[int]]:
        """Output of every problem of every cell."""
        outputs = {}
        for cell in self.plan.cells:
            path = self.folder / cell.folder(self.plan.results) / "generations.parquet"
            rows = pq.read_table(path, partitioning=None, columns=["problem", "token_ids"]).to_pylist()
            outputs |= {(cell.id, row["problem"]): row["token_ids"] for row in rows}
        return outputs

    def table(self) -> pd.DataFrame:
        """All numbers that tables are made of, but for times."""
        return pd.read_parquet(self.folder / SUMMARY).drop(columns=TIMES)

    def said(self) -> list[str]:
        """What decode jobs wrote to their logs."""
        return [line for log in self.logs() for line in log.read_text().splitlines()]

    def logs(self) -> list[Path]:
        """A log for each decode job."""
        return sorted((self.folder / "results/grid/logs/decode").glob("*.log"))

    def heads(self) -> list[Path]:
        """Records of the Ray heads that decode jobs of this project have; their folders go with them."""
        found = []
        for record in Path(self.environment["TMPDIR"]).glob("specloss-*/*/head.json"):
            with suppress(FileNotFoundError):
                record.read_text()
                found.append(record)
        return found

    def processes(self) -> list[psutil.Process]:
        """Whatever was started from here and still runs."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get("TMPDIR") == self.environment["TMPDIR"]:
                    found.append(process)
        return found

    def workers(self) -> list[psutil.Process]:
        """The processes of actors that hold a pair."""
        found = []
        for process in self.processes():
            with suppress(psutil.Error, IndexError):
                if "PairWorker" in process.cmdline()[0]:
                    found.append(process)
        return found

    def assert_nothing_is_left(self, seconds: float = 30) -> None:
        """No process of a run here lives, and no state of a Ray head is on the disk."""
        wait_for(lambda: not self.processes(), seconds, lambda: str([p.cmdline() for p in self.processes()]))
        if os.environ.get("PROCTRACK") == "cgroup":
            return  # a step takes its processes along when it ends; the next head here sweeps its folder
        assert not [path for path in Path(self.environment["TMPDIR"]).glob("specloss-*/*") if path.is_dir()]


@dataclass
class Run:
    """A Snakemake at work."""

    process: subprocess.Popen
    log: Path

    def said(self) -> str:
        return self.log.read_text()

    def end(self, seconds: float = 900) -> str:
        """Wait for its end; what it said."""
        self.process.wait(seconds)
        return self.said()

    def interrupt(self) -> None:
        """As Ctrl-C in a terminal."""
        os.killpg(self.process.pid, signal.SIGINT)

    def wait_until(self, condition: Callable[[], object], seconds: float = 300) -> None:
        """Wait for something to happen while it works."""
        wait_for(lambda: condition() or self.process.poll() is not None, seconds, self.said)
        assert self.process.poll() is None, self.said()


def make_project(folder: Path, temporary: Path, **config: object) -> Project:
    """`temporary`: a short path, TMPDIR of all that is started, which it is known by."""
    folder.mkdir()
    shutil.copytree(ROOT / "workflow", folder / "workflow", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("Snakefile", "slurm"):
        shutil.copy(ROOT / name, folder / name, follow_symlinks=False)
    (folder / "config").symlink_to(ROOT / "config")
    profile = (folder / PROFILE).read_text()
    for ours, theirs in SITE.items():
        assert ours in profile
        profile = profile.replace(ours, theirs)
    (folder / PROFILE).write_text(profile)
    pair = {"target": str(DEMO / "target"), "draft": str(DEMO / "draft"), "dtype": "float32", "device": "cpu"}
    benchmarks = {
        f"chain_l{level}": {"task": "chain", "options": {"level": level, "problems": 4}, "max_new_tokens": 24}
        for level in (2, 6)
    }
    grid = {
        "name": "grid",
        "pairs": {"demo": pair},
        "benchmarks": benchmarks,
        "methods": {"lenience": {"params": [0.4, 0.8]}},
        "seeds": [0],
        "decoding": {"gamma": 8, "temperature": 0.7},
    }
    return Project(folder, grid | config, {"TMPDIR": str(temporary)})


def pace(project: Project, seconds: float, fault: str = "") -> None:
    """Let every task of the project's actors take that long, and cells with `fault` in their label fail."""
    path = os.pathsep.join([str(PACED), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    project.environment |= {"PYTHONPATH": path, "SPECLOSS_TEST_PACE": str(seconds), "SPECLOSS_TEST_FAULT": fault}


def wait_for(condition: Callable[[], object], seconds: float = 30, why: Callable[[], str] = lambda: "") -> None:
    """Fail if it does not come true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain: {why()}"
        time.sleep(0.1)
