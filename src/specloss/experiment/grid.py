"""The grid: every cell of an experiment, with the matched baselines that its methods need."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

from specloss.benchmarks import get_benchmark
from specloss.common.files import FileError, file_hash
from specloss.common.yamlfile import ConfigError
from specloss.experiment.cells import Cell
from specloss.experiment.config import Experiment
from specloss.experiment.sections import Benchmark
from specloss.models.checkpoint import fingerprint
from specloss.verification.binding import SettingSpec, bound_rule, matched_setting


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
    if not any(isinstance(value, str) for value in benchmark.options.values()):
        return {}  # nothing that could be a file, and no reason to import the benchmark
    try:
        named = get_benchmark(benchmark.task).local_files
        files = {option: benchmark.options[option] for option in named if benchmark.options.get(option)}
        hashes = {option: hash_of(Path(str(path))) for option, path in files.items()}
    except FileError as error:
        raise ConfigError(f"benchmarks.{name}.options: {error}") from None
    except ValueError as error:  # no such benchmark
        raise ConfigError(f"benchmarks.{name}: {error}") from None
    return {"files": hashes} if hashes else {}


def _method_settings(experiment: Experiment) -> list[SettingSpec]:
    """Every setting, baselines included. ConfigError names the method."""
    from specloss.verification import RULES

    tree = experiment.decoding.tree is not None
    settings: dict[tuple[str, float | None], SettingSpec] = {}
    for label, method in experiment.methods.items():
        name = method.rule or label
        if label not in RULES and label.lower() in RULES:
            raise ConfigError(
                f"methods.{label}: {label.lower()} is the name of a rule, and this differs from it only in case; "
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
                        f"methods.{label}: needs {chain[0]} with options {chain[3]}, but methods lists it with others; "
                        "give that entry another label"
                    )
                chain = matched_setting(*chain, tree=tree)
    order = list(dict.fromkeys(["standard_sd", *(label for label, _ in settings)]))
    return sorted(settings.values(), key=lambda s: (order.index(s[0]), s[2] or 0.0))
