"""Figures 2 and 8 (b): what rules do to one pair of distributions, that of the config. See `analytic`."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator
from torch import Tensor

from specloss.analysis.closed_form.config import Analytic, DistributionPair, RuleAt
from specloss.analysis.figures.plot import BASELINE_GREY, COLOURS, LOSSLESS_COLOUR, MARKERS, Plot, legend_above, panels
from specloss.verification import Rule, distortion, get_rule
from specloss.verification.distributions import normalise
from specloss.verification.rules import ceiling

BLUE, ORANGE, GREEN = COLOURS[:3]
LIGHT_BLUE = COLOURS[4]


def induced_distributions(settings: Analytic) -> Plot:
    """Figure 2: p, q, their overlap, what each rule accepts of q, its ceiling, and what it emits."""
    rules = [_rule(settings.fig2.truncation), _rule(settings.fig2.collaborative)]
    data = pd.concat([_induced_rows(rule, settings.pair) for rule in rules], ignore_index=True)
    figure, axes = panels(4, 2)
    top = 1.06 * data[["p", "q", "induced"]].to_numpy().max()
    for column, rule in enumerate(rules):
        here = data[data["rule"] == rule.name]
        _draw_accepted(axes[column], here, _label(rule))
        _draw_induced(axes[2 + column], here)
        for panel in (axes[column], axes[2 + column]):
            _draw_ceiling(panel, here, top)
            panel.set(ylim=(0, top), ylabel="probability")
    legend_above(figure, axes, columns=3)
    return Plot(
        "fig2_induced",
        "What a gate and a ceiling accept, and what they emit",
        "Above: the draft q, the target p and their overlap min(p, q), which lossless verification accepts; hatched is "
        "what the rule accepts beyond it, up to its ceiling (an arrow: above the axis). The gate has no ceiling on the "
        "tokens it allows (shaded) and accepts nothing of the others; the collaborative rule accepts each token up to "
        "p / l. Below: the induced distribution π, accepted and resampled mass together, against p. Tokens are sorted "
        "by p.",
        data,
        figure,
    )


def _induced_rows(rule: Rule, pair: DistributionPair) -> pd.DataFrame:
    """A row per token. `ceiling` bounds the accepted mass: p / l, or infinite and 0 in and outside of a gate's set."""
    p, q, token = _sorted_pair(pair)
    y, _ = rule(p, q)
    allowed = rule.allowed(p)
    gate = allowed is not None
    return pd.DataFrame(
        {
            "rule": rule.name,
            "param": rule.param,
            "rank": np.arange(1, len(p) + 1),
            "token": token.numpy(),
            "p": p.numpy(),
            "q": q.numpy(),
            "overlap": torch.minimum(p, q).numpy(),
            "allowed": allowed.numpy() if gate else True,
            "ceiling": (torch.where(allowed, torch.inf, 0.0) if gate else ceiling(p, rule.param)).numpy(),
            "accepted": y.numpy(),
            "induced": rule.induced(p, q).numpy(),
        }
    )


def _draw_accepted(axes: Axes, data: pd.DataFrame, title: str) -> None:
    beyond = data[data["accepted"] > data["overlap"]]
    axes.bar(data["rank"], data["overlap"], 0.8, color="#e4e4e4", label="overlap, not accepted")
    axes.bar(data["rank"], data[["overlap", "accepted"]].min(axis=1), 0.8, color="#ababab", label="overlap, accepted")
    axes.bar(
        beyond["rank"], beyond["accepted"] - beyond["overlap"], 0.8, bottom=beyond["overlap"], color="white",
        edgecolor=BLUE, hatch="/////", linewidth=0.6, label="accepted beyond overlap",
    )  # fmt: skip
    _steps(axes, data, "q", color=ORANGE, linestyle=(0, (3, 1.5)), linewidth=1.2, label="draft q")
    _steps(axes, data, "p", color=LOSSLESS_COLOUR, linewidth=1.2, label="target p")
    _token_axis(axes, data, title)


def _draw_induced(axes: Axes, data: pd.DataFrame) -> None:
    resampled = data["induced"] - data["accepted"]
    axes.bar(data["rank"], data["accepted"], 0.8, color=BLUE, label="output π, accepted")
    axes.bar(data["rank"], resampled, 0.8, bottom=data["accepted"], color=LIGHT_BLUE, label="output π, resampled")
    _steps(axes, data, "p", color=LOSSLESS_COLOUR, linewidth=1.2, label="target p")
    _token_axis(axes, data)


def _steps(axes: Axes, data: pd.DataFrame, column: str, **look) -> None:
    edges = np.append(data["rank"] - 0.5, data["rank"].iloc[-1] + 0.5)
    axes.stairs(data[column], edges, baseline=None, **look)


def _draw_ceiling(axes: Axes, data: pd.DataFrame, top: float) -> None:
    """Ceilings as bars, as arrows where they are above `top`; where there is none, the ground is shaded."""
    free = data[np.isinf(data["ceiling"])]
    if len(free):
        axes.axvspan(
            free["rank"].min() - 0.5, free["rank"].max() + 0.5, color=GREEN, alpha=0.13, linewidth=0,
            label="allowed, no ceiling", zorder=0,
        )  # fmt: skip
    capped = data[~np.isinf(data["ceiling"])]
    axes.hlines(
        capped["ceiling"], capped["rank"] - 0.45, capped["rank"] + 0.45, color=GREEN, linewidth=1.8, zorder=4,
        label="ceiling of the accepted mass",
    )  # fmt: skip
    above = capped[capped["ceiling"] > top]["rank"]
    axes.plot(above, np.full(len(above), 0.97 * top), "^", color=GREEN, markersize=5)


def _token_axis(axes: Axes, data: pd.DataFrame, title: str = "") -> None:
    axes.set(title=title, xlabel="token, by rank under p", xlim=(0.4, len(data) + 0.6))
    axes.set_xticks(np.arange(1, len(data) + 1, 1 + len(data) // 16))
    axes.grid(False, axis="x")


def pointwise_ceiling(settings: Analytic) -> Plot:
    """Figure 8 (b): `pi / p` of every token under the pointwise ceiling p / l and under global mixtures."""
    fig8b = settings.fig8b
    rules = [_rule(setting) for setting in (fig8b.pointwise, *fig8b.mixtures)]
    p, q, token = _sorted_pair(settings.pair)
    frames = []
    for rule in rules:
        induced, numbers = rule.induced(p, q), distortion(p, q, rule, keys=("alpha", "tv_pi_p"))
        frames.append(
            pd.DataFrame(
                {
                    "rule": rule.name,
                    "param": rule.param,
                    "alpha": numbers["alpha"].item(),
                    "tv_pi_p": numbers["tv_pi_p"].item(),
                    "rank": np.arange(1, len(p) + 1),
                    "token": token.numpy(),
                    "p": p.numpy(),
                    "q": q.numpy(),
                    "induced": induced.numpy(),
                    "ratio": (induced / p).numpy(),
                    "q_ratio": (q / p).numpy(),
                    "ceiling": 1 / rules[0].param,
                }
            )
        )
    data = pd.concat(frames, ignore_index=True)
    figure, (axes,) = panels(1, 1, height=2.7)
    _draw_ratios(axes, frames)
    legend_above(figure, [axes], columns=1)
    return Plot(
        "fig8b_ceiling",
        "A global mixture against the pointwise ceiling",
        "π / p of every token, sorted by p: above 1 the rule emits the token more often than the target does. The "
        f"dashed line is the ceiling 1 / l at l = {rules[0].param:g}, which {rules[0].name} never passes; a mixture "
        "moves all tokens by one strength and passes it where q is far above p. The legend gives each rule's "
        "acceptance rate and TV(π, p) on this pair.",
        data,
        figure,
    )


def _draw_ratios(axes: Axes, frames: list[pd.DataFrame]) -> None:
    first = frames[0]
    limit = first["ceiling"].iloc[0]
    axes.axhline(1, color=LOSSLESS_COLOUR, linewidth=0.8)
    axes.axhline(limit, color=GREEN, linestyle=(0, (4, 2)), linewidth=1.4, label=f"ceiling 1 / l = {limit:g}")
    axes.plot(first["rank"], first["q_ratio"], "_", color=BASELINE_GREY, markersize=13, label="draft: q / p")
    dodges = np.linspace(-0.24, 0.24, len(frames))
    for frame, colour, marker, dodge in zip(frames, (BLUE, ORANGE, *COLOURS[3:]), MARKERS, dodges, strict=False):
        row = frame.iloc[0]
        label = f"{row['rule']} {row['param']:g}: acceptance {row['alpha']:.3f}, TV {row['tv_pi_p']:.3f}"
        axes.plot(frame["rank"] + dodge, frame["ratio"], marker, color=colour, label=label)
    _token_axis(axes, first)
    seen = np.concatenate([[limit], *(frame[["ratio", "q_ratio"]].to_numpy().ravel() for frame in frames)])
    seen = seen[np.isfinite(seen) & (seen > 0)]
    axes.set_yscale("log")
    axes.set(ylabel="π / p", ylim=(seen.min() / 1.3, seen.max() * 1.3))
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("")


def _sorted_pair(pair: DistributionPair) -> tuple[Tensor, Tensor, Tensor]:
    """`p`, `q` and the tokens' places in the config, each [vocab], the target's likeliest token first."""
    p, q = (torch.tensor(values, dtype=torch.float64) for values in (pair.p, pair.q))
    order = torch.sort(p, descending=True, stable=True).indices
    return normalise(p, p)[order], normalise(q, q)[order], order


def _rule(setting: RuleAt) -> Rule:
    return get_rule(setting.rule, setting.param)


def _label(rule: Rule) -> str:
    return f"{rule.name}, {rule.spec.param} = {rule.param:g}"
