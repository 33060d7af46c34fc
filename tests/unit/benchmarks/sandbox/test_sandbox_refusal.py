"""Where the sandbox is not safe nothing is run, unless the config says so; then the file and the report say it."""

import json
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from places import DEMO, ROOT

from specloss.analysis.evidence.unsafe import unsafe_benchmarks
from specloss.benchmarks import mbppplus
from specloss.benchmarks.sandbox import Isolation, SandboxError, permitted, run_tests
from specloss.common.yamlfile import ConfigError
from specloss.doctor import Doctor
from specloss.experiment.cells import Cell
from specloss.experiment.config import parse_config
from specloss.experiment.plan import make_plan
from specloss.experiment.schema import GENERATIONS
from specloss.experiment.study import Study
from specloss.scoring.score import score_cell

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")

WEAK = Isolation(("seccomp",), {"namespaces": "unshare: Operation not permitted"}, ("files", "disk"))
ROW = {
    "task_id": 1,
    "prompt": "Write a function that doubles.",
    "code": "def double(x): return 2 * x",
    "test_imports": [],
    "test_list": ["assert double(2) == 4"],
    "test": "assert double(3) == 6",
}


@pytest.fixture
def weak(monkeypatch):
    module = sys.modules["specloss.benchmarks.sandbox.isolation"]
    monkeypatch.setattr(module, "isolation", lambda: WEAK)


@pytest.fixture
def config(tmp_path):
    values = yaml.safe_load((ROOT / "config/demo.yaml").read_text())
    values |= {"results": str(tmp_path / "results"), "reports": str(tmp_path / "reports")}
    values["pairs"]["demo"] |= {"target": str(DEMO / "target"), "draft": str(DEMO / "draft")}
    file = tmp_path / "code.jsonl"
    file.write_text(json.dumps(ROW))
    code = {"task": "mbppplus", "options": {"file": str(file)}, "chat": "plain", "max_new_tokens": 8}
    values["benchmarks"] = {"code": code}
    return values


def test_without_what_is_essential_nothing_is_run_unless_it_is_asked_for(weak):
    with pytest.raises(SandboxError, match=r"files .*no namespaces: unshare.*sandbox: unsafe"):
        run_tests("def f(): return 1", "assert f() == 1", "f")
    assert permitted("unsafe") is WEAK


def test_without_what_is_not_essential_code_is_run_and_it_is_said():
    assert not Isolation(("landlock", "seccomp"), {}, ("disk", "limits")).unsafe


def test_a_plan_is_refused_before_any_decoding(weak, config, monkeypatch):
    monkeypatch.setattr(
        "specloss.experiment.checks.check_prompts", lambda *_: None
    )  # the demo's tokenizer has no words
    with pytest.raises(ConfigError, match=r"benchmarks\.code: model-written code is not run"):
        make_plan(config, "my.yaml")
    config["benchmarks"]["code"]["grading"] = {"sandbox": "unsafe"}
    assert make_plan(config, "my.yaml").content["config"]["benchmarks"]["code"]["grading"] == {"sandbox": "unsafe"}


@pytest.mark.parametrize("value", ["off", True, "Unsafe", None])
def test_no_other_word_stands_for_unsafe(config, value):
    config["benchmarks"]["code"]["grading"] = {"sandbox": value}
    with pytest.raises(ConfigError, match=r"benchmarks\.code\.grading: sandbox"):
        make_plan(config, "my.yaml")


def test_the_doctor_says_it_as_something_missing(weak, config):
    doctor = Doctor(parse_config(config, "my.yaml"), "my.yaml")
    assert "  sandbox: scoring would REFUSE" in list(doctor.report())
    assert any("model-written code is not run" in line for line in doctor.missing)


def test_verdicts_of_an_unsafe_run_say_so(weak, config, tmp_path):
    settings = {"benchmark": {"task": "mbppplus"}}
    cell = Cell("x", "pair", "code", "standard_sd", None, 0, settings)
    folder = cell.folder(tmp_path)
    folder.mkdir(parents=True)
    (item,) = mbppplus.load(config["benchmarks"]["code"]["options"]["file"])
    row = {"problem": item.id, "index": 0, "sample": 0, "text": "no code", "reference": item.reference}
    columns = {name: [row.get(name)] for name in GENERATIONS.names}
    pq.write_table(pa.table(columns, schema=GENERATIONS), folder / "generations.parquet")
    (folder / "cell.json").write_text(json.dumps({"cell": cell.to_dict()}))
    with pytest.raises(SandboxError):
        score_cell(folder)
    assert not (folder / "graded.parquet").exists()
    grading = {"code": {"grading": {"sandbox": "unsafe"}}}
    (tmp_path / "x" / "experiment.json").write_text(json.dumps({"config": {"benchmarks": grading}}))
    score_cell(folder)
    said = json.loads(pq.read_metadata(folder / "graded.parquet").metadata[b"sandbox"])
    assert said["unsafe"] and said["layers"] == ["seccomp"]

    class Cells:
        cells = (cell,)

    study: Study = Cells()
    found = unsafe_benchmarks(study, tmp_path)
    assert list(found) == ["code"] and "reading, listing and changing the machine's files" in found["code"][0]
