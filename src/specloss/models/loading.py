"""Loading one model and one tokenizer with transformers, whatever a config names: folder, GGUF file or hub id."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import hf_hub_download
from tokenizers import pre_tokenizers
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig, AutoModelForCausalLM, AutoTokenizer, GgufConfig

from specloss.models.checkpoint import Checkpoint, ModelError, check_quantization
from specloss.models.positions import REACH, boundaries, stated_context, switching_fault

DEVICE_MAPS = ("balanced", "balanced_low_0", "sequential")
LARGEST_TABLES = 1 << 30  # numbers, such as masks and rotations, that a model makes for itself
# Of a generation config, what is no sampling setting: ids, caching, bookkeeping
_NO_SETTINGS = {
    *("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id", "use_cache", "cache_implementation"),
    *("transformers_version", "output_attentions", "output_hidden_states", "return_dict_in_generate", "max_length"),
}


def load_tokenizer(checkpoint: Checkpoint, trust_remote_code: bool = False) -> Any:
    """The tokenizer of a checkpoint. ModelError, in one line, if it cannot be loaded."""
    with one_line(checkpoint):
        checkpoint = _fetched(checkpoint)
        tokenizer = AutoTokenizer.from_pretrained(
            checkpoint.place, trust_remote_code=trust_remote_code, **checkpoint.arguments
        )
    if checkpoint.gguf:
        _split_as_named(tokenizer, checkpoint)
    return tokenizer


def load_config(checkpoint: Checkpoint, trust_remote_code: bool = False, context: int | None = None) -> Any:
    """The config of a model that the ragged cache can serve, with texts of at most `context` tokens.

    ModelError, in one line, for others.
    """
    with one_line(checkpoint):
        checkpoint = _fetched(checkpoint)
        config = AutoConfig.from_pretrained(
            checkpoint.place, trust_remote_code=trust_remote_code, **checkpoint.arguments
        )
        model = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
    if model is None and not trust_remote_code:
        raise ModelError(f"{checkpoint.name}: model type {config.model_type} is not a causal language model")
    check_config(checkpoint.name, model, config, context)
    check_quantization(checkpoint.name, getattr(config, "quantization_config", None))
    return config


def check_config(name: str, model: Any, config: Any, context: int | None = None) -> None:
    """ModelError, in one line, if the config of the class `model` says that its cache cannot be rolled back.

    Texts have at most `context` tokens: what a model does only with longer ones is no fault.
    """
    longest = context or math.inf
    if fault := switching_fault(config, longest):
        raise ModelError(f"{name}: {fault}")
    if unfit := _not_full_attention(model, config.get_text_config(), longest):
        raise ModelError(f"{name}: {unfit}; only full attention can be rolled back")


def _not_full_attention(model: Any, config: Any, longest: float) -> str | None:
    """What a model has instead of full attention to all earlier tokens, in words; None if it has full attention."""
    if getattr(model, "_is_stateful", False):
        return "it keeps a state"
    kinds = getattr(config, "layer_types", None)
    if kinds and set(kinds) != {"full_attention"}:
        return f"layers of kind {', '.join(sorted(set(kinds)))}"
    context = min(longest, stated_context(config))
    for length, key in boundaries(config, longest).items():
        if key == "sliding_window":  # our own masks would take the place of the window's
            return f"layers that see a window of {length:,} tokens, of {context:,}"
        if length > REACH:  # what is nearer is tried once the model is loaded
            return f"{key} {length:,}, from where its attention may be another, of {context:,}"
    return None


def load_model(
    checkpoint: Checkpoint,
    dtype: str,
    device: str,
    attention: str = "sdpa",
    trust_remote_code: bool = False,
    context: int | None = None,
) -> Any:
    """A causal LM in evaluation mode; `device` is a torch device or a device map of transformers.

    Its texts will have at most `context` tokens. `dtype` "auto" takes the checkpoint's own type; a GGUF file is
    dequantised, to float32. ModelError, in one line, if it cannot be loaded.
    """
    config = load_config(checkpoint, trust_remote_code, context)
    if device != "cpu" and not torch.cuda.is_available():
        raise ModelError(f"device {device!r}: torch sees no GPU here")
    with one_line(checkpoint):
        checkpoint = _fetched(checkpoint)
        if checkpoint.local and not trust_remote_code:
            _check_weights(checkpoint, config)
        model = AutoModelForCausalLM.from_pretrained(
            checkpoint.place,
            config=config,
            trust_remote_code=trust_remote_code,
            dtype=dtype,
            attn_implementation=attention,
            device_map=None if device == "cpu" else device if device in DEVICE_MAPS else {"": device},
            # whole weights, whatever kernels for packed ones happen to be installed
            quantization_config=GgufConfig(dequantize=True) if checkpoint.gguf else None,
            **checkpoint.arguments,
        )
    return model.eval()


def _check_weights(checkpoint: Checkpoint, config: Any) -> None:
    """ModelError for a config of a larger model than that of the files: transformers would make up what is missing."""
    with torch.device("meta"):
        empty = AutoModelForCausalLM.from_config(copy.deepcopy(config))
    most = 8 * checkpoint.weight_bytes  # weights of a bit each
    weights = sum(weight.numel() for weight in empty.parameters())
    tables = sum(table.numel() for table in empty.buffers())
    if weights > most or tables > most + LARGEST_TABLES:
        raise ModelError(
            f"{checkpoint.name}: its config is of a model of {weights:,} weights and {tables:,} numbers besides, "
            f"its files have {checkpoint.weight_bytes:,} bytes"
        )


def ignored_settings(model: Any) -> dict[str, Any]:
    """Sampling settings that a checkpoint's generation config brings along; they never apply.

    Our own loop warps the logits, using only the config's settings.
    """
    generation = getattr(model, "generation_config", None)
    found = generation.to_diff_dict() if generation else {}
    return {name: found[name] for name in sorted(found.keys() - _NO_SETTINGS) if not name.startswith("_")}


def eos_ids(model: Any, tokenizer: Any, asked: Sequence[int | str] | None = None) -> tuple[int, ...]:
    """End-of-sequence ids: those asked for, else of the generation config, the config, or the tokenizer, in that order.

    A generation config may name several (a turn's end, a text's end). ModelError for a text that is not one token.
    """
    if asked is not None:
        known = tokenizer.get_vocab()
        unknown = [token for token in asked if isinstance(token, str) and token not in known]
        if unknown:
            raise ModelError(f"eos: {unknown[0]!r} is not a token of the tokenizer")
        return tuple(token if isinstance(token, int) else known[token] for token in asked)
    for source in (model.generation_config, model.config.get_text_config(), tokenizer):
        ids = getattr(source, "eos_token_id", None)
        if ids is not None:
            return tuple(ids) if isinstance(ids, list | tuple) else (int(ids),)
    return ()


@contextmanager
def one_line(checkpoint: Checkpoint) -> Iterator[None]:
    """What transformers and the hub's client say of a checkpoint that cannot be loaded, as a ModelError."""
    at = f" at revision {checkpoint.revision}" if checkpoint.revision else ""
    try:
        yield
    except ModelError:
        raise
    except Exception as error:  # of every kind: a config alone can raise a dozen
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ModelError(f"cannot load {checkpoint.name}{at}: {reason}") from error


def _fetched(checkpoint: Checkpoint) -> Checkpoint:
    """A GGUF file of the hub as a local one; all else as it is. ModelError for files whose sizes cannot be.

    Of a folder on the hub that is the config; the weights come later, through a library that holds them against it.
    """
    if checkpoint.gguf and not checkpoint.local:
        path = Path(hf_hub_download(checkpoint.place, checkpoint.gguf, revision=checkpoint.revision))
        checkpoint = replace(checkpoint, place=str(path.parent), gguf=path.name, local=True)
    checkpoint.check_sizes()
    if not checkpoint.local:
        try:
            path = Path(hf_hub_download(checkpoint.place, "config.json", revision=checkpoint.revision))
        except (OSError, ValueError):
            return checkpoint  # transformers says what is wrong
        replace(checkpoint, place=str(path.parent), local=True).config  # noqa: B018  reading it is the check
    return checkpoint


def _split_as_named(tokenizer: Any, checkpoint: Checkpoint) -> None:
    """Make a GGUF file's tokenizer split digits as its file says: transformers takes GPT-2's way for every Llama."""
    field = checkpoint.header.fields.get("tokenizer.ggml.pre")
    if field is not None and field.contents() == "smollm":
        backend = tokenizer.backend_tokenizer
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), backend.pre_tokenizer]
        )
