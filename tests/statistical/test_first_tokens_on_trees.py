"""The whole loop on trees against exact probabilities: chi-square tests over the first two tokens of many samples.

Standard SD emits the target's own distribution, a truncation baseline that of the truncated target, whatever was
drafted. The two tests of each of the two rules share a level of 1 % by Bonferroni's correction.
"""

import numpy as np
import pytest
import torch
from places import DEMO
from test_first_tokens import PROMPT, SEED, TEMPERATURE, p_value

from specloss import decode, load_pair
from specloss.decoding.warp import Warper
from specloss.verification import get_rule

SAMPLES = 4_000
SETTINGS = [("standard_sd", None), ("min_p_sampling", 0.1)]
LEVEL = 0.01 / (2 * len(SETTINGS))


@pytest.fixture(scope="module")
def tree_pair():
    return load_pair(DEMO / "target", DEMO / "eagle3", kind="eagle3", dtype="float32", device="cpu")


def exact(pair, rule, ids):
    with torch.inference_mode():
        logits = pair.target(torch.tensor([ids])).logits[0, -1, : pair.vocab].double()
    return rule.target(Warper(TEMPERATURE)(logits)).numpy()


@pytest.mark.parametrize("name, param", SETTINGS)
def test_the_first_two_tokens_have_the_targets_distribution(tree_pair, name, param):
    rule, ids, vocab = get_rule(name, param), tree_pair.tokenizer(PROMPT).input_ids, tree_pair.vocab
    decoded = decode(
        tree_pair, [ids] * SAMPLES, method=name, param=param, temperature=TEMPERATURE, max_new_tokens=3, seed=SEED,
        tree={"total_token": 8, "depth": 1, "top_k": 4}, batch_size=500, trace="light",
    )  # fmt: skip
    assert decoded.steps["accepted"].to_numpy().mean() > 0.3
    first = np.array([output[0] for output in decoded.token_ids])
    assert p_value(np.bincount(first, minlength=vocab), SAMPLES * exact(tree_pair, rule, ids)) > LEVEL

    pairs, expected = np.zeros((2, vocab, vocab))
    for token in np.unique(first):
        if token in tree_pair.eos_ids:
            continue
        second = [output[1] for output in decoded.token_ids if output[0] == token]
        pairs[token] = np.bincount(second, minlength=vocab)
        expected[token] = len(second) * exact(tree_pair, rule, [*ids, int(token)])
    assert p_value(pairs.ravel(), expected.ravel()) > LEVEL
