"""Benchmarks: one file each, with `load(**options) -> list[Item]` and `grade(text, reference) -> Grade`.

A benchmark module knows nothing of models, verification rules or the workflow. Adding one is a file here and a line
in `MODULES`.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from types import ModuleType

MODULES = {"chain": "specloss.benchmarks.chain"}


@dataclass(frozen=True, slots=True)
class Item:
    """One problem. `id` is unique within its benchmark; `prompt` is the raw text given to the tokenizer."""

    id: str
    prompt: str
    reference: str


@dataclass(frozen=True, slots=True)
class Grade:
    """`answer` is what was parsed from the generation, None when nothing could be: a parse failure is never correct."""

    correct: bool
    answer: str | None


def get_benchmark(name: str) -> ModuleType:
    """The module of a benchmark; ValueError lists the known names."""
    if name not in MODULES:
        raise ValueError(f"unknown benchmark {name!r}; known: {', '.join(sorted(MODULES))}")
    return importlib.import_module(MODULES[name])
