"""Every benchmark that reads a local file says each kind of bad item in one line with file and row."""

import inspect
import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmark_data import OURS
from places import DEMO

from specloss.benchmarks import MODULES, BenchmarkError, get_benchmark
from specloss.models.prompting import PromptError, check_prompts

TASK = {"prompt": "Add one.", "code": "def f(x):\n    return x + 1", "test": "assert f(2) == 3", "test_imports": []}
ROWS = {
    name: [json.loads(line) for line in (OURS / f"{name}.jsonl").read_text().splitlines()]
    for name in ("aime", "bfcl", "bfcl_answers", "gsm8k", "include", "math")
} | {"mbppplus": [TASK | {"task_id": number, "test_list": ["assert f(1) == 2"]} for number in (1, 2)]}
ROWS["bfcl"], ROWS["bfcl_answers"] = ROWS["bfcl"][:2], ROWS["bfcl_answers"][:2]
ROWS["turns"] = [{"turns": [f"{n}?\nA. 1\nB. 2"], "reference": ["A"], "language": "Urdu"} for n in (1, 2)]  # INCLUDE's
ROWS["prompts"] = [{"prompt": f"{n}?"} for n in (1, 2)]
ROWS["chats"] = [{"id": f"chat {n}", "messages": [{"role": "user", "content": "Hello"}]} for n in (1, 2)]
TASKS = {name: name for name in ROWS} | {"bfcl_answers": "bfcl", "turns": "include", "chats": "prompts"}

# the fields of each that are read, those of the prompt's text first
FIELDS = {
    "math": ("problem", "solution"),
    "gsm8k": ("question", "answer"),
    "aime": ("problem", "answer"),
    "include": ("question", "option_a", "option_b", "option_c", "option_d", "answer", "language"),
    "turns": ("turns", "reference", "language"),
    "bfcl": ("question", "function", "id"),
    "bfcl_answers": ("ground_truth", "id"),
    "mbppplus": ("prompt", "test_list", "test_imports", "test", "task_id"),
    "prompts": ("prompt",),
    "chats": ("messages",),
}
BAD = [None, "", " \n", True, {}, [[]], [None], [{}], "\ud800", {"x": "y"}, json.loads("[" * 400 + "]" * 400)]
WRONG = [  # a value that is of the right type at first sight
    ("math", "solution", "no boxed answer", "'solution' has no final answer"),
    ("gsm8k", "answer", "it is 77", "'answer' has no final answer after ####"),
    ("aime", "answer", "1000", "'answer' must be a whole number from 0 to 999, got '1000'"),
    ("include", "answer", 4, "the answer must be one of A, B, C and D, got '4'"),
    ("turns", "turns", ["1?", "2?"], "'turns' must be a list of one string"),
    ("turns", "turns", [" "], "'turns' must be a list of one string"),
    ("bfcl", "question", [[]], "'question' must be a list of one turn, a list of messages"),
    ("bfcl", "question", [[{"role": "user", "content": ""}]], "'content' is empty"),
    ("bfcl", "function", [], "'function' is empty"),
    ("bfcl", "function", [{"name": "f"}], "each 'function' must have a name and parameters"),
    ("bfcl", "function", [{"name": "f", "parameters": {"properties": {"a": 5}}}], "each 'function' must have a name"),
    ("bfcl_answers", "ground_truth", [{"f": {"a": 1}}], "'ground_truth' must be a list of calls"),
    ("bfcl_answers", "ground_truth", [{"f": {}, "g": {}}], "'ground_truth' must be a list of calls"),
    ("mbppplus", "test_list", ["assert g(1) == 2"], "the tests must call one function of the solution, not none"),
    ("mbppplus", "test_list", ["assert f(1"], "is not Python"),
    ("mbppplus", "test_imports", ["import"], "is not Python"),
    ("mbppplus", "code", 5, "the tests must call one function of the solution, not none"),
    ("chats", "messages", [{"role": "user", "content": " "}], "'content' is empty"),
]


def load(tmp_path, name, rows):
    """(The file that has `rows`, what loads the benchmark with it.) A row may be text already."""
    task, file, answers = TASKS[name], tmp_path / f"{name}.jsonl", {}
    written = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    file.write_bytes(b"\n".join(written) + b"\n")
    options = {"problems": None, "file": str(file)}
    if task == "bfcl":
        other = "bfcl" if name == "bfcl_answers" else "bfcl_answers"
        (tmp_path / f"{other}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS[other]))
        answers = {"file": str(tmp_path / "bfcl.jsonl"), "answers_file": str(tmp_path / "bfcl_answers.jsonl")}
    return file, lambda: get_benchmark(task).load(**options | answers)


def refusal(tmp_path, name, *second):
    """What is said of a file whose second row (and those behind it) is bad, without its beginning."""
    file, loading = load(tmp_path, name, [ROWS[name][0], *second])
    with pytest.raises(BenchmarkError) as caught:
        loading()
    message = str(caught.value)
    where, _, words = message.partition(": ")
    assert where in (f"{file} row 2", f"{file} row 2, message 1") and "\n" not in message and len(message) < 500
    return words


def test_every_benchmark_that_reads_local_files_is_tested_here_and_its_files_are_part_of_its_cells():
    readers = set()
    for name in MODULES:
        files = [key for key in inspect.signature(get_benchmark(name).load).parameters if "file" in key]
        assert get_benchmark(name).local_files == files
        readers |= {name} if files else set()
    assert readers == set(TASKS.values())


@pytest.mark.parametrize("name, field", [(name, field) for name in FIELDS for field in FIELDS[name]])
def test_a_field_that_is_missing_empty_or_of_another_kind_is_said(tmp_path, name, field):
    row = ROWS[name][1]
    words = refusal(tmp_path, name, {key: value for key, value in row.items() if key != field})
    assert "is missing; there are: " in words and (f"'{field}'" in words or field == "turns")  # or 'question'
    for value in BAD:
        refusal(tmp_path, name, row | {field: value})
    load(tmp_path, name, [ROWS[name][0], row])[1]()


@pytest.mark.parametrize("name, field, value, words", WRONG)
def test_a_value_that_is_wrong_is_said(tmp_path, name, field, value, words):
    assert words in refusal(tmp_path, name, ROWS[name][1] | {field: value})


@pytest.mark.parametrize(
    "name, key", [("bfcl", "id"), ("bfcl_answers", "id"), ("mbppplus", "task_id"), ("chats", "id")]
)
def test_an_id_that_is_there_twice_is_said_with_both_rows(tmp_path, name, key):
    words = refusal(tmp_path, name, ROWS[name][1] | {key: ROWS[name][0][key]})
    assert words.startswith("id '") and words.endswith(f"is also that of {tmp_path / name}.jsonl row 1")


@pytest.mark.parametrize("name", ROWS)
def test_a_row_that_is_no_utf_8_no_json_or_no_object_is_said(tmp_path, name):
    good = json.dumps(ROWS[name][1]).encode()
    assert refusal(tmp_path, name, good[:3] + b"\xff" + good[3:]) == "not UTF-8 text (byte 3 of the line)"
    assert refusal(tmp_path, name, good[:-1]).startswith("not JSON: ")
    assert refusal(tmp_path, name, b"[" + good + b"]").startswith("must be a JSON object, got ")


def test_a_text_of_a_parquet_file_that_is_no_utf_8_is_said_with_its_row(tmp_path):
    texts = pa.array([b"1?", b"2?", b"3\xff?", b"4?"]).view(pa.utf8())
    table = pa.table({"question": texts, "answer": ["#### 1"] * 4})
    path = tmp_path / "mine.parquet"
    pq.write_table(table, path, row_group_size=2)
    with pytest.raises(BenchmarkError) as caught:
        get_benchmark("gsm8k").load(file=str(path))
    assert str(caught.value) == f"{path} row 3: not UTF-8 text (byte 1 of a text in it)"


@pytest.mark.parametrize(
    "name, field, longer",
    [
        ("math", "problem", "{}"),
        ("gsm8k", "question", "{}"),
        ("aime", "problem", "{}"),
        ("include", "option_c", "{}"),
        ("turns", "turns", ["{}"]),
        ("bfcl", "question", [[{"role": "user", "content": "{}"}]]),
        ("mbppplus", "prompt", "{}"),
        ("prompts", "prompt", "{}"),
        ("chats", "messages", [{"role": "user", "content": "{}"}]),
    ],
)
def test_a_prompt_that_is_longer_than_the_context_is_said(tmp_path, name, field, longer):
    model = tmp_path / "model"
    shutil.copytree(DEMO / "target", model, ignore=shutil.ignore_patterns("*.safetensors"))
    config = json.loads((model / "config.json").read_text()) | {"max_position_embeddings": 3000}
    (model / "config.json").write_text(json.dumps(config))
    long = json.loads(json.dumps(longer).replace("{}", "7" * 3000))
    file, loading = load(tmp_path, name, [ROWS[name][0], ROWS[name][1] | {field: long}])
    with pytest.raises(PromptError, match=r" tokens; it must have between 1 and 2999, ") as caught:
        check_prompts(loading(), "plain", "draft", str(model), str(model))
    assert str(caught.value).startswith(f"{file} row 2: the prompt has 3") and "\n" not in str(caught.value)
