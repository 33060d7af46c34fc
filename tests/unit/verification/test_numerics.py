"""Properties in the precisions and vocabulary sizes of real models."""

from __future__ import annotations

import pytest
import torch
from exactness import rounding
from hypothesis import given, settings
from hypothesis import strategies as st
from verification_cases import DEFAULTS, TOKEN_DEFAULTS, TOKEN_RULES, params

from specloss.verification import RULES, distortion, get_rule, valid_options
from specloss.verification.rule import Range, at_least_float32

VOCABULARY = 152_064  # Qwen2.5, padded
# torch sums in cascades: a term goes through some hundreds of additions at this length; normalised, then summed
SUM = rounding(torch.ones(1), terms=2 * 400)


@st.composite
def distributions(draw, positions: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    """(p, q) [positions, vocab], float32 or bfloat16, from flat to certain, related or not, truncated or not."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    vocab = draw(st.integers(2, 300))
    sharpness = [draw(st.sampled_from([0.0, 1.0, 10.0, 100.0])) for _ in range(2)]
    logits = torch.randn(2, positions, vocab, generator=generator)
    related = draw(st.sampled_from([0.0, 0.9, 1.0]))
    logits[1] = related * logits[0] + (1 - related) * logits[1]
    both = torch.stack([(logits[i] * sharpness[i]).softmax(-1) for i in range(2)])
    if draw(st.booleans()):  # top-k, as the warpers do
        top = both.topk(min(vocab, 20), -1)
        both = torch.zeros_like(both).scatter_(-1, top.indices, top.values)
        both /= both.sum(-1, keepdim=True)
    both = both.to(draw(st.sampled_from([torch.float32, torch.bfloat16])))
    return both[0], both[1]


@st.composite
def rules(draw, name: str):
    """The rule `name` with any parameter and any options."""
    spec = RULES[name]
    param = None
    if spec.valid is not None:
        ends = params(name)
        param = draw(st.sampled_from(ends) | st.floats(min(ends), min(max(ends), 10.0)))
    options = {
        key: draw(st.floats(0.01, 1.0)) if isinstance(option.valid, Range) else draw(st.sampled_from(option.valid))
        for key, option in valid_options(name).items()
    }
    return get_rule(name, param, **options)


def check(rule, p, q):
    y, rho = rule(p, q)
    (wide,) = at_least_float32(q)
    assert y.dtype == rho.dtype == torch.float32
    assert (y >= 0).all() and (y <= wide).all(), rule
    assert torch.isfinite(rho).all() and (rho >= 0).all(), rule
    assert ((rho.sum(-1) - 1).abs() < SUM).all(), rule
    pi = rule.induced(p, q)
    assert torch.isfinite(pi).all() and (pi >= 0).all(), rule
    for key, value in distortion(p, q, rule).items():
        assert not value.isnan().any(), (rule, key)
        assert key.startswith("kl") or torch.isfinite(value).all(), (rule, key)
        assert (value >= 0).all(), (rule, key)


@pytest.mark.parametrize("name", TOKEN_RULES)
@settings(max_examples=25, deadline=None, derandomize=True, database=None)
@given(data=st.data())
def test_mass_and_residual_are_sound_in_single_and_half_precision(name, data):
    p, q = data.draw(distributions())
    check(data.draw(rules(name)), p, q)


@pytest.fixture(scope="module")
def large() -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    # In double precision: the softmax of float32 logits is itself off by 1.5e-5 at this length.
    logits = torch.randn(2, 3, VOCABULARY, generator=generator, dtype=torch.float64)
    logits[1] = 0.8 * logits[0] + 0.2 * logits[1]
    p, q = (logits * torch.tensor([[0.0], [4.0], [40.0]])).softmax(-1)
    q[1] = torch.where(q[1] >= q[1].topk(20).values[-1], q[1], 0)
    q[1] /= q[1].sum()
    return [(p.to(dtype), q.to(dtype)) for dtype in (torch.float32, torch.bfloat16)]


@pytest.mark.parametrize("rule", TOKEN_DEFAULTS, ids=str)
def test_sound_at_the_vocabulary_of_a_real_model(rule, large):
    for p, q in large:
        check(rule, p, q)
        check(rule, p, p.clone())


@pytest.mark.parametrize("rule", DEFAULTS, ids=str)
def test_verify_is_sound_at_the_vocabulary_of_a_real_model(rule, large):
    for p, q in large:
        p, q = p.unsqueeze(0), q[:2].unsqueeze(0)
        tokens = q.float().argmax(-1)
        for u in (0.0, 0.5, 1 - 1e-12):
            verdict = rule.verify(p, q, tokens, torch.tensor([2]), torch.full((1, 2), u, dtype=torch.float64))
            assert torch.isfinite(verdict.accept_prob).all() and torch.isfinite(verdict.next).all()
            assert (verdict.next.sum(-1) - 1).abs() < SUM
