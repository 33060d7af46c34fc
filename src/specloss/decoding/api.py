"""The small Python API: decode prompts with a loaded pair."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import pyarrow as pa

from specloss.decoding.chain import ChainDecoder, Prompt
from specloss.decoding.trace import STOPS, Trace
from specloss.decoding.warp import Warper
from specloss.models.pair import LoadedPair
from specloss.verification import get_rule


@dataclass(frozen=True, slots=True)
class Decoded:
    """`texts` and `token_ids` have an entry per prompt, without the prompt itself; an end of sequence is in the ids.

    `stops` says why each ended ("eos", "length", "context"); `steps` is the trace, a row per target call
    (`specloss.schema.STEPS`).
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
    gamma: int = 8,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    max_new_tokens: int = 128,
    seed: int = 0,
    batch_size: int = 32,
    trace: str = "full",
    **options: Any,
) -> Decoded:
    """Speculative decoding of `prompts` (texts, or lists of token ids taken as they are).

    `method`, `param` and `options` name the verification rule (`specloss.verification.get_rule`); `gamma` drafted
    tokens per block; `temperature`, `top_k`, `top_p` warp both models; `trace` is "full" or "light" (without the
    distortion columns). The random numbers of a prompt depend on the seed, its tokens, and how many equal prompts
    stand before it, so that neither order nor batch size matters and equal prompts are independent samples.

    ValueError, in one line, for settings out of range and for prompts that are empty or do not fit the context.
    """
    _check_whole(1, 64, gamma=gamma)
    _check_whole(1, 2**31, max_new_tokens=max_new_tokens, batch_size=batch_size)
    _check_whole(0, 2**48 - 1, seed=seed)
    _check_whole(0, 2**31, top_k=top_k)
    for name, value in (("temperature", temperature), ("top_p", top_p)):
        if isinstance(value, bool) or not isinstance(value, Real):
            raise ValueError(f"{name} must be a number, got {value!r}")
    if isinstance(prompts, str | bytes):
        raise ValueError("prompts must be a list of prompts, not one text")
    if trace not in ("full", "light"):
        raise ValueError(f"trace must be 'full' or 'light', got {trace!r}")
    rule = get_rule(method, param, **options)
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
        gamma=gamma,
        warper=warper,
        max_new_tokens=max_new_tokens,
        seed=seed,
        batch_size=batch_size,
        trace=trace,
    )


def decode_prompts(pair: LoadedPair, prompts: Sequence[Prompt], *, trace: str, **settings: Any) -> Decoded:
    """As `decode`, of prepared prompts; `settings` are those of `ChainDecoder`."""
    log = Trace(distortion=trace == "full")
    decoder = ChainDecoder(pair, trace=log, **settings)
    decoder.run(prompts)
    table = log.table(
        [prompt.problem for prompt in prompts],
        [prompt.index for prompt in prompts],
        [prompt.sample for prompt in prompts],
        decoder.gamma,
    )
    texts = pair.tokenizer.batch_decode(decoder.outputs, skip_special_tokens=True)
    return Decoded(texts, decoder.outputs, [STOPS[code] for code in decoder.stops], table)


def _token_ids(pair: LoadedPair, prompt: str | Sequence[int], index: int) -> list[int]:
    if isinstance(prompt, str):
        return pair.tokenizer(prompt).input_ids
    ids = list(prompt) if isinstance(prompt, Iterable) and not isinstance(prompt, bytes) else None
    if ids is None or any(isinstance(token, bool) or not isinstance(token, Integral) for token in ids):
        raise ValueError(f"prompt number {index} must be a text or a list of whole token ids, got {prompt!r:.60}")
    return [int(token) for token in ids]


def _check_whole(least: int, most: int, **values: int) -> None:
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, Integral) or not least <= value <= most:
            raise ValueError(f"{name} must be a whole number from {least} to {most}, got {value!r}")
