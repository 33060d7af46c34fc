"""The paper's printed numbers: its Tables 1 to 5 and 7, copied unchanged.

Source: *Revisiting Lossy Verification in Speculative Decoding* (2026), one `table<number>.csv` each; Table 6 was not
copied. Single draft (Tables 1, 2, 4) is Qwen2.5-72B-Instruct with Qwen2.5-0.5B-Instruct; EAGLE-3 (3, 5) is
Llama-3.1-8B-Instruct with its EAGLE-3 head, where standard_sd is the paper's row "EAGLE-3".

    table1  each variant at each l (`lenience`): `be`, and `pass_at_1` in percent; of MBPP+, which alone is scored so
    table2  each method's mean over its grid, single draft: `be`, `ds`, `accuracy`
    table3  the same for EAGLE-3
    table4  each setting, single draft: mean and standard deviation over 3 seeds
    table5  each setting, EAGLE-3, one seed
    table7  each gate (first in `pair`) less its matched baseline (second): `delta_be`, `delta_accuracy`, by framework,
            and their average over the benchmarks

`be` is block efficiency in tokens, `ds` decode speed in tokens/s, each by the convention of its framework (single draft
or EAGLE-3: never to be mixed), `accuracy` percent. All are printed with two decimals.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

TABLES = (1, 2, 3, 4, 5, 7)
SINGLE_DRAFT, EAGLE3 = "single_draft", "eagle3"
FRAMEWORKS = {1: SINGLE_DRAFT, 2: SINGLE_DRAFT, 3: EAGLE3, 4: SINGLE_DRAFT, 5: EAGLE3}
QUANTITIES = ("be", "ds", "accuracy")
BENCHMARKS = {"math": "MATH", "mbppplus": "MBPP+", "include": "INCLUDE", "bfcl": "BFCL"}  # by our task
MODELS = {
    SINGLE_DRAFT: "Qwen2.5-72B-Instruct with Qwen2.5-0.5B-Instruct",
    EAGLE3: "Llama-3.1-8B-Instruct with EAGLE-3",
}
AVERAGE = "average"  # Table 7's name of the mean over benchmarks
HALF_UNIT = 0.005  # of the last printed decimal: how far a printed number is from the one that it stands for

_METHODS = {
    "Standard SD": "standard_sd",
    "EAGLE-3": "standard_sd",
    "Min-p sampling": "min_p_sampling",
    "SpecCascade": "spec_cascade",
    "η-sampling": "eta_sampling",
    "Typical acceptance": "typical_acceptance",
    "Adaptive interpolation": "adaptive_interpolation",
    "Overshoot ceiling": "overshoot_ceiling",
}
_COLUMNS = {"variant": "method", "lenience": "param", "pass_at_1": "accuracy"} | {f"{q}_mean": q for q in QUANTITIES}


@cache
def _read(table: int) -> pd.DataFrame:
    import pandas as pd

    if table not in TABLES:
        raise KeyError(f"no numbers of the paper's Table {table}; there are those of {', '.join(map(str, TABLES))}")
    with resources.files(__name__).joinpath(f"table{table}.csv").open(encoding="utf-8") as file:
        frame = pd.read_csv(file).rename(columns=_COLUMNS)
    if "pair" in frame:
        frame[["method", "against"]] = frame.pop("pair").str.split("-", expand=True)
    if "benchmark" not in frame:
        frame["benchmark"] = BENCHMARKS["mbppplus"]
    frame["method"] = frame["method"].replace(_METHODS)
    return frame


def frame(table: int) -> pd.DataFrame:
    """A table of the paper with our names: `method` and `against` are labels as in configs, `param` NaN for none.

    Columns `method`, `benchmark` (the paper's name) and what the table has of `param`, `framework`, `against`, `be`,
    `ds`, `accuracy`, their `_std`, and `delta_be`, `delta_accuracy`. KeyError for a table that was not copied.
    """
    return _read(table).copy()


def lookup(table: int, method: str, benchmark: str, param: float | None = None, framework: str = "") -> dict:
    """What the paper prints in one row, by column: {'be': 7.98, 'be_std': .02, ...}; empty if it has no such row.

    `benchmark` is the paper's name (`BENCHMARKS` gives it for a task of ours). Tables 2, 3 and 7 have no `param`; Table
    7 wants a `framework`. KeyError for a table that was not copied.
    """
    rows = _read(table)
    rows = rows[(rows["method"] == method) & (rows["benchmark"] == benchmark)]
    if "param" in rows:
        rows = rows[rows["param"].isna() if param is None else rows["param"] == param]
    elif param is not None:
        return {}
    if "framework" in rows:
        rows = rows[rows["framework"] == framework]
    if rows.empty:
        return {}
    numbers = rows.select_dtypes("number").drop(columns="param", errors="ignore").iloc[0]
    return {name: float(value) for name, value in numbers.items()}
