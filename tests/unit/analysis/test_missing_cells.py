"""Where a cell is missing or partly finished every table and figure says so with the reason; nothing else moves."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
import synthetic
from synthetic import as_trees, write_experiment

from specloss.analysis.evidence.evidence import Evidence
from specloss.analysis.evidence.summary import summarise
from specloss.analysis.figures.catalogue import make_figure
from specloss.analysis.figures.plot import Plot
from specloss.analysis.outputs import FIGURES, JOINED_TABLES, TABLES, tables_for
from specloss.analysis.tables.catalogue import JOINED, make_table
from specloss.analysis.tables.table import Table
from specloss.experiment.cells import GENERATIONS, GRADED, STEPS
from specloss.experiment.study import Study

GRIDS = {  # a method for every table
    "standard_sd": [None],
    "min_p_sampling": [0.1],
    "spec_cascade": [0.1],
    "spec_cascade_maximal": [0.1],
    "lenience": [0.8],
    "cos": [0.4],
    "adaptive_interpolation": [0.2, 0.8],
    "overshoot_ceiling": [0.2, 0.8],
    "cap_nowhere_keep_tail": [0.2],
    "cap_everywhere_drop_tail": [0.2],
}
PROBLEMS = 5
# what hangs on the other rows of its table as well: adjusted over the comparisons that are there
ADJUSTED = ("_adjusted", "verdict", "p", "could_have_found_loss", "could_have_found_gain", "sentence", "holds")


@dataclass
class Experiment:
    """Evidence of the same cells as chains and as trees."""

    chains: Evidence
    trees: Evidence
    done: dict[str, Table | Plot] = field(default_factory=dict)

    def made(self, name: str) -> Table | Plot:
        """A table or figure of a registered name."""
        if name not in self.done:
            self.done[name] = self._make(name)
        return self.done[name]

    def _make(self, name: str) -> Table | Plot:
        if name in FIGURES:
            return make_figure(name, self.chains)
        if name in JOINED_TABLES:
            return JOINED[name](self.chains, self.trees)
        return make_table(name, self.chains if name in tables_for(self.chains.study) else self.trees)


def read(root: Path) -> Experiment:
    path = root / "results" / "synthetic" / "experiment.json"
    found = []
    for file in (path, as_trees(path)):
        folder = root / file.stem  # the two summaries would overwrite each other
        shutil.copytree(root / "results", folder)
        summarise(folder / "synthetic" / file.name, folder)
        found.append(Evidence.read(folder / "synthetic" / file.name, folder))
    return Experiment(*found)


@pytest.fixture(scope="module")
def cells(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("cells")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(synthetic, "LEVELS", [2, 4])
        write_experiment(root, problems=PROBLEMS, seeds=(0, 1), grids=GRIDS)
    return root


@pytest.fixture(scope="module")
def whole(cells, tmp_path_factory) -> Experiment:
    root = tmp_path_factory.mktemp("whole")
    shutil.copytree(cells / "results", root / "results")
    return read(root)


def lose_a_problem(folder: Path) -> None:
    for name in (GENERATIONS, GRADED, STEPS):
        table = pq.read_table(folder / name, partitioning=None)
        pq.write_table(table.filter([index < PROBLEMS - 1 for index in table["index"].to_pylist()]), folder / name)


WHY = (f"missing: only {PROBLEMS - 1} of {PROBLEMS} problems (", "missing: not decoded (")


@pytest.fixture(scope="module")
def broken(cells, tmp_path_factory) -> Experiment:
    """The experiment with a problem less in one lossless cell of level 2, and without some cells of level 4."""
    root = tmp_path_factory.mktemp("broken")
    shutil.copytree(cells / "results", root / "results")
    results = root / "results"
    study = Study.read(results / "synthetic" / "experiment.json")
    first = {(c.method, c.benchmark): c.folder(results) for c in reversed(study.cells) if c.seed == 1}
    lose_a_problem(first["standard_sd", "level_2"])
    for method in ("min_p_sampling", "spec_cascade", "overshoot_ceiling", "cap_nowhere_keep_tail"):
        shutil.rmtree(first[method, "level_4"])
    return read(root)


def is_reason(text: str) -> bool:
    return any(why in text for why in WHY)


def hangs_on_others(column: str) -> bool:
    return column.split("_", 1)[-1] in ADJUSTED or column.endswith(ADJUSTED[:2]) or column in ADJUSTED


@pytest.mark.parametrize("name", [*TABLES, *JOINED_TABLES, *FIGURES])
def test_a_number_is_as_it_was_or_absent_with_its_reason(whole, broken, name):
    before, after = whole.made(name).data, broken.made(name).data
    assert list(before.columns) == list(after.columns) and len(before) == len(after)
    reasons = [column for column in after if column.endswith("missing")]
    assert reasons and (before[reasons] == "").all(axis=None)
    said = after[reasons].apply(" ".join, axis=1)
    assert said.str.contains("missing: ").any() and said.map(lambda text: not text.strip() or is_reason(text)).all()
    for column in after.columns.difference(reasons):
        for old, new, why in zip(before[column], after[column], said, strict=True):
            if pd.isna(new):
                assert pd.isna(old) or is_reason(why), column
            elif not hangs_on_others(column):
                assert new == old, column


@pytest.mark.parametrize("name", [*TABLES, *JOINED_TABLES])
def test_each_text_of_a_table_is_as_it_was_or_says_what_is_missing_and_why(whole, broken, name):
    before, after = whole.made(name), broken.made(name)
    assert len(before.parts) == len(after.parts)
    for (old, _), (new, _) in zip(before.parts, after.parts, strict=True):
        assert list(old.columns) == list(new.columns) and len(old) == len(new)
        for column in new:
            for was, text in zip(old[column].astype(str), new[column].astype(str), strict=True):
                if text != was and not hangs_on_others(column.split(": ")[-1]):
                    assert text.startswith(WHY), column
                assert text not in ("missing", "nan", "None", "") or column == "holds" or text == was, column


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_says_below_what_is_not_drawn(whole, broken, name):
    assert "Not drawn" not in whole.made(name).reading
    assert "Not drawn" in broken.made(name).reading and any(why in broken.made(name).reading for why in WHY)
