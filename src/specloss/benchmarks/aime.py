"""AIME: competition problems whose answers are whole numbers from 0 to 999."""

from __future__ import annotations

from specloss.benchmarks import Grade, Item, LocalFile
from specloss.benchmarks.parsing.numbers import grade_answer
from specloss.benchmarks.sources.hub import HubSet
from specloss.benchmarks.sources.rows import Row, chat, make_items, read_rows

HUB, SPLIT = "HuggingFaceH4/aime_2024", "train"
SYSTEM = (
    "Solve the competition problem step by step. Its answer is a whole number from 0 to 999: "
    "put that number in \\boxed{} at the end."
)


def load(
    file: LocalFile | None = None,
    problems: int | None = None,
    seed: int | None = None,
    dataset: str = HUB,
    split: str = SPLIT,
    revision: str | None = None,
) -> list[Item]:
    """Problems of one year, from the hub's `dataset` or from a local `file` with the same fields: problem, answer.

    The first `problems` of them, all if None, or with a `seed` that many by lot.
    """
    rows = read_rows(file, HubSet(dataset, split, revision=revision))
    return make_items(rows, _item, problems, seed)


def grade(text: str, reference: str) -> Grade:
    """Grade a solution by its final answer (`specloss.benchmarks.parsing.numbers`)."""
    return grade_answer(text, reference)


def _item(row: Row) -> Item:
    answer = row.text("answer", "Answer").strip()
    if not answer.isascii() or not answer.isdecimal() or int(answer) > 999:
        raise row.error(f"'answer' must be a whole number from 0 to 999, got {answer[:20]!r}")
    question = row.text("problem", "Problem", "question")
    return Item(f"aime-{row.number:03d}", None, str(int(answer)), chat(question, SYSTEM), row.where)
