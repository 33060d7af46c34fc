"""Tables say what the files say, in every format."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pytest
from synthetic import as_trees, write_experiment

from specloss.analysis import TABLES, tables_for, write_table
from specloss.analysis.evidence import Evidence
from specloss.analysis.study import Study
from specloss.analysis.summary import summarise
from specloss.analysis.tables import MAKERS, OVERALL, make_table


@pytest.fixture(scope="module")
def evidence(experiment) -> Evidence:
    return Evidence.read(*experiment)


@pytest.fixture(scope="module")
def broken(tmp_path_factory) -> Evidence:
    """The same experiment with one cell of `cos (0.4)` gone."""
    path, results = write_experiment(tmp_path_factory.mktemp("broken"), problems=10)
    cell = next(c for c in Study.read(path).cells if (c.method, c.param, c.seed) == ("cos", 0.4, 1))
    (cell.folder(results) / "graded.parquet").unlink()
    summarise(path, results)
    return Evidence.read(path, results)


@pytest.fixture(scope="module")
def trees(tmp_path_factory) -> Evidence:
    """A small experiment whose pair drafts trees."""
    path, results = write_experiment(tmp_path_factory.mktemp("trees"), problems=20)
    path = as_trees(path)
    summarise(path, results)
    return Evidence.read(path, results)


USUAL = ("findings", "table4", "table2", "gaps", "distortion", "time")  # of an experiment without ablations


def markdown_cells(text: str) -> pd.DataFrame:
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return pd.DataFrame(lines[2:], columns=lines[0])


def test_every_name_has_a_table():
    assert set(TABLES) == set(MAKERS)


def test_an_unknown_name_is_refused(evidence):
    with pytest.raises(ValueError, match="no table 'table9'; there are findings, table4"):
        make_table("table9", evidence)


def test_a_table_that_the_experiment_has_no_methods_for_is_refused(evidence):
    with pytest.raises(ValueError, match="synthetic has no methods for 'table6'"):
        make_table("table6", evidence)


def test_an_experiment_has_the_tables_that_it_has_methods_for(evidence, tmp_path):
    assert tables_for(evidence.study) == USUAL
    path, _ = write_experiment(tmp_path, problems=1, seeds=(0,), grids={"standard_sd": [None], "lenience": [0.8]})
    assert tables_for(Study.read(path)) == tuple(name for name in USUAL if name != "gaps")


def test_of_trees_every_table_has_the_eagle_convention_and_no_other(trees):
    lossless = trees.summary[trees.summary["method"] == "standard_sd"]
    table4 = make_table("table4", trees)
    row = table4.data[(table4.data["method"] == "standard_sd") & (table4.data["benchmark"] == "level_2")].iloc[0]
    here = lossless[lossless["benchmark"] == "level_2"]
    for name, metric in (("be", "be_eagle"), ("be_expected", "be_eagle_expected"), ("ds", "ds_eagle")):
        assert row[f"{name}_mean"] == pytest.approx(here[metric].mean(), rel=1e-5), name
    for name in ("table4", "table2", "time"):
        table = make_table(name, trees)
        assert "EAGLE-3 convention" in table.reading and "gamma drafted" not in table.reading, name
    assert not {"be", "be_expected", "ds"} & set(make_table("time", trees).data.columns)


@pytest.mark.parametrize("name", USUAL)
def test_csv_reads_back_as_the_data(evidence, name):
    table = make_table(name, evidence)
    back = pd.read_csv(
        io.StringIO(table.csv()), keep_default_na=True, dtype={"param": table.data.get("param", pd.Series()).dtype}
    )
    expected = table.data.replace("", np.nan)
    if name == "findings":
        back["holds"] = back["holds"].astype(str).str.lower()
    pd.testing.assert_frame_equal(back.astype(object).fillna(""), expected.astype(object).fillna(""), check_dtype=False)


@pytest.mark.parametrize("name", USUAL)
def test_all_formats_are_written_and_writing_again_changes_nothing(experiment, tmp_path, name):
    paths = write_table(name, *experiment, tmp_path)
    before = [path.read_bytes() for path in paths]
    assert [path.name for path in paths] == [f"{name}.{suffix}" for suffix in ("csv", "md", "tex")]
    write_table(name, *experiment, tmp_path)
    assert before == [path.read_bytes() for path in paths]


def test_markdown_agrees_with_csv(evidence):
    table = make_table("table2", evidence)
    shown = markdown_cells(table.markdown())
    assert [float(text) for text in shown["accuracy"]] == pytest.approx(list(table.data["accuracy"]), abs=0.051)
    assert [float(text) for text in shown["BE"]] == pytest.approx(list(table.data["be"]), abs=0.0051)


def test_table4_has_every_setting_on_every_benchmark(evidence):
    data = make_table("table4", evidence).data
    assert len(data) == len(evidence.study.settings) * len(evidence.study.places)
    row = data[(data["method"] == "cos") & (data["param"] == 0.8) & (data["benchmark"] == "level_4")].iloc[0]
    cells = evidence.summary.query("method == 'cos' and param == 0.8 and benchmark == 'level_4'")
    assert row["be_mean"] == pytest.approx(cells["be"].mean(), rel=1e-5)
    assert row["accuracy_std"] == pytest.approx(cells["accuracy"].std(), rel=1e-5)
    assert row["be_expected_mean"] == pytest.approx(cells["be_expected"].mean(), rel=1e-5)


def test_table2_averages_a_methods_grid_and_compares_it_with_its_matched_baseline(evidence):
    data = make_table("table2", evidence).data.set_index(["method", "benchmark"])
    cells = evidence.summary.query("method == 'spec_cascade' and benchmark == 'level_6'")
    row, baseline = data.loc["spec_cascade", "level_6"], data.loc["min_p_sampling", "level_6"]
    assert row["accuracy"] == pytest.approx(cells["accuracy"].mean(), rel=1e-5)
    assert row["against"] == "min_p_sampling"
    assert row["delta_accuracy"] == pytest.approx(row["accuracy"] - baseline["accuracy"], abs=1e-3)
    assert data.loc["spec_cascade", OVERALL]["be"] == pytest.approx(
        data.loc["spec_cascade"]["be"].iloc[:3].mean(), rel=1e-5
    )


def test_gap_is_gate_less_baseline_on_each_level(evidence):
    data = make_table("gaps", evidence).data
    assert np.allclose(data["gap"], data["accuracy"] - data["baseline_accuracy"], atol=2e-4)
    assert set(data["level"]) == {"2", "4", "6", OVERALL}


def test_a_missing_cell_shows_as_missing_wherever_it_counts(broken):
    table4 = make_table("table4", broken)
    row = table4.shown[(table4.shown["method"] == "cos") & (table4.shown["param"] == "0.4")].iloc[0]
    assert row["level_2 accuracy"] == "missing (2/3 seeds)"
    table2 = make_table("table2", broken).shown.set_index(["method", "benchmark"])
    assert table2.loc["cos", "level_2"]["accuracy"] == "missing"
    assert table2.loc["cos", OVERALL]["Δ accuracy"] == "missing"
    assert table2.loc["cos", "level_4"]["accuracy"] != "missing"
    data = table4.data.query("method == 'cos' and param == 0.4 and benchmark == 'level_2'").iloc[0]
    assert np.isnan(data["accuracy_mean"]) and data["seeds"] == 2


def test_names_from_configs_cannot_break_a_markdown_table(evidence):
    table = make_table("table2", evidence)
    spoilt = type(table)(table.name, table.title, table.reading, table.data, table.shown.replace("cos", "co|s"))
    assert "co\\|s" in spoilt.markdown()
