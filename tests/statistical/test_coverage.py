"""Over 2,000 simulated experiments with known effects, intervals cover and claims err as often as they say."""

from __future__ import annotations

import numpy as np
import pytest
from simulated import World, replicates

from specloss.analysis.evidence.bootstrap import spread
from specloss.analysis.evidence.verdicts import FASTER, FASTER_BUT_WORSE, Claims, claims, error_floor

EXPERIMENTS = 2000
WORLDS = {
    "the demo's size": World(loss=3.0, speed=1.1),
    "one seed": World(seeds=1, loss=3.0, speed=1.1),
    "seeds that agree": World(agree=1.0, loss=5.0, speed=0.9),
    "few problems": World(problems=40, loss=0.0),
    "high accuracy": World(problems=300, accuracy=90, loss=4.0, churn=3.0),
}
MARGIN = 2.0


@pytest.fixture(scope="module", params=WORLDS)
def simulated(request):
    world = WORLDS[request.param]
    return world, replicates(world, EXPERIMENTS, seed=1)


@pytest.mark.parametrize("what", ["accuracy", "gain", "speed"])
def test_intervals_cover_the_known_effect_in_93_to_97_of_100_experiments(simulated, what):
    world, found = simulated
    truth = {"accuracy": -world.loss, "gain": 4 * (world.speed - 1), "speed": world.speed}[what]
    _, low, high, _ = spread(found[what])
    covered = np.mean((low <= truth) & (truth <= high))
    print(f"{what}: {100 * covered:.1f} %")
    assert 0.93 <= covered <= 0.97


def error_rates(
    world: World, tables: int = EXPERIMENTS, comparisons: int = 1, multiplicity: str = "holm"
) -> dict[str, float]:
    """How often a table of so many comparisons of that kind makes each claim at least once, and each verdict."""
    found = replicates(world, tables * comparisons, seed=2, draws=300)
    accuracy, _, _, error = spread(found["accuracy"])
    log_speed, _, _, speed_error = spread(np.log(found["speed"]))
    floor = error_floor(MARGIN, [world.problems])
    raw = claims(accuracy, error, log_speed, speed_error, world.problems - 1, MARGIN, floor)
    adjusted = (
        [raw] if comparisons == 1 else [_table(raw, row, comparisons).adjusted(multiplicity) for row in range(tables)]
    )
    p = {kind: np.concatenate([getattr(claim, kind) for claim in adjusted]) for kind in raw.__dataclass_fields__}
    claimed = {kind: values <= 0.025 for kind, values in p.items()}
    names = Claims(**p).names(0.95)
    claimed |= {name: names == name for name in (FASTER, FASTER_BUT_WORSE)}
    return {name: float(np.mean(found.reshape(tables, comparisons).any(axis=1))) for name, found in claimed.items()}


def _table(raw: Claims, row: int, comparisons: int) -> Claims:
    """The comparisons of one table."""
    here = slice(row * comparisons, (row + 1) * comparisons)
    return Claims(*(getattr(raw, kind)[here] for kind in raw.__dataclass_fields__))


# a share of 0.025 over 2,000 experiments has a standard error of 0.0035
MOST = 0.025 + 3 * 0.0035


@pytest.mark.parametrize(
    "world",
    [
        World(loss=MARGIN),
        World(loss=MARGIN, problems=150, accuracy=95, churn=0.0),
        World(loss=MARGIN, problems=100, accuracy=98, churn=0.0, agree=1.0),  # hardly an answer differs
        World(loss=MARGIN, problems=50, seeds=1, accuracy=98, churn=0.0),
        World(loss=MARGIN, problems=200, seeds=1, churn=2.0),
    ],
    ids=lambda world: f"{world.problems} problems, {world.seeds} seeds, accuracy {world.accuracy}",
)
def test_a_setting_that_loses_the_margin_is_called_not_worse_in_at_most_2_5_of_100_experiments(world):
    rates = error_rates(world)
    print(rates)
    assert rates["not_worse"] <= MOST and rates[FASTER] <= MOST


@pytest.mark.parametrize(
    "world", [World(problems=50), World(seeds=1, accuracy=97, churn=1.0)], ids=["50", "rarely wrong"]
)
def test_a_setting_that_differs_in_nothing_is_called_worse_or_faster_in_at_most_2_5_of_100_experiments(world):
    rates = error_rates(world)
    print(rates)
    assert max(rates["worse"], rates["faster"], rates["slower"], rates[FASTER_BUT_WORSE]) <= MOST


def test_over_a_table_of_five_comparisons_holm_keeps_every_kind_of_false_claim_below_2_5_of_100():
    null = error_rates(World(problems=60), 250, comparisons=5)
    at_margin = error_rates(World(loss=MARGIN, problems=60), 250, comparisons=5)
    print(null, at_margin)
    most = 0.025 + 3 * 0.0099  # over 250 tables
    assert max(null["worse"], null["faster"], null["slower"]) <= most
    assert at_margin["not_worse"] <= most
    assert error_rates(World(problems=60), 250, comparisons=5, multiplicity="none")["faster"] > 0.06


def test_verdicts_find_what_is_there():
    good, bad = World(problems=600, loss=0.0, speed=1.2, churn=2.0), World(problems=300, loss=8.0, speed=1.2)
    assert error_rates(good, 200)[FASTER] > 0.9
    assert error_rates(bad, 200)[FASTER_BUT_WORSE] > 0.9
