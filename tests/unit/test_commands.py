"""Whatever is typed wrongly ends in exit status 1 or 2 with one line, and nothing is written."""

import json
import os
import re

import pytest
from places import ROOT
from typer.testing import CliRunner

from specloss import cli
from specloss.cluster import snakemake

# what stands for the file in each command; the rest of its arguments is right
COMMANDS = [
    *(
        ["run", "@"],
        ["check", "@"],
        ["doctor", "@"],
        ["cell", "@"],
        ["plan-size", "@"],
        ["score", "@"],
        ["decode", "@"],
    ),
    *(["screen-report", "@", "--out", "out"], ["screen", "@", "--out", "out"], ["trace", "@"], ["summarise", "@"]),
    *(["table", "table4", "@", "out"], ["figure", "frontier", "@", "out"], ["report", "@", "out"]),
    *(["track", "@", "out"], ["analytic", "fig2_induced", "@", "out"], ["fetch-model", "@", "x", "out"]),
    *(["distil-model", "@", "x", "out"], ["convert-model", "@", "out"]),
    *(["train-demo", "@", "out"], ["train-demo-eagle3", "@", "out"]),
]
CONTENTS = {
    "empty": b"",
    "bytes": bytes(range(256)),
    "utf16": "name: x".encode("utf-16"),
    "date": b"name: 2024-13-45",
    "digits": b"name: x\nseeds: [" + b"1" * 5000 + b"]",
    "deep": b"[" * 100_000,
    "list": b"[1]",
    "alias": b"&a [*a]",
    "nul": b'name: "a\\0b"',
    "half": b'name: "a\\ud800b"',
    "cells": b'{"config": 1, "cells": 2, "settings": 3}',
    "none": b'{"config": {"name": null}, "cells": [1], "settings": [{}]}',
}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    paths = ["/dev/zero", "a\0b", "no/such", "x" * 300, str(folder), "*.yaml"]
    for suffix in (".yaml", ".json", ".gguf"):
        os.mkfifo(folder / f"pipe{suffix}")
        (folder / f"folder{suffix}").mkdir()
        paths += [str(folder / f"pipe{suffix}"), str(folder / f"folder{suffix}")]
        for name, content in CONTENTS.items():
            (folder / f"{name}{suffix}").write_bytes(content)
            paths.append(str(folder / f"{name}{suffix}"))
    return paths


def said(arguments, monkeypatch, capsys):
    """(exit status, lines on stderr) of a command, through `main`."""
    monkeypatch.setattr(cli.sys, "argv", ["specloss", *arguments])
    monkeypatch.delenv("SPECLOSS_TRACEBACK", raising=False)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code, capsys.readouterr().err.splitlines()


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_hostile_file_is_one_line(command, hostile, tmp_path, monkeypatch, capsys):
    (tmp_path / "Snakefile").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli, "run_snakemake", lambda *_: 1)
    for path in hostile:
        code, lines = said([path if word == "@" else word for word in command], monkeypatch, capsys)
        errors = [line for line in lines if line.startswith("specloss: error:")]
        assert code in (1, 2), path
        assert len(errors) == 1 or command[0] == "doctor" or code == 2, (path, lines)
    assert {path.name for path in tmp_path.iterdir()} == {"Snakefile"}


def command_of(arguments, monkeypatch):
    """Snakemake's own reading of the command that `specloss` with these arguments would start."""
    from snakemake.cli import get_argument_parser

    class Process:
        stderr, pid = (), 0
        wait = staticmethod(lambda: 0)

        def __init__(self, command, **_):
            started.append(command)

    started = []
    monkeypatch.setattr(snakemake.subprocess, "Popen", Process)
    monkeypatch.setattr(snakemake.signal, "signal", lambda *_: None)
    monkeypatch.chdir(ROOT)
    assert CliRunner().invoke(cli.app, arguments).exit_code == 0
    return get_argument_parser().parse_args(started[0][3:])


def test_the_users_own_options_of_snakemake_win(monkeypatch):
    asked = command_of(["run", "config/demo.yaml", "a", "b", "--cores", "1", "--scheduler", "ilp"], monkeypatch)
    assert (str(asked.cores), asked.scheduler, asked.targets) == ("1", "ilp", ["a", "b"])
    assert command_of(["run", "--cores", "1"], monkeypatch).configfile[0].name == "demo.yaml"
    assert command_of(["run", "config/demo.yaml"], monkeypatch).cores is not None
    assert command_of(["run", "config/demo.yaml", "-j", "2"], monkeypatch).cores is None


def test_ctrl_c_during_a_run_shows_no_traceback_of_snakemake(monkeypatch, capsys):
    handlers = {}

    class Process:
        pid, wait = 2**22 + 1, staticmethod(lambda: -2)  # no process has that number
        stderr = (
            "Traceback (before)\n",
            None,
            "Terminating\n",
            "Traceback (most recent call last):\n",
            "  File x\n",
        )

        def __init__(self, *_, **__):
            self.stderr = self.lines()

        def lines(self):
            for line in Process.stderr:
                if line is None:
                    handlers[snakemake.signal.SIGINT](snakemake.signal.SIGINT, None)
                else:
                    yield line

    monkeypatch.setattr(snakemake.subprocess, "Popen", Process)
    monkeypatch.setattr(snakemake.signal, "signal", handlers.__setitem__)
    monkeypatch.chdir(ROOT)
    assert snakemake.run_snakemake(ROOT / "config/demo.yaml", []) == 2
    assert capsys.readouterr().err == "Traceback (before)\nTerminating\nspecloss: stopped by SIGINT\n"


def test_an_error_that_a_library_made_of_ctrl_c_is_silent(monkeypatch, capsys):
    def interrupted():
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as error:
            raise ModuleNotFoundError("could not import module") from error

    monkeypatch.setattr(cli, "app", interrupted)
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 130 and capsys.readouterr().err == ""


def test_check_writes_nothing_and_reading_commands_need_no_models(tmp_path, monkeypatch, capsys):
    import yaml

    monkeypatch.chdir(ROOT)
    values = yaml.safe_load((ROOT / "config/demo.yaml").read_text())
    values |= {"results": str(tmp_path / "a/results"), "reports": str(tmp_path / "a/reports")}
    path = tmp_path / "here.yaml"
    path.write_text(json.dumps(values))
    assert CliRunner().invoke(cli.app, ["check", str(path)]).exit_code == 0
    assert [entry.name for entry in tmp_path.iterdir()] == ["here.yaml"]
    values["pairs"] = {"far": {"target": "no/target", "draft": "no/draft"}}
    path.write_text(json.dumps(values))
    for command in (["plan-size", str(path)], ["screen-report", str(path), "--out", str(tmp_path)]):
        code, lines = said(command, monkeypatch, capsys)
        assert code == 1 and re.search("summary", lines[-1]), lines
