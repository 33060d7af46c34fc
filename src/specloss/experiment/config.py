"""The experiment's config: pydantic models, and one-line errors that name the key, the value and what would be valid.

Every key of `config/*.yaml` is a field here, with its meaning as the field's description.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

from specloss.common.files import FileError, read_json, shown_path
from specloss.common.section import Section, validated
from specloss.common.yamlfile import ConfigError, read_yaml
from specloss.experiment.names import check_experiment_name, check_names
from specloss.experiment.sections import (
    Analysis,
    Benchmark,
    Cluster,
    Decoding,
    Folder,
    Method,
    Pair,
    Screen,
    Tracking,
    TreeSection,
)
from specloss.making.recipe import Recipe, Recipes


class Experiment(Section):
    """One experiment: the whole config file."""

    name: str = Field(description="names results/<name>, reports/<name> and the MLflow experiment")
    pairs: Annotated[dict[str, Pair], Field(min_length=1)] = Field(
        description="targets with what drafts for them, by label"
    )
    models: dict[str, Recipe] = Field({}, description="models that the workflow makes; pairs name them")
    benchmarks: Annotated[dict[str, Benchmark], Field(min_length=1)] = Field(description="sets of problems, by label")
    methods: Annotated[dict[str, Method], Field(min_length=1)] = Field(
        description="verification rules and the grids of their parameters, by label; baselines are added"
    )
    seeds: Annotated[list[int], Field(min_length=1)] = Field(
        description="each decodes every setting once; 0 to 2^48 - 1"
    )
    decoding: Decoding = Field(description="how every cell is decoded")
    cluster: Cluster = Field(Cluster(), description="where cells run")
    screen: Screen = Field(Screen(), description="every rule evaluated on one recorded decode")
    analysis: Analysis = Field(Analysis(), description="how verdicts are reached")
    mlflow: Tracking = Field(Tracking(), description="where the runs are logged")
    results: Folder = Field("results", description="folder for the outputs")
    reports: Folder = Field("reports", description="folder for tables, figures and the report")

    @property
    def recipes(self) -> Recipes:
        """The models that the workflow makes, and where they go."""
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
            raise ValueError(f"{seeds} lists a seed twice")
        if not (min(seeds) >= 0 and max(seeds) < 2**48):
            raise ValueError("seeds must be from 0 to 2^48 - 1")
        return seeds

    @model_validator(mode="after")
    def _teachers_come_first(self) -> Experiment:
        self.recipes  # noqa: B018  making them is the check
        return self


def config_schema() -> str:
    """The JSON schema of a config, for editors: `config/schema.json`."""
    return json.dumps(Experiment.model_json_schema(), indent=2, ensure_ascii=False) + "\n"


def read_config(path: Path | str) -> Experiment:
    """Read and validate a config (YAML), or the one in an `experiment.json`. ConfigError, in one line, for faults."""
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
    """Whether plain values are the content of an `experiment.json`, whose `config` is that of a run."""
    return isinstance(content, Mapping) and {"config", "cells"} <= content.keys()


def parse_config(values: Any, source: str) -> Experiment:
    """Validate plain values; `source` names them in errors (the config file)."""
    experiment = validated(Experiment, values, source)
    if fault := _drafting_fault(experiment):
        raise ConfigError(f"{source}: {fault}")
    return experiment


def _drafting_fault(experiment: Experiment) -> str | None:
    """How the pairs' kinds and `decoding` contradict each other, in one line; None if they do not."""
    kinds = {pair.kind: name for name, pair in experiment.pairs.items()}
    if len(kinds) > 1:
        listing = ", ".join(f"{name} is of kind {kind}" for kind, name in kinds.items())
        return f"pairs: {listing}; an experiment has pairs of one kind: make two experiments"
    gamma, tree = experiment.decoding.gamma, experiment.decoding.tree
    if "eagle3" in kinds:
        if gamma is not None:
            return f"decoding.gamma: pairs of kind eagle3 draft trees, which have decoding.tree instead, got {gamma}"
        if tree is None:
            usual = ", ".join(f"{key}: {value}" for key, value in TreeSection().model_dump().items())
            return f"key 'decoding.tree' is missing: pairs of kind eagle3 need it; for example {{{usual}}}"
    else:
        if tree is not None:
            return "decoding.tree: only pairs of kind eagle3 draft trees; pairs of kind draft have decoding.gamma"
        if gamma is None:
            return "key 'decoding.gamma' is missing"
    return None
