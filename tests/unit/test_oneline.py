"""What comes from files of anyone can neither forge a line of a log nor steer a terminal."""

from __future__ import annotations

import inspect
import json
import logging
import pkgutil
import shutil
import sys
import warnings
from importlib import import_module
from pathlib import Path

import pytest
import yaml
from places import DEMO, ROOT
from typer.testing import CliRunner

import specloss
from specloss import cli
from specloss.cluster import snakemake
from specloss.cluster.output import write_failure
from specloss.cluster.progress import Progress
from specloss.cluster.relay import Relay
from specloss.common.oneline import OneLine, plain, plain_lines, plain_logs
from specloss.experiment.cells import Cell
from specloss.scoring.score import score_cell

# clears the screen, sets the window's title, forges a line, turns text around, goes back, ends with half a pair
HOSTILE = "\x1b[2J\x1b]0;owned\x07\nspecloss: all is well\r\x9b31m\u202e\u2028\x00\x7f\u200b\ud800"
SHOWN = (
    "\\x1b[2J\\x1b]0;owned\\x07 specloss: all is well \\x9b31m\\u202e \\x00\\x7f\\u200b\\ud800"  # as a reader sees it
)


def is_plain(text: str) -> bool:
    """Whether every line of a text is one that prints."""
    return all(line.isprintable() for line in text.split("\n"))


def test_text_on_one_line_has_escapes_for_what_does_not_print():
    assert plain(HOSTILE) == SHOWN and is_plain(SHOWN)
    assert plain("straße, 漢字, 😀, a  b") == "straße, 漢字, 😀, a  b"
    assert plain("a\t\n  b") == "a b"
    assert plain(plain(HOSTILE)) == plain(HOSTILE)


def test_every_character_of_unicode_comes_out_printable():
    assert plain("".join(map(chr, range(0x110000)))).isprintable()


def test_a_longer_text_keeps_its_lines_and_gets_no_others():
    assert plain_lines("a\n\x1b[1mb\r\x85c\n") == "a\n\\x1b[1mb c\n"


def test_every_error_that_users_see_is_on_one_line():
    found = set()
    for module in pkgutil.walk_packages(specloss.__path__, "specloss."):
        if ".inside" in module.name or ".launcher" in module.name or module.name.endswith("__main__"):
            continue  # programs of the sandbox, whose output is read by a reader of its own
        members = inspect.getmembers(import_module(module.name), inspect.isclass)
        found |= {kind for _, kind in members if issubclass(kind, Exception) and kind.__module__ == module.name}
    assert len(found) > 15
    others = {"TooLargeError", "_NotPlainError", "NotCallsError"}  # of parsers, which say no more than that
    named = {
        kind for kind in found if kind.__name__.endswith(("Error", "Decoded", "Lost")) and issubclass(kind, Exception)
    }
    assert {kind.__name__ for kind in named if not issubclass(kind, OneLine)} == others
    assert str(OneLine(HOSTILE)) == SHOWN


def test_what_libraries_log_and_warn_of_is_plain(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    factory = logging.getLogRecordFactory()
    handler = logging.StreamHandler(sys.stderr)
    logger = logging.getLogger("of.a.library")
    logger.addHandler(handler)
    try:
        plain_logs()
        logger.warning("token %s", HOSTILE)
        warning = warnings.formatwarning(HOSTILE, UserWarning, "file.py", 1)
    finally:
        logging.setLogRecordFactory(factory)
        logger.removeHandler(handler)
    said = capsys.readouterr().err
    assert "token \\x1b[2J" in said and is_plain(said)
    assert "UserWarning: \\x1b[2J" in warning and is_plain(warning)


def test_logs_progress_and_failures_are_plain(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    log = tmp_path / "tiny" / "logs" / "decode" / "job.log"
    progress = Progress(tmp_path / "tiny", 1, log)
    progress.say(f"no model: {HOSTILE}")
    progress.note(f"Traceback:\n  {HOSTILE}")
    relay = Relay(tmp_path / "tiny")
    with log.open("a", errors="surrogatepass") as file:
        file.write(f"2026-01-01 00:00:00  a job of before says {HOSTILE}\n")
    relay._look()
    cell = Cell("tiny", "demo", "chain_l2", "standard_sd", None, 0, {})
    failure = write_failure(cell, tmp_path, HOSTILE, f"Traceback\n  {HOSTILE}\n")
    said = capsys.readouterr().err
    assert f"no model: {SHOWN}\n" in said and "a job of before says \\x1b[2J" in said
    assert is_plain(said)
    assert SHOWN in failure.read_text() and is_plain(failure.read_text())
    with pytest.raises(Exception, match="nothing to grade") as error:
        score_cell(failure.parent)
    assert SHOWN in str(error.value) and str(error.value).isprintable()


def test_what_snakemake_and_its_jobs_say_is_passed_on_plainly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    jobs = tmp_path / "jobs"
    jobs.write_text("#!/bin/sh\nprintf 'a job: \\033[2J \\033]0;owned\\007\\n  indented\\n' >&2\n")
    jobs.chmod(0o700)
    (tmp_path / "Snakefile").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(snakemake.signal, "signal", lambda *_: None)
    monkeypatch.setattr(snakemake.sys, "executable", str(jobs))
    assert snakemake.run_snakemake(Path("mine.yaml"), []) == 0
    assert capsys.readouterr().err == "a job: \\x1b[2J \\x1b]0;owned\\x07\n  indented\n"


@pytest.mark.parametrize("traceback", ["", "1"])
def test_an_error_and_its_traceback_are_plain(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], traceback: str
):
    def fails() -> None:
        raise RuntimeError(HOSTILE)

    monkeypatch.setattr(cli, "plain_logs", lambda: None)
    monkeypatch.setattr(cli, "app", fails)
    monkeypatch.setenv("SPECLOSS_TRACEBACK", traceback)
    with pytest.raises(SystemExit):
        cli.main()
    said = capsys.readouterr().err
    assert said.startswith("Traceback") and "RuntimeError: \\x1b[2J" in said
    assert is_plain(said)


def test_check_and_doctor_show_a_hostile_model_plainly(tmp_path: Path):
    folder = tmp_path / "target"
    shutil.copytree(DEMO / "target", folder)
    config = yaml.safe_load((ROOT / "config/demo.yaml").read_text())
    config |= {"results": str(tmp_path / "results"), "reports": str(tmp_path / "reports")}
    config["pairs"]["demo"] |= {"target": str(folder), "draft": str(DEMO / "draft")}
    config["benchmarks"] = {"chain_l2": config["benchmarks"]["chain_l2"]}
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(config))
    (folder / "config.json").write_text(json.dumps({"model_type": HOSTILE[:-1]}))
    for command in ("doctor", "check"):
        shown = CliRunner().invoke(cli.app, [command, str(path)])
        assert "owned" in shown.output + str(shown.exception)
        assert is_plain(shown.output) and str(shown.exception).isprintable()
