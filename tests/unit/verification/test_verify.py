"""`verify` on batches: sampling, padding, impossible input, and what is refused."""

from __future__ import annotations

import pytest
import torch
from exactness import EXACT, assert_close
from verification_cases import DEFAULTS, pairs, random_distributions

from specloss.verification import distortion, get_rule
from specloss.verification.rule import at_least_float32

BATCH, GAMMA, VOCAB = 40, 4, 5


def draft_block(seed: int = 0, batch: int = BATCH, gamma: int = GAMMA, vocab: int = VOCAB):
    """p, q, tokens ~ q, uniforms for a batch of blocks."""
    generator = torch.Generator().manual_seed(seed)
    p, q = pairs((batch, gamma + 1, vocab), seed)
    q = q[:, :-1]
    tokens = torch.multinomial(q.reshape(-1, vocab), 1, generator=generator).view(batch, gamma)
    return p, q, tokens, torch.rand(batch, gamma, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("rule", DEFAULTS, ids=str)
def test_sampled_first_tokens_agree_with_the_closed_form(rule):
    draws = 100_000
    generator = torch.Generator().manual_seed(3)
    p, q = (random_distributions((1, n, 4), generator) for n in (3, 2))
    p, q = 0.8 * p + 0.05, 0.8 * q + 0.05  # no cell too rare for a chi-square test
    tokens = torch.stack([torch.multinomial(q[0, i], draws, True, generator=generator) for i in range(2)], 1)
    uniforms = torch.rand(draws, 2, generator=generator, dtype=torch.float64)
    full = torch.full((draws,), 2)
    verdict = rule.verify(p.expand(draws, -1, -1), q.expand(draws, -1, -1), tokens, full, uniforms)
    drawn = torch.multinomial(verdict.next, 1, generator=generator).squeeze(-1)
    first = torch.where(verdict.accepted > 0, tokens[:, 0], drawn)
    expected = draws * (rule.induced(p[:, :-1], q)[0, 0] if rule.per_token else p[0, 0])
    counts = torch.bincount(first, minlength=4)
    some = expected > 0
    assert counts[~some].sum() == 0
    chi_square = ((counts - expected) ** 2 / expected)[some].sum()
    assert chi_square < 27  # 3 degrees of freedom: p = 6e-6, so less than 2e-4 over all rules


@pytest.mark.parametrize("rule", DEFAULTS, ids=str)
def test_padding_of_any_content_changes_nothing(rule):
    p, q, tokens, uniforms = draft_block()
    for drafted in range(GAMMA + 1):
        short = rule.verify(
            p[:, : drafted + 1],
            q[:, :drafted],
            tokens[:, :drafted],
            torch.full((BATCH,), drafted),
            uniforms[:, :drafted],
        )
        for garbage in (0.0, torch.nan, torch.inf, -7.0):
            dirty = [x.clone() for x in (p, q, tokens, uniforms)]
            dirty[0][:, drafted + 1 :] = garbage
            dirty[1][:, drafted:] = garbage
            dirty[2][:, drafted:] = -1
            dirty[3][:, drafted:] = 0
            verdict = rule.verify(*dirty[:3], torch.full((BATCH,), drafted), dirty[3])
            assert torch.equal(verdict.accepted, short.accepted)
            torch.testing.assert_close(verdict.next, short.next, **EXACT)
            torch.testing.assert_close(verdict.accept_prob[:, :drafted], short.accept_prob, **EXACT)
            assert (verdict.accept_prob[:, drafted:] == 0).all()


@pytest.mark.parametrize("rule", DEFAULTS, ids=str)
def test_rows_of_a_batch_do_not_touch_each_other(rule):
    p, q, tokens, uniforms = draft_block(seed=1)
    drafted = torch.arange(BATCH) % (GAMMA + 1)
    together = rule.verify(p, q, tokens, drafted, uniforms)
    assert (together.accepted <= drafted).all() and together.accepted.dtype == torch.int64
    torch.testing.assert_close(together.next.sum(-1), torch.ones(BATCH, dtype=p.dtype), **EXACT)
    for row in range(BATCH):
        mine = slice(row, row + 1)
        alone = rule.verify(p[mine], q[mine], tokens[mine], drafted[mine], uniforms[mine])
        assert torch.equal(alone.accepted, together.accepted[mine])
        assert torch.equal(alone.next, together.next[mine])


@pytest.mark.parametrize("rule", DEFAULTS, ids=str)
def test_a_token_that_the_draft_cannot_propose_is_rejected(rule):
    p = torch.tensor([[[0.5, 0.5], [0.5, 0.5]]])
    q = torch.tensor([[[1.0, 0.0]]])
    verdict = rule.verify(p, q, torch.tensor([[1]]), torch.tensor([1]), torch.zeros(1, 1).double())
    assert verdict.accepted.item() == 0 and verdict.accept_prob.item() == 0
    assert torch.isfinite(verdict.next).all()


@pytest.mark.parametrize("name", ["standard_sd", "lenience", "cos", "blockwise", "capped_truncation"])
def test_agreeing_models_keep_every_block_whole(name):
    rule = next(rule for rule in DEFAULTS if rule.name == name)
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        p = draft_block(seed=2)[0].to(dtype)
        tokens = torch.multinomial(p[:, :-1].reshape(-1, VOCAB).float(), 1).view(BATCH, GAMMA)
        uniforms = torch.full((BATCH, GAMMA), 1 - 2.0**-53, dtype=torch.float64)
        verdict = rule.verify(p, p[:, :-1].clone(), tokens, torch.full((BATCH,), GAMMA), uniforms)
        assert (verdict.accepted == GAMMA).all() and (verdict.accept_prob == 1).all()
        assert_close(verdict.next, *at_least_float32(p[:, -1]), terms=2 * VOCAB)


def test_the_ensemble_bonus_is_drawn_from_r_at_the_end_of_each_row():
    rule = get_rule("cos", 0.5, bonus="r")
    p, q, tokens, _ = draft_block(seed=4)
    drafted = torch.arange(BATCH) % (GAMMA + 1)
    bonus_q = random_distributions((BATCH, VOCAB), torch.Generator().manual_seed(0))
    verdict = rule.verify(p, q, tokens, drafted, torch.zeros(BATCH, GAMMA).double(), bonus_q)
    whole = verdict.accepted == drafted
    expected = 0.5 * p[torch.arange(BATCH), drafted] + 0.5 * bonus_q
    torch.testing.assert_close(verdict.next[whole], expected[whole], **EXACT)
    with pytest.raises(ValueError, match="bonus=r needs the draft's distribution"):
        rule.verify(p, q, tokens, drafted, torch.zeros(BATCH, GAMMA).double())


@pytest.mark.parametrize("rule", DEFAULTS, ids=str)
def test_shapes_that_do_not_fit_are_refused(rule):
    p, q, tokens, uniforms = draft_block()
    with pytest.raises(ValueError, match=r"verify needs p \[batch, gamma \+ 1, vocab\]"):
        rule.verify(p[:, :-1], q, tokens, torch.full((BATCH,), GAMMA), uniforms)


def test_a_block_rule_has_no_mass_at_one_position_and_says_so():
    p, q, *_ = draft_block()
    rule = get_rule("blockwise")
    assert not rule.per_token
    for attempt in (rule, rule.induced, rule.acceptance):
        with pytest.raises(TypeError, match=r"has no \(y, rho\) at one position; use verify\(\)"):
            attempt(p[:, :-1], q)


@pytest.mark.parametrize("rule", DEFAULTS, ids=str)
def test_verification_never_waits_for_the_device(rule):
    p, q = torch.empty(2, 4, 7, device="meta"), torch.empty(2, 3, 7, device="meta")
    whole = torch.empty(2, dtype=torch.int64, device="meta")
    tokens = torch.empty(2, 3, dtype=torch.int64, device="meta")
    uniforms = torch.empty(2, 3, dtype=torch.float64, device="meta")
    verdict = rule.verify(p, q, tokens, whole, uniforms)  # a value read back to Python would raise here
    assert verdict.next.shape == (2, 7) and verdict.accepted.shape == (2,)
    assert all(x.shape == (2, 3) for x in distortion(p[:, :-1], q, rule).values())
