"""LaTeX takes every table as it is written, whatever a text in it says, and none is wider than the line."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace

import pytest

from specloss.analysis.evidence.evidence import Evidence
from specloss.analysis.outputs import tables_for
from specloss.analysis.tables.catalogue import make_table
from specloss.analysis.tables.latex import PAGE, PREAMBLE, escaped

NASTY = 'failed: 50 % of #1 & $x^2_i$ {a\\b} ~ <p|q> "\N{GREEK SMALL LETTER PI}" ± Δ ≥ − é ° 中 \x1b[31m ‘q’ … missing'


@pytest.mark.parametrize(
    ("text", "tex"),
    [
        ("chain_l2", r"chain\_l2"),
        ("< 0.001", "$<$ 0.001"),
        ("-2.8 [-4.5, +1.1]", "$-$2.8 [$-$4.5, +1.1]"),
        ("EAGLE-3, 2026-11-30", "EAGLE-3, 2026-11-30"),
        ("95 % ± 1", r"95 \% $\pm$ 1"),
        (r"a\b", r"a\textbackslash{}b"),
        ("中", "[U+4E2D]"),
    ],
)
def test_a_text_is_escaped(text, tex):
    assert escaped(text) == tex


def test_a_long_table_is_cut_into_pages_with_a_head_each(experiment):
    text = make_table("table4", Evidence.read(*experiment)).latex()
    parts = [part.count(r"\\") for part in text.split(r"\begin{tabular}")[1:]]
    assert text.startswith(PREAMBLE) and len(parts) == 2  # the settings, and below them what they are compared with
    evidence = Evidence.read(*experiment)
    table = make_table("table4", evidence)
    longer = replace(table, shown=table.shown.sample(2 * PAGE + 1, replace=True, random_state=0), marks=None)
    parts = [part.count(r"\\") for part in longer.latex().split(r"\begin{tabular}")[1:]]
    assert len(parts) == 4 and max(parts) <= PAGE + 2


def test_pdflatex_sets_every_table_and_any_text_within_the_line(experiment, tmp_path):
    if not shutil.which("pdflatex"):
        pytest.skip("needs pdflatex in PATH (Debian: apt-get install texlive-latex-base texlive-latex-recommended)")
    evidence = Evidence.read(*experiment)
    tables = [make_table(name, evidence) for name in tables_for(evidence.study)]
    spoilt = tables[-1].shown.copy()
    spoilt.iloc[0] = NASTY
    tables.append(replace(tables[-1], shown=spoilt, marks=None))
    pages = "\n\\clearpage\n".join(table.latex() for table in tables)
    preamble = PREAMBLE.removeprefix("% ")
    document = f"\\documentclass{{article}}\n{preamble}\n\\begin{{document}}\n{pages}\n\\end{{document}}\n"
    (tmp_path / "all.tex").write_text(document, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace", check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull" not in done.stdout and "Missing character" not in (tmp_path / "all.log").read_text("latin-1")
