"""Target and draft, or head, of different types: each attends in its own, and p and q meet in float32."""

from copy import deepcopy
from dataclasses import replace

import pytest
import torch

from specloss import decode
from specloss.models.calling.forward import _LEARNED

TREE = {"total_token": 12, "depth": 3, "top_k": 3}
TYPES = [
    (torch.float64, torch.float32),
    (torch.bfloat16, torch.float32),
    (torch.float32, torch.float16),
]


@torch.inference_mode()
def logits_of(model, ids):
    return model(torch.tensor([ids])).logits[0].double()


@pytest.mark.parametrize("kind", ["pair", "tree_pair"])
@pytest.mark.parametrize("types", TYPES, ids=lambda types: "-".join(str(t).removeprefix("torch.") for t in types))
def test_a_pair_of_two_types_decodes_what_its_target_says_and_logs_what_both_say(request, prompts, kind, types):
    pair = request.getfixturevalue(kind)
    target, draft = (deepcopy(model).to(dtype) for model, dtype in zip((pair.target, pair.draft), types, strict=True))
    mixed = replace(pair, target=target, draft=draft)
    drafting = {"tree": TREE} if kind == "tree_pair" else {"gamma": 2}
    some, settings = prompts[::50], {"temperature": 0, "max_new_tokens": 60, "batch_size": 4, **drafting}
    decoded = decode(mixed, some, **settings)
    for prompt, output in zip(some, decoded.token_ids, strict=True):
        ids = pair.tokenizer(prompt).input_ids
        rows = logits_of(target, ids + output)[len(ids) - 1 : -1]
        slack = 4 * torch.finfo(types[0]).eps * rows.abs().max().item()  # a near tie may fall either way
        assert all((row.max() - row[token]).item() <= slack for row, token in zip(rows, output, strict=True))
    if types == (torch.float64, torch.float32):
        assert decoded.token_ids == decode(replace(mixed, draft=deepcopy(draft).double()), some, **settings).token_ids
    assert decoded.token_ids == decode(mixed, some, **settings).token_ids
    assert _LEARNED[target].recorded and not _LEARNED[target].refused  # by then it is replayed


@pytest.mark.parametrize("types", TYPES, ids=lambda types: "-".join(str(t).removeprefix("torch.") for t in types))
def test_logged_p_and_q_are_those_of_a_fresh_forward_in_each_models_own_type(pair, prompts, types):
    target, draft = (deepcopy(model).to(dtype) for model, dtype in zip((pair.target, pair.draft), types, strict=True))
    mixed = replace(pair, target=target, draft=draft)
    decoded = decode(mixed, prompts[:12], temperature=0.7, gamma=3, max_new_tokens=4, batch_size=5)
    first = [row for row in decoded.steps.to_pylist() if row["step"] == 0]
    for prompt, row in zip(prompts[:12], first, strict=True):
        ids, token = pair.tokenizer(prompt).input_ids, row["token"][0]
        for name, model, dtype in zip("pq", (target, draft), types, strict=True):
            logits = logits_of(model, ids)[-1]
            # what the rounding of logits does to a probability: at most its derivative, p (1 - p) / temperature <= .36
            slack = 1e-6 + 4 * torch.finfo(dtype).eps * logits.abs().max().item() * 0.36
            assert row[name][0] == pytest.approx((logits / 0.7).softmax(-1)[token].item(), abs=slack)
