"""The graders give the verdicts of the benchmarks' own evaluators; tests/data/official says how they were recorded.

Where they do not, the exception is listed here with its reason, and all of them are at most one answer in a thousand.
"""

import gzip
import json
import random

import pytest
from places import ROOT

from specloss.benchmarks import bfcl, mbppplus

RECORDED = ROOT / "tests/data/official"
FEW = 0.001

# bfcl-eval runs `eval` on operators in a model's output, and so reads what no reader of literals can
EVALUATED = {"[f(a=int('1') + 0)]", "[f(a='%s' % 'b')]"}

TOLD_APART: set[str] = set()  # code of MBPP+ on which we differ, none so far


def recorded(name):
    """The lines after the first, which says what recorded them."""
    with gzip.open(RECORDED / name, "rt", encoding="utf-8") as file:
        header, *lines = map(json.loads, file)
    assert {"evaluator", "version"} <= set(header)
    return lines


def bfcl_cases():
    """Item, text, verdict, and of a text in a notation of some models' readers the verdict on its calls, else None."""
    for item in recorded("bfcl.jsonl.gz"):
        reference = json.dumps({"functions": item["functions"], "answers": item["answers"]})
        for text, verdict, *same_calls in item["cases"]:
            yield reference, text, verdict, (same_calls[0] if same_calls else None)


def test_strict_verdicts_on_calls_are_those_of_the_leaderboard():
    cases = [case for case in bfcl_cases() if case[3] is None]
    differ = [
        (text, verdict)
        for reference, text, verdict, _ in cases
        if bfcl.grade(text, reference).scores["strict"] is not (verdict == "right")
    ]
    assert len(cases) >= 3_900 and sum(verdict == "right" for _, _, verdict, _ in cases) >= 1_000
    assert {text for text, _ in differ} == EVALUATED and len(differ) <= FEW * len(cases)


def test_calls_that_the_leaderboard_cannot_read_are_a_parse_failure():
    cases = [case for case in bfcl_cases() if case[2] == "unreadable" and case[3] is None]
    assert len(cases) >= 600
    assert [text for reference, text, *_ in cases if bfcl.grade(text, reference).answer is not None] == []


def test_json_and_named_fences_have_the_verdict_of_the_same_calls():
    cases = [case for case in bfcl_cases() if case[3] is not None]
    assert len(cases) == 400
    for reference, text, _, same_calls in cases:
        assert bfcl.grade(text, reference).scores["strict"] is (same_calls == "right"), text


def mbppplus_cases(folder):
    """Reference, code and verdict."""
    lines = recorded("mbppplus.jsonl.gz")
    file = folder / "tasks.jsonl"
    file.write_text("".join(json.dumps(line["row"]) + "\n" for line in lines))
    items = {item.id.rpartition("-")[2]: item for item in mbppplus.load(file=str(file))}
    for line in lines:
        for answer in line["answers"]:
            yield items[str(line["row"]["task_id"])].reference, answer["code"], answer["verdict"]


def disagreements(cases):
    """The answers of which our verdict is another."""
    found = []
    for reference, code, verdict in cases:
        grade = mbppplus.grade(f"```python\n{code}\n```", reference)
        if ("right" if grade.scores["plus"] else "wrong") != verdict and code not in TOLD_APART:
            found.append((code, verdict, grade))
    return found


def test_mbppplus_agrees_with_evalplus_on_a_sample_of_answers(tmp_path):
    cases = list(mbppplus_cases(tmp_path))
    assert len(cases) >= 300 and len(TOLD_APART) <= FEW * len(cases)
    assert disagreements(random.Random(25).sample(cases, 25)) == []


@pytest.mark.slow
def test_mbppplus_agrees_with_evalplus_on_all_recorded_answers(tmp_path):
    assert disagreements(mbppplus_cases(tmp_path)) == []
