"""INCLUDE: a letter that is stated in the words of any of its languages, and one that only occurs."""

import json

import pytest
from benchmark_data import OURS, real

from specloss.benchmarks import Grade, include
from specloss.benchmarks.parsing.choices import LABELS, stated_letter

TEXTS = json.loads((OURS / "labels.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("language", TEXTS)
def test_a_letter_counts_where_it_is_stated_in_the_words_of_a_language(language):
    for text in TEXTS[language]["states B"]:
        assert (text, include.grade(text, "B")) == (text, Grade(True, "B"))
        assert not include.grade(text, "A").correct
        at_the_end = f"A. One\nB. Two\n{text}\n"
        assert (text, stated_letter(at_the_end)) == (text, "B")


@pytest.mark.parametrize("language", TEXTS)
def test_a_letter_that_occurs_or_is_denied_in_a_language_is_a_parse_failure(language):
    for text in TEXTS[language]["states none"]:
        assert (text, include.grade(text, "B")) == (text, Grade(False, None))


def test_every_language_has_labels_and_texts():
    assert set(LABELS) == set(TEXTS) == {"English", *include.LANGUAGES}
    assert all(len(each["states B"]) >= 3 and len(each["states none"]) >= 2 for each in TEXTS.values())
    for words in LABELS.values():
        assert words["answer"] and words["correct"]
        assert all(word == word.strip() != "" for key in words for word in words[key])


@pytest.mark.parametrize("language", include.LANGUAGES)
def test_each_label_of_a_language_states_a_letter_after_a_colon(language):
    for label in (*LABELS[language]["answer"], *LABELS[language]["correct"]):
        texts = [f"{label}: C", f"{label.upper()}：C", f"**{label}:** C.", f"## {label}\n\nC"]
        assert [stated_letter(text) for text in texts] == ["C"] * 4, label


@pytest.mark.parametrize("unit", [
    "answer: A ", "réponse est la ", "答案", "答案是 ", "उत्तर ", "# ", "\n## ", "**answer\n", "The answer is A lot. ",
    "\ud800", "\0", "\u200f", "Ａ", "A", "\\boxed{", "\\text{", "respuesta correcta\n", "İ",
])  # fmt: skip
def test_hostile_texts_are_read_in_linear_time_and_without_an_exception(unit, timed):
    timed(lambda size: stated_letter("answer is" + unit * (size // len(unit))))


def test_real_questions_show_latin_letters_in_every_language_and_ask_for_one():
    (file,) = real("include220.jsonl")
    for item in include.load(file=file):
        system, question = (message["content"] for message in item.messages)
        assert "'Answer: X'" in system and "A, B, C or D" in system
        assert all(f"\n{letter}. " in question for letter in "ABCD"), item.id
        # neither a question nor its options state an answer, in whichever language
        assert stated_letter(question) is None, item.id
