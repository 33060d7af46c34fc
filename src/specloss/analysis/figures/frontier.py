"""Figures 3 and 6: what speed costs in accuracy."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from specloss.analysis.evidence.bootstrap import ends_text, interval, over_seeds
from specloss.analysis.evidence.evidence import Evidence
from specloss.analysis.figures.plot import COLOURS, LOSSLESS_COLOUR, MARKERS, Plot, legend_above, panels
from specloss.experiment.study import LOSSLESS, Place

OFFSETS = ((4, 4), (4, -9), (-14, 4), (-14, -9))  # points; labels of different methods do not overlap


def truncation(evidence: Evidence, columns: int = 2) -> Plot:
    """Figure 3: the gates and their truncation baselines."""
    title = "BE against accuracy: gates and truncation baselines"
    return _frontier(evidence, "fig3_truncation", title, evidence.study.truncation_family, columns)


def collaborative(evidence: Evidence, columns: int = 2) -> Plot:
    """Figure 6: the methods that mix the draft's distribution into the output."""
    title = "BE against accuracy: collaborative methods"
    return _frontier(evidence, "fig6_collaborative", title, evidence.study.collaborative_family, columns)


def _frontier(evidence: Evidence, name: str, title: str, methods: list[str], columns: int) -> Plot:
    study = evidence.study
    data = pd.DataFrame(
        _row(evidence, place, method, setting.param)
        for place in study.places
        for method in [LOSSLESS, *methods]
        for setting in study.methods[method]
    )
    figure, axes = panels(len(study.places), columns)
    hover: dict[str, str] = {}
    for panel, place in zip(axes, study.places, strict=True):
        here = data[(data["pair"] == place.pair) & (data["benchmark"] == place.benchmark)]
        _draw(panel, here, methods)
        hover |= _mark(panel, here)
        panel.set_title(place.benchmark if len(study.pairs) == 1 else f"{place.pair}: {place.benchmark}")
    legend_above(figure, axes, columns=2 * columns)
    return Plot(
        name,
        title,
        "A point is a setting, a line joins a method's settings in the order of its parameter (written at the ends); "
        "bars are 95 % intervals over problems. Up and to the right is better; the star and the dashed lines are the "
        f"lossless run. {study.define('be')}",
        data,
        figure,
        hover,
    )


def _mark(axes: Axes, data: pd.DataFrame) -> dict[str, str]:
    """An invisible mark over each point, to which a page attaches the text shown on hover."""
    hover = {}
    for number, row in data[data["be"].notna()].iterrows():
        axes.plot(row["be"], row["accuracy"], "o", markersize=9, alpha=0, gid=f"point-{number}", zorder=9)
        setting = row["method"] if pd.isna(row["param"]) else f"{row['method']} ({row['param']:g})"
        values = [
            f"{head} {row[name]:.{digits}f}{unit} {ends_text(row[f'{name}_low'], row[f'{name}_high'], digits)}"
            for name, head, digits, unit in (("be", "BE", 2, ""), ("accuracy", "accuracy", 1, " %"))
        ]
        hover[f"point-{number}"] = "\n".join([f"{setting} on {row['benchmark']}", *values])
    return hover


def _row(evidence: Evidence, place: Place, method: str, param: float | None) -> dict:
    study, boot = evidence.study, evidence.bootstrap
    setting = study.setting(method, param)
    row: dict = {"pair": place.pair, "benchmark": place.benchmark, "method": method, "param": param}
    for name, metric in (("be", study.metric("be", place.pair)), ("accuracy", "accuracy")):
        value = interval(boot.value(metric, place, setting))
        row |= {name: value.estimate, f"{name}_low": value.low, f"{name}_high": value.high}
        row[f"{name}_std"] = over_seeds(study, evidence.summary, metric, place, setting)[1]
    values = {name: row[name] for name in ("be", "accuracy")}
    return row | {"missing": evidence.reason(values, [place], [setting], intervals=True)}


def _draw(axes: Axes, data: pd.DataFrame, methods: list[str]) -> None:
    reference = data[data["method"] == LOSSLESS].iloc[0]
    if not np.isnan(reference["be"]):
        for line, value in ((axes.axhline, reference["accuracy"]), (axes.axvline, reference["be"])):
            line(value, color=LOSSLESS_COLOUR, linestyle=(0, (2, 2)), linewidth=0.8)
    for number, method in enumerate(methods):
        here, colour = data[data["method"] == method], COLOURS[number % len(COLOURS)]
        axes.errorbar(
            here["be"], here["accuracy"],
            xerr=[here["be"] - here["be_low"], here["be_high"] - here["be"]],
            yerr=[here["accuracy"] - here["accuracy_low"], here["accuracy_high"] - here["accuracy"]],
            color=colour, ecolor=(colour, 0.35), elinewidth=0.8, label=method,
            marker=MARKERS[(number + number // len(COLOURS)) % len(MARKERS)],
        )  # fmt: skip
        there = here[here["be"].notna() & here["param"].notna()]
        for _, end in pd.concat([there.head(1), there.iloc[1:].tail(1)]).iterrows():
            axes.annotate(
                f"{end['param']:g}", (end["be"], end["accuracy"]), OFFSETS[number % len(OFFSETS)],
                textcoords="offset points", color=colour, fontsize=7,
            )  # fmt: skip
    star = {"color": LOSSLESS_COLOUR, "markersize": 9, "label": LOSSLESS, "zorder": 5}
    axes.plot([reference["be"]], [reference["accuracy"]], "*", **star)
    axes.set(xlabel="BE, tokens per block", ylabel="accuracy, %")
