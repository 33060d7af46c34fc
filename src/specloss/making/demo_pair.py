"""Training of the demo pair: a target and a draft in transformers' Llama architecture, on chain arithmetic.

`train_pair(values, out_dir)` writes two ordinary model folders, `target/` and `draft/`, each with its weights, its
config and the same tokenizer, and a `training.json` that says how they were made. The draft is smaller, trained for a
shorter time, and on another mix of words. On one machine the result is fixed by the config.
"""

from __future__ import annotations

import json
import math
import random
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import tokenizers
import torch
import transformers
from pydantic import Field, model_validator
from torch import Tensor
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from specloss.benchmarks import chain
from specloss.common.section import Section, validated

PAD, EOS, UNK = "<pad>", "<eos>", "<unk>"
MAX_POSITIONS = 256
_IGNORED = -100  # the label that the cross entropy skips


class ModelTraining(Section):
    """Size and training of one of the two models."""

    layers: int = Field(ge=1, description="decoder layers")
    width: int = Field(ge=8, description="hidden size, a multiple of 2 * heads")
    feedforward: int = Field(ge=8, description="width of the feed-forward layers")
    heads: int = Field(ge=1, description="attention heads")
    steps: int = Field(ge=1, description="optimiser steps")
    batch_tokens: int = Field(ge=128, description="tokens in a batch, prompts included, at most")
    learning_rate: float = Field(gt=0, description="peak learning rate")
    word_skew: float = Field(ge=0, description="the k-th word of each list of free words has weight k ** -word_skew")

    @model_validator(mode="after")
    def _heads_divide_width(self) -> ModelTraining:
        if self.width % (2 * self.heads):
            raise ValueError(f"width {self.width} is not a multiple of 2 * heads = {2 * self.heads}")
        return self


class PairTraining(Section):
    """Training of the pair; `config/train_demo.yaml` documents each key."""

    seed: int = Field(ge=0, description="seed of the initial weights and of the training problems")
    threads: int = Field(ge=1, description="CPU threads")
    target: ModelTraining
    draft: ModelTraining


def train_pair(values: dict[str, Any], out_dir: Path, source: str = "config") -> None:
    """Train target and draft and write `target/`, `draft/` and `training.json` under `out_dir`.

    Args:
        values: the content of `config/train_demo.yaml`.
        out_dir: created when it does not exist; files of the same names in it are replaced.
        source: names the config in errors.

    Raises:
        ConfigError: in one line, for a key that is unknown, missing or out of range.
    """
    pair = validated(PairTraining, values, source)
    torch.set_num_threads(pair.threads)
    tokenizer = build_tokenizer()
    models = {}
    for role in ("target", "draft"):
        model, log = train_model(getattr(pair, role), tokenizer, pair.seed, role)
        save_model(model, tokenizer, out_dir / role)
        models[role] = log
    versions = {"torch": torch.__version__, "transformers": transformers.__version__, "python": sys.version.split()[0]}
    record = {"seed": pair.seed, "config": pair.model_dump(), "versions": versions, "models": models}
    (out_dir / "training.json").write_text(json.dumps(record, indent=2) + "\n")


def train_model(
    config: ModelTraining, tokenizer: PreTrainedTokenizerFast, seed: int, role: str
) -> tuple[LlamaForCausalLM, dict]:
    """One trained model, and its log: number of parameters, loss (nats per solution token,
    mean of the last 100 steps), seconds."""
    started = time.monotonic()
    torch.manual_seed(seed)
    model = build_model(config, tokenizer)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.learning_rate, betas=(0.9, 0.98), weight_decay=0.05)
    rng = random.Random(f"{role}-{seed}")
    recent: deque[float] = deque(maxlen=100)
    for step in range(config.steps):
        for group in optimizer.param_groups:
            group["lr"] = config.learning_rate * schedule(step, config.steps)
        ids, labels = _draw_batch(rng, tokenizer, _top_level(step, config.steps), config)
        loss = model(input_ids=ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        recent.append(loss.item())
        if (step + 1) % 100 == 0 or step + 1 == config.steps:
            seconds = time.monotonic() - started
            print(f"{role} step {step + 1}/{config.steps} loss {fmean(recent):.4f} {seconds:.0f} s", file=sys.stderr)
    log = {"parameters": model.num_parameters(), "loss": round(fmean(recent), 5)}
    return model.eval(), log | {"seconds": round(time.monotonic() - started, 1)}


def build_tokenizer() -> PreTrainedTokenizerFast:
    """The demo tokenizer: a digit, a sign or a free word is one token, and decoding gives the text back exactly."""
    words = [word for group in (chain.OPENERS, chain.VERBS, chain.CONNECTIVES, chain.CLOSERS) for word in group]
    vocabulary = list(dict.fromkeys([PAD, EOS, UNK, *"0123456789+-*?#", *words]))
    backend = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({token: index for index, token in enumerate(vocabulary)}, unk_token=UNK)
    )
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex(" ?[a-z]+ |."), behavior="isolated")
    backend.decoder = tokenizers.decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=PAD,
        eos_token=EOS,
        unk_token=UNK,
        padding_side="left",
        model_max_length=MAX_POSITIONS,
        clean_up_tokenization_spaces=False,
    )


def build_model(config: ModelTraining, tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """An untrained Llama of the configured size, embeddings tied; its weights come from torch's global generator."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=config.width,
            intermediate_size=config.feedforward,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            num_key_value_heads=config.heads,
            max_position_embeddings=MAX_POSITIONS,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )


def save_model(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write a folder that `from_pretrained` loads, with no sampling settings in its generation config."""
    model.generation_config = GenerationConfig(
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, bos_token_id=None
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def schedule(step: int, steps: int) -> float:
    """Share of the peak learning rate: up over at most 100 steps, then a cosine down to 3 %."""
    warm_up = min(100, steps)
    if step < warm_up:
        return (step + 1) / warm_up
    return 0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * (step - warm_up) / max(1, steps - warm_up)))


def _top_level(step: int, steps: int) -> int:
    """Curriculum: the highest level grows from 2 to 8 over the first half of the training."""
    return min(chain.LEVELS[-1], 2 + 14 * step // steps)


def _draw_batch(
    rng: random.Random, tokenizer: PreTrainedTokenizerFast, top_level: int, config: ModelTraining
) -> tuple[Tensor, Tensor]:
    """Ids and labels, both [batch, time], padded on the right; only the solution and its end of sequence are labelled.

    Levels are drawn in proportion to their length, up to `top_level`.
    """
    rows: list[list[int]] = []
    prompt_lengths: list[int] = []
    longest = 0
    for problem in draw_training_problems(rng, top_level):
        solution = chain.write_solution(problem, rng, config.word_skew)
        prompt_ids = tokenizer.encode(problem.prompt, add_special_tokens=False)
        row = prompt_ids + tokenizer.encode(solution, add_special_tokens=False) + [tokenizer.eos_token_id]
        longest = max(longest, len(row))
        if rows and longest * (len(rows) + 1) > config.batch_tokens:
            break
        rows.append(row)
        prompt_lengths.append(len(prompt_ids))
    shape = (len(rows), max(map(len, rows)))
    ids = torch.full(shape, tokenizer.pad_token_id)
    labels = torch.full(shape, _IGNORED)
    for index, (row, prompt_length) in enumerate(zip(rows, prompt_lengths, strict=True)):
        ids[index, : len(row)] = torch.tensor(row)
        labels[index, prompt_length : len(row)] = torch.tensor(row[prompt_length:])
    return ids, labels


def draw_training_problems(rng: random.Random, top_level: int) -> Iterator[chain.Problem]:
    """Endless problems that are not held out for evaluation."""
    levels = range(1, top_level + 1)
    while True:
        problem = chain.draw_problem(rng, rng.choices(levels, weights=levels)[0])
        if not chain.is_held_out(problem.prompt):
            yield problem
