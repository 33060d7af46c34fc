"""Training of an EAGLE-3 head for the demo target, with training-time test (Li et al. 2025, section 3.1).

`train_head(config, out_dir)` writes the head as heads are published, `config.json` and `model.safetensors`, and a
`training.json` that says how it was made. The head learns the target's distribution on texts that the target wrote.
On one machine the result is fixed by the config.

Training-time test: the head is run several times in a row, as in drafting. The first time it reads the target's true
features; then its own outputs, each one token further on. In run `i` the output that began at position t attends to
the true positions up to t and to its own line, that is to what the earlier runs made of t.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import torch
import transformers
from pydantic import Field
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache, LlamaConfig

from specloss.benchmarks import chain
from specloss.common.files import replacing, write_text
from specloss.common.section import Section, validated
from specloss.making.demo_pair import draw_training_problems, schedule
from specloss.models.eagle3 import Eagle3Head, feature_layers

_WRITTEN_TOGETHER = 256  # texts


class HeadTraining(Section):
    """Training of a head; `config/train_demo_eagle3.yaml` documents each key."""

    seed: Annotated[int, Field(ge=0)] = Field(description="of the initial weights, the problems and the texts")
    threads: Annotated[int, Field(ge=1)] = Field(description="CPU threads")
    target: str = Field(description="folder of the target")
    layers: list[int] | None = Field(None, description="the target's layers whose inputs are read; none: 2, L/2, L-3")
    feedforward: Annotated[int, Field(ge=8)] = Field(description="width of the feed-forward layer")
    draft_vocab: Annotated[int, Field(ge=1)] = Field(description="the most frequent ids of the texts that are drafted")
    texts: Annotated[int, Field(ge=1)] = Field(description="texts that the target writes")
    temperature: Annotated[float, Field(gt=0)] = Field(description="of the target's writing")
    max_new_tokens: Annotated[int, Field(ge=1)] = Field(description="longest text; longer ones end there")
    steps: Annotated[int, Field(ge=1)] = Field(description="optimiser steps")
    batch_tokens: Annotated[int, Field(ge=128)] = Field(description="tokens in a batch, prompts included, at most")
    learning_rate: Annotated[float, Field(gt=0)] = Field(description="peak learning rate")
    runs: Annotated[int, Field(ge=1)] = Field(description="runs of the head in a row; drafting has one per tree level")
    run_weight: Annotated[float, Field(gt=0, le=1)] = Field(description="run i counts run_weight ** i in the loss")


@dataclass(frozen=True, slots=True)
class Text:
    """A prompt and the target's answer, as ids; `start` is where the answer starts."""

    ids: list[int]
    start: int


@dataclass(frozen=True, slots=True)
class TrainingBatch:
    """Texts with what the target makes of them, padded on the right."""

    ids: Tensor  # [rows, time]
    answer: Tensor  # [rows, time], True where a token of an answer stands
    features: Tensor  # [rows, time, 3 target width]
    p: Tensor  # [rows, time, draft vocabulary], the target's distribution of the next token over ids that are drafted


def train_head(values: dict[str, Any], out_dir: Path, source: str = "config") -> None:
    """Train a head and write `config.json`, `model.safetensors` and `training.json` into `out_dir`.

    Args:
        values: the content of `config/train_demo_eagle3.yaml`.
        out_dir: created when it does not exist; files of the same names in it are replaced.
        source: names the config in errors.

    Raises:
        ConfigError: in one line, for a key that is unknown, missing or out of range.
        ModelError: for feature layers that the target does not have.
    """
    config = validated(HeadTraining, values, source)
    started = time.monotonic()
    torch.set_num_threads(config.threads)
    torch.manual_seed(config.seed)
    tokenizer = AutoTokenizer.from_pretrained(config.target, padding_side="left")
    target = AutoModelForCausalLM.from_pretrained(config.target, dtype=torch.float32).eval().requires_grad_(False)
    layers = feature_layers(target.config.num_hidden_layers, config.layers)
    texts = write_texts(config, target, tokenizer)
    written = time.monotonic() - started
    head = build_head(config, target, layers, texts)
    log = fit(head, target, texts, config)
    save_head(head, out_dir)
    record = {
        "seed": config.seed,
        "config": config.model_dump(),
        "versions": {
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "python": sys.version.split()[0],
        },
        "texts": {"count": len(texts), "tokens": sum(len(text.ids) - text.start for text in texts)},
        "parameters": sum(p.numel() for p in head.parameters() if p.requires_grad),
        **log,
        "seconds": {"writing": round(written, 1), "all": round(time.monotonic() - started, 1)},
    }
    write_text(out_dir / "training.json", json.dumps(record, indent=2) + "\n")


def write_texts(config: HeadTraining, target: Any, tokenizer: Any) -> list[Text]:
    """Answers that the target samples for training problems of all levels, longer ones more often."""
    rng = random.Random(f"eagle3-{config.seed}")
    problems = draw_training_problems(rng, chain.LEVELS[-1])
    texts: list[Text] = []
    while len(texts) < config.texts:
        some = [problem.prompt for problem in islice(problems, min(_WRITTEN_TOGETHER, config.texts - len(texts)))]
        prompts = tokenizer(some, return_tensors="pt", padding=True)
        written = target.generate(
            input_ids=prompts["input_ids"],
            attention_mask=prompts["attention_mask"],
            do_sample=True,
            temperature=config.temperature,
            top_k=0,
            max_new_tokens=config.max_new_tokens,
        )
        width = prompts["input_ids"].shape[1]
        for row, seen in zip(written.tolist(), prompts["attention_mask"].sum(1).tolist(), strict=True):
            answer = row[width:]
            if tokenizer.eos_token_id in answer:
                answer = answer[: answer.index(tokenizer.eos_token_id) + 1]
            texts.append(Text(row[width - seen : width] + answer, seen))
        print(f"written {len(texts)}/{config.texts} texts", file=sys.stderr)
    return texts


def build_head(config: HeadTraining, target: Any, layers: Sequence[int], texts: Sequence[Text]) -> Eagle3Head:
    """An untrained head of the target's width; it starts with the target's embeddings, final norm and output rows.

    The ids that it drafts are the most frequent of the answers, of equals the smallest.
    """
    theirs = target.config
    shape = LlamaConfig(
        vocab_size=theirs.vocab_size,
        hidden_size=theirs.hidden_size,
        intermediate_size=config.feedforward,
        num_hidden_layers=1,
        num_attention_heads=theirs.num_attention_heads,
        num_key_value_heads=theirs.num_key_value_heads,
        head_dim=theirs.head_dim,
        hidden_act=theirs.hidden_act,
        rms_norm_eps=theirs.rms_norm_eps,
        rope_parameters=theirs.rope_parameters,
        max_position_embeddings=theirs.max_position_embeddings,
    )
    counts = Counter({token: 0 for token in range(theirs.vocab_size)})
    counts.update(token for text in texts for token in text.ids[text.start :])
    drafted = torch.tensor(sorted(sorted(counts, key=lambda token: (-counts[token], token))[: config.draft_vocab]))
    head = Eagle3Head(shape, len(drafted), theirs.hidden_size, layers)
    with torch.no_grad():
        head.embed_tokens.weight.copy_(target.get_input_embeddings().weight)
        head.lm_head.weight.copy_(target.get_output_embeddings().weight[drafted])
        head.norm.weight.copy_(target.model.norm.weight)
        if head.d2t is not None:
            head.d2t.copy_(drafted - torch.arange(len(drafted)))
            head.t2d[drafted] = True
    return head


def fit(head: Eagle3Head, target: Any, texts: Sequence[Text], config: HeadTraining) -> dict[str, list[float]]:
    """Train `head` in place. The loss and the share of agreeing top tokens of each run, means of the last 100 steps."""
    drafted = head.target_ids(torch.arange(head.lm_head.out_features))
    weights = [parameter for parameter in head.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=config.learning_rate, betas=(0.9, 0.95), weight_decay=0.01)
    factors = torch.tensor([config.run_weight**i for i in range(config.runs)])
    recent: deque[tuple[Tensor, Tensor]] = deque(maxlen=100)
    started = time.monotonic()
    for step, some in enumerate(islice(draw_batches(texts, config), config.steps), start=1):
        for group in optimizer.param_groups:
            group["lr"] = config.learning_rate * schedule(step - 1, config.steps)
        losses, agreement = run_losses(head, look_up(head, target, some, drafted), config.runs)
        optimizer.zero_grad()
        (factors * losses).sum().backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        recent.append((losses.detach(), agreement))
        if step % 100 == 0 or step == config.steps:
            log = {
                name: [round(value, 5) for value in torch.stack(parts).mean(0).tolist()]
                for name, parts in zip(("loss", "agreement"), zip(*recent, strict=True), strict=True)
            }
            seconds = time.monotonic() - started
            print(f"head step {step}/{config.steps} {json.dumps(log)} {seconds:.0f} s", file=sys.stderr)
    head.eval()
    return log


def draw_batches(texts: Sequence[Text], config: HeadTraining) -> Iterator[list[Text]]:
    """Endless batches of at most `batch_tokens` tokens, padding included; every text once in each round."""
    rng = random.Random(f"eagle3-batches-{config.seed}")
    batch: list[Text] = []
    longest = 0
    while True:
        for text in rng.sample(texts, len(texts)):
            longest = max(longest, len(text.ids))
            if batch and longest * (len(batch) + 1) > config.batch_tokens:
                yield batch
                batch, longest = [], len(text.ids)
            batch.append(text)


@torch.no_grad()
def look_up(head: Eagle3Head, target: Any, texts: Sequence[Text], drafted: Tensor) -> TrainingBatch:
    """The target's features and distributions, over the target ids `drafted` [draft vocabulary], on some texts."""
    shape = (len(texts), max(len(text.ids) for text in texts))
    ids = torch.zeros(shape, dtype=torch.int64)  # padding follows: nothing sees it
    answer = torch.zeros(shape, dtype=torch.bool)
    for row, text in enumerate(texts):
        ids[row, : len(text.ids)] = torch.tensor(text.ids)
        answer[row, text.start : len(text.ids)] = True
    output = target(ids, output_hidden_states=list(head.layers), use_cache=False)
    return TrainingBatch(ids, answer, head.features(output.hidden_states), output.logits[..., drafted].softmax(-1))


def run_losses(head: Eagle3Head, batch: TrainingBatch, runs: int) -> tuple[Tensor, Tensor]:
    """Cross entropy with the target (nats per token), and share of agreeing top tokens, of each run: both [runs].

    What begins at position t reads, in run i, the token at t + i + 1 and predicts the one at t + i + 2; tokens of the
    answers count.
    """
    time = batch.ids.shape[1]
    position = torch.arange(time).expand_as(batch.ids)
    causal, own = torch.ones(time, time, dtype=torch.bool).tril(), torch.eye(time, dtype=torch.bool)
    hidden, cache = head.project(batch.features), DynamicCache()
    losses, agreement = [], []
    for run in range(runs):
        mask = torch.cat([causal, *[own] * run], 1)  # [time, keys]: the runs' keys one after another
        hidden = head(hidden, _ahead(batch.ids, run + 1), position + run, mask, cache)
        log_q = head.log_probs(hidden)
        p, counted = _ahead(batch.p, run + 1), _ahead(batch.answer, run + 2)
        losses.append(-(p * log_q).sum(-1)[counted].mean())
        agreement.append((p.argmax(-1) == log_q.argmax(-1))[counted].float().mean())
    return torch.stack(losses), torch.stack(agreement)


def _ahead(x: Tensor, steps: int) -> Tensor:
    """`x` [rows, time, ...] read `steps` positions later; zeros (False) after its end."""
    return torch.cat([x[:, steps:], torch.zeros_like(x[:, :steps])], 1)


def save_head(head: Eagle3Head, folder: Path) -> None:
    """Write a head as heads are published; the embeddings stay the target's."""
    config = head.config
    settings = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "vocab_size": config.vocab_size,
        "draft_vocab_size": head.lm_head.out_features,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": 1,
        "num_attention_heads": config.num_attention_heads,
        "num_key_value_heads": config.num_key_value_heads,
        "head_dim": config.head_dim,
        "hidden_act": config.hidden_act,
        "rms_norm_eps": config.rms_norm_eps,
        "rope_theta": config.rope_parameters["rope_theta"],
        "max_position_embeddings": config.max_position_embeddings,
        "tie_word_embeddings": False,
        "eagle_aux_hidden_state_layer_ids": list(head.layers),
    }
    write_text(folder / "config.json", json.dumps(settings, indent=2) + "\n")
    tensors = {name: x.contiguous() for name, x in head.state_dict().items() if name != "embed_tokens.weight"}
    with replacing(folder / "model.safetensors") as part:
        save_file(tensors, part)
