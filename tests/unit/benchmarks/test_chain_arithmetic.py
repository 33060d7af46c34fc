"""Chain arithmetic: problems, worked solutions and the grader."""

import random

import pytest

from specloss.benchmarks import Grade, chain, get_benchmark

RIGHT = [
    "#97",
    " #97",
    "thus #97",
    "#97\n",
    "#97 ",
    "#97\n\n",
    "#97\t",
    "start 37 then *04=48 then +58=06 then -09=97 thus #97",
    "start 37 then *04=48 then +58=06 then -09=97 hence #97",
    "start 37 then *04=48 then +58=06 then -09=97 finally #97",
    "from 37 then *04=48 then +58=06 then -09=97 thus #97",
    "take 37 then *04=48 then +58=06 then -09=97 thus #97",
    "begin 37 next *04 is 48 next +58 gives 06 and -09 makes 97 thus #97",
    "start 37 now *04 makes 48 so +58=06 now -09=97 thus #97",
    "start 37 then *04=49 then +58=07 then -09=98 thus #97",  # only the final answer is graded
    "37*04=48 48+58=06 06-09=97\n#97",
    "06-09=97 #97",
    "no work at all #97",
    "97 #97",
    "48 06 97 thus  #97",
    "The answer is #97",
    "= #97",
]
WRONG = [
    "thus #96",
    "thus #98",
    "thus #79",
    "thus #00",
    "start 37 then *04=48 then +58=06 then -09=97 thus #48",
]
MALFORMED = [
    "",
    "#",
    "97",
    "thus 97",
    "thus #",
    "thus #9",
    "thus #097",
    "thus #970",
    "thus # 97",
    "thus #97.",
    "thus #97 then",
    "thus #97 so 97",
    "thus #97?",
    "thus #-97",
    "thus #97#",
    "thus ##97",
    "#97 thus #97",
    "#12 thus #97",
    "06-09=97#97",
    "thus #9 7",
    "thus #9seven",
    "thus #97<eos>",
    "thus ＃97",
    "thus #９７",
    "thus #٩٧",
]


@pytest.mark.parametrize("text", RIGHT)
def test_a_final_answer_that_equals_the_reference_is_correct(text):
    assert chain.grade(text, "97") == Grade(True, "97")


@pytest.mark.parametrize("text", WRONG)
def test_another_final_answer_is_parsed_and_wrong(text):
    assert chain.grade(text, "97") == Grade(False, text[-2:])


@pytest.mark.parametrize("text", MALFORMED)
def test_anything_but_one_well_formed_final_answer_is_a_parse_failure(text):
    assert chain.grade(text, "97") == Grade(False, None)


def test_the_example_of_the_module_is_worked_modulo_100():
    problem = chain.Problem(37, (("*", 4), ("+", 58), ("-", 9)))
    assert problem.prompt == "37*04+58-09?"
    assert problem.values == [37, 48, 6, 97]
    assert problem.answer == "97"


@pytest.mark.parametrize("level", chain.LEVELS)
def test_gold_solutions_grade_correct_and_state_true_steps(level):
    rng = random.Random(level)
    for _ in range(50):
        problem = chain.draw_problem(rng, level)
        solution = chain.write_solution(problem, rng, skew=1.0)
        assert chain.grade(solution, problem.answer) == Grade(True, problem.answer)
        assert sum(solution.count(f"{value:02d}") > 0 for value in problem.values) == level + 1


@pytest.mark.parametrize("level", chain.LEVELS)
def test_the_level_fixes_the_number_of_operations_and_of_hard_ones(level):
    rng = random.Random(level)
    for _ in range(50):
        problem = chain.draw_problem(rng, level)
        assert len(problem.operations) == level
        assert sum(operation in chain.HARD_OPERATIONS for operation in problem.operations) == (level - 1) // 2
        assert set(problem.operations) <= {*chain.EASY_OPERATIONS, *chain.HARD_OPERATIONS}
        assert len(set(problem.operations)) == level


def test_a_skew_makes_the_first_words_the_most_frequent():
    rng = random.Random(0)
    problem = chain.draw_problem(rng, 1)
    openings = [chain.write_solution(problem, rng, skew=2.0).split()[0] for _ in range(500)]
    counts = [openings.count(word.strip()) for word in chain.OPENERS]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > 300


@pytest.mark.parametrize("level", chain.LEVELS)
def test_loaded_problems_are_held_out_and_unique(level):
    items = chain.load(level, 100)
    assert [item.id for item in items] == [f"chain-l{level}-{index:04d}" for index in range(100)]
    assert len({item.prompt for item in items}) == 100
    assert all(chain.is_held_out(item.prompt) for item in items)


def test_about_one_problem_in_ten_is_held_out():
    rng = random.Random(0)
    held_out = sum(chain.is_held_out(chain.draw_problem(rng, 4).prompt) for _ in range(5000))
    assert 400 < held_out < 600


FIRST_PROMPTS = ["21*07+02-30?", "47-20-02*06?"]  # level 3, seed 0


def test_the_split_never_moves():
    assert [item.prompt for item in chain.load(3, 2)] == FIRST_PROMPTS


def test_loading_is_fixed_by_level_and_seed_and_fewer_problems_are_a_prefix():
    assert chain.load(4, 50, seed=1) == chain.load(4, 50, seed=1)
    assert chain.load(4, 20, seed=1) == chain.load(4, 50, seed=1)[:20]
    assert chain.load(4, 20, seed=1) != chain.load(4, 20, seed=2)


@pytest.mark.parametrize("level", [0, 9, -1])
def test_a_level_outside_1_to_8_is_refused(level):
    with pytest.raises(ValueError, match=f"level must be 1 to 8, got {level}"):
        chain.load(level, 10)


@pytest.mark.parametrize("problems", [0, -3])
def test_fewer_than_one_problem_is_refused(problems):
    with pytest.raises(ValueError, match="problems must be at least 1"):
        chain.load(2, problems)


def test_asking_for_more_problems_than_level_1_has_says_so():
    with pytest.raises(ValueError, match=r"level 1 has only \d+ held-out problems"):
        chain.load(1, 100_000)


def test_the_benchmark_is_registered():
    assert get_benchmark("chain").load is chain.load
