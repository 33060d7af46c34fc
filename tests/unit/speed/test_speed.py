"""`make bench` measures what it says."""

from __future__ import annotations

import re

import pytest

from specloss.speed import __main__ as bench
from specloss.speed.chains import report_decoding
from specloss.speed.contenders import Measured
from specloss.speed.workflow import Run, report_workflow

pytestmark = pytest.mark.timeout(180)


def test_ratios_are_taken_within_a_round():
    """A machine that is three times slower in one round leaves every ratio as it is."""
    rounds = {
        "transformers, batch 1": (100, 20, 1.0),
        "specloss, batch 1": (100, 20, 0.5),
        "specloss, batch 1, light trace": (100, 20, 0.4),
        "specloss, batch 32": (100, 20, 0.05),
        "specloss, batch 32, light trace": (100, 20, 0.04),
    }
    measured = {
        name: [
            Measured(tokens, calls, slow * seconds, slow * seconds, 0.9 * slow * seconds, slow * seconds)
            for slow in (1, 3, 1)
        ]
        for name, (tokens, calls, seconds) in rounds.items()
    }
    text = "\n".join(report_decoding(measured))
    assert re.search(r"batch 1 against transformers +2\.00x \(2\.00x to 2\.00x\)", text)
    assert re.search(r"batch 32 against batch 1 +10\.00x \(10\.00x to 10\.00x\)", text)
    assert re.search(r"outside both forwards, batch 1 +10\.0% \(10\.0% to 10\.0%\)", text)
    assert re.search(r"full against light trace, batch 32 +0\.80x", text)


def test_what_a_cell_adds_is_time_without_decoding_and_without_the_start():
    run = Run(cells=16, cells_per_job=1, start=20.0, cells_wall=45.0, cells_decode=15.0, end=5.0)
    assert run.added == 2.0
    assert re.search(r"16 +1 +20\.0 +45\.0 +15\.0 +5\.0 +2\.00", "\n".join(report_workflow([run])))


def test_both_sides_decode_the_same_prompts_with_like_yield(capsys: pytest.CaptureFixture):
    bench.main(["--prompts", "4", "--rounds", "1"])
    out = capsys.readouterr().out
    rows = dict(re.findall(r"^((?:transformers|specloss), .*?)  +\d+ +\d+ +\d+ +([\d.]+)$", out, re.MULTILINE))
    assert len(rows) == 5
    yields = {name: float(value) for name, value in rows.items()}
    # four short answers: the same gamma and temperature, so the same number of tokens from a target call, but for noise
    assert yields["specloss, batch 1"] == pytest.approx(yields["transformers, batch 1"], rel=0.5)
    assert yields["specloss, batch 1"] == yields["specloss, batch 32"]
    assert re.search(r"batch 1 against transformers +[\d.]+x", out)


def test_trees_are_measured_beside_chains_and_the_target_alone(capsys: pytest.CaptureFixture, tree_head: str):
    bench.main(["--trees", "--head", tree_head, "--prompts", "4", "--rounds", "1"])
    out = capsys.readouterr().out
    rows = re.findall(r"^((?:plain|chain|tree), .*?)  +\d+ +\d+ +\d+ +([\d.]+)$", out, re.MULTILINE)
    yields = {name: float(value) for name, value in rows}
    assert len(yields) == 5
    # in this count a prefill is a call of its own for the loops; generate's is its first token's
    assert yields["plain, batch 1"] == 1.0
    assert yields["tree, batch 1"] == yields["tree, batch 32"]
    assert re.search(r"tree against chain, batch 32 +[\d.]+x", out)
