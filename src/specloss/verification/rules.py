"""Token rules: each is one pure function `(p, q, param, **options) -> (y, rho)` on tensors [..., vocab].

`y` is the accepted mass, `0 <= y <= q`: a draft token x ~ q is kept with probability `y(x) / q(x)`. `rho` is the
residual, the distribution of the token that is emitted instead of a rejected one. The registry binds names,
parameter ranges and options; the functions trust their arguments and do no checks.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specloss.verification.allowed import eta_set, min_p_set
from specloss.verification.distributions import normalise, speculative, truncate

Mass = tuple[Tensor, Tensor]  # (y, rho), both [..., vocab]
CAPS = ("nowhere", "inside", "outside", "everywhere")  # Table 6: where the ceiling p / l applies
TAILS = ("keep", "drop")  # and what happens to the tail that does not overshoot


def standard_sd(p: Tensor, q: Tensor, param: None = None) -> Mass:
    """Lossless speculative decoding: `y = min(q, p)`, `rho = norm([p - q]+)` (Leviathan et al. 2023, Algorithm 1)."""
    return speculative(p, q)


def min_p_sampling(p: Tensor, q: Tensor, p_base: float) -> Mass:
    """Lossless decoding of the min-p truncated target (Nguyen et al. 2025), SpecCascade's matched baseline."""
    return speculative(truncate(p, min_p_set(p, p_base)), q)


def eta_sampling(p: Tensor, q: Tensor, epsilon: float, *, delta: float | None = None) -> Mass:
    """Lossless decoding of the eta truncated target (Hewitt et al. 2022), typical acceptance's matched baseline."""
    return speculative(truncate(p, eta_set(p, epsilon, delta)), q)


def gate(p: Tensor, q: Tensor, allowed: Tensor, residual: str = "target") -> Mass:
    """Accept every draft token inside the mask `allowed` [..., vocab] and none outside: `y = q 1_A`.

    `residual` is what a rejected token is replaced by: `target` p, `truncated` p_A, `draft` norm(q 1_A) (p_A if the
    draft has no mass in A), `argmax` the target's most probable token.
    """
    y = torch.where(allowed, q, 0.0)
    if residual == "target":
        return y, p
    if residual == "truncated":
        return y, truncate(p, allowed)
    if residual == "draft":
        return y, normalise(y, truncate(p, allowed))
    return y, torch.zeros_like(p).scatter_(-1, p.argmax(-1, keepdim=True), 1.0)


def spec_cascade(p: Tensor, q: Tensor, p_base: float, *, residual: str = "target") -> Mass:
    """SpecCascade's token rule V3 with alpha = 1 - p_base (Narasimhan et al. 2025, section 4.3): the min-p gate."""
    return gate(p, q, min_p_set(p, p_base), residual)


def typical_acceptance(
    p: Tensor, q: Tensor, epsilon: float, *, residual: str = "target", delta: float | None = None
) -> Mass:
    """Typical acceptance (Medusa, Cai et al. 2024, section 2.3.1): the gate on the eta set."""
    return gate(p, q, eta_set(p, epsilon, delta), residual)


def ceiling(p: Tensor, l: float) -> Tensor:  # noqa: E741
    """`p / l` [..., vocab]; an l that underflows in single precision is raised to one that it can divide by."""
    return p / max(l, 1e-30)


def lenience(p: Tensor, q: Tensor, l: float) -> Mass:  # noqa: E741
    """Lenience (Leviathan et al. 2023, appendix A.5): `y = min(q, p / l)`, `rho = norm([p - q]+)`."""
    return torch.minimum(q, ceiling(p, l)), normalise((p - q).clamp_min(0), p)


def overshoot_ceiling(p: Tensor, q: Tensor, l: float) -> Mass:  # noqa: E741
    """The paper's Table 1 ceiling: `y = min(q, p / l)`, `rho = norm([p - y]+)`. For a chain it equals `lenience`."""
    y = torch.minimum(q, ceiling(p, l))
    return y, normalise((p - y).clamp_min(0), p)


def adaptive_interpolation(p: Tensor, q: Tensor, l: float) -> Mass:  # noqa: E741
    """The paper's Table 1 interpolation: ordinary verification of `pi = q + D (p - q)`, a mixture without a ceiling.

    `D = sum([q - p/l]+) / sum([q - p]+)` in [0, 1] is the share of the way to p that `lenience` goes where q <= p.
    """
    excess = (q - p).clamp_min(0).sum(-1, keepdim=True)  # [..., 1]; zero when p == q, where any D gives pi = p
    rejected = (q - ceiling(p, l)).clamp_min(0).sum(-1, keepdim=True)
    d = torch.where(excess > 0, rejected / excess, 0.0).clamp_max(1)
    return speculative(torch.lerp(q, p, d), q, fallback=p)


def cos_ensemble(p: Tensor, q: Tensor, lam: float) -> Tensor:
    """`r = lambda q + (1 - lambda) p` [..., vocab]; lambda is the weight of the DRAFT (Fu et al. 2025)."""
    return torch.lerp(p, q, lam)


def cos(p: Tensor, q: Tensor, lam: float) -> Mass:
    """CoS, weighted ensemble (Fu et al. 2025): `y = min(q, r)`, `rho = norm([r - q]+)` with `r` of `cos_ensemble`."""
    return speculative(cos_ensemble(p, q, lam), q, fallback=p)


def contrastive_ensemble(p: Tensor, q: Tensor, mu: float) -> Tensor:
    """`r = norm(p / q^mu)` on the support of q [..., vocab]; `p` if the two supports are disjoint (Fu et al. 2025).

    Computed from logarithms, as q^mu underflows on long vocabularies.
    """
    score = torch.where(q > 0, torch.log(p) - mu * torch.log(q), -torch.inf)
    disjoint = score.amax(-1, keepdim=True) == -torch.inf
    return torch.where(disjoint, p, torch.softmax(score, -1))


def cos_contrastive(p: Tensor, q: Tensor, mu: float) -> Mass:
    """CoS, contrastive ensemble (Fu et al. 2025): as `cos`, with `r` of `contrastive_ensemble`."""
    return speculative(contrastive_ensemble(p, q, mu), q, fallback=p)


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
