r"""Final answers of MATH, GSM8K and AIME: which texts say one, and which say the right one."""

import threading

import pytest
from benchmark_data import OURS, real

from specloss.benchmarks import Grade, aime, gsm8k, math
from specloss.benchmarks.answers import final_answer, grade_answer

EQUIVALENT = [  # reference, text
    ("3/4", r"\boxed{\frac{3}{4}}"),
    ("3/4", r"\boxed{\frac34}"),
    ("3/4", r"\boxed{\dfrac{3}{4}}"),
    ("3/4", r"\boxed{0.75}"),
    ("3/4", r"\boxed{6/8}"),
    ("3/4", r"It is \boxed{\frac{1}{2}}, no: \boxed{\tfrac{3}{4}}."),
    ("3/4", "#### 3/4"),
    ("3/4", "The final answer is 3/4."),
    ("3/4", "**Answer:** $\\frac{3}{4}$"),
    ("3/4", "The answer is: 0.75\n"),
    (r"5\sqrt{2}", r"\boxed{\sqrt{50}}"),
    (r"5\sqrt{2}", r"\boxed{5 \sqrt 2}"),
    (r"(-3,3)", r"\boxed{(-3, 3)}"),
    (r"(-3,3)", r"\boxed{\left(-3,3\right)}"),
    (r"x^2+2x+1", r"\boxed{(x+1)^2}"),
    (r"x^2+2x+1", r"\boxed{1+2x+x^2}"),
    (r"\text{Ada}", r"\boxed{Ada}"),
    (r"\text{Ada}", r"\boxed{\mathrm{Ada}}"),
    ("12000", r"\boxed{12{,}000}"),
    ("12000", r"\boxed{12,000}"),
    ("12000", r"\boxed{\$12000}"),
    ("90", r"\boxed{90^\circ}"),
    ("5", r"\boxed{x=5}"),
    (r"\{1,2\}", r"\boxed{\{2,1\}}"),
    ("7", r"\fboxed{7}"),
]
WRONG = [
    ("3/4", r"\boxed{\frac{4}{3}}"),
    ("3/4", r"\boxed{-\frac{3}{4}}"),
    ("3/4", r"\boxed{0.74}"),
    ("3/4", r"\boxed{3}"),
    ("3/4", r"\boxed{\frac{3}{4}} and then \boxed{\frac{3}{5}}"),  # the last box counts
    ("3/4", r"The answer is 3/4, so \boxed{4}"),  # a box is the answer, whatever is said elsewhere
    ("3/4", "#### 3"),
    ("3/4", "The answer is 4/3."),
    (r"5\sqrt{2}", r"\boxed{2\sqrt{5}}"),
    (r"5\sqrt{2}", r"\boxed{7}"),
    (r"(-3,3)", r"\boxed{[-3,3]}"),
    (r"(-3,3)", r"\boxed{(-3,3]}"),
    (r"(-3,3)", r"\boxed{(3,-3)}"),
    (r"x^2+2x+1", r"\boxed{x^2+1}"),
    (r"x^2+2x+1", r"\boxed{(x-1)^2}"),
    (r"\text{Ada}", r"\boxed{\text{Ben}}"),
    ("12000", r"\boxed{1200}"),
    ("12000", r"\boxed{12}"),
    ("5", r"\boxed{x=-5}"),
    ("5", r"\boxed{y}"),
    (r"\{1,2\}", r"\boxed{\{1\}}"),
    ("7", r"\boxed{9^{9^{2}}}"),
]
SILENT = [
    "",
    "3/4",
    "So it must be 3/4.",
    "We get 0.75 and are done",
    r"\boxed{}",
    r"\boxed{3/4",  # left open
    "####",
    "The answer",
    "answer is",
    r"\boxed{" + "1" * 1000 + "}",
]


@pytest.mark.parametrize("reference, text", EQUIVALENT)
def test_an_equivalent_final_answer_is_right(reference, text):
    assert grade_answer(text, reference).correct


@pytest.mark.parametrize("reference, text", WRONG)
def test_another_final_answer_is_wrong_but_parsed(reference, text):
    grade = grade_answer(text, reference)
    assert grade.correct is False and grade.answer is not None


@pytest.mark.parametrize("text", SILENT)
def test_a_text_that_does_not_say_its_answer_is_a_parse_failure_and_never_a_guess(text):
    assert grade_answer(text, "3/4") == Grade(False, None)


def test_braces_within_a_box_are_balanced():
    assert final_answer(r"\boxed{\left\{\frac{1}{2}\right\}} done") == r"\left\{\frac{1}{2}\right\}"


@pytest.mark.parametrize(
    "text, answer, right",
    [
        (r"\boxed{77}", "77", True),
        (r"\boxed{77 bottles}", "77 bottles", True),
        ("#### $77", "$77", True),
        ("The answer is 77 bottles.", "77 bottles", True),
        (r"\boxed{77.0}", "77.0", True),
        (r"\boxed{77\text{ bottles}}", r"77\text{ bottles}", True),
        (r"\boxed{770}", "770", False),
        (r"\boxed{7}", "7", False),
        (r"\boxed{-77}", "-77", False),
        (r"\boxed{77 of 80}", "77 of 80", False),
        ("77", None, False),
    ],
)
def test_gsm8k_compares_numbers_and_not_their_units(text, answer, right):
    assert gsm8k.grade(text, "77") == Grade(right, answer)


def test_the_gold_answers_of_our_own_items_are_right():
    items = math.load(file=str(OURS / "math.jsonl"), problems=None)
    assert [item.reference for item in items][1:4] == [r"\frac{3}{4}", "(-3,3)", r"5\sqrt{2}"]
    assert all(math.grade(rf"thus \boxed{{{item.reference}}}", item.reference).correct for item in items)
    items = gsm8k.load(file=str(OURS / "gsm8k.jsonl"))
    assert [item.reference for item in items] == ["77", "12000", "-5"]
    assert all(gsm8k.grade(f"#### {item.reference}", item.reference).correct for item in items)
    items = aime.load(file=str(OURS / "aime.jsonl"))
    assert [item.reference for item in items] == ["40", "24"]
    assert aime.grade(r"\boxed{040}", "40").correct and not aime.grade(r"\boxed{41}", "40").correct


def test_an_item_is_a_chat_of_system_and_user():
    item = math.load(file=str(OURS / "math.jsonl"), problems=1)[0]
    assert item.prompt is None and [message["role"] for message in item.messages] == ["system", "user"]
    assert item.messages[0]["content"] == math.SYSTEM and "slope" in item.messages[1]["content"]


def test_problems_of_one_level_are_those_of_that_level():
    items = math.load(file=str(OURS / "math.jsonl"), problems=None, level=2)
    assert [item.id for item in items] == ["math-00003", "math-00004"]


def test_grading_outside_of_a_main_thread_is_refused_and_not_silently_wrong():
    caught = []

    def grade():
        try:
            grade_answer(r"\boxed{0.75}", "3/4")
        except RuntimeError as error:
            caught.append(str(error))

    thread = threading.Thread(target=grade)
    thread.start()
    thread.join()
    assert caught and "main thread" in caught[0]


def test_all_gold_answers_of_gsm8k_are_right():
    (file,) = real("gsm8k_test.jsonl")
    items = gsm8k.load(file=file)
    assert sum(gsm8k.grade(f"#### {item.reference}", item.reference).correct for item in items) == 1319
    assert sum(gsm8k.grade(rf"\boxed{{{item.reference}}}", item.reference).correct for item in items) == 1319
    assert not any(gsm8k.grade(rf"\boxed{{{item.reference}1}}", item.reference).correct for item in items)
