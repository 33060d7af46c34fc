"""From logits to the distribution that is sampled: temperature, top-k, top-p, in that order, for both models."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Warper:
    """Sampling settings. `temperature` 0 is greedy (a one-hot distribution); `top_k` 0 and `top_p` 1 keep all.

    The same sets as transformers' logits processors: tokens tied with the k-th are kept, and top-p keeps the token
    that crosses the threshold.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if not (self.temperature == 0 or 1e-3 <= self.temperature < float("inf")):
            # logits over a smaller one overflow
            raise ValueError(f"temperature must be 0 (greedy) or at least 0.001, got {self.temperature}")
        if self.top_k < 0:
            raise ValueError(f"top_k must be 0 (keep all) or more, got {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be in (0, 1], got {self.top_p}")

    def __call__(self, logits: Tensor) -> Tensor:
        """Distribution [..., vocab] in float32 (float64 stays) from `logits` [..., vocab] of any type.

        Logits that make no distribution (one is NaN or +inf, or all are -inf) give what `is_broken` tells.
        """
        x = logits if logits.dtype == torch.float64 else logits.float()
        if self.temperature == 0:
            best = x.argmax(-1, keepdim=True)
            one_hot = torch.zeros_like(x).scatter_(-1, best, 1.0)
            largest = x.gather(-1, best)
            one_hot[..., :1] += largest - largest  # 0, or NaN: softmax gives NaN everywhere, argmax would hide it
            return one_hot
        if self.temperature != 1:
            x = x / self.temperature
        kept = None  # the largest logits in descending order, when fewer than the vocabulary
        if 0 < self.top_k < x.shape[-1]:
            kept = x.topk(self.top_k, dim=-1).values
            x = x.masked_fill(x < kept[..., -1:], -torch.inf)
        if self.top_p < 1:
            descending = kept if kept is not None else x.sort(dim=-1, descending=True).values
            # normalised over all that top-k kept, ties included
            mass = torch.exp(descending - x.logsumexp(-1, keepdim=True))
            before = mass.cumsum(-1) - mass  # mass of strictly higher ranks; the first rank always stays
            last = (before < self.top_p).sum(-1, keepdim=True).clamp_min(1) - 1
            x = x.masked_fill(x < descending.gather(-1, last), -torch.inf)
        return x.softmax(-1)


def is_broken(distribution: Tensor) -> Tensor:
    """Mask [...] of the distributions [..., vocab] that a warper made of logits that make none."""
    return distribution[..., 0].isnan()


def draw(distribution: Tensor, uniform: Tensor) -> Tensor:
    """Token int64 [...] drawn from `distribution` [..., vocab] by inverting its cumulative sum at `uniform` [...].

    `uniform` is float64 in [0, 1); sums are float64, so a token of zero mass is never drawn, at any vocabulary. A
    broken distribution gives some token of the vocabulary.
    """
    cumulative = distribution.cumsum(-1, dtype=torch.float64)  # [..., vocab]
    threshold = uniform.unsqueeze(-1) * cumulative[..., -1:]
    return torch.searchsorted(cumulative, threshold, right=True).squeeze(-1).clamp_max_(distribution.shape[-1] - 1)
