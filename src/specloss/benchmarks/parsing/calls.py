"""Function calls that a model wrote, read as literals; nothing of them is ever evaluated.

Three forms are read, bare, in backquotes or in a fence: calls in Python's syntax, `[f(a=1), g.h(b="x")]`; a JSON list
of `{"name": ..., "arguments": {...}}` or `{"f": {...}}`; and such JSON objects in `<tool_call>` tags.

Python's syntax is read as the leaderboard does (bfcl-eval, `default_decode_ast_prompting`), oddities included: outer
brackets may be missing; a bare name, a subscript and a call without named arguments are texts; any sign before a number
is a minus; arguments without a name do not count. That reader runs `eval` on operators; here they are applied to
constants alone, so what it makes of names, calls and `%` of texts in them cannot be read here. The other forms, and a
fence that names its language, are what its readers for single models read.
"""

from __future__ import annotations

import ast
import json
import operator
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

MAX_CHARACTERS = 100_000  # of an output that is read
MAX_BITS = 14_000  # of a whole number: Python writes no longer ones

_FENCE, _OPEN, _CLOSE = "```", "<tool_call>", "</tool_call>"
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
}
_SIGNS: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
    ast.Not: operator.not_,
}


class Call(NamedTuple):
    """A function's name and its arguments by name; an argument `**x` has the name None."""

    name: str
    arguments: dict[str | None, Any]


class NotCallsError(ValueError):
    """A text that is no list of calls."""


def parse_calls(text: str) -> list[Call] | None:
    """The calls of an output; None if it cannot be read: too long, too deep, or anything but calls with literals."""
    if len(text) > MAX_CHARACTERS:
        return None
    for read in (_python_calls, _json_calls, _tagged_calls):
        try:
            return read(text)
        # all but the first: what a parser and operators make of texts that are wrong or too much for them
        except (NotCallsError, SyntaxError, ValueError, TypeError, ArithmeticError, RecursionError, MemoryError):
            continue
    return None


def _unfenced(text: str) -> str:
    """The text without the backquotes around it, and without the name of a language behind the first three."""
    text = text.strip("\n ")
    named = text.startswith(_FENCE)
    text = text.strip("`\n ")
    first, newline, rest = text.partition("\n")
    return rest.strip("\n ") if named and newline and first.strip().isidentifier() else text


def _python_calls(text: str) -> list[Call]:
    text = _unfenced(text)
    if not text:
        raise NotCallsError
    text = text if text.startswith("[") else f"[{text}"
    text = text if text.endswith("]") else f"{text}]"
    with warnings.catch_warnings():  # about escapes in strings
        warnings.simplefilter("ignore")
        tree = ast.parse(text, mode="eval").body
    if not isinstance(tree, ast.List):
        raise NotCallsError
    return [_python_call(node) for node in tree.elts]


def _python_call(node: ast.expr) -> Call:
    if not isinstance(node, ast.Call):
        raise NotCallsError
    return Call(_dotted(node.func), {keyword.arg: _value(keyword.value) for keyword in node.keywords})


def _dotted(node: ast.expr) -> str:
    """The names around the dots; what is no name, as in `lamps[0].set`, is left out."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        parts.append(node.id)
    return ".".join(reversed(parts))


def _value(node: ast.expr | None) -> Any:
    """A value written out, as the leaderboard reads it."""
    match node:
        case ast.Constant(value=constant):
            return "..." if constant is Ellipsis else _bounded(constant)
        case ast.Name():
            return node.id
        case ast.UnaryOp(operand=ast.Constant(value=bool() | int() | float() | complex() as constant)):
            return -_bounded(constant)
        case ast.BinOp():
            return _result(node)
        case ast.List():
            return [_value(element) for element in node.elts]
        case ast.Tuple():
            return tuple(_value(element) for element in node.elts)
        case ast.Dict():
            keys = [_value(key) for key in node.keys]
            if not all(isinstance(key, str | int | float | bool | None) for key in keys):
                raise NotCallsError
            return dict(zip(keys, map(_value, node.values), strict=True))
        case ast.Call(keywords=[]):
            return ast.unparse(node)
        case ast.Call():
            return dict([_python_call(node)])
        case ast.Subscript():
            return f"{ast.unparse(node.value)}[{ast.unparse(node.slice)}]"
    raise NotCallsError


def _result(node: ast.expr) -> Any:
    """What operators make of constants."""
    match node:
        case ast.Constant(value=constant):
            return _bounded(constant)
        case ast.List():
            return [_result(element) for element in node.elts]
        case ast.Tuple():
            return tuple(_result(element) for element in node.elts)
        case ast.UnaryOp():
            return _bounded(_SIGNS[type(node.op)](_result(node.operand)))
        case ast.BinOp():
            left, right = _result(node.left), _result(node.right)
            if _is_too_much(node.op, left, right) or type(node.op) not in _OPERATORS:
                raise NotCallsError
            return _bounded(_OPERATORS[type(node.op)](left, right))
    raise NotCallsError


def _is_too_much(sign: ast.operator, left: Any, right: Any) -> bool:
    """Whether an operator would make something large of small operands."""
    match sign, left, right:
        case ast.Pow(), int(), int():
            return right * left.bit_length() > MAX_BITS
        case ast.LShift(), int(), int():
            return right > MAX_BITS
        case ast.Mult(), str() | bytes() | list() | tuple(), int():
            return len(left) * right > MAX_CHARACTERS
        case ast.Mult(), int(), str() | bytes() | list() | tuple():
            return len(right) * left > MAX_CHARACTERS
        case ast.Mod(), str() | bytes(), _:
            return True  # a width in it can ask for any amount of memory
    return False


def _bounded(value: Any) -> Any:
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise NotCallsError
    return value


def _json_calls(text: str) -> list[Call]:
    values = json.loads(_unfenced(text.strip()))
    return [_json_call(value) for value in (values if isinstance(values, list) else [values])]


def _tagged_calls(text: str) -> list[Call]:
    parts = text.split(_OPEN)[1:]
    if not parts:
        raise NotCallsError
    return [call for part in parts for call in _json_calls(part.partition(_CLOSE)[0])]


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
