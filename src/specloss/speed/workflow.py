"""What the real workflow adds to each cell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from specloss.common.yamlfile import yaml_text
from specloss.experiment.cells import GRADED, META
from specloss.speed.contenders import TEMPERATURE, progress

ROOT = Path(__file__).parents[3]
DEMO = Path(__file__).parents[1] / "models" / "demo"


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the real workflow on tiny cells, in seconds. One actor decodes, so decoding never overlaps itself."""

    cells: int
    cells_per_job: int
    start: float  # until the first cell is decoded, less its own decoding
    cells_wall: float  # from there until the last cell is graded
    cells_decode: float  # of that, decoding
    end: float  # the summary, ending Ray and Snakemake

    @property
    def added(self) -> float:
        """Seconds per cell in which nothing was decoded; the first one's are the start's."""
        return (self.cells_wall - self.cells_decode) / (self.cells - 1)


def measure_workflow() -> list[Run]:
    """Cells each in a job of its own, and all in one job."""
    return [_run_workflow(16, cells_per_job) for cells_per_job in (1, 16)]


def _run_workflow(cells: int, cells_per_job: int) -> Run:
    """Through `specloss run`, from nothing to the summary, in a folder of its own and so on a Ray head of its own."""
    progress(f"workflow: {cells} cells, {cells_per_job} in a job")
    config = {
        "name": "bench",
        "pairs": {"demo": {"target": str(DEMO / "target"), "draft": str(DEMO / "draft"), "device": "cpu"}},
        "benchmarks": {"chain": {"task": "chain", "options": {"level": 2, "problems": 4}, "max_new_tokens": 64}},
        "methods": {"standard_sd": {}, "lenience": {"params": [0.4]}},
        "seeds": list(range(cells // 2)),
        "decoding": {"gamma": 8, "temperature": TEMPERATURE},
        "cluster": {"actors": 1, "cells_per_job": cells_per_job},
    }
    with tempfile.TemporaryDirectory(prefix="specloss-bench-") as name:
        folder = Path(name)
        for part in ("Snakefile", "workflow"):
            (folder / part).symlink_to(ROOT / part)
        (folder / "bench.yaml").write_text(yaml_text(config))
        command = [sys.executable, "-m", "specloss.cli", "run", "bench.yaml", "--until", "summarise"]
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        began = time.time()  # the files' clock
        done = subprocess.run(command, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True)
        ended = time.time()
        made = folder / "results" / "bench" / "cells"
        metas = sorted(made.rglob(META), key=lambda path: path.stat().st_mtime)
        graded = [path.stat().st_mtime for path in made.rglob(GRADED)]
        if done.returncode or len(metas) != cells or len(graded) != cells:
            raise SystemExit(f"the workflow failed ({len(graded)} of {cells} cells):\n{done.stdout}{done.stderr}")
        decode = [json.loads(meta.read_text())["run"]["decode_seconds"] for meta in metas]
        first = metas[0].stat().st_mtime
    return Run(
        cells, cells_per_job, first - began - decode[0], max(graded) - first, sum(decode[1:]), ended - max(graded)
    )


def report_workflow(runs: Sequence[Run]) -> list[str]:
    """Lines to print."""
    lines = [f"{'cells':>5}{'a job':>7}{'start s':>9}{'cells s':>9}{'decoding s':>12}{'end s':>7}{'added s/cell':>14}"]
    lines += [
        f"{run.cells:5}{run.cells_per_job:7}{run.start:9.1f}{run.cells_wall:9.1f}{run.cells_decode:12.1f}{run.end:7.1f}"
        f"{run.added:14.2f}   aim: 3 s or less"
        for run in runs
    ]
    return [*lines, "", *_WORKFLOW_LEGEND.splitlines()]


_WORKFLOW_LEGEND = """\
Start, once for a run: Snakemake, the Ray head, loading the pair, to the first decoded cell (its decoding left out).
Cells: from there until the last cell is graded. Added: that time less the decode seconds recorded with the other cells,
for each of them: jobs, processes, connecting to Ray, transfers, files and grading. End: the summary, ending Ray."""
