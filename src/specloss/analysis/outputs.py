"""The names of what the analysis writes. Nothing heavy is imported here: the workflow needs them while it parses."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specloss.experiment.study import Study

TABLES = (
    "findings",
    "verdicts",
    "table2",
    "table3",
    "table4",
    "table5",
    "gaps",
    "table1",
    "table6",
    "coupling",
    "distortion",
    "time",
)
JOINED_TABLES = ("frameworks", "table7")  # of an experiment of chains and one of trees
FIGURES = ("fig1_gap_by_level", "fig3_truncation", "fig6_collaborative", "acceptance_by_position", "time_split")
TABLE_SUFFIXES = ("csv", "md", "tex")
DRAWINGS = ("svg", "pdf", "png")
FIGURE_SUFFIXES = (*DRAWINGS, "csv")


def tables_for(study: Study) -> tuple[str, ...]:
    """The tables of an experiment: `TABLES` without those that it has no methods for."""
    filled = {
        **dict.fromkeys(("table2", "table4"), not study.tree),
        **dict.fromkeys(("table3", "table5"), study.tree),
        "gaps": study.gates,
        "table1": study.mixtures_and_ceilings,
        "table6": study.capped,
        "coupling": study.same_output,
    }
    return tuple(name for name in TABLES if filled.get(name, True))
