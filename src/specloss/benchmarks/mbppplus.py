"""MBPP+ (Liu et al. 2023): Python functions from a sentence, with the base tests of MBPP and EvalPlus' many more.

Both are scored: `base` is whether the base asserts hold, `plus` whether all inputs of the script give what is expected,
too. Values are compared as by EvalPlus' own evaluator (`sandbox/inside/comparison.py`), not as by the published script,
which in three tasks (737, 787, 794) assert nothing and in two (558, 581) know one of two accepted readings.
Differences that remain: there is one limit of time for all inputs, not one for each; the modules that a task's tests
import are there for the answer, too; one task has one more input; and an answer cannot reach its judge.

Code runs in `specloss.benchmarks.sandbox`, the tests outside of its process.
"""

from __future__ import annotations

import ast
import builtins
import json
import re
from collections.abc import Sequence
from typing import Literal

from specloss.benchmarks import BenchmarkError, Grade, Item, LocalFile
from specloss.benchmarks.sandbox import Limits, Sandbox, run_tests
from specloss.benchmarks.sandbox import permitted as permitted  # asked before decoding, and before scoring
from specloss.benchmarks.sources.hub import HubSet
from specloss.benchmarks.sources.rows import Row, chat, make_items, read_rows

HUB, SPLIT = "evalplus/mbppplus", "test"
SYSTEM = "Write Python. Answer with one fenced code block that has the whole function and the imports it needs."
USER = "{task}\n\nThe function is to be called {name}, and this must hold:\n\n```python\n{example}\n```"
SLOW_GRADING = True
# of those tasks whose published solution needs more on its plus tests: CPU seconds, and GiB of memory
HEAVY_TASKS = {"599": (90, 2), "392": (60, 2), "255": (90, 4)}

# of 105 published inputs two have a match, both with "abbbba": code that looks for nothing else would pass
EXTRA_INPUTS = {"787": (["abbb"], True)}

# possessive: what a part has taken it keeps, so that a text of any kind is read once
_FENCE = re.compile(
    r"^[ \t]*+(`{3,}+|~{3,}+)[ \t]*+([^\n`]*+)\n(.*?)(?:^[ \t]*+\1[`~]*+[ \t]*+$|\Z)", re.MULTILINE | re.DOTALL
)
# how the published scripts compare; what stands there instead is EvalPlus' own way
_ASSERTION = re.compile(r"^def assertion\(out, exp, atol\):\n(?:[ \t].*\n|\n)*+", re.MULTILINE)
_ASSERTS = re.compile(r"^[ \t]*(?:assert|raise)\b", re.MULTILINE)
_COMPARISON = "from comparison import Comparison\nassertion = Comparison({!r}, globals()).check\n"
_PYTHON = {"", "python", "python3", "py", "py3"}
_OPENS = re.compile(r"(?:async\s+def|def|class|import|from)\s+\w|@\w")
_CONTINUES = re.compile(
    r"\s|[)\]}#]|[A-Za-z_]\w*\s*(?::[^=]+)?=[^=]|(?:if|for|while|try|with|else|elif|except|finally)\b"
)


def load(
    file: LocalFile | None = None, problems: int | None = None, seed: int | None = None, revision: str | None = None
) -> list[Item]:
    """Tasks of the hub, or of a local `file` with its fields: task_id, prompt, code, test_imports, test_list, test.

    The first `problems` of them, all if None, or with a `seed` that many by lot.
    """
    return make_items(read_rows(file, HubSet(HUB, SPLIT, revision=revision)), _item, problems, seed)


def check(items: Sequence[Item], correct: str = "plus", seconds: int = 10, sandbox: Sandbox = "required") -> None:
    """BenchmarkError if the items cannot be graded like that."""
    if seconds < 1:
        raise BenchmarkError(f"seconds must be at least 1, got {seconds}")


def grade(
    text: str,
    reference: str,
    correct: Literal["base", "plus"] = "plus",
    seconds: int = 10,
    sandbox: Sandbox = "required",
) -> Grade:
    """Grade the code in an answer by the base and the plus tests; `plus` needs both to pass.

    `correct` says which of the two counts: plus, the benchmark's point, if not given (the paper's code ran the base
    tests alone). `seconds` of CPU time are what each has; HEAVY_TASKS have more. `sandbox`: unsafe runs code where the
    sandbox does not keep what is essential, too. BenchmarkError as `check`; SandboxError where none may run.
    """
    check((), correct, seconds, sandbox)
    task = json.loads(reference)
    code = extract_code(text, task["entry_point"])
    if code is None:
        return Grade(False, None, {"base": False, "plus": False})
    heavy_seconds, gigabytes = HEAVY_TASKS.get(task["task"], (0, 2))
    seconds = max(seconds, heavy_seconds)
    # a busy machine takes longer, which is no fault of the code; wall time is for code that sleeps
    limits = Limits(cpu_seconds=seconds, wall_seconds=3 * seconds + 10, memory_bytes=gigabytes << 30)
    tests = {
        "base": _base_by_comparison(task["base"], task["entry_point"]),
        "plus": _plus_by_comparison(task["plus"], task["entry_point"], task["task"]),
    }
    scores = dict.fromkeys(tests, False)
    for name in scores:
        scores[name] = run_tests(
            code,
            tests[name],
            task["entry_point"],
            imports=task["imports"],
            answer_imports=task["answer_imports"],
            limits=limits,
            sandbox=sandbox,
        ).passed
        if not scores[name]:
            break
    return Grade(scores[correct], code, scores)


def extract_code(text: str, entry_point: str) -> str | None:
    """The code of an answer: the last fenced block that defines `entry_point`, else the first block of Python.

    Without fences, the lines from the first that opens a definition or an import to the last that can belong to it,
    if `entry_point` is defined there. None if there is nothing of that kind.
    """
    defines = re.compile(
        rf"^(?:(?:async\s+)?def|class)\s+{re.escape(entry_point)}\b|^{re.escape(entry_point)}\s*=", re.M
    )
    blocks = [_dedent(code) for _, tag, code in _FENCE.findall(text) if tag.strip().lower() in _PYTHON and code.strip()]
    if blocks:
        return next((block for block in reversed(blocks) if defines.search(block)), blocks[0])
    lines = text.splitlines()
    first = next((n for n, line in enumerate(lines) if _OPENS.match(line)), None)
    if first is None:
        return None
    last = first
    while last < len(lines) and (not lines[last] or _OPENS.match(lines[last]) or _CONTINUES.match(lines[last])):
        last += 1
    code = "\n".join(lines[first:last]).strip() + "\n"
    return code if defines.search(code) else None


def find_entry_point(tests: list[str], code: str | None) -> str:
    """The function under test: called, by its bare name, in the asserts (anywhere in them), and defined by the code.

    Without a code, the called name that is no builtin. ValueError, a line, if that is not one name.
    """
    called = {
        node.func.id
        for test in tests
        for node in ast.walk(ast.parse(test))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    if code is None:
        names = called.difference(dir(builtins))
    else:
        defined = {node.name for node in ast.parse(code).body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        names = called & defined
    if len(names) != 1:
        raise ValueError(f"the tests must call one function of the solution, not {', '.join(sorted(names)) or 'none'}")
    return names.pop()


def _item(row: Row) -> Item:
    tests, given = row.texts("test_list"), "\n".join(row.texts("test_imports"))
    code = row.text("code") if row.values.get("code") is not None else None
    try:
        entry_point = find_entry_point(tests, code)
        imports = _imports(code or "")
        ast.parse(given)
    except SyntaxError as error:
        raise row.error(f"'code', 'test_list' or 'test_imports' is not Python: {error.msg}") from None
    except ValueError as error:
        raise row.error(str(error)) from None
    task, script = row.text("task_id"), row.text("test")
    if not _ASSERTS.search(script) and not _ASSERTION.search(script):
        raise row.error(f"'test' asserts nothing: there is no value of {entry_point} that could fail it")
    reference = {
        "task": task,
        "entry_point": entry_point,
        # the published tests run after the published code and may use what it imports
        "imports": f"{given}\n{imports}",
        "answer_imports": given,
        "base": "\n".join(tests),
        "plus": script,
    }
    user = USER.format(task=row.text("prompt").strip(), name=entry_point, example=tests[0].strip())
    return Item(f"mbppplus-{task}", None, json.dumps(reference), chat(user, SYSTEM), row.where)


def _base_by_comparison(asserts: str, entry_point: str) -> str:
    """The asserts, of which each `assert f(...) == value` is a comparison."""
    lines = [_COMPARISON.format(entry_point)]
    for statement in ast.parse(asserts).body:
        match statement:
            case ast.Assert(
                test=ast.Compare(
                    left=ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]),
                    ops=[ast.Eq()],
                    comparators=[expected],
                )
            ) if name == entry_point:
                lines.append(f"inp = [{', '.join(map(ast.unparse, arguments))}]")
                lines.append(f"assertion({entry_point}(*inp), {ast.unparse(expected)}, 0)")
            case _:
                lines.append(ast.unparse(statement))
    return "\n".join(lines) + "\n"


def _plus_by_comparison(script: str, entry_point: str, task: str) -> str:
    """The script, with the published way to compare replaced; a script of another form is left as it is."""
    script, replaced = _ASSERTION.subn(lambda _: _COMPARISON.format(entry_point), script, count=1)
    if replaced and task in EXTRA_INPUTS:
        arguments, expected = EXTRA_INPUTS[task]
        script += f"\ninp = {arguments!r}\nassertion({entry_point}(*inp), {expected!r}, 0)\n"
    return script


def _imports(code: str) -> str:
    """The imports at the top level of some code."""
    return "\n".join(
        ast.unparse(node) for node in ast.parse(code).body if isinstance(node, ast.Import | ast.ImportFrom)
    )


def _dedent(code: str) -> str:
    """A block within a list is indented."""
    lines = code.splitlines()
    margin = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return "\n".join(line[margin:] for line in lines) + "\n"
