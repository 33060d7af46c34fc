"""Warpers keep what transformers' keep; draws follow the distribution."""

import pytest
import torch
from exactness import EXACT, rounding
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from specloss.decoding.warp import Warper, draw


@pytest.mark.parametrize("temperature", [0.5, 0.7, 1.0, 1.3])
@pytest.mark.parametrize("top_k", [0, 1, 5, 20, 100])
@pytest.mark.parametrize("top_p", [0.1, 0.8, 0.95, 1.0])
def test_warped_distributions_are_those_of_transformers(temperature, top_k, top_p):
    logits = torch.randn(40, 60, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3
    expected = TemperatureLogitsWarper(temperature)(None, logits)
    if top_k:
        expected = TopKLogitsWarper(top_k)(None, expected)
    if top_p < 1:
        expected = TopPLogitsWarper(top_p)(None, expected)
    warper, expected = Warper(temperature, top_k, top_p), expected.softmax(-1)
    torch.testing.assert_close(warper(logits), expected, **EXACT)
    single = warper(logits.float())
    assert single.dtype == torch.float32 and torch.equal(single > 0, expected > 0)
    # the logits themselves are rounded: a share of their size, over the temperature, of each probability
    off = rounding(logits / temperature, 1) + rounding(torch.ones(1), 2 * 60)
    torch.testing.assert_close(single, expected.float(), rtol=0, atol=off)


def test_tokens_tied_with_the_kth_are_kept():
    assert Warper(1.0, top_k=2)(torch.tensor([3.0, 1.0, 1.0, 0.0])).count_nonzero() == 3


def test_temperature_zero_is_one_hot_at_the_first_maximum():
    assert Warper(0)(torch.tensor([[1.0, 5.0, 5.0]])).tolist() == [[0, 1, 0]]


@pytest.mark.parametrize("bad", [{"temperature": -1}, {"temperature": float("nan")}, {"top_k": -1}, {"top_p": 0}])
def test_settings_out_of_range_are_refused_by_name(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        Warper(**bad)


def test_a_draw_inverts_the_cumulative_sum_and_never_hits_zero_mass():
    distribution = torch.tensor([0.0, 0.25, 0.0, 0.5, 0.25, 0.0])
    uniform = torch.tensor([0.0, 0.2499, 0.25, 0.74, 0.75, 1 - 2**-53], dtype=torch.float64)
    assert draw(distribution.expand(6, -1), uniform).tolist() == [1, 1, 3, 3, 4, 4]


def test_a_draw_survives_a_long_vocabulary_whose_float32_sum_is_off():
    distribution = torch.full((1, 152_064), 1 / 152_064)
    assert draw(distribution, torch.tensor([1 - 2**-53], dtype=torch.float64)).item() == 152_063
