"""A decode job: the thin client that takes a batch of cells to the actors and writes what comes back.

It imports neither torch nor transformers, and Ray only if there is something to do.
"""

from __future__ import annotations

import signal
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specloss.cluster.output import write_cell, write_failure
from specloss.cluster.pool import LINGER_SECONDS, Pool
from specloss.cluster.progress import Progress
from specloss.cluster.ray_head import RayHead, RayHeadLost, find_head
from specloss.cluster.worker import CellFailed, CellOutput
from specloss.experiment.batches import read_batch
from specloss.experiment.cells import Cell

POLL_SECONDS = 0.5
MAX_HEADS = 3  # the first and two replacements
MAX_LOSSES = 3  # of workers under one cell, each after Ray's own retries


@dataclass(frozen=True)
class Chunk:
    """One task: some problems of a cell."""

    cell: Cell
    number: int
    indices: tuple[int, ...]


@dataclass
class Job:
    """A batch in progress: which cells are left and which failed."""

    results: Path
    cluster: dict[str, Any]
    progress: Progress
    left: list[Cell]
    failed: list[Cell] = field(default_factory=list)

    def done(self, cell: Cell, parts: list[CellOutput]) -> None:
        """All chunks of a cell are here: write it."""
        tokens = write_cell(cell, self.results, parts)
        self.left.remove(cell)
        self.progress.finished(cell.id, tokens, sum(part.seconds for part in parts))

    def fail(self, cell: Cell, reason: str, trace: str = "") -> None:
        """A cell cannot be decoded: say so, leave an explanation in its folder, and go on."""
        self.left.remove(cell)
        self.failed.append(cell)
        path = write_failure(cell, self.results, reason, trace)
        self.progress.say(f"failed {cell.label}: {reason} (see {path})")


def run_batch(batch_file: Path, results: Path, log: Path | None = None) -> int:
    """Decode the cells of a batch file that are not complete yet; returns the number of cells that failed.

    A cell that fails for a reason of its own (a bad prompt) does not stop the others: it is named on stderr and
    explained in `failure.txt` in its folder. HeadError if there is no Ray to decode on, ResultsError if cells cannot
    be written; both are one line. SystemExit on SIGTERM, KeyboardInterrupt on SIGINT. None leaves a half-written cell.
    """
    batch, cluster = read_batch(Path(batch_file))
    results = Path(results)
    left = [cell for cell in batch.cells if not cell.is_whole(results)]
    if not left:
        return 0
    folder = results / left[0].experiment
    folder.mkdir(parents=True, exist_ok=True)
    job = Job(results, cluster, Progress(folder, len(left), log), left)
    with _ending_on_signals(), _noting_the_end(job.progress):
        for heads_left in reversed(range(MAX_HEADS)):
            try:
                head = find_head(cluster.get("address"))
                with head.connected() as ray:
                    _Run(job, head, ray).until_done()
                break
            except RayHeadLost as error:
                if not heads_left:
                    raise
                job.progress.say(f"{error}; starting a new one for the {len(job.left)} cells that are left")
    job.progress.show()
    return len(job.failed)


class _Run:
    """The job on one head. Results of unfinished cells are lost with the head, which holds them in memory."""

    def __init__(self, job: Job, head: RayHead, ray: Any) -> None:
        self._job, self._head, self._ray = job, head, ray
        self._pools: dict[str, Pool] = {}
        self._cells = deque(job.left)
        self._waiting: deque[Chunk] = deque()
        self._running: dict[Any, Chunk] = {}  # by ObjectRef
        self._parts: dict[str, list[CellOutput | None]] = {}  # by cell id, in the order of the chunks
        self._waited = False
        self._losses: Counter[str] = Counter()  # of workers, by cell id

    def until_done(self) -> None:
        """Until no cell is left. RayHeadLost if the head goes first."""
        try:
            while self._fill() or self._running:
                if not self._running:  # no actor yet
                    time.sleep(POLL_SECONDS)
                    continue
                ready, _ = self._ray.wait(list(self._running), timeout=POLL_SECONDS)
                if not ready:
                    self._head.check()
                for ref in ready:
                    self._collect(ref, self._running.pop(ref))
        finally:
            for ref in self._running:
                with suppress(Exception):  # whatever ends us is what matters
                    self._ray.cancel(ref)

    def _fill(self) -> bool:
        """Send chunks while there is room for more; returns whether there are more to send.

        Two for each actor, so that none waits for us, and few enough that other clients' tasks come in between; one at
        the end, so that none waits behind another while an actor is free.
        """
        while self._waiting or self._cells:
            if not self._waiting:
                if not self._split(self._cells[0]):
                    return True
                self._cells.popleft()
                continue
            chunk = self._waiting[0]
            size = self._pool(chunk.cell).size
            more = len(self._waiting) + len(self._cells) > size
            if len(self._running) >= (2 * size if more else size) or not self._send(chunk):
                return True
            self._waiting.popleft()
        return False

    def _pool(self, cell: Cell) -> Pool:
        if cell.pair not in self._pools:
            linger = LINGER_SECONDS if self._head.given else None
            self._pools[cell.pair] = Pool(self._ray, cell.pair, cell.settings["pair"], self._job.cluster, linger)
        return self._pools[cell.pair]

    def _split(self, cell: Cell) -> bool:
        """Split a cell into chunks, or let it fail; False if no worker could be asked for its size."""
        try:
            ref = self._pool(cell).freest().count.remote(cell.to_dict())
            while not self._ray.wait([ref], timeout=POLL_SECONDS)[0]:
                self._head.check()
            count = self._ray.get(ref)
        except self._ray.exceptions.GetTimeoutError:
            return self._no_actor(cell)
        except self._ray.exceptions.RayError as error:
            return self._failed(cell, error)
        size = self._job.cluster.get("problems_per_task", 512)
        starts = range(0, count, size)
        if not starts:
            self._job.fail(cell, f"benchmark {cell.benchmark} has no problems")
            return True
        self._parts[cell.id] = [None] * len(starts)
        for number, start in enumerate(starts):
            self._waiting.append(Chunk(cell, number, tuple(range(start, min(start + size, count)))))
        return True

    def _send(self, chunk: Chunk) -> bool:
        """Send a chunk to the least busy actor; False if there is none yet."""
        cluster = self._job.cluster
        try:
            actor = self._pool(chunk.cell).freest()
        except self._ray.exceptions.RayError:
            return self._no_actor(chunk.cell)
        ref = actor.decode.remote(
            chunk.cell.to_dict(), list(chunk.indices), cluster.get("batch_size", 32), cluster.get("trace", "full")
        )
        self._running[ref] = chunk
        return True

    def _no_actor(self, cell: Cell) -> bool:
        """False, after checking the head; a wait for GPUs that other pairs hold is reported once."""
        self._head.check()
        if not self._running and not self._waited:
            self._waited = True
            self._job.progress.say(f"waiting for an actor with pair {cell.pair}: none has been placed yet")
        return False

    def _collect(self, ref: Any, chunk: Chunk) -> None:
        """Take the result of a chunk; if its worker was lost, it waits for another."""
        cell = chunk.cell
        parts = self._parts.get(cell.id)
        if parts is None:  # another chunk of it has failed
            return
        try:
            part = self._ray.get(ref)
        except self._ray.exceptions.RayError as error:
            if not self._failed(cell, error):
                self._waiting.appendleft(chunk)
            return
        for line in part.notes:
            self._job.progress.say(line)
        parts[chunk.number] = part
        if None not in parts:
            self._job.done(cell, self._parts.pop(cell.id))

    def _failed(self, cell: Cell, error: Exception) -> bool:
        """Distinguish a failing cell (True: drop it) from a lost worker (False: try again). RayHeadLost too."""
        if isinstance(error, self._ray.exceptions.RayTaskError):
            cause = error.cause
            if isinstance(cause, CellFailed):
                self._drop(cell, cause.reason, cause.trace)
            else:  # not expected: a fault of the worker's own
                self._drop(cell, f"{type(cause).__name__}: {cause}", str(error))
            return True
        self._head.check()
        self._losses[cell.id] += 1
        if self._losses[cell.id] > MAX_LOSSES:
            self._drop(cell, f"its worker was lost {self._losses[cell.id]} times; out of memory?", str(error))
            return True
        self._job.progress.say(f"lost the worker of {cell.label}; trying again")
        return False

    def _drop(self, cell: Cell, reason: str, trace: str) -> None:
        """The cell fails; nothing more of it is decoded."""
        self._parts.pop(cell.id, None)
        self._waiting = deque(chunk for chunk in self._waiting if chunk.cell.id != cell.id)
        for ref, chunk in self._running.items():
            if chunk.cell.id == cell.id:
                self._ray.cancel(ref)
        self._job.fail(cell, reason, trace)


@contextmanager
def _noting_the_end(progress: Progress) -> Iterator[None]:
    """What ends the job is also written to its log: on a cluster, its stderr is a file of the batch system."""
    try:
        yield
    except BaseException as error:
        with suppress(OSError):  # of a full disk, perhaps
            progress.note(f"stopped: {error or type(error).__name__}")
        raise


@contextmanager
def _ending_on_signals() -> Iterator[None]:
    """SIGTERM and SIGINT end the job as an exception does, so that its tasks are cancelled and temporary files go.

    SIGINT too: what a shell starts in the background ignores it, and Python then leaves it so.
    """

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    handlers = {signal.SIGTERM: end, signal.SIGINT: signal.default_int_handler}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
