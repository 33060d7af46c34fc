"""SIMULATED problems with known effects, many experiments at once: `[problems, seeds, experiments]` each.

A problem has a difficulty and a speed of its own, shared by the setting and its baseline and by all seeds, so that
seeds are clustered within problems and the comparison is paired, as in real cells.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specloss.analysis.evidence.bootstrap import ratio, resamples

Array = NDArray[np.float64]


@dataclass(frozen=True)
class World:
    """Truth: accuracy of the baseline (%), what the setting loses (points), its speed over the baseline's.

    `agree`: the share of problems whose seeds all give one answer; `churn`: the share of problems (%) that the setting
    gains and, again, loses by chance alone.
    """

    problems: int = 100
    seeds: int = 3
    accuracy: float = 70.0
    loss: float = 0.0
    speed: float = 1.0
    agree: float = 0.3
    churn: float = 5.0

    def draw(self, experiments: int, rng: np.random.Generator) -> dict[str, tuple[Array, Array]]:
        """Sums of each problem, of (baseline, setting): `correct`, `accepted`, `calls`, `seconds`."""
        shape = (self.problems, self.seeds, experiments)
        one = (self.problems, 1, experiments)
        mean = self.accuracy / 100
        easy = rng.beta(4 * mean, 4 * (1 - mean), one)
        same = rng.random(one) < self.agree
        luck = np.where(same, rng.random(one), rng.random(shape))
        right = luck < easy
        # of right answers some are lost, of wrong ones some are gained: on average `loss` points fewer are right
        chance = np.where(same, rng.random(one), rng.random(shape))
        share_lost = (self.loss + self.churn) / self.accuracy
        share_gained = self.churn / (100 - self.accuracy)
        other = np.where(right, chance >= share_lost, chance < share_gained)
        calls = 5 + rng.poisson(10, one) + np.zeros(shape)
        kept = rng.gamma(20, 4 / 20, one)  # tokens per call of each problem
        found = {"correct": (right.astype(float), other.astype(float)), "calls": (calls, calls)}
        accepted = [kept * s * calls * rng.gamma(50, 1 / 50, shape) for s in (1.0, self.speed)]
        return found | {"accepted": (accepted[0], accepted[1])}


CHUNK = 100  # experiments that share their resamples


def replicates(world: World, experiments: int, seed: int, draws: int = 500) -> dict[str, Array]:
    """`[draws + 1, experiments]`: `accuracy` (difference in points), `gain` (of BE) and `speed` (ratio)."""
    rng = np.random.default_rng(seed)
    parts = []
    for start in range(0, experiments, CHUNK):
        weights = resamples(world.problems, draws, rng)
        sums = world.draw(min(CHUNK, experiments - start), rng)
        ones = np.ones((world.problems, world.seeds, 1))
        accuracy = [_mean_over_seeds(weights, correct, ones) for correct in sums["correct"]]
        be = [_mean_over_seeds(weights, *pair) for pair in zip(sums["accepted"], sums["calls"], strict=True)]
        parts.append((100 * (accuracy[1] - accuracy[0]), be[1] - be[0], be[1] / be[0]))
    return {
        name: np.concatenate(found, axis=1)
        for name, found in zip(("accuracy", "gain", "speed"), zip(*parts, strict=True), strict=True)
    }


def _mean_over_seeds(weights: Array, top: Array, bottom: Array) -> Array:
    return np.mean([ratio(weights, top[:, s], bottom[:, s]) for s in range(top.shape[1])], axis=0)
