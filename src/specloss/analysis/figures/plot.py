"""What a figure is, and the style of all: colour-blind safe, readable in grey, the same bytes for the same data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specloss.analysis.outputs import DRAWINGS
from specloss.common.files import replacing

# Okabe and Ito, "Color Universal Design" (2008), without the yellow, which is too light for lines on white paper.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
MARKERS = ("o", "s", "^", "D", "v", "P")
LOSSLESS_COLOUR = "#000000"
BASELINE_GREY = "#767676"

SETTINGS = {
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.labelsize": 8,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "lines.linewidth": 1.3,
    "lines.markersize": 4.5,
    "figure.dpi": 100,
    "savefig.dpi": 200,
}
WIDTH = 3.5  # inches of a panel: two of them are the text width of a page


@dataclass(frozen=True)
class Plot:
    """`data` is the CSV's content and everything that is drawn; `reading` says in two sentences how to read it.

    `hover` is what a page shows over a mark: the text of each artist by its gid.
    """

    name: str
    title: str
    reading: str
    data: pd.DataFrame
    figure: Figure
    hover: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def styled(name: str) -> Iterator[None]:
    """The style, with SVG identifiers that depend only on the figure's name."""
    with mpl.rc_context({**SETTINGS, "svg.hashsalt": name, "svg.fonttype": "path", "pdf.fonttype": 42}):
        yield


def panels(count: int, columns: int, height: float = 2.4) -> tuple[Figure, list[Axes]]:
    """A figure with `count` panels in rows, the unused places of the last row left empty."""
    columns = max(1, min(columns, count))
    rows = -(-count // columns)
    figure = Figure(figsize=(WIDTH * columns, height * rows + 0.45), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in grid[count:]:
        axes.set_axis_off()
    return figure, list(grid[:count])


def legend_above(figure: Figure, axes: Sequence[Axes], columns: int = 4) -> None:
    """One legend above all panels, with as many columns as fit."""
    entries: dict[str, object] = {}
    for panel in axes:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    if entries:
        fitting = int(figure.get_figwidth() / (0.6 + 0.062 * max(map(len, entries))))  # inches of an entry
        columns = max(1, min(columns, fitting))
        figure.legend(list(entries.values()), list(entries), loc="outside upper center", ncols=columns)


def draw(figure: Figure, name: str, suffix: str, target: Path | IO[bytes]) -> None:
    """Draw as SVG, PDF or PNG without a date; `name` makes the identifiers in an SVG."""
    metadata = {
        "svg": {"Date": None, "Creator": "specloss"},
        "pdf": {"CreationDate": None, "Creator": "specloss", "Producer": None},
        "png": {"Software": "specloss"},
    }
    with styled(name):
        figure.savefig(target, format=suffix, metadata=metadata[suffix])


def save(figure: Figure, name: str, out: Path) -> dict[str, Path]:
    """Write `out/<name>` as each of `DRAWINGS`, atomically; returns the paths by suffix."""
    paths = {suffix: Path(out) / f"{name}.{suffix}" for suffix in DRAWINGS}
    for suffix, path in paths.items():
        with replacing(path) as part:
            draw(figure, name, suffix, part)
    return paths
