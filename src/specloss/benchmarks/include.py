"""INCLUDE (Romanou et al. 2024): multiple-choice questions of local exams in 44 languages, zero-shot, worked out.

The default is what the paper's code ran: five questions of each language, of the validation and test splits together.
"""

from __future__ import annotations

from collections import defaultdict

from specloss.benchmarks import BenchmarkError, Grade, Item, LocalFile
from specloss.benchmarks.parsing.choices import grade_choice
from specloss.benchmarks.sources.hub import HubSet
from specloss.benchmarks.sources.rows import Row, chat, choose, make_items, read_rows, shown

HUB, SPLIT = "CohereLabs/include-base-44", "validation+test"
LANGUAGES = (
    "Albanian", "Arabic", "Armenian", "Azerbaijani", "Basque", "Belarusian", "Bengali", "Bulgarian", "Chinese",
    "Croatian", "Dutch", "Estonian", "Finnish", "French", "Georgian", "German", "Greek", "Hebrew", "Hindi", "Hungarian",
    "Indonesian", "Italian", "Japanese", "Kazakh", "Korean", "Lithuanian", "Malay", "Malayalam", "Nepali",
    "North Macedonian", "Persian", "Polish", "Portuguese", "Russian", "Serbian", "Spanish", "Tagalog", "Tamil",
    "Telugu", "Turkish", "Ukrainian", "Urdu", "Uzbek", "Vietnamese",
)  # fmt: skip
LETTERS = "ABCD"
SYSTEM = (
    "Answer the multiple-choice question. Think it through step by step, then close with one line of the form "
    "'Answer: X', where X is the letter of your choice: A, B, C or D."
)


def load(
    file: LocalFile | None = None,
    per_language: int | None = 5,
    problems: int | None = None,
    seed: int | None = None,
    languages: list[str] | None = None,
    revision: str | None = None,
) -> list[Item]:
    """Questions of the hub, or of a local `file` with its fields: language, question, option_a to option_d, answer.

    `answer` is a letter or its place from 0. Rows that hold a whole question with its options under `turns` and a
    letter under `reference` will do as well. Of each of the `languages` (None: all) the first `per_language` (None:
    all), or with a `seed` that many by lot; of these the first `problems`.
    """
    if languages is not None and (unknown := set(languages).difference(LANGUAGES)):
        raise BenchmarkError(f"unknown language {shown(sorted(unknown)[0])}; known: {', '.join(LANGUAGES)}")
    wanted = tuple(languages or LANGUAGES)
    rows = read_rows(file, HubSet(HUB, SPLIT, wanted, revision=revision))
    by_language: dict[str, list[Item]] = defaultdict(list)
    language_of = {row.where: row.text("language") for row in rows}
    for item in make_items(rows, _item):
        by_language[language_of[item.where]].append(item)
    names = wanted if languages else tuple(by_language)
    if missing := [name for name in names if not by_language[name]]:
        raise BenchmarkError(f"there are no questions in {missing[0]}")
    few = [choose(by_language[name], _at_most(per_language, len(by_language[name])), seed) for name in names]
    return choose([item for items in few for item in items], problems, None)


def grade(text: str, reference: str) -> Grade:
    """Grade an answer by the letter that it states (`specloss.benchmarks.parsing.choices`)."""
    return grade_choice(text, reference, LETTERS)


def _item(row: Row) -> Item:
    if "turns" in row.values:
        turns, references = row.list("turns"), row.list("reference")
        if len(turns) != 1 or not isinstance(turns[0], str) or not turns[0].strip():
            raise row.error("'turns' must be a list of one string")
        question, answer = turns[0], str(references[0]) if references else ""
    else:
        options = [row.text(f"option_{letter.lower()}") for letter in LETTERS]
        lines = [f"{letter}. {option}" for letter, option in zip(LETTERS, options, strict=True)]
        question, answer = "\n".join([row.text("question"), *lines]), row.text("answer")
        if answer in ("0", "1", "2", "3"):
            answer = LETTERS[int(answer)]
    if answer not in tuple(LETTERS):
        raise row.error(f"the answer must be one of A, B, C and D, got {shown(answer)}")
    return Item(f"include-{row.number:05d}", None, answer, chat(question, SYSTEM), row.where)


def _at_most(wanted: int | None, there: int) -> int | None:
    return wanted if wanted is None or wanted < 1 else min(wanted, there)
