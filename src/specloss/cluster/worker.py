"""The actor that holds one loaded pair. Torch and transformers are imported only here, inside the actor."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
import traceback
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from specloss.common.oneline import plain
from specloss.experiment.cells import Cell

CLAIM_SECONDS = 2.0


class CellFailed(Exception):
    """A cell failed for its own reason. `args`: the reason in one line, and the traceback."""

    @property
    def reason(self) -> str:
        """One line: the kind of error and what it says."""
        return self.args[0]

    @property
    def trace(self) -> str:
        """The worker's traceback."""
        return self.args[1]


@dataclass(frozen=True)
class CellOutput:
    """What one task returns."""

    steps: pa.Table
    generations: pa.Table
    seconds: float  # of decoding alone, without loading
    made: dict[str, Any]  # device, dtype and package versions
    notes: tuple[str, ...]  # lines for the client's log: loads, and batches that had to be halved


class PairWorker:
    """One pair, loaded on the first task and kept.

    The methods are coroutines, so that the actor answers while it decodes; decoding itself is one thread's, in the
    order of arrival, because a pair has one cache and torch one pool of threads for each thread that calls it.
    """

    def __init__(self, name: str, pair: dict[str, Any], threads: int, cwd: str, linger: float | None = None) -> None:
        """`linger`: seconds without work after which the actor ends itself, whatever became of its clients."""
        # Before torch is imported, and also against Ray, which sets 1 for actors that reserve no CPU.
        os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(threads)
        with suppress(OSError):  # Ray's workers run at nice 15; undoing that takes privileges on most machines
            os.setpriority(os.PRIO_PROCESS, 0, 0)
        with suppress(OSError):  # paths in a config are relative to where the client runs; that is the same host or NFS
            os.chdir(cwd)
        self._name, self._settings = name, pair
        self._pair: Any = None
        self._thread = ThreadPoolExecutor(1, "decode")
        self._tasks = 0
        self._abandoned: set[Future[CellOutput]] = set()
        self._last = time.monotonic()
        self._claimed = float("-inf")
        self._batch_limits: dict[str, int] = {}  # by benchmark: what did not run out of memory
        self._counts: dict[str, int] = {}
        self._notes: list[str] = []
        if linger:
            threading.Thread(target=self._end_when_idle, args=(linger,), daemon=True).start()

    async def claim(self) -> int:
        """Tasks here, running and waiting. 0 also claims the actor: others are told 1 until its next task comes."""
        now = time.monotonic()
        if self._tasks == 0 and now - self._claimed > CLAIM_SECONDS:
            self._claimed = now
            return 0
        return max(self._tasks, 1)

    async def idle(self) -> float:
        """Seconds since the last task ended; 0 if there is one that a client waits for, or one is about to come."""
        return self._idle()

    def _idle(self) -> float:
        if self._tasks > len(self._abandoned) or time.monotonic() - self._claimed < CLAIM_SECONDS:
            return 0.0
        return time.monotonic() - self._last

    def _end_when_idle(self, linger: float) -> None:
        import ray

        while self._idle() < linger:
            time.sleep(min(linger / 4, 5.0))
        ray.kill(ray.get_runtime_context().current_actor)  # for good: an exit would count as a death, and be undone

    async def count(self, cell: dict[str, Any]) -> int:
        """Problems of a cell. CellFailed if its benchmark cannot be loaded."""
        self._claimed = float("-inf")
        return await asyncio.to_thread(self._count, Cell.from_dict(cell))

    async def decode(self, cell: dict[str, Any], indices: list[int], batch_size: int, trace: str) -> CellOutput:
        """Decode the problems at `indices`. CellFailed for whatever is the cell's own fault, or its pair's."""
        self._claimed = float("-inf")
        self._tasks += 1
        task = self._thread.submit(self._decode, Cell.from_dict(cell), indices, batch_size, trace)
        task.add_done_callback(self._ended)  # of the thread's task: a cancelled coroutine does not stop a running one
        try:
            return await asyncio.wrap_future(task)
        except asyncio.CancelledError:
            if not task.done():
                self._abandoned.add(task)  # it runs on, for nobody
            raise

    def _ended(self, task: Future[CellOutput]) -> None:
        self._tasks -= 1
        self._abandoned.discard(task)
        self._last = time.monotonic()

    def _count(self, cell: Cell) -> int:
        key = json.dumps([cell.settings["benchmark"], cell.settings.get("files")], sort_keys=True)
        if key not in self._counts:
            try:
                from specloss.decoding.cell import count_problems

                self._counts[key] = count_problems(cell)
            except Exception as error:
                raise _failure(error) from None
        return self._counts[key]

    def _decode(self, cell: Cell, indices: list[int], batch_size: int, trace: str) -> CellOutput:
        try:
            self._load()
            from specloss.decoding.cell import decode_cell

            while True:
                size = min(batch_size, self._batch_limits.get(cell.benchmark, batch_size))
                start = time.perf_counter()
                try:
                    steps, generations = decode_cell(self._pair, cell, indices, batch_size=size, trace=trace)
                    break
                except Exception as error:
                    if not _out_of_memory(error) or size == 1:
                        raise
                # outside of the except clause: its traceback holds the tensors that did not fit
                self._batch_limits[cell.benchmark] = size // 2
                self._say(f"out of memory with {size} rows of {cell.benchmark}; going on with {size // 2}")
                self._free_memory()
            seconds = time.perf_counter() - start
        except Exception as error:
            raise _failure(error) from None
        notes, self._notes = tuple(self._notes), []
        return CellOutput(steps, generations, seconds, self._made(), notes)

    def _load(self) -> None:
        if self._pair is not None:
            return
        start = time.perf_counter()
        from specloss.models import load_pair

        pair = load_pair(**self._settings)
        self._pair = pair
        self._say(f"loaded pair {self._name} in {time.perf_counter() - start:.1f} s on {pair.provenance()['device']}")
        for note in pair.notes:
            self._say(f"pair {self._name}: {note}")

    def _say(self, line: str) -> None:
        print(plain(line), flush=True)  # Ray's own log of this worker
        self._notes.append(f"{line} (worker {os.getpid()})")

    def _free_memory(self) -> None:
        if getattr(self._pair.device, "type", "cpu") == "cuda":
            import torch

            torch.cuda.empty_cache()

    def _made(self) -> dict[str, Any]:
        from specloss.common.provenance import package_versions

        return self._pair.provenance() | {"packages": package_versions()}


def _out_of_memory(error: Exception) -> bool:
    """torch.OutOfMemoryError, or torch's CPU allocator, which raises a plain RuntimeError."""
    return type(error).__name__ == "OutOfMemoryError" or "can't allocate memory" in str(error)


def _failure(error: Exception) -> CellFailed:
    """As an exception that needs none of the worker's modules to be unpickled: the client does not import torch."""
    return CellFailed(f"{type(error).__name__}: {' '.join(str(error).split())}", traceback.format_exc())
