"""Records the verdicts of BFCL's own checker (PyPI bfcl-eval) on many answers; see README.md for how to run it.

    python record_bfcl.py FOLDER bfcl.jsonl.gz

FOLDER has bfcl_parallel_multiple.jsonl, bfcl_parallel.jsonl and their `_answers`. The answers are the accepted calls,
those calls with one to three changes, the same written in other ways, and hostile texts. The seed is fixed.
"""

from __future__ import annotations

import gzip
import json
import platform
import random
import sys
import types
from importlib.metadata import version
from pathlib import Path

# the table of models imports every provider's client; of it only this flag is used
stub = types.ModuleType("bfcl_eval.constants.model_config")
stub.MODEL_CONFIG_MAPPING = {"model": types.SimpleNamespace(underscore_to_dot=False)}
sys.modules[stub.__name__] = stub

from bfcl_eval.constants.enums import Language, ReturnFormat  # noqa: E402
from bfcl_eval.eval_checker.ast_eval.ast_checker import ast_checker  # noqa: E402
from bfcl_eval.model_handler.utils import default_decode_ast_prompting  # noqa: E402

RNG = random.Random(20250616)
CHANGED_ANSWERS = {"parallel_multiple": 11, "parallel": 4}  # per item


class Source(str):
    """A value that is written as it stands."""

    def __repr__(self) -> str:
        return str(self)


def verdict(text: str, item: dict, answers: list) -> str:
    try:
        calls = default_decode_ast_prompting(text, ReturnFormat.PYTHON)
    except Exception:
        return "unreadable"
    try:
        result = ast_checker(item["function"], calls, answers, Language.PYTHON, "parallel_multiple", "model")
    except Exception:
        return "raised"  # which ends an evaluation by bfcl-eval
    return "right" if result["valid"] else "wrong"


def chosen(options: list, first: bool):
    given = [option for option in options if option != ""]
    if not given or ("" in options and not first and RNG.random() < 0.4):
        return None
    return plain(given[0] if first else RNG.choice(given), first)


def plain(value, first: bool):
    """A value of an accepted one, whose objects have accepted values for each key."""
    if isinstance(value, dict):
        several = {key: options if isinstance(options, list) else [options] for key, options in value.items()}
        picked = {key: chosen(options, first) for key, options in several.items()}
        return {key: entry for key, entry in picked.items() if entry is not None}
    return [plain(element, first) for element in value] if isinstance(value, list) else value


def accepted_calls(answers: list, first: bool = False) -> list:
    calls = []
    for answer in answers:
        ((name, parameters),) = answer.items()
        picked = {key: chosen(options, first) for key, options in parameters.items()}
        calls.append([name, {key: value for key, value in picked.items() if value is not None}])
    return calls


def written(calls: list) -> str:
    return ", ".join(f"{name}({', '.join(f'{k}={v!r}' for k, v in given.items())})" for name, given in calls)


# fmt: off
def other_value(value):
    """A value changed in kind, in size or in how it is written."""
    general = [None, [value], (value,), {"value": value}, str(value), Source(f"({value!r})"), Source("..."), ""]
    match value:
        case bool():
            special = [int(value), not value, str(value).lower(), Source(f"not {value}"), Source("1 < 2")]
        case int() | float():
            special = [
                float(value), int(value), value + 1, -value, value + 0.5, str(value), complex(value, 0), bool(value),
                Source(f"+{value}"), Source(f"-{value}"), Source(f"{value} * 1"), Source(f"{value} + 0"),
                Source(f"{value} / 1"), Source(f"{value} // 1"), Source(f"2 * {value} - {value}"),
                Source(f"{value} ** 1"), Source(f"-(-{value})"), Source(f"int({value})"), Source(f"~{value}"),
                Source(f"({value}) + x"), Source(f"{value} % 10**9"), Source(f"{value}e0"), Source("1_000"),
                Source("0x10"), Source(f"({value} if True else 0)"), Source("10**6"), Source("5/100"),
            ]
        case str():
            middle = len(value) // 2
            special = [
                value.upper(), value.lower(), value.title(), value.replace(" ", ""), value.replace(" ", "_"),
                f" {value} ", f"{value}.", f"{value}!", f"The {value}", value[:-1], value[::-1],
                value.replace(",", ""), value.replace("'", '"'), value.split(), list(value), value.replace("-", "/"),
                Source(json.dumps(value)), Source(f"'''{value}'''"),
                Source(f"{value[:middle]!r} + {value[middle:]!r}"), Source(f"{value[:middle]!r} {value[middle:]!r}"),
                Source(f"f{value!r}"), Source(f"r{value!r}"),
                Source(f"b{value.encode('ascii', 'replace').decode()!r}"),
                Source(value if value.isidentifier() else "some_name"), Source(f"data[{value!r}]"),
                Source("data[0]"), Source(f"str({value!r})"), Source(f"text(value={value!r})"), Source("a.b"),
                Source(f"{value!r} * 1"), Source("lambda: 0"), Source("{1, 2}"), value.replace("e", "é", 1),
                Source(f"{value!r}.upper()"),
            ]
        case list():
            special = [
                tuple(value), value[:-1], value + value[-1:], value[::-1], [], [str(entry) for entry in value],
                [value], [*value, None], Source("{" + ", ".join(map(repr, value)) + "}"), Source(f"{value!r} + []"),
                Source(f"list({tuple(value)!r})"), str(value),
                [float(entry) if type(entry) is int else entry for entry in value],
                [int(entry) if type(entry) is float else entry for entry in value],
                [other_value(entry) if n == 0 else entry for n, entry in enumerate(value)],
                [other_value(entry) for entry in value],
                [entry.upper() if isinstance(entry, str) else entry for entry in value],
                [f"{entry}." if isinstance(entry, str) else entry for entry in value],
            ]
        case dict():
            keys = list(value)
            special = [
                {key: value[key] for key in keys[:-1]}, value | {"other": 1}, {}, [value], list(value.items()),
                str(value),
                {key: other_value(entry) if n == 0 else entry for n, (key, entry) in enumerate(value.items())},
                {key: other_value(entry) for key, entry in value.items()},
                {key: [entry] for key, entry in value.items()}, {key.upper(): entry for key, entry in value.items()},
                Source(f"dict(**{value!r})"), Source("{**{}}"), dict(reversed(value.items())),
            ]
        case _:
            special = [0]
    return RNG.choice(special if RNG.random() < 0.8 else general)
# fmt: on


def change(calls: list, item: dict) -> None:
    """One change to the calls, in place."""
    kind = RNG.choices(
        ["value", "leave out", "add", "rename", "drop", "twice", "function", "order", "positional", "again"],
        [30, 4, 4, 2, 2, 2, 2, 5, 1, 1],
    )[0]
    if not calls:
        return
    place = RNG.randrange(len(calls))
    name, given = calls[place]
    key = RNG.choice(list(given)) if given else None
    function = next((f for f in item["function"] if f["name"] == name), item["function"][0])
    if kind == "value" and key is not None:
        given[key] = other_value(given[key])
    elif kind == "leave out" and key is not None:
        del given[key]
    elif kind == "add":
        unused = [name for name in function["parameters"]["properties"] if name not in given]
        given[RNG.choice([*unused, "unknown"])] = RNG.choice([1, "x", True, "", []])
    elif kind == "rename" and key is not None:
        given[RNG.choice([key.upper(), f"{key}s"])] = given.pop(key)
    elif kind == "drop":
        del calls[place]
    elif kind == "twice":
        calls.append([name, dict(given)])
    elif kind == "function":
        names = [f["name"] for f in item["function"]]
        names += [name.split(".")[-1], name.replace(".", "_"), f"x.{name}", f"tools[0].{name}"]
        calls[place][0] = RNG.choice(names)
    elif kind == "order":
        RNG.shuffle(calls)
    elif kind == "positional" and key is not None:
        value = given.pop(key)
        calls[place][1] = {f"0, {key}": value, **given}
    elif kind == "again" and key is not None:
        value = given.pop(key)
        given[f"{key}={other_value(value)!r}, {key}"] = value


# fmt: off
# around the calls; what cannot be read is recorded as well
FRAMES = [
    "[{}]", "{}", "[{}", "{}]", "`[{}]`", "`{}`", "``[{}]``", "```\n[{}]\n```", "```[{}]```", "\n[{}]\n", "  [{}]  ",
    "[[{}]]", "([{}])", "({})", "[({})]", "'[{}]'", "[{}];", "[{}].", "[{},]", "Here: [{}]", "[{}] # done", "[ {} ]",
    "[\n{}\n]", "[\n  {},\n]", "\t[{}]", "{{{}}}", '"[{}]"',
]
# which its readers for single models read
NOTATIONS = ["```python\n[{}]\n```", "```python\n{}\n```", "```json\n{json}\n```", "{json}", "{tags}"]
HOSTILE = [
    "[f(a=0x" + "f" * 4000 + ")]", "[f(a='\\ud800')]", "[f(a=\ud800)]", "[" * 300 + "]" * 300,
    "[f(a=" + "[" * 150 + "]" * 150 + ")]", "[f(a=" + "{1:" * 60 + "1" + "}" * 60 + ")]",
    "[f(a=" + "-" * 300 + "1)]", "[f(a=" + "+".join("1" * 2000) + ")]", "[f(a=" + "9" * 5000 + ")]", "[f(a=1e999)]",
    "[f(a=-1e999)]", "[f(a=1/0)]", "[f(a=10.0**400)]", "[f(a=2**0.5)]", "[f(a=1 << 10)]", "[f(a='a' * 10)]",
    "[f(a=[1] * 3)]", "[f(a=(1, 2) + (3,))]", "[f(a=3 @ 4)]", "[f(a=1 if 1 else 2)]", "[f(a=1 < 2)]",
    "[f(a=True and False)]", "[f(a=[x for x in 'abc'])]", "[f(a=*b)]", "[f(**{'a': 1})]", "[f(*[1])]", "[f(1, 2)]",
    "[f()]", "[f]", "f", "", " ", "[]", "[[]]", "()", "{}", "None", "[None]", "1", "''", "]", "[", "[f(a=1) g(b=2)]",
    "f(a=1)\ng(b=2)", "f(a=1); g(b=2)", "[f(a=1), 3]", "[f(a=1), g]", "lambda: 0", "[f(a=lambda: 0)]",
    "[f(a=await b)]", "[f(a=yield)]", "[f(a:=1)]", "[f(a=(b := 1))]", "[f(a=1)(b=2)]", "[f(a=1).g(b=2)]",
    "[f[0](a=1)]", "[(f)(a=1)]", "[f(a=b.c)]", "[f(a=b.c())]", "[f(a=b[1:2])]", "[f(a=b(c=1))]", "[f(a=-b)]",
    "[f(a=-'b')]", "[f(a=--1)]", "[f(a=not 1)]", "[f(a=~1)]", "[f(a=+1)]", "[f(a=1j)]", "[f(a=b'x')]", "[f(a=...)]",
    "[f(a=None)]", "[f(a={1: {2: 3}})]", "[f(a={[1]: 2})]", "[f(a={**b})]", "[f(a=(1,))]", "[f(a={1, 2})]",
    "[f(a=f'x')]", "[f(a='x' 'y')]", "[f(a='\\d')]", "[f(a='\x00')]", "[f(a=1)\x00]", "[f(a=1)\r\n]",
    "[f(a='\u2028')]", "[ｆ(a=1)]", "[f(ａ=1)]", "[f(a=١)]", "[f(a=1_0)]", "[f(a=01)]", "[f(a=0b11)]", "[f(a=.5)]",
    "[f(a=5.)]", "[f(a=1,)]", "[f(,a=1)]", "[f(a=)]", "[f(a 1)]", "[f(a=int('1') + 0)]", "[f(a='%s' % 'b')]",
    "[f(a=int('1'))]", "I cannot do that.", "f(a=1) is the call.", "<tool_call>", "def f(a): pass", "import os",
    "[f(a=1)]" * 2, "[f(a=1)], [g(b=2)]", "[f(a=1)] [g(b=2)]", "\ufeff[f(a=1)]",
]
# fmt: on


def is_json(calls: list) -> bool:
    """Whether the calls are the same in JSON as in Python's syntax."""
    plain = all(name.replace(".", "").isidentifier() and all(map(str.isidentifier, given)) for name, given in calls)
    try:
        return plain and "Source" not in repr(kinds(calls)) and json.loads(json.dumps(calls)) == calls
    except (TypeError, ValueError):
        return False


def kinds(value) -> list:
    """The types in a value, at any depth."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple | set) else ()
    return [type(value).__name__, *(kinds(entry) for entry in inner)]


def answers_to(item: dict, truth: list, changed: int):
    yield f"[{written(accepted_calls(truth, first=True))}]"
    calls = accepted_calls(truth)
    RNG.shuffle(calls)
    yield RNG.choice(FRAMES).format(written(calls))
    for _ in range(changed):
        calls = accepted_calls(truth, first=RNG.random() < 0.5)
        for _ in range(RNG.choice([1, 1, 1, 1, 2, 3])):
            change(calls, item)
        yield (RNG.choice(FRAMES) if RNG.random() < 0.1 else "[{}]").format(written(calls))


def in_another_notation(item: dict, truth: list) -> list:
    """A text that the leaderboard cannot read, and the same calls as it reads them."""
    calls = accepted_calls(truth)
    if RNG.random() < 0.5:
        change(calls, item)
    if not calls or not is_json(calls):
        calls = accepted_calls(truth)
    entries = [json.dumps({"name": name, "arguments": given}, ensure_ascii=False) for name, given in calls]
    text = RNG.choice(NOTATIONS)
    for name, value in (
        ("{}", written(calls)),  # first: JSON may have an empty object
        ("{json}", f"[{', '.join(entries)}]"),
        ("{tags}", "\n".join(f"<tool_call>\n{entry}\n</tool_call>" for entry in entries)),
    ):
        text = text.replace(name, value)
    return [text, verdict(text, item, truth), verdict(f"[{written(calls)}]", item, truth)]


def small(function: dict) -> dict:
    """What the checker looks at."""
    parameters = function["parameters"]
    properties = {
        name: {"type": entry["type"]} | ({"items": {"type": entry["items"]["type"]}} if "items" in entry else {})
        for name, entry in parameters["properties"].items()
    }
    return {"name": function["name"], "parameters": {"properties": properties, "required": parameters["required"]}}


def rows(path: Path) -> list:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def main(folder: str, out: str) -> None:
    header = {"evaluator": "bfcl-eval", "version": version("bfcl-eval"), "python": platform.python_version()}
    lines = [header]
    for category, changed in CHANGED_ANSWERS.items():
        truths = {row["id"]: row["ground_truth"] for row in rows(Path(folder, f"bfcl_{category}_answers.jsonl"))}
        for item in rows(Path(folder, f"bfcl_{category}.jsonl")):
            truth = truths[item["id"]]
            texts = dict.fromkeys(answers_to(item, truth, changed))
            cases = [[text, verdict(text, item, truth)] for text in texts]
            cases.append(in_another_notation(item, truth))
            functions = [small(function) for function in item["function"]]
            lines.append({"id": item["id"], "functions": functions, "answers": truth, "cases": cases})
    for kind, options in (("integer", [1, ""]), ("string", ["b", ""]), ("array", [[1, 2], ""])):
        schema = {"type": kind} | ({"items": {"type": "integer"}} if kind == "array" else {})
        function = {"name": "f", "parameters": {"properties": {"a": schema}, "required": []}}
        truth = [{"f": {"a": options}}]
        cases = [[text, verdict(text, {"function": [function]}, truth)] for text in HOSTILE]
        lines.append({"id": f"hostile-{kind}", "functions": [function], "answers": truth, "cases": cases})
    data = "".join(json.dumps(line) + "\n" for line in lines).encode()
    Path(out).write_bytes(gzip.compress(data, 9, mtime=0))
    print(f"{sum(len(line['cases']) for line in lines[1:])} answers, {Path(out).stat().st_size} bytes")


if __name__ == "__main__":
    main(*sys.argv[1:])
