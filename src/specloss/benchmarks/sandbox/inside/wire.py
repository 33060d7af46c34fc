"""Plain values over a pipe, as JSON: no value that arrives can have methods, or a class, of its sender's making.

JSON's own values stand for themselves; all others are an object with one key, their kind. Iterators arrive as iterators
over what was left in them. Anything else arrives as an `Opaque`, which equals nothing.
"""

from __future__ import annotations

import base64
import itertools
import json
import re
import sys
import zlib
from collections import Counter, deque
from decimal import Decimal
from fractions import Fraction
from typing import Any, BinaryIO

MAX_MESSAGE = 64 << 20  # bytes
MAX_ITERATED = 2_000_000  # items taken from an iterator
MAX_TABLE = 256 << 20  # cells of a table
MIN_TABLE = 1000  # rows
_PLAIN = {str, bool, float, type(None)}
_LARGE = 10**1000  # more digits are slow to read and, from 4300 on, refused
_ARRAY_TYPE = re.compile(r"[<>|=][biufcSU]\d{1,4}")


class WireError(Exception):
    """What arrived is no message."""


class Opaque:
    """A value of a class that does not travel. Equal to nothing but itself; as true as its sender says."""

    def __init__(self, kind: str, truth: bool) -> None:
        """`kind` is the name of its class."""
        self.kind, self.truth = kind, truth

    def __bool__(self) -> bool:
        return self.truth

    def __repr__(self) -> str:
        return f"<{self.kind}>"


def send(stream: BinaryIO, message: list[Any]) -> None:
    """Write a message whose values are encoded. ValueError if it is too long."""
    data = json.dumps(message).encode()
    if len(data) > MAX_MESSAGE:
        raise ValueError(f"a value of {len(data) >> 20} MiB is too long")
    stream.write(len(data).to_bytes(8, "big") + data)
    stream.flush()


def receive(stream: BinaryIO) -> list[Any]:
    """Read a message and decode its values. EOFError at the end; WireError for anything but a message."""
    length = int.from_bytes(_read(stream, 8), "big")
    if length > MAX_MESSAGE:
        raise WireError(f"a message of {length} bytes is too long")
    try:
        message = json.loads(_read(stream, length), object_hook=_decode)
    except (
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        AttributeError,
        RecursionError,
        ArithmeticError,
        zlib.error,
    ) as error:
        raise WireError(f"not a message: {type(error).__name__}") from None
    if type(message) is not list or not message:
        raise WireError("not a message")
    return message


def _read(stream: BinaryIO, length: int) -> bytes:
    data = stream.read(length)
    if len(data) < length:
        raise EOFError("the other side has ended")
    return data


def encode(value: Any) -> Any:
    """A value as JSON. RecursionError for one that is too deep or holds itself."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is int:
        return value if -_LARGE < value < _LARGE else {"int": hex(value)}
    if kind is list:
        return _table(value) or _items(value)
    if kind is tuple:
        return {"tuple": _items(value)}
    if kind in (set, frozenset, deque):
        return {kind.__name__: _items(value)}
    if kind is dict:
        return {"dict": _pairs(value)}
    if kind in (bytes, bytearray):
        return {kind.__name__: base64.b64encode(value).decode()}
    if kind is complex:
        return {"complex": [value.real, value.imag]}
    if kind is range:
        return {"range": [value.start, value.stop, value.step]}
    if kind is Decimal:
        return {"Decimal": str(value)}
    if kind is Fraction:
        return {"Fraction": f"{value.numerator}/{value.denominator}"}
    if kind is type({}.keys()):
        return {"keys": _items(value)}
    if kind is type({}.values()):
        return {"values": _items(value)}
    if kind is type({}.items()):
        return {"items": _pairs(dict(value))}
    return _encode_other(value)


def _encode_other(value: Any) -> Any:
    """Subclasses as what they inherit from, NumPy's arrays and scalars, iterators."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
        array = numpy.asarray(value)
        if array.dtype.kind in "biufcSU":
            data = base64.b64encode(array.tobytes()).decode()
            return {"array" if isinstance(value, numpy.ndarray) else "scalar": [array.dtype.str, array.shape, data]}
        return {"object": ["array", False]}
    if isinstance(value, Counter):
        return {"Counter": _pairs(value)}
    for base in (int, float, str, tuple, list, dict, set, frozenset):
        if isinstance(value, base):
            return encode(base(value))
    if hasattr(value, "__next__"):
        items = list(itertools.islice(value, MAX_ITERATED + 1))
        if len(items) > MAX_ITERATED:
            raise ValueError("an iterator that does not end")
        return {"iterator": _items(items)}
    try:
        truth = bool(value)
    except Exception:
        truth = False
    return {"object": [type(value).__name__, truth]}


def _items(values: Any) -> list[Any]:
    return [value if type(value) in _PLAIN else encode(value) for value in values]


def _table(rows: list[Any]) -> Any:
    """Many tuples of one length, of few different texts or floats: combinations can have 10^8 of them. Else None."""
    if len(rows) < MIN_TABLE or set(map(type, rows)) != {tuple} or len(set(map(len, rows))) != 1 or not rows[0]:
        return None
    different: set[Any] = set()
    try:
        for row in rows:
            different.update(row)
            if len(different) > 256:
                return None
    except TypeError:  # not hashable
        return None
    if set(map(type, different)) not in ({str}, {float}) or len(rows) * len(rows[0]) > MAX_TABLE:
        return None
    values = list(different)
    place = {value: number for number, value in enumerate(values)}
    cells = bytes(map(place.__getitem__, itertools.chain.from_iterable(rows)))
    return {"table": [values, len(rows[0]), base64.b64encode(zlib.compress(cells, 1)).decode()]}


def _untable(parts: list[Any]) -> list[tuple[Any, ...]]:
    values, width, data = parts
    unpacker = zlib.decompressobj()
    cells = unpacker.decompress(base64.b64decode(data), MAX_TABLE)
    if unpacker.unconsumed_tail:
        raise ValueError("a table that is too large")
    value = values.__getitem__
    return [tuple(map(value, cells[start : start + width])) for start in range(0, len(cells), width)]


def _pairs(values: dict[Any, Any]) -> list[list[Any]]:
    return [[encode(key), encode(value)] for key, value in values.items()]


def _array(parts: list[Any]) -> Any:
    import numpy

    kind, shape, data = parts
    if not _ARRAY_TYPE.fullmatch(kind):
        raise ValueError(kind)
    return numpy.frombuffer(base64.b64decode(data), numpy.dtype(kind)).reshape(shape).copy()


_DECODERS = {
    "int": lambda text: int(text, 16),
    "tuple": tuple,
    "table": _untable,
    "set": set,
    "frozenset": frozenset,
    "deque": deque,
    "dict": dict,
    "Counter": lambda pairs: Counter(dict(pairs)),
    "bytes": base64.b64decode,
    "bytearray": lambda text: bytearray(base64.b64decode(text)),
    "complex": lambda parts: complex(*map(float, parts)),
    "range": lambda parts: range(*parts),
    "Decimal": Decimal,
    "Fraction": Fraction,
    "keys": lambda items: dict.fromkeys(items).keys(),
    "values": lambda items: dict(enumerate(items)).values(),
    "items": lambda pairs: dict(pairs).items(),
    "array": _array,
    "scalar": lambda parts: _array(parts)[()],
    "iterator": iter,
    "object": lambda parts: Opaque(str(parts[0]), parts[1] is True),
}


def _decode(value: dict[str, Any]) -> Any:
    ((kind, content),) = value.items()
    return _DECODERS[kind](content)
