"""`make bench`: how fast decoding is, against transformers' own assisted generation, and what the workflow adds.

Everything decodes the same prompts with the same pair, gamma and temperature. Contenders take turns within a round, so
that a machine that slows down slows all of them; each ratio is taken within a round, and its median over the rounds is
printed with the smallest and the largest. A shorter round before the first warms everything up and is not counted.

    python -m specloss.bench                  decoding (minutes)
    python -m specloss.bench --workflow       seconds that Snakemake and Ray add to each cell (minutes)
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

import specloss
from specloss.benchmarks import get_benchmark
from specloss.cells import GRADED, META
from specloss.cluster.provenance import code_version, package_versions

if TYPE_CHECKING:
    from specloss import LoadedPair

ROOT = Path(__file__).parents[2]
DEMO = Path(__file__).parent / "models" / "demo"
LEVELS = (2, 4, 6, 8)
TEMPERATURE = 0.7
MAX_NEW_TOKENS = 160


@dataclass(frozen=True, slots=True)
class Measured:
    """One contender in one round. Seconds: wall, CPU, and those that the trace knows: in both forwards, in the loop."""

    tokens: int
    target_calls: int
    seconds: float
    cpu_seconds: float
    forwards: float = float("nan")
    loop: float = float("nan")

    @property
    def speed(self) -> float:
        """Tokens/s."""
        return self.tokens / self.seconds

    @property
    def cpu_speed(self) -> float:
        """Tokens per second of this process's CPU time."""
        return self.tokens / self.cpu_seconds

    @property
    def tokens_per_call(self) -> float:
        """Output tokens for each forward of the target, prefill included."""
        return self.tokens / self.target_calls

    @property
    def outside(self) -> float:
        """Share of the wall time that is outside of the two models' forwards."""
        return 1 - self.forwards / self.seconds


Contender = Callable[[Sequence[str], int], Measured]


def measure_decoding(pair: LoadedPair, prompts: Sequence[str], gamma: int, rounds: int) -> dict[str, list[Measured]]:
    """Every contender's measurements, a round after another."""
    contenders: dict[str, Contender] = {
        "transformers, batch 1": _transformers(pair, gamma),
        "specloss, batch 1": _specloss(pair, gamma, 1, "full"),
        "specloss, batch 1, light trace": _specloss(pair, gamma, 1, "light"),
        "specloss, batch 32": _specloss(pair, gamma, 32, "full"),
        "specloss, batch 32, light trace": _specloss(pair, gamma, 32, "light"),
    }
    for number, contender in enumerate(contenders.values(), start=1):
        _progress(f"warming up, {number} of {len(contenders)}")
        contender(prompts[:: max(1, len(prompts) // 8)], 0)
    measured: dict[str, list[Measured]] = {name: [] for name in contenders}
    for round_ in range(rounds):
        for name, contender in contenders.items():
            _progress(f"round {round_ + 1} of {rounds}: {name}")
            measured[name].append(contender(prompts, round_))
    return measured


def _specloss(pair: LoadedPair, gamma: int, batch_size: int, trace: str) -> Contender:
    def run(prompts: Sequence[str], seed: int) -> Measured:
        begin = time.perf_counter(), time.process_time()
        decoded = specloss.decode(
            pair,
            prompts,
            gamma=gamma,
            temperature=TEMPERATURE,
            max_new_tokens=MAX_NEW_TOKENS,
            seed=seed,
            batch_size=batch_size,
            trace=trace,
        )
        seconds = time.perf_counter() - begin[0], time.process_time() - begin[1]
        draft, verify, overhead = (
            sum(decoded.steps[column].to_pylist()) / 1e3 for column in ("draft_ms", "verify_ms", "overhead_ms")
        )
        tokens = sum(map(len, decoded.token_ids))
        # a call for each prompt and each of its blocks; in a batch they share forwards
        target_calls = decoded.steps.num_rows + len(prompts)
        return Measured(tokens, target_calls, *seconds, draft + verify, draft + verify + overhead)

    return run


def _transformers(pair: LoadedPair, gamma: int) -> Contender:
    """Assisted generation as its documentation shows it, with a constant gamma; it takes one prompt at a time."""

    def run(prompts: Sequence[str], seed: int) -> Measured:
        import torch

        config = pair.draft.generation_config
        config.num_assistant_tokens = gamma
        config.num_assistant_tokens_schedule = "constant"
        config.assistant_confidence_threshold = 0.0
        torch.manual_seed(seed)
        tokens = 0
        with _counting(pair.target) as calls, torch.inference_mode():
            begin = time.perf_counter(), time.process_time()
            for prompt in prompts:
                inputs = pair.tokenizer(prompt, return_tensors="pt").to(pair.device)
                output = pair.target.generate(
                    input_ids=inputs.input_ids,
                    attention_mask=inputs.attention_mask,
                    assistant_model=pair.draft,
                    do_sample=True,
                    temperature=TEMPERATURE,
                    top_k=0,
                    top_p=1.0,
                    max_new_tokens=MAX_NEW_TOKENS,
                    eos_token_id=list(pair.eos_ids),
                    pad_token_id=pair.eos_ids[0],
                )
                tokens += output.shape[1] - inputs.input_ids.shape[1]
                pair.tokenizer.decode(output[0], skip_special_tokens=True)
            seconds = time.perf_counter() - begin[0], time.process_time() - begin[1]
        return Measured(tokens, calls[0], *seconds)

    return run


@contextmanager
def _counting(model: Any) -> Iterator[list[int]]:
    """A list whose one number is how often the model's forward has been called inside."""
    calls = [0]

    def count(*_: Any) -> None:
        calls[0] += 1

    hook = model.register_forward_pre_hook(count)
    try:
        yield calls
    finally:
        hook.remove()


def report_decoding(measured: dict[str, list[Measured]]) -> list[str]:
    """Lines to print."""
    lines = [f"{'':34}{'tokens/s':>10}{'tokens/CPU s':>14}{'tokens':>8}{'tokens/target call':>20}"]
    for name, rounds in measured.items():
        speed, cpu_speed, tokens, calls = (
            statistics.median(getattr(one, key) for one in rounds)
            for key in ("speed", "cpu_speed", "tokens", "tokens_per_call")
        )
        lines.append(f"{name:34}{speed:10.0f}{cpu_speed:14.0f}{tokens:8.0f}{calls:20.2f}")

    def ratio(over: str, under: str, of: Callable[[Measured], float]) -> str:
        pairs = zip(measured[over], measured[under], strict=True)
        return _spread([of(one) / of(other) for one, other in pairs], "{:.2f}x")

    def line(label: str, value: str, more: str = "") -> None:
        lines.append(f"{label:44}{value:26}{more}".rstrip())

    one, many, theirs = "specloss, batch 1", "specloss, batch 32", "transformers, batch 1"
    lines += ["", "median over the rounds (smallest to largest)"]
    line("batch 1 against transformers", ratio(one, theirs, lambda m: m.speed), "aim: 1.5x or more")
    line("  by CPU time", ratio(one, theirs, lambda m: m.cpu_speed))
    line("  in target calls/s", ratio(one, theirs, lambda m: m.target_calls / m.seconds))
    line("batch 32 against batch 1", ratio(many, one, lambda m: m.speed), "aim: 6x or more")
    line("  by CPU time", ratio(many, one, lambda m: m.cpu_speed))
    for name in (one, many):
        label = name.removeprefix("specloss, ")
        light = f"{name}, light trace"
        line(f"outside both forwards, {label}", _percent(m.outside for m in measured[name]), "aim: 15 % or less")
        line("  of the loop alone", _percent(1 - m.forwards / m.loop for m in measured[name]))
        line("  of the loop alone, light trace", _percent(1 - m.forwards / m.loop for m in measured[light]))
        line(f"full against light trace, {label}", ratio(name, light, lambda m: m.speed))
    return [*lines, "", *_LEGEND.splitlines()]


_LEGEND = """\
Tokens/s: output tokens by the wall time of the whole call, tokenizing and making texts included. Ratios are of tokens/s
if nothing else is said; CPU time is this process's, and tells more than wall time while the machine does other things.
Outside both forwards: share of that wall time that is not within calls of the target or the draft (prefill counts as
forward): warping, drawing, verification, trace, masks, cache bookkeeping between the calls, and the tables at the end.
Of the loop alone: from steps.parquet, overhead_ms / (draft_ms + verify_ms + overhead_ms).
Tokens/target call: a prefill counts as a call; transformers merges it with a prompt's first block, specloss does not.
In a batch, each row's part in a forward counts as a call of its own."""


def _percent(shares: Iterable[float]) -> str:
    return _spread([100 * share for share in shares], "{:.1f}%")


def _spread(values: Sequence[float], form: str) -> str:
    low, middle, high = (form.format(value) for value in (min(values), statistics.median(values), max(values)))
    return f"{middle} ({low} to {high})"


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
    _progress(f"workflow: {cells} cells, {cells_per_job} in a job")
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
        (folder / "bench.yaml").write_text(yaml.safe_dump(config))
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


def _machine() -> list[str]:
    commit = code_version()["commit"] or "no commit known"
    versions = ", ".join(f"{name} {version}" for name, version in package_versions().items())
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    return [
        f"specloss {specloss.__version__} ({commit[:12]}); {versions}",
        f"{platform.machine()} {platform.system()}, {len(os.sched_getaffinity(0))} cores, load {load:.1f}",
    ]


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="specloss.bench", description=__doc__.partition("\n")[0])
    parser.add_argument("--workflow", action="store_true", help="measure the workflow instead of decoding")
    parser.add_argument("--target", default=str(DEMO / "target"), help="the target model")
    parser.add_argument("--draft", default=str(DEMO / "draft"), help="the draft model")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--prompts", type=int, default=160, help="prompts, a quarter from each level")
    parser.add_argument("--rounds", type=int, default=3, help="rounds")
    parser.add_argument("--gamma", type=int, default=8, help="drafted tokens per block")
    parser.add_argument(
        "--threads", type=int, default=1, help="torch threads; the demo's models are too small for more"
    )
    options = parser.parse_args(arguments)
    if options.workflow:
        runs = measure_workflow()
        print("\n".join([*_machine(), "", *report_workflow(runs)]))
        return
    import torch
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_num_threads(options.threads)
    pair = specloss.load_pair(target=options.target, draft=options.draft, device=options.device)
    load = get_benchmark("chain").load
    each = max(1, options.prompts // len(LEVELS))
    prompts = [item.prompt for level in LEVELS for item in load(level=level, problems=each)]
    measured = measure_decoding(pair, prompts, options.gamma, options.rounds)
    made = pair.provenance()
    setting = (
        f"{len(prompts)} prompts, gamma {options.gamma}, temperature {TEMPERATURE}, standard_sd; {made['device']}, "
        f"{made['dtype']}, {torch.get_num_threads()} torch thread(s)"
    )
    print("\n".join([*_machine(), setting, "", *report_decoding(measured)]))


if __name__ == "__main__":
    main()
