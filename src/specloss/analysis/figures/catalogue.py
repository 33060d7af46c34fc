"""The figures: each a frame of numbers (CSV) and a drawing of that frame (SVG, PDF and PNG)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd

from specloss.analysis.evidence.evidence import Evidence
from specloss.analysis.figures.frontier import collaborative, truncation
from specloss.analysis.figures.gap import gap_by_level
from specloss.analysis.figures.plot import Plot, save, styled
from specloss.analysis.figures.speed import acceptance_by_position, time_split
from specloss.analysis.outputs import FIGURES
from specloss.common.files import write_text

MAKERS: dict[str, Callable[[Evidence, int], Plot]] = {
    "fig1_gap_by_level": gap_by_level,
    "fig3_truncation": truncation,
    "fig6_collaborative": collaborative,
    "acceptance_by_position": acceptance_by_position,
    "time_split": time_split,
}


def make_figure(name: str, evidence: Evidence, columns: int = 2) -> Plot:
    """The figure of that name, one of `specloss.analysis.FIGURES`, with so many panels side by side (1 for a phone)."""
    if name not in MAKERS:
        raise ValueError(f"no figure {name!r}; there are {', '.join(FIGURES)}")
    with styled(name):
        plot = MAKERS[name](evidence, columns)
    return replace(plot, reading=f"{plot.reading} {_not_drawn(plot.data)}".rstrip())


def _not_drawn(data: pd.DataFrame) -> str:
    """How much of the figure is missing and why, in a sentence; '' if nothing is."""
    reasons = Counter(why for why in data["missing"] if why).most_common()
    if not reasons:
        return ""
    more = f", and {len(reasons) - 1} more" if len(reasons) > 1 else ""
    count = sum(number for _, number in reasons)
    return (
        f"Not drawn: {count} of {len(data)} values ({reasons[0][0]}{more}; each with its reason in the figure's CSV)."
    )


def write_figure(name: str, experiment_json: Path, results: Path, out: Path) -> list[Path]:
    """Write `out/<name>` with each of `specloss.analysis.FIGURE_SUFFIXES`; returns their paths in that order."""
    plot = make_figure(name, Evidence.read(experiment_json, results))
    drawings = save(plot.figure, name, out)
    write_text(csv := Path(out) / f"{name}.csv", plot.data.to_csv(index=False))
    return [*drawings.values(), csv]


def write_figures(experiment_json: Path, results: Path, out: Path) -> list[Path]:
    """Write every figure."""
    return [path for name in FIGURES for path in write_figure(name, experiment_json, results, out)]
