"""The closed forms against sums written out token by token."""

from __future__ import annotations

import math

import pytest
import torch
from verification_cases import DEFAULTS, TOKEN_DEFAULTS, pairs

from specloss.verification import KEYS, KEYS_OF_P_AND_Q, distortion, get_rule

P, Q = pairs((90, 4), seed=21)


def kl(a: list[float], b: list[float]) -> float:
    return sum(math.inf if y == 0 else x * math.log(x / y) for x, y in zip(a, b, strict=True) if x > 0)


def tv(a: list[float], b: list[float]) -> float:
    return sum(abs(x - y) for x, y in zip(a, b, strict=True)) / 2


@pytest.mark.parametrize("rule", TOKEN_DEFAULTS, ids=str)
def test_every_quantity_is_the_sum_it_says_it_is(rule):
    found = distortion(P, Q, rule)
    assert tuple(found) == KEYS
    y, _ = rule(P, Q)
    pi, target, allowed = rule.induced(P, Q), rule.target(P, Q), rule.allowed(P)
    for i in range(len(P)):
        p, q, out, aim, mass = (x[i].tolist() for x in (P, Q, pi, target, y))
        inside = [True] * 4 if allowed is None else allowed[i].tolist()
        expected = {
            "alpha": sum(mass),
            "tv_pq": tv(p, q),
            "entropy_p": -sum(v * math.log(v) for v in p if v > 0),
            "tv_pi_p": tv(out, p),
            "kl_pi_p": kl(out, p),
            "tv_pi_target": tv(out, aim),
            "kl_pi_target": kl(out, aim),
            "overshoot": sum(max(a - b, 0) for a, b in zip(out, p, strict=True)),
            "allowed_mass": sum(v for v, a in zip(p, inside, strict=True) if a),
            "coupling_loss": sum(min(a, b) for a, b in zip(q, out, strict=True)) - sum(mass),
        }
        for key in KEYS:
            assert found[key][i].item() == pytest.approx(expected[key], rel=0, abs=1e-12), (rule, key)


def test_lossless_rules_distort_nothing():
    for name, param in (("standard_sd", None), ("min_p_sampling", 0.5), ("eta_sampling", 0.1), ("lenience", 1.0)):
        found = distortion(P, Q, get_rule(name, param))
        for key in ("tv_pi_target", "coupling_loss"):
            assert (found[key] < 1e-12).all(), (name, key)


def test_mass_that_verification_has_computed_can_be_given_instead_of_computed_again():
    for rule in TOKEN_DEFAULTS:
        mass = rule(P, Q)
        fresh, reused = distortion(P, Q, rule), distortion(P, Q, rule, mass)
        aim = rule.target(P, Q) if rule.compares_truncated else None
        bare = distortion(P, Q, mass, target=aim, allowed=rule.allowed(P))
        for key in KEYS:
            assert torch.equal(fresh[key], reused[key]) and torch.equal(fresh[key], bare[key])


@pytest.mark.parametrize("rule", DEFAULTS, ids=str)
def test_each_quantity_can_be_had_alone(rule):
    everything = distortion(P, Q, rule)
    for key in KEYS:
        alone = distortion(P, Q, rule, keys=[key])
        assert set(alone) == {key} & set(everything)
        assert all(torch.equal(value, everything[key]) for value in alone.values())


def test_block_rules_have_only_what_p_and_q_say():
    assert set(distortion(P, Q, get_rule("blockwise"))) == set(KEYS_OF_P_AND_Q)


def test_an_unknown_quantity_is_refused():
    with pytest.raises(ValueError, match="unknown distortion 'tvd'; known: alpha"):
        distortion(P, Q, get_rule("standard_sd"), keys=["tvd"])


def test_a_draft_token_outside_the_targets_support_costs_infinite_kl_and_finite_variation():
    p, q = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    found = distortion(p, q, get_rule("cos", 0.4))
    assert found["kl_pi_p"].item() == math.inf and found["tv_pi_p"].item() == pytest.approx(0.4, rel=0, abs=1e-12)
