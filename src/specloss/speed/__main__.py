"""`make bench`: how fast decoding is, against transformers' own assisted generation, and what the workflow adds.

Everything decodes the same prompts with the same target and temperature. Contenders take turns within a round, so that
a machine that slows down slows all of them; each ratio is taken within a round, and its median over the rounds is
printed with the smallest and the largest. A shorter round before the first warms everything up and is not counted.

    python -m specloss.speed                  chains (minutes)
    python -m specloss.speed --trees          trees against chains and the target alone (minutes)
    python -m specloss.speed --workflow       seconds that Snakemake and Ray add to each cell (minutes)
    python -m specloss.speed --dry-run 5000 50000        snakemake -n on grids of so many cells (minutes)
"""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Sequence

import specloss
from specloss.benchmarks import get_benchmark
from specloss.common.provenance import code_version, package_versions
from specloss.speed.chains import measure_decoding, report_decoding
from specloss.speed.contenders import TEMPERATURE
from specloss.speed.dry_run import measure_dry_runs, report_dry_runs
from specloss.speed.trees import measure_trees, report_trees
from specloss.speed.workflow import DEMO, measure_workflow, report_workflow

LEVELS = (2, 4, 6, 8)
TREE = {"total_token": 24, "depth": 5, "top_k": 4}


def _machine() -> list[str]:
    commit = code_version()["commit"] or "no commit known"
    versions = ", ".join(f"{name} {version}" for name, version in package_versions().items())
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    return [
        f"specloss {specloss.__version__} ({commit[:12]}); {versions}",
        f"{platform.machine()} {platform.system()}, {len(os.sched_getaffinity(0))} cores, load {load:.1f}",
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="specloss.speed", description=__doc__.partition("\n")[0])
    parser.add_argument("--trees", action="store_true", help="measure trees, drafted by --head")
    parser.add_argument("--workflow", action="store_true", help="measure the workflow instead of decoding")
    parser.add_argument("--dry-run", type=int, nargs="+", metavar="CELLS", help="measure snakemake -n instead")
    parser.add_argument("--target", default=str(DEMO / "target"), help="the target model")
    parser.add_argument("--draft", default=str(DEMO / "draft"), help="the draft model")
    parser.add_argument("--head", default=str(DEMO / "eagle3"), help="the EAGLE-3 head for --trees")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--prompts", type=int, default=160, help="prompts, a quarter from each level")
    parser.add_argument("--rounds", type=int, default=3, help="rounds")
    parser.add_argument("--gamma", type=int, default=8, help="drafted tokens per block")
    parser.add_argument(
        "--threads", type=int, default=1, help="torch threads; the demo's models are too small for more"
    )
    options = parser.parse_args(arguments)
    if options.dry_run:
        print("\n".join([*_machine(), "", *report_dry_runs(measure_dry_runs(options.dry_run))]))
        return
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
    drafting = f"gamma {options.gamma}"
    if options.trees:
        trees = specloss.load_pair(kind="eagle3", target=options.target, draft=options.head, device=options.device)
        measured = measure_trees(pair, trees, prompts, options.gamma, TREE, options.rounds)
        report = report_trees(measured)
        drafting += f", trees of {TREE['total_token']} nodes, depth {TREE['depth']}, top_k {TREE['top_k']}"
    else:
        report = report_decoding(measure_decoding(pair, prompts, options.gamma, options.rounds))
    made = pair.provenance()
    setting = (
        f"{len(prompts)} prompts, {drafting}, temperature {TEMPERATURE}, standard_sd; {made['device']}, "
        f"{made['dtype']}, {torch.get_num_threads()} torch thread(s)"
    )
    print("\n".join([*_machine(), setting, "", *report]))


if __name__ == "__main__":
    main()
