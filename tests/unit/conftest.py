"""One synthetic experiment, summarised, shared by the tests that only read it."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic import write_experiment

from specloss.analysis.evidence.summary import summarise


@pytest.fixture(scope="session")
def experiment(tmp_path_factory) -> tuple[Path, Path]:
    """(experiment.json, results) of a whole synthetic experiment, already summarised."""
    path, results = write_experiment(tmp_path_factory.mktemp("synthetic"))
    summarise(path, results)
    return path, results
