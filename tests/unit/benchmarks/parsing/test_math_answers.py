r"""Final answers of MATH, GSM8K and AIME: which texts say one, and which say the right one."""

import threading

import pytest
from benchmark_data import OURS, real

from specloss.benchmarks import Grade, aime, gsm8k, math
from specloss.benchmarks.parsing.numbers import final_answer, grade_answer

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
    ("7", r"\fbox{7}"),
    ("7", r"so $x=\boxed 7$."),
    ("7", r"$\boxed7$"),
    ("3/4", r"$\boxed\frac34$"),
    ("10000", r"\boxed{10,\!000}"),
    (r"10,\!000", r"\boxed{10000}"),
    ("10000", r"\boxed{10\,000}"),
    ("7", "Final Answer: The final answer is $7$. I hope it is correct."),
    ("7", "The answer is 6. No: the answer is 7."),  # the last one, though on one line
    ("7", "The answer is 7. I am sure that the answer is correct."),
    ("7", "**Final Answer:**\n\n$7$"),
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
    ("7", "The answer is 7. No: the answer is 6."),
    ("7", r"\boxed{7}, that is $\boxed 6$"),
    ("7", r"\fbox{-7}"),
    ("200", r"\boxed{(1,\,200)}"),
    ("1200", r"\boxed{1,\,200 \text{ or } 1,\,300}"),
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
    "The answer is not 3/4.",
    "I think that this answer is right.",
    "Put it in \\boxed form, $3/4$",
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


# of what a model may write for 12000, and for other numbers
GSM8K_RIGHT = [
    r"\boxed{12000}",
    r"\boxed{12,000}",
    r"\boxed{12{,}000}",
    r"\boxed{12\,000}",
    r"\boxed{12,\!000}",
    r"\boxed{12000.00}",
    r"\boxed{+12000}",
    r"\boxed{\$12,000}",
    r"\boxed{$12,000.00}",
    r"\boxed{12,000 €}",
    r"\boxed{12000 crowns}",
    r"\boxed{12000\text{ crowns}}",
    r"\boxed{\text{12,000 crowns}}",
    r"\boxed{12000~\mathrm{km/h}}",
    r"\boxed{12000 \text{ cm}^2}",
    r"\boxed{12000 crowns per year}",
    r"\boxed{12000 (crowns)}",
    r"\boxed{12000\%}",
    r"\boxed{\mathbf{12000}}",
    r"\boxed{x = 12000}",
    r"\boxed{48 \times 250}",
    r"\boxed{1.2 \times 10^4}",
    r"First she has \boxed{3000}, after four years \(\boxed{12{,}000}\).",
    "#### 12000",
    "#### $12,000.00",
    "#### **12,000 crowns**",
    "#### 9000\nThat was three years.\n#### 12000",
    "The answer is 12,000.",
    "The answer is $12,000 in all.",
    r"The answer is \(12000\).",
    "The answer is 12,000, which is what she saves.",
    "Answer:\n12000",
    "**Answer:** 12 000 crowns",
    "The final answer is $12000$. I hope it is correct.",
    "The answer is 9000. But no, the answer is 12000.",
]
GSM8K_WRONG = [
    r"\boxed{1200}",
    r"\boxed{120000}",
    r"\boxed{21000}",
    r"\boxed{12001}",
    r"\boxed{11999}",
    r"\boxed{-12000}",
    r"\boxed{-\$12,000}",
    r"\boxed{negative 12000}",
    r"\boxed{12.000}",
    r"\boxed{12,00}",
    r"\boxed{1,2000}",
    r"\boxed{12,000.50}",
    r"\boxed{12}",
    r"\boxed{12 thousand}",
    r"\boxed{12000 thousand crowns}",
    r"\boxed{12000 of 13000}",
    r"\boxed{12000 or 13000}",
    r"\boxed{12000, 13000}",
    r"\boxed{12000 to 13000}",
    r"\boxed{12000 crowns 50 cents}",
    r"\boxed{\frac{12000}{7}}",
    r"\boxed{12000^2}",
    r"\boxed{12000 + 1}",
    r"\boxed{48 \times 205}",
    r"\boxed{> 12000}",
    r"\boxed{(12,000)}, or \boxed{(12, 0)}",
    r"\boxed{\text{twelve}}",
    r"\boxed{12000}, no: \boxed{13000}",
    "#### 12000\n#### 13000",
    "#### 12000 crowns and 7 cents",
    "The answer is minus 12000",
    "The answer is 12,000. But no, the answer is 13,000.",
    "The answer is between 12000 and 13000.",
]
GSM8K_NUMBERS = [  # reference, text, right
    ("77", r"\boxed{77.0}", True),
    ("77", r"\boxed{770}", False),
    ("35", r"\boxed{3,5}", False),  # two answers, or another country's comma, but no 35
    ("1234", r"\boxed{1,2,3,4}", False),
    ("1200", r"\boxed{12,00}", False),
    ("5", r"\boxed{5 million}", False),
    ("7", r"\boxed{7 dozen eggs}", True),
    ("-5", r"\boxed{-5^\circ}", True),
    ("-5", "#### -$5", True),
    ("-5", "#### $-5", True),
    ("-5", r"\boxed{5}", False),
    ("0", r"\boxed{-0}", True),
    ("0", r"\boxed{none}", False),
    ("1450000", r"\boxed{1,450,000}", True),
    ("1450000", r"\boxed{1,450,00}", False),
]
AIME_RIGHT = [  # for 40
    r"\boxed{40}",
    r"\boxed{040}",
    r"\boxed{0040}",
    r"\boxed{\textbf{040}}",
    r"\boxed{\mathbf{40}}",
    r"\boxed{\text{040}}",
    r"\boxed{ 40 }.",
    r"\boxed {40}",
    r"\fbox{040}",
    r"$\boxed 40$",
    r"\boxed{40.0}",
    r"\boxed{40^\circ}",
    r"\boxed{40\text{ degrees}}",
    r"\boxed{m+n=40}",
    r"\boxed{33+7=40}",
    r"\boxed{33+7}",
    r"\boxed{2^3\cdot 5}",
    r"\boxed{\frac{80}{2}}",
    r"\boxed{\sqrt{1600}}",
    r"$p=\boxed{33}$ and $q=\boxed{7}$, hence \[\boxed{040}.\]",
    "#### 040",
    "The answer is 040.",
    r"The final answer is $\boxed{40}$. I hope it is correct.",
    "Final Answer: The final answer is $40$. I hope it is correct.",
    "**Final Answer:**\n\n$040$",
    r"The answer is \(m+n=40\).",
]
AIME_WRONG = [
    r"\boxed{400}",
    r"\boxed{4}",
    r"\boxed{004}",
    r"\boxed{140}",
    r"\boxed{041}",
    r"\boxed{39}",
    r"\boxed{-40}",
    r"\boxed{0.40}",
    r"\boxed{40.5}",
    r"\boxed{39.999}",
    r"\boxed{40,000}",
    r"\boxed{40\pi}",
    r"\boxed{40^2}",
    r"\boxed{\sqrt{40}}",
    r"\boxed{40!}",
    r"\boxed{40i}",
    r"\boxed{40x}",
    r"\boxed{m+n}",
    r"\boxed{m=41}",
    r"\boxed{40=41}",
    r"\boxed{\frac{33}{7}}",  # m/n, where m+n is asked for
    r"\boxed{33, 7}",
    r"\boxed{40\text{ or }41}",
    r"\boxed{\{40,41\}}",
    r"\boxed{>40}",
    r"\boxed{101000_2}",
    r"\boxed{40}, or rather \boxed{41}",
    "#### 40\n#### 140",
    "The answer is 40 or 41.",
    "The answer is 40. No: the answer is 41.",
]
UNSAID = ["40", "$m+n=40$", "So we get 33 + 7 = 40.", "The answer is not 40.", r"\boxed{{40}", r"\boxed{}"]


@pytest.mark.parametrize("text", GSM8K_RIGHT)
def test_gsm8k_compares_numbers_and_not_their_units(text):
    assert gsm8k.grade(text, "12000").correct


@pytest.mark.parametrize(
    "grade, reference, text",
    [(gsm8k.grade, "12000", text) for text in GSM8K_WRONG] + [(aime.grade, "40", text) for text in AIME_WRONG],
)
def test_another_number_or_none_is_wrong_but_parsed(grade, reference, text):
    found = grade(text, reference)
    assert found.correct is False and found.answer is not None


@pytest.mark.parametrize("reference, text, right", GSM8K_NUMBERS)
def test_gsm8k_reads_signs_and_commas(reference, text, right):
    assert gsm8k.grade(text, reference).correct is right


@pytest.mark.parametrize("text", AIME_RIGHT)
def test_aime_compares_whole_numbers_however_they_are_written(text):
    assert aime.grade(text, "40").correct


@pytest.mark.parametrize("grade", [math.grade, gsm8k.grade, aime.grade], ids=["math", "gsm8k", "aime"])
@pytest.mark.parametrize("text", UNSAID)
def test_a_number_that_is_not_said_to_be_the_answer_is_never_taken_for_it(grade, text):
    assert grade(text, "40") == Grade(False, None)


@pytest.mark.parametrize(
    "unit", ["answer is ", "answer:\n", "\\boxed", "\\boxed{", "\\boxed5", "#### ", "\\fbox ", "\n*"]
)
def test_a_long_output_is_searched_in_a_time_that_grows_with_its_length(unit):
    final_answer("answer: " + unit * (200_000 // len(unit)))


def test_every_grader_has_20_right_and_20_wrong_variants():
    for right, wrong in ((EQUIVALENT, WRONG), (GSM8K_RIGHT, GSM8K_WRONG), (AIME_RIGHT, AIME_WRONG)):
        assert min(len(set(right)), len(set(wrong))) >= 20


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
