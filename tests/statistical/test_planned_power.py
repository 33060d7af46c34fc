"""The planner's sample size delivers the power that it promises, within three points, over 2,000 experiments."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from simulated import World, replicates

from specloss.analysis.evidence.bootstrap import spread
from specloss.analysis.evidence.sample_size import Aim, Size, cheapest, noise_of, power, size
from specloss.analysis.evidence.verdicts import FASTER, claims, error_floor
from specloss.experiment.sections import Analysis

PILOT = 20_000  # problems: the test is of the plan, not of a small pilot's luck


def planned(world: World, analysis: Analysis):
    """Aim, noise and size for a world, by a large pilot of three seeds."""
    sums = replace(world, problems=PILOT, seeds=3).draw(1, np.random.default_rng(0))
    baseline, setting = (correct[:, :, 0] for correct in sums["correct"])
    parts = [a[:, :, 0] / c[:, :, 0].mean(axis=0) for a, c in zip(sums["accepted"], sums["calls"], strict=True)]
    # a problem's part in the log of a ratio of means
    shares = [part / part.mean(axis=0) for part in parts]
    noise = noise_of(100 * (setting - baseline), shares[1] - shares[0])
    aim = Aim(-world.loss, world.speed)
    return aim, noise, size(aim, noise, world.seeds, analysis)


@pytest.mark.parametrize(
    ("world", "analysis"),
    [
        (World(seeds=3, speed=1.1, churn=4.0), Analysis(margin=5, power=0.8)),
        (World(seeds=1, speed=1.1, churn=4.0), Analysis(margin=8, power=0.9)),
        (World(seeds=2, speed=1.01, churn=2.0, loss=1.0), Analysis(margin=5, power=0.8)),  # speed decides as well
        (World(seeds=1, speed=1.01, churn=2.0), Analysis(margin=8, power=0.8)),  # speed alone, fewer seeds
        # few answers differ, so that the floor of the error decides; by fifths of a problem, not in whole ones
        (World(seeds=5, speed=1.1, churn=4.0, agree=0.0), Analysis(margin=5, power=0.8)),
    ],
    ids=["three seeds", "one seed", "a loss, and a small gain of speed", "a small gain of speed", "few answers differ"],
)
def test_the_planned_size_has_the_promised_power_within_three_points(world, analysis):
    _, _, plan = planned(world, analysis)
    world = replace(world, problems=plan.problems)
    found = replicates(world, 2000, seed=3, draws=300)
    accuracy, _, _, error = spread(found["accuracy"])
    log_speed, _, _, speed_error = spread(np.log(found["speed"]))
    floor = error_floor(analysis.margin, [world.problems])
    claimed = claims(accuracy, error, log_speed, speed_error, world.problems - 1, analysis.margin, floor)
    reached = np.mean(claimed.names(analysis.confidence) == FASTER)
    print(f"{plan}: power {reached:.3f}, promised {analysis.power}")
    assert abs(reached - analysis.power) <= 0.03


def test_seeds_help_only_with_what_differs_between_them():
    analysis = Analysis(margin=5)
    aim, same, _ = planned(World(agree=1.0), analysis)
    assert same.within == 0 and size(aim, same, 1, analysis).problems == size(aim, same, 5, analysis).problems
    _, other, _ = planned(World(agree=0.0), analysis)
    assert size(aim, other, 5, analysis).problems < size(aim, other, 1, analysis).problems


def test_a_true_loss_of_the_margin_is_never_called_not_worse_however_large():
    analysis = Analysis(margin=2)
    _, noise, _ = planned(World(), analysis)
    assert size(Aim(-2.0, 1.1), noise, 3, analysis) == Size(None, 3)


def test_more_comparisons_and_a_smaller_margin_need_more_problems():
    analysis = Analysis(margin=4)
    aim, noise, one = planned(World(), analysis)
    assert size(replace(aim, comparisons=20), noise, 3, analysis).problems > one.problems
    assert size(aim, noise, 3, Analysis(margin=2)).problems > one.problems
    assert power(aim, noise, 3, one.problems, analysis) == pytest.approx(0.8, abs=0.01)


def test_the_cheapest_plan_has_the_fewest_answers_of_those_with_enough_problems():
    sizes = [Size(900, 1), Size(500, 2), Size(400, 3), Size(None, 4)]
    assert cheapest(sizes, None) == Size(900, 1)
    assert cheapest(sizes, 450) == Size(400, 3)
    assert cheapest(sizes, 100) is None
