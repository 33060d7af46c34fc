"""BFCL v3 (Berkeley Function-Calling Leaderboard): several function calls at once, graded on what is called with what.

Two verdicts are given. `strict` is the leaderboard's own rule: exactly the calls of the answer, in any order, each with
all required parameters, none unknown, of the right types and with accepted values. `lenient` is what the code of the
paper ran: every call of the answer is among the calls, whatever else is; numbers may be texts; types are not looked at.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from specloss.benchmarks import BenchmarkError, Grade, Item
from specloss.benchmarks.calls import Call, parse_calls
from specloss.benchmarks.hub import HubSet
from specloss.benchmarks.rows import Row, chat, make_items, read_file, read_rows, shown

HUB = "gorilla-llm/Berkeley-Function-Calling-Leaderboard"
SYSTEM = (
    "You can call the functions described below in JSON. Reply with the calls that the request needs and nothing else, "
    "as one Python list: [first.function(name=value, other='text'), second_function(name=[1, 2])]. "
    "Write every argument with its name, as a literal; leave out optional ones that the request does not ask for.\n\n"
)

_IGNORED = re.compile(r"[ ,./\-_*^]")  # within texts, by the leaderboard's rule
_TYPES: dict[str, tuple[type, ...]] = {
    "integer": (int,),
    "float": (float, int),  # a whole number will do, as everywhere in Python
    "number": (float, int),
    "string": (str,),
    "boolean": (bool,),
    "array": (list,),
    "tuple": (list,),
    "dict": (dict,),
    "object": (dict,),
    "any": (str,),
}


def load(
    category: Literal["parallel_multiple", "parallel"] = "parallel_multiple",
    file: str | None = None,
    answers_file: str | None = None,
    problems: int | None = None,
    seed: int | None = None,
    revision: str | None = None,
) -> list[Item]:
    """Requests of the hub, or of a local `file` with the fields id, question, function, and `answers_file` beside it.

    The first `problems` of them, all if None, or with a `seed` that many by lot.
    """
    if (file is None) != (answers_file is None):
        raise BenchmarkError("file and answers_file belong together: give both, or none for the hub")
    name = f"BFCL_v3_{category}.json"
    rows = read_rows(file, HubSet(HUB, files=(name,), revision=revision))
    if answers_file is not None:
        answers = read_file(Path(answers_file))
    else:
        answers = read_rows(None, HubSet(HUB, files=(f"possible_answer/{name}",), revision=revision))
    by_id: dict[str, Row] = {}
    for row in answers:
        if (first := by_id.setdefault(row.text("id"), row)) is not row:
            raise row.error(f"id {row.text('id')!r} is also that of {first.where}")
    return make_items(rows, lambda row: _item(row, by_id), problems, seed)


def grade(text: str, reference: str, correct: Literal["strict", "lenient"] = "strict") -> Grade:
    """Grade an output by both rules; `correct` says which of the two counts as the accuracy."""
    calls = parse_calls(text)
    if calls is None:
        return Grade(False, None, {"strict": False, "lenient": False})
    content = json.loads(reference)
    functions = {function["name"]: function["parameters"] for function in content["functions"]}
    try:
        scores = {
            "strict": strictly_right(calls, content["answers"], functions),
            "lenient": leniently_right(calls, content["answers"]),
        }
    except RecursionError:  # values in one another, deeper than any answer
        scores = {"strict": False, "lenient": False}
    return Grade(scores[correct], shown_calls(calls), scores)


def strictly_right(
    calls: Sequence[Call], answers: Sequence[Mapping[str, Any]], functions: Mapping[str, Mapping[str, Any]]
) -> bool:
    """Whether calls and answers can be paired off, every call within its function's schema and its answer's values."""
    if len(calls) != len(answers):
        return False
    fits = [[_is_call(call, answer, functions) for call in calls] for answer in answers]
    taken: dict[int, int] = {}  # call -> answer

    def place(answer: int, seen: set[int]) -> bool:
        """Find a call for an answer, moving others if that helps (augmenting paths)."""
        for call, fit in enumerate(fits[answer]):
            if fit and call not in seen:
                seen.add(call)
                if call not in taken or place(taken[call], seen):
                    taken[call] = answer
                    return True
        return False

    return all(place(answer, set()) for answer in range(len(answers)))


def leniently_right(calls: Sequence[Call], answers: Sequence[Mapping[str, Any]]) -> bool:
    """Whether there are as many calls as answers, or more, and every answer has a call with its values."""
    if len(calls) < len(answers):
        return False
    return all(any(_is_like(call, answer) for call in calls) for answer in answers)


def shown_calls(calls: Sequence[Call]) -> str:
    """The calls in one line of JSON, cut short."""
    text = json.dumps([{call.name: call.arguments} for call in calls], ensure_ascii=False, default=str)
    return text if len(text) <= 2000 else f"{text[:2000]}..."


def _is_call(call: Call, answer: Mapping[str, Any], functions: Mapping[str, Mapping[str, Any]]) -> bool:
    ((name, accepted),) = answer.items()
    schema = functions.get(name)
    if call.name != name or schema is None:
        return False
    properties = schema.get("properties", {})
    if any(parameter not in call.arguments for parameter in schema.get("required", [])):
        return False
    for parameter, value in call.arguments.items():
        if parameter not in properties or parameter not in accepted:
            return False
        if not _is_accepted(value, accepted[parameter], properties[parameter]):
            return False
    return all(parameter in call.arguments or "" in values for parameter, values in accepted.items())


def _is_accepted(value: Any, accepted: Sequence[Any], schema: Mapping[str, Any]) -> bool:
    """Whether a value is one of those accepted and has its parameter's type, or that of the answer where it differs."""
    expected = _TYPES.get(schema.get("type", "any"), (str,))
    given = [option for option in accepted if option != ""]
    if not _has_type(value, expected):
        # an answer may be a variable's name, or of another type than its schema says
        return bool(given) and type(value) is type(given[0]) and any(_same(value, option) for option in given)
    if isinstance(value, list) and (items := schema.get("items")):
        inner = _TYPES.get(items.get("type", "any"), (object,))
        as_answered = [option for option in given if isinstance(option, list)]
        if not all(_has_type(element, inner) for element in value) and not any(
            _same(value, option) for option in as_answered
        ):
            return False
    return any(_fits(value, option) for option in accepted)


def _has_type(value: Any, types: tuple[type, ...]) -> bool:
    return isinstance(value, types) and (bool in types or object in types or not isinstance(value, bool))


def _fits(value: Any, option: Any) -> bool:
    """Whether a value is one accepted option. In an option that is an object, each key has its accepted values."""
    if isinstance(value, dict) and isinstance(option, dict):
        known = all(
            key in option and any(_fits(entry, one) for one in _options(option[key])) for key, entry in value.items()
        )
        return known and all(key in value or "" in _options(entries) for key, entries in option.items())
    if isinstance(value, list) and isinstance(option, list):
        return len(value) == len(option) and all(map(_fits, value, option))
    return _same(value, option)


def _options(values: Any) -> Sequence[Any]:
    return values if isinstance(values, list) else [values]


def _same(value: Any, option: Any) -> bool:
    """Equality, but that true is no 1, and that texts are compared as the leaderboard does."""
    if isinstance(value, str) and isinstance(option, str):
        return _standard(value) == _standard(option)
    if isinstance(value, bool) or isinstance(option, bool):
        return value is option
    if isinstance(value, list) and isinstance(option, list):
        return len(value) == len(option) and all(map(_same, value, option))
    return value == option


def _standard(text: str) -> str:
    return _IGNORED.sub("", text).lower().replace("'", '"')


def _is_like(call: Call, answer: Mapping[str, Any]) -> bool:
    ((name, accepted),) = answer.items()
    if call.name != name:
        return False
    for parameter, options in accepted.items():
        values = [option for option in options if option != ""]
        if parameter not in call.arguments:
            if "" not in options:
                return False
        elif values and not any(_alike(call.arguments[parameter], option) for option in values):
            return False
    return True


def _alike(value: Any, option: Any) -> bool:
    """The lenient equality: case and outer space do not matter, and a text may stand for a number."""
    if value == option:
        return True
    if isinstance(value, list) and isinstance(option, list):
        return len(value) == len(option) and all(map(_alike, value, option))
    if isinstance(value, dict) and isinstance(option, dict):
        return value.keys() == option.keys() and all(_alike(value[key], option[key]) for key in value)
    if isinstance(value, str) and isinstance(option, str):
        return value.strip().lower() == option.strip().lower()
    try:
        return abs(float(value) - float(option)) < 1e-6
    except (TypeError, ValueError, OverflowError):
        return False


def _item(row: Row, answers: Mapping[str, Row]) -> Item:
    id_ = row.text("id")
    turns = row.list("question")
    if not (len(turns) == 1 and turns[0] and isinstance(turns[0], list) and all(isinstance(t, dict) for t in turns[0])):
        raise row.error("'question' must be a list of one turn, a list of messages")
    said = [Row(row.where, row.number, message).text("content") for message in turns[0]]
    functions = row.list("function")
    if not functions:
        raise row.error("'function' is empty")
    for function in functions:
        if not _is_function(function):
            raise row.error(f"each 'function' must have a name and parameters, got {shown(function)}")
    if id_ not in answers:
        raise row.error(f"there is no answer to id {id_!r}")
    truth = answers[id_].list("ground_truth")
    if not truth or not all(map(_is_answer, truth)):
        raise answers[id_].error("'ground_truth' must be a list of calls, each {name: {parameter: [values]}}")
    system = SYSTEM + "\n".join(json.dumps(function, ensure_ascii=False) for function in functions)
    schemas = [{"name": function["name"], "parameters": function["parameters"]} for function in functions]
    reference = json.dumps({"functions": schemas, "answers": truth}, ensure_ascii=False)
    return Item(id_, None, reference, chat("\n".join(said), system), row.where)


def _is_function(value: Any) -> bool:
    """Whether it is a name with a schema of parameters."""
    if not (isinstance(value, dict) and isinstance(value.get("name"), str)):
        return False
    schema = value.get("parameters")
    properties = schema.get("properties", {}) if isinstance(schema, dict) else None
    return isinstance(properties, dict) and all(isinstance(entry, dict) for entry in properties.values())


def _is_answer(value: Any) -> bool:
    """Whether it is one call, `{name: {parameter: [accepted values]}}`."""
    if not (isinstance(value, dict) and len(value) == 1):
        return False
    (accepted,) = value.values()
    return isinstance(accepted, dict) and all(isinstance(options, list) for options in accepted.values())
