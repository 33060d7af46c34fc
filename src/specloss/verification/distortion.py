"""What a rule does to the distribution at one position, in closed form. The keys are the columns of `steps.parquet`."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from specloss.verification.distributions import entropy, induced, kl_divergence, overlap, total_variation, truncate
from specloss.verification.rule import Rule, at_least_float32

KEYS = (
    "alpha",  # acceptance rate sum(y)
    "tv_pq",
    "entropy_p",  # nats
    "tv_pi_p",
    "kl_pi_p",  # nats
    "tv_pi_target",  # against the matched truncated target p_A; equal to tv_pi_p for rules that aim at p
    "kl_pi_target",
    "overshoot",  # sum([pi - p]+)
    "allowed_mass",  # p(A); 1 for rules without a set
    "coupling_loss",  # sum(min(q, pi)) - sum(y), the acceptance that the rule's maximal coupling would add
)
KEYS_OF_P_AND_Q = ("tv_pq", "entropy_p", "allowed_mass")  # all that exists for a block rule


def distortion(
    p: Tensor,
    q: Tensor,
    rule: Rule | tuple[Tensor, Tensor],
    mass: tuple[Tensor, Tensor] | None = None,
    *,
    target: Tensor | None = None,
    allowed: Tensor | None = None,
    keys: Collection[str] = KEYS,
) -> dict[str, Tensor]:
    """The quantities named in `keys`, each [...], at target `p` and draft `q` [..., vocab].

    `rule` is a rule, or its `(y, rho)` [..., vocab] with `target` and `allowed` [..., vocab] where it has them. With a
    rule, `mass = (y, rho)` saves computing them again, as verification returns them. Block rules have no distortion
    at one position: only `KEYS_OF_P_AND_Q` come back for them. KL is infinite where pi leaves the support of p.
    Raises ValueError for a key that is not in `KEYS`.
    """
    if unknown := sorted(set(keys) - set(KEYS)):
        raise ValueError(f"unknown distortion {unknown[0]!r}; known: {', '.join(KEYS)}")
    p, q = at_least_float32(p, q)
    wanted = set(keys)
    if isinstance(rule, Rule):
        if not rule.per_token:
            wanted &= set(KEYS_OF_P_AND_Q)
        if not wanted.isdisjoint(("allowed_mass", "tv_pi_target", "kl_pi_target")):
            allowed = rule.allowed(p)
            target = truncate(p, allowed) if rule.compares_truncated else None
        mass = rule(p, q) if mass is None and not wanted.issubset(KEYS_OF_P_AND_Q) else mass
    else:
        mass = rule
    found: dict[str, Tensor] = {}
    if "tv_pq" in wanted:
        found["tv_pq"] = total_variation(q, p)
    if "entropy_p" in wanted:
        found["entropy_p"] = entropy(p)
    if "allowed_mass" in wanted:
        found["allowed_mass"] = p.new_ones(p.shape[:-1]) if allowed is None else torch.where(allowed, p, 0.0).sum(-1)
    if wanted.issubset(found):
        return found
    y, rho = mass
    pi = induced(y, rho)
    alpha = y.sum(-1)
    if "alpha" in wanted:
        found["alpha"] = alpha
    if not wanted.isdisjoint(("tv_pi_p", "overshoot")) or (target is None and "tv_pi_target" in wanted):
        # Both sum to one, so the overshoot mass and the total variation are the same number.
        found["tv_pi_p"] = found["overshoot"] = total_variation(pi, p)
    if "kl_pi_p" in wanted or (target is None and "kl_pi_target" in wanted):
        found["kl_pi_p"] = kl_divergence(pi, p)
    if "tv_pi_target" in wanted:
        found["tv_pi_target"] = found["tv_pi_p"] if target is None else total_variation(pi, target)
    if "kl_pi_target" in wanted:
        found["kl_pi_target"] = found["kl_pi_p"] if target is None else kl_divergence(pi, target)
    if "coupling_loss" in wanted:
        found["coupling_loss"] = (overlap(q, pi) - alpha).clamp_min(0)
    return {key: found[key] for key in KEYS if key in wanted}
