"""Table 7 joins chains and trees, and its ratio stays honest where the single-draft gap is near zero."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import synthetic
from synthetic import Effect, as_trees, write_experiment

from specloss.analysis.evidence.evidence import OVERALL, Evidence
from specloss.analysis.evidence.summary import summarise
from specloss.analysis.tables.amplification import Ratio, fieller, table7
from specloss.analysis.tables.catalogue import write_joined
from specloss.analysis.tables.frameworks import TableError, frameworks
from specloss.experiment.study import Place, Study

GRIDS = {"standard_sd": [None], "min_p_sampling": [0.1, 0.5], "spec_cascade": [0.1, 0.5]}


def made(folder, loss: float, trees: bool, monkeypatch, problems: int = 80):
    """An experiment whose gate loses so many points on every level."""

    def effect(method, param, level):
        return Effect(-loss / 100 if method == "spec_cascade" else 0.0, 0.75)

    monkeypatch.setattr(synthetic, "effect", effect)
    path, results = write_experiment(folder, problems=problems, grids=GRIDS)
    path = as_trees(path) if trees else path
    summarise(path, results)
    return path, results


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        chains = made(tmp_path_factory.mktemp("chains"), 10, False, patch)
        trees = made(tmp_path_factory.mktemp("trees"), 30, True, patch)
    return chains, trees


@pytest.fixture(scope="module")
def evidence(both):
    return [Evidence.read(*files) for files in both]


@pytest.fixture(scope="module")
def table(both):
    return table7(*(Evidence.read(*files) for files in both))


def test_each_gap_is_that_of_its_own_experiment_and_convention(both, table):
    chains, trees = (Evidence.read(*files) for files in both)
    row = table.data.set_index("benchmark").loc["level_4"]
    grid, place = (
        chains.study.methods["spec_cascade"],
        [p for p in chains.places("made_up") if p.benchmark == "level_4"],
    )
    assert row["single_draft_delta_accuracy"] == pytest.approx(chains.gap("accuracy", place, grid).estimate, rel=1e-5)
    assert row["eagle3_delta_accuracy"] == pytest.approx(trees.gap("accuracy", place, grid).estimate, rel=1e-5)
    assert row["single_draft_delta_be"] == pytest.approx(chains.gap("be", place, grid).estimate, rel=1e-4)
    assert row["eagle3_delta_be"] == pytest.approx(trees.gap("be_eagle", place, grid).estimate, rel=1e-4)
    assert list(table.data["benchmark"]) == ["level_2", "level_4", "level_6", OVERALL]


def test_the_amplification_is_about_what_was_put_in_in_either_order(both, table):
    row = table.data.set_index("benchmark").loc[OVERALL]
    assert row["amplification_bounded"] and 1.5 < row["amplification_low"] < row["amplification_high"] < 6  # 30 over 10
    assert -30 < row["more_low"] < row["more_high"] < -10  # 20 more points
    other = table7(*(Evidence.read(*files) for files in reversed(both)))
    pd.testing.assert_frame_equal(other.data, table.data)


def test_both_gaps_of_the_same_problems_are_paired(both, table):
    assert "paired over the problems, which are the same" in table.reading


def test_without_a_gap_of_the_single_draft_the_amplification_is_unbounded_in_words(tmp_path, monkeypatch):
    chains = made(tmp_path / "a", 0, False, monkeypatch, problems=10)
    trees = made(tmp_path / "b", 30, True, monkeypatch, problems=10)
    table = table7(Evidence.read(*chains), Evidence.read(*trees))
    assert "unbounded" in table.shown["amplification"].iloc[-1]
    assert not table.data["amplification_bounded"].iloc[-1]


def test_a_missing_cell_of_either_is_missing_there_with_its_reason(tmp_path, monkeypatch):
    chains, trees = made(tmp_path / "a", 10, False, monkeypatch), made(tmp_path / "b", 30, True, monkeypatch)
    cell = next(c for c in Study.read(trees[0]).cells if c.method == "min_p_sampling" and c.benchmark == "level_4")
    (cell.folder(trees[1]) / "graded.parquet").unlink()
    summarise(*trees)
    shown = table7(Evidence.read(*chains), Evidence.read(*trees)).shown.set_index("benchmark")
    assert shown.loc["level_4", "Δ accuracy, EAGLE-3"] == "missing: not graded (1/12 cells)"
    assert shown.loc[OVERALL, "amplification"] == "missing: not graded (1/36 cells), EAGLE-3"
    assert shown.loc["level_4", "EAGLE-3 less single draft"] == "missing: not graded (1/12 cells), EAGLE-3"
    assert "missing" not in shown.loc["level_4", "Δ accuracy, single draft"] + shown.loc["level_2"].str.cat()


def test_a_setting_with_a_missing_cell_is_missing_beside_its_twin(tmp_path, monkeypatch):
    chains, trees = made(tmp_path / "a", 10, False, monkeypatch), made(tmp_path / "b", 30, True, monkeypatch)
    cell = next(c for c in Study.read(trees[0]).cells if c.method == "min_p_sampling" and c.benchmark == "level_4")
    (cell.folder(trees[1]) / "graded.parquet").unlink()
    summarise(*trees)
    shown = frameworks(Evidence.read(*chains), Evidence.read(*trees)).shown
    line = shown[(shown["method"] == "min_p_sampling") & (shown["benchmark"] == "level_4")].iloc[0]
    assert line["accuracy, EAGLE-3"] == "missing: not graded (1/3 cells)"
    assert line["accuracy, EAGLE-3 less single draft"] == "missing: not graded (1/3 cells), EAGLE-3"
    assert "missing" not in line["accuracy, single draft"]


def test_the_papers_gaps_stand_beside_those_of_its_tasks_and_zero_is_one(both):
    changed = []
    for path, results in both:
        content = json.loads(path.read_text())
        content["config"]["benchmarks"]["level_2"]["task"] = "math"
        content["config"]["benchmarks"]["level_4"]["task"] = "mbppplus"
        (copy := path.with_name(f"math_{path.name}")).write_text(json.dumps(content))
        changed.append(Evidence.read(copy, results))
    table = table7(*changed)
    assert "(paper +0.00, " in table.shown.set_index("benchmark").loc["level_4", "Δ BE, single draft"]
    assert table.data.set_index("benchmark").loc["level_4", "single_draft_delta_be_paper"] == 0
    row = table.data.set_index("benchmark").loc["level_2"]
    assert (row["single_draft_delta_accuracy_paper"], row["eagle3_delta_accuracy_paper"]) == (-0.88, -0.72)
    assert "(paper 0.8)" in table.shown.set_index("benchmark").loc["level_2", "amplification"]


@pytest.mark.parametrize("name", ["table7", "frameworks"])
def test_two_of_a_kind_are_refused_in_one_line(both, tmp_path, name):
    (path, results), _ = both
    with pytest.raises(
        TableError, match=rf"^{name} needs an experiment of chains and one of trees: .* are both of chains"
    ):
        write_joined(name, path, path, results, tmp_path)


def test_every_setting_on_trees_stands_beside_the_same_on_chains(evidence):
    chains, trees = evidence
    data = frameworks(trees, chains).data
    assert len(data) == 5 * 4  # settings; levels and their mean
    row = data[(data["method"] == "spec_cascade") & (data["param"] == "0.5") & (data["benchmark"] == "level_4")].iloc[0]
    place = Place("made_up", "level_4")
    for side, of, be in (("single_draft", chains, "be"), ("eagle3", trees, "be_eagle")):
        setting = of.study.setting("spec_cascade", 0.5)
        assert row[f"{side}_accuracy"] == pytest.approx(of.bootstrap.value("accuracy", place, setting)[0], rel=1e-5)
        assert row[f"{side}_be"] == pytest.approx(of.bootstrap.value(be, place, setting)[0], rel=1e-5)
    assert row["more_accuracy"] == pytest.approx(row["eagle3_accuracy"] - row["single_draft_accuracy"], abs=1e-3)
    assert row["more_accuracy_low"] < row["more_accuracy"] < row["more_accuracy_high"]


def test_fiellers_set_covers_the_ratio_in_95_of_100_experiments_also_near_a_zero_denominator():
    rng = np.random.default_rng(0)
    for bottom in (-6.0, -2.0, 0.3):
        covered = 0
        for _ in range(1000):
            seen = np.array([-6.0, bottom]) + rng.normal(size=2)
            draws = np.vstack([seen, seen + rng.normal(size=(200, 2))])
            found, truth = fieller(draws[:, 0], draws[:, 1], 0.95), -6.0 / bottom
            within = found.low <= truth <= found.high
            covered += np.isnan(found.low) or within == found.inside
        assert 930 <= covered <= 970, (bottom, covered)


def test_a_ratio_says_its_bounds_in_words():
    assert Ratio(4.2, 1.3, 20.1, True).text == "4.2 [1.3, 20.1]"
    assert Ratio(4.2, -3.0, 1.5, False).text == "4.2, unbounded: below -3.0 or above 1.5"
    assert Ratio(4.2, np.nan, np.nan, False).text == "4.2, unbounded: any ratio fits"
