"""Intervals cover what was put in, pairs are paired, and missing cells stay missing."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from statsmodels.stats.multitest import multipletests

from specloss.analysis.evidence.bootstrap import (
    Bootstrap,
    Interval,
    holm_below_zero,
    interval,
    over_seeds,
    resamples,
    slope,
)
from specloss.analysis.evidence.evidence import Evidence
from specloss.analysis.evidence.verdicts import adjust
from specloss.analysis.tables.amplification import fieller
from specloss.analysis.tables.table import interval_text
from specloss.experiment.study import Place, Setting, Study

PLACE = Place("pair", "bench")
LOSSLESS, COS = Setting("standard_sd"), Setting("cos", 0.4)


def study_of(seeds: int) -> Study:
    from specloss.experiment.cells import Cell

    cells = [Cell("e", "pair", "bench", s.method, s.param, seed, {}) for s in (LOSSLESS, COS) for seed in range(seeds)]
    config = {"name": "e", "pairs": {"pair": {}}, "benchmarks": {"bench": {"task": "t"}}, "decoding": {"gamma": 4}}
    return Study("e", config, "", tuple(cells), (LOSSLESS, COS))


def problems_of(correct: dict[tuple[str, float | None, int], np.ndarray]) -> pd.DataFrame:
    frames = []
    for (method, param, seed), answers in correct.items():
        table = {"pair": "pair", "benchmark": "bench", "method": method, "param": param, "seed": seed}
        frame = pd.DataFrame(table, index=range(len(answers))).assign(index=range(len(answers)))
        ones = dict.fromkeys(["samples", "graded", "parsed", "blocks", "full_blocks", "tokens", "accepted"], 1.0)
        seconds = dict.fromkeys(["draft_s", "verify_s", "overhead_s"], 0.1)
        frames.append(frame.assign(**ones, **seconds, be_sum=2.0, be_expected_sum=2.0, correct=answers.astype(float)))
    return pd.concat(frames, ignore_index=True)


def two_settings(rng, problems=200, seeds=3, loss=0.1) -> pd.DataFrame:
    """Each problem has its own difficulty, shared by both settings."""
    easy = rng.beta(2, 1, problems)
    answers = {}
    for seed in range(seeds):
        answers["standard_sd", None, seed] = rng.random(problems) < easy
        answers["cos", 0.4, seed] = rng.random(problems) < easy * (1 - loss / easy.mean())
    return problems_of(answers)


def test_the_estimate_is_the_difference_of_means_over_seeds():
    answers = {
        ("standard_sd", None, 0): np.array([1, 1, 1, 0]),
        ("standard_sd", None, 1): np.array([1, 1, 0, 0]),
        ("cos", 0.4, 0): np.array([1, 0, 0, 0]),
        ("cos", 0.4, 1): np.array([0, 0, 0, 0]),
    }
    boot = Bootstrap(study_of(2), problems_of({key: np.tile(a, 2) for key, a in answers.items()}), draws=50)
    effect = interval(boot.difference("accuracy", [PLACE], [COS], [LOSSLESS]))
    assert effect.estimate == pytest.approx(12.5 - 62.5)
    assert effect.low <= effect.estimate <= effect.high


def test_the_interval_contains_the_known_effect_about_95_times_in_100():
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(100):
        boot = Bootstrap(study_of(2), two_settings(rng, problems=100, seeds=2), draws=300)
        effect = interval(boot.difference("accuracy", [PLACE], [COS], [LOSSLESS]))
        covered += effect.low <= -10 <= effect.high
    assert 0.88 <= covered / 100 <= 1.0


def test_identical_settings_differ_by_exactly_nothing():
    answers = np.random.default_rng(0).random(50) < 0.5
    boot = Bootstrap(study_of(1), problems_of({("standard_sd", None, 0): answers, ("cos", 0.4, 0): answers}))
    assert interval(boot.difference("accuracy", [PLACE], [COS], [LOSSLESS])) == Interval(0, 0, 0, 0)


def test_the_same_data_gives_the_same_interval():
    problems = two_settings(np.random.default_rng(2))
    effects = [
        interval(Bootstrap(study_of(3), problems).difference("accuracy", [PLACE], [COS], [LOSSLESS])) for _ in range(2)
    ]
    assert effects[0] == effects[1]


def test_agrees_with_the_bootstrap_of_scipy():
    from scipy.stats import bootstrap

    problems = two_settings(np.random.default_rng(3), seeds=1)
    ours = interval(Bootstrap(study_of(1), problems).difference("accuracy", [PLACE], [COS], [LOSSLESS]))
    by_problem = problems.pivot(index="index", columns="method", values="correct")
    differences = 100 * (by_problem["cos"] - by_problem["standard_sd"]).to_numpy()
    theirs = bootstrap((differences,), np.mean, method="percentile", rng=np.random.default_rng(0)).confidence_interval
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=1.0)


def test_a_missing_seed_makes_the_mean_missing_and_never_an_average_of_the_rest():
    problems = two_settings(np.random.default_rng(4))
    short = problems[~((problems["method"] == "cos") & (problems["seed"] == 1))]
    boot = Bootstrap(study_of(3), short)
    assert interval(boot.value("accuracy", PLACE, COS)).missing
    assert interval(boot.mean("accuracy", [PLACE], [LOSSLESS, COS])).missing
    assert not interval(boot.value("accuracy", PLACE, LOSSLESS)).missing


def test_std_over_seeds_is_the_sample_standard_deviation():
    rows = [
        {"pair": "pair", "benchmark": "bench", "method": "cos", "param": 0.4, "seed": s, "accuracy": a}
        for s, a in enumerate([70.0, 72.0, 77.0])
    ]
    summary = pd.DataFrame(rows)
    assert over_seeds(study_of(3), summary, "accuracy", PLACE, COS) == pytest.approx((73.0, np.sqrt(13.0)))
    assert np.isnan(over_seeds(study_of(3), summary.iloc[:2], "accuracy", PLACE, COS)).all()
    mean, std = over_seeds(study_of(1), summary.iloc[:1], "accuracy", PLACE, COS)
    assert mean == 70.0 and np.isnan(std)


def test_slope_is_per_level():
    values = [np.array([1.0, 0.0]), np.array([5.0, 0.0]), np.array([9.0, 0.0])]
    assert slope([2, 4, 6], values) == pytest.approx([2.0, 0.0])


def test_holm_is_stricter_with_more_comparisons():
    weak, strong, none = Interval(-2.0, -4, 0, 1.0), Interval(-9.0, -11, -7, 1.0), Interval(0.5, -1, 2, 1.0)
    assert holm_below_zero([weak]) == [True]
    assert holm_below_zero([weak, strong, *[none] * 20]) == [False, True, *[False] * 20]
    assert holm_below_zero([]) == []


@pytest.mark.parametrize(("ours", "theirs"), [("holm", "holm"), ("bh", "fdr_bh")])
def test_adjusted_p_values_are_those_of_statsmodels_over_all_that_are_there(ours, theirs):
    rng = np.random.default_rng(0)
    for count in (1, 2, 7, 40):
        p = np.round(rng.random(count) ** 3, 2)  # some are tied, some are 0
        expected = multipletests(p, method=theirs)[1]
        with_gaps = np.insert(p, count // 2, np.nan)
        np.testing.assert_allclose(np.delete(adjust(with_gaps, ours), count // 2), expected, rtol=0, atol=1e-12)
        assert np.isnan(adjust(with_gaps, ours)[count // 2])


def test_the_synthetic_truth_is_inside_the_intervals(experiment):
    evidence = Evidence.read(*experiment)
    places = evidence.places("made_up")
    effect = evidence.loss("accuracy", places, [evidence.study.setting("cos", 0.8)])
    assert effect.low < -48 < effect.high  # put in: -0.6 * 0.8
    gap = evidence.gap("accuracy", places, evidence.study.methods["spec_cascade"])
    assert gap.low < -16 < gap.high  # put in: 0, -16 and -32 by level


@pytest.mark.parametrize("problems", [1, 2, 3, 4])
def test_fewer_than_five_problems_have_an_estimate_and_say_why_they_have_no_interval(problems):
    rng = np.random.default_rng(problems)
    boot = Bootstrap(study_of(2), two_settings(rng, problems, seeds=2), draws=50)
    effect = interval(boot.difference("accuracy", [PLACE], [COS], [LOSSLESS]))
    assert effect.too_few and not effect.missing and not effect.below_zero and not effect.above_zero
    assert interval_text(effect, 1) == f"{effect.estimate:.1f} (no interval: fewer than 5 problems)"
    assert holm_below_zero([effect, Interval(-5, -6, -4, 0.5)]) == [False, True]
    assert fieller(boot.value("accuracy", PLACE, COS), boot.value("be", PLACE, COS), 0.95).inside is None


def test_an_interval_of_five_problems_covers_a_mean_about_95_times_in_100():
    rng, covered = np.random.default_rng(3), 0
    for _ in range(400):
        weights = resamples(5, 300, rng)
        effect = interval(weights @ rng.normal(size=5) / weights.sum(axis=1))
        covered += effect.low <= 0 <= effect.high
    assert 0.90 <= covered / 400 <= 0.98
