"""The per-step log: gathered as arrays, block by block, and turned into the `steps.parquet` table once at the end.

Its times come from a `Clock` that does not stall a GPU: events are read after a synchronisation that happens anyway.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from specloss.experiment.schema import DISTORTION, STEPS

CHAIN_COLUMNS = ("p", "q", "accept_prob")  # of each drafted token
STOPS = (None, "eos", "length", "context")


@dataclass(frozen=True, slots=True)
class Lists:
    """List columns of one block that run over the same elements."""

    names: tuple[str, ...]
    real: NDArray[np.bool_]  # [rows, width], the elements of each row's list
    values: NDArray[Any]  # [names, rows, width]


class Trace:
    """Collects blocks of many rows. A row's place in the batch is not recorded: it has no meaning."""

    def __init__(self, distortion: bool) -> None:
        self.distortion = DISTORTION if distortion else ()
        self._scalars: list[NDArray[np.int64]] = []  # [rows, 6]
        self._expected: list[NDArray[np.float64]] = []  # [rows]
        self._times: list[NDArray[np.float64]] = []  # [rows, 3]
        # by names: lengths [rows] and elements [names, all elements] of each block
        self._lists: dict[tuple[str, ...], tuple[list[NDArray[np.int64]], list[NDArray[Any]]]] = {}

    def add(
        self,
        scalars: NDArray[np.int64],
        times: tuple[float, float, float],
        expected: NDArray[np.float64],
        *lists: Lists,
    ) -> None:
        """One block. `scalars` [rows, 6]: prompt index, step, position, drafted, accepted, stop code."""
        rows = len(scalars)
        self._scalars.append(scalars)
        self._times.append(np.broadcast_to(np.asarray(times) / max(rows, 1), (rows, 3)))
        self._expected.append(expected)
        for group in lists:
            lengths, values = self._lists.setdefault(group.names, ([], []))
            lengths.append(group.real.sum(1))
            values.append(group.values[:, group.real])

    def table(self, problems: list[str], indices: list[int], samples: list[int]) -> pa.Table:
        """The `STEPS` table, ordered by problem index, sample and step; the lists say what each prompt is."""
        scalars = np.concatenate(self._scalars or [np.empty((0, 6), np.int64)])
        prompt, step = scalars[:, 0], scalars[:, 1]
        index, sample = np.asarray(indices, np.int32), np.asarray(samples, np.int32)
        order = np.lexsort((step, prompt, sample[prompt], index[prompt]))
        scalars = scalars[order]
        prompt, step, position, drafted, accepted, stop = scalars.T
        times = np.concatenate(self._times or [np.empty((0, 3))])[order].astype(np.float32)
        columns: dict[str, Any] = {
            "problem": pa.array(problems, pa.string()).take(pa.array(prompt)),
            "index": index[prompt],
            "sample": sample[prompt],
            "step": step,
            "position": position,
            "drafted": drafted,
            "accepted": accepted,
            "expected_accepted": np.concatenate(self._expected or [np.empty(0)])[order].astype(np.float32),
            "stop": pa.array(STOPS, pa.string()).take(pa.array(stop)),
            "draft_ms": times[:, 0],
            "verify_ms": times[:, 1],
            "overhead_ms": times[:, 2],
        }
        for names, (lengths, values) in self._lists.items():
            columns |= _columns(names, np.concatenate(lengths), np.concatenate(values, axis=1), order)
        return pa.table(
            {f.name: pa.array(columns[f.name]).cast(f.type) if f.name in columns else pa.nulls(len(order), f.type)
             for f in STEPS},
            schema=STEPS,
        )  # fmt: skip


def _columns(
    names: Sequence[str], lengths: NDArray[np.int64], values: NDArray[Any], order: NDArray[np.int64]
) -> dict[str, pa.ListArray]:
    """List columns from lists one behind the other, `values` [names, all elements], put into `order` [rows]."""
    starts = lengths.cumsum() - lengths
    lengths, starts = lengths[order], starts[order]
    offsets = np.concatenate([[0], lengths.cumsum()]).astype(np.int32)
    at = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
    return {name: pa.ListArray.from_arrays(offsets, pa.array(x[at])) for name, x in zip(names, values, strict=True)}


class Clock:
    """Milliseconds since the last `lap()` spent in the draft's forwards, the target's forwards, and all the rest."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._spans: list[tuple[str, object, object]] = []
        self.start()

    def start(self) -> None:
        """Begin the first lap now."""
        self._spans.clear()
        self._begin = time.perf_counter()

    def _now(self) -> object:
        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    @contextmanager
    def forward(self, model: str) -> Iterator[None]:
        """Count what runs inside as a forward of `model`: "draft" or "verify"."""
        begin = self._now()
        yield
        self._spans.append((model, begin, self._now()))

    def lap(self) -> tuple[float, float, float]:
        """(draft, verify, overhead) in ms since the last lap. The caller has synchronised the device."""
        spent = {"draft": 0.0, "verify": 0.0}
        for model, begin, end in self._spans:
            spent[model] += begin.elapsed_time(end) if self._cuda else (end - begin) * 1e3
        now = time.perf_counter()
        total = (now - self._begin) * 1e3
        self._begin = now
        self._spans.clear()
        return spent["draft"], spent["verify"], max(total - spent["draft"] - spent["verify"], 0.0)
