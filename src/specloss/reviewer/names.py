"""One cell of one table, found by the names that a reader of the table sees, and the runs that it needs.

A *table cell* is the value at (table, benchmark, method, parameter): the mean over seeds of one setting in Tables 1,
4, 5 and 6, over a method's whole grid in Tables 2 and 3, and the difference of a gate from its baseline in Table 7.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from specloss.common.yamlfile import ConfigError
from specloss.experiment.cells import Cell, format_param
from specloss.experiment.plan import Plan
from specloss.experiment.study import Place, Setting, Study
from specloss.paper import AVERAGE, BENCHMARKS, EAGLE3, SINGLE_DRAFT

SETTING, GRID, GAP = "setting", "grid", "gap"
ALL = "all"  # in place of a parameter or a seed
TARGET = re.compile(
    r"(?P<path>table=\d+/pair=[^/]+/benchmark=[^/]+/method=[^/]+/param=[^/]+/seed=(?:all|\d+))\.(?:csv|txt)"
)


@dataclass(frozen=True)
class Kind:
    """What the cells of a table are: of which framework (none: of both), and what they average."""

    framework: str | None
    over: str


KINDS = {
    1: Kind(SINGLE_DRAFT, SETTING),
    2: Kind(SINGLE_DRAFT, GRID),
    3: Kind(EAGLE3, GRID),
    4: Kind(SINGLE_DRAFT, SETTING),
    5: Kind(EAGLE3, SETTING),
    6: Kind(SINGLE_DRAFT, SETTING),
    7: Kind(None, GAP),
}
SETTINGS_OF = {SINGLE_DRAFT: 4, EAGLE3: 5}  # the table of all settings


class NoSuchCell(ConfigError):
    """A name that the experiment does not have; the message lists those it has, nearest first."""


@dataclass(frozen=True)
class TableCell:
    """A cell of a table of this study. `baselines` are subtracted in Table 7, and shown beside the others."""

    study: Study
    table: int
    pair: str
    places: tuple[Place, ...]
    settings: tuple[Setting, ...]
    baselines: tuple[Setting, ...]
    seeds: tuple[int, ...]

    @property
    def kind(self) -> Kind:
        """What the table's cells are."""
        return KINDS[self.table]

    @property
    def framework(self) -> str:
        """By the pair's kind."""
        return framework_of(self.study, self.pair)

    @property
    def benchmark(self) -> str:
        """The config's name, or `average`."""
        return self.places[0].benchmark if len(self.places) == 1 else AVERAGE

    @property
    def name(self) -> str:
        """`Table 5, MATH, lenience (0.4)`."""
        method = self.settings[0].label if self.kind.over == SETTING else self.settings[0].method
        less = f" less {self.baselines[0].method}" if self.kind.over == GAP else ""
        return f"Table {self.table}, {self.benchmark}, {method}{less}"

    @property
    def path(self) -> str:
        """Where its target is, below `reports/<experiment>/cells/`: hive style, as cells are."""
        param = format_param(self.settings[0].param) if self.kind.over == SETTING else ALL
        seed = ALL if len(self.seeds) == len(self.study.seeds) else str(self.seeds[0])
        return (
            f"table={self.table}/pair={self.pair}/benchmark={self.benchmark}/method={self.settings[0].method}"
            f"/param={param}/seed={seed}"
        )

    @property
    def cells(self) -> list[Cell]:
        """The runs that it needs, in the experiment's order."""
        return self._cells(self.settings + (self.baselines if self.kind.over == GAP else ()))

    @property
    def baseline_cells(self) -> list[Cell]:
        """The runs of what it is compared with."""
        return self._cells(self.baselines)

    def _cells(self, settings: Iterable[Setting]) -> list[Cell]:
        wanted = {(setting.method, setting.param) for setting in settings}
        places = set(self.places)
        return [
            cell
            for cell in self.study.cells
            if (cell.method, cell.param) in wanted
            and Place(cell.pair, cell.benchmark) in places
            and cell.seed in self.seeds
        ]


def names_of(path: str) -> dict[str, str]:
    """The names in a `TableCell.path`, as `find_table_cell` takes them but for the table, which is a number."""
    return dict(part.split("=", 1) for part in path.split("/"))


def framework_of(study: Study, pair: str) -> str:
    """Of which of the paper's two kinds of tables a pair is."""
    return SINGLE_DRAFT if study.config["pairs"][pair].get("kind", "draft") == "draft" else EAGLE3


def find_table_cell(
    study: Study,
    *,
    table: int | None = None,
    benchmark: str | None = None,
    method: str | None = None,
    param: str | None = None,
    pair: str | None = None,
    seed: str | None = None,
) -> TableCell:
    """The cell of that name. NoSuchCell, in one line, lists what exists, nearest first.

    `benchmark` is the config's name or the paper's, `method` the config's label, `param` and `seed` text as in paths.
    What is left out must have only one possible value; the default table is the one with all settings of the pair.
    """
    if table is not None:
        _choose("table", table, [t for t in KINDS if _pairs(study, t)], _why_no_table(study, table))
    pair = _choose("pair", pair, _pairs(study, table))
    table = table or SETTINGS_OF[framework_of(study, pair)]
    over = KINDS[table].over
    methods = _methods(study, table)
    tasks = {name: study.config["benchmarks"][name].get("task") for name in study.benchmarks}
    names = {BENCHMARKS[task]: name for name, task in tasks.items() if task in BENCHMARKS}
    valid = study.benchmarks + ([AVERAGE] if len(study.benchmarks) > 1 else [])
    if benchmark not in study.benchmarks:
        benchmark = names.get(benchmark or "", benchmark)
    benchmark = _choose("benchmark", benchmark, valid)
    method = _choose("method", method, methods)
    grid = study.methods[method]
    if over == SETTING:
        if param not in (None, ALL):
            param = format_param(float(param)) if _is_number(param) else param  # type: ignore[arg-type]
        params = {format_param(setting.param): setting for setting in grid}
        grid = [params[_choose(f"{method} with parameter", param, list(params))]]
    elif param not in (None, ALL):
        raise NoSuchCell(f"Table {table} has a method's whole grid in each cell: leave out the parameter {param}")
    seeds = study.seeds
    if seed not in (None, ALL):
        seeds = [int(_choose("seed", seed, list(map(str, study.seeds))))]
    places = [p for p in study.places if p.pair == pair and benchmark in (p.benchmark, AVERAGE)]
    references = (study.reference(setting) for setting in grid)
    baselines = dict.fromkeys(reference for reference in references if reference)
    return TableCell(study, table, pair, tuple(places), tuple(grid), tuple(baselines), tuple(seeds))


def _pairs(study: Study, table: int | None) -> list[str]:
    """The pairs that have the table's cells."""
    kind = KINDS.get(table, Kind(None, SETTING)) if table is not None else Kind(None, SETTING)
    if table is not None and not _methods(study, table):
        return []
    return [pair for pair in study.pairs if kind.framework in (None, framework_of(study, pair))]


def _methods(study: Study, table: int) -> list[str]:
    """The methods that the table has in this study."""
    some = {1: study.mixtures_and_ceilings, 6: study.capped, 7: study.gates}
    return list(some.get(table, study.methods)) if table in KINDS else []


def _why_no_table(study: Study, table: int) -> str:
    if table not in KINDS:
        return ""
    framework = KINDS[table].framework
    if framework and framework not in {framework_of(study, pair) for pair in study.pairs}:
        return {
            EAGLE3: f" (Table {table} is of EAGLE-3 pairs, and there is none)",
            SINGLE_DRAFT: f" (Table {table} is of pairs with a draft model, and there is none)",
        }[framework]
    return f" (no methods for Table {table})"


def _choose(what: str, given: Any, valid: list, why: str = "") -> Any:
    """The given name, or the only one; NoSuchCell lists the valid ones."""
    if given in valid:
        return given
    if given is None and len(valid) == 1:
        return valid[0]
    lower = {str(name).lower(): name for name in valid}
    if given is not None and str(given).lower() in lower:
        return lower[str(given).lower()]
    if given is None:
        raise NoSuchCell(f"which {what}? there are {', '.join(map(str, valid))}")
    if valid and all(_is_number(str(name)) for name in valid) and _is_number(str(given)):
        order = sorted(valid, key=lambda name: abs(float(name) - float(given)))
    else:
        ratio = difflib.SequenceMatcher(None, b=str(given).lower())
        order = sorted(valid, key=lambda name: -_likeness(ratio, str(name).lower()))
    if not order:
        raise NoSuchCell(f"no {what} {given}{why}, nor any other")
    raise NoSuchCell(f"no {what} {given}{why}; did you mean {order[0]}? There are {', '.join(map(str, valid))}")


def _likeness(ratio: difflib.SequenceMatcher, name: str) -> float:
    ratio.set_seq1(name)
    return ratio.ratio()


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def cells_at(plan: Plan, path: str) -> list[Cell]:
    """The cells behind a table cell; `path` is its `TableCell.path`. NoSuchCell for another."""
    names = names_of(path)
    return find_table_cell(Study.from_dict(plan.content), **names | {"table": int(names["table"])}).cells


def with_table_cells(plan: Plan, targets: Iterable[str]) -> Plan:
    """The plan when Snakemake's `targets` may be cells of tables: what these are made of is decoded by itself."""
    found = [TARGET.fullmatch(target.removeprefix(f"{plan.reports}/cells/")) for target in targets]
    try:
        return plan.asking_for(cell for match in found if match for cell in cells_at(plan, match["path"]))
    except ConfigError as error:
        raise ConfigError(f"{plan.source}: {error}") from None
