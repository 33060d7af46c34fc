"""The ablations' tables say what was put in; a made-up setting keeps all, none or half of the drafted tokens."""

from __future__ import annotations

import itertools

import pytest
import synthetic
import yaml
from places import ROOT
from synthetic import GAMMA, Effect, write_experiment

from specloss.analysis.evidence.evidence import OVERALL, Evidence
from specloss.analysis.evidence.findings import check
from specloss.analysis.evidence.summary import summarise
from specloss.analysis.outputs import tables_for
from specloss.analysis.report.page import write_report
from specloss.analysis.tables.ablations import accepts
from specloss.analysis.tables.catalogue import make_table, write_table, write_tables
from specloss.experiment.plan import make_plan
from specloss.experiment.study import Study

L = [0.2, 0.8]
ALL, NONE = 1.0, 0.0  # probability to keep a drafted token
RIGHT, WRONG = 1.0, -1.0  # added to the share of right answers
GRIDS = {
    "standard_sd": [None],
    "adaptive_interpolation": L,
    "overshoot_ceiling": L,
    "lenience": L,
    "cos": [0.2, 0.4],
    "cap_nowhere_keep_tail": L,
    "capped_truncation": L,
    "cap_inside_drop_tail": [0.2, 0.4],
    "blockwise": [None],
    "min_p_sampling": [0.1, 0.5],
    "spec_cascade": [0.1, 0.5],
    "spec_cascade_maximal": [0.1, 0.5],
}


def effect(method: str, param: float | None, level: int) -> Effect:
    """The interpolation and the combined rule keep all at l = 0.2 and nothing at 0.8; the ceiling always keeps all."""
    if method in ("adaptive_interpolation", "capped_truncation"):
        return Effect(RIGHT if param == 0.8 else WRONG, ALL if param == 0.2 else NONE)
    if method == "cos":
        return Effect(RIGHT, ALL if param == 0.4 else NONE)
    if method == "cap_nowhere_keep_tail":
        return Effect(WRONG, ALL)
    if method in ("spec_cascade", "standard_sd"):
        return Effect(RIGHT, NONE)
    return Effect(RIGHT, ALL)


def make_evidence(folder, grids) -> Evidence:
    path, results = write_experiment(folder, problems=6, seeds=(0, 1), grids=grids)
    summarise(path, results)
    return Evidence.read(path, results)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(synthetic, "effect", effect)
        path, results = write_experiment(tmp_path_factory.mktemp("ablations"), problems=6, seeds=(0, 1), grids=GRIDS)
    summarise(path, results)
    return path, results


@pytest.fixture(scope="module")
def evidence(files) -> Evidence:
    return Evidence.read(*files)


def parsed(accuracy: float) -> bool:
    """Whether it is the accuracy of answers that are always right; a few of the made-up ones cannot be parsed."""
    return accuracy > 80


def test_all_tables_and_the_report_are_written(files, tmp_path):
    assert {"table1", "table6", "coupling", "gaps"} <= set(tables_for(Study.read(files[0])))
    assert all(path.stat().st_size for path in write_tables(*files, tmp_path))
    page = write_report(*files, tmp_path).read_text(encoding="utf-8")
    assert all(f'id="{name}"' in page for name in ("table1", "table6", "coupling"))


@pytest.mark.parametrize("name", ["table1", "table6", "coupling"])
def test_writing_a_table_again_changes_nothing(files, tmp_path, name):
    before = [path.read_bytes() for path in write_table(name, *files, tmp_path)]
    assert before == [path.read_bytes() for path in write_table(name, *files, tmp_path)]


def test_table1_has_both_measures_of_be_for_each_l_and_benchmark(evidence):
    data = make_table("table1", evidence).data.set_index(["method", "param", "benchmark"])
    assert len(data) == 4 * 2 * 4
    assert data.loc[("cos", 0.4, OVERALL), "l"] == 0.6  # its lambda is the weight of the draft
    for benchmark in ("level_2", "level_4", "level_6", OVERALL):
        for name in ("be", "be_expected", "be_low", "be_high"):
            assert data.loc[("adaptive_interpolation", 0.2, benchmark), name] == GAMMA + 1
            assert data.loc[("adaptive_interpolation", 0.8, benchmark), name] == 1
            assert data.loc[("overshoot_ceiling", 0.8, benchmark), name] == GAMMA + 1
    assert parsed(data.loc[("adaptive_interpolation", 0.8, OVERALL), "accuracy"])
    assert data.loc[("adaptive_interpolation", 0.2, OVERALL), "accuracy"] == 0


def test_the_caption_of_table1_gives_the_slopes_and_the_papers_trend(evidence):
    reading = make_table("table1", evidence).reading
    change = -GAMMA / 6  # over 0.6 of l, for each 0.1
    slope = f"{change:+.3f} [{change:+.3f}, {change:+.3f}]"
    assert f"adaptive_interpolation {slope} (expected {slope})" in reading
    assert "overshoot_ceiling +0.000 [+0.000, +0.000]" in reading
    assert f"cos {-GAMMA / 2:+.3f}" in reading
    found = {finding.name: finding.holds for finding in check(evidence)}
    assert found["overshoot_ceiling_flatter_than_adaptive_interpolation"] == "true"
    assert found["overshoot_ceiling_flatter_than_cos"] == "true"
    assert reading.count("Seen here.") == 2


@pytest.mark.parametrize(
    "kept",
    [
        {("adaptive_interpolation", 0.2): ALL, ("overshoot_ceiling", 0.2): ALL},  # both fall
        {("adaptive_interpolation", 0.8): ALL, ("adaptive_interpolation", 0.2): NONE},  # it rises
    ],
)
def test_other_trends_are_not_the_papers(tmp_path, monkeypatch, kept):
    monkeypatch.setattr(synthetic, "effect", lambda method, param, _: Effect(0.0, kept.get((method, param), NONE)))
    found = check(make_evidence(tmp_path, {name: GRIDS[name] for name in list(GRIDS)[:3]}))
    assert [f.holds for f in found] == ["false"]


def test_table6_averages_over_l_and_compares_with_the_draft_at_the_same_l(evidence):
    data = make_table("table6", evidence).data.set_index(["method", "benchmark"])
    row, draft = data.loc["capped_truncation", OVERALL], data.loc["cap_nowhere_keep_tail", OVERALL]
    assert (row["cap"], row["tail"]) == ("outside", "keep")
    assert draft["be"] == GAMMA + 1 and draft["accuracy"] == 0
    assert row["be"] == (GAMMA + 1 + 1) / 2
    assert row["delta_be"] == row["delta_be_low"] == row["delta_be_expected"] == -GAMMA / 2
    assert row["delta_accuracy"] == row["accuracy"] and 40 < row["accuracy"] <= 50


def test_table6_compares_nothing_with_itself_or_over_another_grid(evidence):
    table = make_table("table6", evidence)
    shown = table.shown.set_index("method")
    assert shown.loc["cap_nowhere_keep_tail", "Δ BE"] == "" and shown.loc["cap_inside_drop_tail", "Δ BE"] == ""
    assert "+" not in shown.loc["capped_truncation", "Δ BE"]


def test_each_combination_says_what_it_accepts():
    assert accepts("nowhere", "keep") == "in A all; in the tail all"
    assert accepts("outside", "keep") == "in A all; in the tail up to p / l"
    assert accepts("inside", "drop") == "in A up to p / l; in the tail all where it overshoots, nothing elsewhere"
    combinations = itertools.product(("nowhere", "inside", "outside", "everywhere"), ("keep", "drop"))
    assert len({accepts(cap, tail) for cap, tail in combinations}) == 8


def test_coupling_sets_each_method_beside_the_one_with_its_output_distribution(evidence):
    table = make_table("coupling", evidence)
    data = table.data.set_index(["method", "param", "benchmark"])
    maximal = data.loc[("spec_cascade_maximal", "0.1", OVERALL)]
    assert maximal["against"] == "spec_cascade"
    assert (maximal["other_be"], maximal["be"], maximal["other_alpha"], maximal["alpha"]) == (1, GAMMA + 1, 0, 1)
    assert maximal["delta_be"] == maximal["delta_be_expected"] == GAMMA
    assert maximal["delta_accuracy_low"] <= maximal["delta_accuracy"] <= maximal["delta_accuracy_high"]
    assert data.loc[("spec_cascade_maximal", OVERALL, "level_2"), "delta_be"] == GAMMA
    assert data.loc[("blockwise", "none", OVERALL), "against"] == "standard_sd"


def test_a_maximal_coupling_without_its_native_one_is_compared_with_nothing(tmp_path):
    path, _ = write_experiment(
        tmp_path,
        problems=1,
        seeds=(0,),
        grids={"standard_sd": [None], "min_p_sampling": [0.1], "spec_cascade_maximal": [0.1]},
    )
    assert "coupling" not in tables_for(Study.read(path))


def test_a_lossless_block_rule_is_not_drawn_among_the_lossy_methods(evidence):
    assert "blockwise" not in evidence.study.collaborative_family


def test_findings_name_only_methods_that_are_there(evidence, tmp_path):
    claims = [finding.claim for finding in check(evidence)]
    assert "Lenience and CoS never have less BE than standard SD, beyond noise." in claims
    assert not any("typical" in claim for claim in claims)
    fewer = make_evidence(tmp_path, {name: GRIDS[name] for name in ("standard_sd", "lenience")})
    claims = [finding.claim for finding in check(fewer)]
    assert "Lenience never has less BE than standard SD, beyond noise." in claims
    assert not any("CoS" in claim or "l grows" in claim for claim in claims)


def test_the_ablations_config_expands_to_the_papers_grids_with_their_baselines():
    config = ROOT / "config/ablations.yaml"
    plan = make_plan(yaml.safe_load(config.read_text()), str(config), check=False)
    study = Study.from_dict(plan.content)
    capped = {
        f"cap_{cap}_{tail}_tail" for cap in ("nowhere", "inside", "outside", "everywhere") for tail in ("keep", "drop")
    }
    over_l = {"cos", "adaptive_interpolation", "overshoot_ceiling", "lenience", *capped}
    gates = {"spec_cascade": ([0.3, 0.7], "min_p_sampling"), "typical_acceptance": ([0.15, 0.25], "eta_sampling")}
    expected = {method: [0.2, 0.4, 0.6, 0.8] for method in over_l} | {"standard_sd": [None], "blockwise": [None]}
    for gate, (grid, baseline) in gates.items():
        expected |= {gate: grid, f"{gate}_maximal": grid, baseline: grid}
    assert {method: [s.param for s in grid] for method, grid in study.methods.items()} == expected
    assert len(plan.cells) == 62 * len(study.benchmarks) * len(study.seeds)
    there = {(cell.pair, cell.benchmark, cell.method, cell.param, cell.seed) for cell in plan.cells}
    for cell in plan.cells:
        baseline = study.reference(study.setting(cell.method, cell.param))
        if cell.method != "standard_sd":
            assert (cell.pair, cell.benchmark, baseline.method, baseline.param, cell.seed) in there
    for gate, (grid, baseline) in gates.items():
        for method, param in itertools.product((gate, f"{gate}_maximal"), grid):
            assert study.reference(study.setting(method, param)) == study.setting(baseline, param)
    assert set(study.capped) == capped
    assert {(s.method, other.method) for s, other in study.same_output} == {
        ("blockwise", "standard_sd"),
        *((f"{gate}_maximal", gate) for gate in gates),
    }
    assert {"table1", "table6", "coupling"} <= set(tables_for(study))
