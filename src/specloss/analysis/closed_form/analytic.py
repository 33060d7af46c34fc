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
the names of the outputs while it parses. The figures are in `one_pair` and `random_pairs`, the config in `config`.
"""

from __future__ import annotations

import difflib
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from specloss.analysis.closed_form.config import Analytic, read_analytic
from specloss.analysis.outputs import DRAWINGS
from specloss.common.files import write_text
from specloss.common.yamlfile import ConfigError, yaml_text

if TYPE_CHECKING:
    from specloss.analysis.figures.plot import Plot

ANALYTIC_FIGURES = ("fig2_induced", "fig4_candidates", "fig8a_strength", "fig8b_ceiling")
ANALYTIC_SUFFIXES = ("csv", *DRAWINGS, "md")


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
    shown = yaml_text(used, width=110, flow=True)
    return f"**{plot.title}.** {plot.reading}\n\nMade by {made} from\n\n```yaml\n{shown}```\n"
