"""Arithmetic on distributions over a vocabulary, shared by every rule. Knows nothing about rules, models or decoding.

Everywhere in this package `p` is the target, `q` the draft, and the vocabulary is the last axis.
"""

from __future__ import annotations

import torch
from torch import Tensor


def normalise(mass: Tensor, fallback: Tensor) -> Tensor:
    """Scale non-negative `mass` [..., vocab] to sum to 1; rows without any mass become the rows of `fallback`.

    An empty residual (p == q) is not an error: it is drawn from with probability zero, but must not be NaN.
    """
    total = mass.sum(-1, keepdim=True)  # [..., 1]
    return torch.where(total > 0, mass / total, fallback)


def truncate(p: Tensor, allowed: Tensor) -> Tensor:
    """`p_A = norm(p 1_A)`: `p` [..., vocab] restricted to the mask `allowed` [..., vocab] and renormalised."""
    return normalise(torch.where(allowed, p, 0.0), p)


def entropy(p: Tensor) -> Tensor:
    """Shannon entropy [...] in nats of `p` [..., vocab]."""
    return torch.special.entr(p).sum(-1)


def overlap(p: Tensor, q: Tensor) -> Tensor:
    """`sum(min(p, q))` [...]: one minus the total variation; the best acceptance rate of any rule with output `p`."""
    return torch.minimum(p, q).sum(-1)


def total_variation(p: Tensor, q: Tensor) -> Tensor:
    """`sum([p - q]+)` [...], the total variation distance of two distributions [..., vocab]."""
    return (p - q).clamp_min(0).sum(-1)


def kl_divergence(pi: Tensor, p: Tensor) -> Tensor:
    """`KL(pi || p)` [...] in nats; infinite where `pi` puts mass on a token that `p` rules out, never NaN."""
    # Two xlogy terms and not the logarithm of the ratio: 0/0 would be NaN for tokens that neither side has.
    return (torch.special.xlogy(pi, pi) - torch.special.xlogy(pi, p)).sum(-1).clamp_min(0)


def induced(y: Tensor, rho: Tensor) -> Tensor:
    """Distribution of the emitted token, `pi = y + (1 - sum(y)) rho` [..., vocab], of any token rule."""
    rejected = (1 - y.sum(-1, keepdim=True)).clamp_min(0)  # [..., 1]; rounding must not make it negative
    return torch.addcmul(y, rejected, rho)


def speculative(target: Tensor, q: Tensor, fallback: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Ordinary speculative sampling of `target` [..., vocab] with draft `q` [..., vocab]: `(y, rho)`.

    `y = min(q, target)`, `rho = norm([target - q]+)`; this is the coupling with the least rejection
    (Leviathan et al. 2023, Algorithm 1 and Theorem 3.5). An empty residual becomes `fallback` (default: `target`).
    """
    y = torch.minimum(q, target)
    return y, normalise(target - y, target if fallback is None else fallback)
