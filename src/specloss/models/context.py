"""The longest text that a pair can hold: one rule for loading, checking, `doctor` and decoding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specloss.models.positions import effective_context

UNLIMITED = 2**31 - 1  # of a pair whose models set no limit


def pair_context(kind: str, target: Any | None, draft: Any | None) -> int:
    """Tokens of the longest text of a pair, by the configs of its models, of transformers or as JSON; None: not known.

    Both models of a pair of kind draft must hold the text. An EAGLE-3 head adds no limit of its own: the number in its
    config (2,048 in most published ones) is the length of its training texts, rotary positions go on behind it, and the
    text is the target's whatever the head proposes; it is only accepted less. EAGLE's own code (cnets.py) lengthens its
    table of rotations as texts grow, SGLang gives the head the target's context, vLLM drafts up to the target's. A head
    whose rotations depend on the length of the text is the exception.
    """
    configs = [target, draft]
    if kind == "eagle3" and draft is not None and not _of_the_text(draft):
        configs = [target]
    return int(min([UNLIMITED, *(effective_context(config) for config in configs if config is not None)]))


def head_note(name: str, target: Any, head: Any) -> str | None:
    """A note for the user if a head was trained on shorter texts than its target can hold; else None."""
    own, whole = effective_context(head), pair_context("eagle3", target, head)
    if own >= whole:
        return None
    return (
        f"{name}: a head for {own:,} positions by its config, its target holds {whole:,}; further on its drafts are "
        "accepted less, the text is the target's all the same"
    )


def _of_the_text(config: Any) -> bool:
    """Whether a head's frequencies depend on a text's length."""
    values = config if isinstance(config, Mapping) else config.to_dict()
    rope = values.get("rope_parameters") or values.get("rope_scaling") or {}
    return (rope.get("rope_type") or rope.get("type")) in ("dynamic", "longrope")
