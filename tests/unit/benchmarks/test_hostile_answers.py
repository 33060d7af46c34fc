"""Whatever a model writes, a grader gives a grade, soon, that files can hold."""

import json

import pytest

from specloss.scoring.grade import grade_one

SCHEMA = {"type": "dict", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
CALL = json.dumps({"functions": [{"name": "f", "parameters": SCHEMA}], "answers": [{"f": {"n": [1]}}]})
TASKS = {
    "aime": ("70", {}),
    "bfcl": (CALL, {}),
    "chain": ("42", {}),
    "gsm8k": ("18", {}),
    "include": ("B", {}),
    "math": (r"\frac{1}{2}", {}),
    "prompts": ("18", {"by": "math"}),
}
HOSTILE = {
    "hexadecimal": "[f(n=0x" + "f" * 4000 + ")]",
    "decimal": "[f(n=" + "9" * 5000 + ")] #### " + "9" * 5000,
    "half a pair": "[f(n='\ud800')] Answer: \ud800 \\boxed{\ud800} #\ud800",
    "deep": "[f(n=" + "[" * 30_000 + ")]",
    "signs": "[f(n=" + "-" * 30_000 + "1)]",
    "brackets": "\\boxed{" * 3000 + r"\frac{" * 3000,
    "zero": "[f(n=1)]\0 Answer: \0",
    "towers": r"\boxed{9^{9^{9^{9}}}} #### 9**9**9 [f(n=9**9**9)]",
    "shifts": "[f(n=1 << 10**9)]",
    "empty": "",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("task", TASKS)
def test_a_hostile_answer_has_a_grade_that_a_file_can_hold(task, text):
    reference, grading = TASKS[task]
    grade = grade_one(task, (text, reference), grading)
    assert grade.correct is False and len(grade.error) < 40
    (grade.answer or "").encode()
