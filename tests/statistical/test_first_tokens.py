"""What the real loop emits, against exact probabilities: chi-square tests over the first two tokens of many samples.

For every rule the first two tokens of 25,000 samples of one prompt (50,000 draws) are compared with the closed form
`pi(x1) pi(x2 | x1)`: both stand at drafted positions, whatever was accepted. The tests share a level of 1 % by
Bonferroni's correction over the number of rules (two tests each). That takes minutes and is marked slow; the same with
2,000 samples, at a level of its own, finds what is wrong by a tenth.
"""

import numpy as np
import pytest
import torch
from scipy import stats

from specloss import decode
from specloss.decoding.warp import Warper
from specloss.verification import RULES, get_rule

TEMPERATURE, SEED = 0.7, 20261129
PROMPT = "93*17?"
SETTINGS = [
    (name, spec.grid[len(spec.grid) // 2], {}) for name, spec in RULES.items() if not name.startswith("cap_")
] + [
    ("cap_inside_drop_tail", 0.4, {}),
    ("spec_cascade", 0.5, {"coupling": "maximal"}),
    ("spec_cascade", 0.5, {"residual": "truncated"}),
    ("cos", 0.6, {"bonus": "r"}),
]
LEVEL = 0.01 / (2 * len(SETTINGS))


def closed_form(pair, rule, ids):
    """Distribution [vocab] of the next token after `ids` at a drafted position."""
    warp = Warper(TEMPERATURE)
    with torch.inference_mode():
        p, q = (
            warp(model(torch.tensor([ids])).logits[0, -1, : pair.vocab].double()) for model in (pair.target, pair.draft)
        )
    return (p if rule.lossless else rule.induced(p, q)).numpy()


def p_value(counts, expected):
    """Chi-square p-value with cells of less than five expected pooled into one; impossible tokens must not occur."""
    assert counts[expected == 0].sum() == 0
    small = expected < 5
    counts = np.append(counts[~small], counts[small].sum())
    expected = np.append(expected[~small], expected[small].sum())
    counts, expected = counts[expected > 0], expected[expected > 0]
    if len(counts) < 2:
        return 1.0
    return stats.chisquare(counts, expected * counts.sum() / expected.sum()).pvalue


@pytest.mark.parametrize("samples", [2_000, pytest.param(25_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name, param, options", SETTINGS, ids=lambda value: str(value))
def test_the_first_two_tokens_have_the_rules_induced_distribution(pair, name, param, options, samples):
    rule = get_rule(name, param, **options)
    ids = pair.tokenizer(PROMPT).input_ids
    decoded = decode(
        pair, [ids] * samples, method=name, param=param, temperature=TEMPERATURE, gamma=2, max_new_tokens=3,
        seed=SEED, batch_size=2000, trace="light", **options,
    )  # fmt: skip
    first = np.array([output[0] for output in decoded.token_ids])
    pi = closed_form(pair, rule, ids)
    assert p_value(np.bincount(first, minlength=pair.vocab), samples * pi) > LEVEL

    pairs = np.zeros((pair.vocab, pair.vocab))
    expected = np.zeros((pair.vocab, pair.vocab))
    for token in np.unique(first):
        if token in pair.eos_ids:
            continue
        second = [output[1] for output in decoded.token_ids if output[0] == token]
        pairs[token] = np.bincount(second, minlength=pair.vocab)
        expected[token] = len(second) * closed_form(pair, rule, [*ids, int(token)])
    assert p_value(pairs.ravel(), expected.ravel()) > LEVEL
