"""A cell of a table by its names: the right runs, the number that the table has, and the paper's beside it."""

from __future__ import annotations

import dataclasses
import math

import pytest
from synthetic import write_experiment

from specloss.analysis.evidence.evidence import Evidence
from specloss.analysis.tables.catalogue import make_table
from specloss.experiment.study import Study
from specloss.reviewer.names import TARGET, NoSuchCell, find_table_cell, names_of
from specloss.reviewer.value import cell_text, measure_cell, missing_runs, papers_numbers


@pytest.fixture(scope="module")
def study(experiment) -> Study:
    return Study.read(experiment[0])


def with_config(study: Study, tasks: dict[str, str] | None = None, kind: str = "draft") -> Study:
    """The study with other tasks for its benchmarks, and another kind of pair."""
    config = study.config | {
        "benchmarks": {name: {"task": (tasks or {}).get(name, "chain")} for name in study.benchmarks},
        "pairs": {"made_up": {"target": "none", "kind": kind}},
    }
    return dataclasses.replace(study, config=config)


def lenience(study: Study, **names):
    return find_table_cell(study, **({"benchmark": "level_4", "method": "lenience", "param": "0.8"} | names))


def test_a_setting_is_its_seeds_and_nothing_else(study):
    ids = [cell.id for cell in lenience(study, table=4).cells]
    assert ids == [f"pair=made_up/benchmark=level_4/method=lenience/param=0.8/seed={seed}" for seed in (0, 1, 2)]
    assert [cell.seed for cell in lenience(study, seed="1").cells] == [1]


def test_averages_take_the_grid_and_differences_the_baselines_too(study):
    two = find_table_cell(study, table=2, benchmark="level_4", method="cos")
    assert {(cell.method, cell.param) for cell in two.cells} == {("cos", 0.2), ("cos", 0.4), ("cos", 0.8)}
    seven = find_table_cell(study, table=7, benchmark="average", method="spec_cascade")
    assert {cell.method for cell in seven.cells} == {"spec_cascade", "min_p_sampling"} and len(seven.cells) == 36


def test_a_path_says_what_the_names_say(study):
    for cell in (lenience(study), find_table_cell(study, table=7, benchmark="level_2", method="spec_cascade")):
        names = names_of(cell.path)
        assert TARGET.fullmatch(f"{cell.path}.txt")["path"] == cell.path
        assert find_table_cell(study, **names | {"table": int(names["table"])}) == cell


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"benchmark": "level_5"}, "no benchmark level_5; did you mean level_2. There are level_2, level_4, level_6"),
        ({"method": "leniense"}, "no method leniense; did you mean lenience. There are standard_sd, .*cos"),
        ({"param": "0.7"}, "no lenience with parameter 0.7; did you mean 0.8. There are 0.2, 0.8"),
        ({"param": "much"}, "no lenience with parameter much"),
        ({"param": None}, "which lenience with parameter. there are 0.2, 0.8"),
        ({"seed": "7"}, "no seed 7; did you mean 2. There are 0, 1, 2"),
        ({"pair": "mad_up"}, "no pair mad_up; did you mean made_up"),
        ({"table": 5}, "no table 5 .Table 5 is of EAGLE-3 pairs, and there is none.; did you mean 4"),
        ({"table": 6}, "no table 6 .no methods for Table 6."),
        ({"table": 9}, "no table 9; did you mean 7"),
        ({"table": 7, "param": None}, "no method lenience; did you mean spec_cascade"),
        ({"table": 2}, "leave out the parameter 0.8"),
        ({"method": None}, "which method"),
    ],
)
def test_a_wrong_name_lists_those_that_there_are(study, names, message):
    with pytest.raises(NoSuchCell, match=message) as error:
        lenience(study, **names)
    assert "\n" not in str(error.value)


def test_names_are_forgiving_where_only_one_thing_can_be_meant(study):
    cell = lenience(study, method="LENIENCE", param=".80", pair=None, table=None)
    assert cell == lenience(study, table=4, pair="made_up")
    assert find_table_cell(study, benchmark="level_2", method="standard_sd").settings[0].param is None
    math_study = with_config(study, {"level_4": "math"})
    assert lenience(math_study, benchmark="MATH").benchmark == "level_4"


def test_the_value_is_what_the_table_has(experiment, study):
    evidence = Evidence.read(*experiment)
    table = make_table("table4", evidence).data.set_index(["method", "param", "benchmark"])
    row = table.loc[("lenience", 0.8, "level_4")]
    rows = measure_cell(lenience(study), experiment[1]).set_index("quantity")
    for quantity in ("be", "ds", "accuracy"):
        assert rows.loc[quantity, "value"] == pytest.approx(row[f"{quantity}_mean"], rel=1e-5)
        assert rows.loc[quantity, "std"] == pytest.approx(row[f"{quantity}_std"], rel=1e-5, abs=1e-9)
        assert rows.loc[quantity, "low"] <= rows.loc[quantity, "value"] <= rows.loc[quantity, "high"]
    table = make_table("table2", evidence).data.set_index(["method", "benchmark"])
    seven = find_table_cell(study, table=7, benchmark="level_6", method="spec_cascade")
    gaps = measure_cell(seven, experiment[1]).set_index("quantity")
    gap = table.loc[("spec_cascade", "level_6")]
    for quantity in ("delta_be", "delta_accuracy"):
        assert gaps.loc[quantity, "value"] == pytest.approx(gap[quantity], rel=1e-5)
        assert gaps.loc[quantity, "low"] == pytest.approx(gap[f"{quantity}_low"], rel=1e-5)


def test_the_papers_number_is_that_of_the_task_and_of_the_pairs_kind(study):
    single = with_config(study, {"level_4": "math"})
    assert papers_numbers(lenience(single))["be"] == 8.22
    eagle = with_config(study, {"level_4": "math"}, kind="eagle3")
    cell = lenience(eagle)
    assert cell.table == 5 and papers_numbers(cell)["be"] == 4.07
    assert papers_numbers(lenience(study)) == {}
    assert papers_numbers(find_table_cell(single, table=7, benchmark="average", method="spec_cascade")) == {}


def test_agreement_is_said_with_what_it_means(study, experiment):
    cell = lenience(with_config(study, {"level_4": "math"}))
    rows = measure_cell(cell, experiment[1])
    assert rows["agrees"].tolist() == [
        low <= paper <= high for low, paper, high in rows[["low", "paper", "high"]].values
    ]
    text = " ".join(cell_text(cell, rows).split())
    assert "8.22 ± 0.07" in text and "agrees if the paper's number" in text and "DS depends on the machine" in text


def test_without_the_papers_benchmark_there_is_nothing_to_compare_with(study, experiment):
    rows = measure_cell(lenience(study), experiment[1])
    assert rows["paper"].isna().all() and rows["agrees"].isna().all()
    assert "level_4 is none of its benchmarks (MATH, MBPP+" in " ".join(cell_text(lenience(study), rows).split())


def test_the_baseline_stands_beside_it_if_it_is_there(study, experiment, tmp_path):
    rows = measure_cell(lenience(study), experiment[1])
    assert (rows["delta"] - (rows["value"] - rows["baseline"])).abs().max() < 1e-9
    assert "standard_sd" in cell_text(lenience(study), rows)
    path, results = write_experiment(tmp_path, problems=5, seeds=(0,), grids={"lenience": [0.8], "standard_sd": [None]})
    alone = Study.read(path)
    for run in lenience(alone).baseline_cells:
        (run.folder(results) / "graded.parquet").unlink()
    rows = measure_cell(lenience(alone), results)
    assert not rows["value"].isna().any() and rows["delta"].isna().all()
    assert "standard_sd, is not decoded" in " ".join(cell_text(lenience(alone), rows).split())


def test_a_missing_run_makes_the_value_missing(tmp_path):
    path, results = write_experiment(
        tmp_path, problems=5, seeds=(0, 1), grids={"lenience": [0.8], "standard_sd": [None]}
    )
    study = Study.read(path)
    (lenience(study).cells[1].folder(results) / "graded.parquet").unlink()
    assert [(run.seed, why) for run, why in missing_runs(lenience(study), results)] == [(1, "not graded")]
    assert measure_cell(lenience(study), results)["value"].map(math.isnan).all()
    assert not measure_cell(lenience(study, seed="0"), results)["value"].isna().any()


def test_a_setting_over_all_benchmarks_is_what_its_row_of_verdicts_has(experiment, study):
    cell = lenience(study, table=4, benchmark="average")
    assert len(cell.cells) == 9 and cell.benchmark == "average"
    rows = measure_cell(cell, experiment[1]).set_index("quantity")
    table = make_table("verdicts", Evidence.read(*experiment)).data.set_index(["method", "param"])
    row = table.loc[("lenience", 0.8)]
    assert rows.loc["accuracy", "delta"] == pytest.approx(row["matched_delta_accuracy"], abs=1e-4)
    assert rows.loc["accuracy", "delta_low"] == pytest.approx(row["matched_delta_accuracy_low"], abs=1e-4)
    per_seed = Evidence.read(*experiment).summary.query("method == 'lenience' and param == 0.8")
    assert rows.loc["be", "std"] == pytest.approx(per_seed.groupby("seed")["be"].mean().std())
    assert "Table 4, average, lenience (0.8)" in cell_text(cell, rows.reset_index())
