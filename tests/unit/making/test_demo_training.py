"""Training of the demo pair, on a tiny config; and the folders that it writes."""

import copy
import json
import random

import pytest
import torch
import yaml
from places import DEMO, ROOT
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from specloss.benchmarks import chain
from specloss.making import demo_pair as demo_training

TINY_MODEL = dict(
    layers=1, width=16, feedforward=16, heads=2, steps=3, batch_tokens=256, learning_rate=1e-3, word_skew=0.5
)
TINY = dict(seed=0, threads=1, target=TINY_MODEL, draft=TINY_MODEL | dict(steps=2))
SHIPPED_CONFIG = ROOT / "config/train_demo.yaml"
SHIPPED_PAIR = ROOT / "src/specloss/models/demo"


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    out_dir = tmp_path_factory.mktemp("pair")
    demo_training.train_pair(TINY, out_dir)
    return out_dir


@pytest.mark.parametrize("role", ["target", "draft"])
def test_both_folders_load_like_any_local_model(pair, role):
    tokenizer = AutoTokenizer.from_pretrained(pair / role)
    model = AutoModelForCausalLM.from_pretrained(pair / role)
    ids = tokenizer("37*04+58-09?", return_tensors="pt")["input_ids"]
    assert model(ids).logits.shape == (1, 12, len(tokenizer))
    assert model.config.eos_token_id == tokenizer.eos_token_id
    assert model.config.pad_token_id == tokenizer.pad_token_id
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight


def test_both_models_share_one_tokenizer(pair):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (pair / "target" / name).read_bytes() == (pair / "draft" / name).read_bytes()


def test_the_generation_config_carries_no_sampling_settings(pair):
    settings = GenerationConfig.from_pretrained(pair / "target").to_diff_dict()
    assert set(settings) <= {"eos_token_id", "pad_token_id", "transformers_version", "_from_model_config"}


def test_the_record_says_how_the_pair_was_made(pair):
    record = json.loads((pair / "training.json").read_text())
    assert record["seed"] == 0
    assert record["config"] == TINY
    assert set(record["versions"]) == {"python", "torch", "transformers"}
    assert record["models"]["target"]["loss"] > 0


def test_training_again_gives_the_same_weights(pair, tmp_path):
    demo_training.train_pair(TINY, tmp_path)
    for role in ("target", "draft"):
        first, second = (AutoModelForCausalLM.from_pretrained(out / role).state_dict() for out in (pair, tmp_path))
        assert all(torch.equal(first[name], second[name]) for name in first)


def test_the_loss_falls_in_a_few_steps():
    tokenizer = demo_training.build_tokenizer()
    losses = []
    for steps in (1, 200):
        config = demo_training.ModelTraining(**TINY_MODEL | dict(steps=steps, learning_rate=1e-2))
        losses.append(demo_training.train_model(config, tokenizer, 0, "target")[1]["loss"])
    assert losses[1] < losses[0] - 0.5


def test_the_tokenizer_reads_each_digit_sign_and_word_as_one_token_and_gives_the_text_back():
    tokenizer = demo_training.build_tokenizer()
    rng = random.Random(0)
    for level in chain.LEVELS:
        problem = chain.draw_problem(rng, level)
        text = problem.prompt + chain.write_solution(problem, rng)
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert tokenizer.unk_token_id not in ids
        assert len(ids) == (3 * level + 3) + (3 + 7 * level + 4)
        assert len(ids) < demo_training.MAX_POSITIONS


def test_training_never_sees_a_held_out_problem():
    problems = demo_training.draw_training_problems(random.Random(0), 8)
    assert not any(chain.is_held_out(next(problems).prompt) for _ in range(2000))


def test_only_the_solution_and_its_end_are_labelled():
    tokenizer = demo_training.build_tokenizer()
    ids, labels = demo_training._draw_batch(random.Random(0), tokenizer, 8, demo_training.ModelTraining(**TINY_MODEL))
    assert ids.numel() <= TINY_MODEL["batch_tokens"]
    for row, row_labels in zip(ids, labels, strict=True):
        prompt_length = tokenizer.decode(row).index("?") + 1
        end = row.tolist().index(tokenizer.eos_token_id)
        assert (row_labels[:prompt_length] == -100).all() and (row_labels[end + 1 :] == -100).all()
        assert torch.equal(row_labels[prompt_length : end + 1], row[prompt_length : end + 1])


@pytest.mark.parametrize(
    "change, message",
    [
        ({"sead": 1}, "unknown key 'sead'; did you mean 'seed'"),
        ({"target": TINY_MODEL | {"depth": 2}}, "unknown key 'target.depth'"),
        ({"draft": {key: TINY_MODEL[key] for key in TINY_MODEL if key != "layers"}}, "key 'draft.layers' is missing"),
        ({"draft": TINY_MODEL | {"steps": 0}}, "draft.steps: Input should be greater"),
        ({"target": TINY_MODEL | {"heads": 3}}, "target: .*width 16 is not a multiple of 2 [*] heads = 6"),
    ],
)
def test_a_wrong_key_is_named(change, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        demo_training.train_pair(copy.deepcopy(TINY) | change, tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_shipped_pair_was_trained_with_the_shipped_config():
    record = json.loads((DEMO / "training.json").read_text())
    assert record["config"] == yaml.safe_load(SHIPPED_CONFIG.read_text())


@pytest.mark.parametrize("role", ["target", "draft"])
def test_the_shipped_tokenizer_is_the_one_that_training_builds(role):
    shipped = AutoTokenizer.from_pretrained(DEMO / role)
    assert shipped.get_vocab() == demo_training.build_tokenizer().get_vocab()
