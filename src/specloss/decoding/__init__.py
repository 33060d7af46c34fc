"""Decoding: warpers, counter-based random numbers, the ragged cache, the chain loop, the trace."""

from specloss.decoding.api import Decoded, decode

__all__ = ["Decoded", "decode"]
