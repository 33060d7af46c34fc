"""`screen.csv` and `screen.md`: the screens of all traces of an experiment, and the caveats that go with them."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd

from specloss.analysis.tables.markdown import markdown_table
from specloss.common.files import read_text, write_text
from specloss.experiment.cells import format_param
from specloss.experiment.plan import Plan
from specloss.screen import TABLES, ScreenError
from specloss.screen.estimate import screen, screened_settings
from specloss.screen.places import POLICY, trace_key, trace_path, tracing_cell
from specloss.screen.recording import RecordingFile
from specloss.verification import RULES
from specloss.verification.registry import is_gate

WORDS = {
    "be_expected": "BE",
    "alpha": "acceptance",
    "tv_pi_p": "TV to p",
    "overshoot": "overshoot",
    "tv_pi_target": "TV to matched target",
    "coupling_loss": "coupling loss",
    "be_expected_maximal": "BE, maximal coupling",
    "alpha_maximal": "acceptance, maximal coupling",
}
WARNING = (
    "**Prefixes come from the traced policy.** One decode under {policy} (seed {seed}) chose every prefix and every "
    "block start; all rules are evaluated there, on its draft tokens, and none was run. A rule that changes the text "
    "would visit other prefixes: run a setting before believing its number. `{policy}` itself is unbiased here."
)
READING = """\
BE is the mean over full blocks of one plus the expected number of kept draft tokens (`be_expected`). Acceptance, TV,
overshoot and coupling loss are means over positions, weighted with the probability that the rule reaches them in its
block. The matched target is the truncated p for truncation baselines and gates, p for all others. Maximal coupling is
the same rule with the same output distribution pi at each drafted position, accepting `min(q, pi)`.
"""
POOLED = """\
Rest: the mass outside the recorded tokens, which the rules see as one more token. For rules that look at one token at a
time (standard_sd, lenience, cos) BE stays exact, acceptance is never too low, and it and TV are off by at most q's rest
at a position; rules with an allowed set or a sum over the vocabulary are approximate, and block rules are left out.
"""


def write_screen(plan: Plan, places: Sequence[tuple[str, str]], out: Path) -> pd.DataFrame:
    """Screen the recorded traces of those places and write `TABLES` to `out`; ScreenError if a trace is missing."""
    settings = screened_settings(plan, plan.experiment.screen.grid)
    traces = [_current_trace(plan, *place) for place in places]
    table = pd.concat([screen(trace, settings) for trace in traces], ignore_index=True)
    csv, markdown = (Path(out) / name for name in TABLES)
    write_text(csv, table.to_csv(index=False, float_format="%.6g"))
    write_text(markdown, _markdown(table, traces))
    return table


def _current_trace(plan: Plan, pair: str, benchmark: str) -> RecordingFile:
    path = trace_path(plan, pair, benchmark)
    trace = RecordingFile(path)
    if trace.about["key"] != trace_key(tracing_cell(plan, pair, benchmark), trace.about["top_k"]):
        raise ScreenError(f"{path} was recorded with other settings; `specloss trace` records it again")
    return trace


def read_screen(out: Path) -> pd.DataFrame:
    """`screen.csv` as it was written. ScreenError if there is none."""
    path = Path(out) / TABLES[0]
    if not path.exists():
        raise ScreenError(f"{path} is missing: run `specloss screen` first")
    # names may look like numbers, or like what pandas takes for nothing
    names = {name: str for name in ("pair", "benchmark", "method", "rule", "options")}
    try:
        table = pd.read_csv(StringIO(read_text(path)), dtype=names, keep_default_na=False, na_values=[""])
    except ValueError as error:
        raise ScreenError(f"{path}: not a screen.csv: {' '.join(str(error).split())}") from None
    return table.fillna({"options": ""})


def gates(table: pd.DataFrame) -> pd.DataFrame:
    """Rows of the rules that gate on an allowed set and lose acceptance by it: they match a truncation baseline."""
    gating = [name for name, spec in RULES.items() if is_gate(spec)]
    return table[table["rule"].isin(gating)]


def number(value: float, digits: int, sign: bool = False) -> str:
    """Rounded; empty for a missing number, and never a negative zero."""
    if np.isnan(value):
        return ""
    return f"{round(value, digits) + 0.0:{'+' if sign else ''}.{digits}f}"


def _markdown(table: pd.DataFrame, traces: Sequence[RecordingFile]) -> str:
    about = traces[0].about
    parts = ["# Every rule on one trace\n", WARNING.format(policy=POLICY, seed=about["seed"]) + "\n", READING]
    parts += ["## The traces\n", markdown_table(_traces(table, traces)) + "\n", POOLED]
    gating = gates(table)
    if len(gating):
        parts += ["## Gates under maximal coupling: the same output distribution, more acceptance\n"]
        parts += ["Means over each gate's grid.\n", markdown_table(_gains(gating)) + "\n"]
    for (pair, benchmark), rows in table.groupby(["pair", "benchmark"], sort=False):
        parts += [f"## {pair}, {benchmark}\n", markdown_table(_settings(rows)) + "\n"]
    return "\n".join(parts)


def _traces(table: pd.DataFrame, traces: Sequence[RecordingFile]) -> pd.DataFrame:
    rows = []
    for trace, (_, screened) in zip(traces, table.groupby(["pair", "benchmark"], sort=False), strict=True):
        first = screened.iloc[0]
        row = {"pair": first["pair"], "benchmark": first["benchmark"], "problems": first["problems"]}
        row |= {"full blocks": first["full_blocks"], "top k": trace.about["top_k"], "vocabulary": trace.about["vocab"]}
        row |= {"mean rest of p": f"{first['p_rest']:.2g}", "mean rest of q": f"{first['q_rest']:.2g}"}
        rows.append(row | {"settings": len(screened)})
    return pd.DataFrame(rows)


def _gains(gating: pd.DataFrame) -> pd.DataFrame:
    """Per gate and trace: BE and acceptance, native -> maximal, and what is gained."""
    rows = []
    for (pair, benchmark, method), grid in gating.groupby(["pair", "benchmark", "method"], sort=False):
        mean = grid.mean(numeric_only=True)
        row = {"pair": pair, "benchmark": benchmark, "method": method}
        for name, digits in (("be_expected", 2), ("alpha", 3)):
            native, maximal = mean[name], mean[f"{name}_maximal"]
            row[WORDS[name]] = f"{number(native, digits)} → {number(maximal, digits)}"
            row[f"{WORDS[name]} gained"] = number(maximal - native, digits, sign=True)
        rows.append(row)
    return pd.DataFrame(rows)


def _settings(rows: pd.DataFrame) -> pd.DataFrame:
    shown = pd.DataFrame({"method": rows["method"]})
    shown["param"] = [format_param(None if np.isnan(param) else param) for param in rows["param"]]
    for name, word in WORDS.items():
        digits = 2 if name.startswith("be_") else 3
        shown[word] = [number(value, digits) for value in rows[name]]
        if name == "be_expected":
            errors = [number(value, digits) for value in rows["be_expected_se"]]
            shown[word] = [f"{be} ± {se}" if se else be for be, se in zip(shown[word], errors, strict=True)]
    return shown.rename(columns={"BE": "BE ± SE"})
