"""Where the small benchmark items of the tests are (of our own writing), and where the real ones may be."""

import os
from pathlib import Path

import pytest
from places import ROOT

OURS = ROOT / "tests/data/benchmarks"


def real(*names: str) -> list[str]:
    """Paths of real benchmark files, or the test is skipped, saying which are wanted."""
    folder = os.environ.get("SPECLOSS_BENCHMARK_DATA")
    paths = [Path(folder or "", name) for name in names]
    if not folder or not all(path.exists() for path in paths):
        pytest.skip(f"set SPECLOSS_BENCHMARK_DATA to a folder with {', '.join(names)}")
    return [str(path) for path in paths]
