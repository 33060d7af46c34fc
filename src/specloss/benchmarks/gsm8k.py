"""GSM8K (Cobbe et al. 2021): grade-school word problems with a number as the answer."""

from __future__ import annotations

import re

from specloss.benchmarks import Grade, Item, LocalFile
from specloss.benchmarks.parsing.numbers import equal, final_answer
from specloss.benchmarks.sources.hub import HubSet
from specloss.benchmarks.sources.rows import Row, chat, make_items, read_rows

HUB, SUBSET, SPLIT = "openai/gsm8k", "main", "test"
SYSTEM = "Solve the word problem step by step. End with the final number alone in \\boxed{}, without its unit."

# Nothing else is read: "12 thousand" is no 12, and of "3,5" nobody knows what is meant.
_QUANTITY = re.compile(
    r"""
    \s*+ (?P<sign>[-+]?) \s*+ (?:\\?[$€£])? \s*+
    (?P<number> -?[0-9]{1,3}(?:[,\ ][0-9]{3})+(?:\.[0-9]+)? | -?[0-9]+(?:\.[0-9]+)? ) \s*+
    (?! .*\b(?:hundred|thousand|million|billion)s?\b )
    (?: [A-Za-z]++ (?:\^[23])? | [²³$€£°%] | [ ,/().-] )*+
    """,
    re.VERBOSE | re.IGNORECASE,
)
_LATEX = re.compile(r"\\(?:text|mathrm|textbf|mathbf)\b|\\[,;:! ]|\\(?=%)|[{}]|\*\*")


def load(
    file: LocalFile | None = None, problems: int | None = None, seed: int | None = None, revision: str | None = None
) -> list[Item]:
    """Problems of the hub's test split, or of a local `file` with its fields: question, answer (ends in `#### 18`).

    The first `problems` of them, all if None, or with a `seed` that many by lot.
    """
    rows = read_rows(file, HubSet(HUB, SPLIT, (SUBSET,), revision=revision))
    return make_items(rows, _item, problems, seed)


def grade(text: str, reference: str) -> Grade:
    """Grade a solution by its final answer (`specloss.benchmarks.parsing.numbers`); its unit does not matter."""
    answer = final_answer(text)
    if answer is None:
        return Grade(False, None)
    quantity = _QUANTITY.fullmatch(_LATEX.sub("", answer).replace("~", " "))
    number = f"{quantity['sign']}{re.sub('[, ]', '', quantity['number'])}" if quantity else answer
    return Grade(equal(reference, number), answer)


def _item(row: Row) -> Item:
    _, hashes, answer = row.text("answer").rpartition("####")
    if not hashes or not answer.strip():
        raise row.error("'answer' has no final answer after ####")
    reference = answer.strip().replace(",", "")
    return Item(f"gsm8k-{row.number:04d}", None, reference, chat(row.text("question"), SYSTEM), row.where)
