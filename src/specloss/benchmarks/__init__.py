"""Benchmarks: one file each, with `load(**options) -> list[Item]` and `grade(text, reference, **grading) -> Grade`.

`options` and `grading` are the keys of the same names of a benchmark in a config. They are checked against the two
functions' signatures and annotations; values that an annotation cannot rule out are refused by a ValueError in one
line. `options` decide what is decoded and belong to a cell; `grading` can change without decoding again.

An option that is annotated as `LocalFile` names a file whose content belongs to a cell. What else a module may have,
with what stands in for it where it has not, is said by `Task`.

A benchmark module knows nothing of models, verification rules or the workflow. Adding one is a file here and a line
in `MODULES`.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol, get_args

from specloss.common.oneline import OneLine

LocalFile = Annotated[str, "path of a local file"]
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


class BenchmarkModule(Protocol):
    """What every benchmark's module has."""

    def load(self, **options: Any) -> list[Item]:
        """Its problems. BenchmarkError, in one line, if they cannot be had as asked."""

    def grade(self, text: str, reference: str | None, **grading: Any) -> Grade:
        """The grade of one answer."""


def _accept(items: Sequence[Item], **grading: Any) -> None:
    """Any items can be graded in any way."""


@dataclass(frozen=True)
class Task:
    """A benchmark as the rest of the project uses it.

    `check(items, **grading)` raises BenchmarkError for items that cannot be graded like that. `permitted(sandbox)` is
    there if model-written code runs: what the sandbox is on this machine, or a SandboxError where it is not safe and
    `sandbox`, a key of its `grading`, is not `unsafe`. `slow` (SLOW_GRADING in the module): grading is done in several
    processes and goes on where a killed one stopped.
    """

    load: Callable[..., list[Item]]
    grade: Callable[..., Grade]
    check: Callable[..., None] = _accept
    permitted: Callable[[str], Any] | None = None
    slow: bool = False

    @classmethod
    def of(cls, module: BenchmarkModule) -> Task:
        """From a benchmark's module."""
        return cls(
            module.load,
            module.grade,
            getattr(module, "check", _accept),
            getattr(module, "permitted", None),
            getattr(module, "SLOW_GRADING", False),
        )

    @property
    def local_files(self) -> list[str]:
        """The options of `load` that name local files."""
        parameters = inspect.signature(self.load, eval_str=True).parameters
        annotations = {name: parameter.annotation for name, parameter in parameters.items()}
        return [name for name, kind in annotations.items() if LocalFile in (kind, *get_args(kind))]


def get_benchmark(name: str) -> Task:
    """A benchmark by its name; ValueError lists the known names."""
    if name not in MODULES:
        raise ValueError(f"unknown benchmark {name!r}; known: {', '.join(sorted(MODULES))}")
    return Task.of(importlib.import_module(MODULES[name]))
