"""Benchmarks: one file each, with `load(**options) -> list[Item]` and `grade(text, reference, **grading) -> Grade`.

`options` and `grading` are the keys of the same names of a benchmark in a config. They are checked against the two
functions' signatures and annotations; values that an annotation cannot rule out are refused by a ValueError in one
line. `options` decide what is decoded and belong to a cell; `grading` can change without decoding again.

A module whose grading takes long says so by `SLOW_GRADING = True`: it is then done in several processes and goes on
where a killed one stopped. One that runs model-written code has `permitted(sandbox)`, what its sandbox is on this
machine: a SandboxError unless it is safe, or `sandbox`, a key of its `grading`, is `unsafe`.

A benchmark module knows nothing of models, verification rules or the workflow. Adding one is a file here and a line
in `MODULES`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType

from specloss.common.oneline import OneLine

LOCAL_FILES = ("file", "answers_file")  # options that name local files: their contents belong to a cell, too
MODULES = {
    name: f"specloss.benchmarks.{name}"
    for name in ("aime", "bfcl", "chain", "gsm8k", "include", "math", "mbppplus", "prompts")
}


class BenchmarkError(OneLine, ValueError):
    """A benchmark that cannot be loaded as asked; the message is one line fit for a user."""


class UnreachableError(BenchmarkError):
    """Its data set is on the hub, which cannot be reached from here; `dataset` is its hub id."""

    def __init__(self, dataset: str) -> None:
        super().__init__(
            f"cannot reach the hub for data set {dataset}, and it is not in the local cache; name a local copy in "
            "options.file"
        )
        self.dataset = dataset


@dataclass(frozen=True, slots=True)
class Item:
    """One problem. `id` is unique within its benchmark, `reference` is what `grade` compares with, None for nothing.

    The prompt is either `prompt`, raw text for the tokenizer, or `messages`, each with a `role` and a `content`, that
    go through the target's chat template (`specloss.models.prompting`). `where` is the file and row it came from.
    """

    id: str
    prompt: str | None
    reference: str | None
    messages: tuple[Mapping[str, str], ...] = ()
    where: str = ""


@dataclass(frozen=True, slots=True)
class Grade:
    """`answer` is what was parsed from the generation, None when nothing could be: a parse failure is never correct.

    `correct` is None where there is nothing to grade by: such an answer counts neither as right nor as wrong. `scores`
    are further verdicts by name, for benchmarks that are scored in several ways; `correct` is one of them. `error`
    names what the text made a grader raise, if it did.
    """

    correct: bool | None
    answer: str | None
    scores: Mapping[str, bool] = field(default_factory=dict)
    error: str = ""


def get_benchmark(name: str) -> ModuleType:
    """The module of a benchmark; ValueError lists the known names."""
    if name not in MODULES:
        raise ValueError(f"unknown benchmark {name!r}; known: {', '.join(sorted(MODULES))}")
    return importlib.import_module(MODULES[name])


def is_slow(task: str) -> bool:
    """Whether a benchmark says that its grading is worth several processes (`SLOW_GRADING`)."""
    return bool(getattr(get_benchmark(task), "SLOW_GRADING", False))
