"""Each kind of bad item is one line with file and row, before any work starts."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from benchmark_data import OURS
from places import DEMO, ROOT

from specloss.benchmarks import BenchmarkError, UnreachableError, get_benchmark
from specloss.benchmarks.sources import hub
from specloss.benchmarks.sources.rows import read_file
from specloss.common.yamlfile import ConfigError
from specloss.experiment.config import parse_config
from specloss.experiment.grid import expand
from specloss.experiment.plan import make_plan


@pytest.fixture
def config(tmp_path):
    values = yaml.safe_load((ROOT / "config/demo.yaml").read_text())
    values["results"], values["reports"] = str(tmp_path / "results"), str(tmp_path / "reports")
    values["pairs"]["demo"] |= {"target": str(DEMO / "target"), "draft": str(DEMO / "draft")}
    values["methods"], values["seeds"] = {"standard_sd": {}}, [0]
    return values


def own(config, path, **more):
    config["benchmarks"] = {"own": {"task": "prompts", "options": {"file": str(path)}, "max_new_tokens": 8} | more}
    return config


GOOD = b'{"id": "a", "prompt": "21*07?"}\n'
BAD_ROWS = [
    (b'{"id": "b"}', "'prompt' or 'messages' is missing; there are: id"),
    (b'{"id": "b", "prompt": ""}', "'prompt' is empty"),
    (b'{"id": "b", "prompt": "  \\n"}', "'prompt' is empty"),
    (b'{"id": "b", "prompt": ["21?"]}', "'prompt' must be a string, got ['21?']"),
    (b'{"id": "b", "prompt": true}', "'prompt' must be a string, got True"),
    (b'{"id": "b", "prompt": "\\ud800"}', "'prompt' has half of a surrogate pair"),
    (b'{"id": "a", "prompt": "22?"}', "id 'a' is also that of FILE row 1"),
    (b'{"id": "b", "prompt": "\xff"}', "not UTF-8 text (byte 23 of the line)"),
    (b'{"id": "b", "prompt": "22?"', "not JSON: Expecting ',' delimiter at column"),
    (b"22?", "not JSON: Extra data at column 3"),
    (b'["22?"]', "must be a JSON object, got ['22?']"),
    (b"[" * 100_000, "not JSON"),
    (b'{"id": "b", "prompt": "' + b"21*07" * 60 + b'?"}', "the prompt has 301 tokens; it must have between 1 and 255"),
    (b'{"id": "b", "messages": {}}', "'messages' must be a list, got {}"),
    (b'{"id": "b", "messages": []}', "'messages' must end with a user message"),
    (b'{"id": "b", "messages": ["hello"]}', "message 1 must be an object with 'role' and 'content', got 'hello'"),
    (b'{"id": "b", "messages": [{"role": "user"}]}', "message 1: 'content' is missing"),
    (b'{"id": "b", "messages": [{"role": "bot", "content": "x"}]}', "'role' must be one of system, user, assistant"),
    (b'{"id": "b", "messages": [{"role": "user", "content": "22?"}]}', "has no chat template"),
    (b'{"id": "b", "prompt": "22?", "reference": {"x": 1}}', "'reference' must be a string"),
]


@pytest.mark.parametrize("row, words", BAD_ROWS, ids=[words[:30] for _, words in BAD_ROWS])
def test_a_bad_row_is_one_line_with_its_file_and_row(config, tmp_path, row, words):
    path = tmp_path / "items.jsonl"
    path.write_bytes(GOOD + b"\n" + row + b"\n")
    with pytest.raises(ConfigError) as caught:
        make_plan(own(config, path), "my.yaml")
    message = str(caught.value)
    assert message.startswith("my.yaml: benchmarks.own") and "\n" not in message and len(message) < 500
    assert f"{path} row 3" in message and words.replace("FILE", str(path)) in message


@pytest.mark.parametrize(
    "content, words",
    [(None, "no such file or directory"), (b"", "the file has no rows"), (b"\n\n", "the file has no rows")],
)
def test_a_file_that_is_missing_or_empty_is_one_line(config, tmp_path, content, words):
    path = tmp_path / "items.jsonl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"^my\.yaml: benchmarks\.own.*items\.jsonl") as caught:
        make_plan(own(config, path), "my.yaml")
    assert words in str(caught.value).lower()


def test_parquet_has_the_rows_of_json_lines(tmp_path):
    rows = [json.loads(line) for line in (OURS / "gsm8k.jsonl").read_text().splitlines()]
    path = tmp_path / "gsm8k.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path)
    gsm8k = get_benchmark("gsm8k")
    ours, theirs = gsm8k.load(file=str(OURS / "gsm8k.jsonl")), gsm8k.load(file=str(path))
    assert [(item.id, item.messages, item.reference) for item in ours] == [
        (item.id, item.messages, item.reference) for item in theirs
    ]
    path.write_bytes(b"PAR1 no")
    with pytest.raises(BenchmarkError, match=r"gsm8k\.parquet: not a Parquet file"):
        read_file(path)


@pytest.mark.parametrize("problems", [0, -1, 4])
def test_more_problems_than_there_are_or_none_are_refused(problems):
    with pytest.raises(BenchmarkError, match=rf"problems must be from 1 to 3, the number available, got {problems}"):
        get_benchmark("gsm8k").load(file=str(OURS / "gsm8k.jsonl"), problems=problems)


def test_fewer_problems_of_a_seed_are_a_prefix_of_more():
    load, file = get_benchmark("math").load, str(OURS / "math.jsonl")
    orders = {seed: [item.id for item in load(file=file, problems=6, seed=seed)] for seed in range(5)}
    assert orders[0][:2] == [item.id for item in load(file=file, problems=2, seed=0)]
    assert len(set(map(tuple, orders.values()))) > 1
    assert [item.id for item in load(file=file, problems=2)] == ["math-00000", "math-00001"]


def test_wrong_types_of_options_are_refused_by_name(config, tmp_path):
    (tmp_path / "items.jsonl").write_bytes(GOOD)
    values = own(config, tmp_path / "items.jsonl", grading={"by": "regexp"})
    with pytest.raises(ConfigError, match=r"benchmarks\.own\.grading: by: Input should be 'exact', 'regex'"):
        make_plan(values, "my.yaml")
    values["benchmarks"]["own"] |= {"grading": {}, "options": {"file": str(tmp_path / "items.jsonl"), "problems": "3"}}
    with pytest.raises(ConfigError, match=r"benchmarks\.own\.options: problems: .* whole number, got '3'"):
        make_plan(values, "my.yaml")
    values["benchmarks"]["own"] |= {"options": {}}
    with pytest.raises(ConfigError, match=r"benchmarks\.own\.options: key 'file' is missing"):
        make_plan(values, "my.yaml")


def test_other_content_of_a_local_file_makes_another_cell(config, tmp_path):
    path = tmp_path / "items.jsonl"
    path.write_bytes(GOOD)
    values = own(config, path)
    before = expand(parse_config(values, "x"))[0]
    assert expand(parse_config(values, "x"))[0].key == before.key
    path.write_bytes(GOOD.replace(b"21", b"22"))
    after = expand(parse_config(values, "x"))[0]
    assert after.key != before.key and after.settings["files"] != before.settings["files"]
    values["benchmarks"]["own"]["grading"] = {"by": "exact"}
    assert expand(parse_config(values, "x"))[0].key == after.key  # grading decodes nothing anew


def test_results_of_other_items_in_the_same_file_are_not_taken_for_those_of_the_new_ones(config, tmp_path):
    path = tmp_path / "items.jsonl"
    path.write_bytes(GOOD)
    plan = make_plan(own(config, path), "my.yaml")
    folder = plan.cells[0].folder(plan.results)
    folder.mkdir(parents=True)
    for name in ("steps.parquet", "generations.parquet"):
        (folder / name).write_bytes(b"")
    (folder / "cell.json").write_text(json.dumps({"key": plan.cells[0].key, "cell": plan.cells[0].to_dict()}))
    assert make_plan(config, "my.yaml").batches[plan.cells[0].id] is None  # the same items: whole
    path.write_bytes(GOOD.replace(b"21", b"22"))
    with pytest.raises(ConfigError, match=r"decoded with other settings \(files\.file: .* -> .*\); give the") as caught:
        make_plan(config, "my.yaml")
    assert str(caught.value).startswith(f"my.yaml: {folder}: ") and "\n" not in str(caught.value)


def test_a_file_of_several_benchmarks_is_read_once_for_all_cells(config, tmp_path, monkeypatch):
    path = tmp_path / "items.jsonl"
    path.write_bytes(GOOD)
    read = []
    monkeypatch.setattr("specloss.experiment.grid.file_hash", lambda path: read.append(path) or "0123")
    own(config, path)
    config["benchmarks"] |= {"again": config["benchmarks"]["own"] | {"max_new_tokens": 4}}
    config["seeds"] = list(range(50))
    assert len({cell.key for cell in expand(parse_config(config, "x"))}) == 100 and read == [path]


def test_everything_that_the_hub_keeps_from_us_is_named_in_one_line(config, monkeypatch):
    monkeypatch.setattr(hub, "_reachable", lambda: False)
    monkeypatch.setattr(hub.HubSet, "_load", lambda self, subset: 1 / 0)
    monkeypatch.setattr(hub.HubSet, "_download", lambda self, file: 1 / 0)
    names = ("math", "gsm8k", "bfcl")
    config["benchmarks"] = {name: {"task": name, "max_new_tokens": 8} for name in names}
    with pytest.raises(ConfigError) as caught:
        make_plan(config, "my.yaml")
    assert str(caught.value) == (
        "my.yaml: cannot reach the hub, and its local cache does not have the data of benchmarks.math "
        "(qwedsacf/competition_math), benchmarks.gsm8k (openai/gsm8k), benchmarks.bfcl "
        "(gorilla-llm/Berkeley-Function-Calling-Leaderboard); run this where the hub can be reached, or name local "
        "copies in options.file"
    )
    with pytest.raises(UnreachableError, match=r"name a local copy in options\.file"):
        get_benchmark("gsm8k").load()


def test_rows_of_the_hub_are_named_by_their_data_set(monkeypatch):
    rows = [{"question": "How many?", "answer": "#### 1"}, {"question": "", "answer": "#### 1"}]
    monkeypatch.setattr(hub, "_reachable", lambda: True)
    monkeypatch.setattr(hub.HubSet, "_load", lambda self, subset: rows)
    with pytest.raises(BenchmarkError, match=r"^openai/gsm8k row 2: 'question' is empty$"):
        get_benchmark("gsm8k").load()
