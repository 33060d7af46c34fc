"""How many tokens a model can hold, from its config alone. Imports neither torch nor transformers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

# Names of the number of positions, the most common first; configs of transformers map some to the first
_NAMES = ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length", "max_target_positions")

REACH = 512  # tokens up to which a probe of the loaded model goes, at the price of a few forwards
# What a config calls the number of tokens from which its model attends, or scales, otherwise
_BOUNDARY = re.compile(r"(sliding|local|attention|attn).*(window|chunk)|window_size|chunk_size|floor_scale|block_size")


def boundaries(config: Any, context: float = math.inf) -> dict[int, str]:
    """Lengths, shorter than the longest text, from which a model may attend otherwise, with the key that names each.

    Texts are as long as the model can hold, and no longer than `context` tokens.
    """
    text, context = _text(config), min(context, effective_context(config))
    values = text if isinstance(text, Mapping) else vars(text)
    kinds = _get(text, "layer_types")
    full = bool(kinds) and set(kinds) == {"full_attention"}  # then no window of its config is in use
    return {
        value: key
        for key, value in values.items()
        if _BOUNDARY.search(key) and _is_count(value) and value < context and not (full and key != "floor_scale")
    }


def effective_context(config: Any) -> int | float:
    """Tokens that a text may have under a model: a whole number, or infinity if the config sets no limit.

    `config` is a config of transformers or the contents of a `config.json`; of one that has several parts the text's
    counts. A model with longrope turns to other frequencies for all positions, also those that are in a cache by then,
    where the longest text of a batch crosses the original context. So this is its limit: up to there, what a row gets
    depends on nothing but the row. Dynamic scaling starts at `max_position_embeddings`, which is the limit anyway.
    """
    return min(stated_context(config), switching_context(config))


def stated_context(config: Any) -> int | float:
    """The number of positions that a config names; infinity if it names none."""
    config = _text(config)
    found = (_get(config, name) for name in _NAMES)
    return next((number for number in found if _is_count(number)), math.inf)


def switching_context(config: Any) -> int | float:
    """Tokens up to which longrope keeps to its short factors; infinity without longrope."""
    config = _text(config)
    limits = (
        settings.get("original_max_position_embeddings") or _get(config, "original_max_position_embeddings")
        for settings in _rotations(config)
        if (settings.get("rope_type") or settings.get("type")) in ("longrope", "su")
    )
    return min((limit for limit in limits if _is_count(limit)), default=math.inf)


def switching_fault(config: Any, context: float = math.inf) -> str | None:
    """What is wrong with texts of `context` tokens under longrope, in words; None without it, or if it stays short."""
    longest, switch = min(context, stated_context(config)), switching_context(config)
    if longest <= switch:
        return None
    return (
        f"longrope turns all of a text's positions at {switch} tokens, of {longest}; set the pair's key 'context' to "
        f"{switch} or less"
    )


def scales_with_text(config: Any) -> bool:
    """Whether rotary frequencies depend on the length of a text."""
    kinds = {settings.get("rope_type") or settings.get("type") for settings in _rotations(_text(config))}
    return not kinds.isdisjoint(("dynamic", "longrope", "su"))


def _rotations(config: Any) -> Iterator[Mapping[str, Any]]:
    """The settings of rotary embeddings: of all layers, or of each kind of layer."""
    for name in ("rope_parameters", "rope_scaling"):
        settings = _get(config, name)
        if isinstance(settings, Mapping):
            yield settings
            yield from (nested for nested in settings.values() if isinstance(nested, Mapping))


def _text(config: Any) -> Any:
    if isinstance(config, Mapping):
        return config["text_config"] if isinstance(config.get("text_config"), Mapping) else config
    return config.get_text_config()


def _get(config: Any, name: str) -> Any:
    return config.get(name) if isinstance(config, Mapping) else getattr(config, name, None)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
