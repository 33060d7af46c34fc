"""The ragged cache gives what an ordinary forward gives, whatever was rolled back."""

import pytest
import torch
from exactness import assert_close, sums_of

from specloss.models.calling.cache import RaggedCache


@pytest.fixture(params=["exact_pair", "pair"])
def pair(request):
    return request.getfixturevalue(request.param)


def mask(slots, visible, dtype):
    hidden = (torch.arange(visible) > slots.unsqueeze(-1)).unsqueeze(1)
    return torch.zeros(hidden.shape, dtype=dtype).masked_fill(hidden, -torch.inf)


@torch.inference_mode()
def test_logits_match_ordinary_forwards_after_random_rollbacks(pair):
    model, generator = pair.target, torch.Generator().manual_seed(0)
    rows, time, new = 5, 96, 6
    cache = RaggedCache(model.config.num_hidden_layers, rows, time, pair.device)
    ids = torch.randint(3, pair.vocab, (rows, time), generator=generator)
    length = torch.randint(2, 9, (rows,), generator=generator)
    at = torch.arange(int(length.max())).expand(rows, -1)
    fill = cache.fill(torch.arange(rows), at)
    hidden = mask(at, at.shape[1], model.dtype)
    model(ids[:, : at.shape[1]], attention_mask=hidden, position_ids=at, cache=fill, use_cache=True)
    for _ in range(8):
        ids.scatter_(
            1, length[:, None] + torch.arange(new), torch.randint(3, pair.vocab, (rows, new), generator=generator)
        )
        at = length[:, None] + torch.arange(new)
        hidden = mask(at, 80, model.dtype)
        got = model(
            ids.gather(1, at), attention_mask=hidden, position_ids=at, cache=cache.at(at, 80), use_cache=True
        ).logits
        for row in range(rows):
            whole = model(ids[row : row + 1, : int(at[row, -1]) + 1]).logits[0, -new:]
            assert_close(got[row], whole, sums_of(model.config, 80))
        length += torch.randint(1, new + 1, (rows,), generator=generator)  # the rest is rejected


@torch.inference_mode()
def test_rows_that_leave_do_not_disturb_the_others(pair):
    model = pair.target
    ids = torch.randint(3, pair.vocab, (4, 12), generator=torch.Generator().manual_seed(1))
    cache = RaggedCache(model.config.num_hidden_layers, 4, 32, pair.device)
    at = torch.arange(10).expand(4, -1)
    hidden = mask(at, 10, model.dtype)
    model(ids[:, :10], attention_mask=hidden, position_ids=at, cache=cache.fill(torch.arange(4), at))
    keep = torch.tensor([3, 1])
    cache.keep(keep)
    at = torch.tensor([[10, 11], [10, 11]])
    hidden = mask(at, 32, model.dtype)
    got = model(ids[keep][:, 10:], attention_mask=hidden, position_ids=at, cache=cache.at(at, 32)).logits
    assert_close(got, model(ids[keep]).logits[:, 10:], sums_of(model.config, 32))
