"""A user's own prompts: graded in five ways, decoded by the demo pair, and not graded at all."""

from pathlib import Path

import pytest
from benchmark_data import OURS

from specloss.benchmarks import BenchmarkError, Grade, Item, prompts
from specloss.common.files import file_hash
from specloss.decoding.cell import decode_cell, load_items
from specloss.experiment.cells import Cell

FILE = OURS / "prompts.jsonl"


def test_rows_are_chats_or_raw_prompts_with_or_without_a_reference():
    greeting, colour, chain = prompts.load(str(FILE))
    assert (greeting.id, colour.id, chain.id) == ("greeting", "row-00001", "row-00002")
    assert [message["role"] for message in greeting.messages] == ["system", "user"]
    assert colour.reference is None and chain.prompt == "21*07+02-30?"
    assert chain.where == f"{FILE} row 3"


@pytest.mark.parametrize(
    "by, reference, text, grade",
    [
        ("exact", "red", " red\n", Grade(True, "red")),
        ("exact", "red", "Red", Grade(False, "Red")),
        ("exact", "red", "", Grade(False, None)),
        ("regex", r"\bred\b", "a red one", Grade(True, "red")),
        ("regex", r"\bred\b", "hundred", Grade(False, "hundred")),
        ("regex", r"^(a+)+$", "a" * 60 + "b", Grade(False, "a" * 60 + "b")),
        ("math", "1/2", r"\boxed{0.5}", Grade(True, "0.5")),
        ("math", "1/2", "half", Grade(False, None)),
        ("choice", "E", "Answer: E", Grade(True, "E")),
        ("choice", "E", "perhaps E", Grade(False, None)),
        ("none", "red", "red", Grade(None, None)),
        ("exact", None, "red", Grade(None, None)),
    ],
)
def test_an_answer_is_graded_as_asked(by, reference, text, grade):
    assert prompts.grade(text, reference, by=by) == grade


@pytest.mark.parametrize(
    "by, reference, words",
    [
        ("choice", "red", "f row 1: 'reference' must be a capital letter, got 'red'"),
        ("regex", "(red", "f row 1: 'reference' is not a regular expression"),
        ("exact", None, "grading by exact needs references"),
    ],
)
def test_references_that_do_not_fit_the_grading_are_refused(by, reference, words):
    with pytest.raises(BenchmarkError) as caught:
        prompts.check([Item("a", "x", reference, where="f row 1")], by=by)
    assert words in str(caught.value)


@pytest.fixture
def cell(tmp_path):
    path = tmp_path / "own.jsonl"
    path.write_text(FILE.read_text().splitlines()[2] + "\n")
    benchmark = {"task": "prompts", "options": {"file": str(path)}, "max_new_tokens": 8, "chat": "template"}
    settings = {
        "benchmark": benchmark,
        "files": {"file": file_hash(path)},
        "decoding": {"gamma": 2, "temperature": 1.0, "top_k": 0, "top_p": 1.0},
        "rule": "standard_sd",
        "options": {},
    }
    return Cell("x", "demo", "own", "standard_sd", None, 0, settings)


def test_own_prompts_are_decoded_with_their_reference_and_token_ids(pair, cell):
    _, generations = decode_cell(pair, cell, [0], batch_size=1)
    (row,) = generations.to_pylist()
    assert row["prompt"] == "21*07+02-30?" and row["reference"] == r"#\d\d"
    assert row["prompt_ids"] == pair.tokenizer("21*07+02-30?").input_ids and row["text"]


def test_a_file_that_changed_after_the_plan_is_not_decoded(cell):
    load_items(cell)
    with open(cell.settings["benchmark"]["options"]["file"], "a") as file:
        file.write('{"prompt": "22*07?"}\n')
    with pytest.raises(BenchmarkError, match=r"own\.jsonl has changed since the experiment was planned"):
        load_items(cell)
    Path(cell.settings["benchmark"]["options"]["file"]).unlink()
    with pytest.raises(BenchmarkError, match=r"own\.jsonl is gone since the experiment was planned"):
        load_items(cell)
