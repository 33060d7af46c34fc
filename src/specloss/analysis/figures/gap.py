"""Figure 1: what a gate loses against its matched baseline as problems get harder."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from specloss.analysis.evidence.evidence import OVERALL, Evidence
from specloss.analysis.figures.plot import BASELINE_GREY, COLOURS, LOSSLESS_COLOUR, MARKERS, Plot, panels
from specloss.experiment.study import LOSSLESS, level_text


def gap_by_level(evidence: Evidence, columns: int = 2) -> Plot:
    """Figure 1: accuracy of each gate beside its matched baseline over the levels, and the gap with its interval."""
    study = evidence.study
    data = pd.DataFrame(
        [row for pair in study.pairs for gate in study.gates for row in _gap_rows(evidence, pair, gate)],
        columns=["pair", "method", "param", "against", "benchmark", "level", *GAP_NUMBERS],
    )
    groups = [(pair, gate) for pair in study.pairs for gate in study.gates]
    figure, axes = panels(2 * len(groups) or 1, columns)
    for number, (pair, gate) in enumerate(groups):
        here = data[(data["pair"] == pair) & (data["method"] == gate)]
        place = f" ({pair})" if len(study.pairs) > 1 else ""
        _draw_accuracies(axes[2 * number], here, COLOURS[number % len(COLOURS)], f"{gate}{place}: accuracy")
        _draw_gaps(axes[2 * number + 1], here, COLOURS[number % len(COLOURS)], f"{gate}{place}: gap to its baseline")
    return Plot(
        "fig1_gap_by_level",
        "Accuracy gap of each gate by difficulty",
        "Accuracy panels: the mean over parameters of the gate, of its matched truncation baseline and of the lossless "
        "run. Gap panels: gate minus baseline at each parameter (thin) and averaged over them (thick, with the paired "
        "95 % interval over problems); below zero the gate loses accuracy that truncation alone does not.",
        data,
        figure,
    )


GAP_NUMBERS = ["accuracy", "baseline_accuracy", "lossless_accuracy", "gap", "gap_low", "gap_high", "missing"]


def _gap_rows(evidence: Evidence, pair: str, gate: str) -> list[dict]:
    study, boot, rows = evidence.study, evidence.bootstrap, []
    grid = study.methods[gate]
    groups = [(OVERALL, grid), *((f"{s.param:g}", [s]) for s in grid)]
    for param, settings in groups:
        baselines = study.references(settings)
        for place in sorted(evidence.places(pair), key=lambda p: study.levels[p.benchmark]):
            gap = evidence.gap("accuracy", [place], settings)
            rows.append(
                {
                    "pair": pair,
                    "method": gate,
                    "param": param,
                    "against": baselines[0].method,
                    "benchmark": place.benchmark,
                    "level": study.levels[place.benchmark],
                    "accuracy": boot.mean("accuracy", [place], settings)[0],
                    "baseline_accuracy": boot.mean("accuracy", [place], baselines)[0],
                    "lossless_accuracy": boot.value("accuracy", place, study.lossless)[0],
                    "gap": gap.estimate,
                    "gap_low": gap.low,
                    "gap_high": gap.high,
                    "missing": evidence.reason(
                        {"accuracy": gap.estimate},
                        [place],
                        [*settings, *baselines, study.lossless],
                        intervals=True,
                    ),
                }
            )
    return rows


def _draw_accuracies(axes: Axes, data: pd.DataFrame, colour: str, title: str) -> None:
    mean = data[data["param"] == OVERALL]
    x = np.arange(len(mean))
    axes.plot(x, mean["lossless_accuracy"], ":", color=LOSSLESS_COLOUR, label=LOSSLESS, marker="*", markersize=6)
    axes.plot(x, mean["baseline_accuracy"], "--", color=BASELINE_GREY, marker="s", label=mean["against"].iloc[0])
    axes.plot(x, mean["accuracy"], "-", color=colour, marker="o", label=data["method"].iloc[0])
    _level_axis(axes, mean)
    axes.set(title=title, ylabel="accuracy, %")
    axes.legend(loc="best")


def _draw_gaps(axes: Axes, data: pd.DataFrame, colour: str, title: str) -> None:
    mean, params = data[data["param"] == OVERALL], [p for p in data["param"].unique() if p != OVERALL]
    x = np.arange(len(mean))
    axes.axhline(0, color=BASELINE_GREY, linewidth=0.8)
    shades = np.linspace(0.35, 0.9, len(params))
    for number, (param, shade) in enumerate(zip(params, shades, strict=True)):
        here = data[data["param"] == param]
        offset = 0.3 * ((number + 0.5) / len(params) - 0.5)
        axes.plot(
            x + offset, here["gap"], color=colour, alpha=shade, linewidth=0.7, markersize=3.5,
            marker=MARKERS[number % len(MARKERS)], label=param,
        )  # fmt: skip
    errors = [mean["gap"] - mean["gap_low"], mean["gap_high"] - mean["gap"]]
    axes.errorbar(x, mean["gap"], errors, color=colour, linewidth=2.2, capsize=3, elinewidth=1.2, label="mean")
    _level_axis(axes, mean)
    axes.set(title=title, ylabel="accuracy points")
    axes.legend(loc="best", ncols=3, fontsize=7, title="parameter", title_fontsize=7, handlelength=1.4, columnspacing=1)


def _level_axis(axes: Axes, rows: pd.DataFrame) -> None:
    axes.set_xticks(np.arange(len(rows)), [level_text(level) for level in rows["level"]])
    axes.set_xlim(-0.4, len(rows) - 0.6)
    axes.set_xlabel("level")
