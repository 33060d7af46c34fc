"""A target and a draft, loaded: the one way that the demo, local folders and hub models all take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from specloss.models.eagle3 import load_head
from specloss.models.tokenizers import ModelError, check_head, check_model, check_models, tokenizer_difference


@dataclass(frozen=True, slots=True)
class LoadedPair:
    """Two models in evaluation mode and the tokenizer of both: the target, a causal LM, and what drafts for it.

    `draft` is a causal LM, or of kind eagle3 an EAGLE-3 head (`specloss.models.eagle3.Eagle3Head`). `vocab` is the number of shared ids: padded vocabularies may differ, and mass outside the shared prefix must not
    exist. `context` is the number of tokens that both models can hold. `eos_ids` are the target's.
    """

    target: Any
    draft: Any
    tokenizer: Any
    vocab: int
    context: int
    eos_ids: tuple[int, ...]
    kind: str = "draft"

    @property
    def device(self) -> torch.device:
        """Where inputs go."""
        return self.target.device

    def provenance(self) -> dict[str, str]:
        """Device name and dtype, as recorded with each cell."""
        device = self.device
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
        return {"device": name, "dtype": str(self.target.dtype).removeprefix("torch.")}


def load_pair(
    target: str,
    draft: str,
    *,
    kind: str = "draft",
    target_revision: str | None = None,
    draft_revision: str | None = None,
    dtype: str = "auto",
    device: str = "auto",
    attention: str = "sdpa",
    trust_remote_code: bool = False,
) -> LoadedPair:
    """Load a pair by hub ids or local folders; the arguments are the keys of a config's pair.

    Kind eagle3: `draft` is an EAGLE-3 head. ModelError, in one line, for a folder that is missing or incomplete,
    different tokenizers, a head that does not fit its target, or a model that the ragged cache cannot serve.
    """
    if kind not in ("draft", "eagle3"):
        raise ModelError(f"pair kind {kind!r} is not known; known: draft, eagle3")
    target, draft = str(target), str(draft)
    if kind == "eagle3":
        check_model(target)
        check_head(draft)
        return _with_head(target, draft, target_revision, draft_revision, dtype, device, attention, trust_remote_code)
    check_models(target, draft)
    sources = ((target, target_revision), (draft, draft_revision))
    try:
        tokenizers = [
            AutoTokenizer.from_pretrained(model, revision=revision, trust_remote_code=trust_remote_code)
            for model, revision in sources
        ]
        models = [_load(model, revision, dtype, device, attention, trust_remote_code) for model, revision in sources]
    except OSError as error:
        raise ModelError(f"cannot load {target} with {draft}: {' '.join(str(error).split())}") from error
    backends = [getattr(tokenizer, "backend_tokenizer", None) for tokenizer in tokenizers]
    if all(backends):
        difference = tokenizer_difference(*backends)
    else:
        difference = None if tokenizers[0].get_vocab() == tokenizers[1].get_vocab() else "their vocabularies differ"
    if difference:
        raise ModelError(f"target {target} and draft {draft} have different tokenizers: {difference}")
    configs = [model.config.get_text_config() for model in models]
    return LoadedPair(
        target=models[0],
        draft=models[1],
        tokenizer=tokenizers[0],
        vocab=min(config.vocab_size for config in configs),
        context=min(config.max_position_embeddings for config in configs),
        eos_ids=_eos_ids(models[0], tokenizers[0]),
    )


def _with_head(
    target: str,
    head: str,
    target_revision: str | None,
    head_revision: str | None,
    dtype: str,
    device: str,
    attention: str,
    trust: bool,
) -> LoadedPair:
    try:
        tokenizer = AutoTokenizer.from_pretrained(target, revision=target_revision, trust_remote_code=trust)
        model = _load(target, target_revision, dtype, device, attention, trust)
    except OSError as error:
        raise ModelError(f"cannot load {target}: {' '.join(str(error).split())}") from error
    config = model.config.get_text_config()
    return LoadedPair(
        target=model,
        draft=load_head(head, model, revision=head_revision),
        tokenizer=tokenizer,
        vocab=config.vocab_size,
        context=config.max_position_embeddings,
        eos_ids=_eos_ids(model, tokenizer),
        kind="eagle3",
    )


def _load(model: str, revision: str | None, dtype: str, device: str, attention: str, trust: bool) -> Any:
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    config = AutoConfig.from_pretrained(model, revision=revision, trust_remote_code=trust)
    kinds = set(getattr(config.get_text_config(), "layer_types", None) or ["full_attention"])
    if kinds != {"full_attention"}:
        raise ModelError(f"{model}: layers of kind {', '.join(sorted(kinds))}; only full attention can be rolled back")
    # torch_dtype "auto" takes the checkpoint's own type
    loaded = AutoModelForCausalLM.from_pretrained(
        model,
        revision=revision,
        trust_remote_code=trust,
        dtype=dtype,
        attn_implementation=attention,
        device_map=device if device not in ("cpu", "cuda") else None,
    )
    # Sampling settings that a checkpoint brings along never apply: our own loop warps the logits.
    return (loaded.to(device) if device in ("cpu", "cuda") else loaded).eval()


def _eos_ids(model: Any, tokenizer: Any) -> tuple[int, ...]:
    """The target's end-of-sequence ids: its generation config may name several (a turn's end, a text's end)."""
    for source in (model.generation_config, model.config, tokenizer):
        ids = getattr(source, "eos_token_id", None)
        if ids is not None:
            return tuple(ids) if isinstance(ids, list | tuple) else (int(ids),)
    return ()


def versions() -> dict[str, str]:
    """Versions of what decodes, for provenance."""
    return {"torch": torch.__version__, "transformers": transformers.__version__}
