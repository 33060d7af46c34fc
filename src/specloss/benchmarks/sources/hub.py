"""Data sets of the Hugging Face hub; what is in the local cache needs no network."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from specloss.benchmarks import BenchmarkError, UnreachableError

MOST_BYTES = 1 << 28  # of a file or set of problems, also once it is unpacked
MOST_ROWS = 1 << 20
_PATIENCE = 5.0  # seconds for a first answer of the hub; its own client would try for half a minute, for each file


@dataclass(frozen=True)
class HubSet:
    """A data set: its hub id, which `subsets` of it (one after the other), which split, and which revision.

    With `files` those JSON Lines files of the repository are read instead, for sets that `datasets` cannot load.
    """

    name: str
    split: str = ""
    subsets: tuple[str | None, ...] = (None,)
    files: tuple[str, ...] = ()
    revision: str | None = None

    def read(self, read_file: Callable[[Path], Sequence[Any]]) -> list[dict[str, Any]]:
        """All rows. UnreachableError if the hub cannot be asked and the cache does not have them."""
        reachable = _reachable()
        try:
            with _quiet(offline=not reachable):
                if self.files:
                    return [dict(row.values) for file in self.files for row in read_file(self._download(file))]
                return [row for subset in self.subsets for row in self._load(subset)]
        except BenchmarkError:
            raise
        except Exception as error:  # the libraries' own errors, of many kinds
            reason = " ".join(str(error).split())[:200]
            if reachable:
                raise BenchmarkError(f"the hub's data set {self.name} cannot be loaded: {reason}") from None
            raise UnreachableError(self.name) from None

    def _load(self, subset: str | None) -> list[dict[str, Any]]:
        from datasets import load_dataset

        found = load_dataset(self.name, subset, split=self.split, revision=self.revision)
        if found.num_rows > MOST_ROWS or found.data.nbytes > MOST_BYTES:
            raise BenchmarkError(f"the hub's data set {self.name} is too large: {found.num_rows:,} rows")
        return found.to_list()

    def _download(self, file: str) -> Path:
        from huggingface_hub import hf_hub_download

        return Path(hf_hub_download(self.name, file, repo_type="dataset", revision=self.revision))


@cache
def _reachable() -> bool:
    """Whether the hub answers; asked once in a process."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    request = urllib.request.Request(constants.ENDPOINT, method="HEAD")
    try:
        with urllib.request.urlopen(request, timeout=_PATIENCE):
            return True
    except urllib.error.HTTPError:  # an answer, if no friendly one
        return True
    except OSError:
        return False


@contextmanager
def _quiet(offline: bool) -> Iterator[None]:
    """No progress bars; without a network, none of the libraries' repeated tries either."""
    import datasets
    from huggingface_hub import constants

    bars, before = datasets.are_progress_bars_disabled(), (constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE)
    with suppress(Exception):
        datasets.disable_progress_bars()
    constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = offline or before[0]
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE = before
        if not bars:
            datasets.enable_progress_bars()
