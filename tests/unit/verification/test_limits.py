"""Statements of fact that relate the rules to each other and to their limits."""

from __future__ import annotations

import pytest
import torch
from exactness import EXACT
from verification_cases import pairs

from specloss.verification import get_rule
from specloss.verification.distributions import induced

P, Q = pairs((900, 5), seed=11)
FIFTHS = (0.2, 0.4, 0.6, 0.8)


def equal(a, b):
    for left, right in zip(a, b, strict=True):
        torch.testing.assert_close(left, right, **EXACT)


@pytest.mark.parametrize("l", FIFTHS)
def test_lenience_never_emits_more_than_p_over_l(l):  # noqa: E741
    assert (get_rule("lenience", l).induced(P, Q) <= P / l + 1e-12).all()


@pytest.mark.parametrize("l", FIFTHS)
def test_lenience_interpolates_where_the_draft_is_below_the_target_and_caps_elsewhere(l):  # noqa: E741
    pi, mixture = (get_rule(name, l).induced(P, Q) for name in ("lenience", "adaptive_interpolation"))
    torch.testing.assert_close(pi, torch.where(Q <= P, mixture, torch.minimum(Q, P / l)), **EXACT)


@pytest.mark.parametrize("l", [*FIFTHS, 1.0])
def test_the_adaptive_interpolation_accepts_as_much_as_the_ceiling(l):  # noqa: E741
    mixture, ceiling = (get_rule(name, l).acceptance(P, Q) for name in ("adaptive_interpolation", "overshoot_ceiling"))
    torch.testing.assert_close(mixture, ceiling, **EXACT)


@pytest.mark.parametrize("l", FIFTHS)
def test_cos_is_the_interpolation_of_fixed_strength(l):  # noqa: E741
    torch.testing.assert_close(get_rule("cos", 1 - l).induced(P, Q), Q + l * (P - Q), **EXACT)


@pytest.mark.parametrize("l", [*FIFTHS, 1.0, 1e-6])
def test_lenience_and_the_overshoot_ceiling_coincide_on_a_chain(l):  # noqa: E741
    equal(get_rule("lenience", l)(P, Q), get_rule("overshoot_ceiling", l)(P, Q))
    equal(get_rule("lenience", l)(P, Q), get_rule("cap_everywhere_keep_tail", l)(P, Q))


@pytest.mark.parametrize("name", ["lenience", "overshoot_ceiling", "adaptive_interpolation"])
def test_full_lenience_is_standard_sd(name):
    equal(get_rule(name, 1.0)(P, Q), get_rule("standard_sd")(P, Q))


def test_cos_goes_from_standard_sd_to_the_draft():
    equal(get_rule("cos", 0.0)(P, Q), get_rule("standard_sd")(P, Q))
    draft = get_rule("cos", 1.0)
    torch.testing.assert_close(draft.induced(P, Q), Q, **EXACT)
    assert torch.equal(draft(P, Q)[0], Q)


def test_an_even_contrast_is_the_target_on_the_support_of_the_draft():
    r = get_rule("cos_contrastive", 0.0).induced(P, Q)
    kept = P * (Q > 0)
    shared = kept.sum(-1) > 0
    torch.testing.assert_close(r[shared], (kept / kept.sum(-1, keepdim=True))[shared], **EXACT)
    torch.testing.assert_close(r[~shared], P[~shared], **EXACT)


def test_p_base_0_accepts_everything_and_truncates_nothing():
    assert torch.equal(get_rule("spec_cascade", 0.0)(P, Q)[0], Q)
    torch.testing.assert_close(get_rule("min_p_sampling", 0.0).induced(P, Q), P, **EXACT)


def test_p_base_1_allows_only_the_modes():
    assert torch.equal(get_rule("min_p_sampling", 1.0).allowed(P), P.amax(-1, keepdim=True) == P)


def test_spec_cascade_emits_the_drafts_allowed_part_and_the_target_for_the_rest():
    rule = get_rule("spec_cascade", 0.5)
    kept = Q * rule.allowed(P)
    expected = kept + (1 - kept.sum(-1, keepdim=True)) * P
    torch.testing.assert_close(rule.induced(P, Q), expected, **EXACT)


def test_the_draft_residual_gives_the_renormalised_draft_of_the_papers_text():
    rule = get_rule("spec_cascade", 0.5, residual="draft")
    kept = Q * rule.allowed(P)
    some = kept.sum(-1) > 1e-6
    torch.testing.assert_close(rule.induced(P, Q)[some], (kept / kept.sum(-1, keepdim=True))[some], **EXACT)


def test_token_v3_is_spec_cascade_with_maximal_coupling():
    deferral, gate = get_rule("cascade_token_v3", 0.5), get_rule("spec_cascade", 0.5, coupling="maximal")
    torch.testing.assert_close(deferral.induced(P, Q), gate.induced(P, Q), **EXACT)
    torch.testing.assert_close(deferral(P, Q)[0], gate(P, Q)[0], **EXACT)


def test_the_eta_set_always_holds_the_mode_even_on_flat_distributions():
    flat = torch.full((1, 1000), 1e-3)
    for p in (P, flat):
        for delta in (None, 1.0):
            assert get_rule("typical_acceptance", 0.999, delta=delta).allowed(p).any(-1).all()


def test_capped_truncation_is_the_draft_inside_and_lenience_outside():
    rule = get_rule("capped_truncation", 0.4, p_base=0.3)
    y, _ = rule(P, Q)
    torch.testing.assert_close(y, torch.where(rule.allowed(P), Q, torch.minimum(Q, P / 0.4)), **EXACT)
    equal(rule(P, Q), get_rule("cap_outside_keep_tail", 0.4, p_base=0.3)(P, Q))
    torch.testing.assert_close(get_rule("cap_nowhere_keep_tail", 0.4).induced(P, Q), Q, **EXACT)


def test_dropping_the_tail_drops_just_the_tokens_outside_that_do_not_overshoot():
    for cap in ("nowhere", "inside", "outside", "everywhere"):
        kept, dropped = (get_rule(f"cap_{cap}_{tail}_tail", 0.4) for tail in ("keep", "drop"))
        harmless = ~kept.allowed(P) & (Q <= P / 0.4)
        expected = kept(P, Q)[0].masked_fill(harmless, 0.0)
        torch.testing.assert_close(dropped(P, Q)[0], expected, **EXACT)


def test_a_larger_parameter_never_raises_the_acceptance_of_lenience_or_a_gate():
    for name, grid in (("lenience", FIFTHS), ("spec_cascade", FIFTHS), ("adaptive_interpolation", FIFTHS)):
        rates = torch.stack([get_rule(name, value).acceptance(P, Q) for value in grid])
        assert (rates.diff(dim=0) <= 1e-12).all(), name


def test_a_parameter_given_to_the_call_replaces_the_bound_one():
    equal(get_rule("lenience", 0.2)(P, Q, 0.8), get_rule("lenience", 0.8)(P, Q))


def test_bonus_is_truncated_for_the_baselines_and_the_ensemble_for_cos_when_asked():
    assert get_rule("spec_cascade", 0.5).bonus(P) is P
    baseline = get_rule("min_p_sampling", 0.5)
    torch.testing.assert_close(baseline.bonus(P), baseline.target(P, Q), **EXACT)
    for name in ("cos", "cos_contrastive"):
        assert get_rule(name, 0.4).bonus(P) is P
        mixed = get_rule(name, 0.4, bonus="r")
        assert mixed.bonus_needs_q
        torch.testing.assert_close(mixed.bonus(P, Q), induced(*mixed(P, Q)), **EXACT)
        with pytest.raises(ValueError, match="needs the draft's distribution at the bonus position"):
            mixed.bonus(P)
