"""The Python API: decode prompts with a loaded pair."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import pyarrow as pa

from specloss.decoding.chain import ChainDecoder
from specloss.decoding.loop import Prompt
from specloss.decoding.trace import STOPS, Trace
from specloss.decoding.tree_decoder import TreeDecoder
from specloss.decoding.warp import Warper
from specloss.models.pair import LoadedPair
from specloss.models.prompting import tokenize
from specloss.models.tree_shape import TreeShape
from specloss.verification.binding import bound_rule


@dataclass(frozen=True, slots=True)
class Decoded:
    """`texts` and `token_ids` have one entry per prompt, without the prompt itself; the ids include an end of sequence.

    `stops` says why each one ended ("eos", "length", "context"); `steps` is the trace, with a row per target call
    (`specloss.experiment.schema.STEPS`).
    """

    texts: list[str]
    token_ids: list[list[int]]
    stops: list[str]
    steps: pa.Table


def decode(
    pair: LoadedPair,
    prompts: Sequence[str | Sequence[int]],
    *,
    method: str = "standard_sd",
    param: float | None = None,
    gamma: int | None = None,
    tree: TreeShape | Mapping[str, int] | None = None,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    max_new_tokens: int = 128,
    seed: int = 0,
    batch_size: int = 32,
    trace: str = "full",
    **options: Any,
) -> Decoded:
    """Speculative decoding of `prompts`: strings, which may be rendered chats, or lists of token ids.

    Strings are tokenized as a benchmark's prompts are, with one beginning of sequence; token ids are used unchanged.

    `method`, `param` and `options` name the verification rule (`specloss.verification.get_rule`, or `get_tree_rule`).
    A draft model drafts `gamma` tokens per block (8 if not given), an EAGLE-3 head trees of the shape `tree`
    (`total_token`, `depth`, `top_k`; by default those of `TreeShape`). `temperature`, `top_k`, `top_p` warp both
    models; `trace` is "full" or "light" (without the distortion columns). The random numbers of a prompt depend on the
    seed, its tokens, and how many equal prompts precede it. So equal prompts are independent samples and, in float32,
    neither order nor batch size matters.

    Raises ValueError, in one line, for settings out of range and for prompts that are empty or exceed the context.
    """
    if pair.kind == "eagle3":
        if gamma is not None:
            raise ValueError(f"gamma is for pairs of kind draft; a head drafts trees: give tree, got gamma {gamma!r}")
        drafting: dict[str, Any] = {"shape": tree if isinstance(tree, TreeShape) else _shape(tree or {})}
    else:
        if tree is not None:
            raise ValueError(f"tree is for pairs of kind eagle3; a draft model has gamma, got tree {tree!r}")
        drafting = {"gamma": 8 if gamma is None else gamma}
        _check_whole(1, 64, **drafting)
    _check_whole(1, 2**31, max_new_tokens=max_new_tokens, batch_size=batch_size)
    _check_whole(0, 2**48 - 1, seed=seed)
    _check_whole(0, 2**31, top_k=top_k)
    for name, value in (("temperature", temperature), ("top_p", top_p)):
        if isinstance(value, bool) or not isinstance(value, Real):
            raise ValueError(f"{name} must be a number, got {value!r}")
    if isinstance(prompts, str | bytes):
        raise ValueError("prompts must be a list of prompts, not one string")
    if trace not in ("full", "light"):
        raise ValueError(f"trace must be 'full' or 'light', got {trace!r}")
    rule = bound_rule(method, param, options, tree=pair.kind == "eagle3")
    warper = Warper(temperature, top_k, top_p)
    seen: Counter[str] = Counter()
    rows = []
    for index, prompt in enumerate(prompts):
        ids = _token_ids(pair, prompt, index)
        problem = " ".join(map(str, ids))
        rows.append(Prompt(ids, problem, index, seen[problem]))
        seen[problem] += 1
    return decode_prompts(
        pair,
        rows,
        rule=rule,
        **drafting,
        warper=warper,
        max_new_tokens=max_new_tokens,
        seed=seed,
        batch_size=batch_size,
        trace=trace,
    )


def decode_prompts(pair: LoadedPair, prompts: Sequence[Prompt], *, trace: str, **settings: Any) -> Decoded:
    """As `decode`, for prepared prompts; `settings` are those of `ChainDecoder`, or `TreeDecoder` for a head."""
    log = Trace(distortion=trace == "full")
    decoder = (TreeDecoder if pair.kind == "eagle3" else ChainDecoder)(pair=pair, trace=log, **settings)
    decoder.run(prompts)
    table = log.table(
        [prompt.problem for prompt in prompts],
        [prompt.index for prompt in prompts],
        [prompt.sample for prompt in prompts],
    )
    texts = pair.tokenizer.batch_decode(decoder.outputs, skip_special_tokens=True)
    return Decoded(texts, decoder.outputs, [STOPS[code] for code in decoder.stops], table)


def _token_ids(pair: LoadedPair, prompt: str | Sequence[int], index: int) -> list[int]:
    if isinstance(prompt, str):
        return tokenize(pair.tokenizer, prompt)
    ids = list(prompt) if isinstance(prompt, Iterable) and not isinstance(prompt, bytes) else None
    if ids is None or any(isinstance(token, bool) or not isinstance(token, Integral) for token in ids):
        raise ValueError(f"prompt number {index} must be a string or a list of integer token ids, got {prompt!r:.60}")
    return [int(token) for token in ids]


def _shape(tree: Mapping[str, int]) -> TreeShape:
    try:
        return TreeShape(**tree)
    except TypeError as error:
        raise ValueError(f"tree must have total_token, depth and top_k, or some of them, got {tree!r}") from error


def _check_whole(least: int, most: int, **values: int) -> None:
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, Integral) or not least <= value <= most:
            raise ValueError(f"{name} must be a whole number from {least} to {most}, got {value!r}")
