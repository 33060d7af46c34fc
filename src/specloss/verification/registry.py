"""All rules, by the names used in configs, files and tables. A new rule is one function and one entry here."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from functools import partial
from typing import Any

from specloss.verification import cascades, rules
from specloss.verification.allowed import eta_set, min_p_set
from specloss.verification.blockwise import BlockwiseRule
from specloss.verification.rule import COUPLINGS, Option, Range, Rule, RuleSpec

UNIT = Range(0, 1)
OPEN_UNIT = Range(0, 1, open_low=True, open_high=True)
LENIENCE = Range(0, 1, open_low=True)
BASES = (0.1, 0.3, 0.5, 0.7, 0.9)
EPSILONS = (0.05, 0.10, 0.15, 0.20, 0.25)
FIFTHS = (0.2, 0.4, 0.6, 0.8)

COUPLING = Option("native", COUPLINGS)
RESIDUAL = Option("target", ("target", "truncated", "draft", "argmax"))
DELTA = Option(None, LENIENCE)
BONUS = Option("p", ("p", "r"))
P_BASE = Option(0.5, UNIT)


def _min_p(p, p_base, options):
    return min_p_set(p, p_base)


def _eta(p, epsilon, options):
    return eta_set(p, epsilon, options["delta"])


def _min_p_option(p, l, options):  # noqa: E741
    return min_p_set(p, options["p_base"])


_min_p_rule = partial(RuleSpec, param="p_base", valid=UNIT, grid=BASES, allowed=_min_p)
_eta_rule = partial(RuleSpec, param="epsilon", valid=OPEN_UNIT, grid=EPSILONS, allowed=_eta)
_lenience_rule = partial(RuleSpec, param="l", valid=LENIENCE, grid=FIFTHS)
_cascade_rule = partial(RuleSpec, param="alpha", valid=UNIT, grid=BASES, in_paper=False)
_capped_rule = partial(_lenience_rule, allowed=_min_p_option)

RULES: dict[str, RuleSpec] = {
    "standard_sd": RuleSpec(function=rules.standard_sd, matched_baseline=None, exact=True),
    "min_p_sampling": _min_p_rule(function=rules.min_p_sampling, exact=True, truncates=True),
    "eta_sampling": _eta_rule(function=rules.eta_sampling, exact=True, truncates=True, options={"delta": DELTA}),
    "spec_cascade": _min_p_rule(
        function=rules.spec_cascade, matched_baseline="min_p_sampling", options={"residual": RESIDUAL}
    ),
    "typical_acceptance": _eta_rule(
        function=rules.typical_acceptance,
        matched_baseline="eta_sampling",
        baseline_options=("delta",),
        options={"residual": RESIDUAL, "delta": DELTA},
    ),
    "lenience": _lenience_rule(function=rules.lenience),
    "cos": RuleSpec(
        function=rules.cos,
        param="lambda",
        valid=UNIT,
        grid=FIFTHS,
        ensemble=rules.cos_ensemble,
        options={"bonus": BONUS},
    ),
    "cos_contrastive": RuleSpec(
        function=rules.cos_contrastive,
        param="mu",
        valid=Range(0, 100),
        grid=(0.1, 0.3, 0.5),
        in_paper=False,
        ensemble=rules.contrastive_ensemble,
        options={"bonus": BONUS},
    ),
    "adaptive_interpolation": _lenience_rule(function=rules.adaptive_interpolation),
    "overshoot_ceiling": _lenience_rule(function=rules.overshoot_ceiling),
    "capped_truncation": _capped_rule(function=rules.capped_truncation, options={"p_base": P_BASE}),
    # Table 6: where the ceiling applies x what happens to the tail that does not overshoot.
    **{
        f"cap_{cap}_{tail}_tail": _capped_rule(
            function=partial(rules.capped_truncation, cap=cap, tail=tail), options={"p_base": P_BASE}
        )
        for cap in rules.CAPS
        for tail in rules.TAILS
    },
    "cascade_chow": _cascade_rule(function=cascades.cascade_chow),
    "cascade_diff": _cascade_rule(function=cascades.cascade_diff),
    "cascade_opt": _cascade_rule(function=cascades.cascade_opt),
    "cascade_token_v1": _cascade_rule(function=cascades.cascade_token_v1),
    "cascade_token_v2": _cascade_rule(function=cascades.cascade_token_v2),
    "cascade_token_v3": _cascade_rule(function=cascades.cascade_token_v3),
    "blockwise": RuleSpec(function=None, build=BlockwiseRule, exact=True),
}


def valid_options(name: str) -> dict[str, Option]:
    """The options of the registered rule `name`; `coupling` belongs to every token rule."""
    spec = RULES[name]
    return {**spec.options, **({} if spec.build else {"coupling": COUPLING})}


def look_up(name: str, param: float | None = None) -> RuleSpec:
    """The registry's entry for `name`, after checking `param` against it; raises as `get_rule` does."""
    if name not in RULES:
        near = get_close_matches(str(name), RULES, n=1, cutoff=0.3)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(f"unknown rule {name!r}: {hint}known rules: {', '.join(RULES)}")
    spec = RULES[name]
    if spec.param is None and param is not None:
        raise ValueError(f"{name} takes no parameter, got {param!r}")
    if spec.param is not None and param not in spec.valid:
        problem = "is missing" if param is None else f"is out of range: {param!r}"
        raise ValueError(f"{name}: parameter {spec.param} {problem}; valid: {spec.valid.describe(spec.param)}")
    return spec


def is_gate(spec: RuleSpec) -> bool:
    """Whether a rule accepts whatever a truncated target allows without sampling from it."""
    baseline = spec.matched_baseline
    return not spec.truncates and baseline is not None and RULES[baseline].truncates


def get_rule(name: str, param: float | None = None, **options: Any) -> Rule:
    """The rule `name` with its parameter and options bound and checked.

    Raises ValueError, in one line, for an unknown name, a parameter that is missing, superfluous or out of range,
    and an unknown or invalid option; the line says what is valid.
    """
    spec = look_up(name, param)
    bound = bind_options(name, valid_options(name), options)
    return (spec.build or Rule)(
        name, spec, None if param is None else float(param), bound, _baseline(spec, param, bound)
    )


def _baseline(spec: RuleSpec, param: float | None, options: Mapping[str, Any]) -> Rule | None:
    """What a rule is compared with: its baseline at the same parameter and with the options that they share."""
    if spec.matched_baseline is None:
        return None
    shared = {key: options[key] for key in spec.baseline_options}
    return get_rule(spec.matched_baseline, param if RULES[spec.matched_baseline].param else None, **shared)


def matched_rule(rule: Rule) -> Rule | None:
    """The baseline to compare `rule` with, at the same parameter and shared options; None for standard SD."""
    return rule.baseline


def bind_options(name: str, known: Mapping[str, Option], options: Mapping[str, Any]) -> dict[str, Any]:
    """All of the `known` options, those in `options` checked and the rest at their defaults; raises as `get_rule`."""
    listing = "; ".join(option.describe(key) for key, option in known.items()) or "none"
    for key, value in options.items():
        if key not in known:
            raise ValueError(f"{name} has no option {key!r}; valid options: {listing}")
        derived = value is None and known[key].default is None
        if not derived and value not in known[key].valid:
            raise ValueError(f"{name}: option {key} is invalid: {value!r}; valid: {known[key].describe(key)}")
    return {key: options.get(key, option.default) for key, option in known.items()}
