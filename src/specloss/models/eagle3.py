"""The EAGLE-3 head (Li et al. 2025): one decoder layer that drafts from the target's hidden states; and its loading.

The head reads three hidden states of the target at position t, the feature, with the embedding of token t + 1, and
gives a distribution over token t + 2. Further on it reads its own output in place of the feature.

The target's hidden states come from its own `output_hidden_states`, which takes a list of layers: it is public, works
for every causal LM of transformers, and keeps only what is asked for, as hooks of our own would.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from huggingface_hub import snapshot_download
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import LlamaConfig
from transformers.activations import ACT2FN
from transformers.cache_utils import Cache
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from specloss.common.files import FileError
from specloss.models.checkpoint import ModelError
from specloss.models.sizes import check_config, check_folder

_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")


class Eagle3Head(nn.Module):
    """The head; its tensors have the names and shapes of published checkpoints.

    `config` is that of a Llama layer: published heads are such layers for Llama and Qwen targets alike, without biases
    whatever their config says. `target_width` is the width of the target's hidden states, `layers` the three decoder
    layers of the target whose inputs are read.
    """

    d2t: Tensor | None  # [draft vocabulary], int64: target id = i + d2t[i]; None: the vocabularies are equal
    t2d: Tensor | None  # [target vocabulary], bool: the target ids that can be drafted

    def __init__(self, config: LlamaConfig, draft_vocab: int, target_width: int, layers: Sequence[int]) -> None:
        super().__init__()
        width = config.hidden_size
        self.config = config
        self.layers = tuple(layers)
        self.embed_tokens = nn.Embedding(config.vocab_size, width)
        self.embed_tokens.weight.requires_grad_(False)
        self.fc = nn.Linear(len(self.layers) * target_width, width, bias=False)
        self.rotary = LlamaRotaryEmbedding(config)
        self.midlayer = _MidLayer(config)
        self.norm = nn.RMSNorm(width, config.rms_norm_eps)
        self.lm_head = nn.Linear(width, draft_vocab, bias=False)
        reduced = draft_vocab != config.vocab_size
        self.register_buffer("d2t", torch.zeros(draft_vocab, dtype=torch.int64) if reduced else None)
        self.register_buffer("t2d", torch.zeros(config.vocab_size, dtype=torch.bool) if reduced else None)

    @property
    def dtype(self) -> torch.dtype:
        """Of its weights; the target's may be another."""
        return self.fc.weight.dtype

    def features(self, hidden_states: Sequence[Tensor]) -> Tensor:
        """Features [rows, new, 3 target width] from a target's output; `hidden_states[i]` is what enters its layer i.

        The target is called with `output_hidden_states=list(head.layers)`.
        """
        device = hidden_states[self.layers[0]].device
        return torch.cat([hidden_states[layer].to(device) for layer in self.layers], -1)

    def project(self, features: Tensor) -> Tensor:
        """Features [..., 3 target width] as input of the head's layer [..., width]."""
        return self.fc(features.to(self.fc.weight.device, self.dtype))

    def forward(
        self, hidden: Tensor, ids: Tensor, position: Tensor, mask: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """The layer's output [rows, new, width], before `norm`: the hidden input of what is drafted next.

        `hidden` [rows, new, width] is projected features or earlier output, `ids` [rows, new] are the tokens one later
        in target ids, `position` [rows, new] is the position of `hidden` in the text. `mask` [rows, 1, new, visible] is
        True where a query sees a key; None is causal. `cache` takes this layer's keys and values as its layer 0.
        """
        rotation = self.rotary(hidden, position)
        embedding = self.embed_tokens(ids).to(hidden.dtype)  # the target's own, as a rule
        return self.midlayer(embedding, hidden, rotation, mask, cache)

    def log_probs(self, hidden: Tensor) -> Tensor:
        """Log-probabilities [..., draft vocabulary], without temperature, from outputs [..., width].

        In float32; float64 stays.
        """
        logits = self.lm_head(self.norm(hidden))
        return (logits if logits.dtype == torch.float64 else logits.float()).log_softmax(-1)

    def target_ids(self, drafted: Tensor) -> Tensor:
        """Target ids of ids of the draft vocabulary, any shape."""
        return drafted if self.d2t is None else drafted + self.d2t[drafted]


class _MidLayer(nn.Module):
    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        width, eps = config.hidden_size, config.rms_norm_eps
        self.input_layernorm = nn.RMSNorm(width, eps)
        self.hidden_norm = nn.RMSNorm(width, eps)
        self.self_attn = _Attention(config)
        self.post_attention_layernorm = nn.RMSNorm(width, eps)
        self.mlp = _FeedForward(config)

    def forward(
        self, embedding: Tensor, hidden: Tensor, rotation: tuple[Tensor, Tensor], mask: Tensor | None, cache: Any
    ) -> Tensor:
        both = torch.cat([self.input_layernorm(embedding), self.hidden_norm(hidden)], -1)  # [rows, new, 2 width]
        hidden = hidden + self.self_attn(both, rotation, mask, cache)
        return hidden + self.mlp(self.post_attention_layernorm(hidden))


class _Attention(nn.Module):
    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        width, self.dim = config.hidden_size, config.head_dim
        self.q_proj = nn.Linear(2 * width, config.num_attention_heads * self.dim, bias=False)
        self.k_proj = nn.Linear(2 * width, config.num_key_value_heads * self.dim, bias=False)
        self.v_proj = nn.Linear(2 * width, config.num_key_value_heads * self.dim, bias=False)
        self.o_proj = nn.Linear(config.num_attention_heads * self.dim, width, bias=False)

    def forward(self, both: Tensor, rotation: tuple[Tensor, Tensor], mask: Tensor | None, cache: Any) -> Tensor:
        q, k, v = (
            projection(both).unflatten(-1, (-1, self.dim)).transpose(1, 2)  # [rows, heads, new, dim]
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        cos, sin = (part.unsqueeze(1) for part in rotation)  # [rows, 1, new, dim]
        q, k = (x * cos + _half_turned(x) * sin for x in (q, k))
        if cache is not None:
            k, v = cache.update(k, v, 0)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=True)
        return self.o_proj(mixed.transpose(1, 2).flatten(2))


def _half_turned(x: Tensor) -> Tensor:
    """Channels (a, b), halves of the last axis, as (-b, a)."""
    a, b = x.chunk(2, -1)
    return torch.cat([-b, a], -1)


class _FeedForward(nn.Module):
    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        width, inner = config.hidden_size, config.intermediate_size
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)
        self.activation = ACT2FN[config.hidden_act]

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(self.activation(self.gate_proj(x)) * self.up_proj(x))


def feature_layers(depth: int, layers: Sequence[int] | None = None) -> tuple[int, ...]:
    """The three decoder layers, of `depth`, whose inputs are the feature: 2, depth // 2 and depth - 3 unless given.

    ModelError if the target is too shallow for these defaults, or has no such layers.
    """
    if layers is None:
        if depth < 6:
            raise ModelError(
                f"a target of {depth} layers has no layers 2, L/2 and L-3 in this order; name three layers"
            )
        return 2, depth // 2, depth - 3
    if len(layers) != 3 or not all(0 <= layer < depth for layer in layers):
        raise ModelError(f"feature layers {list(layers)}: three numbers from 0 to {depth - 1} are needed")
    return tuple(layers)


def load_head(
    head: str | Path, target: Any, *, revision: str | None = None, layers: Sequence[int] | None = None
) -> Eagle3Head:
    """Load a published EAGLE-3 checkpoint, by hub id or folder, for a loaded `target`, in its dtype and on its device.

    Embeddings are the target's, shared, unless the checkpoint has its own. `layers` as in `feature_layers`; those that
    the checkpoint's config names if not given.
    ModelError, in one line, names every tensor that is missing, unexpected or mis-shaped, or what else does not fit.
    """
    folder = _folder(str(head), revision)
    try:
        settings = check_config(folder / "config.json")
        config = LlamaConfig.from_dict(settings)
    except Exception as error:  # a config can be wrong in as many ways as its fields have checks
        raise ModelError(f"{head}: no usable config.json: {_one_line(error)}") from error
    theirs = target.config.get_text_config()
    target_width = settings.get("target_hidden_size") or config.hidden_size
    for what, ours, expected in (
        ("a vocabulary", config.vocab_size, theirs.vocab_size),
        ("hidden states", target_width, theirs.hidden_size),
    ):
        if ours != expected:
            raise ModelError(f"{head}: made for a target with {what} of {ours}, this one has {expected}")
    layers = feature_layers(theirs.num_hidden_layers, layers or _named_layers(settings))
    draft_vocab = settings.get("draft_vocab_size") or config.vocab_size
    with torch.device("meta"):  # what it should have, without the memory for it
        expected = Eagle3Head(config, draft_vocab, target_width, layers)

    tensors = _tensors(folder)
    if expected.d2t is None:  # some checkpoints carry the two all the same, unused
        tensors.pop("d2t", None), tensors.pop("t2d", None)
    if config.hidden_size == theirs.hidden_size:
        tensors.setdefault("embed_tokens.weight", target.get_input_embeddings().weight.detach())
    problems = _misfits(tensors, expected.state_dict())
    if not problems and expected.d2t is not None:
        problems = _inconsistencies(tensors["d2t"], tensors["t2d"])
    if problems:
        raise ModelError(f"{head}: not an EAGLE-3 head for its config: {'; '.join(problems)}")
    module = Eagle3Head(config, draft_vocab, target_width, layers)
    tensors = {name: x.to(target.dtype) if x.is_floating_point() else x for name, x in tensors.items()}
    module.load_state_dict(tensors, assign=True)  # assigned, not cast as a module: rotary frequencies stay in float32
    return module.to(target.device).eval()


def _named_layers(settings: dict[str, Any]) -> list[int] | None:
    """The layers that a checkpoint's config names, as `feature_layers` takes them; None if it names none.

    vLLM's key stands at the top and means inputs; SGLang's and SpecForge's, in `eagle_config`, means outputs.
    """
    entering = settings.get("eagle_aux_hidden_state_layer_ids")
    leaving = (settings.get("eagle_config") or {}).get("eagle_aux_hidden_state_layer_ids")
    return entering or (leaving and [layer + 1 for layer in leaving])


def _folder(head: str, revision: str | None) -> Path:
    """The folder with a head's files, downloaded if it is a hub id; safetensors are preferred."""
    folder = Path(head)
    if not folder.is_dir():
        if head.startswith((".", "/", "~")) or head.count("/") != 1:
            raise ModelError(f"{head}: no such folder for a head (a hub id would be 'owner/name')")
        for weights in _WEIGHTS:
            try:
                folder = Path(snapshot_download(head, revision=revision, allow_patterns=["config.json", weights]))
            except (OSError, ValueError) as error:
                raise ModelError(f"cannot load {head}: {_one_line(error)}") from error
            if any(folder.glob(weights)):
                break
    if not (folder / "config.json").exists():
        raise ModelError(f"{head}: not a head, it has no config.json")
    return folder


def _tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors of a checkpoint by name. Pickles are read as weights only: no code in them can run."""
    try:
        check_folder(folder)
    except FileError as error:
        raise ModelError(str(error)) from None
    for weights in _WEIGHTS:
        tensors: dict[str, Tensor] = {}
        for file in sorted(folder.glob(weights)):
            try:
                if file.suffix == ".safetensors":
                    tensors |= load_file(file)
                else:
                    tensors |= torch.load(file, map_location="cpu", weights_only=True)
            except (SafetensorError, pickle.UnpicklingError, RuntimeError, OSError, EOFError) as error:
                raise ModelError(f"{file}: cannot be read: {_one_line(error)}") from error
        if tensors:
            return tensors
    raise ModelError(f"{folder}: no weights, neither safetensors nor pytorch_model.bin")


def _misfits(tensors: dict[str, Tensor], expected: dict[str, Tensor]) -> list[str]:
    problems = [f"missing {name}" for name in sorted(expected.keys() - tensors.keys())]
    problems += [f"unexpected {name}" for name in sorted(tensors.keys() - expected.keys())]
    for name in sorted(expected.keys() & tensors.keys()):
        ours, theirs = tensors[name], expected[name]
        if ours.shape != theirs.shape:
            problems.append(f"{name} has shape {list(ours.shape)}, not {list(theirs.shape)}")
        elif ours.dtype != theirs.dtype and not (ours.is_floating_point() and theirs.is_floating_point()):
            problems.append(f"{name} is {ours.dtype}, not {theirs.dtype}")
    return problems


def _inconsistencies(d2t: Tensor, t2d: Tensor) -> list[str]:
    """What is wrong between the offsets [draft vocabulary] and the mask [target vocabulary]."""
    ids = torch.arange(len(d2t)) + d2t
    problems = []
    if int(ids.min()) < 0 or int(ids.max()) >= len(t2d):
        problems.append(f"d2t leads to ids from {int(ids.min())} to {int(ids.max())}, outside of {len(t2d)}")
    elif len(ids.unique()) < len(ids):
        problems.append("d2t gives one target id to two draft ids")
    elif not torch.equal(ids.sort().values, t2d.nonzero().squeeze(1)):
        problems.append(f"d2t and t2d disagree on which {len(ids)} target ids can be drafted")
    return problems


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
