"""The report stands alone, names what is missing and never trusts a name."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from synthetic import write_experiment

from specloss.analysis import FIGURES, tables_for, write_report
from specloss.analysis.study import Study
from specloss.analysis.summary import summarise


class Page(HTMLParser):
    """Collects identifiers and everything that a browser would fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.fetched: list[str] = []
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            if name in ("src", "href", "xlink:href", "srcset", "data", "action") and not value.startswith(
                ("#", "data:,")
            ):
                self.fetched.append(value)


@pytest.fixture(scope="module")
def text(experiment, tmp_path_factory) -> str:
    return write_report(*experiment, tmp_path_factory.mktemp("report")).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def incomplete(tmp_path_factory) -> str:
    root = tmp_path_factory.mktemp("incomplete")
    path, results = write_experiment(root, problems=5, seeds=(0,), grids={"standard_sd": [None], "cos": [0.4]})
    folder = Study.read(path).cells[0].folder(results)
    (folder / "cell.json").unlink()
    (folder / "failure.txt").write_text("ValueError: <script>alert(1)</script>\n")
    summarise(path, results)
    return write_report(path, results, root / "report").read_text(encoding="utf-8")


def test_nothing_is_fetched(text):
    assert Page(text).fetched == []
    assert not re.search(r"https?://|@import|url\((?!#)", text)


def test_identifiers_are_unique_and_references_to_them_resolve(text):
    ids = Page(text).ids
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', text)) <= set(ids)


def test_all_figures_and_tables_are_there(experiment, text):
    assert {*FIGURES, *tables_for(Study.read(experiment[0]))} - {"findings"} <= set(Page(text).ids)
    assert text.count("<svg") == 2 * len(FIGURES)


def test_findings_come_before_figures_and_tables(text):
    assert text.index('id="findings"') < text.index('id="figures"') < text.index('id="tables"')


def test_provenance_says_how_to_run_a_cell_again(text):
    assert "snakemake --cores all results/synthetic/cells/&lt;id&gt;/graded.parquet" in text
    assert "synthetic.yaml" in text and "device: none" in text


def test_a_whole_experiment_says_nothing_of_missing_cells(text):
    assert 'id="missing"' not in text


def test_few_problems_are_warned_of(text, incomplete):
    assert "Few problems" in incomplete
    assert "Few problems" not in text


def test_missing_cells_are_named_with_their_reason_and_escaped(incomplete):
    assert "1 of 6 cells are missing" in incomplete
    assert "failed: ValueError: &lt;script&gt;" in incomplete
    assert "<script>alert" not in incomplete
    assert "pair=made_up/benchmark=level_2/method=standard_sd/param=none/seed=0" in incomplete
