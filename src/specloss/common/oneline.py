"""Text of others on one line of a terminal or log: names, tokens, templates and answers come from files of anyone.

No heavy imports here.
"""

from __future__ import annotations

import errno
import logging
import re
import warnings
from typing import Any

_BREAKS = re.compile("[ ]*[\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029]+[ ]*")


def plain(text: str) -> str:
    """`text` on one line, with escapes for what does not print: it can neither forge a line nor steer a terminal."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode("ascii")
        for char in _BREAKS.sub(" ", text)
    )


def plain_lines(text: str) -> str:
    """The same of each line of a longer text, such as a traceback."""
    return "\n".join(map(plain, text.split("\n")))


class OneLine(Exception):
    """Mixed into the errors that users see: whoever prints one, prints it `plain`."""

    def __str__(self) -> str:
        return plain(super().__str__())


class _PlainRecord(logging.LogRecord):
    def getMessage(self) -> str:
        return plain_lines(super().getMessage())


def plain_logs() -> None:
    """Make what libraries log and warn of in this process `plain`: they quote the files that they are given."""
    logging.setLogRecordFactory(_PlainRecord)
    warnings.formatwarning = _plain_warning


_FORMAT = warnings.formatwarning


def _plain_warning(*arguments: Any, **named: Any) -> str:
    return plain_lines(_FORMAT(*arguments, **named))


def is_interrupt(error: BaseException | None) -> bool:
    """Ctrl-C, or what a library made of it: lazy imports of transformers say that a module cannot be imported."""
    return error is not None and (
        isinstance(error, KeyboardInterrupt) or is_interrupt(error.__cause__ or error.__context__)
    )


def is_for_users(error: Exception) -> bool:
    """Errors that say all in one line: those of this package, by convention, and what the system says of a file."""
    return type(error).__module__.startswith("specloss.") or (
        isinstance(error, OSError) and (error.filename is not None or error.errno == errno.ENOSPC)
    )
