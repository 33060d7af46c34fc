"""Records the verdicts of EvalPlus' own evaluator (PyPI evalplus) on answers to MBPP+; README.md says how to run it.

    python record_mbppplus.py mbppplus.jsonl mbppplus.jsonl.gz

The first file is a copy of evalplus/mbppplus. Taken are tasks whose script is short and says what it expects. The
answers are the published solution, one change to it at a time, and code that is wrong in other ways. The verdict is
whether all inputs of the script pass. The seed is fixed.
"""

from __future__ import annotations

import ast
import copy
import gzip
import json
import multiprocessing
import random
import re
import sys
from importlib.metadata import version
from pathlib import Path

from evalplus.eval import untrusted_check

RNG = random.Random(378)
LONGEST_SCRIPT = 5000  # characters
TASKS, MUTANTS = 70, 4
LOOP = re.compile(
    r"for i, \(inp, exp\) in enumerate\(zip\(inputs, results\)\):\n    assertion\((\w+)\(\*inp\), exp, (\S+)\)"
)
OPERATORS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.FloorDiv, ast.FloorDiv: ast.Div}
COMPARISONS = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
WRAPPED = [  # the value of each return, written another way
    "list({})", "tuple({})", "float({})", "int({})", "str({})", "[{}]",
    "{} + 1e-9", "{} + 1e-4", "({}, None)", "not {}",
]  # fmt: skip


class Change(ast.NodeTransformer):
    """Makes the change number `number`; `seen` counts the places for one."""

    def __init__(self, number: int) -> None:
        self.number, self.seen = number, 0

    def _here(self) -> bool:
        self.seen += 1
        return self.seen - 1 == self.number

    def visit_BinOp(self, node):
        self.generic_visit(node)
        if type(node.op) in OPERATORS and self._here():
            node.op = OPERATORS[type(node.op)]()
        return node

    def visit_Compare(self, node):
        self.generic_visit(node)
        if type(node.ops[0]) in COMPARISONS and self._here():
            node.ops[0] = COMPARISONS[type(node.ops[0])]()
        return node

    def visit_Constant(self, node):
        if type(node.value) is int and self._here():
            return ast.Constant(node.value + 1)
        if type(node.value) is bool and self._here():
            return ast.Constant(not node.value)
        return node

    def visit_Return(self, node):
        self.generic_visit(node)
        for way in WRAPPED:
            if node.value is not None and self._here():
                node.value = ast.parse(way.format(f"({ast.unparse(node.value)})"), mode="eval").body
        return node


def mutants(code: str) -> list[str]:
    tree = ast.parse(code)
    counter = Change(-1)
    counter.visit(copy.deepcopy(tree))
    numbers = RNG.sample(range(counter.seen), min(MUTANTS, counter.seen))
    return [ast.unparse(ast.fix_missing_locations(Change(n).visit(copy.deepcopy(tree)))) for n in numbers]


def hostile(name: str) -> list[str]:
    ways = ["return None", "raise ValueError", "while True: pass", "import os; os._exit(0)", "return a[0]", "print(a)"]
    return [f"def {name}(*a):\n    {RNG.choice(ways)}"]


def verdict(name: str, code: str, inputs: list, expected: list, atol: float) -> str:
    status, _ = untrusted_check(
        "mbpp", code, inputs, name, expected, atol, [0.2] * len(inputs), fast_check=True, min_time_limit=2.0
    )
    return "right" if status == "pass" else "wrong"


def main(source: Path, out: Path) -> None:
    rows = [json.loads(line) for line in source.read_text().splitlines()]
    rows = [row for row in rows if len(row["test"]) <= LONGEST_SCRIPT and LOOP.search(row["test"])]
    rows = [row for row in rows if "ref_func" not in row["test"]]
    cases = []
    for row in RNG.sample(rows, min(TASKS, len(rows))):
        name, atol = LOOP.search(row["test"]).groups()
        names: dict = {}
        exec(LOOP.sub("", row["test"]), names)  # of the benchmark, not of a model
        codes = list(dict.fromkeys([row["code"], *mutants(row["code"]), *hostile(name)]))
        answers = [
            {"code": code, "verdict": verdict(name, code, names["inputs"], names["results"], float(atol))}
            for code in codes
        ]
        cases.append({"row": {key: row[key] for key in row if key != "source_file"}, "answers": answers})
        print(row["task_id"], [answer["verdict"][0] for answer in answers], flush=True)
    header = {"evaluator": "evalplus", "version": version("evalplus"), "data": "evalplus/mbppplus"}
    with gzip.GzipFile(out, "wb", mtime=0) as file:
        file.write("".join(json.dumps(line) + "\n" for line in (header, *cases)).encode())


if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    main(Path(sys.argv[1]), Path(sys.argv[2]))
