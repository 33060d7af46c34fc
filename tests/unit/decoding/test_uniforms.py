"""Random numbers are a function of their key."""

import numpy as np
import pytest
from scipy import stats

from specloss.decoding.uniforms import block_uniforms, philox, problem_key

# Random123's published known answers for philox4x32, 10 rounds (kat_vectors): counter, key, words
KNOWN = [
    ([0, 0, 0, 0], [0, 0], [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]


def keys(*problems):
    return np.array([problem_key(problem) for problem in problems], np.uint64)


def uniforms(problems, starts, seed=0, samples=None, gamma=4):
    starts = np.array(starts, np.uint64)
    samples = np.zeros(len(starts), np.uint64) if samples is None else np.array(samples, np.uint64)
    return block_uniforms(seed, keys(*problems), samples, starts, gamma)


@pytest.mark.parametrize("counter, key, words", KNOWN)
def test_philox_gives_the_published_known_answers(counter, key, words):
    got = philox(np.array(counter, np.uint64)[:, None], np.array(key, np.uint64)[:, None])
    assert got[:, 0].tolist() == words


def test_a_row_draws_the_same_beside_any_others():
    alone = uniforms(["a"], [7])
    among = uniforms(["b", "a", "c"], [1, 7, 9])
    for one, many in zip(alone, among, strict=True):
        assert np.array_equal(one[0], many[1])


def test_seed_problem_sample_start_offset_and_purpose_all_change_the_draw():
    base = uniforms(["a"], [3])
    others = [
        uniforms(["b"], [3]),
        uniforms(["a"], [4]),
        uniforms(["a"], [3], seed=1),
        uniforms(["a"], [3], seed=1 << 32),
        uniforms(["a"], [3], seed=(1 << 48) - 1),
        uniforms(["a"], [3], samples=[1]),
    ]
    drawn = [np.concatenate([part.ravel() for part in parts]) for parts in (base, *others)]
    values = np.concatenate(drawn)
    assert len(np.unique(values)) == len(values)


def test_draws_are_uniform_and_do_not_correlate_between_purposes():
    draft, accept, following = uniforms(["x"] * 4000, range(4000), gamma=3)
    for part in (draft, accept, following):
        assert ((part >= 0) & (part < 1)).all()
        assert stats.kstest(part.ravel(), "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(draft[:, 0], accept[:, 0])[0, 1]) < 0.06
    assert abs(np.corrcoef(draft[:, 0], following)[0, 1]) < 0.06
