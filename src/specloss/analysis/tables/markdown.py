"""Tables for Markdown, in the pipe form.

tabulate, which pandas' `to_markdown` calls, strips texts and pads each column to its longest, so that one long text
changes every line of a diff; and it neither escapes bars nor marks cells. What is left of it is the joining below.
"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd


def markdown_table(
    shown: pd.DataFrame, marks: pd.DataFrame | None = None, styles: Mapping[str, str] | None = None
) -> str:
    """The lines of a table of texts; one whose mark is in `styles` is put into that (`**%s**`)."""
    marked = (marks if marks is not None else pd.DataFrame("", shown.index, shown.columns)).to_numpy().tolist()
    texts = shown.astype(str).map(lambda text: text.replace("|", "\\|")).to_numpy().tolist()
    rows = [
        [(styles or {}).get(mark, "%s") % text for text, mark in zip(*row, strict=True)]
        for row in zip(texts, marked, strict=True)
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in [list(shown.columns), ["---"] * shown.shape[1], *rows])
