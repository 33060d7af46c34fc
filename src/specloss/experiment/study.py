"""What an experiment consists of: its cells, settings, gates with their baselines, and the ladder of benchmarks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from specloss.common.files import FileError, read_json, shown_path
from specloss.experiment.cells import Cell, format_param
from specloss.experiment.metrics import EAGLE, METRICS
from specloss.experiment.sections import Analysis

LOSSLESS = "standard_sd"
INTERPOLATION, CEILING = "adaptive_interpolation", "overshoot_ceiling"  # the two rules of the paper's Table 1
CAPPED = re.compile(r"cap_(?P<cap>[a-z]+)_(?P<tail>keep|drop)_tail")  # the rules of its Table 6
COMBINED = {"capped_truncation": "cap_outside_keep_tail"}  # one of them by its usual name


@dataclass(frozen=True)
class Setting:
    """A method at one value of its parameter; `matched` is what it is compared with, if the rule has a baseline."""

    method: str
    param: float | None = None
    rule: str = field(default="", compare=False)
    matched: tuple[str, float | None] | None = field(default=None, compare=False)
    options: Mapping[str, Any] = field(default_factory=dict, compare=False)
    lossless: bool = field(default=False, compare=False)  # whether the output is distributed as the target's

    @property
    def label(self) -> str:
        """`lenience (0.8)`, or just the method's name when it takes no parameter."""
        return self.method if self.param is None else f"{self.method} ({format_param(self.param)})"


@dataclass(frozen=True)
class Place:
    """Where settings are compared with one another: a pair on a benchmark."""

    pair: str
    benchmark: str


@dataclass(frozen=True)
class Study:
    """One experiment as `experiment.json` describes it: everything that is expected, whether or not it is there yet."""

    name: str
    config: dict[str, Any]
    source: str
    cells: tuple[Cell, ...]
    settings: tuple[Setting, ...]

    @classmethod
    def read(cls, experiment_json: Path) -> Study:
        """Read `results/<exp>/experiment.json`."""
        content = read_json(experiment_json)
        try:
            return cls.from_dict(content)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            why = f"{type(error).__name__} {error}"
            raise FileError(f"{shown_path(experiment_json)}: not an experiment.json ({why})") from None

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Study:
        """From what `experiment.json` has."""
        settings = tuple(
            Setting(
                method=s["method"],
                param=s["param"],
                rule=s["rule"],
                matched=tuple(s["matched"]) if s.get("matched") else None,
                options=s.get("options", {}),
                lossless=s.get("lossless", False),
            )
            for s in content["settings"]
        )
        cells = tuple(Cell.from_dict(cell) for cell in content["cells"])
        return cls(content["config"]["name"], content["config"], content.get("source", ""), cells, settings)

    @cached_property
    def analysis(self) -> Analysis:
        """Margin, confidence and multiplicity of its verdicts; the defaults for what the config does not say."""
        return Analysis.model_validate(self.config.get("analysis") or {})

    @property
    def gamma(self) -> int:
        """Drafted tokens of a full block; of trees, where every tree counts as full, the levels below the root."""
        tree = self.tree
        return tree["depth"] + 1 if tree else self.config["decoding"]["gamma"]

    @property
    def tree(self) -> dict[str, int] | None:
        """The shape of the drafted trees; None if chains are drafted."""
        return self.config["decoding"].get("tree")

    @cached_property
    def seeds(self) -> list[int]:
        """In ascending order."""
        return sorted({cell.seed for cell in self.cells})

    @cached_property
    def places(self) -> list[Place]:
        """Every pair on every benchmark, in the config's order."""
        return [Place(pair, benchmark) for pair in self.pairs for benchmark in self.benchmarks]

    @cached_property
    def pairs(self) -> list[str]:
        """Names, in the config's order."""
        return list(self.config["pairs"])

    @cached_property
    def benchmarks(self) -> list[str]:
        """Names, in the config's order."""
        return list(self.config["benchmarks"])

    @cached_property
    def levels(self) -> dict[str, float]:
        """Difficulty of each benchmark: its option `level` if every benchmark has one, else its place in the config."""
        options = {name: self.config["benchmarks"][name].get("options", {}).get("level") for name in self.benchmarks}
        if all(isinstance(level, (int, float)) for level in options.values()):
            return {name: float(level) for name, level in options.items()}
        return {name: float(number) for number, name in enumerate(self.benchmarks, start=1)}

    @cached_property
    def has_levels(self) -> bool:
        """Whether the benchmarks are steps of one ladder, so that a trend over them means something."""
        tasks = {self.config["benchmarks"][name].get("task") for name in self.benchmarks}
        return len(set(self.levels.values())) > 1 and len(tasks) == 1

    @cached_property
    def methods(self) -> dict[str, list[Setting]]:
        """The settings of each method, by ascending parameter, in the order of the experiment."""
        methods: dict[str, list[Setting]] = {}
        for setting in self.settings:
            methods.setdefault(setting.method, []).append(setting)
        return {name: sorted(grid, key=lambda s: s.param or 0.0) for name, grid in methods.items()}

    def setting(self, method: str, param: float | None) -> Setting:
        """The setting of that name. KeyError if the experiment has none."""
        for setting in self.settings:
            if (setting.method, setting.param) == (method, param):
                return setting
        raise KeyError(f"{self.name} has no setting {method} {format_param(param)}")

    @property
    def lossless(self) -> Setting:
        """Standard speculative decoding: every other setting is measured against it in the end."""
        return self.setting(LOSSLESS, None)

    def reference(self, setting: Setting) -> Setting | None:
        """What a setting is compared with: its matched baseline, else the lossless run; None for the lossless run."""
        if setting.method == LOSSLESS:
            return None
        return self.setting(*setting.matched) if setting.matched else self.lossless

    def references(self, settings: Iterable[Setting]) -> list[Setting]:
        """`reference` of each. ValueError for the lossless run."""
        found = [self.reference(setting) for setting in settings]
        if None in found:
            raise ValueError("the lossless run is not compared with anything")
        return found  # type: ignore[return-value]

    def is_gate(self, method: str) -> bool:
        """Whether the method has a matched truncation baseline of its own."""
        return all(s.matched is not None and s.matched[0] != LOSSLESS for s in self.methods[method])

    @cached_property
    def gates(self) -> list[str]:
        """Methods with a matched truncation baseline, e.g. `spec_cascade` with `min_p_sampling`."""
        return [method for method in self.methods if self.is_gate(method)]

    @cached_property
    def truncation_family(self) -> list[str]:
        """Each gate after its matched baseline (the paper's Figure 3)."""
        family = [m for gate in self.gates for m in (self.methods[gate][0].matched[0], gate)]  # type: ignore[index]
        return list(dict.fromkeys(family))

    @cached_property
    def collaborative_family(self) -> list[str]:
        """The other lossy methods: those that blend the draft's distribution into the output (the paper's Figure 6)."""
        lossless = {LOSSLESS, *(s.method for s in self.settings if s.lossless)}
        return [m for m in self.methods if m not in lossless and m not in self.truncation_family]

    @cached_property
    def mixtures_and_ceilings(self) -> dict[str, list[tuple[float, Setting]]]:
        """The settings of each method of the paper's Table 1, by l; CoS and lenience beside them if there is any.

        CoS is the mixture q + l (p - q) with l = 1 - lambda, lambda being its weight of the draft.
        """
        if not self.with_rule(INTERPOLATION, CEILING):
            return {}
        found: dict[str, list[tuple[float, Setting]]] = {}
        for s in self.with_rule(INTERPOLATION, CEILING, "lenience", "cos"):
            if s.param is not None:
                found.setdefault(s.method, []).append((round(1 - s.param, 10) if s.rule == "cos" else s.param, s))
        return {method: sorted(grid, key=lambda item: item[0]) for method, grid in found.items()}

    @cached_property
    def capped(self) -> dict[str, tuple[str, str]]:
        """Where the cap p / l applies and what becomes of the tail, for each method of the paper's Table 6."""
        named = {s.method: CAPPED.fullmatch(COMBINED.get(s.rule, s.rule)) for s in self.settings}
        return {method: (match["cap"], match["tail"]) for method, match in named.items() if match}

    @cached_property
    def same_output(self) -> list[tuple[Setting, Setting]]:
        """Settings with a maximal coupling or a block rule, each with the one that emits the same distribution.

        That is the same rule under its native coupling if the experiment has it, and the lossless run for block rules.
        """
        found = []
        for setting in self.settings:
            if setting.options.get("coupling") == "maximal":
                native = {**setting.options, "coupling": "native"}
                same = [s for s in self.with_rule(setting.rule) if s.param == setting.param]
                found += [(setting, s) for s in same if {"coupling": "native", **s.options} == native][:1]
            elif setting.lossless and setting.rule != LOSSLESS:
                found.append((setting, self.lossless))
        return found

    def metric(self, name: str, pair: str) -> str:
        """What `be`, `be_expected` or `ds` is for a pair: that metric, or the one of the EAGLE-3 convention."""
        single = self.config["pairs"][pair].get("kind", "draft") == "draft"
        return name if single else EAGLE.get(name, name)

    def define(self, *names: str) -> str:
        """What `be`, `be_expected` or `ds` mean here, in words."""
        used = dict.fromkeys(self.metric(name, pair) for name in names for pair in self.pairs)
        return " ".join(METRICS[metric].definition for metric in used)

    def with_rule(self, *rules: str) -> list[Setting]:
        """The settings of those rules, whatever their labels."""
        return [s for s in self.settings if s.rule in rules]


def level_text(level: float) -> str:
    """`4`, not `4.0`."""
    return f"{level:g}"
