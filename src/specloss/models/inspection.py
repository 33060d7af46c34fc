"""What is known about a model without loading its weights: where it is, its config and tokenizer, and its size."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import HfApi, constants, get_safetensors_metadata, snapshot_download
from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError
from transformers import GenerationConfig, LlamaConfig

from specloss.models.checkpoint import Checkpoint, ModelError
from specloss.models.loading import load_config, load_tokenizer
from specloss.models.sizes import safetensors_header

HUB_SECONDS = 5.0  # to wait for the hub
_BITS = {"F64": 64, "F32": 32, "F16": 16, "BF16": 16, "I64": 64, "I32": 32, "I16": 16, "I8": 8, "U8": 8, "BOOL": 8}


@dataclass(frozen=True)
class Inspected:
    """A model that was found. `weights` is its size in memory in bytes, in the requested dtype."""

    where: str
    config: Any
    generation_config: Any | None
    tokenizer: Any | None
    weights: int | None


def inspect_model(
    checkpoint: Checkpoint,
    dtype: str,
    tokenizer: bool = True,
    trust_remote_code: bool = False,
    context: int | None = None,
) -> Inspected:
    """Find a model and read its small files. ModelError, in one line, if it is missing or incomplete.

    For a hub model that is not cached yet, this downloads config and tokenizer, but not the weights.
    """
    where, here = _find(checkpoint)
    here.check(tokenizer)
    config = load_config(here, trust_remote_code, context) if tokenizer else _plain_config(here)
    return Inspected(
        where,
        config,
        _generation_config(here),
        load_tokenizer(here, trust_remote_code) if tokenizer else None,
        _weights(here, dtype, getattr(config, "quantization_config", None) is not None),
    )


def cache_bytes(config: Any, rows: int, time: int, dtype: torch.dtype) -> int:
    """Bytes of keys and values of a causal LM for `rows` rows of `time` tokens."""
    text = config.get_text_config()
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    return 2 * text.num_hidden_layers * heads * width * rows * time * dtype.itemsize


def dtype_of(config: Any, dtype: str) -> torch.dtype:
    """The type that a model of this config is loaded in."""
    found = getattr(config, "dtype", None) if dtype == "auto" else dtype
    return getattr(torch, str(found or "float32").removeprefix("torch."))


def _find(checkpoint: Checkpoint) -> tuple[str, Checkpoint]:
    """Where a model is, in words, and as a checkpoint that needs the network no more than it must."""
    if checkpoint.local:
        return "a GGUF file" if checkpoint.gguf else "a local folder", checkpoint
    wanted = [checkpoint.gguf] if checkpoint.gguf else ["*.json", "*.safetensors", "*.bin", "*.model"]
    try:
        folder = snapshot_download(
            checkpoint.place, revision=checkpoint.revision, allow_patterns=wanted, local_files_only=True
        )
        cached = replace(checkpoint, place=folder, local=True)
        cached.check(tokenizer=False)
        return "in the hub's cache", cached
    except (OSError, ValueError):  # not there, or without its weights
        pass
    at = f" at revision {checkpoint.revision}" if checkpoint.revision else ""
    if constants.HF_HUB_OFFLINE:
        raise ModelError(f"{checkpoint.name}{at}: not in the hub's cache, and HF_HUB_OFFLINE is set")
    try:
        info = HfApi().model_info(checkpoint.place, revision=checkpoint.revision, timeout=HUB_SECONDS)
    except GatedRepoError:
        raise ModelError(f"{checkpoint.name}: gated on the hub; ask for access there, then `hf auth login`") from None
    except RevisionNotFoundError:
        raise ModelError(f"{checkpoint.name}: the hub has no revision {checkpoint.revision!r} of it") from None
    except RepositoryNotFoundError:
        raise ModelError(f"{checkpoint.name}: the hub has no such model, or it is private") from None
    except (HfHubHTTPError, OSError) as error:
        raise ModelError(
            f"{checkpoint.name}{at}: not in the hub's cache, and the hub cannot be reached from here "
            f"({type(error).__name__})"
        ) from None
    return f"on the hub (commit {str(info.sha)[:8]}), to be downloaded when it is loaded", checkpoint


def _plain_config(checkpoint: Checkpoint) -> Any:
    """The config of an EAGLE-3 head, which is not a model of transformers."""
    if not checkpoint.local:
        folder = snapshot_download(checkpoint.place, revision=checkpoint.revision, allow_patterns=["config.json"])
        checkpoint = replace(checkpoint, place=folder, local=True)
    return LlamaConfig.from_dict(checkpoint.config)


def _generation_config(checkpoint: Checkpoint) -> GenerationConfig | None:
    if checkpoint.gguf:
        return None
    try:
        return GenerationConfig.from_pretrained(checkpoint.place, revision=checkpoint.revision)
    except OSError:  # a checkpoint need not have one
        return None


def _weights(checkpoint: Checkpoint, dtype: str, quantized: bool) -> int | None:
    """Bytes of the weights once loaded, from file headers; None where these do not say."""
    if checkpoint.gguf:
        if not checkpoint.local:
            return None
        size = 4 if dtype == "auto" else getattr(torch, dtype).itemsize
        return sum(int(tensor.n_elements) for tensor in checkpoint.header.tensors) * size
    bits = 0 if dtype == "auto" or quantized else 8 * getattr(torch, dtype).itemsize
    if not checkpoint.local:
        try:
            counts = get_safetensors_metadata(checkpoint.place, revision=checkpoint.revision).parameter_count
        except Exception:  # no safetensors, or an answer in another form
            return None
        return sum(count * (bits or _BITS.get(kind, 8)) for kind, count in counts.items()) // 8
    files = sorted(Path(checkpoint.place).glob("*.safetensors"))
    if not files:
        return sum(path.stat().st_size for path in Path(checkpoint.place).glob("*.bin"))
    return sum(_tensor_bytes(path, bits) for path in files)


def _tensor_bytes(path: Path, bits: int) -> int:
    """Bytes of a safetensors file's tensors, with `bits` for each number of those that are floats; 0: as they are."""
    total = 0
    for kind, size in safetensors_header(path).values():
        floats = kind in ("F64", "F32", "F16", "BF16")
        total += size * (bits or _BITS[kind]) // _BITS[kind] if floats else size
    return total
