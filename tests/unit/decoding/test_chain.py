"""The chain loop: exact at temperature 0, independent of the batch, and right at its edges."""

import pytest
import torch
from exactness import rounding, sums_of

from specloss import decode
from specloss.experiment.schema import STEPS
from specloss.verification import RULES

TOKENS = 48


@pytest.fixture(scope="module")
def greedy(pair_in_float64, prompts):
    """What transformers generates with the target alone."""
    outputs, pair = [], pair_in_float64
    for prompt in prompts:
        ids = pair.tokenizer(prompt, return_tensors="pt").input_ids
        out = pair.target.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=TOKENS)
        outputs.append(out[0, ids.shape[1] :].tolist())
    return outputs


@pytest.mark.parametrize("batch_size", [1, 7, 32])
def test_standard_sd_at_temperature_zero_is_the_targets_greedy_output(pair_in_float64, prompts, greedy, batch_size):
    decoded = decode(pair_in_float64, prompts, temperature=0, gamma=8, max_new_tokens=TOKENS, batch_size=batch_size)
    assert decoded.token_ids == greedy


def test_in_float32_every_greedy_token_has_the_largest_logit_up_to_rounding(pair, prompts):
    outputs = decode(pair, prompts, temperature=0, gamma=8, max_new_tokens=TOKENS, batch_size=32).token_ids
    for prompt, output in zip(prompts, outputs, strict=True):
        ids = pair.tokenizer(prompt).input_ids
        with torch.inference_mode():
            logits = pair.target(torch.tensor([ids + output])).logits[0, len(ids) - 1 : -1]
        chosen = logits.gather(-1, torch.tensor(output).unsqueeze(-1)).squeeze(-1)
        off = rounding(logits, sums_of(pair.target.config, len(ids) + len(output)))
        assert (logits.amax(-1) - chosen <= 2 * off).all()


@pytest.mark.parametrize("method, param", [("standard_sd", None), ("spec_cascade", 0.3), ("cos", 0.6)])
def test_tokens_do_not_depend_on_batch_size_or_order(pair_in_float64, prompts, method, param):
    settings = {"method": method, "param": param, "temperature": 0.7, "gamma": 8, "max_new_tokens": TOKENS}
    some, pair = prompts[::4], pair_in_float64
    one, seven, many = (decode(pair, some, batch_size=size, **settings).token_ids for size in (1, 7, 32))
    assert one == seven == many
    assert decode(pair, some[::-1], batch_size=7, **settings).token_ids == one[::-1]


def test_in_float32_a_batch_changes_no_answer_but_by_rounding(pair, prompts):
    # A draw or a coin lies within 1e-6 of where it would turn once in 10^6: in 96 of them that is 1e-4 for an answer,
    # 1 in 200 for one of these 50, and 1e-5 for two of them.
    some = prompts[::4]
    one, many = (decode(pair, some, max_new_tokens=TOKENS, batch_size=size).token_ids for size in (1, 32))
    assert sum(first != second for first, second in zip(one, many, strict=True)) <= 1


def test_another_seed_gives_other_tokens_and_the_same_seed_the_same(pair, prompts):
    first, again, other = (
        decode(pair, prompts[:20], temperature=0.7, max_new_tokens=30, seed=seed).token_ids for seed in (0, 0, 1)
    )
    assert first == again != other


def test_equal_prompts_are_independent_samples(pair, prompts):
    outputs = decode(pair, [prompts[0]] * 16, temperature=0.7, max_new_tokens=30).token_ids
    assert len({tuple(output) for output in outputs}) > 8


@pytest.mark.parametrize("method", RULES)
def test_every_rule_decodes_and_its_trace_adds_up(pair, prompts, method):
    param = RULES[method].grid[0]
    decoded = decode(pair, prompts[:9], method=method, param=param, temperature=0.7, max_new_tokens=40, batch_size=4)
    steps = decoded.steps
    assert steps.schema.equals(STEPS)
    for prompt, (tokens, stop) in enumerate(zip(decoded.token_ids, decoded.stops, strict=True)):
        rows = [row for row in steps.to_pylist() if row["index"] == prompt]
        assert [row["step"] for row in rows] == list(range(len(rows)))
        assert [token for row in rows for token in row["emitted"]] == tokens
        assert [row["stop"] for row in rows] == [None] * (len(rows) - 1) + [stop]
        for row in rows:
            assert 0 <= row["accepted"] <= row["drafted"] <= 8
            assert row["emitted"][: row["accepted"]] == row["token"][: row["accepted"]]
            assert len(row["emitted"]) <= row["accepted"] + 1
            assert len(row["token"]) == len(row["p"]) == len(row["accept_prob"]) == row["drafted"]
            assert all(q > 0 for q in row["q"])
            assert all(0 <= a <= 1 for a in row["accept_prob"])
            if method != "blockwise":  # its flips are not about single tokens
                assert all(a > 0 for a in row["accept_prob"][: row["accepted"]])


def test_the_end_of_sequence_cuts_a_kept_block(pair, prompts):
    decoded = decode(pair, prompts, temperature=0.7, max_new_tokens=150)
    ended = [ids for ids, stop in zip(decoded.token_ids, decoded.stops, strict=True) if stop == "eos"]
    assert len(ended) > 100
    assert all(ids[-1] in pair.eos_ids and not set(ids[:-1]) & set(pair.eos_ids) for ids in ended)
    last = [row for row in decoded.steps.to_pylist() if row["stop"] == "eos"]
    assert any(row["drafted"] == 8 and row["accepted"] == len(row["emitted"]) for row in last)  # cut inside the block


@pytest.mark.parametrize("limit", [1, 2, 9, 10])
def test_output_never_exceeds_the_token_limit(pair, prompts, limit):
    decoded = decode(pair, prompts[:20], temperature=0.7, max_new_tokens=limit, batch_size=8)
    assert all(len(ids) == limit for ids in decoded.token_ids)
    assert set(decoded.stops) == {"length"}
    assert max(decoded.steps["drafted"].to_pylist()) == min(8, limit - 1)


def test_decoding_stops_at_the_context(pair):
    long = [5 + i % 7 for i in range(pair.context - 5)]
    decoded = decode(pair, [long, [5, 6]], temperature=0.7, max_new_tokens=12, batch_size=2)
    assert len(decoded.token_ids[0]) <= 5
    assert decoded.stops[0] == ("context" if len(decoded.token_ids[0]) == 5 else "eos")


def test_a_prompt_of_one_token_is_enough(pair):
    alone = decode(pair, [[7]], temperature=0, max_new_tokens=10).token_ids[0]
    ids = torch.tensor([[7]])
    out = pair.target.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=10)
    assert alone == out[0, 1:].tolist()


def test_a_prompt_that_does_not_fit_is_named_before_any_work(pair):
    with pytest.raises(ValueError, match=f"has {pair.context} tokens; it must have between 1 and {pair.context - 1}"):
        decode(pair, [[5, 6], [5] * pair.context])
    with pytest.raises(ValueError, match="has 0 tokens"):
        decode(pair, [[]])


@pytest.mark.parametrize("token", [-1, 10**6])
def test_a_token_id_that_the_models_do_not_share_is_named(pair, token):
    with pytest.raises(ValueError, match=f"has token id {token}; the models share ids 0 to {pair.vocab - 1}"):
        decode(pair, [[5, token]])


def test_no_prompts_give_an_empty_result(pair):
    decoded = decode(pair, [])
    assert decoded.texts == [] and decoded.steps.num_rows == 0 and decoded.steps.schema.equals(STEPS)


@pytest.mark.parametrize(
    "bad, words",
    [
        ({"gamma": 0}, "gamma must be a whole number from 1 to 64"),
        ({"gamma": 70000}, "gamma must be a whole number from 1 to 64"),
        ({"gamma": True}, "gamma must be"),
        ({"seed": 2**48}, "seed must be a whole number from 0 to"),
        ({"seed": 0.5}, "seed must be"),
        ({"top_k": 1.5}, "top_k must be"),
        ({"temperature": "0.7"}, "temperature must be a number"),
        ({"temperature": 1e-45}, "temperature must be 0 (greedy) or at least 0.001"),
        ({"max_new_tokens": 0}, "max_new_tokens must be"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"temperature": -0.1}, "temperature must be"),
        ({"method": "lenient", "param": 0.5}, "did you mean 'lenience'"),
        ({"method": "lenience", "param": 1.5}, "0 < l <= 1"),
        ({"method": "standard_sd", "param": 0.5}, "takes no parameter"),
        ({"method": "lenience", "param": 0.5, "coupling": "best"}, "native | maximal"),
        ({"trace": "some"}, "'full' or 'light'"),
    ],
)
def test_bad_settings_are_refused_in_one_line(pair, bad, words):
    with pytest.raises(ValueError) as caught:
        decode(pair, ["1+1?"], **bad)
    assert words in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("prompts", ["1+1?", b"1+1?", [None], [[6.7]], [[True]], [b"1"]])
def test_prompts_that_are_none_are_refused_in_one_line(pair, prompts):
    with pytest.raises(ValueError, match="prompt"):
        decode(pair, prompts)


def test_a_light_trace_decodes_the_same_tokens_and_leaves_distortion_out(pair, prompts):
    full, light = (decode(pair, prompts[:10], max_new_tokens=20, trace=kind) for kind in ("full", "light"))
    assert full.token_ids == light.token_ids
    assert light.steps["tv_pi_p"].null_count == light.steps.num_rows
    assert light.steps["accept_prob"].equals(full.steps["accept_prob"])


@pytest.mark.parametrize("method, param", [("standard_sd", None), ("blockwise", None), ("cos", 0.6)])
def test_expected_accepted_has_the_mean_of_the_counted_with_less_variance(pair, prompts, method, param):
    settings = {"method": method, "param": param, "temperature": 0.7, "max_new_tokens": 60, "batch_size": 256}
    steps = decode(pair, prompts * 4, **settings).steps.select(["drafted", "accepted", "expected_accepted"]).to_pandas()
    difference = steps["accepted"] - steps["expected_accepted"]
    assert abs(difference.mean()) < 4 * difference.std() / len(steps) ** 0.5  # fails at random once in 16,000
    assert steps["expected_accepted"].var() < steps["accepted"].var()
    off = rounding(torch.tensor(8.0), 4 * 8)  # products and sums over a block
    assert (steps["expected_accepted"] <= steps["drafted"] + off).all()
