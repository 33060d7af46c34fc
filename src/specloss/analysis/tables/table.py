"""A table: numbers for the CSV, the same numbers as text for readers, and how numbers become text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from specloss.analysis.evidence.bootstrap import Interval, ends_text
from specloss.analysis.evidence.evidence import Evidence
from specloss.analysis.tables.latex import PREAMBLE, tabulars
from specloss.analysis.tables.markdown import markdown_table

HEADS = {"be": "BE", "be_expected": "BE expected", "ds": "DS", "accuracy": "accuracy", "alpha": "acceptance"}


BEST, SECOND = "best", "second"  # marks of a column's largest number and the one after it: bold and underlined
LATEX = {BEST: r"\textbf{%s}", SECOND: r"\underline{%s}"}
MARKDOWN = {BEST: "**%s**", SECOND: "<u>%s</u>"}


@dataclass(frozen=True)
class Table:
    """`data` is the CSV's content; `shown` is text, a row per line of the printed table, in the paper's layout.

    `marks` has BEST, SECOND or '' for each text. `effects` is a second table below: what the lines of the first are
    compared with, paired. Columns of `shown` that begin with one of `groups` share a head in LaTeX.
    """

    name: str
    title: str
    reading: str
    data: pd.DataFrame
    shown: pd.DataFrame
    marks: pd.DataFrame | None = None
    effects: pd.DataFrame | None = None
    groups: tuple[str, ...] = ()

    @property
    def parts(self) -> list[tuple[pd.DataFrame, pd.DataFrame]]:
        """Each table that is printed, with its marks."""
        parts = [(self.shown, self.marks if self.marks is not None else _no_marks(self.shown))]
        return parts + ([(self.effects, _no_marks(self.effects))] if self.effects is not None else [])

    def markdown(self) -> str:
        """Title, tables and how to read them."""
        tables = (markdown_table(*part, MARKDOWN) for part in self.parts)
        return "\n\n".join([f"# {self.title}", *tables, self.reading]) + "\n"

    def latex(self) -> str:
        """A booktabs tabular each, or several where it is longer than a page."""
        return "\n".join([PREAMBLE, *(tabulars(*part, LATEX, self.groups) for part in self.parts)])

    def csv(self) -> str:
        """All numbers, to six digits."""
        return self.data.to_csv(index=False)


def _no_marks(shown: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame("", index=shown.index, columns=shown.columns)


def best_marks(shown: pd.DataFrame, values: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """BEST for a column's largest printed number, SECOND for the next; no marks where all lines print alike.

    `values` has the numbers as printed (rounded), NaN for what is missing, in some of the columns of `shown`; `by` says
    for each line with which others it is compared.
    """
    marks = _no_marks(shown)
    for name, column in values.groupby(list(by), sort=False).rank(method="dense", ascending=False).items():
        alike = values[name].groupby(list(by)).transform("nunique") < 2
        marks[name] = np.select([alike, column == 1, column == 2], ["", BEST, SECOND], "")
    return marks


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


def number(value: float, digits: int, absent: str = "missing") -> str:
    """A number, or why there is none."""
    return absent if np.isnan(value) else f"{value:.{digits}f}"


def plus_minus(mean: float, std: float, digits: int, absent: str = "missing") -> str:
    """`76.5 ± 1.5`, over seeds; without decimals from 100 up."""
    digits = shown_digits(mean, digits)
    text = number(mean, digits, absent)
    return text if np.isnan(std) or np.isnan(mean) else f"{text} ± {number(std, digits)}"


def shown_digits(mean: float, digits: int) -> int:
    """No decimals from 100 up."""
    return 0 if abs(mean) >= 100 else digits


def effect_text(effect: Interval, digits: int, absent: str = "missing") -> str:
    """A difference: `+0.31 [+0.12, +0.50]`."""
    return interval_text(effect, digits, absent, sign="+")


def interval_text(value: Interval, digits: int, absent: str = "missing", sign: str = "") -> str:
    """`3.31 [3.12, 3.50]`, or why there is none."""
    if value.missing:
        return absent
    return f"{value.estimate:{sign}.{digits}f} {ends_text(value.low, value.high, digits, sign)}"


def p_text(p: float, absent: str) -> str:
    """`0.031`, `< 0.001`, or why there is none."""
    return absent if np.isnan(p) else "< 0.001" if p < 0.001 else f"{p:.3f}"
