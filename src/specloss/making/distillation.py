"""A draft from a model's own first layers, trained for minutes on texts that the model writes itself.

The draft keeps the embedding, the first layers, the last norm and the output head of its teacher, and learns the layers
and the norm: KL(teacher || draft) at each position of the texts. They answer instructions of our own
(`specloss.making.instructions`), so no item of a benchmark is among them.
"""

from __future__ import annotations

import math
import sys
import time
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specloss.benchmarks import Item
from specloss.common.provenance import package_versions
from specloss.making.fetching import save_model
from specloss.making.instructions import INSTRUCTIONS
from specloss.making.recipe import Distil
from specloss.models.checkpoint import ModelError, locate
from specloss.models.loading import load_model, load_tokenizer
from specloss.models.prompting import encode

_WRITTEN_AT_ONCE = 32


def distil_draft(settings: Distil, teacher: str, out: Path) -> None:
    """Write the draft of the model at `teacher` as a model folder. ModelError if it has fewer layers than that."""
    checkpoint = locate(teacher)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = load_tokenizer(checkpoint)
    model = load_model(checkpoint, "float32", device)
    torch.manual_seed(settings.seed)
    started = time.monotonic()
    texts = write_texts(model, tokenizer, settings.texts, settings.text_tokens)
    written = time.monotonic()
    draft = first_layers(model, settings.layers)
    losses = train(draft, model, texts, settings)
    made = {
        "recipe": settings.model_dump(),
        "tokens": sum(len(text) for text in texts),
        "loss": {"before": losses[0], "after": losses[-1]},  # nats per token, of the first and of the last step
        "seconds": {"texts": round(written - started, 1), "training": round(time.monotonic() - written, 1)},
        "packages": package_versions(),
    }
    save_model(draft, tokenizer, out, made)


def first_layers(model: Any, layers: int) -> Any:
    """A copy of a causal LM with only its first layers."""
    config = deepcopy(model.config)
    if not layers < config.num_hidden_layers:
        raise ModelError(f"layers: a draft of {layers} layers from a model of {config.num_hidden_layers}")
    config.num_hidden_layers = layers
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:layers]
    draft = type(model)(config).to(model.device, model.dtype)
    weights = model.state_dict()
    draft.load_state_dict({name: weights[name] for name in draft.state_dict()})
    draft.generation_config = deepcopy(model.generation_config)
    return draft


@torch.inference_mode()
def write_texts(model: Any, tokenizer: Any, count: int, length: int) -> list[Tensor]:
    """Instructions with the model's answers, `count` of them, ids [tokens] each, at most `length` tokens long."""
    chat = "template" if tokenizer.chat_template else "plain"
    asked = [({"role": "user", "content": instruction},) for instruction in INSTRUCTIONS]
    prompts = [encode(tokenizer, Item("an instruction of the distillation", None, None, m), chat)[1] for m in asked]
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    texts: list[Tensor] = []
    for start in range(0, count, _WRITTEN_AT_ONCE):
        rows = [prompts[i % len(prompts)][: length // 2] for i in range(start, min(start + _WRITTEN_AT_ONCE, count))]
        longest = max(map(len, rows))
        ids = torch.tensor([[pad] * (longest - len(row)) + row for row in rows], device=model.device)
        mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows], device=model.device)
        # the model's own distribution: no settings of a generation config
        output = model.generate(
            ids,
            attention_mask=mask,
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            max_new_tokens=length - longest,
            pad_token_id=pad,
        )
        for row, written in zip(rows, output.cpu(), strict=True):
            answer = written[longest:]
            ends = (answer == tokenizer.eos_token_id).nonzero()
            end = int(ends[0]) + 1 if len(ends) else len(answer)
            texts.append(torch.cat([torch.tensor(row), answer[:end]]))
        print(f"texts {len(texts)}/{count}", file=sys.stderr, flush=True)
    return texts


def train(draft: Any, teacher: Any, texts: list[Tensor], settings: Distil) -> list[float]:
    """Train the draft's layers and norm in place; the loss of each step, nats per token."""
    for parameter in (*draft.get_input_embeddings().parameters(), *draft.get_output_embeddings().parameters()):
        parameter.requires_grad_(False)
    learned = [parameter for parameter in draft.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(learned, lr=settings.learning_rate, betas=(0.9, 0.98), weight_decay=0.0)
    order = torch.Generator().manual_seed(settings.seed)
    losses: list[float] = []
    waiting: list[int] = []
    draft.train()
    for step in range(settings.steps):
        if len(waiting) < settings.batch:
            waiting += torch.randperm(len(texts), generator=order).tolist()
        rows, waiting = waiting[: settings.batch], waiting[settings.batch :]
        ids = torch.nn.utils.rnn.pad_sequence([texts[row] for row in rows], batch_first=True).to(draft.device)
        known = torch.nn.utils.rnn.pad_sequence([torch.ones(len(texts[row])) for row in rows], batch_first=True) > 0
        with torch.inference_mode():
            target = teacher(input_ids=ids).logits[known].log_softmax(-1)  # padding is on the right: causal, no mask
        loss = torch.nn.functional.kl_div(
            draft(input_ids=ids).logits[known].log_softmax(-1), target.clone(), log_target=True, reduction="batchmean"
        )
        for group in optimizer.param_groups:
            warm, left = (step + 1) / max(1, settings.steps // 10), step / settings.steps
            group["lr"] = settings.learning_rate * min(warm, 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * left)))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(learned, 1.0)
        optimizer.step()
        losses.append(round(loss.item(), 4))
        if (step + 1) % 10 == 0 or step + 1 == settings.steps:
            print(f"distillation step {step + 1}/{settings.steps} loss {loss.item():.3f}", file=sys.stderr, flush=True)
    draft.requires_grad_(True).eval()
    return losses
