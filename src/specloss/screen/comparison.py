"""The screen against the runs: how well one trace predicts each setting, which in a run chooses its own prefixes."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from specloss.analysis.evidence.summary import SUMMARY, read_summary
from specloss.analysis.figures.plot import COLOURS, LOSSLESS_COLOUR, MARKERS, legend_above, panels, save, styled
from specloss.analysis.tables.markdown import markdown_table
from specloss.common.files import write_text
from specloss.experiment.cells import format_param
from specloss.experiment.plan import Plan
from specloss.screen import COMPARISON, SCATTER, ScreenError
from specloss.screen.output import number, read_screen
from specloss.screen.places import POLICY

METRICS = {"be_expected": ("BE", 2), "alpha": ("acceptance", 3), "tv_pi_p": ("TV to p", 3)}
KEYS = ["pair", "benchmark", "method", "param"]
ALL = "(all)"  # in place of a benchmark: all places together
TITLE = "# The screen beside the runs\n"
READING = """\
Screen: one decode under {policy} (seed {seed}), all rules evaluated on its prefixes. Runs: every setting decoded by
itself ({seeds}), with prefixes of its own. BE is `be_expected` in both; acceptance and TV are means over the positions
that were decided, in the screen over those that would be, by their probability. A difference is the screen less the
runs: it holds what the rule's own prefixes and block starts change, and the noise of both samples. Rank correlation is
Spearman's over settings; 1 means that the screen orders the settings as the runs do. With all places together it also
credits telling the benchmarks apart.
"""


def write_comparison(plan: Plan, out: Path) -> pd.DataFrame:
    """Compare `out/screen.csv` with the experiment's runs: write `COMPARISON` to `out` and return the agreement.

    ScreenError if either is missing or they have no setting in common.
    """
    if not (plan.folder / SUMMARY).exists():
        raise ScreenError(f"{plan.folder} has no summary: run the experiment before comparing with it")
    runs = read_summary(plan.file, plan.results)
    table = compare(read_screen(out), runs)
    if table.empty:
        raise ScreenError(f"{out}: the screen and the runs of {plan.experiment.name} have no setting in common")
    agreement = agreements(table)
    csv, markdown = (Path(out) / name for name in COMPARISON[:2])
    write_text(csv, table.to_csv(index=False, float_format="%.6g"))
    write_text(markdown, _markdown(plan, table, agreement))
    with styled(SCATTER):
        figure = _scatter(table)
    save(figure, SCATTER, out)
    return agreement


def compare(screened: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """A row per setting that both have: each metric screened, in the runs (mean, std over seeds), and the difference.

    `runs` is the summary; cells that are not whole do not count.
    """
    whole = runs[runs["status"] == "whole"]
    by_setting = whole.groupby(KEYS, dropna=False, sort=False)
    means = by_setting[list(METRICS)].mean().add_suffix("_runs")
    stds = by_setting[list(METRICS)].std().add_suffix("_runs_std")
    seeds = by_setting.size().rename("seeds")
    ours = screened[[*KEYS, *METRICS, "be_expected_se"]]
    ours = ours.rename(columns={name: f"{name}_screen" for name in METRICS})
    table = ours.merge(pd.concat([seeds, means, stds], axis=1).reset_index(), on=KEYS)
    for name in METRICS:
        table[f"{name}_difference"] = table[f"{name}_screen"] - table[f"{name}_runs"]
    columns = [f"{name}_{part}" for name in METRICS for part in ("screen", "runs", "runs_std", "difference")]
    return table[[*KEYS, "seeds", *columns, "be_expected_se"]]


def agreements(table: pd.DataFrame) -> pd.DataFrame:
    """Per place and metric: settings, rank correlation, mean absolute and largest difference, and where that is."""
    rows = []
    for pair, benchmark, place in _places(table):
        for name in METRICS:
            there = place.dropna(subset=[f"{name}_difference"])
            if there.empty:
                continue
            difference = there[f"{name}_difference"]
            worst = there.loc[difference.abs().idxmax()]
            rows.append(
                {
                    "pair": pair,
                    "benchmark": benchmark,
                    "metric": name,
                    "settings": len(there),
                    "rank_correlation": _spearman(there[f"{name}_screen"], there[f"{name}_runs"]),
                    "mean_difference": difference.abs().mean(),
                    "largest_difference": worst[f"{name}_difference"],
                    "where": _where(worst, with_place=benchmark == ALL),
                    "runs_std": there[f"{name}_runs_std"].mean(),
                }
            )
    return pd.DataFrame(rows)


def _places(table: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    groups = list(table.groupby(["pair", "benchmark"], sort=False))
    for (pair, benchmark), place in groups:
        yield pair, benchmark, place
    if len(groups) > 1:
        yield ALL, ALL, table


def _spearman(x: pd.Series, y: pd.Series) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.ConstantInputWarning)  # no ranks: nan
        return float(stats.spearmanr(x, y).statistic) if len(x) > 2 else float("nan")


def _where(row: pd.Series, with_place: bool) -> str:
    setting = row["method"] if np.isnan(row["param"]) else f"{row['method']} ({format_param(row['param'])})"
    return f"{setting}, {row['pair']}/{row['benchmark']}" if with_place else setting


def _markdown(plan: Plan, table: pd.DataFrame, agreement: pd.DataFrame) -> str:
    seeds = plan.experiment.seeds
    named = f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
    parts = [TITLE, READING.format(policy=POLICY, seed=seeds[0], seeds=named)]
    for name, (word, digits) in METRICS.items():
        rows = agreement[agreement["metric"] == name]
        shown = pd.DataFrame({"pair": rows["pair"], "benchmark": rows["benchmark"], "settings": rows["settings"]})
        shown["rank correlation"] = [number(value, 3) or "none: all alike" for value in rows["rank_correlation"]]
        shown["mean absolute difference"] = [number(value, digits) for value in rows["mean_difference"]]
        shown["largest difference"] = [number(value, digits, sign=True) for value in rows["largest_difference"]]
        shown["where"] = rows["where"]
        shown["std of the runs over seeds"] = [number(value, digits) or "one seed" for value in rows["runs_std"]]
        parts += [f"## {word}\n", markdown_table(shown) + "\n"]
    parts += ["## All settings\n", markdown_table(_settings(table)) + "\n"]
    return "\n".join(parts)


def _settings(table: pd.DataFrame) -> pd.DataFrame:
    shown = table[KEYS[:3]].copy()
    shown["param"] = [format_param(None if np.isnan(param) else param) for param in table["param"]]
    for name, (word, digits) in METRICS.items():
        for part in ("screen", "runs"):
            shown[f"{word}, {part}"] = [number(value, digits) for value in table[f"{name}_{part}"]]
    return shown


def _scatter(table: pd.DataFrame):
    """BE of each setting, screened against run: a panel per place, the diagonal is agreement."""
    groups = list(table.groupby(["pair", "benchmark"], sort=False))
    methods: Sequence[str] = list(dict.fromkeys(table["method"]))
    figure, axes = panels(len(groups), columns=2, height=2.8)
    for panel, ((pair, benchmark), place) in zip(axes, groups, strict=True):
        both = place[["be_expected_screen", "be_expected_runs"]].to_numpy()
        ends = [np.nanmin(both), np.nanmax(both)]
        panel.plot(ends, ends, color=LOSSLESS_COLOUR, linestyle=(0, (2, 2)), linewidth=0.8)
        for n, method in enumerate(methods):
            here = place[place["method"] == method].sort_values("be_expected_runs")
            x, y = here["be_expected_runs"], here["be_expected_screen"]
            if method == POLICY:
                panel.plot(x, y, "*", color=LOSSLESS_COLOUR, markersize=9, label=method, zorder=5)
                continue
            colour, marker = COLOURS[n % len(COLOURS)], MARKERS[(n + n // len(COLOURS)) % len(MARKERS)]
            panel.plot(x, y, marker, color=colour, alpha=0.8, label=method)
        panel.set_title(benchmark if table["pair"].nunique() == 1 else f"{pair}: {benchmark}")
        panel.set(xlabel="BE, runs", ylabel="BE, screen")
    legend_above(figure, axes, columns=4)
    return figure
