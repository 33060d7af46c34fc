"""Findings are computed: true where the made-up data have the effect, false where they have its opposite."""

from __future__ import annotations

import pytest
import synthetic
from synthetic import Effect, write_experiment

from specloss.analysis.evidence.findings import find
from specloss.analysis.evidence.summary import summarise
from specloss.experiment.study import Study


def outcomes(path, results) -> dict[str, str]:
    return {finding.name: finding.holds for finding in find(path, results)}


def made(tmp_path, monkeypatch, effect, problems=60, grids=None):
    monkeypatch.setattr(synthetic, "effect", effect)
    path, results = write_experiment(tmp_path, problems=problems, grids=grids)
    summarise(path, results)
    return path, results


def test_effects_that_were_put_in_are_found(experiment):
    found = outcomes(*experiment)
    assert found["cos_trades_accuracy"] == "true"
    assert found["spec_cascade_loses_to_baseline"] == "true"
    assert found["spec_cascade_gap_grows"] == "true"
    assert found["lenience_cos_never_slower"] == "true"
    assert found["gate_may_be_slower"] == "true"
    assert found["lenience_within_noise"] in ("true", "not distinguishable")


def test_sentences_carry_numbers_and_intervals(experiment):
    for finding in find(*experiment):
        assert "[" in finding.sentence and finding.sentence.endswith(".")


def test_no_effect_is_not_called_an_effect(tmp_path, monkeypatch):
    found = outcomes(*made(tmp_path, monkeypatch, lambda *_: Effect(0.0, 0.75)))
    assert "true" not in {found[name] for name in ("cos_trades_accuracy", "gate_may_be_slower")}
    assert "true" not in {found[name] for name in ("spec_cascade_loses_to_baseline", "spec_cascade_gap_grows")}


def test_a_slower_lenience_is_reported(tmp_path, monkeypatch):
    slow = lambda method, *_: Effect(0.0, 0.5 if method == "lenience" else 0.75)  # noqa: E731
    path, results = made(tmp_path, monkeypatch, slow)
    finding = next(f for f in find(path, results) if f.name == "lenience_cos_never_slower")
    assert finding.holds == "false"
    assert finding.sentence.startswith("Not so here")


def test_a_loss_of_lenience_beyond_noise_is_reported(tmp_path, monkeypatch):
    lossy = lambda method, *_: Effect(-0.4 if method == "lenience" else 0.0, 0.75)  # noqa: E731
    assert outcomes(*made(tmp_path, monkeypatch, lossy))["lenience_within_noise"] == "false"


def test_a_finding_that_needs_a_missing_cell_says_so(tmp_path):
    path, results = write_experiment(tmp_path, problems=5)
    cell = next(c for c in Study.read(path).cells if c.method == "cos" and c.param == 0.8)
    (cell.folder(results) / "cell.json").unlink()
    summarise(path, results)
    assert outcomes(path, results)["cos_trades_accuracy"] == "missing"


@pytest.mark.parametrize("grids", [{"standard_sd": [None]}, {"standard_sd": [None], "cos": [0.2]}])
def test_methods_that_were_not_run_are_not_mentioned(tmp_path, monkeypatch, grids):
    path, results = made(tmp_path, monkeypatch, synthetic.effect, problems=3, grids=grids)
    assert all("spec_cascade" not in f.claim and "Lenience at" not in f.claim for f in find(path, results))


def test_of_too_few_problems_for_an_interval_nothing_is_told(tmp_path, monkeypatch):
    found = outcomes(*made(tmp_path, monkeypatch, synthetic.effect, problems=3))
    assert len(found) == 6 and set(found.values()) == {"not distinguishable"}
