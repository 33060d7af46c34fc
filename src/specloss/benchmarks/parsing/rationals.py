r"""Plain arithmetic in LaTeX, evaluated exactly: numbers, + - * /, `\frac`, powers and factorials.

Every result's size is bounded before it is computed: an answer such as 9^(9^9) costs nothing.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction

MAX_BITS = 1 << 17  # of all intermediate results together: some 40,000 digits
MAX_DEPTH = 60  # of brackets and exponents

_SPACE = re.compile(r"\\left(?![A-Za-z])|\\right(?![A-Za-z])|\\[!,:; ]|[\s~$]+")
_TOKEN = re.compile(r"[0-9]+(?:\.[0-9]+)?|\.[0-9]+|\*\*|\\[A-Za-z]+|.", re.DOTALL)
_POWER = re.compile(r"\^|\*\*")
_NUMBER = re.compile(r"[0-9]+")
_DECIMAL = re.compile(r"[-+]?(?P<whole>[0-9]*)\.(?P<places>[0-9]+)")
_FRACTIONS = (r"\frac", r"\dfrac", r"\tfrac", r"\cfrac")
_TIMES, _OVER = ("*", r"\cdot", r"\times", "·", "×"), ("/", r"\div", "÷")
_LARGE = re.compile(r"!|\\(?:binom|dbinom|tbinom|sum|prod|exp|uparrow)(?![A-Za-z])|[0-9][eE]\+?[0-9]")
_FACTORIAL_OF_GROUP = re.compile(r"[)}\]!]\s*+!")


class TooLargeError(ValueError):
    """A value that would cost too much to compute."""


class _NotPlainError(ValueError):
    """Something else than plain arithmetic."""


@dataclass(frozen=True, slots=True)
class Rational:
    """A value, and to how many `places` a lone decimal is written: None for what is no decimal."""

    value: Fraction
    places: int | None = None

    def equals(self, other: Rational) -> bool:
        """Exactly; a decimal also stands for what it is the rounding of, to six significant places or more."""
        if self.value == other.value:
            return True
        coarse, fine = sorted((self, other), key=lambda each: math.inf if each.places is None else each.places)
        if coarse.places is None or coarse.places < 6 or abs(coarse.value) < Fraction(1, 10 ** (coarse.places - 5)):
            return False
        return abs(coarse.value - fine.value) * 10**coarse.places <= Fraction(1, 2)


def rational(text: str) -> Rational | None:
    """The value of plain arithmetic, None if the text is anything else. TooLargeError if it would cost too much."""
    plain = _SPACE.sub("", text)
    try:
        value = _Reader(_TOKEN.findall(plain)).whole()
    except _NotPlainError:
        return None
    decimal = _DECIMAL.fullmatch(plain)
    return Rational(value, len(decimal["places"]) if decimal else None)


def may_be_large(text: str) -> bool:
    """Whether a text may hold numbers too large to compute with, by a bound that never computes them.

    For what is beyond `rational`: factorials, sums and binomials with numbers of four digits, or within each other;
    numbers in the exponent of an exponent; exponents with a product that is out of proportion.
    """
    numbers = _NUMBER.findall(text)
    large = len(_LARGE.findall(text))
    if large and any(len(number) > 3 for number in numbers):
        return True
    if _FACTORIAL_OF_GROUP.search(text) and (large > 1 or _POWER.search(text)):
        return True
    bits, after_power = 4 * sum(map(len, numbers)) + 9000 * large, 1
    for power in _POWER.finditer(text):
        exponent = _group(text, power.end())
        digits = _NUMBER.findall(exponent)
        nested = _POWER.search(exponent) and len(digits) > 1
        if nested or (_LARGE.search(exponent) and digits) or any(len(number) > 6 for number in digits):
            return True
        after_power *= max(1, math.prod(max(1, int(number)) for number in digits))
        if bits * after_power > 64 * MAX_BITS:
            return True
    return False


def _group(text: str, start: int) -> str:
    """What an exponent at `start` holds: a group in brackets, else all up to a space or an operator."""
    while start < len(text) and text[start] in " \t":
        start += 1
    depth = 0
    for place in range(start, len(text)):
        depth += {"{": 1, "(": 1, "}": -1, ")": -1}.get(text[place], 0)
        if depth <= 0 and (text[place] in "})" or (place > start and text[place] in " \t+*/=,;\\")):
            return text[start : place + 1] + (text[place + 1 : place + 2] if text[place + 1 : place + 2] == "^" else "")
    return text[start:]


class _Reader:
    """Recursive descent over the tokens, with a purse of bits that all results are paid from."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens, self.place, self.depth, self.bits = tokens, 0, 0, MAX_BITS

    def whole(self) -> Fraction:
        value = self._sum()
        if self.place < len(self.tokens):
            raise _NotPlainError
        return value

    def _next(self) -> str:
        return self.tokens[self.place] if self.place < len(self.tokens) else ""

    def _take(self, *wanted: str) -> str:
        token = self._next()
        if token not in wanted or not token:
            return ""
        self.place += 1
        return token

    def _pay(self, bits: float) -> None:
        self.bits -= math.ceil(bits)
        if self.bits < 0:
            raise TooLargeError

    def _sum(self) -> Fraction:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise TooLargeError
        sign = self._take("-", "+")
        value = -self._product() if sign == "-" else self._product()
        while sign := self._take("-", "+"):
            other = self._product()
            self._pay(_bits(value) + _bits(other))
            value = value - other if sign == "-" else value + other
        self.depth -= 1
        return value

    def _product(self) -> Fraction:
        value = self._power()
        while sign := self._take(*_TIMES, *_OVER):
            other = self._power()
            self._pay(_bits(value) + _bits(other))
            value = value * other if sign in _TIMES else _quotient(value, other)
        return value

    def _power(self) -> Fraction:
        base = self._operand()
        while self._take("!"):
            base = self._factorial(base)
        if not self._take("^", "**"):
            return base
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise TooLargeError
        exponent = -self._power() if self._take("-") else self._power()
        self.depth -= 1
        if self._next() == "!" or exponent.denominator != 1 or (base == 0 and exponent <= 0):
            raise _NotPlainError
        if abs(base) in (0, 1):
            return base if exponent % 2 else abs(base)
        self._pay(_bits(base) * abs(exponent) if abs(exponent) < 2**40 else 2 * MAX_BITS)
        return base ** int(exponent)

    def _factorial(self, value: Fraction) -> Fraction:
        if value.denominator != 1 or value < 0 or self._next() == "!":
            raise _NotPlainError
        self._pay(int(value) * value.numerator.bit_length() if value < 2**40 else 2 * MAX_BITS)
        return Fraction(math.factorial(int(value)))

    def _operand(self) -> Fraction:
        if close := {"(": ")", "{": "}"}.get(self._next()):
            self.place += 1
            value = self._sum()
            if not self._take(close):
                raise _NotPlainError
            return value
        if self._take(*_FRACTIONS):
            upper = self._part()
            return _quotient(upper, self._part())
        token = self._next()
        if not token[:1].isascii() or not (token[:1].isdigit() or (token[:1] == "." and len(token) > 1)):
            raise _NotPlainError
        self.place += 1
        self._pay(4 * len(token))
        return Fraction(token)

    def _part(self) -> Fraction:
        r"""Of `\frac`: a group, or a single digit."""
        token = self._next()
        if token == "{":
            return self._operand()
        if not (token.isascii() and token.isdigit()):
            raise _NotPlainError
        if len(token) == 1:
            self.place += 1
        else:
            self.tokens[self.place] = token[1:]
        return Fraction(int(token[0]))


def _quotient(upper: Fraction, lower: Fraction) -> Fraction:
    if lower == 0:
        raise _NotPlainError
    return upper / lower


def _bits(value: Fraction) -> int:
    return value.numerator.bit_length() + value.denominator.bit_length()
