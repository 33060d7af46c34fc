"""Wall time by phase, without stalling a GPU: its events are read after a synchronisation that happens anyway."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch


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
