"""The config of the figures in closed form, `config/analytic.yaml`: distributions, rules and grids."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from specloss.common.section import Section, validated
from specloss.common.yamlfile import read_yaml

KINDS = ("matching", "partial", "unrelated")

Gates = Literal["spec_cascade", "typical_acceptance"]
Ceilings = Literal["lenience", "overshoot_ceiling"]
Mixtures = Literal["adaptive_interpolation", "cos"]
Baselines = Literal["min_p_sampling", "eta_sampling"]
Proposal = Literal["chain", "tree"]
Ratio = Annotated[float, Field(ge=0, le=1)]
Mix = Annotated[list[Ratio], Field(min_length=3, max_length=3)]
Lenience = Annotated[float, Field(gt=0, le=1)]


def _checked(rule: str, params: list[float]) -> None:
    from specloss.verification import get_rule

    for param in params:
        get_rule(rule, param)  # ValueError, in one line, for a parameter out of range


class RuleAt(Section):
    """A rule at a parameter."""

    rule: str
    param: float = Field(description="the rule's parameter")

    @model_validator(mode="after")
    def _param_fits(self):
        _checked(self.rule, [self.param])
        return self


class Gate(RuleAt):
    """A rule that accepts whatever the target allows."""

    rule: Gates = Field(description="spec_cascade or typical_acceptance")


class Pointwise(RuleAt):
    """A rule that accepts at most p / l of each token."""

    rule: Ceilings = Field(description="lenience or overshoot_ceiling")


class Mixture(RuleAt):
    """A rule whose output is one mixture of p and q for all tokens."""

    rule: Mixtures = Field(description="adaptive_interpolation or cos")


class DistributionPair(Section):
    """Target and draft over one small vocabulary."""

    p: Annotated[list[Ratio], Field(min_length=2)] = Field(description="target probabilities; they sum to 1")
    q: Annotated[list[Ratio], Field(min_length=2)] = Field(description="draft probabilities of the same tokens")

    @field_validator("p", "q")
    @classmethod
    def _sums_to_one(cls, values: list[float]) -> list[float]:
        total = math.fsum(values)
        if abs(total - 1) > 1e-6:
            raise ValueError(f"probabilities must sum to 1, these sum to {total:.6g}; divide them by it")
        return values

    @model_validator(mode="after")
    def _same_tokens(self):
        if len(self.p) != len(self.q):
            raise ValueError(f"p has {len(self.p)} tokens and q {len(self.q)}; give both the same number")
        return self


class RandomPairs(Section):
    """Seeded pairs of independent draws from a symmetric Dirichlet distribution."""

    seed: Annotated[int, Field(ge=0)] = Field(0, description="of the random distributions")
    pairs: Annotated[int, Field(ge=2)] = Field(description="number of pairs to draw")
    vocabulary: Annotated[int, Field(ge=2)] = Field(description="tokens")
    concentration: Annotated[float, Field(gt=0, le=100)] = Field(
        description="of the Dirichlet distribution; the smaller, the fewer tokens share the mass"
    )


class Fig2(Section):
    """Figure 2."""

    truncation: Gate
    collaborative: Pointwise


class Fig4(RandomPairs):
    """Figure 4."""

    candidates: Annotated[int, Field(ge=2, multiple_of=2)] = Field(
        description="tokens that the draft proposes at a position; even, as a partial overlap shares half of them"
    )
    gamma: Annotated[int, Field(ge=1, le=64)] = Field(description="drafted tokens per block; levels of the tree")
    proposals: Annotated[list[Proposal], Field(min_length=1)] = Field(description="chain, tree, or both")
    baselines: Annotated[dict[Baselines, Annotated[list[float], Field(min_length=1)]], Field(min_length=1)] = Field(
        description="truncation baselines and the grids of their parameters"
    )
    mixes: Annotated[list[Mix], Field(min_length=1, max_length=6)] = Field(
        description="ratios of matching, partially overlapping and unrelated positions; each triplet sums to 1"
    )

    @field_validator("baselines")
    @classmethod
    def _params_fit(cls, baselines: dict[Baselines, list[float]]) -> dict[Baselines, list[float]]:
        for rule, params in baselines.items():
            _checked(rule, params)
        return baselines

    @field_validator("mixes")
    @classmethod
    def _mixes_sum_to_one(cls, mixes: list[list[float]]) -> list[list[float]]:
        for mix in mixes:
            if abs(math.fsum(mix) - 1) > 1e-6:
                shown = " / ".join(f"{ratio:g}" for ratio in mix)
                raise ValueError(f"the ratios of a mix must sum to 1, {shown} sum to {math.fsum(mix):.6g}")
        return mixes

    @model_validator(mode="after")
    def _others_suffice(self):
        if self.vocabulary < 2 * self.candidates:
            raise ValueError(
                f"vocabulary {self.vocabulary} has too few tokens for {self.candidates} unrelated candidates; "
                f"use {2 * self.candidates} or more"
            )
        return self


class Fig8a(RandomPairs):
    """Figure 8 (a)."""

    l: Annotated[list[Lenience], Field(min_length=1, max_length=6)] = Field(  # noqa: E741
        description="parameters of lenience"
    )
    tv_max: Annotated[float, Field(gt=0, lt=1)] = Field(description="largest TV(p, q)")
    points: Annotated[int, Field(ge=2)] = Field(description="values of TV(p, q), evenly spaced up to tv_max")


class Fig8b(Section):
    """Figure 8 (b)."""

    pointwise: Pointwise
    mixtures: Annotated[list[Mixture], Field(min_length=1, max_length=4)]


class Analytic(Section):
    """The whole of `config/analytic.yaml`."""

    pair: DistributionPair = Field(description="the distributions of Figures 2 and 8 (b)")
    fig2: Fig2
    fig4: Fig4
    fig8a: Fig8a
    fig8b: Fig8b


def read_analytic(path: Path | str) -> Analytic:
    """Read and validate a config of the analytic figures. ConfigError, in one line, on anything wrong."""
    return validated(Analytic, read_yaml(path), str(path))
