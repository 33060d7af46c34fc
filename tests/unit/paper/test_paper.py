"""The paper's numbers are there to be looked up, and do not all agree with one another."""

from __future__ import annotations

import pandas as pd
import pytest
from typer.testing import CliRunner

from specloss import paper
from specloss.cli import app
from specloss.reviewer.paper_check import check_paper, paper_evidence


@pytest.fixture(scope="module")
def found() -> pd.DataFrame:
    return check_paper()


def of(found: pd.DataFrame, table: int, source: str = "", quantity: str = "") -> pd.DataFrame:
    return found[
        (found["table"] == table) & found["of"].str.contains(source) & found["quantity"].str.contains(quantity)
    ]


def test_each_table_is_looked_up_by_our_names():
    assert paper.lookup(4, "lenience", "MATH", 0.4) == {
        "be": 8.37, "be_std": 0.08, "ds": 4.66, "ds_std": 0.12, "accuracy": 75.60, "accuracy_std": 2.65,
    }  # fmt: skip
    assert paper.lookup(5, "standard_sd", "MATH") == {"be": 3.76, "ds": 140.21, "accuracy": 73.20}
    assert paper.lookup(5, "eta_sampling", "BFCL", 0.10)["be"] == 2.59
    assert paper.lookup(1, "overshoot_ceiling", "MBPP+", 0.2) == {"be": 5.59, "accuracy": 75.93}
    assert paper.lookup(2, "eta_sampling", "INCLUDE")["accuracy"] == 68.18
    assert paper.lookup(3, "standard_sd", "BFCL")["ds"] == 85.27
    assert paper.lookup(7, "spec_cascade", "average", framework="eagle3") == {
        "delta_be": 0.14,
        "delta_accuracy": -1.68,
    }


def test_what_the_paper_does_not_print_is_empty_and_another_table_an_error():
    assert paper.lookup(4, "lenience", "MATH", 0.5) == {}
    assert paper.lookup(4, "lenience", "MATH") == {}
    assert paper.lookup(2, "lenience", "MATH", 0.4) == {}
    with pytest.raises(KeyError, match="Table 6"):
        paper.lookup(6, "lenience", "MATH", 0.4)


def test_nobody_changes_the_numbers_by_accident():
    mine = paper.frame(4)
    mine["be"] = 0
    assert paper.frame(4)["be"].min() > 3


def test_the_papers_cells_go_through_our_aggregation_unchanged():
    evidence = paper_evidence(4)
    place = next(place for place in evidence.study.places if place.benchmark == "MATH")
    setting = evidence.study.setting("lenience", 0.4)
    got = [evidence.bootstrap.value(metric, place, setting)[0] for metric in ("be", "ds", "accuracy")]
    assert got == pytest.approx([8.37, 4.66, 75.60])


def test_accuracies_of_tables_2_and_7_and_all_of_table_3_follow(found: pd.DataFrame):
    assert of(found, 2, quantity="accuracy")["follows"].all() and len(of(found, 2, quantity="accuracy")) == 20
    assert of(found, 3)["follows"].all() and len(of(found, 3)) == 60
    assert of(found, 7, quantity="accuracy")["follows"].all() and len(of(found, 7, quantity="accuracy")) == 40


def test_table_2s_accuracies_are_the_averages_rounded(found: pd.DataFrame):
    accuracies = of(found, 2, quantity="accuracy")
    assert (accuracies["difference"].abs() <= 0.005 + 1e-9).all()


def test_exactly_these_be_of_table_2_do_not_follow(found: pd.DataFrame):
    wrong = of(found, 2, quantity="be").query("not follows")
    assert set(zip(wrong["method"], wrong["benchmark"], strict=True)) == {
        (method, benchmark)
        for method in ("min_p_sampling", "spec_cascade", "eta_sampling", "typical_acceptance")
        for benchmark in ("MATH", "INCLUDE")
    }
    cascade = wrong.set_index(["method", "benchmark"]).loc["spec_cascade"]
    assert cascade.loc["INCLUDE", ["printed", "recomputed"]].tolist() == pytest.approx([3.58, 3.404])
    assert cascade.loc["MATH", ["printed", "recomputed"]].tolist() == pytest.approx([8.23, 8.158])


def test_table_7_is_the_difference_of_tables_2_and_3_as_printed_and_so_inherits_their_be(found: pd.DataFrame):
    assert of(found, 7, "Table 2|Table 3")["follows"].all()
    gains = of(found, 7, "Table 4", "be").set_index(["method", "benchmark"])
    cascade = gains.loc[("spec_cascade", "INCLUDE")]
    assert cascade["printed"] == 0.14 and cascade["recomputed"] == pytest.approx(-0.024)
    assert not cascade["follows"]
    assert of(found, 7, "Table 5")["follows"].all()


def test_the_command_lists_what_does_not_follow(tmp_path):
    done = CliRunner().invoke(app, ["paper-check", "--csv", str(tmp_path / "check.csv")])
    assert done.exit_code == 0
    assert "Table 3 from Table 5: all follow" in done.output
    assert "printed 3.58, recomputed 3.404" in done.output
    assert len(pd.read_csv(tmp_path / "check.csv")) == 60 + 60 + 80
