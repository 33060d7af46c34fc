"""A target and a draft, loaded: the same way for the demo, local folders and hub models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from specloss.common.provenance import EXACT
from specloss.models.calling.probe import Passed, probe
from specloss.models.checkpoint import Checkpoint, ModelError, fingerprint, locate
from specloss.models.context import check_context, context_note, head_note, pair_context
from specloss.models.eagle3 import load_head
from specloss.models.loading import DEVICE_MAPS, eos_ids, ignored_settings, load_model, load_tokenizer
from specloss.models.tokenizers import check_models, tokenizer_difference
from specloss.models.vocabulary import vocabulary_fault


@dataclass(frozen=True, slots=True)
class LoadedPair:
    """A target and what drafts for it, in evaluation mode, with the tokenizer that they share.

    `target` is a causal LM; `draft` is one too, or in a pair of kind eagle3 an EAGLE-3 head
    (`models.eagle3.Eagle3Head`). `vocab` is the number of shared ids: padded vocabularies may differ, and tokens
    outside the shared prefix get no probability. `context` is the most tokens that a text may have: what both models
    can hold, or less if so asked. `eos_ids` end a sequence. `about` says what was loaded, for the metadata of cells;
    `notes` are remarks for the user, one line each; `names` is what the config calls the two.
    """

    target: Any
    draft: Any
    tokenizer: Any
    vocab: int
    context: int
    eos_ids: tuple[int, ...]
    kind: str = "draft"
    about: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    names: dict[str, str] = field(default_factory=dict)

    @property
    def device(self) -> torch.device:
        """The device that inputs are put on."""
        return self.target.device

    def provenance(self) -> dict[str, Any]:
        """Device name, dtype and what else is known about the models, as recorded with each cell."""
        device = self.device
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
        about = {"vocab": self.vocab, "context": self.context, "eos_ids": list(self.eos_ids), **self.about}
        return {"device": name, "dtype": str(self.target.dtype).removeprefix("torch."), "models": about}


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
    eos: Sequence[int | str] | None = None,
    context: int | None = None,
    trust_remote_code: bool = False,
) -> LoadedPair:
    """Load a pair from hub ids, local folders or GGUF files; the arguments are the keys of a pair in a config.

    With kind eagle3, `draft` is an EAGLE-3 head. With a device map over several GPUs, the draft or head is placed whole
    on the target's first GPU. Raises ModelError, in one line, for a model that is missing, incomplete or damaged, for
    different tokenizers, for tokens or ends of sequence outside the ids that both models share, for a head that does
    not fit its target, and for a model that the ragged cache cannot serve.
    """
    if kind not in ("draft", "eagle3"):
        raise ModelError(f"pair kind {kind!r} is not known; known: draft, eagle3")
    target, draft = str(target), str(draft)
    check_models(target, draft, target_revision, draft_revision, kind)
    sources = [locate(target, target_revision), locate(draft, draft_revision)]
    tokenizer = load_tokenizer(sources[0], trust_remote_code)
    if kind == "draft":
        _check_same(sources, tokenizer, load_tokenizer(sources[1], trust_remote_code))
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    first = load_model(sources[0], dtype, device, attention, trust_remote_code, context)
    if kind == "eagle3":
        second = load_head(draft, first, revision=draft_revision)
    else:
        near = str(first.device) if device in DEVICE_MAPS else device
        second = load_model(sources[1], dtype, near, attention, trust_remote_code, context)
    configs = [model.config.get_text_config() for model in (first, second)]
    check_context(kind, *configs, context)
    probe(sources[0], first, dtype, attention, second if kind == "eagle3" else None, context)
    if kind == "draft" and sources[1] != sources[0]:
        probe(sources[1], second, dtype, attention, context=context)
    sizes = [config.vocab_size for config in configs]
    ends = eos_ids(first, tokenizer, eos)
    if fault := vocabulary_fault(*sizes, tokenizer.get_vocab(), tokenizer.get_added_vocab(), ends):
        raise ModelError(f"target {target} and draft {draft}: {fault}")
    loaded = zip(("target", "draft"), sources, (first, second), strict=True)
    about = {role: describe_model(source, model) for role, source, model in loaded}
    notes = [note for role, source in zip(about, sources, strict=True) for note in _notes(source, about[role])]
    longest = pair_context(kind, *configs, context)
    notes += filter(None, map(context_note, (target, draft), configs, (longest, longest)))
    if kind == "eagle3" and (note := head_note(draft, *configs, context)):
        notes.append(note)
    if rough := sorted({about[role]["dtype"] for role in about} - set(EXACT)):
        notes.append(
            f"in {' and '.join(rough)} tokens can change with the batch size and with the prompts of a batch: forwards "
            "of other shapes round differently, and a near tie falls the other way; in float32 they do not"
        )
    return LoadedPair(
        target=first,
        draft=second,
        tokenizer=tokenizer,
        vocab=min(sizes),
        context=longest,
        eos_ids=ends,
        kind=kind,
        about=about | {"attention": attention},
        notes=tuple(notes),
        names={"target": target, "draft": draft},
    )


def probe_checkpoint(
    source: Checkpoint,
    dtype: str,
    device: str,
    attention: str,
    trust_remote_code: bool,
    context: int | None = None,
    head: Checkpoint | None = None,
) -> None:
    """Load and probe a model, with its `head` if it has one, as `load_pair` does.

    Does nothing if the model has passed before or needs a GPU that is not here. ModelError, in one line.
    """
    if device != "cpu" and not (gpu := torch.cuda.is_available()) and device != "auto":
        return
    if device == "auto":
        device = "cuda" if gpu else "cpu"
    kind = "cpu" if device == "cpu" else "cuda"
    if not Passed(source, dtype, attention, kind, tree=head is not None, context=context):
        model = load_model(source, dtype, device, attention, trust_remote_code, context)
        probe(source, model, dtype, attention, load_head(head.place, model) if head else None, context)


def _check_same(sources: Sequence[Checkpoint], *tokenizers: Any) -> None:
    backends = [getattr(tokenizer, "backend_tokenizer", None) for tokenizer in tokenizers]
    if all(backends):
        difference = tokenizer_difference(*backends)
    else:
        difference = None if tokenizers[0].get_vocab() == tokenizers[1].get_vocab() else "their vocabularies differ"
    if difference:
        names = [source.name for source in sources]
        raise ModelError(f"target {names[0]} and draft {names[1]} have different tokenizers: {difference}")


def describe_model(source: Checkpoint, model: Any) -> dict[str, Any]:
    """What was loaded: which weights, type, quantisation, devices, and settings of its own that do not apply."""
    config = getattr(model, "config", None)
    quantization = getattr(config, "quantization_config", None) or {}
    quantization = quantization if isinstance(quantization, dict) else quantization.to_dict()
    method = quantization.get("quant_method")
    about = {
        "weights": fingerprint(source.name),
        "commit": getattr(config, "_commit_hash", None),
        "dtype": str(next(model.parameters()).dtype).removeprefix("torch."),
        "quantization": method and str(getattr(method, "value", method)),
        "devices": sorted({str(parameter.device) for parameter in model.parameters()}),
        "ignored_generation_config": ignored_settings(model),
    }
    return {name: value for name, value in about.items() if value}


def _notes(source: Checkpoint, about: dict[str, Any]) -> Iterator[str]:
    """Remarks for the user about a loaded model, one line each."""
    if ignored := about.get("ignored_generation_config"):
        settings = ", ".join(f"{name} {value}" for name, value in ignored.items())
        yield f"{source.name}: its generation_config has {settings}; not applied, the config's decoding settings are"
    if not source.local and source.revision is None and "commit" in about:
        yield f"{source.name}: no revision is pinned; the newest was taken, {about['commit']}"
