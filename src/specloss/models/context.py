"""The longest text that a pair can hold: one rule for loading, checking, `doctor` and decoding."""

from __future__ import annotations

import math
from typing import Any

from specloss.models.checkpoint import ModelError
from specloss.models.positions import (
    effective_context,
    scales_with_text,
    stated_context,
    switching_context,
    switching_fault,
)

UNLIMITED = 2**31 - 1  # of a pair whose models set no limit


def pair_context(kind: str, target: Any | None, draft: Any | None, context: int | None = None) -> int:
    """Tokens of the longest text of a pair, by the configs of its models, of transformers or as JSON; None: not known.

    `context` is the pair's own key, which makes it less. Both models of a pair of kind draft must hold the text. An
    EAGLE-3 head adds no limit of its own: the number in its config (2,048 in most published ones) is the length of its
    training texts, rotary positions go on behind it, and the text is the target's whatever the head proposes; it is
    only accepted less. EAGLE's own code (cnets.py) lengthens its table of rotations as texts grow, SGLang gives the
    head the target's context, vLLM drafts up to the target's. A head whose rotations depend on the length of the text
    is the exception.
    """
    configs = [target, draft]
    if kind == "eagle3" and draft is not None and not scales_with_text(draft):
        configs = [target]
    held = [effective_context(config) for config in configs if config is not None]
    return int(min([UNLIMITED, context or UNLIMITED, *held]))


def check_context(kind: str, target: Any | None, draft: Any | None, context: int | None) -> None:
    """ModelError, in one line, if texts of a pair may be longer than its models can hold.

    This is so with a `context` beyond theirs, and with longrope, also of a head, where no `context` ends texts before
    it turns to other frequencies.
    """
    held = pair_context(kind, target, draft)
    if context is not None and context > held:
        raise ModelError(f"context {context}: the pair's models hold {held} tokens; give that or less, or leave it out")
    ends = [context or math.inf] * 2
    if kind == "eagle3" and target is not None:  # a head may be for longer texts than its target
        ends[1] = min(ends[1], effective_context(target))
    for role, config, longest in zip(("target", "draft"), (target, draft), ends, strict=True):
        if config is not None and (fault := switching_fault(config, longest)):
            raise ModelError(f"{role}: {fault}")


def context_note(name: str, config: Any, context: int) -> str | None:
    """A note for the user if a model's longrope is kept to its original context by the pair's; else None."""
    switch, whole = switching_context(config), stated_context(config)
    if not context <= switch < whole:
        return None
    return (
        f"{name}: longrope, kept to its original context: texts end at {context:,} tokens, though it holds {whole:,}; "
        f"beyond {switch:,} all of a text's positions would turn, those in the cache included"
    )


def head_note(name: str, target: Any, head: Any, context: int | None = None) -> str | None:
    """A note for the user if a head was trained on shorter texts than the pair's can be, or ends them; else None."""
    own, whole = effective_context(head), pair_context("eagle3", target, None, context)
    if own >= whole:
        return None
    if scales_with_text(head):
        return (
            f"{name}: a head whose positions depend on the length of the text beyond {own:,} tokens: texts end there, "
            f"though its target holds {whole:,}"
        )
    return (
        f"{name}: a head for {own:,} positions by its config, its target holds {whole:,}; further on its drafts are "
        "accepted less, the text is the target's all the same"
    )
