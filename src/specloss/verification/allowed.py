"""Allowed sets: which tokens a truncation baseline samples from and a gate accepts. Masks [..., vocab] from `p`."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from specloss.verification.distributions import entropy


def min_p_set(p: Tensor, p_base: float) -> Tensor:
    """`A = {v : p(v) >= p_base * max p}` (min-p sampling, Nguyen et al. 2025). `p_base = 0` allows every token."""
    return p >= p_base * p.amax(-1, keepdim=True)


def eta_of(entropy: Tensor, peak: Tensor, epsilon: float, delta: float | None = None) -> Tensor:
    """The threshold of `eta_threshold` [...] from a distribution's entropy in nats [...] and its peak `max p` [...]."""
    delta = math.sqrt(epsilon) if delta is None else delta
    return torch.minimum((delta * torch.exp(-entropy)).clamp_max(epsilon), peak)


def eta_threshold(p: Tensor, epsilon: float, delta: float | None = None) -> Tensor:
    """`eta = min(epsilon, delta * exp(-H(p)))` [..., 1] with H in nats and `delta = sqrt(epsilon)` by default.

    Source: eta sampling, Hewitt et al. 2022, Algorithm 1; the same threshold is Medusa's typical acceptance
    (Cai et al. 2024, section 2.3.1). Never above `max p`, so the mode is always allowed: for `delta <= 1` that is
    already so (`max p >= exp(-H)`), except for rounding on flat distributions.
    """
    return eta_of(entropy(p), p.amax(-1), epsilon, delta).unsqueeze(-1)


def eta_set(p: Tensor, epsilon: float, delta: float | None = None) -> Tensor:
    """`A = {v : p(v) >= eta}` with the threshold of `eta_threshold`."""
    return p >= eta_threshold(p, epsilon, delta)
