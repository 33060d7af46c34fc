"""Acceptance by position in the block, and where the time of an output token goes."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from specloss.analysis.evidence.bootstrap import cells_of
from specloss.analysis.evidence.evidence import Evidence
from specloss.analysis.figures.plot import BASELINE_GREY, COLOURS, LOSSLESS_COLOUR, MARKERS, Plot, legend_above, panels
from specloss.experiment.study import LOSSLESS, Setting

PARTS = {"draft": (COLOURS[0], ""), "verify": (COLOURS[5], "//"), "overhead": (COLOURS[3], "..")}


def acceptance_by_position(evidence: Evidence, columns: int = 2) -> Plot:
    """The share of full blocks in which the k-th drafted token was kept, by k: a panel per method."""
    study = evidence.study
    methods = [method for method in study.methods if method != LOSSLESS]
    data = pd.DataFrame(
        [row for pair in study.pairs for setting in study.settings for row in _position_rows(evidence, pair, setting)],
        columns=["pair", "method", "param", "position", "accepted", "missing"],
    )
    groups = [(pair, method) for pair in study.pairs for method in methods]
    figure, axes = panels(len(groups) or 1, columns, height=2.1)
    for panel, (pair, method) in zip(axes, groups, strict=False):
        here = data[data["pair"] == pair]
        _draw_positions(panel, here, method)
        panel.set_title(method if len(study.pairs) == 1 else f"{pair}: {method}")
    where = "block"
    shown = "The share of full blocks in which the k-th drafted token was kept and emitted"
    sums = "BE is one more than the sum of a line's values; an end of sequence cuts a block"
    if study.tree:
        where = "tree"
        shown = "The share of target calls whose accepted path reaches level k of the drafted tree"
        sums = "BE is the sum of a line's values; an end of sequence cuts a path"
    return Plot(
        "acceptance_by_position",
        f"Acceptance by position in the {where}",
        f"{shown}, mean over benchmarks and seeds; one line per parameter, the lossless run dotted. {sums}, so even a "
        "method that accepts everything falls with the position.",
        data,
        figure,
    )


def _position_rows(evidence: Evidence, pair: str, setting: Setting) -> list[dict]:
    places = evidence.places(pair)
    cells = pd.concat([cells_of(evidence.summary, place, setting) for place in places])
    shares = [np.full(evidence.study.gamma, np.nan) if value is None else value for value in cells["accepted_at"]]
    means = np.mean(shares, axis=0) if shares else []
    row = {"pair": pair, "method": setting.method, "param": setting.param}
    return [
        row | {"position": k, "accepted": mean, "missing": evidence.reason({"accepted": mean}, places, [setting])}
        for k, mean in enumerate(means, start=1)
    ]


def _draw_positions(axes: Axes, data: pd.DataFrame, method: str) -> None:
    lossless, here = data[data["method"] == LOSSLESS], data[data["method"] == method]
    axes.plot(lossless["position"], lossless["accepted"], ":", color=LOSSLESS_COLOUR, label=LOSSLESS)
    params = list(here["param"].unique())
    for number, (param, shade) in enumerate(zip(params, np.linspace(0.4, 1, len(params)), strict=True)):
        line = here[here["param"].isna()] if pd.isna(param) else here[here["param"] == param]
        axes.plot(
            line["position"], line["accepted"], color=COLOURS[0], alpha=shade, linewidth=1, markersize=3.5,
            marker=MARKERS[number % len(MARKERS)], label=method if pd.isna(param) else f"{param:g}",
        )  # fmt: skip
    axes.set(xlabel="position", ylabel="share kept", ylim=(0, 1), xticks=sorted(data["position"].unique()))
    axes.legend(loc="best", fontsize=7, ncols=2, handlelength=1.4, columnspacing=1)


def time_split(evidence: Evidence, columns: int = 2) -> Plot:
    """Milliseconds per output token of every setting, split into draft, verify and overhead."""
    study = evidence.study
    rows = [
        _time_row(evidence, pair, setting)
        for pair in study.pairs
        for grid in study.methods.values()
        for setting in grid
    ]
    data = pd.DataFrame(rows)
    figure, axes = panels(len(study.pairs), 1, height=0.45 + 0.16 * len(study.settings))
    figure.set_figwidth(3.5 * columns)
    for panel, pair in zip(axes, study.pairs, strict=True):
        here = data[data["pair"] == pair].iloc[::-1]
        left = np.zeros(len(here))
        for part, (colour, hatch) in PARTS.items():
            panel.barh(here["setting"], here[part], left=left, color=colour, hatch=hatch, edgecolor="white", label=part)
            left = left + here[part].to_numpy()
        for row, why in enumerate(here["missing"]):  # a bar of no length would say that it takes no time
            panel.text(0, row, f" {why}", va="center", fontsize=7, fontstyle="italic", color=BASELINE_GREY)
        panel.set(
            xlabel="ms per output token", title="" if len(study.pairs) == 1 else pair, ylim=(-0.6, len(here) - 0.4)
        )
        panel.grid(axis="y", visible=False)
    legend_above(figure, axes)
    return Plot(
        "time_split",
        "Where the time goes",
        "Milliseconds of decoding per output token, mean over benchmarks and seeds, spent in the draft's forwards, the "
        "target's forwards and everything else. A setting is faster when its bar is shorter, whatever its BE.",
        data,
        figure,
    )


def _time_row(evidence: Evidence, pair: str, setting: Setting) -> dict:
    places = evidence.places(pair)
    cells = pd.concat([cells_of(evidence.summary, place, setting) for place in places])
    per_token = 1000 * cells["seconds"] / cells["tokens"]
    row = {"pair": pair, "setting": setting.label}
    times = {part: (per_token * cells[f"{part}_share"]).mean(skipna=False) for part in PARTS}
    return row | times | {"missing": evidence.reason(times, places, [setting])}
