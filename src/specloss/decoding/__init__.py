"""Decoding: the loops for chains and trees, warpers, random numbers, the trace.

Imports are lazy: the shape of a tree is looked at without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specloss.decoding.api import Decoded, decode

__all__ = ["Decoded", "decode"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from specloss.decoding import api

        return getattr(api, name)
    raise AttributeError(f"module 'specloss.decoding' has no attribute {name!r}")
