r"""Answers of multiple-choice questions: a letter, stated as the answer.

A letter counts where the text says that it is the answer: "Answer: B", "the answer is (B)", "### Answer" above it,
`\boxed{B}`, or a text that is nothing else. The last such statement counts. A letter that merely occurs is none: that
is a parse failure, and never a guess. The words that make a statement stand in `labels.json`, for the 44 languages of
INCLUDE and English; a text may use those of any.

Full-width letters are read as the letters that they show. Letters of other scripts are not (Cyrillic and Greek letters
that look like A, B or C, or that stand at their place in another alphabet; Arabic or Indic letters): options are
lettered A, B, C, D in every language, and a Cyrillic "В" may mean the second or the third of them. Nor are statements
that begin with the letter ("B is correct") or name an option by its text or number.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from specloss.benchmarks import Grade

# Each language: words for an `answer`, which need a mark or an `is` before the letter or a `then` after it; labels that
# say that it is `correct`, which need none at the end of a sentence; an `option` that may stand before the letter; `or`
# and `not` after it, and `wrong` before a label, that take the statement back.
LABELS: dict[str, dict[str, list[str]]] = json.loads(
    Path(__file__).with_name("labels.json").read_text(encoding="utf-8")
)

_INVISIBLE = [*range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x206A), 0x00AD, 0x061C, 0xFEFF]
_BEHIND = ("then", "or", "not")
_VOWEL_POINTS = [*range(0x0591, 0x05BE), 0x05BF, 0x05C1, 0x05C2, 0x0640, *range(0x064B, 0x0653), 0x0670]  # and kashida
_SAME = {
    **{code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)},  # full width
    **dict.fromkeys([*_INVISIBLE, *_VOWEL_POINTS]),
    **{0x0130: "I", 0x0131: "i"},  # Turkish, and the one letter whose lower case is longer
    **{ord(character): "'" for character in "‘’ʻʼ´"},
    **{ord(character): '"' for character in "“”„«»‹›"},
    **{ord(character): "(" for character in "「『【〔《〈"},
    **{ord(character): ")" for character in "」』】〕》〉"},
    **{ord(character): "-" for character in "‐‑‒–—―−→⇒"},
    **{ord(character): "." for character in "。।۔｡"},
    **{ord(character): "," for character in "、،"},
    **{ord(old): new for old, new in zip("يىكەٸ", "ییکەی", strict=True)},  # Arabic and Persian letters of one shape
    **{code: unicodedata.normalize("NFD", chr(code)) for code in (*range(0x0958, 0x0960), 0x09DC, 0x09DD, 0x09DF)},
}
_DECORATION = r"""(?: [*_("'`\[{$\s] | \\[(\[] )*+"""
_CLOSING = r"""[*_)"'`\]}$]*+"""
_LETTER = rf"(?: \\(?:text|textbf|mathrm) \s*+ \{{ )?+ {_DECORATION} (?P<letter> [A-Z] )"
_MARK = "[:=՝։ःঃ-]"
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
_ALONE = re.compile(r"[*_(\"'`\[\s]*+(?P<letter>[A-Z])[*_)\"'`\].:,\s]*+")
_BOXED = re.compile(rf"\\(?:f?boxed|fbox) \s*+ \{{ {_LETTER}", re.VERBOSE)
_HEADING = re.compile(r"[ \t]*+(?:\#{1,6}[ \t]|[*_]{2})")
_LONGEST_HEADING = 60


def stated_letter(text: str, letters: str = "ABCD") -> str | None:
    """The last letter that the text states as its answer; None if it states none, or one that is no choice."""
    text = text.translate(_SAME)
    letter = alone["letter"] if (alone := _ALONE.fullmatch(text)) else _last_statement(text)
    return letter if letter is not None and letter in letters else None


def grade_choice(text: str, reference: str, letters: str = "ABCD") -> Grade:
    """Grade an answer by its letter."""
    letter = stated_letter(text, letters)
    return Grade(letter is not None and letter == reference, letter)


def _last_statement(text: str) -> str | None:
    taken_back = _taken_back()
    boxes = [box for box in _BOXED.finditer(text) if not taken_back.match(text, box.end())]
    box = boxes[-1] if boxes else None
    for place in reversed(list(_starts().finditer(text.lower()))):
        if box and place.start() < box.start():
            break
        for language in _languages_of()[place.group()]:
            found = _statement(language).match(text, place.start())
            if not found or taken_back.match(text, found.end()):
                continue
            if found["line"] is None or _in_heading(text, place.start()):
                return found["letter"]
    return box["letter"] if box else None


def _in_heading(text: str, place: int) -> bool:
    before = text[max(0, place - _LONGEST_HEADING) : place]
    line = before.rpartition("\n")[2]
    return (len(line) < len(before) or place == len(before)) and _HEADING.match(line) is not None


@cache
def _languages_of() -> dict[str, list[str]]:
    """The languages of each label, which is in lower case."""
    languages: dict[str, list[str]] = {}
    for language, words in LABELS.items():
        for label in dict.fromkeys(word.lower() for word in _spellings([*words["answer"], *words["correct"]])):
            languages.setdefault(label, []).append(language)
    return languages


@cache
def _starts() -> re.Pattern[str]:
    """Any label in lower case, the longest that there is; by first letters, as there are hundreds."""
    by_letter: dict[str, list[str]] = {}
    for label in sorted(_languages_of(), key=len, reverse=True):
        by_letter.setdefault(label[0], []).append(re.escape(label[1:]))
    return re.compile("|".join(f"{re.escape(first)}(?:{'|'.join(rest)})" for first, rest in by_letter.items()))


@cache
def _taken_back() -> re.Pattern[str]:
    """What shows behind a letter that it is none, or not the answer: "A lot", "B or C", "B is not it" (verbs last)."""
    then, either, negation = ([word for words in LABELS.values() for word in words.get(key, [])] for key in _BEHIND)
    return re.compile(
        rf"""
        [A-Za-z0-9\u00c0-\u024f\u0370-\u052f\u1e00-\u1fff] | '(?! {_any(_suffixes(then), end=True)} ) \w
        | (?<=A) \s++ (?! {_any(then, end=True)} ) [a-z\u00df-\u024f\u1e00-\u1eff]
        | {_CLOSING} \s*+ {_any(negation)}
        | {_CLOSING} \s*+ (?: {_any(either)} | [/,;&+|] ) \s*+ {_DECORATION} [A-HJ-Z] (?! [A-Za-z0-9] )
        """,
        re.VERBOSE,
    )


@cache
def _statement(language: str) -> re.Pattern[str]:
    """The ways of one language to state a letter, and the letter. Repeats are possessive or bounded: time is linear."""
    words = LABELS[language]
    every, correct = _label(words, [*words["answer"], *words["correct"]]), _label(words, words["correct"])
    linked = rf"(?: (?: {_any(words.get('is', []))} | {_MARK} ) [*_\s]*+ ){{1,4}}+"
    option = rf"(?: {_any(words.get('option', []))} \s*+ )?+"
    letter = rf"{_DECORATION} [A-Z] {_CLOSING}"
    ways = [
        rf"{every} [*_]*+ \s*+ {linked} {option}",
        rf"{correct} \s*+ {option} (?= {letter} [ \t]*+ (?: \Z | [\n.,;!] ) )",
        rf"{every} \s*+ {option} (?= {letter} \s*+ {_any(words.get('then', []), end=True)} )",
        rf"(?P<line> {every} [*_]*+ [ \t]*+ \n \s*+ )",
    ]
    return re.compile(rf"(?: {' | '.join(ways)} ) {_LETTER}", re.VERBOSE)


def _label(words: dict[str, list[str]], labels: Iterable[str]) -> str:
    wrong = "".join(rf"(?<! {_literal(word)} )(?<! {_literal(word)}\s )" for word in _spellings(words.get("wrong", [])))
    bounded = [label for label in labels if not _UNSPACED.search(label)]
    unbounded = [label for label in labels if _UNSPACED.search(label)]
    return rf"(?: (?i:{wrong}) (?: (?<![^\W_]) {_any(bounded)} | {_any(unbounded)} ) )"


def _any(words: Iterable[str], end: bool = False) -> str:
    """Any of the words, `end`: and no letter after it, in scripts with spaces."""
    ways = []
    for word in sorted(_spellings(words), key=lambda word: (-len(word), word)):
        ways.append(_literal(word) + (r"(?!\w)" if end and not _UNSPACED.search(word) else ""))
    return rf"(?i: {'|'.join(ways)} )" if ways else "(?!)"


def _spellings(words: Iterable[str]) -> set[str]:
    """The words as `_SAME` leaves them, accents composed or not."""
    return {unicodedata.normalize(form, word).translate(_SAME) for word in words for form in ("NFC", "NFD")}


def _suffixes(words: Iterable[str]) -> list[str]:
    return [word[1:] for word in words if word.startswith("'")]


def _literal(word: str) -> str:
    return r"\s".join(re.escape(part) for part in word.split(" "))
