"""Tables for LaTeX: booktabs, any text escaped, long texts in paragraphs, nothing wider or longer than a page.

Of this pandas' Styler could join the cells: it escapes ten characters, draws no rule below a group of columns, and
neither cuts a table at a page's end nor shrinks it. Called for each part, it would take more lines than it saves.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import groupby

import pandas as pd

PREAMBLE = r"% \usepackage{array,booktabs,graphicx}"
SHORT, PAGE = 26, 40  # longest text of a column that does not wrap; most lines of a table on a page
LATEX = str.maketrans(
    {
        **{sign: f"\\{sign}" for sign in "&%$#_{}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        **{sign: f"${sign}$" for sign in "<>|"},  # the default font encoding has other characters there
        '"': "''",
        "−": "$-$",
        "±": r"$\pm$",
        "→": r"$\rightarrow$",
        "≤": r"$\leq$",
        "≥": r"$\geq$",
        "×": r"$\times$",
        "Δ": r"$\Delta$",
        "π": r"$\pi$",
        "η": r"$\eta$",
        "λ": r"$\lambda$",
        "–": "--",
        "—": "---",
        "…": r"\ldots{}",
        "‘": "`",
        "’": "'",
        "“": "``",
        "”": "''",
        "\t": " ",
        "\n": " ",
    }
)


def tabulars(shown: pd.DataFrame, marks: pd.DataFrame, styles: Mapping[str, str], groups: Sequence[str] = ()) -> str:
    """Booktabs tabulars of at most `PAGE` lines, each shrunk to the width of the line that it stands on.

    A text whose mark is in `styles` is put into that; columns that begin with one of `groups` share a head.
    """
    frame = shown.astype(str).reset_index(drop=True)
    columns = "".join(map(_column, (frame[name] for name in frame)))
    heads = [next(((g, name[len(g) + 1 :]) for g in groups if name.startswith(f"{g} ")), ("", name)) for name in frame]
    lines = [
        " & ".join(styles.get(mark, "%s") % escaped(text) for text, mark in zip(*row, strict=True)) + r" \\"
        for row in zip(frame.to_numpy().tolist(), marks.to_numpy().tolist(), strict=True)
    ]
    parts = -(-len(lines) // PAGE) or 1  # of about the same length
    size = -(-len(lines) // parts) or 1
    return "\n".join(
        "\n".join(
            [
                r"\noindent\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
                rf"\begin{{tabular}}{{{columns}}}",
                r"\toprule",
                *_head(heads),
                r"\midrule",
                *lines[start : start + size],
                r"\bottomrule",
                r"\end{tabular}}\par\medskip",
                "",
            ]
        )
        for start in range(0, len(lines) or 1, size)
    )


def _head(heads: list[tuple[str, str]]) -> list[str]:
    """One line of column heads, or two with a rule under each group's name."""
    second = " & ".join(escaped(name) for _, name in heads) + r" \\"
    if not any(group for group, _ in heads):
        return [second]
    first, rules, column = [], [], 1
    for group, members in groupby(heads, key=lambda head: head[0]):
        width = len(list(members))
        first.append(rf"\multicolumn{{{width}}}{{c}}{{{escaped(group)}}}")
        rules += [rf"\cmidrule(lr){{{column}-{column + width - 1}}}"] if group else []
        column += width
    return [" & ".join(first) + r" \\", " ".join(rules), second]


def _column(texts: pd.Series) -> str:
    """`l`, or for long texts a paragraph: two lines of a sentence, more of what is longer."""
    longest = texts.str.len().max() if len(texts) else 0
    return "l" if longest <= SHORT else rf">{{\raggedright\arraybackslash}}p{{{min(27, max(9, longest // 4))}em}}"


def escaped(text: str) -> str:
    """Any text for LaTeX with its default fonts and encoding; a character that they lack by its code."""
    text = re.sub(r"(?<![\w.])-(?=\d)", "−", text).translate(LATEX)
    return re.sub(r"[^\x20-\x7e\xa0-\xff]", lambda found: f"[U+{ord(found[0]):04X}]", text)
