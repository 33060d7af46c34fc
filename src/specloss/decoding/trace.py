"""The per-step log: gathered as arrays, block by block, and turned into the `steps.parquet` table once at the end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from specloss.schema import STEPS

# columns of one value per drafted position: always there (survival for its sum alone), and those of the full trace
POSITION_COLUMNS = ("p", "q", "accept_prob", "survival")
DISTORTION_COLUMNS = (
    "entropy_p",
    "tv_pq",
    "alpha",
    "allowed_mass",
    "tv_pi_p",
    "tv_pi_target",
    "kl_pi_p",
    "overshoot",
    "coupling_loss",
)
STOPS = (None, "eos", "length", "context")


class Trace:
    """Collects blocks of many rows. A row's place in the batch is not recorded: it means nothing."""

    def __init__(self, distortion: bool) -> None:
        self.columns = POSITION_COLUMNS + (DISTORTION_COLUMNS if distortion else ())
        self._scalars: list[NDArray[np.int64]] = []  # [rows, 6]
        self._expected: list[NDArray[np.float64]] = []  # [rows]
        self._times: list[NDArray[np.float64]] = []  # [rows, 3]
        self._tokens: list[NDArray[np.int64]] = []  # [rows, gamma]
        self._emitted: list[NDArray[np.int64]] = []  # [rows, gamma + 1], -1 beyond what was emitted
        self._values: list[NDArray[np.float32]] = []  # [columns, rows, gamma]

    def add(
        self,
        scalars: NDArray[np.int64],
        times: tuple[float, float, float],
        expected: NDArray[np.float64],
        tokens: NDArray[np.int64],
        emitted: NDArray[np.int64],
        values: NDArray[np.float32],
    ) -> None:
        """One block. `scalars` [rows, 6]: prompt index, step, position, drafted, accepted, stop code."""
        rows = len(scalars)
        self._scalars.append(scalars)
        self._times.append(np.broadcast_to(np.asarray(times) / max(rows, 1), (rows, 3)))
        self._expected.append(expected)
        self._tokens.append(tokens)
        self._emitted.append(emitted)
        self._values.append(values)

    def table(self, problems: list[str], indices: list[int], samples: list[int], gamma: int) -> pa.Table:
        """The `STEPS` table, ordered by problem index, sample and step; the lists say what each prompt is."""
        scalars = np.concatenate(self._scalars or [np.empty((0, 6), np.int64)])
        prompt, step = scalars[:, 0], scalars[:, 1]
        index, sample = np.asarray(indices, np.int32), np.asarray(samples, np.int32)
        order = np.lexsort((step, prompt, sample[prompt], index[prompt]))
        scalars = scalars[order]
        prompt, step, position, drafted, accepted, stop = scalars.T
        times = np.concatenate(self._times or [np.empty((0, 3))])[order].astype(np.float32)
        real = np.arange(gamma) < drafted[:, None]  # [steps, gamma]
        tokens = np.concatenate(self._tokens or [np.empty((0, gamma), np.int64)])[order]
        emitted = np.concatenate(self._emitted or [np.empty((0, gamma + 1), np.int64)])[order]
        columns: dict[str, Any] = {
            "problem": pa.array(problems, pa.string()).take(pa.array(prompt)),
            "index": index[prompt],
            "sample": sample[prompt],
            "step": step,
            "position": position,
            "drafted": drafted,
            "accepted": accepted,
            "expected_accepted": np.concatenate(self._expected or [np.empty(0)])[order].astype(np.float32),
            "token": _lists(tokens, real, pa.int32()),
            "emitted": _lists(emitted, emitted >= 0, pa.int32()),
            "stop": pa.array(STOPS, pa.string()).take(pa.array(stop)),
            "draft_ms": times[:, 0],
            "verify_ms": times[:, 1],
            "overhead_ms": times[:, 2],
        }
        empty = np.empty((len(self.columns), 0, gamma), np.float32)
        values = np.concatenate(self._values or [empty], axis=1)[:, order]
        logged = [name for name in self.columns if name in STEPS.names]
        columns |= {name: _lists(values[self.columns.index(name)], real, pa.float32()) for name in logged}
        return pa.table(
            {f.name: pa.array(columns[f.name]).cast(f.type) if f.name in columns else pa.nulls(len(order), f.type)
             for f in STEPS},
            schema=STEPS,
        )  # fmt: skip


def _lists(values: NDArray[Any], real: NDArray[np.bool_], type_: pa.DataType) -> pa.ListArray:
    """A list per row of the values [rows, width] where `real`."""
    offsets = np.concatenate([[0], real.sum(1).cumsum()]).astype(np.int32)
    return pa.ListArray.from_arrays(offsets, pa.array(values[real]).cast(type_))
