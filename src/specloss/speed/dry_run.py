"""How long Snakemake takes to plan a large grid before its first job."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from specloss.common.yamlfile import yaml_text
from specloss.speed.contenders import TEMPERATURE, progress
from specloss.speed.workflow import DEMO, ROOT

SETTINGS, SEEDS = 50, 10  # of each benchmark; the lossless setting adds itself
AIMS = {5_000: 60, 50_000: 600}  # cells: seconds on two cores


@dataclass(frozen=True, slots=True)
class DryRun:
    """One `snakemake -n` on a grid that has not been started, in seconds."""

    cells: int
    wall: float
    cpu: float  # user and system, children included: what does not depend on a machine's other work
    memory: float  # GB, of the largest process


def measure_dry_runs(sizes: Sequence[int]) -> list[DryRun]:
    """A grid of about each number of cells: 50 settings x 10 seeds on as many benchmarks as that takes."""
    return [_dry_run(max(1, round(size / (SETTINGS * SEEDS)))) for size in sizes]


def _dry_run(benchmarks: int) -> DryRun:
    """In a folder of its own, by the profile that a cluster uses but for its executor, which a dry run never asks."""
    params = [round(0.02 * (index + 1), 2) for index in range(SETTINGS - 1)]
    chain = {"task": "chain", "max_new_tokens": 64}
    config = {
        "name": "grid",
        "pairs": {"demo": {"target": str(DEMO / "target"), "draft": str(DEMO / "draft"), "device": "cpu"}},
        "benchmarks": {
            f"chain_{n}": chain | {"options": {"level": 2, "problems": 4, "seed": n}} for n in range(benchmarks)
        },
        "methods": {"lenience": {"params": params}},
        "seeds": list(range(SEEDS)),
        "decoding": {"gamma": 8, "temperature": TEMPERATURE},
        "cluster": {"cells_per_job": 60},
    }
    cells = benchmarks * SETTINGS * SEEDS
    progress(f"snakemake -n: {cells} cells")
    with tempfile.TemporaryDirectory(prefix="specloss-bench-") as name:
        folder = Path(name)
        for part in ("Snakefile", "workflow"):
            (folder / part).symlink_to(ROOT / part)
        (folder / "grid.yaml").write_text(yaml_text(config))
        snakemake = [sys.executable, "-m", "snakemake", "-n", "--cores", "2", "--scheduler", "greedy"]
        snakemake += ["--quiet", "rules", "--configfile", "grid.yaml"]
        began = time.monotonic()
        with (folder / "log").open("w") as log:
            process = subprocess.Popen(snakemake, cwd=folder, stdout=log, stderr=log)
            _, status, used = os.wait4(process.pid, 0)  # for the use of this process alone
        process.returncode = os.waitstatus_to_exitcode(status)
        wall = time.monotonic() - began
        said = (folder / "log").read_text()
        if process.returncode or f"{cells} cells" not in said:
            raise SystemExit(f"snakemake -n failed:\n{said[-2000:]}")
    return DryRun(cells, wall, used.ru_utime + used.ru_stime, used.ru_maxrss / (1 << 20))


def report_dry_runs(runs: Sequence[DryRun]) -> list[str]:
    """Lines to print."""
    lines = [f"{'cells':>7}{'wall s':>9}{'CPU s':>9}{'CPU ms/cell':>13}{'GB':>6}"]
    for run in runs:
        aim = f"   aim: {AIMS[run.cells]} s or less" if run.cells in AIMS else ""
        each = 1000 * run.cpu / run.cells
        lines.append(f"{run.cells:7}{run.wall:9.1f}{run.cpu:9.1f}{each:13.2f}{run.memory:6.2f}{aim}")
    return lines
