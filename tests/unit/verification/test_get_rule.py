"""Bad names, parameters and options are refused in one line that says what is valid."""

from __future__ import annotations

import math

import pytest
import torch

from specloss.verification import (
    RULES,
    TREE_FORMS,
    RuleSpec,
    get_rule,
    get_tree_rule,
    matched_rule,
    matched_tree_rule,
    valid_options,
)
from specloss.verification.distributions import speculative, truncate
from specloss.verification.registry import is_gate
from specloss.verification.rule import Range

REFUSED = [
    (("leniense", 0.4), {}, ["unknown rule 'leniense'", "did you mean 'lenience'?", "standard_sd"]),
    (("lenience",), {}, ["lenience: parameter l is missing", "0 < l <= 1"]),
    (("standard_sd", 0.4), {}, ["standard_sd takes no parameter, got 0.4"]),
    (("blockwise", 0.4), {}, ["blockwise takes no parameter"]),
    (("lenience", 0), {}, ["out of range: 0", "0 < l <= 1"]),
    (("lenience", 1.5), {}, ["out of range: 1.5"]),
    (("lenience", math.nan), {}, ["out of range: nan"]),
    (("lenience", "0.4"), {}, ["out of range: '0.4'"]),
    (("lenience", True), {}, ["out of range: True"]),
    (("min_p_sampling", -0.1), {}, ["0 <= p_base <= 1"]),
    (("eta_sampling", 1), {}, ["0 < epsilon < 1"]),
    (("cos", 1.1), {}, ["0 <= lambda <= 1"]),
    (("cos_contrastive", -1), {}, ["0 <= mu"]),
    (("lenience", 0.4), {"residual": "draft"}, ["no option 'residual'", "coupling native | maximal"]),
    (("spec_cascade", 0.5), {"residual": "q"}, ["residual is invalid: 'q'", "target | truncated | draft | argmax"]),
    (("spec_cascade", 0.5), {"coupling": None}, ["coupling is invalid: None"]),
    (("typical_acceptance", 0.1), {"delta": 2}, ["delta is invalid: 2", "0 < delta <= 1"]),
    (("blockwise",), {"coupling": "maximal"}, ["blockwise has no option 'coupling'; valid options: none"]),
]


@pytest.mark.parametrize(("arguments", "options", "parts"), REFUSED)
def test_refused_in_one_line(arguments, options, parts):
    with pytest.raises(ValueError) as caught:
        get_rule(*arguments, **options)
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message


@pytest.mark.parametrize("name", list(RULES))
def test_every_registered_rule_is_well_formed(name):
    spec = RULES[name]
    for param in spec.grid:
        rule = get_rule(name, param)
        assert rule.name == name and rule.param == param
        assert set(rule.options) == set(valid_options(name))
        baseline = matched_rule(rule)
        assert (baseline is None) == (rule.matched_baseline is None) and (baseline is None or baseline.spec.exact)
        assert str(rule).startswith(name)
    assert (spec.param is None) == (spec.valid is None)
    assert (spec.build or spec.function).__doc__


def test_matched_baselines_follow_the_parameter_and_the_shared_options():
    assert str(matched_rule(get_rule("spec_cascade", 0.7, residual="draft"))).startswith("min_p_sampling(p_base=0.7")
    typical = get_rule("typical_acceptance", 0.1, delta=0.5)
    assert typical.matched_baseline == "eta_sampling" and matched_rule(typical).options["delta"] == 0.5
    assert matched_rule(get_rule("cos", 0.4)).name == "standard_sd"
    assert get_rule("standard_sd").matched_baseline is None and get_rule("blockwise").matched_baseline == "standard_sd"
    lossless = [name for name, spec in RULES.items() if get_rule(name, spec.grid[0]).lossless]
    assert lossless == ["standard_sd", "blockwise"]


def _truncating(name: str) -> RuleSpec:
    """A truncation baseline that keeps the tokens above a fixed probability, and a gate that is matched with it."""

    def allowed(p, floor, options):
        return p >= torch.minimum(torch.as_tensor(floor, dtype=p.dtype), p.amax(-1, keepdim=True))

    shared = {"param": "floor", "valid": Range(0, 1), "grid": (0.1,), "allowed": allowed}
    if name == "floor_sampling":
        return RuleSpec(
            function=lambda p, q, floor: speculative(truncate(p, allowed(p, floor, {})), q),
            exact=True,
            truncates=True,
            **shared,
        )
    return RuleSpec(
        function=lambda p, q, floor: (torch.where(allowed(p, floor, {}), q, 0.0), p),
        matched_baseline="floor_sampling",
        **shared,
    )


def test_a_gate_with_a_new_truncation_baseline_is_compared_with_that_ones_target(monkeypatch):
    monkeypatch.setitem(RULES, "floor_sampling", _truncating("floor_sampling"))
    monkeypatch.setitem(RULES, "floor_gate", _truncating("floor_gate"))
    p = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64)
    gate, baseline = get_rule("floor_gate", 0.2), get_rule("floor_sampling", 0.2)
    assert str(matched_rule(gate)) == str(baseline) and is_gate(gate.spec) and not is_gate(baseline.spec)
    for rule in (gate, baseline):
        assert rule.compares_truncated
        assert torch.allclose(rule.target(p), torch.tensor([0.625, 0.375, 0, 0], dtype=torch.float64), atol=1e-15)


def test_a_baseline_without_a_form_on_trees_is_refused_in_one_line(monkeypatch):
    monkeypatch.setitem(RULES, "floor_sampling", _truncating("floor_sampling"))
    monkeypatch.setitem(RULES, "floor_gate", _truncating("floor_gate"))
    monkeypatch.setitem(TREE_FORMS, "floor_gate", TREE_FORMS["lenience"])
    with pytest.raises(ValueError, match=r"^floor_sampling has no form on trees; rules that have one: [^\n]+$"):
        matched_tree_rule(get_tree_rule("floor_gate", 0.2))
