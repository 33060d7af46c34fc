"""SYNTHETIC cells: files of the real shape with made-up numbers. No model runs; nothing here is a result.

Block efficiency and accuracy of each setting are put in by hand, so that tests know what the analysis must find.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from specloss.experiment.cells import Cell
from specloss.experiment.schema import GENERATIONS, GRADED, STEPS

END = 0  # id of the end of sequence
GAMMA = 4
GRIDS = {
    "standard_sd": [None],
    "min_p_sampling": [0.1, 0.5],
    "spec_cascade": [0.1, 0.5],
    "lenience": [0.2, 0.8],
    "cos": [0.2, 0.4, 0.8],
}
MATCHED = {
    "spec_cascade": "min_p_sampling",
    "spec_cascade_maximal": "min_p_sampling",
    "lenience": "standard_sd",
    "cos": "standard_sd",
}
RULES = {"spec_cascade_maximal": ("spec_cascade", {"coupling": "maximal"})}  # labels that are not the rule's name
LEVELS = [2, 4, 6]


@dataclass
class Effect:
    """What a setting does on a level: added accuracy (share of problems) and acceptance probability of one token."""

    accuracy: float
    acceptance: float


def effect(method: str, param: float | None, level: int) -> Effect:
    """The made-up truth: CoS trades accuracy for acceptance, the gate's loss grows with the level, the rest is null."""
    if method == "cos":
        return Effect(-0.6 * param, 0.75 + 0.2 * param)
    if method == "spec_cascade":
        return Effect(-0.08 * (level - 2), 0.75 - (0.3 if param == 0.5 else 0.0))
    if method == "lenience":
        return Effect(0.0, 0.75 + 0.1 * (1 - param))
    return Effect(0.0, 0.75)


def write_experiment(
    root: Path, problems: int = 60, seeds: tuple[int, ...] = (0, 1, 2), grids: dict | None = None, gamma: int = GAMMA
) -> tuple[Path, Path]:
    """Write all cells of a made-up experiment; returns (experiment.json, results)."""
    grids = grids or GRIDS
    config = {
        "name": "synthetic",
        "pairs": {"made_up": {"target": "none", "draft": "none"}},
        "benchmarks": {f"level_{n}": {"task": "chain", "options": {"level": n}} for n in LEVELS},
        "methods": {method: {"params": grid} for method, grid in grids.items()},
        "seeds": list(seeds),
        "decoding": {"gamma": gamma},
        "results": "results",
    }
    settings = [
        {
            "method": m,
            "rule": RULES.get(m, (m, {}))[0],
            "param": p,
            "options": RULES.get(m, (m, {}))[1],
            "lossless": m in ("standard_sd", "blockwise"),
            "matched": [MATCHED[m], _matched(m, p)] if m in MATCHED else None,
        }
        for m, grid in grids.items()
        for p in grid
    ]
    cells = [
        Cell(
            "synthetic",
            "made_up",
            f"level_{level}",
            s["method"],
            s["param"],
            seed,
            {"rule": s["rule"], "options": s["options"]},
        )
        for level in LEVELS
        for seed in seeds
        for s in settings
    ]
    results = root / "results"
    for number, cell in enumerate(cells):
        write_cell(cell, results, problems, np.random.default_rng(number), gamma)
    path = results / "synthetic" / "experiment.json"
    content = {
        "config": config,
        "source": "synthetic.yaml",
        "cells": [c.to_dict() for c in cells],
        "settings": settings,
    }
    path.write_text(json.dumps(content))
    return path, results


def as_trees(experiment_json: Path) -> Path:
    """The same experiment, said to be of an EAGLE-3 head whose trees have as many levels as the blocks had tokens."""
    content = json.loads(experiment_json.read_text())
    for pair in content["config"]["pairs"].values():
        pair["kind"] = "eagle3"
    levels = content["config"]["decoding"].pop("gamma")
    content["config"]["decoding"]["tree"] = {"total_token": 20, "depth": levels - 1, "top_k": 4}
    path = experiment_json.with_name("trees.json")
    path.write_text(json.dumps(content))
    return path


def _matched(method: str, param: float | None) -> float | None:
    return None if MATCHED[method] == "standard_sd" else param


def write_cell(cell: Cell, results: Path, problems: int, rng: np.random.Generator, gamma: int) -> None:
    """One cell with random blocks: each token is kept with the setting's acceptance probability."""
    level = int(cell.benchmark.removeprefix("level_"))
    truth = effect(cell.method, cell.param, level)
    base = 0.9 - 0.05 * level
    steps, generations, graded = [], [], []
    for index in range(problems):
        position, step = 0, 0
        while position < 5 * level:
            accepted = int(np.argmax(np.append(rng.random(gamma) >= truth.acceptance, True)))
            steps.append(step_row(index, step, position, gamma, accepted, truth.acceptance))
            position, step = position + accepted + 1, step + 1
        steps[-1]["stop"] = "length"
        generations.append(generation_row(index, calls=step, stop="length"))
        graded.append(graded_row(index, correct=bool(rng.random() < base + truth.accuracy), parsed=rng.random() < 0.98))
    save_cell(cell, results, steps, generations, graded)


def save_cell(cell: Cell, results: Path, steps: list[dict], generations: list[dict], graded: list[dict]) -> Path:
    """Write the four files of a cell from rows."""
    folder = cell.folder(results)
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(steps, STEPS), folder / "steps.parquet")
    pq.write_table(pa.Table.from_pylist(generations, GENERATIONS), folder / "generations.parquet")
    pq.write_table(pa.Table.from_pylist(graded, GRADED), folder / "graded.parquet")
    run = {"device": "none", "dtype": "none", "seed": cell.seed, "decode_seconds": 1.0, "packages": {"synthetic": "1"}}
    (folder / "cell.json").write_text(json.dumps({"key": cell.key, "cell": cell.to_dict(), "run": run}))
    return folder


def step_row(index: int, step: int, position: int, drafted: int, accepted: int, acceptance: float, **more) -> dict:
    """One target call; one number stands for the acceptance probability of every drafted token."""
    flat = [acceptance] * drafted
    return {
        "problem": f"p{index}",
        "index": index,
        "sample": 0,
        "step": step,
        "position": position,
        "drafted": drafted,
        "accepted": accepted,
        "expected_accepted": sum(acceptance**k for k in range(1, drafted + 1)),
        "token": [7] * drafted,
        "p": flat,
        "q": flat,
        "accept_prob": flat,
        "entropy_p": [0.5] * drafted,
        "tv_pq": [1 - acceptance] * drafted,
        "alpha": flat,
        "allowed_mass": [1.0] * drafted,
        "tv_pi_p": [0.1] * drafted,
        "tv_pi_target": [0.05] * drafted,
        "kl_pi_p": [0.02] * drafted,
        "overshoot": [0.1] * drafted,
        "coupling_loss": [0.0] * drafted,
        "emitted": [7] * (accepted + 1),
        "stop": None,
        "draft_ms": 2.0,
        "verify_ms": 1.0,
        "overhead_ms": 0.5,
    } | more


def generation_row(index: int, calls: int, stop: str, token_ids: list[int] | None = None) -> dict:
    return {
        "problem": f"p{index}",
        "index": index,
        "sample": 0,
        "prompt": "",
        "prompt_ids": [],
        "reference": "",
        "token_ids": token_ids or [7],
        "text": "",
        "stop": stop,
        "target_calls": calls,
    }


def graded_row(index: int, correct: bool, parsed: bool = True) -> dict:
    return {
        "problem": f"p{index}",
        "index": index,
        "sample": 0,
        "correct": correct and parsed,
        "parsed": parsed,
        "answer": "",
    }
