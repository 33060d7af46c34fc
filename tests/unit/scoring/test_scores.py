"""From grades to a summary: further scores by name, answers that nothing grades, gradings that change."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from synthetic import generation_row, save_cell, step_row, write_experiment

from specloss import benchmarks
from specloss.analysis.evidence.evidence import Evidence
from specloss.analysis.evidence.summary import summarise
from specloss.analysis.tables.catalogue import make_table
from specloss.benchmarks import Grade, Task
from specloss.benchmarks.sandbox import SandboxError
from specloss.experiment.study import Study
from specloss.scoring import grade as grading
from specloss.scoring import score as scoring
from specloss.scoring.score import score_cell


@pytest.fixture
def experiment(tmp_path):
    """(experiment.json, results, folder of its only cell), which has four answers: `base`, `plus`, ``, `both`."""
    path, results = write_experiment(tmp_path, problems=0, seeds=(0,), grids={"standard_sd": [None]})
    content = json.loads(path.read_text())
    content["cells"][0]["settings"]["benchmark"] = {"task": "fake"}
    content["config"]["benchmarks"][content["cells"][0]["benchmark"]]["grading"] = {"correct": "plus"}
    path.write_text(json.dumps(content))
    cell = Study.read(path).cells[0]
    texts = ["base", "plus", "", "both"]
    generations = [generation_row(i, calls=1, stop="length") | {"text": text} for i, text in enumerate(texts)]
    steps = [step_row(i, 0, 0, 4, 1, 0.5) for i in range(len(texts))]
    folder = save_cell(cell, results, steps, generations, [])
    return path, results, folder


def summary_row(experiment, monkeypatch, grade):
    path, results, folder = experiment
    for module in (benchmarks, scoring, grading):
        monkeypatch.setattr(module, "get_benchmark", lambda task: Task(load=list, grade=grade))
    score_cell(folder)
    return summarise(path, results).iloc[0]


def two_scores(text, reference, correct="base"):
    if not text:
        return Grade(False, None)
    scores = {name: text in (name, "both") for name in ("base", "plus")}
    return Grade(scores[correct], text, scores)


def test_every_named_score_is_summarised_beside_the_one_that_counts(experiment, monkeypatch):
    row = summary_row(experiment, monkeypatch, two_scores)
    assert row["score_base"] == row["score_plus"] == row["accuracy"] == 50
    assert row["parse_failures"] == 25
    scores = pq.read_table(experiment[2] / "graded.parquet")["scores"].to_pylist()
    assert [dict(named) for named in scores] == [
        {"base": True, "plus": False},
        {"base": False, "plus": True},
        {"base": False, "plus": False},  # a parse failure fails every score
        {"base": True, "plus": True},
    ]


def test_the_experiment_says_how_to_grade_not_the_decoded_cell(experiment, monkeypatch):
    def grade(text, reference, correct="base"):
        return Grade(correct == "plus", text)

    assert summary_row(experiment, monkeypatch, grade)["accuracy"] == 100
    assert json.loads(pq.read_schema(experiment[2] / "graded.parquet").metadata[b"grading"]) == {"correct": "plus"}


def test_answers_that_nothing_grades_have_no_accuracy_rather_than_zero(experiment, monkeypatch):
    row = summary_row(experiment, monkeypatch, lambda text, reference, correct: Grade(None, None))
    assert row["status"] == "whole" and row["samples"] == 4 and row["graded"] == 0
    assert np.isnan(row["accuracy"]) and np.isnan(row["parse_failures"])
    assert row["tokens"] == 8


def test_accuracy_is_over_the_answers_that_can_be_graded(experiment, monkeypatch):
    def grade(text, reference, correct):
        return Grade(None, None) if text == "base" else Grade(text == "both", text or None)

    row = summary_row(experiment, monkeypatch, grade)
    assert row["graded"] == 3 and row["accuracy"] == pytest.approx(100 / 3)
    assert row["parse_failures"] == pytest.approx(100 / 3)


def test_tables_say_that_nothing_was_graded_rather_than_that_a_number_is_missing(experiment, monkeypatch):
    path, results, _ = experiment
    content = json.loads(path.read_text())
    content["config"]["benchmarks"] = {content["cells"][0]["benchmark"]: {"task": "fake"}}
    content["cells"] = content["cells"][:1]
    path.write_text(json.dumps(content))
    summary_row(experiment, monkeypatch, lambda text, reference, **grading: Grade(None, None))
    evidence = Evidence.read(path, results)
    assert "not graded" in make_table("table4", evidence).markdown()
    assert "| not graded |" in make_table("table2", evidence).markdown()


def test_an_answer_that_breaks_its_grader_is_a_parse_failure_and_is_counted_by_name(experiment, monkeypatch, capsys):
    def grade(text, reference, correct):
        if text == "base":
            raise RecursionError("too deep")
        if text == "plus":
            return Grade(True, "half \ud800 a pair", {"plus": True})
        return Grade(True, text, {"plus": True})

    row = summary_row(experiment, monkeypatch, grade)
    assert row["accuracy"] == 75 and row["parse_failures"] == 25
    graded = pq.read_table(experiment[2] / "graded.parquet")
    assert graded["answer"].to_pylist()[:2] == [None, "half \\ud800 a pair"]
    assert json.loads(graded.schema.metadata[b"errors"]) == {"RecursionError": 1}
    said = "1 of 4 answers broke their grader and count as parse failures: RecursionError (1)"
    assert said in capsys.readouterr().err


def test_an_error_for_users_ends_the_grading_and_leaves_no_file(experiment, monkeypatch):
    def grade(text, reference, correct):
        raise SandboxError("no sandbox here")

    (experiment[2] / "graded.parquet").unlink(missing_ok=True)
    with pytest.raises(SandboxError):
        summary_row(experiment, monkeypatch, grade)
    assert not (experiment[2] / "graded.parquet").exists()
