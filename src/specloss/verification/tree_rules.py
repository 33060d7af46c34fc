"""Which rules verify trees and how: each form is one function `(siblings, param, **options) -> (accept, threshold)`.

`accept` is the probability that a node is kept when it is tried, `threshold` what its mass was compared with; each is
[batch, nodes] or a number. The functions trust their arguments. A new tree form is one function and one entry here;
names, parameters and ranges are those of the rules for chains.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from specloss.verification.allowed import eta_of
from specloss.verification.registry import BONUS, DELTA, P_BASE, RULES, bind_options, get_rule, look_up, matched_rule
from specloss.verification.registry import valid_options as valid_chain_options
from specloss.verification.rule import Option
from specloss.verification.tree_rule import TreeForm, TreeRule
from specloss.verification.trees import Siblings

THRESHOLD = Option("original", ("original", "residual"))
GATE = Option("soft", ("soft", "hard"))

Decision = tuple[Tensor, Tensor | float]  # (accept, threshold)


def soft(mass: Tensor, threshold: Tensor | float) -> Tensor:
    """`min(1, mass / threshold)`; a threshold of zero accepts everything."""
    return torch.where(mass >= threshold, 1.0, mass / threshold)


def hard(mass: Tensor, threshold: Tensor) -> Tensor:
    """`1[mass >= threshold]`."""
    return (mass >= threshold).to(mass.dtype)


def lossless(siblings: Siblings, param: float | None, **options: Any) -> Decision:
    """`a = p'(x)`: whatever p' starts at is emitted exactly, by any tree (EAGLE, Li et al. 2024).

    Parameter and options went into that start.
    """
    return siblings.mass, 1.0


def lenience(siblings: Siblings, l: float) -> Decision:  # noqa: E741
    """`a = min(1, p'(x) / l)`. A drafted token is a point mass, for which Table 1's two variants are the same rule.

    There `overshoot_ceiling` has its residual and `adaptive_interpolation` its mixture in common with `lenience`:
    `y(x) = min(1, p(x) / l)` and `rho = p` without x, for each of the three.
    """
    return soft(siblings.mass, max(l, 1e-30)), l


def spec_cascade(siblings: Siblings, p_base: float) -> Decision:
    """`a = 1[x in A]` with the min-p set A (Narasimhan et al. 2025, token rule V3)."""
    threshold = p_base * siblings.peak
    return hard(siblings.compared, threshold), threshold


def typical_acceptance(siblings: Siblings, epsilon: float, *, gate: str, delta: float | None) -> Decision:
    """`a = min(1, p'(x) / eta)` for the soft gate, as run for the paper's Table 5; `1[p(x) >= eta]` for the hard one.

    Source of `eta`: Medusa's typical acceptance (Cai et al. 2024, section 2.3.1), which is the hard gate.
    """
    eta = eta_of(siblings.entropy, siblings.peak, epsilon, delta)
    return (soft(siblings.mass, eta) if gate == "soft" else hard(siblings.compared, eta)), eta


def capped_truncation(siblings: Siblings, l: float, *, p_base: float, cap: str = "outside") -> Decision:  # noqa: E741
    """`a = min(1, p'(x) / l)` in the region that `cap` names, 1 elsewhere; the threshold is the min-p set's."""
    threshold = p_base * siblings.peak
    allowed = siblings.compared >= threshold
    capped = soft(siblings.mass, max(l, 1e-30))
    inside, outside = (capped if cap in (side, "everywhere") else 1.0 for side in ("inside", "outside"))
    return torch.where(allowed, inside, outside).to(capped.dtype), threshold


_mixture = partial(TreeForm, accept=lossless, mixes=True)
_capped = partial(TreeForm, options={"threshold": THRESHOLD, "p_base": P_BASE})

TREE_FORMS: dict[str, TreeForm] = {
    # lossless for whatever the rule aims at: standard SD and the truncation baselines
    **{
        name: TreeForm(accept=lossless, options=spec.options)
        for name, spec in RULES.items()
        if spec.exact and spec.build is None
    },
    "spec_cascade": TreeForm(accept=spec_cascade, options={"threshold": THRESHOLD}),
    "typical_acceptance": TreeForm(
        accept=typical_acceptance, options={"threshold": THRESHOLD, "gate": GATE, "delta": DELTA}
    ),
    "lenience": TreeForm(accept=lenience),
    # The draft's part in the output has to come from its whole distribution q: a tree's proposals have none.
    "cos": _mixture(options={"bonus": BONUS}),
    "cos_contrastive": _mixture(options={"bonus": BONUS}),
    "adaptive_interpolation": TreeForm(accept=lenience),
    "overshoot_ceiling": TreeForm(accept=lenience),
    # No form for Table 6's dropped tail: what it drops depends on q(x), which a point mass puts at 1.
    "capped_truncation": _capped(accept=capped_truncation),
    **{
        f"cap_{cap}_keep_tail": _capped(accept=partial(capped_truncation, cap=cap))
        for cap in ("nowhere", "inside", "outside", "everywhere")
    },
    **{f"cascade_{name}": _mixture() for name in ("chow", "diff", "opt", "token_v1", "token_v2", "token_v3")},
}


def valid_tree_options(name: str) -> dict[str, Option]:
    """The options on trees of the rule `name`. ValueError, in one line, for a rule that has no form on trees."""
    return dict(_form(name).options)


def _form(name: str) -> TreeForm:
    if name not in TREE_FORMS:
        raise ValueError(f"{name} has no form on trees; rules that have one: {', '.join(TREE_FORMS)}")
    return TREE_FORMS[name]


def get_tree_rule(name: str, param: float | None = None, **options: Any) -> TreeRule:
    """The rule `name` for trees with its parameter and options bound and checked.

    Raises ValueError in one line as `get_rule` does, and for a rule that has no form on trees.
    """
    look_up(name, param)
    form = _form(name)
    bound = bind_options(f"{name} on trees", form.options, options)
    shared = {key: value for key, value in bound.items() if key in valid_chain_options(name)}
    return TreeRule(get_rule(name, param, **shared), form, bound)


def matched_tree_rule(rule: TreeRule) -> TreeRule | None:
    """The baseline to compare `rule` with, at the same parameter and shared options; None for standard SD.

    ValueError, in one line, if the baseline has no form on trees.
    """
    baseline = matched_rule(rule.chain)
    if baseline is None:
        return None
    shared = {key: baseline.options[key] for key in valid_tree_options(baseline.name)}
    return get_tree_rule(baseline.name, baseline.param, **shared)
