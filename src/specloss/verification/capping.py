"""Truncation combined with the ceiling p / l: the paper's combined rule and the two-factor grid of its Table 6."""

from __future__ import annotations

import torch
from torch import Tensor

from specloss.verification.allowed import min_p_set
from specloss.verification.distributions import normalise
from specloss.verification.rules import Mass, ceiling

CAPS = ("nowhere", "inside", "outside", "everywhere")
TAILS = ("keep", "drop")


def capped_truncation(
    p: Tensor,
    q: Tensor,
    l: float,  # noqa: E741
    *,
    p_base: float = 0.5,
    cap: str = "outside",
    tail: str = "keep",
) -> Mass:
    """Cap the accepted mass at `p / l` in one region and keep or drop the harmless tail: `(y, rho)`, each [..., vocab].

    With the min-p set A: `y = q`, but `min(q, p / l)` in the region that `cap` names (`nowhere`, `inside` A, `outside`
    A, `everywhere`); `tail="drop"` sets `y = 0` for the tokens outside A that do not overshoot (`q <= p / l`), so
    the two factors act on different tokens outside A. `rho = norm([p - y]+)`, `p` if that is zero.

    The defaults are the combined rule of Table 6; `everywhere` with `keep` is lenience, `nowhere` with it the draft.
    """
    allowed, most = min_p_set(p, p_base), ceiling(p, l)
    capped = torch.minimum(q, most)
    inside = capped if cap in ("inside", "everywhere") else q
    outside = capped if cap in ("outside", "everywhere") else q
    if tail == "drop":
        outside = torch.where(q > most, outside, 0.0)
    y = torch.where(allowed, inside, outside)
    return y, normalise((p - y).clamp_min(0), p)
