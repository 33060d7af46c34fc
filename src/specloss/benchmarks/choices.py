r"""Answers of multiple-choice questions: a letter, stated as the answer.

A letter counts where the text says that it is the answer: "Answer: B", "the answer is (B)", `\boxed{B}`, or a text that
is nothing else. The last such statement counts. A letter that merely occurs is none: that is a parse failure, and never
a guess.
"""

from __future__ import annotations

import re

from specloss.benchmarks import Grade

# Words that make a letter a statement; decoration; the letter; and nothing that takes it back ("A lot", "B or C").
# Possessive (`*+`), so that no text takes longer than its length.
_STATED = re.compile(
    r"""
    (?: \b (?i:answer|option|choice) \b [*_]*+ \s*+ (?: (?i:is|:|：|=) [*_\s]*+ )++ (?: (?i:option|choice) \s++ )?+
      | \\(?:f?boxed|fbox) \s*+ \{ )
    (?: \\(?:text|textbf|mathrm) \s*+ \{ )?+ (?: [*_("'`\[{$\s] | \\[(\[] )*+
    (?P<letter> [A-Z] )
    (?! [A-Za-z0-9] | '[A-Za-z] ) (?! (?<=A) \s++ [a-z] )
    (?! [*_)"'`\]}$]*+ \s*+ (?: or\b | and\b | [/,;&+|] ) \s*+ [*_("'`\[{$]*+ [A-HJ-Z] \b )
    """,
    re.VERBOSE,
)
_ALONE = re.compile(r"[*_(\"'`\[\s]*+(?P<letter>[A-Z])[*_)\"'`\].:\s]*+")


def stated_letter(text: str, letters: str = "ABCD") -> str | None:
    """The last letter that the text states as its answer; None if it states none, or one that is no choice."""
    alone = _ALONE.fullmatch(text)
    found = [alone] if alone else list(_STATED.finditer(text))
    letter = found[-1]["letter"] if found else None
    return letter if letter is not None and letter in letters else None


def grade_choice(text: str, reference: str, letters: str = "ABCD") -> Grade:
    """Grade an answer by its letter."""
    letter = stated_letter(text, letters)
    return Grade(letter is not None and letter == reference, letter)
