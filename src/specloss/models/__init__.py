"""Models: pairs of a target and a draft, their tokenizers, and how they are called.

`LoadedPair` and `load_pair` are imported lazily: inspecting a model's folder needs neither torch nor transformers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specloss.models.checkpoint import ModelError

if TYPE_CHECKING:
    from specloss.models.pair import LoadedPair, load_pair

__all__ = ["LoadedPair", "ModelError", "load_pair"]


def __getattr__(name: str) -> Any:
    if name in ("LoadedPair", "load_pair"):
        from specloss.models import pair

        return getattr(pair, name)
    raise AttributeError(f"module 'specloss.models' has no attribute {name!r}")
