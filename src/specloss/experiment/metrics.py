"""The metrics, each defined once: a ratio of sums over problems, its name in tables, its definition in words.

The paper's two conventions are never mixed. Chains have `be`, `be_expected` and `ds`; trees have the same three by the
EAGLE-3 convention, as `be_eagle`, `be_eagle_expected` and `ds_eagle`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Metric:
    """The sum of the column `top` over problems, divided by that of `bottom`, times `factor`.

    Columns are those of `problems.parquet`, and of `with_derived`. `head` and `digits` are for tables.
    """

    head: str
    digits: int
    top: str
    bottom: str
    factor: float = 1.0
    definition: str = ""

    def of(self, sums: Any) -> Any:
        """The metric of a frame's sums, a value per row."""
        top = sums[self.top] if self.factor == 1 else self.factor * sums[self.top]
        return top / sums[self.bottom]


METRICS = {
    "accuracy": Metric("accuracy", 1, "correct", "graded", 100.0),
    "parse_failures": Metric("parse failures", 1, "unparsed", "graded", 100.0),
    "be": Metric(
        *("BE", 2, "be_sum", "full_blocks"),
        definition="BE: accepted drafted tokens + 1, mean over blocks of gamma drafted tokens (single-draft "
        "convention).",
    ),
    "be_expected": Metric(
        *("BE expected", 2, "be_expected_sum", "full_blocks"),
        definition="BE expected: BE with a block's accepted tokens replaced by their mean over the rule's coin flips, "
        "given the drafted tokens: the same number with less noise.",
    ),
    "be_eagle": Metric(
        *("BE", 2, "accepted", "blocks"),
        definition="BE: accepted drafted tokens per call, without the bonus token (EAGLE-3 convention).",
    ),
    "be_eagle_expected": Metric(
        *("BE expected", 2, "expected_sum", "blocks"),
        definition="BE expected: BE with a tree's accepted tokens replaced by their mean over the rule's coin flips, "
        "given the tree: the same number with less noise.",
    ),
    "tokens_per_call": Metric("tokens / call", 2, "tokens", "blocks"),
    "ds": Metric(
        *("DS", 1, "drafted_full", "seconds"),
        definition="DS: tokens drafted in blocks of gamma, per second of decoding (single-draft convention).",
    ),
    "ds_eagle": Metric(
        *("DS", 1, "tokens", "seconds"),
        definition="DS: output tokens per second of decoding (EAGLE-3 convention).",
    ),
    "tokens_per_s": Metric("tokens / s", 1, "tokens", "seconds"),
}
# What the metrics of the single-draft convention are called in the EAGLE-3 one; of trees only those mean anything.
EAGLE = {"be": "be_eagle", "be_expected": "be_eagle_expected", "ds": "ds_eagle"}


def with_derived(sums: Any, gamma: int) -> Any:
    """The frame of sums, with columns derived from its others; `gamma` is the drafted tokens of a full block."""
    return sums.assign(
        unparsed=sums["graded"] - sums["parsed"],
        drafted_full=sums["full_blocks"] * gamma,
        seconds=sums["draft_s"] + sums["verify_s"] + sums["overhead_s"],
    )
