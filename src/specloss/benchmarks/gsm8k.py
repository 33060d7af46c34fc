"""GSM8K (Cobbe et al. 2021): grade-school word problems with a number as the answer."""

from __future__ import annotations

import re

from specloss.benchmarks import Grade, Item
from specloss.benchmarks.answers import equal, final_answer
from specloss.benchmarks.hub import HubSet
from specloss.benchmarks.rows import Row, chat, make_items, read_rows

HUB, SUBSET, SPLIT = "openai/gsm8k", "main", "test"
SYSTEM = "Solve the word problem step by step. End with the final number alone in \\boxed{}, without its unit."

_NUMBER_WITH_WORDS = re.compile(r"\s*(?:\\?[$€£])?\s*(-?[0-9][0-9,]*(?:\.[0-9]+)?)\s*[A-Za-z ]*\.?\s*")


def load(
    file: str | None = None, problems: int | None = None, seed: int | None = None, revision: str | None = None
) -> list[Item]:
    """Problems of the hub's test split, or of a local `file` with its fields: question, answer (ends in `#### 18`).

    The first `problems` of them, all if None, or with a `seed` that many by lot.
    """
    rows = read_rows(file, HubSet(HUB, SPLIT, (SUBSET,), revision=revision))
    return make_items(rows, _item, problems, seed)


def grade(text: str, reference: str) -> Grade:
    """Grade a solution by its final answer (`specloss.benchmarks.answers`); words of a unit behind it do not matter."""
    answer = final_answer(text)
    if answer is None:
        return Grade(False, None)
    number = _NUMBER_WITH_WORDS.fullmatch(answer)
    return Grade(equal(reference, number.group(1).replace(",", "") if number else answer), answer)


def _item(row: Row) -> Item:
    _, hashes, answer = row.text("answer").rpartition("####")
    if not hashes or not answer.strip():
        raise row.error("'answer' has no final answer after ####")
    reference = answer.strip().replace(",", "")
    return Item(f"gsm8k-{row.number:04d}", None, reference, chat(row.text("question"), SYSTEM), row.where)
