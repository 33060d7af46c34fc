"""Text of others on one line of a terminal or log: names, tokens, templates and answers come from files of anyone.

No heavy imports here.
"""

from __future__ import annotations

import re

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
