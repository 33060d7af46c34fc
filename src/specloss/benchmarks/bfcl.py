"""BFCL v3 (Berkeley Function-Calling Leaderboard): several function calls at once, graded on what is called with what.

Two verdicts are given. `strict` is the leaderboard's own rule (`leaderboard`): exactly the calls of the answer, in any
order, each with all required parameters, none unknown, of the right types and with accepted values. `lenient` is what
the code of the paper ran: every call of the answer is among the calls, whatever else is; numbers may be texts; types
are not looked at. Both judge what `calls` can read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from specloss.benchmarks import BenchmarkError, Grade, Item, LocalFile
from specloss.benchmarks.parsing.calls import Call, parse_calls
from specloss.benchmarks.parsing.leaderboard import LEFT_OUT, is_right
from specloss.benchmarks.sources.hub import HubSet
from specloss.benchmarks.sources.rows import Row, chat, make_items, read_file, read_rows, shown

HUB = "gorilla-llm/Berkeley-Function-Calling-Leaderboard"
SYSTEM = (
    "You can call the functions described below in JSON. Reply with the calls that the request needs and nothing else, "
    "as one Python list: [first.function(name=value, other='text'), second_function(name=[1, 2])]. "
    "Write every argument with its name, as a literal; leave out optional ones that the request does not ask for.\n\n"
)


def load(
    category: Literal["parallel_multiple", "parallel"] = "parallel_multiple",
    file: LocalFile | None = None,
    answers_file: LocalFile | None = None,
    problems: int | None = None,
    seed: int | None = None,
    revision: str | None = None,
) -> list[Item]:
    """Requests of the hub, or of a local `file` with the fields id, question, function, and `answers_file` beside it.

    The first `problems` of them, all if None, or with a `seed` that many by lot.
    """
    if (file is None) != (answers_file is None):
        raise BenchmarkError("file and answers_file belong together: give both, or neither to use the hub")
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
    scores = {
        "strict": is_right(calls, content["answers"], content["functions"]),
        "lenient": leniently_right(calls, content["answers"]),
    }
    return Grade(scores[correct], shown_calls(calls), scores)


def leniently_right(calls: Sequence[Call], answers: Sequence[Mapping[str, Any]]) -> bool:
    """Whether there are as many calls as answers, or more, and every answer has a call with its values."""
    if len(calls) < len(answers):
        return False
    return all(any(_is_like(call, answer) for call in calls) for answer in answers)


def shown_calls(calls: Sequence[Call]) -> str:
    """The calls in one line of JSON, cut short."""
    text = json.dumps([{call.name: call.arguments} for call in calls], ensure_ascii=False, default=str)
    return text if len(text) <= 2000 else f"{text[:2000]}..."


def _is_like(call: Call, answer: Mapping[str, Any]) -> bool:
    ((name, accepted),) = answer.items()
    if call.name != name:
        return False
    for parameter, options in accepted.items():
        values = [option for option in options if option != LEFT_OUT]
        if parameter not in call.arguments:
            if LEFT_OUT not in options:
                return False
        elif values and not any(_alike(call.arguments[parameter], option) for option in values):
            return False
    return True


def _alike(value: Any, option: Any) -> bool:
    """The lenient equality: case and outer space do not matter, and a text may stand for a number."""
    if value == option:
        return True
    if isinstance(value, list | tuple) and isinstance(option, list):
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
        raise row.error(f"there is no answer for id {id_!r}")
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
