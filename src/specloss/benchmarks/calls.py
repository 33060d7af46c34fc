"""Function calls that a model wrote, read as literals; nothing of them is ever evaluated.

Three forms are read, alone or in a code fence: a list of calls in Python's syntax, `[f(a=1), g.h(b="x")]`; a JSON list
of `{"name": ..., "arguments": {...}}` or `{"f": {...}}`; and such JSON objects in `<tool_call>` tags.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Iterable
from typing import Any, NamedTuple

MAX_CHARACTERS = 100_000  # of an output that is read
MAX_DEPTH = 60  # of brackets, and of what they hold

_FENCE, _OPEN, _CLOSE = "```", "<tool_call>", "</tool_call>"


class Call(NamedTuple):
    """A function's name and its arguments by name."""

    name: str
    arguments: dict[str, Any]


class NotCallsError(ValueError):
    """A text that is no list of calls."""


def parse_calls(text: str) -> list[Call] | None:
    """The calls of an output, None if it cannot be read: too long, too deep, or anything but calls with literals."""
    if len(text) > MAX_CHARACTERS or _depth(text) > MAX_DEPTH:
        return None
    try:
        if _OPEN in text:
            return [call for part in text.split(_OPEN)[1:] for call in _json_calls(part.partition(_CLOSE)[0])]
        text = _unfenced(text.strip())
        try:
            return _json_calls(text)
        except json.JSONDecodeError:
            return _python_calls(text)
    # the last three: what a parser makes of texts that are too much for it
    except (NotCallsError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def _unfenced(text: str) -> str:
    """What stands in a code fence, if the text is one; its first line may name a language."""
    if not (text.startswith(_FENCE) and text.endswith(_FENCE) and len(text) > 2 * len(_FENCE)):
        return text
    first, newline, rest = text[len(_FENCE) : -len(_FENCE)].partition("\n")
    return (rest if newline and first.strip().isidentifier() else first + newline + rest).strip()


def _json_calls(text: str) -> list[Call]:
    values = json.loads(text)
    return [_json_call(value) for value in (values if isinstance(values, list) else [values])]


def _json_call(value: Any) -> Call:
    if isinstance(value, dict) and isinstance(value.get("function"), dict):  # as the API of OpenAI has it
        value = value["function"]
    if not isinstance(value, dict):
        raise NotCallsError
    if isinstance(value.get("name"), str):
        name, arguments = value["name"], value.get("arguments", value.get("parameters", {}))
    elif len(value) == 1:
        ((name, arguments),) = value.items()
    else:
        raise NotCallsError
    if isinstance(arguments, str):
        arguments = json.loads(arguments)
    if not isinstance(arguments, dict):
        raise NotCallsError
    return Call(name, arguments)


def _python_calls(text: str) -> list[Call]:
    with warnings.catch_warnings():  # about escapes in strings
        warnings.simplefilter("ignore")
        tree = ast.parse(text if text.startswith("[") else f"[{text}]", mode="eval").body
    if not text or not isinstance(tree, ast.List):
        raise NotCallsError
    nodes: Iterable[ast.expr] = tree.elts
    return [_python_call(node) for node in nodes]


def _python_call(node: ast.expr) -> Call:
    if not isinstance(node, ast.Call) or node.args:
        raise NotCallsError  # an argument without its name says too little
    arguments: dict[str, Any] = {}
    for keyword in node.keywords:
        if keyword.arg is None or keyword.arg in arguments:
            raise NotCallsError
        arguments[keyword.arg] = _literal(keyword.value)
    return Call(_dotted(node.func), arguments)


def _dotted(node: ast.expr) -> str:
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        raise NotCallsError
    return ".".join([node.id, *reversed(parts)])


def _literal(node: ast.expr) -> Any:
    """A value written out. A bare word is a text, as the official checker has it."""
    match node:
        case ast.Constant(value=bool() | int() | float() | str() | None):
            return node.value
        case ast.Name():
            return node.id
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=ast.Constant(value=int() | float() as value)):
            return -value if isinstance(node.op, ast.USub) else value
        case ast.List() | ast.Tuple():
            return [_literal(element) for element in node.elts]
        case ast.Dict():
            keys = [_literal(key) if key is not None else None for key in node.keys]
            if not all(isinstance(key, str | int | float | bool) for key in keys):
                raise NotCallsError
            return dict(zip(keys, map(_literal, node.values), strict=True))
    raise NotCallsError


def _depth(text: str) -> int:
    """The most brackets open at once, those within strings counted as well: an upper bound."""
    depth = most = 0
    for bracket in re.findall(r"[\[\](){}]", text):
        depth = depth + 1 if bracket in "[({" else max(depth - 1, 0)
        most = max(most, depth)
    return most
