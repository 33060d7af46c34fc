r"""Plain arithmetic is compared exactly and at a bounded cost; what is beyond it costs no more than a time-out."""

import contextlib
import time
from fractions import Fraction

import pytest

from specloss.benchmarks import aime, gsm8k, math
from specloss.benchmarks.parsing.numbers import equal, final_answer, last_boxed
from specloss.benchmarks.parsing.rationals import MAX_BITS, TooLargeError, may_be_large, rational

VALUES = [
    ("3/6", Fraction(1, 2)),
    (r"\frac34", Fraction(3, 4)),
    (r"\dfrac{1}{2^{99}}", Fraction(1, 2**99)),
    ("2^-3", Fraction(1, 8)),
    ("-2^2", Fraction(-4)),
    ("2^3^2", Fraction(512)),
    ("2**10", Fraction(1024)),
    (r"3 \cdot 2^{5} - 4!", Fraction(72)),
    (r"\left(1 - \frac{1}{3}\right) / 2", Fraction(1, 3)),
    ("1^{10^{10}}", Fraction(1)),
    ("0.125", Fraction(1, 8)),
]
SAME = [
    ("1/3", "0.333333"),
    (r"\frac{1}{2^{99}}", "2^{-99}"),
    (r"\sqrt{2}/2^{99}", r"\sqrt{2} \cdot 2^{-99}"),
    ("9^{9^9}", "9^{9^9}"),
    ("2004!/2003!", "2004"),
]
DIFFERENT = [
    (r"\frac{1}{2^{99}}", r"\frac{1}{2^{98}}"),
    (r"\frac{1}{2004!}", r"\frac{1}{2006!}"),
    (r"\sqrt{2}/2^{99}", r"\sqrt{2}/2^{98}"),
    (r"\frac{1}{10^7}", "0.0000002"),
    ("1/3", "0.3333"),
    ("0", "10^{-30}"),
    ("10^{20}", "10^{20}+1"),
]
COSTLY = [
    "9^(9^9)", "10^10^10", "(2004!)!", "2^{2^{2^{2^{2^{2}}}}}", r"\sqrt{9^{9^9}}", "x^{10^{10^{10}}}", r"\pi 9^9^9",
    r"\binom{1000000000}{500000000}", r"\sqrt{2}(9999!)!", r"((9^9)^9)^{999999}+\pi", "1e999999999", "9!!!!!",
    r"\sum_{i=1}^{10000000000} i", "9^{9^9} - 9^{9^9} + 7",
]  # fmt: skip
HOSTILE = [
    r"\frac{" * 60 + "1" + "}{2}" * 60, r"\frac{" * 80, "(" * 400, "{" * 400, r"\sqrt" * 80, "-" * 400 + "1", "\ud800",
    "\0", "9" * 500, r"\pi^{999999}", r"\frac{1}{0}", "0^0", "\\", "^", "!", r"\frac", "1" + "+1" * 200, "²", "٣",
]  # fmt: skip


@pytest.mark.parametrize("text, value", VALUES)
def test_plain_arithmetic_has_its_exact_value(text, value):
    assert rational(text).value == value


@pytest.mark.parametrize(
    "text", ["x", "1,2", "(1,2)", r"\sqrt{4}", "1/0", "0^0", "2^{1/2}", "3!!", "(-1)!", "", "1 2)"]
)
def test_what_is_no_plain_arithmetic_has_no_value(text):
    assert rational(text) is None


@pytest.mark.parametrize("one, other", SAME)
def test_equal_values_are_equal_both_ways(one, other):
    assert equal(one, other) and equal(other, one)


@pytest.mark.parametrize("one, other", DIFFERENT)
def test_values_that_floats_cannot_tell_apart_differ_both_ways(one, other):
    assert not equal(one, other) and not equal(other, one)


@pytest.mark.parametrize("text", COSTLY)
def test_a_value_that_is_too_large_is_never_computed(text):
    start = time.process_time()
    with contextlib.suppress(TooLargeError):
        assert rational(text) is None and may_be_large(text)
    assert not equal("7", text)
    assert equal(text, text)
    assert time.process_time() - start < 1


def test_intermediate_results_share_one_bound():
    assert rational("2^{40000}") is not None and MAX_BITS < 4 * 40_000
    with pytest.raises(TooLargeError):
        rational("+".join(["2^{40000}"] * 4))


@pytest.mark.parametrize(
    "text", [r"\frac{n!}{2^n}", "2^{2^n}", "e^{x^2}", r"\sum_{i=1}^n i^2", r"\binom{9}{4}", "x^{100}"]
)
def test_ordinary_answers_are_left_to_math_verify(text):
    assert not may_be_large(text)


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_answer_is_wrong_without_an_exception(text):
    for grade in (math.grade, aime.grade, gsm8k.grade):
        for around in (r"\boxed{%s}", "#### %s", "The answer is %s"):
            assert not grade(around % text, "7").correct


@pytest.mark.parametrize(
    "unit",
    [
        "answer:\n",
        "### answer\n",
        "**answer ",
        "\n**",
        "# ",
        "\\boxed{",
        "\\boxed 5",
        "{",
        "\\",
        "7",
        "#### 7\n",
        "\ud800",
        "\0",
    ],
)
def test_a_final_answer_is_found_in_linear_time(unit, timed):
    timed(lambda size: (final_answer("answer: " + unit * (size // len(unit))), last_boxed(unit * (size // len(unit)))))


@pytest.mark.parametrize(
    "text",
    ["**Final Answer**: 18", "*Answer*: $18", "__Answer__: 18",
     "### Final Answer\n18", "### Answer\n\n**18**", "**Answer**\n18"],
)  # fmt: skip
def test_a_label_in_bold_or_as_a_heading_states_an_answer(text):
    assert gsm8k.grade(text, "18").correct and not gsm8k.grade(text, "19").correct
    assert math.grade(text, "18").correct


@pytest.mark.parametrize(
    "text", ["My answer\nwas long, 18 pages", "### Answers\n18", "# The answer is not\n18", "answer\n18"]
)
def test_a_heading_that_is_no_label_states_none(text):
    assert gsm8k.grade(text, "18").answer != "18"
