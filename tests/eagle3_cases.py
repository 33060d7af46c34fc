"""Tiny targets and heads with random weights, and the head's mathematics written out once more."""

import json
import math

import torch
from safetensors.torch import save_file
from torch.nn.functional import silu
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

VOCAB, DRAFT_VOCAB, WIDTH, INNER, HEADS, KV_HEADS = 40, 24, 32, 48, 4, 2
torch.set_num_threads(1)  # tests share two cores
CONFIGS = {"llama": LlamaConfig, "qwen2": Qwen2Config, "qwen3": Qwen3Config}


def tiny_target(family="llama", layers=8, vocab=VOCAB, width=WIDTH, dtype=torch.float32):
    torch.manual_seed(7)
    config = CONFIGS[family](
        vocab_size=vocab,
        hidden_size=width,
        intermediate_size=INNER,
        num_hidden_layers=layers,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=width // HEADS,
        initializer_range=0.2,
    )
    return AutoModelForCausalLM.from_config(config, dtype=dtype).eval()


def checkpoint(
    seed=0, width=WIDTH, target_width=WIDTH, draft_vocab=DRAFT_VOCAB, embeddings=False, head_dim=8, vocab=VOCAB
):
    """A config and tensors in the published layout; a reduced draft vocabulary is a random subset of the target's."""
    generator = torch.Generator().manual_seed(seed)

    def random(*shape, scale=0.3):
        return torch.randn(*shape, generator=generator) * scale

    tensors = {
        "fc.weight": random(width, 3 * target_width),
        "midlayer.input_layernorm.weight": 1 + random(width),
        "midlayer.hidden_norm.weight": 1 + random(width),
        "midlayer.post_attention_layernorm.weight": 1 + random(width),
        "midlayer.self_attn.q_proj.weight": random(HEADS * head_dim, 2 * width),
        "midlayer.self_attn.k_proj.weight": random(KV_HEADS * head_dim, 2 * width),
        "midlayer.self_attn.v_proj.weight": random(KV_HEADS * head_dim, 2 * width),
        "midlayer.self_attn.o_proj.weight": random(width, HEADS * head_dim),
        "midlayer.mlp.gate_proj.weight": random(INNER, width),
        "midlayer.mlp.up_proj.weight": random(INNER, width),
        "midlayer.mlp.down_proj.weight": random(width, INNER),
        "norm.weight": 1 + random(width),
        "lm_head.weight": random(draft_vocab, width),
    }
    if embeddings:
        tensors["embed_tokens.weight"] = random(vocab, width, scale=1)
    if draft_vocab < vocab:
        chosen = torch.randperm(vocab, generator=generator)[:draft_vocab].sort().values
        tensors["d2t"] = chosen - torch.arange(draft_vocab)
        tensors["t2d"] = torch.zeros(vocab, dtype=torch.bool).index_fill(0, chosen, True)
    config = {
        "model_type": "llama",
        "vocab_size": vocab,
        "draft_vocab_size": draft_vocab,
        "hidden_size": width,
        "intermediate_size": INNER,
        "num_hidden_layers": 1,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 5000.0,
    }
    if target_width != width:
        config["target_hidden_size"] = target_width
    return config, tensors


def save(folder, config, tensors, kind="safetensors"):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if kind == "safetensors":
        save_file(tensors, folder / "model.safetensors")
    else:
        torch.save(tensors, folder / "pytorch_model.bin")
    return folder


class ExactRotary(torch.nn.Module):
    """Rotations of a head in float64, in the place of transformers', whose cosines are float32 in any model."""

    def __init__(self, config):
        super().__init__()
        dim = config["head_dim"]
        self.turn = config["rope_theta"] ** (-torch.arange(0, dim, 2).double() / dim)

    def forward(self, hidden, position):
        angle = (position.double().unsqueeze(-1) * self.turn).repeat(1, 1, 2)
        return angle.cos(), angle.sin()


def rederived(config, tensors, hidden, ids):
    """The layer's outputs [n, width] for one text from its hidden inputs [n, width] and ids: no cache, no batch.

    In float64, head by head and query by query, with rotations as complex numbers.
    """
    weight = {name: x.double() for name, x in tensors.items()}
    dim = config["head_dim"]
    turn = config["rope_theta"] ** (-torch.arange(0, dim, 2).double() / dim)

    def norm(x, name):
        return x / (x.square().mean(-1, keepdim=True) + config["rms_norm_eps"]).sqrt() * weight[f"{name}.weight"]

    def rotated(x, position):  # [dim]
        z = torch.complex(x[: dim // 2], x[dim // 2 :]) * torch.polar(torch.ones(dim // 2).double(), position * turn)
        return torch.cat([z.real, z.imag])

    def heads(x, name):
        return (weight[f"midlayer.self_attn.{name}.weight"] @ x).split(dim)

    hidden = hidden.double()
    embedded = norm(weight["embed_tokens.weight"][ids], "midlayer.input_layernorm")
    both = torch.cat([embedded, norm(hidden, "midlayer.hidden_norm")], -1)
    keys = [[rotated(k, i) for k in heads(x, "k_proj")] for i, x in enumerate(both)]
    values = [heads(x, "v_proj") for x in both]
    outputs = []
    for i, x in enumerate(both):
        mixed = []
        for head, q in enumerate(heads(x, "q_proj")):
            group = head * config["num_key_value_heads"] // config["num_attention_heads"]
            scores = torch.stack([rotated(q, i) @ keys[j][group] / math.sqrt(dim) for j in range(i + 1)])
            mixed.append(sum(share * values[j][group] for j, share in enumerate(scores.softmax(0))))
        y = hidden[i] + weight["midlayer.self_attn.o_proj.weight"] @ torch.cat(mixed)
        z = norm(y, "midlayer.post_attention_layernorm")
        gate, up, down = (weight[f"midlayer.mlp.{name}_proj.weight"] for name in ("gate", "up", "down"))
        outputs.append(y + down @ (silu(gate @ z) * (up @ z)))
    return torch.stack(outputs)


def rederived_path_score(config, tensors, features, ids, path):
    """Cumulative log-probability of drafting `path`, target ids, after `features` [n, 3 target width] and `ids` [n]."""
    weight = {name: x.double() for name, x in tensors.items()}
    hidden, ids, score = features.double() @ weight["fc.weight"].T, list(ids), 0.0
    drafted = (torch.arange(len(weight["lm_head.weight"])) + tensors.get("d2t", 0)).tolist()
    for token in path:
        last = rederived(config, tensors, hidden, ids)[-1]
        scale = (last.square().mean() + config["rms_norm_eps"]).sqrt()
        logits = weight["lm_head.weight"] @ (last / scale * weight["norm.weight"])
        score += float(logits.log_softmax(0)[drafted.index(token)])
        hidden, ids = torch.cat([hidden, last[None]]), [*ids, token]
    return score
