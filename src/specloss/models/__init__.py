"""Models: pairs of a target and a draft, their tokenizers, the demo pair and its training."""

from specloss.models.pair import LoadedPair, ModelError, load_pair

__all__ = ["LoadedPair", "ModelError", "load_pair"]
