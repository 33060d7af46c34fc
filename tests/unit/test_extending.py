"""The changes that docs/extending.md lists are all that it takes: each is made on a copy of the package, and works."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT
from synthetic import write_experiment

RULE = """

def floor_gate(p: Tensor, q: Tensor, floor: float) -> Mass:
    return gate(p, q, p >= floor * p.amax(-1, keepdim=True))
"""
RULES = """    "floor_gate": RuleSpec(
        function=rules.floor_gate, param="floor", valid=UNIT, grid=(0.5,), allowed=lambda p, l, _: min_p_set(p, l)
    ),
    "blockwise":"""
TREE = """TREE_FORMS["floor_gate"] = TreeForm(accept=spec_cascade)


def valid_tree_options("""
BENCHMARK = """
from specloss.benchmarks import Grade, Item, LocalFile


def load(file: LocalFile | None = None, count: int = 1) -> list[Item]:
    return [Item(f"echo-{n}", f"say {n}", str(n)) for n in range(count)]


def grade(text: str, reference: str) -> Grade:
    return Grade(text.strip() == reference, text.strip() or None)
"""
TABLE = """
import pandas as pd

from specloss.analysis.evidence.evidence import Evidence
from specloss.analysis.tables.table import Table


def census(evidence: Evidence) -> Table:
    rows = pd.DataFrame([{"settings": len(evidence.study.settings)}])
    return Table("census", "Census", "How many settings there are.", rows, rows.astype(str))
"""
PROOF = """
import sys
from pathlib import Path

import torch

from specloss.analysis.outputs import tables_for
from specloss.analysis.report.page import write_report
from specloss.analysis.tables.catalogue import write_table
from specloss.experiment.grid import expand
from specloss.experiment.config import parse_config
from specloss.experiment.study import Study
from specloss.scoring.grade import grade_one
from specloss.verification import get_rule, get_tree_rule

p = torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64)
assert abs(get_rule("floor_gate", 0.5).acceptance(p, p).item() - 0.9) < 1e-12
children = torch.tensor([0, 1])
assert get_tree_rule("floor_gate", 0.5).acceptance(p, children).item() > 0.6
assert grade_one("echo", ("1", "1"), {}).correct
config = parse_config(
    {
        "name": "mine",
        "pairs": {"demo": {"target": "specloss/models/demo/target", "draft": "specloss/models/demo/draft"}},
        "benchmarks": {"echo": {"task": "echo", "options": {"file": __file__}, "max_new_tokens": 4}},
        "methods": {"floor_gate": {"params": [0.5]}},
        "seeds": [0],
        "decoding": {"gamma": 4},
    },
    "mine.yaml",
)
cells = expand(config)
assert [cell.method for cell in cells] == ["standard_sd", "floor_gate"] and set(cells[0].settings["files"]) == {"file"}
experiment, results, out = map(Path, sys.argv[1:])
assert "census" in tables_for(Study.read(experiment))
assert {path.suffix for path in write_table("census", experiment, results, out)} == {".csv", ".md", ".tex"}
"""


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1, (path, old)
    path.write_text(text.replace(old, new))


@pytest.fixture
def copy(tmp_path):
    """The package, copied, with a rule, a benchmark and a table more."""
    package = tmp_path / "specloss"
    shutil.copytree(ROOT / "src/specloss", package, ignore=shutil.ignore_patterns("__pycache__"))
    rules = package / "verification/rules.py"
    rules.write_text(rules.read_text() + RULE)
    edit(package / "verification/registry.py", '    "blockwise":', RULES)
    edit(package / "verification/tree_rules.py", "def valid_tree_options(", TREE)
    (package / "benchmarks/echo.py").write_text(BENCHMARK)
    edit(package / "benchmarks/__init__.py", '"chain", ', '"chain", "echo", ')
    (package / "analysis/tables/census.py").write_text(TABLE)
    edit(package / "analysis/outputs.py", '    "distortion",\n', '    "census",\n    "distortion",\n')
    catalogue = package / "analysis/tables/catalogue.py"
    edit(
        catalogue,
        "from specloss.common.files",
        "from specloss.analysis.tables.census import census\nfrom specloss.common.files",
    )
    edit(catalogue, '    "distortion": distortion,\n', '    "census": census,\n    "distortion": distortion,\n')
    return package


def test_a_rule_a_benchmark_and_a_table_work_everywhere_after_the_edits_that_are_listed(copy, tmp_path):
    experiment, results = write_experiment(tmp_path / "made")
    script = tmp_path / "proof.py"
    summarise = "from specloss.analysis.evidence.summary import summarise\nimport sys\nfrom pathlib import Path\n"
    script.write_text(summarise + "summarise(*map(Path, sys.argv[1:3]))\n" + PROOF)
    command = [sys.executable, str(script), str(experiment), str(results), str(tmp_path / "out")]
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
