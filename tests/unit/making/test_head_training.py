"""Training of an EAGLE-3 head, on a tiny config; what training-time test computes; and the shipped head."""

import json
import random

import pytest
import torch
import yaml
from exactness import EXACT, UNIT
from places import DEMO, ROOT
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

from specloss.benchmarks import chain
from specloss.common.yamlfile import ConfigError
from specloss.making.demo_pair import build_tokenizer
from specloss.making.eagle3_head import HeadTraining, Text, draw_batches, look_up, run_losses, train_head, write_texts
from specloss.models import ModelError
from specloss.models.eagle3 import load_head

SHIPPED_CONFIG = ROOT / "config/train_demo_eagle3.yaml"
SHIPPED_HEAD = DEMO / "eagle3"
TINY = yaml.safe_load(SHIPPED_CONFIG.read_text()) | dict(
    target=str(DEMO / "target"),
    feedforward=16,
    texts=24,
    max_new_tokens=80,
    steps=4,
    batch_tokens=256,
    runs=2,
)


@pytest.fixture(scope="module")
def target():
    torch.set_num_threads(1)
    return AutoModelForCausalLM.from_pretrained(DEMO / "target").eval()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out_dir = tmp_path_factory.mktemp("head")
    train_head(TINY, out_dir)
    return out_dir


@pytest.fixture(scope="module")
def held_out(target):
    """A worked solution of three held-out problems of each level of the ladder, as the training data words them."""
    tokenizer, rng = build_tokenizer(), random.Random(0)
    problems = []
    while len(problems) < 12:
        problem = chain.draw_problem(rng, 2 * (1 + len(problems) // 3))
        if chain.is_held_out(problem.prompt):
            problems.append(problem)
    texts = []
    for problem in problems:
        prompt = tokenizer.encode(problem.prompt)
        texts.append(Text([*prompt, *tokenizer.encode(chain.write_solution(problem, rng, 1.0)), 1], len(prompt)))
    return texts


def test_a_trained_head_loads_as_a_published_one(trained, target):
    head = load_head(trained, target)
    assert head.layers == (1, 2, 3)
    assert head.lm_head.out_features == 31 and head.t2d.sum() == 31
    assert head.embed_tokens.weight.data_ptr() == target.get_input_embeddings().weight.data_ptr()


def test_ids_that_no_answer_has_are_not_drafted(trained, target):
    head = load_head(trained, target)
    tokenizer = build_tokenizer()
    drafted = head.target_ids(torch.arange(31)).tolist()
    assert {tokenizer.pad_token_id, tokenizer.unk_token_id, tokenizer.convert_tokens_to_ids("?")}.isdisjoint(drafted)
    assert tokenizer.eos_token_id in drafted


def test_training_the_head_again_gives_the_same_bytes(trained, tmp_path):
    train_head(TINY, tmp_path)
    for name in ("model.safetensors", "config.json"):
        assert (tmp_path / name).read_bytes() == (trained / name).read_bytes()


def test_the_heads_record_says_how_it_was_made(trained):
    record = json.loads((trained / "training.json").read_text())
    assert record["config"] == TINY
    assert set(record["versions"]) == {"python", "torch", "transformers"}
    assert record["texts"]["count"] == 24
    assert len(record["loss"]) == len(record["agreement"]) == 2


def test_the_loss_of_every_run_falls_in_a_few_steps(trained, tmp_path):
    train_head(TINY | dict(steps=60, learning_rate=5e-3), tmp_path)
    first, last = (json.loads((out / "training.json").read_text())["loss"] for out in (trained, tmp_path))
    assert all(after < before - 0.2 for before, after in zip(first, last, strict=True))


@torch.no_grad()
def test_a_run_sees_what_drafting_sees(trained, held_out):
    """Run i at position t, with the token at t + i + 1, is the head i tokens into a draft that follows position t."""
    target = AutoModelForCausalLM.from_pretrained(DEMO / "target", dtype=torch.float64).eval()
    head = load_head(trained, target)
    text = Text(held_out[-1].ids[:40], held_out[-1].start)
    drafted = head.target_ids(torch.arange(31))
    batch = look_up(head, target, [text], drafted)
    runs, ids = 4, batch.ids
    losses, agreement = run_losses(head, batch, runs)
    entropies, agreeing = [[] for _ in range(runs)], [[] for _ in range(runs)]
    for t in range(len(text.ids)):
        cache = DynamicCache()
        ahead = ids[:, 1 : t + 2]
        hidden = head.project(batch.features[:, : ahead.shape[1]])
        hidden = head(hidden, ahead, torch.arange(ahead.shape[1])[None], None, cache)[:, -1:]
        for run in range(runs):
            after = t + run + 2  # the token that is predicted
            if after >= len(text.ids):
                break
            if run:
                hidden = head(hidden, ids[:, t + run + 1, None], torch.tensor([[t + run]]), no_mask(cache), cache)
            if after >= text.start:
                log_q, p = head.log_probs(hidden)[0, 0], batch.p[0, after - 1]
                entropies[run].append(-(p * log_q).sum())
                agreeing[run].append((p.argmax() == log_q.argmax()).float())
    torch.testing.assert_close(losses, torch.stack([torch.stack(x).mean() for x in entropies]), **EXACT)
    assert agreement.tolist() == pytest.approx([float(torch.stack(x).double().mean()) for x in agreeing], rel=UNIT)


def no_mask(cache):
    """One query that sees all that is cached, and itself."""
    return torch.ones(1, 1, 1, cache.get_seq_length() + 1, dtype=torch.bool)


def test_answers_are_the_targets_own_and_end_with_it(target):
    config = HeadTraining(**TINY | dict(texts=40, max_new_tokens=120))
    tokenizer = AutoTokenizer.from_pretrained(DEMO / "target", padding_side="left")
    torch.manual_seed(0)
    texts = write_texts(config, target, tokenizer)
    right = 0
    for text in texts:
        prompt, answer = tokenizer.decode(text.ids[: text.start]), text.ids[text.start :]
        assert prompt.endswith("?") and not chain.is_held_out(prompt)
        assert answer.index(tokenizer.eos_token_id) == len(answer) - 1
        steps = tokenizer.decode(answer[:-1])
        right += steps.startswith(chain.OPENERS) and "#" in steps
    assert right == len(texts) == 40


def test_a_batch_has_room_and_a_round_has_every_text_once():
    config = HeadTraining(**TINY)
    texts = [Text([i] * (20 + i), 5) for i in range(30)]
    seen = []
    for batch in draw_batches(texts, config):
        assert max(len(text.ids) for text in batch) * len(batch) <= config.batch_tokens
        seen += [text.ids[0] for text in batch]
        if len(seen) >= 30:
            break
    assert sorted(seen[:30]) == list(range(30))


@pytest.mark.parametrize(
    "change, message",
    [
        ({"step": 1}, "config: unknown key 'step'; did you mean 'steps'"),
        ({"runs": 0}, "config: runs: Input should be greater than or equal to 1, got 0"),
    ],
)
def test_a_wrong_key_of_the_heads_config_is_named(change, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        train_head(TINY | change, tmp_path)
    assert not list(tmp_path.iterdir())


def test_feature_layers_that_the_target_has_not_are_refused_before_any_work(tmp_path):
    with pytest.raises(ModelError, match="three numbers from 0 to 3"):
        train_head(TINY | {"layers": [1, 2, 4]}, tmp_path)
    with pytest.raises(ModelError, match="4 layers has no layers 2, L/2 and L-3"):
        train_head(TINY | {"layers": None}, tmp_path)


def test_the_shipped_head_was_trained_with_the_shipped_config():
    record = json.loads((SHIPPED_HEAD / "training.json").read_text())
    assert record["config"] == yaml.safe_load(SHIPPED_CONFIG.read_text())


@torch.no_grad()
def test_the_shipped_heads_top_token_is_mostly_the_targets_on_problems_it_was_not_trained_on(target, held_out):
    head = load_head(SHIPPED_HEAD, target)
    batch = look_up(head, target, held_out, head.target_ids(torch.arange(head.lm_head.out_features)))
    agreement = run_losses(head, batch, 6)[1].tolist()
    assert agreement[0] > 0.75 and min(agreement) > 0.5


def test_all_shipped_weights_are_below_six_megabytes():
    assert sum(path.stat().st_size for path in DEMO.rglob("*.safetensors")) < 6e6
