"""A table: numbers for the CSV and the same numbers as text for reading, and how numbers become text."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from specloss.analysis.evidence import Evidence
from specloss.analysis.statistics import Interval

OVERALL = "(mean)"  # in place of a benchmark or a parameter: the plain mean over all of them
HEADS = {"be": "BE", "be_expected": "BE expected", "ds": "DS", "accuracy": "accuracy", "alpha": "acceptance"}


@dataclass(frozen=True)
class Table:
    """`data` is what the CSV has; `shown` is text, a row per line of the printed table."""

    name: str
    title: str
    reading: str
    data: pd.DataFrame
    shown: pd.DataFrame

    def markdown(self) -> str:
        """Title, table and how to read it."""
        cells = self.shown.astype(str).map(lambda text: text.replace("|", "\\|"))
        lines = [" | ".join(row) for row in [list(cells.columns), ["---"] * cells.shape[1], *cells.to_numpy().tolist()]]
        return f"# {self.title}\n\n" + "\n".join(f"| {line} |" for line in lines) + f"\n\n{self.reading}\n"

    def latex(self) -> str:
        """A booktabs tabular."""
        return self.shown.to_latex(index=False, escape=True, column_format="l" * self.shown.shape[1])

    def csv(self) -> str:
        """All numbers, to six digits."""
        return self.data.to_csv(index=False)


def with_pair(evidence: Evidence, pair: str, line: dict[str, str]) -> dict[str, str]:
    """The line with its pair before it, if the experiment has several."""
    return {"pair": pair, **line} if len(evidence.study.pairs) > 1 else line


def rounded(rows: list[dict], columns: list[str] | None = None) -> pd.DataFrame:
    """Numbers to six significant digits, so that the CSV is the frame."""
    frame = pd.DataFrame(rows, columns=columns)
    for name in frame.select_dtypes("float").columns:
        frame[name] = [float(f"{value:.6g}") for value in frame[name]]
    return frame


def effect_columns(name: str, effect: Interval | None) -> dict[str, float]:
    """An effect and the ends of its 95 % interval as three columns; NaN without one."""
    low, middle, high = (effect.low, effect.estimate, effect.high) if effect else (np.nan, np.nan, np.nan)
    return {name: middle, f"{name}_low": low, f"{name}_high": high}


def listed(values: list[int]) -> str:
    """`1, 2, 3`."""
    return ", ".join(map(str, values))


def number(value: float, digits: int) -> str:
    """A number, or that it is missing."""
    return "missing" if np.isnan(value) else f"{value:.{digits}f}"


def plus_minus(mean: float, std: float, digits: int) -> str:
    """`76.5 ± 1.5`, over seeds; from 100 up without decimals."""
    digits = 0 if abs(mean) >= 100 else digits
    text = number(mean, digits)
    return text if np.isnan(std) or np.isnan(mean) else f"{text} ± {number(std, digits)}"


def effect_text(effect: Interval, digits: int) -> str:
    """A difference: `+0.31 [+0.12, +0.50]`."""
    return interval_text(effect, digits, sign="+")


def interval_text(value: Interval, digits: int, sign: str = "") -> str:
    """`3.31 [3.12, 3.50]`."""
    if value.missing:
        return "missing"
    return f"{value.estimate:{sign}.{digits}f} [{value.low:{sign}.{digits}f}, {value.high:{sign}.{digits}f}]"


def missing_text(there: int, expected: int) -> str:
    """What stands for a mean of which cells are missing."""
    return f"missing ({there}/{expected} seeds)"
