"""Which decodes are recorded and where their traces are. No heavy imports: the workflow imports this while parsing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from specloss.common.files import config_hash
from specloss.experiment.cells import Cell
from specloss.experiment.plan import Plan, outline_of, plan_of
from specloss.screen import TRACE, ScreenError

POLICY = "standard_sd"  # the rule that is run while recording; every experiment has it


def read_plan(path: Path, check: bool = True) -> Plan:
    """The plan of a config (YAML) or of an `experiment.json`, by `make_plan`. ConfigError, in one line.

    ScreenError if the experiment drafts trees: what is recorded are p and q along chains.
    """
    return _of_chains(plan_of(path, check), path)


def read_outline(path: Path) -> Plan:
    """The plan without its cells, for code that only reads results."""
    return _of_chains(outline_of(path), path)


def _of_chains(plan: Plan, path: Path) -> Plan:
    if plan.experiment.decoding.tree is not None:
        raise ScreenError(f"{path}: its pairs draft trees, and only a decode of chains can be recorded and screened")
    return plan


def chosen_places(plan: Plan, pair: str | None, benchmarks: Sequence[str]) -> list[tuple[str, str]]:
    """(pair, benchmark) of every requested trace; all if nothing is named. ScreenError for an unknown name."""
    pairs = [pair] if pair else list(plan.experiment.pairs)
    places = [(p, b) for p in pairs for b in (benchmarks or plan.experiment.benchmarks)]
    for place in places:
        tracing_cell(plan, *place)
    return places


def tracing_cell(plan: Plan, pair: str, benchmark: str) -> Cell:
    """The cell whose decode is recorded: lossless, first seed. ScreenError names what the experiment does not have."""
    for kind, name, known in (
        ("pair", pair, plan.experiment.pairs),
        ("benchmark", benchmark, plan.experiment.benchmarks),
    ):
        if name not in known:
            raise ScreenError(f"{plan.experiment.name} has no {kind} {name!r}; it has {', '.join(known)}")
    seed = plan.experiment.seeds[0]
    return next(
        cell
        for cell in plan.cells
        if (cell.pair, cell.benchmark, cell.method, cell.seed) == (pair, benchmark, POLICY, seed)
    )


def trace_path(plan: Plan, pair: str, benchmark: str) -> Path:
    """Where the trace of a pair on a benchmark is."""
    return plan.folder / "screen" / f"pair={pair}" / f"benchmark={benchmark}" / TRACE


def trace_key(cell: Cell, top_k: int | str) -> str:
    """Config hash of a trace: the same key means the same file on the same device type."""
    return config_hash({"cell": cell.key, "top_k": top_k})


def trace_files(plan: Plan, pair: str) -> list[str]:
    """The traces of a pair on all benchmarks."""
    return [str(trace_path(plan, pair, benchmark)) for benchmark in plan.experiment.benchmarks]


def trace_keys(plan: Plan, pair: str) -> list[str]:
    """What determines each of `trace_files`, as the config has it."""
    top_k = plan.experiment.screen.top_k
    return [trace_key(tracing_cell(plan, pair, benchmark), top_k) for benchmark in plan.experiment.benchmarks]


def parse_top_k(text: str) -> int | str:
    """A whole number of at least 1, or `full`. ScreenError for anything else."""
    if text == "full":
        return text
    if not text.isdecimal() or int(text) < 1:
        raise ScreenError(f"top-k must be 'full' or a whole number of at least 1, got {text!r}")
    return int(text)
