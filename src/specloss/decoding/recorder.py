"""Keeps p and q themselves at every drafted position of a decode; the step log keeps only numbers computed from them.

A decode without a recorder pays nothing. With one, each block is reduced on its device to the tokens that matter: the
`top_k` most probable of p and of q and the drafted one, and the exact sum of all others.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

SCHEMA = pa.schema(
    [
        ("prompt", pa.int64()),  # place among the prompts
        ("step", pa.int32()),
        # a list for each drafted position, over the tokens kept there in ascending order
        ("ids", pa.list_(pa.list_(pa.int32()))),
        ("p", pa.list_(pa.list_(pa.float32()))),
        ("q", pa.list_(pa.list_(pa.float32()))),
        # per drafted position, the sum over all tokens that were not kept
        ("p_rest", pa.list_(pa.float64())),
        ("q_rest", pa.list_(pa.float64())),
    ]
)


class Recorder:
    """Collects blocks of many rows. `top_k` None keeps every token that p or q gives any mass."""

    def __init__(self, top_k: int | None) -> None:
        self.top_k = top_k
        self._blocks: list[pa.Table] = []

    def add(
        self,
        prompts: NDArray[np.int64],
        steps: NDArray[np.int64],
        drafted: NDArray[np.int64],
        tokens: Tensor,
        p: Tensor,
        q: Tensor,
    ) -> None:
        """One block: `tokens` [rows, gamma], `p` and `q` [rows, gamma, vocab]; prompt -1 is a row without one."""
        rows = np.flatnonzero(prompts >= 0)
        lengths = drafted[rows]
        at = torch.from_numpy(np.repeat(rows, lengths)).to(p.device)  # [positions]
        i = torch.from_numpy(_count_up(lengths)).to(p.device)
        p, q, x = p[at, i], q[at, i], tokens[at, i]  # [positions, vocab], [positions]
        kept = self._kept(p, q, x)
        counts = kept.sum(-1).cpu().numpy()

        def nested(values: Tensor) -> pa.ListArray:
            return _lists(lengths, _lists(counts, pa.array(values.cpu().numpy())))

        def rest(mass: Tensor) -> pa.ListArray:
            return _lists(lengths, pa.array(mass.masked_fill(kept, 0.0).double().sum(-1).cpu().numpy()))

        columns = [
            pa.array(prompts[rows]),
            pa.array(steps[rows].astype(np.int32)),
            nested(kept.nonzero()[:, 1].int()),
            nested(p[kept].float()),
            nested(q[kept].float()),
            rest(p),
            rest(q),
        ]
        self._blocks.append(pa.table(columns, schema=SCHEMA))

    def table(self) -> pa.Table:
        """All blocks (`SCHEMA`), ordered by prompt and step."""
        table = pa.concat_tables(self._blocks) if self._blocks else SCHEMA.empty_table()
        order = np.lexsort((table["step"].to_numpy(), table["prompt"].to_numpy()))
        return table.combine_chunks().take(pa.array(order))

    def _kept(self, p: Tensor, q: Tensor, x: Tensor) -> Tensor:
        """Mask [positions, vocab] of the tokens to keep."""
        some = (p > 0) | (q > 0)
        if self.top_k is None or self.top_k >= p.shape[-1]:
            return some
        kept = torch.zeros_like(some).scatter_(-1, x.unsqueeze(-1), True)
        for mass in (p, q):
            kept.scatter_(-1, mass.topk(self.top_k, dim=-1).indices, True)
        return kept & some


def _count_up(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """0, 1, ... for each of the lengths, one after the other."""
    ends = lengths.cumsum()
    return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - lengths, lengths)


def _lists(lengths: NDArray[np.int64], values: pa.Array) -> pa.ListArray:
    offsets = np.concatenate([[0], lengths.cumsum()]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values)
