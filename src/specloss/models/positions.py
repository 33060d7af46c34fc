"""How many positions one model can hold."""

from __future__ import annotations

from typing import Any

_NAMES = ("max_position_embeddings", "n_positions", "max_seq_len")


def effective_context(config: Any) -> int | None:
    """Positions of a model, by its config, up to which a token's place is encoded the same in a text of any length.

    Rotary embeddings of type longrope change with the text behind the original context, so they end there. None if the
    config names no number.
    """
    config = config.get_text_config()
    named = next((value for name in _NAMES if (value := getattr(config, name, None))), None)
    rope = rope_settings(config)
    if rope.get("rope_type", rope.get("type")) == "longrope":
        original = rope.get("original_max_position_embeddings") or getattr(
            config, "original_max_position_embeddings", None
        )
        return min(filter(None, (named, original)), default=None)
    return named


def rope_settings(config: Any) -> dict[str, Any]:
    """Of the rotary embedding; empty if the config has none."""
    return getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
