"""Models whose positions depend on the length of the text are used up to where that begins: the pair's context."""

import json
import shutil

import pytest
import torch
import yaml
from eagle3_cases import checkpoint, save
from places import DEMO, ROOT
from transformers import LlamaConfig, MistralConfig

from specloss import decode, load_pair
from specloss.common.yamlfile import ConfigError
from specloss.doctor import Doctor
from specloss.experiment.checks import check_architectures, check_pairs
from specloss.experiment.config import parse_config
from specloss.experiment.grid import expand
from specloss.models import ModelError
from specloss.models.context import check_context, head_note, pair_context
from specloss.models.loading import check_config


def longrope(head_dim):
    """Other frequencies beyond 48 tokens."""
    factors = range(head_dim // 2)
    return {
        "rope_type": "longrope",
        "rope_theta": 1e4,
        "short_factor": [1.0 + 0.1 * i for i in factors],
        "long_factor": [1.0 + 0.7 * i for i in factors],
        "original_max_position_embeddings": 48,
        "factor": 4.0,
    }


DYNAMIC = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}
SHORT = [5, 6, 7, 8, 9]
CROSSING = [5 + i % 20 for i in range(40)]


@pytest.fixture(scope="module")
def scaled(tmp_path_factory):
    """The demo's models with other rotations."""
    root = tmp_path_factory.mktemp("scaled")

    def made(kind, changes):
        folders = [root / f"{kind}-{role}" for role in ("target", "draft")]
        for folder in folders:
            shutil.copytree(DEMO / folder.name.removeprefix(f"{kind}-"), folder)
            config = json.loads((folder / "config.json").read_text())
            (folder / "config.json").write_text(json.dumps(config | changes(config["head_dim"])))
        return [str(folder) for folder in folders]

    return {
        "longrope": made("longrope", lambda head_dim: {"rope_parameters": longrope(head_dim)}),
        "dynamic": made("dynamic", lambda _: {"rope_parameters": DYNAMIC, "max_position_embeddings": 48}),
    }


def own_greedy(model, ids, new):
    for _ in range(new):
        with torch.inference_mode():
            ids = [*ids, int(model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].argmax())]
    return ids[-new:]


@pytest.mark.parametrize("kind, asked, end", [("longrope", 48, 48), ("longrope", 45, 45), ("dynamic", None, 48)])
def test_texts_end_before_positions_turn_and_are_the_models_own_until_then(scaled, kind, asked, end):
    pair = load_pair(*scaled[kind], dtype="float32", device="cpu", eos=[], context=asked)
    assert pair.context == end
    said = [note for note in pair.notes if "longrope, kept to its original context" in note]
    assert len(said) == 2 * (kind == "longrope") and all(f"texts end at {end} tokens" in note for note in said)

    prompts = [SHORT, CROSSING]
    together = decode(pair, prompts, temperature=0.0, gamma=4, max_new_tokens=20, batch_size=2).token_ids
    assert together == decode(pair, prompts, temperature=0.0, gamma=4, max_new_tokens=20, batch_size=1).token_ids
    assert [len(ids) for ids in together] == [20, end - len(CROSSING)]
    assert together == [own_greedy(pair.target, p, len(ids)) for p, ids in zip(prompts, together, strict=True)]
    with pytest.raises(ValueError, match=f"between 1 and {end - 1}"):
        decode(pair, [[5] * end], gamma=4, max_new_tokens=2)


@pytest.mark.parametrize("asked", [None, 49, 256])
def test_longrope_with_longer_texts_is_refused_with_the_value_to_set(scaled, asked):
    with pytest.raises(ModelError, match=r"longrope .*; set the pair's key 'context' to 48 or less") as caught:
        load_pair(*scaled["longrope"], dtype="float32", device="cpu", context=asked)
    assert "\n" not in str(caught.value)


def test_a_context_caps_any_pair_and_none_exceeds_its_models():
    models = LlamaConfig(max_position_embeddings=512), LlamaConfig(max_position_embeddings=300)
    assert [pair_context("draft", *models, asked) for asked in (None, 300, 20)] == [300, 300, 20]
    check_context("draft", *models, 300)
    with pytest.raises(ModelError, match="context 301: the pair's models hold 300 tokens"):
        check_context("draft", *models, 301)
    windows = MistralConfig(sliding_window=4096, max_position_embeddings=32768)
    check_config("it", None, windows, 4096)
    with pytest.raises(ModelError, match="a window of 4,096 tokens, of 4,097"):
        check_config("it", None, windows, 4097)


def test_a_head_s_own_scaling_is_capped_by_the_rule_of_models():
    target = LlamaConfig(max_position_embeddings=512)
    head = LlamaConfig(max_position_embeddings=256, rope_parameters=longrope(128))
    with pytest.raises(ModelError, match=r"draft: longrope .* 'context' to 48 or less"):
        check_context("eagle3", target, head, None)
    check_context("eagle3", target, head, 48)
    assert pair_context("eagle3", target, head, 40) == 40 and head_note("my/head", target, head, 40) is None
    check_context("eagle3", LlamaConfig(max_position_embeddings=48), head, None)  # its target ends texts by then
    dynamic = LlamaConfig(max_position_embeddings=256, rope_parameters=DYNAMIC)
    check_context("eagle3", target, dynamic, None)
    assert pair_context("eagle3", target, dynamic) == 256
    assert "beyond 256 tokens: texts end there, though its target holds 512" in head_note("my/head", target, dynamic)


def config(target, draft, **pair):
    values = yaml.safe_load((ROOT / "config/demo.yaml").read_text())
    (name,) = values["pairs"]
    values["pairs"] = {name: {"target": target, "draft": draft, "dtype": "float32", "device": "cpu"} | pair}
    return parse_config(values, "x")


def test_a_config_without_a_context_has_the_cells_that_it_had_and_one_with_it_has_others(scaled):
    without, capped = (expand(config(*scaled["dynamic"], **pair)) for pair in ({}, {"context": 40}))
    assert all("context" not in cell.settings["pair"] for cell in without)
    assert all(cell.settings["pair"]["context"] == 40 for cell in capped)
    assert not {cell.key for cell in without} & {cell.key for cell in capped}


def test_check_and_doctor_say_which_context_longrope_needs(scaled):
    class Plan:
        source = "x"

    Plan.experiment = config(*scaled["longrope"])
    with pytest.raises(ConfigError, match=r"pairs\.demo: target: longrope .* 'context' to 48 or less"):
        check_pairs(Plan.experiment)
    doctor = Doctor(Plan.experiment, "x")
    "".join(doctor.report())
    assert any("'context' to 48 or less" in line for line in doctor.missing)
    Plan.experiment = config(*scaled["longrope"], context=48)
    check_pairs(Plan.experiment)
    check_architectures(Plan)
    assert any("kept to its original context" in line for line in Doctor(Plan.experiment, "x").report())
    with pytest.raises(ConfigError, match=r"pairs\.demo: context 49: the pair's models hold 48 tokens"):
        check_pairs(config(*scaled["longrope"], context=49))


def test_check_tries_a_target_on_the_trees_of_its_head(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    values, tensors = checkpoint(width=128, target_width=128, head_dim=32, vocab=34, draft_vocab=24)
    head = save(tmp_path / "head", values | {"eagle_aux_hidden_state_layer_ids": [1, 2, 3]}, tensors)
    experiment = yaml.safe_load((ROOT / "config/demo_eagle3.yaml").read_text())
    (name,) = experiment["pairs"]
    pair = {"kind": "eagle3", "target": str(DEMO / "target"), "draft": str(head), "device": "cpu"}
    experiment |= {"pairs": {name: pair}, "models": {}}

    class Plan:
        source = "x"

    Plan.experiment = parse_config(experiment, "x")
    monkeypatch.setattr("specloss.models.calling.probe.RaggedCache.move", lambda cache, source, to: None)
    with pytest.raises(ConfigError, match=f"pairs.{name}.target: .* a single token"):
        check_architectures(Plan)
