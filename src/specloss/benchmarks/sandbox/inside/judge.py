"""The trusted side: runs the tests, with a function under test that asks the other process for each value.

The expected values never leave this process, and what arrives are plain values, so tests cannot be fooled: equality,
`assert`, `isclose` are this process's own.
"""

from __future__ import annotations

import json
import os
import sys
from types import CodeType
from typing import Any, BinaryIO

import wire


class AnswerError(Exception):
    """The code under test raised, ended, or sent something that is no value."""


def main(requests: int, replies: int) -> None:
    """Read a task (JSON) from stdin, run its tests, and write `{"passed": bool, "reason": str}` to stdout.

    It is `{"fault": str}` for tests that cannot be run, or that pass, whatever the answer is. Nothing is written if the
    other side never came up, before it had run any of the code.
    """
    verdict = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # prints of a test script are no verdict
    task = json.load(sys.stdin)
    outgoing, incoming = os.fdopen(requests, "wb"), os.fdopen(replies, "rb")
    if not _is_ready(incoming):
        return
    namespace: dict[str, Any] = {"__name__": "tests"}
    try:
        exec(task["imports"], namespace)
        tests = compile(task["tests"], "<tests>", "exec")
    except Exception as error:
        json.dump({"fault": _describe(error)}, verdict)
    else:
        given = dict(namespace)
        try:
            reason = _run(task, tests, namespace, outgoing, incoming)
        except BaseException as error:
            reason = _describe(error)
        if reason is None and not _can_fail(task["entry_point"], tests, given):
            json.dump({"fault": f"nothing that {task['entry_point']} returns can fail them"}, verdict)
        else:
            json.dump({"passed": reason is None, "reason": (reason or "")[:300]}, verdict)
    verdict.close()


def _is_ready(incoming: BinaryIO) -> bool:
    try:
        return wire.receive(incoming) == ["ready"]
    except EOFError:
        return False


def _run(
    task: dict[str, Any], tests: CodeType, namespace: dict[str, Any], outgoing: BinaryIO, incoming: BinaryIO
) -> str | None:
    """Why the tests failed; None if they passed."""

    def ask(*request: Any) -> Any:
        try:
            wire.send(outgoing, list(request))
            reply = wire.receive(incoming)
        except (EOFError, BrokenPipeError):
            raise AnswerError("it ended before it answered") from None
        except wire.WireError as error:
            raise AnswerError(str(error)) from None
        if reply[0] != "value" or len(reply) != 2:
            raise AnswerError(str(reply[-1]))
        return reply[1]

    def call(*positional: Any, **named: Any) -> Any:
        return ask("call", task["entry_point"], wire.encode(list(positional)), wire.encode(named))

    if "numpy" in task["tests"]:
        _compare_shapes()
    namespace[task["entry_point"]] = call
    try:
        ask("define", task["answer_imports"], task["answer"])
        exec(tests, namespace)
    except AnswerError as error:
        return f"the code: {error}"
    except AssertionError as error:
        return f"a test failed: {error}"
    return None


def _can_fail(entry_point: str, tests: CodeType, given: dict[str, Any]) -> bool:
    """Whether the tests fail for one of three values that are never right everywhere: equal to nothing, or None."""
    for value in (wire.Opaque("wrong", True), wire.Opaque("wrong", False), None):
        try:
            exec(tests, given | {entry_point: lambda *_, value=value, **__: value})
        except BaseException:
            return True
    return False


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _compare_shapes() -> None:
    """`allclose` broadcasts: to it an empty list is close to any number. Values of different shapes are not."""
    import numpy

    close = numpy.allclose

    def allclose(a: Any, b: Any, *arguments: Any, **named: Any) -> bool:
        return numpy.shape(a) == numpy.shape(b) and close(a, b, *arguments, **named)

    numpy.allclose = allclose
