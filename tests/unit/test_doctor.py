"""`specloss doctor` says what a config would do, what it needs and what is missing, and loads no weights."""

from __future__ import annotations

import json
import shutil

import pytest
import yaml
from gguf_files import write_gguf
from huggingface_hub import constants
from huggingface_hub.errors import RevisionNotFoundError
from places import DEMO, ROOT
from requests import Response
from typer.testing import CliRunner

from specloss import doctor, models
from specloss.cli import app
from specloss.doctor import Doctor
from specloss.experiment.config import parse_config
from specloss.models import inspection


@pytest.fixture
def config(tmp_path):
    values = yaml.safe_load((ROOT / "config/demo.yaml").read_text())
    values |= {"results": str(tmp_path / "results"), "reports": str(tmp_path / "reports")}
    values["pairs"]["demo"] |= {"target": str(DEMO / "target"), "draft": str(DEMO / "draft")}
    values["benchmarks"] = {"chain_l2": values["benchmarks"]["chain_l2"]}
    return values


def examined(values, **options):
    found = Doctor(parse_config(values, "my.yaml"), "my.yaml", **options)
    return "\n".join(found.report()), found.missing


def test_folders_that_cannot_be_written_are_missing(config, tmp_path):
    (tmp_path / "file").write_text("")
    _, missing = examined(config | {"results": str(tmp_path / "file"), "reports": "/dev/null"})
    assert missing == [
        f"cannot write to {tmp_path}/file/demo: Not a directory",
        "cannot write to /dev/null/demo: Not a directory",
    ]


@pytest.fixture
def no_weights(monkeypatch):
    def load(*args, **kwargs):
        raise AssertionError("weights were loaded")

    monkeypatch.setattr("specloss.models.pair.load_pair", load)
    monkeypatch.setattr("specloss.models.loading.AutoModelForCausalLM.from_pretrained", load)


def test_a_config_that_can_run_is_described(config, no_weights):
    text, missing = examined(config)
    assert not missing and text.endswith("nothing is missing")
    for line in (
        "demo: 87 cells = 1 pair x 1 benchmarks x 29 settings x 3 seeds; 0 decoded already",
        f"  target: {DEMO / 'target'}: a local folder",
        "  vocabulary: 34 shared ids (target 34, draft 34); the same tokenizer; end of sequence: 1 '<eos>'",
        "  chain: 100 items, at most 160 new tokens each",
        "  prompts of pair demo: 9 to 9 tokens; the first, chain-l2-0000:",
        "  | 02-02-30?",
        "  87 cells to decode: at most 1,392,000 new tokens, if every answer reaches its limit",
        "  hours: unknown without a pilot (--pilot)",
    ):
        assert line in text.splitlines()


def test_memory_is_what_the_loaded_pair_and_its_cache_take(config, pair):
    loaded = sum(p.numel() * 4 for model in (pair.target, pair.draft) for p in model.parameters())
    text, _ = examined(config)
    found = inspection.inspect_model(models.checkpoint.locate(str(DEMO / "target")), "float32")
    assert found.weights == sum(p.numel() * 4 for p in pair.target.parameters())
    half = inspection.inspect_model(models.checkpoint.locate(str(DEMO / "target")), "bfloat16")
    assert half.weights == found.weights // 2
    assert f"{found.weights / 1e6:,.1f} MB + {(loaded - found.weights) / 1e6:,.1f} MB" in text
    # 50 rows x (9 prompt + 160 new + 8 drafted + 1) tokens, keys and values, layers x width, float32
    cache = 2 * 50 * 178 * 4 * (4 * 128 + 2 * 64)
    assert f"keys and values {cache / 1e6:,.1f} MB (50 rows x 178 tokens)" in text


def test_a_gguf_file_is_measured_as_it_will_be_loaded(tmp_path):
    tensors = write_gguf(tmp_path / "tiny.gguf")
    found = inspection.inspect_model(models.checkpoint.locate(str(tmp_path / "tiny.gguf")), "auto")
    assert found.where == "a GGUF file" and found.weights == sum(4 * tensor.size for tensor in tensors.values())


def test_everything_that_is_missing_is_named_at_once(config, no_weights, tmp_path):
    config["pairs"]["demo"]["draft"] = "./gone"
    config["pairs"]["gguf"] = {"target": "./gone.gguf", "draft": str(DEMO / "draft")}
    config["benchmarks"]["empty"] = {"task": "chain", "options": {"level": 99, "problems": 3}, "max_new_tokens": 9}
    text, missing = examined(config)
    assert [line.split(": ")[0] for line in missing] == ["pairs.demo.draft", "pairs.gguf.target", "benchmarks.empty"]
    assert text.endswith("\n".join(["missing", *(f"  {line}" for line in missing)]))
    assert "  | 02-02-30?" in text  # the rest is examined all the same


def test_different_tokenizers_are_missing_something(config, tmp_path):
    folder = shutil.copytree(DEMO / "draft", tmp_path / "draft")
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    vocab = tokenizer["model"]["vocab"]
    vocab["="], vocab["0"] = vocab["0"], vocab["="]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    config["pairs"]["demo"]["draft"] = str(folder)
    text, missing = examined(config)
    assert "DIFFERENT tokenizers" in text and "different tokenizers" in missing[0]


def test_prompts_that_do_not_fit_are_missing_something(config, tmp_path):
    folder = shutil.copytree(DEMO / "target", tmp_path / "target")
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | {"max_position_embeddings": 9}))
    config["pairs"]["demo"]["target"] = str(folder)
    _, missing = examined(config)
    assert missing == ["benchmarks.chain_l2: 100 prompts do not fit pair demo's context, 9"]


def test_a_model_that_is_yet_to_be_made_is_not_missing(config):
    wheel = {"package": "tiny-model==1.0", "sha256": "0" * 64, "member": "tiny_model/tiny.gguf"}
    config["models"] = {"big": {"wheel": wheel}}
    config["pairs"]["demo"] |= {"target": "big"}
    text, missing = examined(config)
    assert not missing and "  target: big: not made yet: the workflow makes it first" in text


def test_a_model_of_the_hub_is_found_in_its_cache_without_network(config, tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    cached = tmp_path / "models--owner--name"
    shutil.copytree(DEMO / "target", cached / "snapshots" / "abc")
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("abc")
    config["pairs"]["demo"]["target"] = "owner/name"
    text, missing = examined(config)
    assert not missing and "  target: owner/name: in the hub's cache" in text


@pytest.mark.parametrize(
    "answer, words",
    [
        (ConnectionError("no network"), "not in the hub's cache, and the hub cannot be reached from here"),
        (RevisionNotFoundError("no", response=Response()), "the hub has no revision 'v9' of it"),
    ],
)
def test_a_model_that_the_hub_does_not_give_is_missing(config, tmp_path, monkeypatch, answer, words):
    def ask(*args, **kwargs):
        raise answer

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(inspection.HfApi, "model_info", ask)
    config["pairs"]["demo"] |= {"target": "owner/name", "target_revision": "v9"}
    text, missing = examined(config)
    assert "  target: owner/name: MISSING" in text
    assert len(missing) == 1 and missing[0].startswith("pairs.demo.target: owner/name") and words in missing[0]


def test_a_pilot_estimates_the_hours(config, monkeypatch):
    monkeypatch.setattr(doctor, "PILOT_TOKENS", 8)
    config["methods"] = {"lenience": {"params": [0.4]}}
    config["decoding"]["batch_size"] = 4
    text, _ = examined(config, pilot=True)
    assert "  pilot of demo on chain_l2: 4 answers, " in text and "  hours: at most " in text


@pytest.mark.parametrize("model, status", [(str(DEMO / "target"), 0), ("./gone", 1)])
def test_the_command_fails_if_something_is_missing(config, tmp_path, model, status):
    config["pairs"]["demo"]["target"] = model
    (tmp_path / "my.yaml").write_text(yaml.safe_dump(config))
    done = CliRunner().invoke(app, ["doctor", str(tmp_path / "my.yaml")])
    assert done.exit_code == status and ("nothing is missing" in done.output) == (status == 0)
