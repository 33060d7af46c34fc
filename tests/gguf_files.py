"""Tiny GGUF files as a test's own models: a random Llama with a byte-level tokenizer and a chat template."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gguf import GGUFWriter, TokenType
from transformers.convert_slow_tokenizer import bytes_to_unicode

END = "<|im_end|>"
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
HEADS, WIDTH = 4, 32


def write_gguf(path: Path, seed: int = 0, layers: int = 3, architecture: str = "llama") -> dict[str, np.ndarray]:
    """Write a model of some 30,000 random weights; its tensors by the names of the file, before any permutation."""
    random = np.random.default_rng(seed)
    alphabet = list(bytes_to_unicode().values())
    tokens = ["<|endoftext|>", "<|im_start|>", END, *alphabet, "Ġt", "he", "Ġthe"]
    merges = ["Ġ t", "h e", "Ġt he"]
    shapes = {"token_embd.weight": (len(tokens), WIDTH), "output_norm.weight": (WIDTH,)}
    for layer in range(layers):
        shapes |= {f"blk.{layer}.{name}.weight": (WIDTH,) for name in ("attn_norm", "ffn_norm")}
        shapes |= {f"blk.{layer}.attn_{name}.weight": (WIDTH, WIDTH) for name in ("q", "k", "v", "output")}
        shapes |= {f"blk.{layer}.ffn_{name}.weight": (2 * WIDTH, WIDTH) for name in ("gate", "up")}
        shapes[f"blk.{layer}.ffn_down.weight"] = (WIDTH, 2 * WIDTH)
    tensors = {name: random.normal(size=shape).astype(np.float32) / 4 for name, shape in shapes.items()}

    writer = GGUFWriter(path, architecture)
    writer.add_name("tiny")
    writer.add_block_count(layers)
    writer.add_context_length(512)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(2 * WIDTH)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([TokenType.CONTROL] * 3 + [TokenType.NORMAL] * (len(tokens) - 3))
    writer.add_token_merges(merges)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
    for name, tensor in tensors.items():
        permuted = name.endswith(("attn_q.weight", "attn_k.weight"))  # as llama.cpp wants rotary halves interleaved
        writer.add_tensor(name, _interleaved(tensor) if permuted else tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tensors


def _interleaved(weight: np.ndarray) -> np.ndarray:
    return weight.reshape(HEADS, 2, WIDTH // HEADS // 2, WIDTH).swapaxes(1, 2).reshape(weight.shape)
