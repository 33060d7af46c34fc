"""The leaderboard's rule for parallel calls in Python: BFCL's AST checker, told in its own words.

Source: `ast_checker.py` of bfcl-eval 2026.3.23 (Apache-2.0), whose verdicts on thousands of answers this module is
tested against. Its oddities are the rule, and are kept:

- answers take their calls one by one, each the first that fits: no second try for one that would have had another;
- a value has exactly its parameter's type (a whole number will do for a float, a tuple for a "tuple"), or that of the
  first accepted value; with the latter, it must be equal to an accepted value, punctuation and case included;
- each element of an array has the array's inner type, or that of the first element of the accepted array, unless the
  parameter may be left out, when elements may be anything;
- texts are compared without case, spaces and some punctuation, at the top of a value and one level down, no deeper.

Where that checker ends with an exception, an answer is wrong here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from specloss.benchmarks.parsing.calls import Call

_IGNORED = re.compile(r"[ ,./\-_*^]")  # within texts
_TYPES: dict[str, type] = {
    "integer": int,
    "float": float,
    "string": str,
    "boolean": bool,
    "array": list,
    "tuple": list,
    "dict": dict,
    "any": str,
    # not of the checker, which knows no other types: names of JSON schema
    "number": float,
    "object": dict,
}
_FLOATS = ("float", "number")
_NESTED = ("array", "tuple")
LEFT_OUT = ""  # among accepted values: the parameter may be left out


def is_right(
    calls: Sequence[Call], answers: Sequence[Mapping[str, Any]], functions: Sequence[Mapping[str, Any]]
) -> bool:
    """Whether every answer `{name: {parameter: [accepted values]}}` has its call, in any order, and no call is left.

    `functions` are the schemas, `{"name": ..., "parameters": {"properties": ..., "required": [...]}}`; of several with
    one name the first counts.
    """
    if len(calls) != len(answers):
        return False
    left = list(calls)
    for answer in answers:
        ((name, accepted),) = answer.items()
        schema = next((function["parameters"] for function in functions if function["name"] == name), None)
        fitting = (n for n, call in enumerate(left) if schema and call.name == name and _fits(call, accepted, schema))
        if (place := next(fitting, None)) is None:
            return False
        del left[place]
    return True


def _fits(call: Call, accepted: Mapping[str, Sequence[Any]], schema: Mapping[str, Any]) -> bool:
    given, properties = call.arguments, schema.get("properties", {})
    if any(name not in given for name in schema.get("required", [])):
        return False
    try:
        return all(
            name in properties and name in accepted and _is_accepted(value, accepted[name], properties[name])
            for name, value in given.items()
        ) and all(name in given or LEFT_OUT in options for name, options in accepted.items())
    except (TypeError, AttributeError, KeyError, IndexError, OverflowError, RecursionError):
        return False  # values of a form that the checker did not expect


def _is_accepted(value: Any, accepted: Sequence[Any], schema: Mapping[str, Any]) -> bool:
    """Whether a value has the type of its parameter or of its answer, and is one of those accepted."""
    kind = schema.get("type", "any")
    expected = _TYPES.get(kind, str)
    inner = _TYPES.get(schema.get("items", {}).get("type", "any")) if kind in _NESTED and "items" in schema else None
    if kind == "tuple" and type(value) is tuple:
        value = list(value)
    if kind in _FLOATS and type(value) is int:
        value = float(value)
    first = _first_type(accepted)
    if type(value) is expected:
        if inner is not None and not any(_have_type(value, option, inner) for option in accepted):
            return False
    elif type(value) is not first:
        return False
    if first in (None, expected) and type(value) is expected:
        if expected is dict:
            return any(_is_object(value, option) for option in accepted if option != LEFT_OUT)
        if inner is dict:
            return any(_are_objects(value, option) for option in accepted)
        if expected is str:
            return _standard(value) in [_standard(option) for option in accepted if isinstance(option, str)]
        if expected is list:
            return _standard_all(value) in [_standard_all(option) for option in accepted]
    # the answer is a variable, or of a type without a form of its own
    return value in accepted


def _first_type(accepted: Sequence[Any]) -> type | None:
    return next((type(option) for option in accepted if option != LEFT_OUT), None)


def _have_type(values: list[Any], option: Any, inner: type) -> bool:
    """Whether elements have the inner type of their array, or that of the accepted array's first element."""
    return type(option) is not list or all(type(value) in (inner, _first_type(option)) for value in values)


def _is_object(value: Mapping[Any, Any], option: Mapping[str, Sequence[Any]]) -> bool:
    """Whether each key has one of its accepted values, and no key is missing that may not be."""
    return all(
        key in option and (_standard(entry) if type(entry) is str else entry) in _standard_all(option[key])
        for key, entry in value.items()
    ) and all(key in value or LEFT_OUT in entries for key, entries in option.items())


def _are_objects(values: list[Any], option: Any) -> bool:
    return len(values) == len(option) and all(
        one != LEFT_OUT and _is_object(value, one) for value, one in zip(values, option, strict=True)
    )


def _standard(text: str) -> str:
    return _IGNORED.sub("", text).lower().replace("'", '"')


def _standard_all(values: Sequence[Any]) -> list[Any]:
    return [_standard(value) if type(value) is str else value for value in values]
