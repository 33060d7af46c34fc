"""The user's own prompts: a JSON Lines or Parquet file, no code.

A row has `messages`, each with a `role` (system, user or assistant) and a `content`, or a `prompt`, raw text; and
optionally an `id` and a `reference`. An answer to a row without a reference is not graded.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from specloss.benchmarks import BenchmarkError, Grade, Item, LocalFile
from specloss.benchmarks.parsing.choices import grade_choice
from specloss.benchmarks.parsing.numbers import grade_answer
from specloss.benchmarks.sources.rows import Row, make_items, read_file, shown

ROLES = ("system", "user", "assistant")
NOT_GRADED = Grade(None, None)
PATIENCE = 5.0  # seconds for one regular expression on one answer

By = Literal["exact", "regex", "math", "choice", "none"]


def load(file: LocalFile, problems: int | None = None, seed: int | None = None) -> list[Item]:
    """The first `problems` of the `file`, all if None, or with a `seed` that many by lot."""
    return make_items(read_file(Path(file)), _item, problems, seed)


def check(items: Sequence[Item], by: By = "none") -> None:
    """Check that the references suit the grading. BenchmarkError names the row."""
    graded = [item for item in items if item.reference is not None]
    if by != "none" and not graded:
        raise BenchmarkError(f"grading by {by} needs references, and no row has a 'reference'")
    for item in graded:
        if by == "choice" and not re.fullmatch("[A-Z]", item.reference or ""):
            raise BenchmarkError(f"{item.where}: 'reference' must be a capital letter, got {shown(item.reference)}")
        if by == "regex":
            try:
                _compiled(item.reference or "")
            except ValueError as error:
                raise BenchmarkError(f"{item.where}: 'reference' is not a regular expression: {error}") from None


def grade(text: str, reference: str | None, by: By = "none") -> Grade:
    """Grade by `exact` (the answer is the reference, but for space around it), `regex` (the reference is an expression
    that is found in the answer), `math` (equal final answers, `parsing.numbers`), `choice` (the letter,
    `parsing.choices`), or not at all.
    """
    if reference is None or by == "none":
        return NOT_GRADED
    if by == "math":
        return grade_answer(text, reference)
    if by == "choice":
        return grade_choice(text, reference, "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    answer = text.strip()
    if not answer:
        return Grade(False, None)
    if by == "exact":
        return Grade(answer == reference.strip(), answer)
    try:
        found = _compiled(reference).search(text, timeout=PATIENCE)
    except TimeoutError:
        return Grade(False, answer)
    return Grade(found is not None, found.group() if found else answer)


def _compiled(expression: str) -> Any:
    import regex  # unlike `re`, it can be given a time limit

    try:
        return regex.compile(expression)
    except regex.error as error:
        raise BenchmarkError(str(error)) from None


def _item(row: Row) -> Item:
    reference = None
    if row.values.get("reference") is not None:
        reference = row.text("reference")
    id_ = row.text("id") if row.values.get("id") is not None else f"row-{row.number:05d}"
    if row.values.get("messages") is None:
        return Item(id_, row.text("prompt", "messages"), reference, where=row.where)
    messages = []
    for number, message in enumerate(row.list("messages"), start=1):
        if not isinstance(message, dict):
            raise row.error(f"message {number} must be an object with 'role' and 'content', got {shown(message)}")
        turn = Row(f"{row.where}, message {number}", row.number, message)
        role = turn.text("role")
        if role not in ROLES:
            raise turn.error(f"'role' must be one of {', '.join(ROLES)}, got {shown(role)}")
        messages.append({"role": role, "content": turn.text("content")})
    if not messages or messages[-1]["role"] != "user":
        raise row.error("'messages' must end with a user message")
    return Item(id_, None, reference, tuple(messages), row.where)
