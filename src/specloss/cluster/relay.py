"""The relay: prints what decode jobs on other machines say, and the run's progress, on the main process's stderr.

A job that runs here says it there itself. One that Slurm runs elsewhere writes it only to its log, on the shared
file system.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from specloss.cluster.progress import PROGRESS_LINE, Progress
from specloss.common.oneline import plain

SECONDS_BETWEEN_LOOKS = 5.0
STAMP = len("2026-01-01 00:00:00  ")


class Relay:
    """A thread that follows the logs of one experiment's decode jobs."""

    def __init__(self, folder: Path) -> None:
        """`folder` is the experiment's in results."""
        self._logs, self._progress = folder / "logs/decode", Progress(folder, 0)
        self._read: dict[Path, int] = {path: path.stat().st_size for path in self._logs.glob("*.log")}
        self._shown = self._progress.line()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def start(self) -> None:
        """Begin to follow, skipping what the logs already contain from an earlier run."""
        self._thread.start()

    def stop(self) -> None:
        """Say what has not been said yet, and end."""
        self._end.set()
        self._thread.join()

    def _follow(self) -> None:
        while not self._end.wait(SECONDS_BETWEEN_LOOKS):
            self._look()
        self._look()

    def _look(self) -> None:
        for path in sorted(self._logs.glob("*.log")):
            for line in self._new_lines(path):
                print(plain(line), file=sys.stderr, flush=True)
        line = self._progress.line()
        if line.partition(" cells")[0] != self._shown.partition(" cells")[0]:
            self._shown = line
            print(plain(line), file=sys.stderr, flush=True)

    def _new_lines(self, path: Path) -> list[str]:
        """Complete lines since the last look, except those about single cells and progress, reported elsewhere."""
        try:
            with path.open("rb") as file:
                # a job that is tried again starts its log again
                start = file.seek(min(self._read.get(path, 0), path.stat().st_size))
                text = file.read()
        except FileNotFoundError:
            return []
        text = text[: text.rfind(b"\n") + 1]
        self._read[path] = start + len(text)
        said = [line[STAMP:] for line in text.decode(errors="replace").splitlines()]
        return [line for line in said if not line.startswith(("finished ", PROGRESS_LINE))]


def follow(folder: Path) -> Relay:
    """A relay that has begun."""
    relay = Relay(folder)
    relay.start()
    return relay
