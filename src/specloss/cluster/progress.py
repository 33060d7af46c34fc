"""What a decode job reports: lines to stderr and to its log, and the progress of the whole run.

The run is what the main Snakemake process wrote to `<results>/<experiment>/run.json`: {"pending": cells, "started":
epoch}. Each finished cell of any job appends a line to `progress.tsv` beside it: epoch, cell, tokens, seconds.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from specloss.common.oneline import plain, plain_lines

RUN, FINISHED = "run.json", "progress.tsv"
SECONDS_BETWEEN_LINES = 2.0
PROGRESS_LINE = "decode  "  # how lines of progress begin


class Progress:
    """The reporter of one job."""

    def __init__(self, folder: Path, pending: int, log: Path | None = None) -> None:
        """`folder` is the experiment's in results; `pending` the job's own cells, for when there is no run.json."""
        self._folder, self._pending, self._started = folder, pending, time.time()
        with suppress(FileNotFoundError, ValueError):
            run = json.loads((folder / RUN).read_text())
            self._pending, self._started = run["pending"], run["started"]
        self._log = log
        if log is not None:
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_text("")
        self._shown, self._behind = float("-inf"), False

    def say(self, line: str) -> None:
        """Write one line to stderr and the log."""
        print(plain(line), file=sys.stderr, flush=True)
        self.note(line)

    def note(self, text: str) -> None:
        """Write one line to the log only."""
        if self._log is not None:
            with (
                suppress(OSError),
                self._log.open("a") as file,
            ):  # results matter; a full disk shows when they are written
                file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {plain_lines(text)}\n")

    def finished(self, cell_id: str, tokens: int, seconds: float) -> None:
        """Count a cell for the run, and show the run's progress at most every two seconds."""
        line = f"{time.time():.3f}\t{cell_id}\t{tokens}\t{seconds:.3f}\n"
        # one write of a short line to a file opened for appending: lines of several jobs do not mix
        with suppress(OSError):
            handle = os.open(self._folder / FINISHED, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            try:
                os.write(handle, line.encode())
            finally:
                os.close(handle)
        self.note(f"finished {cell_id}: {tokens:,} tokens in {seconds:.1f} s")
        self._behind = True
        if time.monotonic() - self._shown > SECONDS_BETWEEN_LINES:
            self.show()

    def show(self) -> None:
        """Show the run's progress, unless it was just shown."""
        if self._behind:
            self._shown, self._behind = time.monotonic(), False
            self.say(self.line())

    def line(self) -> str:
        """The run's progress: cells, speed, time left."""
        finished = self._folder / FINISHED
        rows = [line.split("\t") for line in finished.read_text().splitlines()] if finished.exists() else []
        rows = [row for row in rows if len(row) == 4 and float(row[0]) >= self._started]  # not one cut by a full disk
        done, tokens = len({row[1] for row in rows}), sum(int(row[2]) for row in rows)
        # from when the first cell began: what is left will not start Ray and load models again
        begun = min((float(row[0]) - float(row[3]) for row in rows), default=self._started)
        elapsed = max(time.time() - max(begun, self._started), 1e-3)
        left = max(self._pending - done, 0) * elapsed / max(done, 1)
        return f"{PROGRESS_LINE}{done}/{self._pending} cells  {tokens / elapsed:,.0f} tokens/s  {_duration(left)} left"


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{seconds:02d}s" if minutes else f"{seconds}s"
