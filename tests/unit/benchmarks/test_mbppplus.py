"""MBPP+: tasks in the published shape, written for these tests; the real ones if they are at hand."""

import json
import os
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from specloss.benchmarks import BenchmarkError, get_benchmark, mbppplus
from specloss.benchmarks.sandbox import isolation
from specloss.cluster.supervisor import available_cores
from specloss.experiment.cells import Cell
from specloss.experiment.schema import GENERATIONS
from specloss.scoring.grade import grade_all
from specloss.scoring.score import score_cell

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")

PLUS = """import numpy as np
from math import inf

def is_floats(x) -> bool:
    return isinstance(x, float) or (isinstance(x, (list, tuple)) and all(isinstance(i, float) for i in x))

def assertion(out, exp, atol):
    if atol == 0 and is_floats(exp):
        atol = 1e-6
    if out != exp and atol != 0:
        assert np.allclose(out, exp, rtol=1e-07, atol=atol)
    else:
        assert out == exp, f"out: {{out}}, exp: {{exp}}"

inputs = {inputs}
results = {results}
for i, (inp, exp) in enumerate(zip(inputs, results)):
    assertion({name}(*inp), exp, {atol})
"""


def row(number, name, code, tests, inputs, results, imports=(), atol=0):
    return {
        "task_id": number,
        "prompt": f"Write a function for task {number}.",
        "code": code,
        "test_imports": list(imports),
        "test_list": tests,
        "test": PLUS.format(inputs=inputs, results=results, name=name, atol=atol),
    }


ROWS = [
    row(
        1,
        "evens",
        "def evens(items):\n    return [item for item in items if item % 2 == 0]",
        ["assert evens([1, 2, 4]) == [2, 4]", "assert evens([3]) == []"],
        [[[1, 2, 4]], [[3]], [[]], [[-2, 0, 7]]],
        [[2, 4], [], [], [-2, 0]],
    ),
    row(
        2,
        "cone",
        "import math\ndef cone(r, h):\n    return math.pi * r * r * h / 3",
        ["assert math.isclose(cone(1, 3), 3.141592653589793, rel_tol=0.001)"],
        [[1, 3], [2, 3], [0, 5]],
        [3.141592653589793, 12.566370614359172, 0.0],
        ["import math"],
        0.0001,
    ),
    row(
        3,
        "size",
        "import sys\ndef size(text):\n    return sys.getsizeof(text)",
        ["assert size('abc') == sys.getsizeof('abc')"],
        [[""]],
        [sys.getsizeof("")],
    ),
]
CODE = {f"mbppplus-{row['task_id']}": row["code"] for row in ROWS}


@pytest.fixture(scope="module")
def items(tmp_path_factory):
    file = tmp_path_factory.mktemp("mbpp") / "tasks.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return mbppplus.load(str(file))


def fenced(code):
    return f"Here it is:\n\n```python\n{code}\n```\n\nIt works."


def test_gold_answers_pass_base_and_plus(items):
    for item in items:
        grade = mbppplus.grade(fenced(CODE[item.id]), item.reference)
        assert grade.correct and grade.scores == {"base": True, "plus": True}


def test_the_prompt_has_the_task_the_name_and_an_example(items):
    system, user = items[1].messages
    assert system["content"] == mbppplus.SYSTEM
    assert "task 2" in user["content"] and " cone," in user["content"] and ROWS[1]["test_list"][0] in user["content"]


EQUIVALENT = [
    "def evens(items): return list(filter(lambda n: not n % 2, items))",
    "def evens(items):\n    out = []\n    for n in items:\n        if n & 1 == 0: out.append(n)\n    return out",
    "evens = lambda items: [n for n in items if n % 2 == 0]",
    "def even(n): return n % 2 == 0\ndef evens(items): return [n for n in items if even(n)]",
    "from itertools import filterfalse\ndef evens(items): return [*filterfalse(lambda n: n % 2, items)]",
    "import numpy as np\ndef evens(items): return [int(n) for n in np.array(items, dtype=int) if n % 2 == 0]",
    "def evens(items, divisor=2): return [n for n in items if n % divisor == 0]",
    "def evens(items):\n    print('working')\n    return [n for n in items if n % 2 == 0]",
    "def evens(items):\n    items[:] = [n for n in items if n % 2 == 0]\n    return items",
    "def evens(items):\n    if not items: return []\n    head, *tail = items\n"
    "    return ([head] if head % 2 == 0 else []) + evens(tail)",
    "class Evens:\n    def __call__(self, items): return [n for n in items if n % 2 == 0]\nevens = Evens()",
    "def evens(items: list[int]) -> list[int]:\n    '''Even ones.'''\n    return [n for n in items if n % 2 == 0]",
    "def evens(items): return [n for n in items if n in (n // 2 * 2,)]",
    "def evens(items): return [n for n in items if str(n)[-1] in '02468']",
    "def evens(*args): return [n for n in args[0] if n % 2 == 0]",
    "class List(list): pass\ndef evens(items): return List(n for n in items if n % 2 == 0)",
    "def evens(items):\n    def chosen():\n        for n in items:\n            if n % 2 == 0: yield n\n"
    "    return list(chosen())",
    "import functools\n@functools.lru_cache\ndef even(n): return n % 2 == 0\n"
    "def evens(items): return [n for n in items if even(n)]",
    "def evens(items):\n    return [n for n in items if n % 2 == 0]\nif __name__ == '__main__':\n    raise SystemExit",
    "def evens(items):\n    try:\n        return [n for n in items if n % 2 == 0]\n    finally:\n        pass",
    "evens = __import__('functools').partial(lambda d, items: [n for n in items if n % d == 0], 2)",
]
WRONG = [
    "def evens(items): return [n for n in items if n % 2 == 1]",
    "def evens(items): return [n for n in items if n % 2 == 0][::-1]",
    "def evens(items): return tuple(n for n in items if n % 2 == 0)",
    "def evens(items): return {n for n in items if n % 2 == 0}",
    "def evens(items): return (n for n in items if n % 2 == 0)",
    "def evens(items): return [n for n in items if n % 2 == 0][:1]",
    "def evens(items): return [str(n) for n in items if n % 2 == 0]",
    "def evens(items): return [n + 1 for n in items if n % 2 == 0]",
    "def evens(items): return [n for n in items if n > 0 and n % 2 == 0]",
    "def evens(items): return [n for n in items if n and n % 2 == 0]",
    "def evens(items): return max(items)",
    "def evens(items): return [2, 4]",
    "def evens(items): return len([n for n in items if n % 2 == 0])",
    "def evens(items): return [[n] for n in items if n % 2 == 0]",
    "def evens(items): print([n for n in items if n % 2 == 0])",
    "def evens(items): return items",
    "def evens(items): return []",
    "def evens(items): return None",
    "def evens(items): return [n for n in items if n % 2 == 0] or None",
    "def evens(items): return [n for n in items if n % 2 = 0]",
    "def evens(): return [2, 4]",
    "def odds(items): return [n for n in items if n % 2 == 0]",
    "def evens(items): return [n for n in numbers if n % 2 == 0]",
    "def evens(items):\n    while True: pass",
    "def evens(items): raise NotImplementedError",
]


@pytest.mark.parametrize("code", EQUIVALENT)
def test_equivalent_code_is_correct(items, code):
    assert mbppplus.grade(fenced(code), items[0].reference).correct


@pytest.mark.parametrize("code", WRONG)
def test_wrong_code_is_not(items, code):
    grade = mbppplus.grade(fenced(code), items[0].reference, seconds=1)
    assert grade.correct is False and grade.answer is not None


def test_the_grader_has_20_right_and_20_wrong_variants():
    assert len(set(EQUIVALENT)) >= 20 and len(set(WRONG)) >= 20


def test_code_that_passes_base_alone_counts_by_the_option(items):
    text = fenced("def evens(items): return [n for n in items if n > 0 and n % 2 == 0]")
    assert mbppplus.grade(text, items[0].reference).correct is False
    grade = mbppplus.grade(text, items[0].reference, correct="base")
    assert grade.correct and grade.scores == {"base": True, "plus": False}


@pytest.mark.parametrize("value", ["[]", "[3.141592653589793] * 3", "'3.14'", "None", "float('nan')", "3.15"])
def test_a_number_is_not_matched_by_an_empty_list_or_another_shape(items, value):
    assert not mbppplus.grade(fenced(f"def cone(r, h): return {value}"), items[1].reference).correct


def test_imports_that_the_task_gives_are_there_for_the_answer(items):
    assert mbppplus.grade(fenced("def cone(r, h): return math.pi * r ** 2 * h / 3"), items[1].reference).correct
    assert not mbppplus.grade(fenced("def size(text): return sys.getsizeof(text)"), items[2].reference).correct


GOOD = "def f(x):\n    return x\n"
EXTRACTED = {
    f"```python\n{GOOD}```": GOOD,
    f"```\n{GOOD}```": GOOD,
    f"~~~py\n{GOOD}~~~": GOOD,
    f"````python\n{GOOD}````": GOOD,
    f"Text\r\n\n```Python\n{GOOD}```\nmore": GOOD,
    f"```python\n{GOOD}": GOOD,  # cut by the length limit
    "1. so:\n   ```python\n   def f(x):\n       return x\n   ```": GOOD,
    f"```python\nf(1)\n```\n```python\n{GOOD}```\n```python\nassert f(1)\n```": GOOD,
    f"```python\ndef f(x): pass\n```\nBetter:\n```python\n{GOOD}```": GOOD,
    f"```bash\npip install f\n```\n```python\n{GOOD}```": GOOD,
    "```python\ndef g(x): pass\n```": "def g(x): pass\n",
    GOOD: GOOD,
    f"The function:\n\nimport math\n{GOOD}\nThis returns x.": f"import math\n{GOOD}",
    "I cannot do that.": None,
    "": None,
    "```python\n```": None,
    "```json\n{}\n```": None,
    "def g(x):\n    return x": None,
}


@pytest.mark.parametrize("text", EXTRACTED)
def test_code_is_found_in_an_answer(text):
    assert mbppplus.extract_code(text, "f") == EXTRACTED[text]


def test_an_answer_without_code_is_a_parse_failure(items):
    grade = mbppplus.grade("I do not know.", items[0].reference)
    assert (grade.correct, grade.answer, grade.scores) == (False, None, {"base": False, "plus": False})


@pytest.mark.parametrize(
    ("tests", "code", "name"),
    [
        (["assert f(1) == 2"], "def f(x): pass", "f"),
        (["assert set(f([1])) == set([1])"], "def f(x): pass", "f"),
        (["assert math.isclose(f(1), 2)"], "def f(x): pass", "f"),
        (["assert isclose(f(1), 2)"], "from math import isclose\ndef f(x): pass", "f"),
        (["assert f(1) == 2"], "def g(x): pass\ndef f(x): return g(x)", "f"),
        (["assert not len(f(1))"], None, "f"),
    ],
)
def test_the_entry_point_is_the_called_function_wherever_it_stands(tests, code, name):
    assert mbppplus.find_entry_point(tests, code) == name


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"test_list": ["assert evens([1]) =="]}, "'code', 'test_list' or 'test_imports' is not Python"),
        ({"test_list": ["assert True"]}, "the tests must call one function of the solution, not none"),
        ({"test_list": []}, "the tests must call one function of the solution, not none"),
        ({"test": ""}, "'test' is empty"),
        ({"prompt": None}, "'prompt' is missing"),
    ],
)
def test_a_bad_row_is_one_line_with_file_and_row(tmp_path, change, message):
    file = tmp_path / "tasks.jsonl"
    file.write_text(json.dumps(ROWS[0]) + "\n" + json.dumps(ROWS[1] | change) + "\n")
    with pytest.raises(BenchmarkError) as error:
        mbppplus.load(str(file))
    assert str(error.value).startswith(f"{file} row 2: {message}") and "\n" not in str(error.value)


def test_the_benchmark_is_registered_as_slow_to_grade():
    assert get_benchmark("mbppplus").grade is mbppplus.grade and get_benchmark("mbppplus").slow


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_published_solutions_pass_all_tests(tmp_path):
    folder = os.environ.get("SPECLOSS_BENCHMARK_DATA")
    if not folder:
        pytest.skip("set SPECLOSS_BENCHMARK_DATA to a folder with mbppplus.jsonl, the rows of evalplus/mbppplus")
    file = Path(folder) / "mbppplus.jsonl"
    items = mbppplus.load(str(file))
    codes = {f"mbppplus-{row['task_id']}": row["code"] for row in map(json.loads, file.open())}
    answers = [(fenced(codes[item.id]), item.reference) for item in items]
    grades = grade_all("mbppplus", answers, {}, available_cores(), tmp_path / "partial")
    failed = {item.id: dict(grade.scores) for item, grade in zip(items, grades, strict=True) if not grade.correct}
    assert len(items) == 378 and failed == {}


def test_a_scored_cell_says_what_the_sandbox_was_and_leaves_no_partial_file(items, tmp_path):
    codes = [CODE["mbppplus-1"], "def cone(r, h): return 0.0", None]
    rows = [
        {
            "problem": item.id,
            "index": n,
            "sample": 0,
            "text": fenced(code) if code else "no",
            "reference": item.reference,
        }
        for n, (item, code) in enumerate(zip(items, codes, strict=True))
    ]
    columns = {name: [row.get(name) for row in rows] for name in GENERATIONS.names}
    cell = Cell("x", "pair", "code", "standard_sd", None, 0, {"benchmark": {"task": "mbppplus"}})
    folder = cell.folder(tmp_path)
    folder.mkdir(parents=True)
    pq.write_table(pa.table(columns, schema=GENERATIONS), folder / "generations.parquet")
    (folder / "cell.json").write_text(json.dumps({"cell": cell.to_dict()}))
    score_cell(folder)
    graded = pq.read_table(folder / "graded.parquet")
    assert graded["correct"].to_pylist() == [True, False, False]
    assert graded["parsed"].to_pylist() == [True, True, False]
    assert [dict(scores)["plus"] for scores in graded["scores"].to_pylist()] == [True, False, False]
    assert json.loads(graded.schema.metadata[b"sandbox"]) == isolation().to_dict()
    assert sorted(path.name for path in folder.iterdir()) == ["cell.json", "generations.parquet", "graded.parquet"]


SILENT = """
def assertion(out, exp, atol):
    exact_match = exp == (out is not None)

inputs, results = [["annie"], ["dawood"], ["Else"]], [True, False, True]
for i, (inp, exp) in enumerate(zip(inputs, results)):
    assertion(starts(*inp), exp, 0)
"""


def graded(tmp_path, rows, code, **grading):
    file = tmp_path / "tasks.jsonl"
    file.write_text("".join(json.dumps(values) + "\n" for values in rows))
    return dict(mbppplus.grade(fenced(code), mbppplus.load(file=str(file))[0].reference, **grading).scores)


def test_a_published_script_that_compares_and_never_asserts_can_fail(tmp_path):
    code = "def starts(text):\n    return text[0] in 'aeiouAEIOU'"
    task = row(737, "starts", code, ['assert starts("annie")'], [], []) | {"test": SILENT}
    assert graded(tmp_path, [task], code) == {"base": True, "plus": True}
    assert graded(tmp_path, [task], "def starts(text):\n    return text == 'annie'") == {"base": True, "plus": False}


def test_the_second_reading_that_evalplus_accepts_counts(tmp_path):
    def reading(padded):
        pad = ".zfill(n)" if padded else ""
        return (
            "def digit_distance_nums(a, b):\n    n = max(len(str(a)), len(str(b)))\n"
            f"    return sum(abs(int(x) - int(y)) for x, y in zip(str(a){pad}, str(b){pad}))"
        )

    name = "digit_distance_nums"
    task = row(558, name, reading(False), [f"assert {name}(1, 2) == 1"], [[1, 2], [23, 456]], [1, 4])
    assert graded(tmp_path, [task], reading(False)) == {"base": True, "plus": True}
    assert graded(tmp_path, [task], reading(True)) == {"base": True, "plus": True}
    assert graded(tmp_path, [task], f"def {name}(a, b):\n    return 1") == {"base": True, "plus": False}


def test_a_script_that_asserts_nothing_is_refused_with_its_row(tmp_path):
    with pytest.raises(BenchmarkError, match=r"tasks.jsonl row 1: 'test' asserts nothing"):
        graded(tmp_path, [ROWS[0] | {"test": "inputs = []\nfor i in inputs:\n    evens(i)\n"}], "")


def test_a_limit_below_a_second_is_no_fault_of_the_answer(tmp_path):
    with pytest.raises(BenchmarkError, match=r"^seconds must be at least 1, got 0$"):
        mbppplus.check([], seconds=0)
    with pytest.raises(BenchmarkError, match="seconds"):
        graded(tmp_path, ROWS, ROWS[0]["code"], seconds=0)


@pytest.mark.parametrize("unit", ["~", "`", "```\n", "def f(:\n", "    x\n", "(", "```python\n"])
def test_code_is_extracted_in_linear_time(timed, unit):
    timed(lambda size: mbppplus.extract_code(unit * (size // len(unit)), "f"))
