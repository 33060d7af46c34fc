"""A key-value cache whose rows have lengths of their own, so that rejecting tokens costs nothing.

Keys and values are written at each row's own positions and what lies behind a row's length is masked out until it is
overwritten. This is a `Cache` of transformers plus a 4-D mask: no model code is touched.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin


class RaggedLayer(CacheLayerMixin):
    """Keys and values of one layer, [rows, heads, time, dim]; allocated at the first update."""

    is_sliding = False

    def __init__(self, cache: RaggedCache) -> None:
        super().__init__()
        self.cache = cache

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocate for the shape, type and device of the first keys and values."""
        rows, time = self.cache.rows, self.cache.time
        self.keys = key_states.new_zeros(rows, key_states.shape[1], time, key_states.shape[3])
        self.values = value_states.new_zeros(rows, value_states.shape[1], time, value_states.shape[3])
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write [rows, heads, new, dim] at the cache's current slots; return what this forward attends to."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        rows, slots = self.cache.written(key_states.device)
        at = (rows, slice(None), slots)
        self.keys[at] = key_states.transpose(1, 2)
        self.values[at] = value_states.transpose(1, 2)
        if self.cache.prefilling:  # new rows start empty: their own keys are all there is to see
            return key_states, value_states
        return self.keys[:, :, : self.cache.visible], self.values[:, :, : self.cache.visible]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """The visible span; for models that ask in spite of a 4-D mask."""
        return self.cache.visible, 0

    def get_seq_length(self) -> int:
        """Rows have no length in common. A model that takes positions from here fails the probe (`decoding.probe`)."""
        return 0

    def get_max_length(self) -> int:
        """Time steps that fit."""
        return self.cache.time


class RaggedCache(Cache):
    """`rows` x `time` of keys and values for each of a model's layers, each where its layer is."""

    def __init__(self, layers: int, rows: int, time: int, device: torch.device) -> None:
        self.rows, self.time = rows, time
        self.visible = 0
        self.prefilling = False
        self._all_rows = torch.arange(rows, device=device).unsqueeze(1)
        self.row_index = self._all_rows  # [rows of this forward, 1]
        self.slots = torch.empty(0)  # [rows of this forward, new tokens]
        self._elsewhere: dict[torch.device, tuple[Tensor, Tensor]] = {}
        super().__init__(layers=[RaggedLayer(self) for _ in range(layers)])

    def at(self, slots: Tensor, visible: int) -> RaggedCache:
        """Prepare a forward of all rows that writes at `slots` [rows, new] and sees the first `visible` slots."""
        self.row_index, self.slots, self.visible, self.prefilling = self._all_rows, slots, visible, False
        self._elsewhere.clear()
        return self

    def fill(self, rows: Tensor, slots: Tensor) -> RaggedCache:
        """Prepare a forward that fills the rows `rows` [n] from empty, at `slots` [n, new]."""
        self.row_index, self.slots, self.visible, self.prefilling = rows.unsqueeze(1), slots, slots.shape[1], True
        self._elsewhere.clear()
        return self

    def written(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """`row_index` and `slots` on a layer's device: a model over several GPUs has layers on each."""
        if device == self.slots.device:
            return self.row_index, self.slots
        if device not in self._elsewhere:  # once per forward and device, not per layer
            self._elsewhere[device] = self.row_index.to(device), self.slots.to(device)
        return self._elsewhere[device]

    def move(self, source: Tensor, to: Tensor) -> None:
        """Copy what is at the slots `source` [rows, n] to the slots `to` [rows, n], all read before any is written."""
        for layer in self.layers:
            rows, source, to = (x.to(layer.keys.device) for x in (self._all_rows, source, to))
            for kept in (layer.keys, layer.values):
                kept[rows, :, to] = kept[rows, :, source]

    def keep(self, rows: Tensor) -> None:
        """Drop all rows but `rows` [n], in that order."""
        for layer in self.layers:
            if layer.is_initialized:
                at = rows.to(layer.keys.device)
                layer.keys, layer.values = layer.keys[at], layer.values[at]
        self.rows = len(rows)
        self._all_rows = self._all_rows[: self.rows]
