"""The experiment's config: pydantic models, and one-line errors that name the key, the value and what would be right.

Every key of `config/*.yaml` is a field here, with its meaning as the field's description.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args

from pydantic import Field, ValidationError, field_validator, model_validator

from specloss.benchmarks import LOCAL_FILES
from specloss.common.files import FileError, file_hash, read_json, shown_path
from specloss.common.section import Section
from specloss.common.yamlfile import ConfigError, read_yaml
from specloss.experiment.cells import Cell
from specloss.experiment.names import check_experiment_name, check_names
from specloss.making.recipe import Recipe, Recipes
from specloss.models.checkpoint import fingerprint
from specloss.models.tree_shape import TreeShape

if TYPE_CHECKING:
    from specloss.verification import Rule, TreeRule


M = TypeVar("M", bound=Section)
MOST_VALUES = 100_000  # of a config


class Pair(Section):
    """A target and what drafts for it. All pairs of an experiment are of one kind."""

    kind: Literal["draft", "eagle3"] = Field(
        "draft", description="draft: a separate model that drafts chains; eagle3: an EAGLE-3 head that drafts trees"
    )
    target: str = Field(description="the target: local folder, GGUF file, hub id, or a GGUF file on the hub")
    draft: str = Field(description="the draft model, as for the target; or the head, a folder or hub id")
    target_revision: str | None = Field(None, description="commit or tag of the target on the hub")
    draft_revision: str | None = Field(None, description="commit or tag of the draft or head on the hub")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto", description="weights and forwards; auto: each model's own. Tokens depend on it"
    )
    device: Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:\d+)?|balanced|balanced_low_0|sequential)$")] = Field(
        "auto",
        description="auto (a GPU if there is one), cpu, cuda, cuda:N, or a device map of transformers; recorded with "
        "each cell, and no part of its identity",
    )
    attention: Literal["sdpa", "eager"] = Field(
        "sdpa", description="attention implementation of transformers, of those that take a 4-D mask"
    )
    eos: list[int | str] | None = Field(
        None,
        description="end-of-sequence tokens, as ids or texts; none: those of the target's generation_config, else of "
        "its config, else of its tokenizer",
    )
    trust_remote_code: bool = Field(False, description="run code that comes with a checkpoint")


class Benchmark(Section):
    """A named set of problems."""

    task: str = Field(description="benchmark module, see specloss.benchmarks")
    options: dict[str, Any] = Field(default_factory=dict, description="arguments of the benchmark's load()")
    grading: dict[str, Any] = Field(
        default_factory=dict, description="arguments of the benchmark's grade(); a change grades again, decodes nothing"
    )
    chat: Literal["template", "plain"] = Field(
        "template",
        description="how messages become text: by the target's chat template, or plain, their contents one after the "
        "other, for models without a template",
    )
    max_new_tokens: Annotated[int, Field(ge=1)] = Field(description="output limit for each problem")


class Method(Section):
    """A verification rule over a grid of its parameter. The key in `methods` is its label in paths and tables."""

    rule: str | None = Field(None, description="rule name; the label if not given")
    params: list[float] | None = Field(None, description="grid of the rule's parameter; none for rules without one")
    options: dict[str, Any] = Field(default_factory=dict, description="options of the rule, e.g. residual, coupling")


class TreeSection(Section):
    """The trees that an EAGLE-3 head drafts: `specloss.models.tree_shape.TreeShape`."""

    total_token: int = Field(60, description="nodes of a tree, the last known token among them")
    depth: int = Field(5, description="rounds in which nodes are expanded; trees have one level more below the root")
    top_k: int = Field(10, description="children of an expanded node, and nodes expanded in a round")

    @model_validator(mode="after")
    def _can_grow(self) -> TreeSection:
        TreeShape(self.top_k, self.depth, self.total_token)
        return self


class Decoding(Section):
    """How every cell is decoded. Pairs of kind draft need `gamma`, those of kind eagle3 `tree`."""

    gamma: Annotated[int, Field(ge=1, le=64)] | None = Field(None, description="drafted tokens per block")
    tree: TreeSection | None = Field(None, description="the trees that EAGLE-3 heads draft")
    temperature: Annotated[float, Field(ge=0)] = Field(1.0, description="of both models; 0 is greedy, else >= 0.001")
    top_k: Annotated[int, Field(ge=0)] = Field(0, description="of both models; 0 keeps all")
    top_p: Annotated[float, Field(gt=0, le=1)] = Field(1.0, description="of both models; 1 keeps all")
    batch_size: Annotated[int, Field(ge=1)] = Field(
        32, description="rows decoded together; in float32 never changes a token, in bfloat16 and float16 few"
    )
    trace: Literal["full", "light"] = Field(
        "full", description="full logs the distortion columns; light leaves them null"
    )


class Cluster(Section):
    """Where cells run."""

    actors: Literal["auto"] | Annotated[int, Field(ge=1)] = Field(
        "auto",
        description="actors that each hold a pair; auto: as many as the GPUs allow, else at most two",
    )
    gpus_per_pair: Annotated[float, Field(ge=0)] | None = Field(
        None, description="GPUs of one actor; none: 1 on a machine with GPUs, else 0"
    )
    cells_per_job: Annotated[int, Field(ge=1)] = Field(1, description="cells of one decode job")
    problems_per_task: Annotated[int, Field(ge=1)] = Field(
        512, description="a cell with more problems is split over idle actors in chunks of this size"
    )
    address: str | None = Field(None, description="address of a running Ray cluster; it is used and never stopped")


class Screen(Section):
    """One recorded decode, every rule on it: `specloss screen`."""

    top_k: Literal["full"] | Annotated[int, Field(ge=1)] = Field(
        64, description="most probable tokens of p and of q that are recorded at each position; full records all"
    )
    grid: Literal["all", "experiment"] = Field(
        "all", description="all: every registered rule over its grid and the experiment's settings; or the latter alone"
    )


class Tracking(Section):
    """MLflow."""

    uri: str | None = Field(None, description="tracking server or store; none: MLFLOW_TRACKING_URI, else a SQLite file")


class Analysis(Section):
    """How tables turn numbers into verdicts."""

    margin: Annotated[float, Field(gt=0, lt=100)] = Field(
        2.0, description="accuracy points that a setting may lose against its baseline and still be not worse"
    )
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = Field(
        0.95, description="of the intervals beside verdicts; a claim errs with at most half of the rest, one-sided"
    )
    multiplicity: Literal["holm", "bh", "none"] = Field(
        "holm",
        description="over a table's comparisons: holm (no claim of the table is wrong), bh (few of them are), none",
    )
    power: Annotated[float, Field(ge=0.5, lt=1)] = Field(
        0.8, description="with which the smallest effect that a size could have found would have been found"
    )
    speed: Literal["tokens_per_call", "be", "tokens_per_s"] = Field(
        "tokens_per_call",
        description="what faster means: output tokens per target call, BE, or measured output tokens per second, "
        "whose interval does not know how times vary from run to run",
    )
    single_draft: str | None = Field(
        None, description="Table 7 of an EAGLE-3 experiment: name of the single-draft experiment to set beside it"
    )

    @field_validator("single_draft")
    @classmethod
    def _is_an_experiment(cls, name: str | None) -> str | None:
        if name is not None:
            check_experiment_name(name)
        return name


# braces are Snakemake's wildcards, the others those of the readers of Parquet files
Folder = Annotated[str, Field(pattern=r"^[^{}*?\[\]\n]+$")]


class Experiment(Section):
    """One experiment: the whole config file."""

    name: str = Field(description="names results/<name>, reports/<name> and the MLflow experiment")
    pairs: Annotated[dict[str, Pair], Field(min_length=1)]
    models: dict[str, Recipe] = Field({}, description="models that the workflow makes; pairs name them")
    benchmarks: Annotated[dict[str, Benchmark], Field(min_length=1)]
    methods: Annotated[dict[str, Method], Field(min_length=1)]
    seeds: Annotated[list[int], Field(min_length=1)]
    decoding: Decoding
    cluster: Cluster = Cluster()
    screen: Screen = Field(Screen(), description="one recorded decode, every rule on it")
    analysis: Analysis = Field(Analysis(), description="how tables turn numbers into verdicts")
    mlflow: Tracking = Tracking()
    results: Folder = Field("results", description="folder for the outputs")
    reports: Folder = Field("reports", description="folder for tables, figures and the report")

    @property
    def recipes(self) -> Recipes:
        """The models that are made, and where."""
        return Recipes(self.models, Path(self.results))

    @field_validator("pairs", "models", "benchmarks", "methods")
    @classmethod
    def _names_fit_paths(cls, values: dict[str, Any]) -> dict[str, Any]:
        check_names(values)
        return values

    @field_validator("name")
    @classmethod
    def _name_fits_paths(cls, name: str) -> str:
        check_experiment_name(name)
        return name

    @field_validator("seeds")
    @classmethod
    def _seeds_differ(cls, seeds: list[int]) -> list[int]:
        if len(set(seeds)) < len(seeds):
            raise ValueError(f"{seeds} names a seed twice")
        if not (min(seeds) >= 0 and max(seeds) < 2**48):
            raise ValueError("seeds are from 0 to 2^48 - 1")
        return seeds

    @model_validator(mode="after")
    def _teachers_come_first(self) -> Experiment:
        self.recipes  # noqa: B018  making them is the check
        return self


def read_config(path: Path | str) -> Experiment:
    """Read and validate a config (YAML), or the one in an `experiment.json`. ConfigError, in one line, for a fault."""
    return parse_config(read_values(path), str(path))


def read_values(path: Path | str) -> Any:
    """The plain values of a config (YAML), or of the one in an `experiment.json`. ConfigError as `read_config`."""
    if Path(path).suffix != ".json":
        return read_yaml(path)
    try:
        content = read_json(path)
    except FileError as error:
        raise ConfigError(str(error)) from None
    if not is_experiment(content):
        raise ConfigError(f"{shown_path(path)}: not an experiment.json, it has no 'config' and 'cells'")
    return content["config"]


def is_experiment(content: Any) -> bool:
    """Whether plain values are those of an `experiment.json`, whose `config` is that of a run."""
    return isinstance(content, Mapping) and {"config", "cells"} <= content.keys()


def parse_config(values: Any, source: str) -> Experiment:
    """Validate plain values; `source` names them in errors (the config file)."""
    experiment = validated(Experiment, values, source)
    if fault := _drafting_fault(experiment):
        raise ConfigError(f"{source}: {fault}")
    return experiment


def _drafting_fault(experiment: Experiment) -> str | None:
    """What does not fit between the kinds of the pairs and how they draft, in one line."""
    kinds = {pair.kind: name for name, pair in experiment.pairs.items()}
    if len(kinds) > 1:
        listing = ", ".join(f"{name} is of kind {kind}" for kind, name in kinds.items())
        return f"pairs: {listing}; an experiment has pairs of one kind: make two experiments"
    gamma, tree = experiment.decoding.gamma, experiment.decoding.tree
    if "eagle3" in kinds:
        if gamma is not None:
            return f"decoding.gamma: pairs of kind eagle3 draft trees, which have decoding.tree instead, got {gamma}"
        if tree is None:
            return (
                "key 'decoding.tree' is missing: pairs of kind eagle3 need it; {total_token: 60, depth: 5, top_k: 10}"
            )
    else:
        if tree is not None:
            return "decoding.tree: only pairs of kind eagle3 draft trees; pairs of kind draft have decoding.gamma"
        if gamma is None:
            return "key 'decoding.gamma' is missing"
    return None


def validated(model: type[M], values: Any, source: str) -> M:
    """Plain values as `model`, the model of a whole config file. ConfigError, in one line, on the first fault."""
    source = shown_path(source)
    if not isinstance(values, dict):
        raise ConfigError(f"{source}: expected a mapping of keys at the top, got {type(values).__name__}")
    if fault := _unfit(values):
        raise ConfigError(f"{source}: {fault}")
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise ConfigError(f"{source}: {_one_line(error, model)}") from None


def _unfit(values: Any) -> str | None:
    """What no key can have, in words: texts that no file holds, and values without end, which aliases can make."""
    left = [(values, "")]
    for count, (value, at) in enumerate(left):
        if count > MOST_VALUES:
            return f"it has more than {MOST_VALUES:,} values (an alias within itself?)"
        if isinstance(value, str) and ("\0" in value or not _encodes(value)):
            return f"{at}: {_shown(value)} has a character that no file name or text can have"
        if isinstance(value, int) and abs(value) >= 2**63:
            return f"{at}: a whole number must be below 2^63, got {_shown(value)}"
        if isinstance(value, Mapping):
            left += [(key, at) for key in value] + [(entry, f"{at}.{key}".lstrip(".")) for key, entry in value.items()]
        elif isinstance(value, list | tuple | set):
            left += [(entry, f"{at}[{number}]") for number, entry in enumerate(value)]
    return None


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


def _shown(value: Any) -> str:
    """A value in a message, on one line and short."""
    text = repr(value)
    return text if len(text) < 80 else text[:77] + "..."


def _one_line(error: ValidationError, model: type[Section]) -> str:
    """The first fault, unknown keys first (a misspelt key also makes the right one missing)."""
    faults = sorted(error.errors(), key=lambda fault: fault["type"] != "extra_forbidden")
    fault = faults[0]
    at = ".".join(str(part) for part in fault["loc"])
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    if fault["type"] == "extra_forbidden":
        known = _fields_at(model, fault["loc"][:-1])
        near = difflib.get_close_matches(str(fault["loc"][-1]), known, n=1, cutoff=0)
        return f"unknown key {at!r}; did you mean {near[0]!r}?{more}" if near else f"unknown key {at!r}{more}"
    if fault["type"] == "missing":
        return f"key {at!r} is missing{more}"
    message = fault["msg"].removeprefix("Value error, ")
    return f"{at}: {message}, got {_shown(fault['input'])}{more}"


def _fields_at(model: type[Section], location: tuple[int | str, ...]) -> list[str]:
    """The keys that `model` knows at a place in its values; none where there is no section."""
    found: Any = model
    for part in location:
        if isinstance(found, type) and issubclass(found, Section):
            field = found.model_fields.get(str(part))
            found = field.annotation if field else None
            if isinstance(found, UnionType):  # Section | None
                found = get_args(found)[0]
        else:  # dict[str, Section], list[Section]
            found = (get_args(found) or (None,))[-1]
    return list(found.model_fields) if isinstance(found, type) and issubclass(found, Section) else []


def expand(experiment: Experiment) -> list[Cell]:
    """All cells of an experiment, with the matched baselines that its methods need, in a stable order.

    A matched baseline is a property of the rule: a gate at a parameter brings its truncation baseline at the same
    parameter, and every rule brings standard speculative decoding, whether or not the config lists them.
    """
    settings = _method_settings(experiment)
    recipes = experiment.recipes
    pairs = {
        name: {**pair.model_dump(), "target": recipes.place(pair.target), "draft": recipes.place(pair.draft)}
        for name, pair in experiment.pairs.items()
    }
    weights = {  # of models that are yet to be made, what they are made from
        name: {role: recipes.keys.get(model) or fingerprint(model) for role, model in roles}
        for name, pair in experiment.pairs.items()
        for roles in [(("target", pair.target), ("draft", pair.draft))]
    }
    hash_once = cache(file_hash)
    contents = {name: _contents(name, benchmark, hash_once) for name, benchmark in experiment.benchmarks.items()}
    return [
        Cell(
            experiment=experiment.name,
            pair=pair_name,
            benchmark=benchmark_name,
            method=label,
            param=param,
            seed=seed,
            settings={
                "pair": pairs[pair_name],
                "weights": weights[pair_name],
                "benchmark": benchmark.model_dump(exclude={"grading"}),
                **contents[benchmark_name],
                "decoding": experiment.decoding.model_dump(exclude={"batch_size", "trace"}, exclude_none=True),
                "rule": rule,
                "options": options,
            },
        )
        for pair_name in pairs
        for seed in experiment.seeds
        for benchmark_name, benchmark in experiment.benchmarks.items()
        for label, rule, param, options in settings
    ]


def _contents(name: str, benchmark: Benchmark, hash_of: Callable[[Path], str]) -> dict[str, dict[str, str]]:
    """`{"files": {option: hash}}` for the options that name local files; nothing if there are none."""
    files = {option: benchmark.options[option] for option in LOCAL_FILES if benchmark.options.get(option)}
    try:
        hashes = {option: hash_of(Path(str(path))) for option, path in files.items()}
    except FileError as error:
        raise ConfigError(f"benchmarks.{name}.options: {error}") from None
    return {"files": hashes} if hashes else {}


SettingSpec = tuple[str, str, float | None, dict[str, Any]]  # label, rule, param, options


def _method_settings(experiment: Experiment) -> list[SettingSpec]:
    """Every setting, baselines included. ConfigError names the method."""
    from specloss.verification import RULES

    tree = experiment.decoding.tree is not None
    settings: dict[tuple[str, float | None], SettingSpec] = {}
    for label, method in experiment.methods.items():
        name = method.rule or label
        if label not in RULES and label.lower() in RULES:
            raise ConfigError(
                f"methods.{label}: {label.lower()} is the name of a rule, and this differs from it by case alone; "
                "choose another label"
            )
        if label in RULES and name != label:
            raise ConfigError(
                f"methods.{label}: {label} is the name of a rule, but this is {name}; choose another label"
            )
        for param in method.params or [None]:
            try:
                bound_rule(name, param, method.options, tree)
            except (ValueError, TypeError) as error:
                raise ConfigError(f"methods.{label}: {error}") from None
            chain: SettingSpec | None = (label, name, param, method.options)
            while chain is not None:
                if settings.setdefault((chain[0], chain[2]), chain) != chain:
                    raise ConfigError(
                        f"methods.{label}: needs {chain[0]} with options {chain[3]}, but methods has it with others; "
                        "give that one another label"
                    )
                chain = matched_setting(*chain, tree=tree)
    order = list(dict.fromkeys(["standard_sd", *(label for label, _ in settings)]))
    return sorted(settings.values(), key=lambda s: (order.index(s[0]), s[2] or 0.0))


def bound_rule(rule: str, param: float | None, options: dict[str, Any], tree: bool) -> Rule | TreeRule:
    """The rule as the experiment runs it, on chains or on trees. ValueError, in one line, for what there is not."""
    from specloss.verification import get_rule, get_tree_rule

    if not tree:
        return get_rule(rule, param, **options)
    bound = get_tree_rule(rule, param, **options)
    if bound.bonus_needs_q:
        raise ValueError(f"{rule}: option bonus is invalid on drafted trees: 'r'; the head is not run on their leaves")
    return bound


def matched_setting(
    label: str, rule: str, param: float | None, options: dict[str, Any], *, tree: bool
) -> SettingSpec | None:
    """The setting that this one must be compared with: its rule's matched baseline, with the options they share.

    It is labelled by its rule, and by the method as well if it has options of its own. `tree`: on trees.
    """
    from specloss.verification import matched_rule, matched_tree_rule

    bound = bound_rule(rule, param, options, tree)
    baseline = matched_tree_rule(bound) if tree else matched_rule(bound)
    if baseline is None:
        return None
    shared = {name: value for name, value in options.items() if name in baseline.options and name != "coupling"}
    return (f"{baseline.name}-{label}" if shared else baseline.name), baseline.name, baseline.param, shared
