"""A pair has one context, whoever asks: that of both models of a pair of kind draft, that of a head's target."""

from __future__ import annotations

import json
import shutil

import pytest
import yaml
from eagle3_cases import checkpoint, save
from places import DEMO, ROOT
from transformers import GPT2Config, LlamaConfig

from specloss import decode, load_pair
from specloss.benchmarks import Item
from specloss.doctor import Doctor
from specloss.experiment.config import parse_config
from specloss.models.context import UNLIMITED, head_note, pair_context
from specloss.models.prompting import PromptError, check_prompts


def llama(context, **rope):
    settings = {"rope_parameters": {"rope_theta": 1e4, "factor": 4.0} | rope} if rope else {}
    return LlamaConfig(max_position_embeddings=context, **settings)


@pytest.mark.parametrize(
    "kind, target, draft, context",
    [
        ("draft", llama(512), llama(300), 300),
        ("draft", llama(512), llama(4096), 512),
        ("draft", llama(512), None, 512),
        ("draft", None, GPT2Config(n_positions=128), 128),
        ("draft", None, None, UNLIMITED),
        ("eagle3", llama(8192), llama(2048), 8192),
        ("eagle3", llama(8192), llama(2048, rope_type="linear"), 8192),
        ("eagle3", llama(8192), llama(2048, rope_type="dynamic"), 2048),  # rotations of the text's own length
    ],
)
def test_a_pairs_context(kind, target, draft, context):
    assert pair_context(kind, target, draft) == context
    plain = [config and json.loads(config.to_json_string(use_diff=False)) for config in (target, draft)]
    assert pair_context(kind, *plain) == context


def test_a_head_for_shorter_texts_is_said():
    said = head_note("my/head", llama(8192), llama(2048))
    assert said.startswith("my/head: a head for 2,048 positions by its config, its target holds 8,192")
    assert head_note("my/head", llama(2048), llama(2048)) is None


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A draft, and a head, for fewer positions than the target's 256."""
    root = tmp_path_factory.mktemp("short")
    draft = shutil.copytree(DEMO / "draft", root / "draft")
    config = json.loads((draft / "config.json").read_text())
    (draft / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 40}))
    config, tensors = checkpoint(width=128, target_width=128, head_dim=32, vocab=34, draft_vocab=24)
    config |= {"eagle_aux_hidden_state_layer_ids": [1, 2, 3], "max_position_embeddings": 40}
    return {"draft": draft, "eagle3": save(root / "head", config, tensors)}


@pytest.mark.parametrize("kind, context", [("draft", 40), ("eagle3", 256)])
def test_loading_checking_doctor_and_decoding_have_the_same_context(folders, tmp_path, kind, context):
    target, draft = str(DEMO / "target"), str(folders[kind])
    pair = load_pair(target, draft, kind=kind, dtype="float32", device="cpu")
    assert pair.context == context
    assert [f"{draft}: a head for 40 positions" in note for note in pair.notes] == [True] * (kind == "eagle3")

    text = "5+1-2?" * 20  # 120 tokens
    drafting = {"gamma": 2} if kind == "draft" else {"tree": {"total_token": 8, "depth": 2, "top_k": 3}}
    values = yaml.safe_load((ROOT / "config/demo.yaml").read_text())
    values |= {"results": str(tmp_path / "results"), "reports": str(tmp_path / "reports")}
    values["decoding"] = {"temperature": 0.7, **drafting}
    values["pairs"]["demo"] |= {"target": target, "draft": draft, "kind": kind}
    file = tmp_path / "prompts.jsonl"
    file.write_text(json.dumps({"prompt": text}))
    values["benchmarks"] = {"mine": {"task": "prompts", "options": {"file": str(file)}, "max_new_tokens": 9}}
    values["methods"] = {"standard_sd": {}}
    doctor = Doctor(parse_config(values, "x"), "x")
    report = "\n".join(doctor.report())
    item = Item("a", text, None)
    if kind == "draft":
        assert doctor.missing == ["benchmarks.mine: 1 prompts do not fit pair demo's context, 40"]
        with pytest.raises(PromptError, match="between 1 and 39"):
            check_prompts([item], "plain", kind, target, draft)
        with pytest.raises(ValueError, match="between 1 and 39"):
            decode(pair, [text], **drafting, max_new_tokens=9)
    else:
        assert not doctor.missing and "a head for 40 positions by its config, its target holds 256" in report
        check_prompts([item], "plain", kind, target, draft)
        decoded = decode(pair, [text], temperature=0, **drafting, max_new_tokens=9)
        plain = load_pair(target, DEMO / "draft", dtype="float32", device="cpu")
        assert decoded.token_ids == decode(plain, [text], temperature=0, max_new_tokens=9).token_ids
