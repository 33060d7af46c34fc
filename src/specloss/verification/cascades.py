"""SpecCascade's other deferral rules (Narasimhan et al. 2025): each defines a target `pi`, verified by ordinary SD.

A deferral rule decides where the draft may stand and where the target takes over; `alpha` is the price of asking the
target. Unlike the gate `spec_cascade`, these lose no acceptance: `y = min(q, pi)`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specloss.verification.distributions import speculative, total_variation
from specloss.verification.rules import Mass


def _defer(p: Tensor, q: Tensor, defers: Tensor) -> Mass:
    """`pi = p` where `defers` [..., 1] is true, else `q`."""
    return speculative(torch.where(defers, p, q), q)


def _defer_tokens(p: Tensor, q: Tensor, defers: Tensor) -> Mass:
    """`pi(v) = q(v) (1 - r(v)) + p(v) sum_u r(u) q(u)` with the token mask `r = defers` [..., vocab]."""
    deferred = torch.where(defers, q, 0.0)
    return speculative(torch.addcmul(q - deferred, deferred.sum(-1, keepdim=True), p), q)


def _peak(p: Tensor) -> Tensor:
    return p.amax(-1, keepdim=True)  # [..., 1]


def cascade_chow(p: Tensor, q: Tensor, alpha: float) -> Mass:
    """Chow's rule: defer if `max q < 1 - alpha`."""
    return _defer(p, q, _peak(q) < 1 - alpha)


def cascade_diff(p: Tensor, q: Tensor, alpha: float) -> Mass:
    """Diff: defer if `max q < max p - alpha`."""
    return _defer(p, q, _peak(q) < _peak(p) - alpha)


def cascade_opt(p: Tensor, q: Tensor, alpha: float) -> Mass:
    """OPT: defer if `max q < max p - alpha TV(p, q)`."""
    return _defer(p, q, _peak(q) < _peak(p) - alpha * total_variation(p, q).unsqueeze(-1))


def cascade_token_v1(p: Tensor, q: Tensor, alpha: float) -> Mass:
    """Token rule V1: defer the tokens with `q(v) < max p - alpha`."""
    return _defer_tokens(p, q, q < _peak(p) - alpha)


def cascade_token_v2(p: Tensor, q: Tensor, alpha: float) -> Mass:
    """Token rule V2: defer the tokens with `p(v) < max p - alpha`."""
    return _defer_tokens(p, q, p < _peak(p) - alpha)


def cascade_token_v3(p: Tensor, q: Tensor, alpha: float) -> Mass:
    """Token rule V3: defer the tokens with `p(v) < (1 - alpha) max p`; `spec_cascade`'s `pi` at p_base = 1 - alpha."""
    return _defer_tokens(p, q, p < (1 - alpha) * _peak(p))
