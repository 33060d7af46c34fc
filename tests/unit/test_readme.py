"""The README says nothing that is not so: its Python runs, its commands, targets and files exist."""

import re

import pytest
from places import ROOT

from specloss.cli import app

README = (ROOT / "README.md").read_text()


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", README, re.S))
def test_its_python_runs(block, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    exec(compile(block, "README.md", "exec"), {})
    assert "accepted" in capsys.readouterr().out


def test_its_commands_exist():
    known = {command.name or command.callback.__name__ for command in app.registered_commands}
    named = set(re.findall(r"(?:bin/|`)specloss ([a-z-]+)", README))
    assert named and named <= known


def test_its_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    named = set(re.findall(r"^make ([a-z]+)|`make ([a-z]+)`", README, re.M))
    targets = {first or second for first, second in named}
    assert {"demo", "test"} <= targets
    assert all(re.search(rf"^{target}:.*##", makefile, re.M) for target in targets)


def test_its_files_exist():
    named = re.findall(r"\]\(([^)#h][^)]*)\)", README) + re.findall(r"`((?:src|config|envs|docs)/[^`*]*)`", README)
    named += re.findall(r"(config/[a-z_0-9]+\.yaml)", README)
    assert named and not [path for path in named if not (ROOT / path).exists()]
