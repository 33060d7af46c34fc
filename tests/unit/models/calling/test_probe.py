"""A model that the ragged cache serves wrongly is refused in one line; a model that has passed is not tried again."""

import json
import shutil
from types import SimpleNamespace

import pytest
import torch
from places import DEMO
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    GPTNeoConfig,
    Llama4TextConfig,
    LlamaConfig,
    Phi3Config,
    RoFormerConfig,
)

from specloss.decoding.families import small_model, try_family
from specloss.models import ModelError, load_pair
from specloss.models.calling import probe as probing
from specloss.models.calling.probe import Passed, probe, tolerance
from specloss.models.checkpoint import Checkpoint, locate
from specloss.models.loading import check_config, load_model
from specloss.models.pair import probe_checkpoint
from specloss.models.positions import boundaries, effective_context

SMALL = dict(vocab_size=100, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96)
ROPE = dict(rope_type="longrope", rope_theta=1e4, short_factor=[1.0] * 8, long_factor=[9.0] * 8)
LLAMA4 = dict(
    num_key_value_heads=2,
    head_dim=16,
    intermediate_size_mlp=96,
    num_local_experts=4,
    pad_token_id=0,
    attention_chunk_size=None,
)


def refused(config, **settings):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, **settings).eval()
    for weight in model.parameters():
        if weight.dim() > 1:
            torch.nn.init.normal_(weight, std=1.5 / weight.shape[-1] ** 0.5)
    model(input_ids=torch.arange(3, 60).unsqueeze(0), use_cache=False)  # by itself it is a whole model
    with pytest.raises(ModelError) as caught:
        check_config("it", type(model), config)
        probe(Checkpoint("it", "it", None, local=False), model, "float32", "eager")
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "config, words",
    [
        (
            GPTNeoConfig(
                vocab_size=100,
                hidden_size=64,
                num_layers=2,
                num_heads=4,
                attention_types=[[["global", "local"], 1]],
                window_size=32,
                max_position_embeddings=512,
            ),
            "differ",
        ),
        (RoFormerConfig(**SMALL, is_decoder=True, max_position_embeddings=512), ""),
        (BertConfig(**SMALL, is_decoder=False), ""),
        (
            Llama4TextConfig(
                **SMALL,
                **LLAMA4,
                layer_types=["full_attention"] * 2,
                no_rope_layers=[0, 1],
                floor_scale=8,
                attn_scale=0.5,
            ),
            "differ",
        ),
    ],
    ids=["local layers", "positions of the cache", "no causal mask", "a scale by the cache's length"],
)
def test_a_family_that_the_cache_serves_wrongly_is_refused_in_one_line(config, words):
    assert words in refused(config, attn_implementation="eager")


def test_longrope_beyond_its_original_context_is_refused_from_the_config():
    config = Phi3Config(
        **SMALL,
        max_position_embeddings=512,
        original_max_position_embeddings=64,
        rope_parameters=ROPE | {"original_max_position_embeddings": 64},
        pad_token_id=0,
    )
    assert effective_context(config) == effective_context(config.to_dict()) == 64
    with pytest.raises(ModelError, match="longrope turns all of a text's positions at 64 tokens, of 512"):
        check_config("it", None, config)


def test_a_boundary_that_a_probe_cannot_reach_is_refused_from_the_config():
    config = GPTNeoConfig(window_size=600, max_position_embeddings=2048)
    assert boundaries(config) == {600: "window_size"}
    with pytest.raises(ModelError, match="window_size 600"):
        check_config("it", None, config)
    assert boundaries(LlamaConfig()) == {}


@pytest.mark.parametrize("family", ["llama", "gpt2", "mpt"])
def test_a_served_family_decodes_as_its_own_forward(family):
    outcome = try_family(family)
    assert outcome.kind == "decoded", outcome


@pytest.mark.parametrize("family", ["bloom", "mamba", "gemma2", "roberta", "bart"])
def test_a_family_that_is_not_served_is_refused_in_one_line(family):
    outcome = try_family(family)
    assert outcome.kind == "refused" and "\n" not in outcome.reason, outcome


@pytest.mark.slow
def test_no_causal_family_of_transformers_is_wrong_or_crashes():
    from specloss.decoding.families import sweep

    outcomes = list(sweep())
    assert len(outcomes) > 150
    assert not [outcome for outcome in outcomes if outcome.kind in ("wrong", "crashed")]
    assert sum(outcome.kind == "decoded" for outcome in outcomes) > 80


def test_a_cache_that_keeps_what_was_rolled_back_is_seen(pair, monkeypatch):
    written = probing.RaggedCache.at
    calls = iter(range(99))

    def late(cache, slots, visible):  # writes the second block behind the first
        return written(cache, slots + (1 if next(calls) == 1 else 0), visible)

    monkeypatch.setattr(probing.RaggedCache, "at", late)
    with pytest.raises(ModelError, match="a block after a rollback"):
        probe(Checkpoint("it", "it", None, local=False), pair.target, "float32", "sdpa")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rounding_is_no_mismatch(dtype):
    model = small_model("llama", 0).to(dtype)
    probe(Checkpoint("it", "it", None, local=False), model, "auto", "eager")
    assert tolerance(dtype, 2) < 0.1


def test_what_has_passed_is_not_tried_again_and_other_weights_are(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = shutil.copytree(DEMO / "draft", tmp_path / "model")
    source = locate(str(folder))
    probe_checkpoint(source, "float32", "cpu", "sdpa", False)
    (file,) = (tmp_path / "cache/specloss/probed").iterdir()
    assert file.stat().st_mode & 0o077 == 0 and file.parent.stat().st_mode & 0o077 == 0
    passed = ("float32", "sdpa", "cpu", False)
    assert (
        Passed(source, *passed)
        and not Passed(source, "bfloat16", *passed[1:])
        and not Passed(source, *passed[:3], True)
    )
    monkeypatch.setattr(probing, "_Probe", None)
    probe_checkpoint(source, "float32", "cpu", "sdpa", False)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"rms_norm_eps": 0.1}))
    assert not Passed(source, *passed)


def test_a_cache_folder_that_cannot_be_written_costs_a_probe_and_no_more(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    source = locate(str(DEMO / "draft"))
    model = load_model(source, "float32", "cpu")
    probe(source, model, "float32", "sdpa")
    assert not Passed(source, "float32", "sdpa", "cpu", False)


def test_a_model_without_a_fingerprint_is_always_tried(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model = SimpleNamespace(config=SimpleNamespace(_commit_hash=None))
    assert not Passed(Checkpoint("a/b", "a/b", None, False), "auto", "sdpa", "cpu", False, model.config._commit_hash)


def test_a_head_s_target_is_tried_on_a_tree(tree_head, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(probing.RaggedCache, "move", lambda cache, source, to: None)
    with pytest.raises(ModelError, match="a single token"):
        load_pair(DEMO / "target", tree_head, kind="eagle3", dtype="float32", device="cpu")
