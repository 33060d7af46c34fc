"""The house: files that fit on a few screens, folders that can be overlooked, and a name for each thing."""

import ast
import subprocess
import sys
from collections import Counter

import pytest
from places import ROOT

SOURCE = ROOT / "src/specloss"
FILES = [path for path in SOURCE.rglob("*.py") if "__pycache__" not in path.parts]


def test_no_file_is_longer_than_400_lines():
    assert [str(path) for path in FILES if len(path.read_text().splitlines()) > 400] == []


def test_no_folder_has_more_than_12_modules():
    modules = Counter(path.parent for path in FILES if path.name not in ("__init__.py", "__main__.py"))
    assert {str(folder): count for folder, count in modules.items() if count > 12} == {}


def test_no_two_public_classes_have_one_name():
    classes = Counter(
        node.name
        for path in FILES
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, count in classes.items() if count > 1] == []


def test_the_columns_of_the_trace_are_quantities_that_the_rules_have_in_closed_form():
    from specloss.experiment.schema import DISTORTION
    from specloss.verification import KEYS

    assert set(DISTORTION) == set(KEYS) - {"kl_pi_target"}


@pytest.mark.parametrize("command", [["lintimports"], ["docs/draw_map.py"]], ids=["order", "map"])
def test_the_rooms_are_in_order_and_their_picture_is_todays(command, tmp_path):
    if command == ["lintimports"]:
        code = "from importlinter.cli import lint_imports; import sys; sys.exit(lint_imports())"
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout
    else:
        sys.path.insert(0, str(ROOT / "docs"))
        try:
            import draw_map

            assert draw_map.draw() == (ROOT / "docs/map.svg").read_text()
        finally:
            sys.path.remove(str(ROOT / "docs"))
