"""specloss: what lossy verification in speculative decoding costs.

    pair = specloss.load_pair(target="path/or/hub-id", draft="path/or/hub-id")
    out = specloss.decode(pair, ["prompt"], method="lenience", param=0.4, gamma=8, temperature=0.7, max_new_tokens=128)
    out.texts, out.token_ids, out.steps

Imports are lazy: `import specloss` loads neither torch nor transformers.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specloss.decoding import Decoded, decode
    from specloss.models import LoadedPair, load_pair

try:
    __version__ = version("specloss")
except PackageNotFoundError:  # run from a source tree that is not installed
    __version__ = "0+unknown"

_HOMES = {"decode": "decoding", "Decoded": "decoding", "load_pair": "models", "LoadedPair": "models"}
__all__ = ["Decoded", "LoadedPair", "__version__", "decode", "load_pair"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"specloss.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'specloss' has no attribute {name!r}")
