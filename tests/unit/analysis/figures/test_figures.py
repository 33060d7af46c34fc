"""Figures are the same bytes for the same data and are drawn from what their CSV has."""

from __future__ import annotations

import pandas as pd
import pytest
from synthetic import write_experiment

from specloss.analysis.evidence.evidence import Evidence
from specloss.analysis.evidence.summary import summarise
from specloss.analysis.figures.catalogue import MAKERS, make_figure, write_figure
from specloss.analysis.outputs import FIGURES


def test_every_name_has_a_figure():
    assert set(FIGURES) == set(MAKERS)


@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_deterministic(experiment, tmp_path, name):
    first = write_figure(name, *experiment, tmp_path / "a")
    second = write_figure(name, *experiment, tmp_path / "b")
    assert [p.suffix for p in first] == [".svg", ".pdf", ".png", ".csv"]
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in second]


def test_the_frontier_has_a_point_for_every_setting_and_the_lossless_run(experiment):
    evidence = Evidence.read(*experiment)
    data = make_figure("fig6_collaborative", evidence).data
    assert len(data) == len(evidence.study.places) * (1 + 2 + 3)
    assert set(data["method"]) == {"standard_sd", "lenience", "cos"}
    assert (data["be_low"] <= data["be"]).all() and (data["be"] <= data["be_high"]).all()


def test_the_gates_are_drawn_with_their_matched_baselines(experiment):
    evidence = Evidence.read(*experiment)
    assert set(make_figure("fig3_truncation", evidence).data["method"]) == {
        "standard_sd",
        "min_p_sampling",
        "spec_cascade",
    }
    assert set(make_figure("fig1_gap_by_level", evidence).data["against"]) == {"min_p_sampling"}


def test_acceptance_by_position_sums_to_be(experiment):
    evidence = Evidence.read(*experiment)
    data = make_figure("acceptance_by_position", evidence).data
    kept = data[(data["method"] == "cos") & (data["param"] == 0.8)]["accepted"].sum()
    be = evidence.summary.query("method == 'cos' and param == 0.8")["be"].mean()
    assert 1 + kept == pytest.approx(be)


@pytest.mark.parametrize("name", FIGURES)
def test_an_experiment_of_one_method_and_one_seed_is_drawn(tmp_path, name):
    path, results = write_experiment(tmp_path, problems=3, seeds=(0,), grids={"standard_sd": [None]})
    summarise(path, results)
    written = write_figure(name, path, results, tmp_path)
    assert all(path.stat().st_size for path in written)
    pd.read_csv(written[-1])
