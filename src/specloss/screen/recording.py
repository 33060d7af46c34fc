"""`trace.parquet`: one decode of a pair on a benchmark with p and q at every drafted position, and reading it back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from torch import Tensor

from specloss.common.files import replacing
from specloss.common.provenance import code_version, package_versions
from specloss.decoding.recorder import SCHEMA as RECORDED
from specloss.decoding.recorder import Recorder
from specloss.experiment.cells import Cell
from specloss.experiment.plan import Plan
from specloss.models.pair import LoadedPair
from specloss.screen import ScreenError
from specloss.screen.places import POLICY, trace_key, trace_path, tracing_cell

SIZES = ("problem", "index", "sample", "step", "position", "drafted", "accepted", "token")  # as in steps.parquet
LISTS = ("ids", "p", "q", "p_rest", "q_rest")  # as in specloss.decoding.recorder
SCHEMA_KEY = b"specloss"


def record(pair: LoadedPair, cell: Cell, top_k: int | str, batch_size: int) -> pa.Table:
    """Decode the cell and record: a row per target call, columns `SIZES` and `LISTS`, provenance in the metadata."""
    from specloss.decoding.cell import count_problems, decode_cell

    recorder = Recorder(None if top_k == "full" else int(top_k))
    steps, _ = decode_cell(
        pair, cell, range(count_problems(cell)), batch_size=batch_size, trace="light", recorder=recorder
    )
    recorded = recorder.table()
    if not recorded["step"].equals(steps["step"].cast(RECORDED.field("step").type)):
        raise RuntimeError("the recorder and the step log disagree")
    table = pa.table({name: steps[name] for name in SIZES} | {name: recorded[name] for name in LISTS})
    about = {
        "key": trace_key(cell, top_k),
        "pair": cell.pair,
        "benchmark": cell.benchmark,
        "policy": POLICY,
        "seed": cell.seed,
        "top_k": top_k,
        "vocab": pair.vocab,
        "gamma": cell.settings["decoding"]["gamma"],
        "eos_ids": list(pair.eos_ids),
        "run": {"code": code_version(), "packages": package_versions(), **pair.provenance()},
    }
    return table.replace_schema_metadata({SCHEMA_KEY: json.dumps(about)})


def write_trace(table: pa.Table, path: Path) -> None:
    """Write a recorded trace atomically."""
    with replacing(path) as part:
        pq.write_table(table, part, compression="zstd", row_group_size=4096)


def record_traces(plan: Plan, pair: str, benchmarks: Sequence[str], top_k: int | str) -> list[Path]:
    """Record the pair's traces that are missing or have other settings; the pair is loaded at most once.

    It decodes in this process, on the device that the config gives the pair.
    """
    from specloss.models import load_pair

    cells = {trace_path(plan, pair, benchmark): tracing_cell(plan, pair, benchmark) for benchmark in benchmarks}
    loaded = None
    for path, cell in cells.items():
        if path.exists() and RecordingFile(path).about["key"] == trace_key(cell, top_k):
            continue
        loaded = loaded or load_pair(**cell.settings["pair"])
        write_trace(record(loaded, cell, top_k, plan.experiment.decoding.batch_size), path)
    return list(cells)


@dataclass(frozen=True, slots=True)
class Positions:
    """The drafted positions of some blocks, one after the other.

    `p`, `q` float32 [positions, width]: the recorded tokens of each, the rest in the last place. `slot` int64
    [positions]: where the drafted token is. `block`, `offset` [positions]: whose block it is, and which of its tokens,
    from 0. Per block: `index` of the problem, `drafted`, and `last`, how many drafted tokens there are up to the first
    end of sequence.
    """

    p: Tensor
    q: Tensor
    slot: Tensor
    block: NDArray[np.int64]
    offset: NDArray[np.int64]
    index: NDArray[np.int64]
    drafted: NDArray[np.int64]
    last: NDArray[np.int64]


class RecordingFile:
    """A trace on disk. ScreenError says if it is missing or something else."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            raise ScreenError(f"{path}: no such trace; `specloss trace` records it")
        try:
            self._file = pq.ParquetFile(path)
            self.about: dict[str, Any] = json.loads(self._file.schema_arrow.metadata[SCHEMA_KEY])
        except (pa.ArrowInvalid, KeyError, TypeError) as error:
            raise ScreenError(f"{path}: not a trace of specloss ({' '.join(str(error).split())})") from None

    @property
    def gamma(self) -> int:
        """Drafted tokens of a full block."""
        return self.about["gamma"]

    def problems(self) -> NDArray[np.int64]:
        """The problems' indices, ascending."""
        return np.unique(self._file.read(columns=["index"])["index"].to_numpy())

    def rest(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """`p_rest` and `q_rest` of all positions: the mass that the rules see as one token."""
        table = self._file.read(columns=["p_rest", "q_rest"])
        return tuple(table[name].combine_chunks().flatten().to_numpy() for name in ("p_rest", "q_rest"))

    def batches(self, blocks: int) -> Iterator[Positions]:
        """All blocks, so many at a time."""
        for batch in self._file.iter_batches(blocks):
            yield _positions(batch, self.about["eos_ids"])


def _positions(batch: pa.RecordBatch, eos_ids: Sequence[int]) -> Positions:
    drafted = batch["drafted"].to_numpy().astype(np.int64)
    block, offset = _unroll(drafted)
    ids = batch["ids"].flatten()  # a list for each position
    row, place = _unroll(pc.list_value_length(ids).to_numpy().astype(np.int64))
    token = batch["token"].flatten().to_numpy()
    ids = ids.flatten().to_numpy()

    dense = np.zeros((2, len(block), int(place.max(initial=0)) + 2), np.float32)
    for values, name in zip(dense, ("p", "q"), strict=True):
        values[row, place] = batch[name].flatten().flatten().to_numpy()
        values[:, -1] = batch[f"{name}_rest"].flatten().to_numpy()
    drawn = ids == token[row]
    slot = np.zeros(len(block), np.int64)
    slot[row[drawn]] = place[drawn]

    last = drafted.copy()
    ends = np.isin(token, eos_ids)
    np.minimum.at(last, block[ends], offset[ends] + 1)
    p, q = torch.from_numpy(dense)
    return Positions(p, q, torch.from_numpy(slot), block, offset, batch["index"].to_numpy(), drafted, last)


def _unroll(lengths: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(which list, which element of it) of all elements of lists of these lengths."""
    ends = lengths.cumsum()
    which = np.repeat(np.arange(len(lengths)), lengths)
    return which, np.arange(len(which)) - np.repeat(ends - lengths, lengths)
