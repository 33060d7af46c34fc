r"""INCLUDE: the letter that an answer states, its questions, and how they are chosen."""

import json
from collections import Counter

import pytest
from benchmark_data import OURS, real

from specloss.benchmarks import BenchmarkError, Grade, include
from specloss.benchmarks.parsing.choices import stated_letter

RIGHT = [
    "B",
    "B.",
    "(B)",
    "**B**",
    " b wins at first sight. Answer: B",
    "Answer: B",
    "answer: B",
    "ANSWER: B",
    "Answer: (B)",
    "Answer: **B**",
    "**Answer:** B",
    "**Answer: B**",
    "Answer: B. the second one",
    "Answer: B) the second one",
    "Answer: B because of that",
    "Answer：B",
    "Answer is B",
    "The answer is B.",
    "The correct answer is (B).",
    "the answer is: B",
    "So the correct option is B",
    "The answer is option B",
    r"\boxed{B}",
    r"\boxed{\text{B}}",
    r"The answer is $\boxed{B}$",
    "'Answer: B'",
    "Answer: 'B'",
    "Answer: B, I think",
    "**Answer**: **B**",
    "The final answer is: **B. the second one**",
    r"The answer is \(B\).",
    r"\fbox{B}",
    r"\boxed{\textbf{(B) }\text{the second one}}",
    "The answer is A. Wait, the answer is B.",
    "A and C are out. D is too late. Answer: B\n",
    "Answer: A\nNo, that was hasty.\nAnswer: B",  # the last statement counts
    "Die Elbe fließt dort, also\nAnswer: B",
]
SILENT = [
    "",
    "I do not know",
    "It could be B",
    "B seems best",
    "A is wrong, so B",
    "Answer: the second",
    "Answer: A lot of people would say so",
    "Answer: B or C",
    "Answer: B/C",
    "Answer: B and D",
    "Answer: B + C",
    "Answer: B|C",
    "Answer: **B** or **C**",
    "Answer: (B) and (C)",
    "Answer: 'B' or 'C'",
    "Answer: B's",
    "Answer: none of A, B, C and D",
    "Answer: E",
    "Answer: Because",
    "Answer: BC",
    "Answer: B2",
    "answer: b",
    "The answer is not B",
    "The answer",
    "Answer:",
    "ABCD",
    "Β",  # a Greek letter
    "В",  # a Cyrillic letter
    "The options are A, B, C and D",
]


@pytest.mark.parametrize("text", RIGHT)
def test_a_stated_letter_is_right_where_it_is_the_reference(text):
    assert include.grade(text, "B") == Grade(True, "B")


@pytest.mark.parametrize("text", RIGHT)
@pytest.mark.parametrize("other", "ACD")
def test_a_stated_letter_is_wrong_where_the_reference_is_another(text, other):
    assert include.grade(text, other) == Grade(False, "B")


@pytest.mark.parametrize("text", SILENT)
def test_a_letter_that_is_not_stated_is_a_parse_failure_and_never_a_guess(text):
    assert [include.grade(text, letter) for letter in "ABCD"] == [Grade(False, None)] * 4


def test_the_grader_has_20_right_and_20_wrong_variants():
    assert len(set(RIGHT)) >= 20 and len(set(SILENT)) >= 20


@pytest.mark.parametrize("unit", [" ", "*", "answer is ", "answer: ", "\\boxed{", "(", "\n"])
def test_a_long_output_is_read_in_a_time_that_grows_with_its_length(unit):
    assert stated_letter("answer is" + unit * (200_000 // len(unit))) is None


def test_questions_are_chosen_by_language():
    items = include.load(file=str(OURS / "include.jsonl"), per_language=1)
    assert [item.id for item in items] == ["include-00000", "include-00002", "include-00004"]
    assert [item.reference for item in items] == ["A", "B", "C"]
    assert items[1].messages[1]["content"].splitlines() == [
        "¿Cuál es la capital de Chile?",
        "A. Lima",
        "B. Santiago",
        "C. Quito",
        "D. Bogotá",
    ]
    only = include.load(file=str(OURS / "include.jsonl"), languages=["Spanish"], per_language=None)
    assert [item.id for item in only] == ["include-00002", "include-00003"]
    with pytest.raises(BenchmarkError, match=r"unknown language \['Elvish'\]|unknown language 'Elvish'"):
        include.load(file=str(OURS / "include.jsonl"), languages=["Elvish"])
    with pytest.raises(BenchmarkError, match="no questions in Urdu"):
        include.load(file=str(OURS / "include.jsonl"), languages=["Urdu"])


def test_a_seed_fixes_the_choice():
    file = str(OURS / "include.jsonl")
    draws = [[item.id for item in include.load(file=file, per_language=1, seed=seed)] for seed in range(12)]
    assert draws == [[item.id for item in include.load(file=file, per_language=1, seed=seed)] for seed in range(12)]
    assert len({tuple(draw) for draw in draws}) > 1


def test_real_questions_are_five_of_each_of_44_languages_and_their_gold_answers_right():
    (file,) = real("include220.jsonl")
    items = include.load(file=file)
    assert len(items) == 220
    with open(file, encoding="utf-8") as lines:
        languages = Counter(json.loads(line)["language"] for line in lines)
    assert set(languages.values()) == {5} and set(languages) == set(include.LANGUAGES)
    for item in items:
        right = {letter: include.grade(f"Hm.\nAnswer: {letter}", item.reference).correct for letter in "ABCD"}
        assert right == {letter: letter == item.reference for letter in "ABCD"}
