"""`python -m specloss.decoding.families`: every causal family of transformers, built small, decoded or refused.

For each type of `MODEL_FOR_CAUSAL_LM_MAPPING` a target and a draft with random weights are made from its config class,
shrunk by the names of its attributes, and probed as `load_pair` does. What passes is decoded and compared, greedy
tokens and logged probabilities, with the models' own forwards of the whole text, and with transformers' `generate`.
Float32, on the CPU.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, LlamaConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from specloss.decoding.api import Decoded, decode
from specloss.models.calling.probe import probe
from specloss.models.checkpoint import Checkpoint, ModelError
from specloss.models.context import pair_context
from specloss.models.eagle3 import Eagle3Head
from specloss.models.loading import check_config
from specloss.models.pair import LoadedPair

VOCAB = 128
LENGTHS = (150, 1, 37, 2, 90)  # of prompts, in one batch
NEW = 16
_TREE = {"total_token": 12, "depth": 3, "top_k": 4}
_WRONG = "greedy tokens on trees are not the target's"
_MOST = 20_000_000  # parameters of a model that counts as small
_SMALL: dict[str, Any] = {
    **dict.fromkeys(("vocab_size", "vocab_size_per_layer_input"), VOCAB),
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "emb_dim", "embedding_size", "word_embed_proj_dim"), 64),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers", "encoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(
        ("encoder_attention_heads", "num_decoder_layers", "num_encoder_layers", "first_k_dense_replace"), 1
    ),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "n_inner", "decoder_ffn_dim", "encoder_ffn_dim", "dim_ff"), 96),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size", "intermediate_size_mlp"), 32),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(
        ("moe_k", "num_experts_per_tok", "n_group", "topk_group", "num_key_value_heads", "num_kv_heads"), 2
    ),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_seq_len"), 512),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "v_head_dim", "head_dim", "dim_head"), 16),
    **dict.fromkeys(("qk_rope_head_dim", "rotary_dim"), 8),
    **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"), 0),
    "attention_types": [[["global", "local"], 1]],
}
_FILLED = ("head_dim", "num_experts_per_tok")  # that some configs leave out, and their models need


@dataclass(frozen=True)
class Outcome:
    """The outcome for a family: decoded, refused, wrong, crashed or unbuilt; and why."""

    family: str
    kind: str
    reason: str = ""


def try_family(family: str) -> Outcome:
    """Build, probe and decode one family."""
    try:
        target, draft = (small_model(family, seed) for seed in (0, 1))
    except Exception as error:  # a shrunk config breaks rules of its family that only its code knows
        return Outcome(family, "unbuilt", _line(error))
    return try_models(family, target, draft)


def try_models(family: str, target: Any, draft: Any) -> Outcome:
    """Probe and decode two models of a family."""
    try:
        for model in (target, draft):
            check_config(family, type(model), model.config)
            probe(Checkpoint(family, family, None, local=False), model, "float32", "eager")
        contexts = pair_context("draft", target.config, draft.config)
        pair = LoadedPair(target, draft, _NoTexts(), VOCAB, contexts, ())
    except ModelError as error:
        return Outcome(family, "refused", str(error) if "\n" not in str(error) else "MANY LINES")
    except Exception as error:
        return Outcome(family, "crashed", _line(error))
    try:
        greedy = decode(pair, _prompts(), temperature=0.0, gamma=4, max_new_tokens=NEW)
        fault = _fault(pair, greedy)
        trees = "" if fault else _on_trees(family, target)
    except Exception as error:
        return Outcome(family, "crashed", _line(error))
    if trees == _WRONG:
        fault = trees
    generated = "" if fault else _against_generate(target, greedy.token_ids)
    return Outcome(family, "wrong" if fault else "decoded", fault or f"{trees}; {generated}")


def _on_trees(family: str, target: Any) -> str:
    """What becomes of a target with an EAGLE-3 head of random weights, in words."""
    width = target.config.get_text_config().hidden_size
    config = LlamaConfig(
        vocab_size=VOCAB, hidden_size=width, intermediate_size=96, num_attention_heads=4, num_key_value_heads=2
    )
    torch.manual_seed(2)
    head = Eagle3Head(config, VOCAB, width, (0, 1, 1)).float().eval()
    try:
        probe(Checkpoint(family, family, None, local=False), target, "float32", "eager", head)
    except ModelError as error:
        return f"chains only: {error}"
    context = pair_context("eagle3", target.config, None)
    pair = LoadedPair(target, head, _NoTexts(), VOCAB, context, (), kind="eagle3")
    decoded = decode(pair, _prompts(), temperature=0.0, tree=_TREE, max_new_tokens=NEW)
    return "chains and trees" if _is_greedy(target, decoded.token_ids) is None else _WRONG


def small_model(family: str, seed: int) -> Any:
    """A model of a family with random weights; what its code raises if neither way to shrink its config suits it."""
    try:
        return _built(_shrunk(CONFIG_MAPPING[family]()), seed)
    except Exception:
        return _built(_shrunk(CONFIG_MAPPING[family](), fill=True), seed)


def _built(config: Any, seed: int) -> Any:
    torch.manual_seed(7)
    with torch.device("meta"):
        size = sum(weight.numel() for weight in AutoModelForCausalLM.from_config(config).parameters())
    if size > _MOST:
        raise ValueError(f"{size:,} parameters though shrunk")
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    model(input_ids=torch.arange(3, 43).unsqueeze(0), use_cache=False)  # or it is our shrinking that it cannot bear
    numbers, others = torch.Generator().manual_seed(7), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:  # wide enough that a wrong position changes tokens
                spread = 1.5 / weight.shape[-1] ** 0.5
                noise = torch.randn(weight.shape, generator=others)
                weight.copy_(spread * (torch.randn(weight.shape, generator=numbers) + 0.15 * seed * noise))
    return model


def _shrunk(config: Any, fill: bool = False) -> Any:
    """The same class with the sizes of `_SMALL`; layers of whatever kind the class chooses for so few."""
    known = config.to_dict()
    values: dict[str, Any] = {}
    for name, value in known.items():
        part = vars(config).get(name)
        if hasattr(part, "to_dict"):
            values[name] = _shrunk(part, fill)
        elif name in _SMALL and (type(value) is type(_SMALL[name]) or (fill and value is None and name in _FILLED)):
            values[name] = _SMALL[name]
    if "is_decoder" in known:  # else an encoder would see what follows
        values["is_decoder"] = True
    if "kv_lora_rank" in values:  # latent attention has as many heads of keys as of queries
        values["num_key_value_heads"] = values["num_attention_heads"]
        values.pop("head_dim", None)
    return type(config)(**values)


def _prompts() -> list[list[int]]:
    numbers = torch.Generator().manual_seed(3)
    return [torch.randint(3, VOCAB, (length,), generator=numbers).tolist() for length in LENGTHS]


def _is_greedy(target: Any, outputs: Sequence[Sequence[int]]) -> str | None:
    """None if the outputs are a target's greedy ones, but for ties; else for which prompt they are not."""
    for ids, ours in zip(_prompts(), outputs, strict=True):
        logits = _own(target, [*ids, *ours])[len(ids) - 1 : -1]
        chosen = logits.gather(1, torch.tensor(ours).unsqueeze(1)).squeeze(1)
        if bool((logits.max(1).values - chosen > 1e-3 * logits.std()).any()):
            return f"greedy tokens of a prompt of {len(ids)} are not the target's"
    return None


def _against_generate(target: Any, outputs: Sequence[Sequence[int]]) -> str:
    """How greedy outputs, which are those of the uncached forward but for ties, compare with `generate`, in words."""
    others = 0
    for ids, ours in zip(_prompts(), outputs, strict=True):
        prompt = torch.tensor([ids])
        try:
            made = target.generate(
                prompt, attention_mask=torch.ones_like(prompt), do_sample=False, num_beams=1, max_new_tokens=NEW,
                eos_token_id=-1, pad_token_id=0, repetition_penalty=1.0,
            )  # fmt: skip
        except Exception as error:  # not ours to mend
            return f"generate fails: {_line(error)}"
        theirs = made[0, len(ids) :].tolist()
        first = next((n for n, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1]), None)
        if first is None:
            continue
        logits = _own(target, [*ids, *ours[:first]])[-1]
        if logits[ours[first]] - logits[theirs[first]] > 1e-3 * logits.std():
            return "generate differs from its model's own uncached forward"
        others += 1
    return "as generate" + (f" but for near ties in {others} prompts" if others else "")


def _fault(pair: LoadedPair, greedy: Decoded) -> str | None:
    """What of a decode differs from the models' own forwards; `greedy` is that of all prompts."""
    prompts = _prompts()
    if fault := _is_greedy(pair.target, greedy.token_ids):
        return fault
    sampled = decode(pair, prompts, temperature=1.0, gamma=4, max_new_tokens=NEW)
    for index, row in ((row["index"], row) for row in sampled.steps.to_pylist()):
        before = prompts[index] + sampled.token_ids[index][: row["position"]]
        if not row["token"]:
            continue
        for name, model in (("p", pair.target), ("q", pair.draft)):
            own = _own(model, before + row["token"])[len(before) - 1 : -1].softmax(-1)
            own = own.gather(1, torch.tensor(row["token"]).unsqueeze(1)).squeeze(1)
            if not torch.allclose(own, torch.tensor(row[name], dtype=own.dtype), rtol=5e-3, atol=1e-5):
                return f"logged {name} of a prompt of {len(prompts[index])} is not a fresh forward's"
    return None


@torch.inference_mode()
def _own(model: Any, ids: Sequence[int]) -> torch.Tensor:
    return model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].double()


class _NoTexts:
    """In place of a tokenizer: token ids are all that is looked at."""

    def batch_decode(self, outputs: Sequence[Sequence[int]], **_: Any) -> list[str]:
        return ["" for _ in outputs]


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:160]


def sweep(families: Sequence[str] | None = None) -> Iterator[Outcome]:
    """The outcomes of all families, or of those named."""
    for family in families or sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES):
        yield try_family(family)


def main(families: Sequence[str]) -> int:
    """Print a line for each family, then the counts; 1 if any is wrong or crashed."""
    counts: Counter[str] = Counter()
    for outcome in sweep(families):
        counts[outcome.kind] += 1
        print(f"{outcome.kind:8} {outcome.family:24} {outcome.reason}", flush=True)
    print(", ".join(f"{counts[kind]} {kind}" for kind in ("decoded", "refused", "wrong", "crashed", "unbuilt")))
    return int(bool(counts["wrong"] or counts["crashed"]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
