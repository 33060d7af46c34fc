"""Tables say what the files say, in every format."""

from __future__ import annotations

import io
import json
import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from synthetic import as_trees, write_experiment

from specloss.analysis.evidence.evidence import OVERALL, Evidence
from specloss.analysis.evidence.summary import summarise
from specloss.analysis.evidence.verdicts import FASTER_BUT_WORSE, WORSE
from specloss.analysis.outputs import TABLES, tables_for
from specloss.analysis.tables.catalogue import MAKERS, make_table, write_table
from specloss.experiment.schema import GRADED
from specloss.experiment.study import Study


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


USUAL = ("findings", "verdicts", "table2", "table4", "gaps", "distortion", "time")  # of an experiment without ablations


def markdown_cells(text: str) -> pd.DataFrame:
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return pd.DataFrame(lines[2:], columns=lines[0])


def test_every_name_has_a_table():
    assert set(TABLES) == set(MAKERS)


def test_an_unknown_name_is_refused(evidence):
    with pytest.raises(ValueError, match="no table 'table9'; there are findings, verdicts, table2, table4"):
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
    table4 = make_table("table5", trees)
    row = table4.data[(table4.data["method"] == "standard_sd") & (table4.data["benchmark"] == "level_2")].iloc[0]
    here = lossless[lossless["benchmark"] == "level_2"]
    for name, metric in (("be", "be_eagle"), ("be_expected", "be_eagle_expected"), ("ds", "ds_eagle")):
        assert row[f"{name}_mean"] == pytest.approx(here[metric].mean(), rel=1e-5), name
    for name in ("table5", "table3", "time"):
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
    shown = markdown_cells(table.markdown().split("\n\n")[1])
    data = table.data[table.data["benchmark"] == "level_4"]
    for head, name, error in (("accuracy", "accuracy", 0.051), ("BE", "be", 0.0051)):
        printed = [float(text.strip("*<u>/").split(" ± ")[0]) for text in shown[f"level_4 {head}"]]
        assert printed == pytest.approx(list(data[f"{name}_mean"]), abs=error)


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
    assert row["accuracy_mean"] == pytest.approx(cells["accuracy"].mean(), rel=1e-5)
    assert row["accuracy_std"] == pytest.approx(cells.groupby("seed")["accuracy"].mean().std(), rel=1e-4)
    assert row["against"] == "min_p_sampling"
    assert row["delta_accuracy"] == pytest.approx(row["accuracy_mean"] - baseline["accuracy_mean"], abs=1e-3)
    assert data.loc["spec_cascade", OVERALL]["be_mean"] == pytest.approx(
        data.loc["spec_cascade"]["be_mean"].iloc[:3].mean(), rel=1e-5
    )


def test_verdicts_say_what_was_put_in(evidence):
    table = make_table("verdicts", evidence)
    found = table.data.set_index(["method", "param"])
    assert found.loc[("cos", 0.8), "matched_verdict"] == found.loc[("cos", 0.8), "lossless_verdict"] == FASTER_BUT_WORSE
    assert found.loc[("spec_cascade", 0.5), "matched_verdict"] == WORSE
    assert found.loc[("spec_cascade", 0.5), "matched_against"] == "min_p_sampling"
    # no effect, but 180 problems are too few to exclude a loss of two points
    text = table.shown.set_index(["method", "param"]).loc[("lenience", "0.8"), "verdict"]
    assert re.fullmatch(r"not distinguishable at this size \(could have found a loss of \d\.\d points.*\)", text)
    for name in {*found["matched_verdict"], *found["lossless_verdict"]}:
        assert table.reading.count(f"'{name}': ") == 1


def test_the_best_of_a_column_is_bold_and_the_second_underlined(evidence):
    table = make_table("table2", evidence)
    column = table.data[table.data["benchmark"] == "level_6"].sort_values("be_mean")["method"]
    best, second = column.iloc[-1], column.iloc[-2]
    lines = {line.split(" & ")[0].replace("\\_", "_"): line for line in reversed(table.latex().splitlines())}
    assert re.search(r"\\textbf\{\d\.\d\d \$\\pm\$", lines[best]) and "\\underline{" in lines[second]
    assert "\\toprule" in table.latex() and "\\multicolumn{3}{c}{level\\_2}" in table.latex()
    marked = markdown_cells(table.markdown().split("\n\n")[1]).set_index("method")["level_6 BE"]
    assert marked[best].startswith("**") and marked[second].startswith("<u>")


def test_the_papers_number_stands_beside_a_cell_of_the_same_task_method_and_parameter(experiment, tmp_path):
    path, results = experiment
    content = json.loads(path.read_text())
    content["config"]["benchmarks"]["level_2"]["task"] = "math"
    (changed := path.with_name("math.json")).write_text(json.dumps(content))
    evidence = Evidence.read(changed, results)
    table = make_table("table4", evidence)
    data = table.data.set_index(["method", "param", "benchmark"])
    row = data.loc[("cos", 0.8, "level_2")]
    assert row["be_paper"] == 10.14 and row["accuracy_paper"] == 46.0
    assert row["accuracy_less_paper"] == pytest.approx(row["accuracy_mean"] - 46.0, abs=1e-3)
    assert data["be_paper"].notna().groupby("benchmark").sum().to_dict() == {"level_2": 10, "level_4": 0, "level_6": 0}
    assert "(paper 10.14, -" in table.shown.query("method == 'cos' and param == '0.8'")["level_2 BE"].iloc[0]
    assert (
        make_table("table2", evidence)
        .data.set_index(["method", "benchmark"])
        .loc[("spec_cascade", "level_2"), "accuracy_paper"]
        == 75.63
    )


def test_gap_is_gate_less_baseline_on_each_level(evidence):
    data = make_table("gaps", evidence).data
    assert np.allclose(data["gap"], data["accuracy"] - data["baseline_accuracy"], atol=2e-4)
    assert set(data["level"]) == {"2", "4", "6", OVERALL}


def test_a_missing_cell_shows_as_missing_wherever_it_counts(broken):
    table4 = make_table("table4", broken)
    row = table4.shown[(table4.shown["method"] == "cos") & (table4.shown["param"] == "0.4")].iloc[0]
    assert row["level_2 accuracy"] == "missing: not graded (1/3 cells)"
    table2 = make_table("table2", broken)
    line = table2.shown.set_index("method").loc["cos"]
    assert line["level_2 accuracy"] == "missing: not graded (1/9 cells)"
    assert line["(mean) accuracy"] == "missing: not graded (1/27 cells)"
    assert "missing" not in line["level_4 accuracy"]
    below = table2.effects.set_index(["method", "benchmark"])
    assert below.loc[("cos", "level_2"), "Δ accuracy"] == "missing: not graded (1/12 cells)"
    assert below.loc[("cos", OVERALL), "verdict"] == "missing: not graded (1/36 cells)"
    assert "missing" not in below.loc[("cos", "level_4")].str.cat()
    data = table4.data.query("method == 'cos' and param == 0.4 and benchmark == 'level_2'").iloc[0]
    assert np.isnan(data["accuracy_mean"]) and data["missing"].startswith("missing: not graded")
    verdict = make_table("verdicts", broken).shown.query("method == 'cos' and param == '0.4'").iloc[0]
    assert verdict["verdict"].startswith("missing: not graded")


def test_a_benchmark_without_references_is_not_graded_and_has_its_speed(tmp_path):
    path, results = write_experiment(tmp_path, problems=10, grids={"standard_sd": [None], "cos": [0.2]})
    for cell in Study.read(path).cells:
        if cell.benchmark == "level_2":
            file = cell.folder(results) / "graded.parquet"
            rows = [
                {**row, "correct": None, "parsed": None} for row in pq.read_table(file, partitioning=None).to_pylist()
            ]
            pq.write_table(pa.Table.from_pylist(rows, GRADED), file)
    summarise(path, results)
    evidence = Evidence.read(path, results)
    table = make_table("table4", evidence)
    assert set(table.shown["level_2 accuracy"]) == {"not graded"}
    assert not table.shown["level_2 BE"].str.contains("missing|not").any()
    effects = table.effects.set_index("benchmark")
    assert effects.loc["level_2", "Δ accuracy"] == effects.loc["level_2", "verdict"] == "not graded"
    assert "not graded" not in set(effects.loc["level_4"])
    assert make_table("distortion", evidence).shown["accuracy"].tolist() == ["not graded"] * 2
    assert make_table("verdicts", evidence).shown["verdict"].tolist() == ["not graded"]


def test_names_from_configs_cannot_break_a_markdown_table(evidence):
    table = make_table("table2", evidence)
    spoilt = type(table)(table.name, table.title, table.reading, table.data, table.shown.replace("cos", "co|s"))
    assert "co\\|s" in spoilt.markdown()
