"""Logits that make no distribution end a decode in one line that says whose they are; -inf for a token is no fault."""

from copy import deepcopy
from dataclasses import replace

import pytest
import torch

from specloss import decode
from specloss.decoding.loop import LogitsError
from specloss.decoding.warp import Warper, draw, is_broken

PROMPTS = ["37+03*07-20?", "5+1?", "11*02?"]
TREE = {"total_token": 12, "depth": 3, "top_k": 3}
BROKEN = {"nan": ([3], torch.nan), "inf": ([3], torch.inf), "all -inf": (slice(None), -torch.inf)}


def altered(pair, role, places, value, first=0):
    """The pair, with `value` at places of the logits of one of its models, from its forward number `first` on."""
    model, calls = deepcopy(getattr(pair, role)), []

    def alter(module, inputs, logits):
        calls.append(1)
        if len(calls) > first:
            logits[..., places] = value
        return logits

    model.lm_head.register_forward_hook(alter)
    return replace(pair, names={"target": "my/target", "draft": "my/draft"}, **{role: model})


def refused(pair, prompts=PROMPTS, **settings):
    settings |= {"tree": TREE} if pair.kind == "eagle3" else {"gamma": 3}
    with pytest.raises(LogitsError) as caught:
        decode(pair, prompts, max_new_tokens=20, **settings)
    message = str(caught.value)
    assert "not finite" in message and "\n" not in message
    return message


@pytest.mark.parametrize("kind", ["pair", "tree_pair"])
@pytest.mark.parametrize("role", ["target", "draft"])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("fault", BROKEN)
def test_logits_that_make_no_distribution_are_refused_by_model_type_prompt_and_step(
    request, kind, role, temperature, fault
):
    broken = altered(request.getfixturevalue(kind), role, *BROKEN[fault])
    message = refused(broken, temperature=temperature, top_p=0.9 if temperature else 1.0)
    assert message.startswith(f"{role} my/{role} in float32: ")
    assert "for prompt " in message and message.endswith(" at step 0")


@pytest.mark.parametrize("kind", ["pair", "tree_pair"])
def test_a_fault_that_comes_later_has_its_step(request, kind):
    calls = 5 if kind == "pair" else 3  # the prompts' forward, and a call for each block; of a draft several
    broken = altered(request.getfixturevalue(kind), "target", [3], torch.nan, first=calls)
    assert refused(broken, temperature=0.7, seed=1).endswith(f" at step {calls - 1}")


@pytest.mark.parametrize("kind", ["pair", "tree_pair"])
def test_what_a_prompts_forward_leaves_behind_is_seen_in_the_first_block(request, kind):
    pair = request.getfixturevalue(kind)
    target = deepcopy(pair.target)
    star = pair.tokenizer.convert_tokens_to_ids("*")
    target.get_input_embeddings().register_forward_hook(
        lambda module, inputs, output: output.masked_fill((inputs[0] == star).unsqueeze(-1), torch.inf)
    )
    message = refused(replace(pair, target=target, names={}), ["5+1?", "11*02+3?"], temperature=0)
    ids = " ".join(map(str, pair.tokenizer("11*02+3?").input_ids))
    assert message.startswith("target in float32: ") and message.endswith(f"for prompt {ids!r} at step 0")


def test_a_draft_that_is_needed_for_the_bonus_alone_is_looked_at(pair):
    broken = altered(pair, "draft", [3], torch.nan, first=4)  # the prompts, three drafts, then the bonus
    assert "draft my/draft" in refused(broken, method="cos", param=0.5, bonus="r")


@pytest.mark.parametrize("kind", ["pair", "tree_pair"])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_a_token_that_a_model_rules_out_is_no_fault(request, kind, temperature):
    pair = request.getfixturevalue(kind)
    some = altered(altered(pair, "draft", [5], -torch.inf), "target", [7, 8], -torch.inf)
    drafting = {"tree": TREE} if kind == "tree_pair" else {"gamma": 3}
    decoded = decode(some, PROMPTS, temperature=temperature, max_new_tokens=30, **drafting)
    assert not {7, 8} & {token for ids in decoded.token_ids for token in ids}


def test_float16_that_overflows_says_what_to_take(pair):
    half = deepcopy(pair.target).half()
    with torch.no_grad():  # finite in float32, not in float16
        half.model.layers[0].mlp.up_proj.weight.mul_(3e2)
        half.model.layers[0].mlp.down_proj.weight.mul_(3e3)
    message = refused(replace(pair, target=half), temperature=0.7)
    assert "target in float16: " in message and message.endswith("float16 ends at 65,504: take bfloat16 or float32")


@pytest.mark.parametrize("warper", [Warper(0), Warper(0.7), Warper(1.0, 2), Warper(1.3, 3, 0.5), Warper(1.0, 0, 0.9)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_warper_tells_broken_rows_from_whole_ones_in_every_type(warper, dtype):
    inf, nan = torch.inf, torch.nan
    rows = [[1, 2, 3, 4], [nan, 2, 3, 4], [1, 2, 3, nan], [1, inf, 3, 4], [inf] * 4, [-inf] * 4, [-inf, 1, -inf, -inf]]
    distribution = warper(torch.tensor(rows, dtype=dtype))
    assert distribution.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert is_broken(distribution).tolist() == [False, True, True, True, True, True, False]
    tokens = draw(distribution, torch.full((len(rows),), 0.99, dtype=torch.float64))
    assert tokens[-1] == 1 and tokens.max() < 4
