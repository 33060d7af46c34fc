"""Decoding one cell, or a chunk of its problems, into its two tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from specloss.benchmarks import BenchmarkError, Item, get_benchmark
from specloss.common.files import file_hash
from specloss.experiment.cells import Cell
from specloss.experiment.schema import GENERATIONS, SYSTEM_TEXT

if TYPE_CHECKING:
    from specloss.decoding.recorder import Recorder
    from specloss.models.pair import LoadedPair


def load_items(cell: Cell) -> list[Item]:
    """The problems of the cell's benchmark, in their fixed order."""
    benchmark, files = cell.settings["benchmark"], cell.settings.get("files", {})
    for option, known in files.items():
        path = Path(benchmark["options"][option])
        if not path.exists():
            raise BenchmarkError(f"{path} is gone since the experiment was planned")
        if file_hash(path) != known:
            raise BenchmarkError(f"{path} has changed since the experiment was planned")
    return _load(benchmark["task"], json.dumps([benchmark["options"], files]))


@lru_cache(maxsize=16)
def _load(task: str, determines: str) -> list[Item]:
    """Loads once per process: every cell of a benchmark has the same items."""
    return get_benchmark(task).load(**json.loads(determines)[0])


def count_problems(cell: Cell) -> int:
    """How many problems the cell has."""
    return len(load_items(cell))


def decode_cell(
    pair: LoadedPair,
    cell: Cell,
    indices: Sequence[int],
    *,
    batch_size: int,
    trace: str = "full",
    recorder: Recorder | None = None,
) -> tuple[pa.Table, pa.Table]:
    """Decode the problems at `indices`: (`steps`, `generations`) in the schemas of `specloss.experiment.schema`.

    In float32 neither the choice of indices nor `batch_size` changes a problem's tokens. ValueError names a problem
    whose prompt is empty or does not fit the context, or whose logits make no distribution. A `recorder` is given p and
    q of every drafted position of a chain.
    """
    # heavy imports here, so that thin clients can count problems
    from specloss.decoding.api import decode_prompts
    from specloss.decoding.loop import Prompt
    from specloss.decoding.warp import Warper
    from specloss.models.prompting import check_length, prepare
    from specloss.models.tree_shape import TreeShape
    from specloss.verification.binding import bound_rule

    items = load_items(cell)
    settings, decoding = cell.settings, cell.settings["decoding"]
    tree = decoding.get("tree")
    drafting = {"shape": TreeShape(**tree)} if tree else {"gamma": decoding["gamma"], "recorder": recorder}
    chosen = [items[i] for i in indices]
    encoded = [prepare(pair.tokenizer, item, settings["benchmark"]["chat"]) for item in chosen]
    for item, prompt in zip(chosen, encoded, strict=True):
        check_length(item, len(prompt.ids), pair.context)
    prompts = [Prompt(e.ids, item.id, index) for index, item, e in zip(indices, chosen, encoded, strict=True)]
    decoded = decode_prompts(
        pair,
        prompts,
        rule=bound_rule(settings["rule"], cell.param, settings["options"], tree=tree is not None),
        warper=Warper(decoding["temperature"], decoding["top_k"], decoding["top_p"]),
        max_new_tokens=settings["benchmark"]["max_new_tokens"],
        seed=cell.seed,
        batch_size=batch_size,
        trace=trace,
        **drafting,
    )
    calls = dict(zip(*[c.to_pylist() for c in decoded.steps["index"].value_counts().flatten()], strict=True))
    generations = pa.table(
        {
            "problem": [item.id for item in chosen],
            "index": list(indices),
            "sample": [prompt.sample for prompt in prompts],
            "prompt": [prompt.text for prompt in encoded],
            "prompt_ids": [list(prompt.ids) for prompt in prompts],
            "reference": [item.reference for item in chosen],
            "token_ids": decoded.token_ids,
            "text": decoded.texts,
            "stop": decoded.stops,
            "target_calls": [calls[index] for index in indices],
        },
        schema=GENERATIONS,
    )
    if told := sorted({prompt.system_text for prompt in encoded if prompt.system_text}):
        generations = generations.replace_schema_metadata({SYSTEM_TEXT: ", ".join(told)})
    return decoded.steps, generations
