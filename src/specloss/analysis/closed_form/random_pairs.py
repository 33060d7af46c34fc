"""Figures 4 and 8 (a): averages over random pairs of distributions. See `analytic`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from numpy.polynomial import Polynomial
from torch import Tensor

from specloss.analysis.closed_form.config import KINDS, Analytic, Fig4, Fig8a
from specloss.analysis.figures.plot import COLOURS, LOSSLESS_COLOUR, MARKERS, Plot, legend_above, panels
from specloss.common.yamlfile import ConfigError
from specloss.verification import Rule, get_rule
from specloss.verification.distributions import total_variation

Z = 1.96  # of a 95 % interval


def candidate_mixes(settings: Analytic) -> Plot:
    """Figure 4: net change of BE by truncation, under mixes of matching, partially overlapping and unrelated draft."""
    fig4 = settings.fig4
    data = pd.DataFrame(_mix_rows(fig4))
    groups = [(proposal, rule) for proposal in fig4.proposals for rule in fig4.baselines]
    figure, axes = panels(len(groups), len(fig4.baselines))
    for panel, (proposal, rule) in zip(axes, groups, strict=True):
        _draw_mixes(panel, data[(data["proposal"] == proposal) & (data["rule"] == rule)], fig4)
        panel.set(title=f"{rule}, {proposal}", xlabel=get_rule(rule, fig4.baselines[rule][0]).spec.param)
    legend_above(figure, axes, columns=3)
    figure.legends[0].set_title(" / ".join(KINDS), prop={"size": 8})
    half = fig4.candidates // 2
    return Plot(
        "fig4_candidates",
        "What truncation adds to block efficiency, by the kind of candidates",
        f"Expected BE (gamma {fig4.gamma}) of each truncation baseline less that of lossless verification of p; the "
        f"ratios in the legend are the shares of positions at which the draft's {fig4.candidates} candidates are the "
        f"target's {fig4.candidates} likeliest tokens in the same order (matching), {half} of these and {half} others "
        f"(partial), or only others (unrelated). Chain: one candidate is drawn from q; tree: all are tried. Target and "
        f"draft are {fig4.pairs} independent pairs of Dirichlet({fig4.concentration:g}) draws over {fig4.vocabulary} "
        "tokens, the draft cut to its candidates; bars are 95 % intervals over pairs, the dashed line is no change.",
        data,
        figure,
    )


def drafts(fig4: Fig4) -> tuple[Tensor, dict[str, Tensor]]:
    """Targets `p` [pairs, vocab], likeliest token first, and for each kind the drafts `q` [pairs, vocab].

    A draft has mass on its candidates alone. All kinds share the targets and the drafts' probabilities.
    """
    random = np.random.default_rng(fig4.seed)
    pairs, vocabulary, k = fig4.pairs, fig4.vocabulary, fig4.candidates
    p, q = (-np.sort(-random.dirichlet(np.full(vocabulary, fig4.concentration), pairs), axis=-1) for _ in range(2))
    weights = q[:, :k] / q[:, :k].sum(-1, keepdims=True)  # [pairs, k], falling
    head, tail = _shuffled(random, pairs, k), k + _shuffled(random, pairs, vocabulary - k)
    order = _shuffled(random, pairs, k)
    found = {}
    for kind, shared in zip(KINDS, (k, k // 2, 0), strict=True):
        tokens = np.concatenate([head[:, :shared], tail[:, : k - shared]], axis=-1)  # [pairs, k]
        tokens = np.sort(tokens, axis=-1) if kind == "matching" else np.take_along_axis(tokens, order, axis=-1)
        draft = np.zeros_like(p)
        np.put_along_axis(draft, tokens, weights, axis=-1)
        found[kind] = torch.from_numpy(draft)
    return torch.from_numpy(p), found


def _shuffled(random: np.random.Generator, rows: int, size: int) -> np.ndarray:
    """A permutation of 0 ... size - 1 in each row [rows, size]."""
    return random.random((rows, size)).argsort(-1)


def accepted_share(rule: Rule, proposal: str, p: Tensor, q: Tensor) -> np.ndarray:
    """Probability [pairs] that a position is accepted, of a lossless rule for its own target.

    In a tree all tokens in the support of `q` are siblings. The lossless rule accepts each in turn with its
    probability under the target less the siblings before it, so one of them with the mass that they have together.
    """
    if proposal == "chain":
        return rule.acceptance(p, q).numpy()
    return torch.where(q > 0, rule.target(p), 0.0).sum(-1).clamp_max(1).numpy()


def _mix_rows(fig4: Fig4) -> Iterator[dict]:
    efficiency = Polynomial(np.ones(fig4.gamma + 1))  # BE = 1 + alpha + ... + alpha^gamma
    slope = efficiency.deriv()
    p, by_kind = drafts(fig4)
    standard = get_rule("standard_sd")
    for proposal in fig4.proposals:
        before = np.stack([accepted_share(standard, proposal, p, q) for q in by_kind.values()])  # [kinds, pairs]
        for name, params in fig4.baselines.items():
            for param in params:
                rule = get_rule(name, param)
                after = np.stack([accepted_share(rule, proposal, p, q) for q in by_kind.values()])
                for mix in fig4.mixes:
                    old, new = np.array(mix) @ before, np.array(mix) @ after  # [pairs]
                    shift = slope(new.mean()) * new - slope(old.mean()) * old  # to first order, what a pair adds
                    yield {
                        "rule": name,
                        "param": param,
                        "proposal": proposal,
                        **dict(zip(KINDS, mix, strict=True)),
                        "gamma": fig4.gamma,
                        "pairs": fig4.pairs,
                        "alpha_standard": old.mean(),
                        "alpha": new.mean(),
                        "be_standard": efficiency(old.mean()),
                        "be": efficiency(new.mean()),
                        "be_change": efficiency(new.mean()) - efficiency(old.mean()),
                        "be_change_se": shift.std(ddof=1) / np.sqrt(fig4.pairs),
                    }


def _draw_mixes(axes: Axes, data: pd.DataFrame, fig4: Fig4) -> None:
    axes.axhline(0, color=LOSSLESS_COLOUR, linestyle=(0, (2, 2)), linewidth=0.8)
    for number, mix in enumerate(fig4.mixes):
        here = data[(data[list(KINDS)] == mix).all(axis=1)]
        axes.errorbar(
            here["param"], here["be_change"], Z * here["be_change_se"], color=COLOURS[number], elinewidth=0.8,
            marker=MARKERS[number], label=" / ".join(f"{ratio:g}" for ratio in mix),
        )  # fmt: skip
    axes.set_xticks(data["param"].unique())
    axes.set_ylabel("change of BE, tokens per block")


def interpolation_strength(settings: Analytic) -> Plot:
    """Figure 8 (a): D of lenience's `pi = q + D (p - q)` (where q <= p) over TV(p, q)."""
    fig8a = settings.fig8a
    tv, q, p = separated(fig8a)
    rows = []
    for l in fig8a.l:  # noqa: E741
        d = strength(get_rule("lenience", l), p.unsqueeze(1), q).numpy()  # [pairs, points]
        low, high = np.quantile(d, [0.25, 0.75], axis=0)
        for i, distance in enumerate(tv):
            row = {"l": l, "tv": distance, "pairs": len(d), "d": d[:, i].mean(), "d_low": low[i], "d_high": high[i]}
            rows.append(row)
    data = pd.DataFrame(rows)
    figure, (axes,) = panels(1, 1)
    for number, l in enumerate(sorted(fig8a.l, reverse=True)):  # noqa: E741
        here, colour = data[data["l"] == l], COLOURS[number]
        axes.fill_between(here["tv"], here["d_low"], here["d_high"], color=colour, alpha=0.15, linewidth=0)
        axes.plot(
            here["tv"], here["d"], color=colour, marker=MARKERS[number], markevery=max(1, fig8a.points // 8),
            label=f"l = {l:g}",
        )  # fmt: skip
    axes.set(xlabel="TV(p, q)", ylabel="interpolation strength D", xlim=(0, fig8a.tv_max), ylim=(0, 1.02))
    legend_above(figure, [axes], columns=4)
    return Plot(
        "fig8a_strength",
        "Lenience's interpolation strength adapts to the distance of draft and target",
        "Lenience emits π = q + D (p - q) wherever q <= p. At D = 0 these follow the draft, at D = 1 the target: "
        "the further q is from p and the larger l, the more of the target is restored. Lines are means and bands "
        f"quartiles over {data['pairs'].iloc[0]} pairs: p and u are Dirichlet({fig8a.concentration:g}) draws over "
        f"{fig8a.vocabulary} tokens and q = p + t (u - p), with t such that TV(p, q) is the value on the axis.",
        data,
        figure,
    )


def separated(fig8a: Fig8a) -> tuple[np.ndarray, Tensor, Tensor]:
    """TV values [points], drafts `q` [pairs, points, vocab] at that distance from the targets `p` [pairs, vocab].

    Along a pair's line `q = p + t (u - p)`, TV(p, q) = t TV(p, u). Raises ConfigError if no pair is far enough apart.
    """
    random = np.random.default_rng(fig8a.seed)
    weights = np.full(fig8a.vocabulary, fig8a.concentration)
    p, u = (torch.from_numpy(random.dirichlet(weights, fig8a.pairs)) for _ in range(2))
    furthest = total_variation(p, u)
    far = furthest >= fig8a.tv_max
    if not far.any():
        raise ConfigError(
            f"fig8a.tv_max: no pair is {fig8a.tv_max:g} apart, the furthest are {furthest.max():.2g}; "
            "lower it or concentration"
        )
    p, u, furthest = p[far], u[far], furthest[far]
    tv = np.round(np.linspace(0, fig8a.tv_max, fig8a.points + 1)[1:], 12)
    t = torch.from_numpy(tv) / furthest[:, None]  # [pairs, points]
    return tv, torch.lerp(p[:, None, :], u[:, None, :], t[..., None]), p


def strength(rule: Rule, p: Tensor, q: Tensor) -> Tensor:
    """`D` [...] in `pi = q + D (p - q)` on the tokens where q < p, read off the induced distribution [..., vocab]."""
    below = q < p
    moved = torch.where(below, rule.induced(p, q) - q, 0.0).sum(-1)
    return moved / torch.where(below, p - q, 0.0).sum(-1)
