"""Figures 2, 4 and 8 of the paper: what a rule does to two distributions, by closed form and without any decoding.

    config/analytic.yaml  --write_analytic-->  <name>.csv, .svg, .pdf, .png, and .md (the caption)

- `fig2_induced`: one gate and one collaborative rule on one pair (p, q): overlap, accepted mass, ceiling, output.
- `fig4_candidates`: what a truncation baseline adds to or takes from block efficiency, by the kind of candidates.
- `fig8a_strength`: how far from q towards p lenience goes, over TV(p, q).
- `fig8b_ceiling`: pi / p of every token, for a global mixture and for the pointwise ceiling p / l.

The candidates of Figure 4. Target and draft are two independent draws of Dirichlet(concentration, ..., concentration)
over the vocabulary. `k` is `candidates`; the draft proposes only its k likeliest tokens, with its k largest
probabilities rescaled to sum to one. Which tokens they are is the kind:

- *matching*: the target's k likeliest tokens, in the target's order;
- *partial*: k / 2 tokens drawn from the target's k likeliest and k / 2 from all others, in random order;
- *unrelated*: k tokens drawn from all but the target's k likeliest, in random order.

A mix gives each position one of the kinds, independently of all others. Acceptance is then independent from position
to position with mean `alpha`, the mix of the kinds' means, and BE = 1 + alpha + ... + alpha^gamma exactly. The two
proposals are a `chain` (one token drawn from q, kept by ordinary speculative sampling) and a `tree` (all k candidates
tried as siblings by the lossless rule, which keeps one of them with the probability that they have under the target).

All acceptance and all output comes from `specloss.verification`. This module imports nothing heavy: the workflow needs
the names of the outputs while it parses. The figures are in `pair_figures` and `random_pair_figures`.
"""

from __future__ import annotations

import difflib
import math
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import yaml
from pydantic import Field, field_validator, model_validator

from specloss.analysis import DRAWINGS
from specloss.common.files import write_text
from specloss.experiment.config import ConfigError, Model, read_yaml, validated

if TYPE_CHECKING:
    from specloss.analysis.figures.plot import Plot

ANALYTIC_FIGURES = ("fig2_induced", "fig4_candidates", "fig8a_strength", "fig8b_ceiling")
ANALYTIC_SUFFIXES = ("csv", *DRAWINGS, "md")
KINDS = ("matching", "partial", "unrelated")

Gates = Literal["spec_cascade", "typical_acceptance"]
Ceilings = Literal["lenience", "overshoot_ceiling"]
Mixtures = Literal["adaptive_interpolation", "cos"]
Baselines = Literal["min_p_sampling", "eta_sampling"]
Proposal = Literal["chain", "tree"]
Ratio = Annotated[float, Field(ge=0, le=1)]
Lenience = Annotated[float, Field(gt=0, le=1)]


def _checked(rule: str, params: list[float]) -> None:
    from specloss.verification import get_rule

    for param in params:
        get_rule(rule, param)  # ValueError, in one line, for a parameter out of range


class Setting(Model):
    """A rule at a parameter."""

    rule: str
    param: float = Field(description="the rule's parameter")

    @model_validator(mode="after")
    def _param_fits(self):
        _checked(self.rule, [self.param])
        return self


class Gate(Setting):
    """A rule that accepts whatever the target allows."""

    rule: Gates = Field(description="spec_cascade or typical_acceptance")


class Pointwise(Setting):
    """A rule that accepts at most p / l of each token."""

    rule: Ceilings = Field(description="lenience or overshoot_ceiling")


class Mixture(Setting):
    """A rule whose output is one mixture of p and q for all tokens."""

    rule: Mixtures = Field(description="adaptive_interpolation or cos")


class DistributionPair(Model):
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


class RandomPairs(Model):
    """Seeded pairs of independent draws from a symmetric Dirichlet distribution."""

    seed: Annotated[int, Field(ge=0)] = Field(0, description="of the random distributions")
    pairs: Annotated[int, Field(ge=2)] = Field(description="number of pairs to draw")
    vocabulary: Annotated[int, Field(ge=2)] = Field(description="tokens")
    concentration: Annotated[float, Field(gt=0, le=100)] = Field(
        description="of the Dirichlet distribution; the smaller, the fewer tokens share the mass"
    )


class Fig2(Model):
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
    mixes: Annotated[list[tuple[Ratio, Ratio, Ratio]], Field(min_length=1, max_length=6)] = Field(
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
    def _mixes_sum_to_one(cls, mixes: list[tuple[float, float, float]]) -> list[tuple[float, float, float]]:
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


class Fig8b(Model):
    """Figure 8 (b)."""

    pointwise: Pointwise
    mixtures: Annotated[list[Mixture], Field(min_length=1, max_length=4)]


class Analytic(Model):
    """The whole of `config/analytic.yaml`."""

    pair: DistributionPair = Field(description="the distributions of Figures 2 and 8 (b)")
    fig2: Fig2
    fig4: Fig4
    fig8a: Fig8a
    fig8b: Fig8b


def read_analytic(path: Path | str) -> Analytic:
    """Read and validate a config of the analytic figures. ConfigError, in one line, on anything wrong."""
    return validated(Analytic, read_yaml(path), str(path))


def make_analytic(name: str, settings: Analytic) -> Plot:
    """One of `ANALYTIC_FIGURES`. ConfigError, in one line, if the config's numbers leave nothing to draw."""
    from specloss.analysis.closed_form.one_pair import induced_distributions, pointwise_ceiling
    from specloss.analysis.closed_form.random_pairs import candidate_mixes, interpolation_strength
    from specloss.analysis.figures.plot import styled

    makers = (induced_distributions, candidate_mixes, interpolation_strength, pointwise_ceiling)
    with styled(name):
        return dict(zip(ANALYTIC_FIGURES, makers, strict=True))[name](settings)


def write_analytic(name: str, config: Path, out: Path) -> list[Path]:
    """Write one of `ANALYTIC_FIGURES` as `out/<name>` with each of `ANALYTIC_SUFFIXES`; returns the paths.

    ConfigError, in one line, for an unknown name and for anything wrong with the config.
    """
    if name not in ANALYTIC_FIGURES:
        near = difflib.get_close_matches(name, ANALYTIC_FIGURES, n=1, cutoff=0)
        raise ConfigError(f"no analytic figure {name!r}; did you mean {near[0]!r}? ({', '.join(ANALYTIC_FIGURES)})")
    settings = read_analytic(config)
    from specloss.analysis.figures.plot import save

    plot = make_analytic(name, settings)
    csv, caption = (Path(out) / f"{name}.{suffix}" for suffix in ("csv", "md"))
    write_text(csv, plot.data.to_csv(index=False))
    drawings = save(plot.figure, name, out)
    write_text(caption, _caption(plot, settings))
    return [csv, *drawings.values(), caption]


def _caption(plot: Plot, settings: Analytic) -> str:
    """The figure's title and reading, the versions that made it, and its part of the config."""
    section, values = plot.name.split("_")[0], settings.model_dump(mode="json")
    used = {key: values[key] for key in (("pair", section) if section in ("fig2", "fig8b") else (section,))}
    made = ", ".join(f"{package} {version(package)}" for package in ("specloss", "torch", "numpy"))
    shown = yaml.safe_dump(used, sort_keys=False, default_flow_style=None, width=110)
    return f"**{plot.title}.** {plot.reading}\n\nMade by {made} from\n\n```yaml\n{shown}```\n"
