"""The untrusted side: defines the code under test and calls its function for the judge. Nothing here is a secret.

Whatever the code does to this process, the only thing that leaves it is values.
"""

from __future__ import annotations

import os
from typing import Any

import wire


def main(requests: int, replies: int) -> None:
    """Serve requests from one pipe on the other until it ends: `define` once, then any number of `call`."""
    incoming, outgoing = os.fdopen(requests, "rb"), os.fdopen(replies, "wb")
    wire.send(outgoing, ["ready"])
    # not __main__: what a script would do when it is run is not what is tested
    namespace: dict[str, Any] = {"__name__": "answer"}
    while True:
        try:
            request, *arguments = wire.receive(incoming)
        except EOFError:
            return
        try:
            reply = ["value", wire.encode(_serve(namespace, request, *arguments))]
        except BaseException as error:
            reply = ["error", _describe(error)]
        try:
            wire.send(outgoing, reply)
        except ValueError as error:
            wire.send(outgoing, ["error", _describe(error)])


def _serve(namespace: dict[str, Any], request: str, *arguments: Any) -> Any:
    if request == "define":
        imports, code = arguments
        exec(imports, namespace)
        exec(compile(code, "<answer>", "exec"), namespace)
        return None
    name, positional, named = arguments
    return namespace[name](*positional, **named)


def _describe(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"[:300]
    except BaseException:
        return "an error that cannot be shown"
