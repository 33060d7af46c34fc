"""What a config names, checked before any work: models, benchmarks, prompts, folders and cells of earlier runs."""

from __future__ import annotations

import inspect
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import create_model

from specloss.benchmarks import Item, UnreachableError, get_benchmark
from specloss.benchmarks.sandbox import SandboxError
from specloss.common.section import Section, validated
from specloss.common.yamlfile import ConfigError
from specloss.experiment.config import Experiment

if TYPE_CHECKING:
    from specloss.experiment.plan import Plan


def check_pairs(experiment: Experiment) -> None:
    """Check that the local models named by pairs and recipes exist and fit one another. ConfigError, in one line."""
    from specloss.models.checkpoint import ModelError, locate
    from specloss.models.context import check_context
    from specloss.models.tokenizers import check_models

    made = experiment.models
    for name, recipe in made.items():
        try:
            if recipe.distil and recipe.distil.teacher not in made:
                locate(recipe.distil.teacher).check()
        except ModelError as error:
            raise ConfigError(f"models.{name}.distil.teacher: {error}") from None
    for name, pair in experiment.pairs.items():
        try:
            if not {pair.target, pair.draft} & made.keys():
                check_models(pair.target, pair.draft, pair.target_revision, pair.draft_revision, pair.kind)
            elif pair.target not in made:
                locate(pair.target, pair.target_revision).check()
            elif pair.draft not in made:
                locate(pair.draft, pair.draft_revision).check(tokenizer=pair.kind != "eagle3")
            found = [None if model in made else locate(model) for model in (pair.target, pair.draft)]
            plain = [model.config if model and model.local and not model.gguf else None for model in found]
            check_context(pair.kind, *plain, pair.context)
        except ModelError as error:
            raise ConfigError(f"pairs.{name}: {error}") from None


def check_architectures(plan: Plan) -> None:
    """Check that local models can be decoded, by a probe of each that has not passed before; hub models: when loaded.

    A pair for a GPU that this machine lacks is only inspected, not loaded.
    ConfigError, in one line. Not part of `make_plan`, which every job calls, because this imports transformers.
    """
    from specloss.models.checkpoint import ModelError, locate
    from specloss.models.loading import load_config
    from specloss.models.pair import probe_checkpoint

    recipes = plan.experiment.recipes
    for name, pair in plan.experiment.pairs.items():
        for role in ("target", "draft") if pair.kind == "draft" else ("target",):  # a head is no model of its own
            model = getattr(pair, role)
            try:
                if all(map(os.path.exists, recipes.files(model))) and (found := locate(recipes.place(model))).local:
                    load_config(found, pair.trust_remote_code, pair.context)
                    head = locate(recipes.place(pair.draft)) if pair.kind == "eagle3" else None
                    if head is None or (head.local and all(map(os.path.exists, recipes.files(pair.draft)))):
                        probe_checkpoint(
                            *(found, pair.dtype, pair.device, pair.attention, pair.trust_remote_code, pair.context),
                            head,
                        )
            except ModelError as error:
                raise ConfigError(f"{plan.source}: pairs.{name}.{role}: {error}") from None


def check_benchmarks(experiment: Experiment) -> dict[str, list[Item]]:
    """The items of every benchmark. ConfigError for bad arguments or items, and one for all data out of reach."""
    items, far = {}, []
    for name, benchmark in experiment.benchmarks.items():
        at = f"benchmarks.{name}"
        try:
            task = get_benchmark(benchmark.task)
            check_arguments(task.load, benchmark.options, f"{at}.options")
            check_arguments(task.grade, benchmark.grading, f"{at}.grading", given=2)
            if task.permitted:
                task.permitted(benchmark.grading.get("sandbox", "required"))
            items[name] = task.load(**benchmark.options)
            task.check(items[name], **benchmark.grading)
        except UnreachableError as error:
            far.append(f"{at} ({error.dataset})")
            continue
        except ConfigError:
            raise
        except (ValueError, SandboxError) as error:
            raise ConfigError(f"{at}: {error}") from None
        if not items[name]:
            raise ConfigError(
                f"{at}: the benchmark is empty: {benchmark.task} with {benchmark.options} has no problems"
            )
    if far:
        raise ConfigError(
            f"cannot reach the hub, and its local cache does not have the data of {', '.join(far)}; run this where the "
            "hub can be reached, or name local copies in options.file"
        )
    return items


def check_prompts(experiment: Experiment, items: dict[str, list[Item]]) -> None:
    """Check the prompts with each local pair before decoding. ConfigError for one that is too long."""
    from specloss.models.prompting import PromptError, check_prompts

    recipes = experiment.recipes
    for pair_name, pair in experiment.pairs.items():
        if not all(map(os.path.exists, recipes.files(pair.target, pair.draft))):
            continue  # its models are yet to be made
        target, draft = recipes.place(pair.target), recipes.place(pair.draft)
        for name, benchmark in experiment.benchmarks.items():
            try:
                check_prompts(
                    items[name], benchmark.chat, pair.kind, target, draft, pair.trust_remote_code, pair.context
                )
            except PromptError as error:
                raise ConfigError(f"benchmarks.{name} with pairs.{pair_name}: {error}") from None


def check_arguments(function: Callable[..., Any], values: dict[str, Any], at: str, given: int = 0) -> None:
    """Check keyword arguments against a function's signature and annotations, skipping the first `given` parameters.

    The ConfigError is one line, starts with `at` and names the key.
    """
    parameters = list(inspect.signature(function, eval_str=True).parameters.values())[given:]
    fields = {
        parameter.name: (
            Any if parameter.annotation is parameter.empty else parameter.annotation,
            ... if parameter.default is parameter.empty else parameter.default,
        )
        for parameter in parameters
    }
    if not fields and values:
        raise ConfigError(f"{at}: this benchmark takes none, got {', '.join(values)}")
    validated(create_model("Arguments", __base__=Section, **fields), values, at)


def check_writable(folder: Path) -> None:
    """ConfigError if the folder could not be created or written to; creates nothing."""
    there = next(place for place in (folder, *folder.parents) if os.path.lexists(place) or place == place.parent)
    try:
        for part in folder.relative_to(there).parts:
            (there / part).exists()  # an error for a name that is too long
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise ConfigError(f"cannot write to {folder}: {os.strerror(error.errno or 0)}") from None


def check_finished(plan: Plan) -> None:
    """ConfigError for a cell that an earlier run decoded with other settings: it is never overwritten."""
    for cell in plan.cells:
        if not cell.is_whole(plan.results):
            continue
        if reason := cell.stale_reason(plan.results):
            raise ConfigError(
                f"{cell.folder(plan.results)}: {reason}; give the experiment another name, or remove that folder to "
                f"decode the cell again, or {plan.folder} to start over"
            )
