"""The report stands alone, names what is missing and never trusts a name."""

from __future__ import annotations

import html
import re
import shlex
from html.parser import HTMLParser

import pytest
import yaml
from places import ROOT
from synthetic import write_experiment

from specloss.analysis.evidence.evidence import OVERALL, Evidence
from specloss.analysis.evidence.summary import summarise
from specloss.analysis.outputs import FIGURES, tables_for
from specloss.analysis.report.opening import answers
from specloss.analysis.report.page import write_report
from specloss.analysis.tables.catalogue import make_table
from specloss.analysis.tables.settings import verdicts
from specloss.experiment.cells import format_param
from specloss.experiment.plan import make_plan
from specloss.experiment.study import Study
from specloss.reviewer.names import find_table_cell

CONFIG = "config/demo.yaml"
REMAKE = "docs/example is of an older report: make it again as docs/example_report.md says"


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


def test_verdicts_come_first_then_the_frontier(text):
    order = ["verdicts-first", "frontiers", "findings", "figures", "tables", "provenance"]
    at = [text.index(f'<section id="{name}"') for name in order]
    assert at == sorted(at)


def test_the_answers_name_each_setting_once_with_the_numbers_of_the_table_of_verdicts(experiment):
    evidence = Evidence.read(*experiment)
    table = verdicts(evidence).data
    against_lossless, against_matched = answers(evidence)
    for answer, kind, rows in (
        (against_lossless, "lossless", table),
        (against_matched, "matched", table[table["method"].isin(evidence.study.gates)]),
    ):
        for group in answer.groups:
            here = rows[rows[f"{kind}_verdict"] == group.verdict]
            named = [(part.split()[0], params) for part in group.settings.split("; ") for params in [part.split()[1:]]]
            assert [(method, p.strip(",")) for method, params in named for p in params] == [
                (method, format_param(param)) for method, param in zip(here["method"], here["param"], strict=True)
            ]
            assert f"{here[f'{kind}_delta_accuracy'].min():+.1f}" in group.numbers
        assert sum(len(rows[rows[f"{kind}_verdict"] == group.verdict]) for group in answer.groups) == len(rows)
        good = (rows[f"{kind}_verdict"] == "faster and not worse").sum()
        assert answer.sentence.startswith(f"{good or 'None'} of {len(rows)} settings ")


def test_what_is_missing_is_no_verdict(tmp_path):
    path, results = write_experiment(tmp_path, problems=5, seeds=(0,), grids={"standard_sd": [None], "cos": [0.4, 0.6]})
    cell = next(cell for cell in Study.read(path).cells if cell.param == 0.4)
    (cell.folder(results) / "graded.parquet").unlink()
    summarise(path, results)
    (answer,) = answers(Evidence.read(path, results))
    assert {"missing": "cos 0.4"}.items() <= {group.verdict: group.settings for group in answer.groups}.items()


@pytest.mark.parametrize("name", ["table2", "table4"])
def test_the_command_of_a_row_names_that_cell(experiment, text, name):
    study, number = Study.read(experiment[0]), int(name[-1])
    section = text[text.index(f'<section id="{name}"') :]
    commands = html.unescape(
        section[section.index('<pre class="command">') + 21 : section.index("</pre>")]
    ).splitlines()
    rows = make_table(name, Evidence.read(*experiment)).data
    rows = rows[rows["benchmark"] != OVERALL].to_dict("records")
    for command, row in zip(commands, rows, strict=True):
        words = shlex.split(command)
        assert words[1:4] == ["cell", "synthetic.yaml", "--table"]
        options = dict(zip(words[3::2], words[4::2], strict=True))
        found = find_table_cell(study, **{key[2:]: value for key, value in (options | {"--table": number}).items()})
        assert (found.table, found.benchmark, found.settings[0].method) == (number, row["benchmark"], row["method"])
        if number == 4:
            assert format_param(found.settings[0].param) == format_param(row["param"] if row["param"] >= 0 else None)


@pytest.mark.parametrize("name", ["verdicts", "gaps", "distortion", "time"])
def test_a_row_over_all_benchmarks_has_the_command_that_decodes_and_compares_it(experiment, text, name):
    study, table = Study.read(experiment[0]), make_table(name, Evidence.read(*experiment))
    section = text[text.index(f'<section id="{name}"') :]
    commands = section[section.index('<pre class="command">') + 21 : section.index("</pre>")].splitlines()
    assert len(commands) == len(table.shown)
    for command, row in zip(commands, table.shown.to_dict("records"), strict=True):
        words = shlex.split(html.unescape(command))
        assert ("--baseline" in words) == (name in ("verdicts", "gaps"))
        words = [word for word in words if word != "--baseline"]
        options = {key[2:]: value for key, value in zip(words[3::2], words[4::2], strict=True)}
        found = find_table_cell(study, **options | {"table": int(options["table"])})
        assert [place.benchmark for place in found.places] == study.benchmarks
        wanted = [f"{row['method']} ({row['param']})"]
        if row["param"] in (OVERALL, "none"):
            wanted = [setting.label for setting in study.methods[row["method"]]]
        assert [setting.label for setting in found.settings] == wanted


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


# The committed example: its numbers are those of a run, all else is the report's.


@pytest.fixture(scope="module")
def example() -> str:
    return (ROOT / "docs/example/index.html").read_text(encoding="utf-8")


def structure(page: str) -> list[str]:
    """Headings, sections, heads of tables and folded parts, in their order, without numbers and names of the run."""
    page = re.sub(r"<svg.*?</svg>", "", page, flags=re.DOTALL)
    found = re.findall(r'<(?:h1|h2|h3)[^>]*>(.*?)</h\d>|<section id="([^"]*)"|<button[^>]*>(.*?)</button>'
                       r'|<summary>(.*?)</summary>|<dt[^>]*>([^<]*)</dt>', page, flags=re.DOTALL)  # fmt: skip
    texts = [re.sub(r"<span.*", "", "".join(parts), flags=re.DOTALL) for parts in found]
    texts = [re.sub(r"chain_l\d|level_\d", "benchmark", text) for text in texts]
    verdicts = re.compile(r"faster|not |worse|missing")
    texts = [re.sub(r"\d+|^(demo|synthetic)(?=:)", "#", text).strip() for text in texts if not verdicts.match(text)]
    return [text for text, before in zip(texts, ["", *texts], strict=False) if text != before]


def benchmarks_once(texts: list[str]) -> list[str]:
    """Without what is there once for each benchmark."""
    return [text for text in texts if not text.startswith("benchmark")]


def test_the_example_has_the_headings_tables_and_columns_of_todays_report(example, text):
    assert benchmarks_once(structure(example)) == benchmarks_once(structure(text)), REMAKE


def test_the_example_has_every_table_figure_and_cell_of_the_demo(example):
    study = Study.from_dict(make_plan(yaml.safe_load((ROOT / CONFIG).read_text()), CONFIG, check=False).content)
    names = {*FIGURES, *tables_for(study)} - {"findings"}
    assert names <= set(re.findall(r'<(?:section|figure) id="([^"]*)"', example)), REMAKE
    assert all(f'<td class="text"><code>{cell.id}</code>' in example for cell in study.cells), REMAKE


def test_the_examples_style_and_script_are_todays(example):
    templates = ROOT / "src/specloss/analysis/report/templates"
    for name in ("report.css", "report.js"):
        assert (templates / name).read_text(encoding="utf-8").strip() in example, REMAKE


def test_the_example_names_its_config_and_no_path_of_a_machine(example):
    assert CONFIG in example
    assert not re.search(r"(?<![\w<.])/(?:home|root|tmp|work|mnt|Users)/", example)
