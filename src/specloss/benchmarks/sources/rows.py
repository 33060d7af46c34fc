"""Rows of a benchmark's source, a local file or a data set of the hub, and items made of them.

A fault is one line that begins with where it is: the file and the number of the row, from 1 (in a JSON Lines file that
is the line).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specloss.benchmarks import BenchmarkError, Item
from specloss.benchmarks.sources.hub import MOST_BYTES, MOST_ROWS, HubSet
from specloss.common.files import FileError, read_bytes

MOST_VALUES = 1 << 22  # of a Parquet file, each list entry counted
_SHOWN = 40  # characters of a bad value in an error


@dataclass(frozen=True, slots=True)
class Row:
    """One record; `where` is its file and number, for errors, and `number` counts from 0."""

    where: str
    number: int
    values: Mapping[str, Any]

    def text(self, *names: str) -> str:
        """The text under the first of `names` that is there; it must not be empty. A number is converted to text."""
        name, value = self._first(names)
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = str(value)
        if not isinstance(value, str):
            raise self.error(f"{name!r} must be a string, got {shown(value)}")
        if not value.strip():
            raise self.error(f"{name!r} is empty")
        if not _encodes(value):
            raise self.error(f"{name!r} has half of a surrogate pair: not valid Unicode")
        return value

    def list(self, *names: str) -> Sequence[Any]:
        """The list under the first of `names` that is there."""
        name, value = self._first(names)
        if not isinstance(value, list):
            raise self.error(f"{name!r} must be a list, got {shown(value)}")
        return value

    def texts(self, *names: str) -> list[str]:
        """The list of texts under the first of `names` that is there."""
        name, value = self._first(names)
        if not isinstance(value, list) or not all(isinstance(entry, str) and _encodes(entry) for entry in value):
            raise self.error(f"{name!r} must be a list of strings, got {shown(value)}")
        return value

    def error(self, message: str) -> BenchmarkError:
        """A fault of this row."""
        return BenchmarkError(f"{self.where}: {message}")

    def _first(self, names: Sequence[str]) -> tuple[str, Any]:
        for name in names:
            if self.values.get(name) is not None:
                return name, self.values[name]
        there = ", ".join(self.values) or "none"
        raise self.error(f"{' or '.join(map(repr, names))} is missing; there are: {shown(there, quote=False)}")


def read_rows(file: str | None, hub: HubSet) -> list[Row]:
    """The rows of `file` (Parquet by its suffix, else JSON Lines), or of the hub's data set if there is none.

    BenchmarkError for what cannot be read, UnreachableError if that is the hub.
    """
    if file is not None:
        return read_file(Path(file))
    return [Row(f"{hub.name} row {n + 1}", n, values) for n, values in enumerate(hub.read(read_file))]


def read_file(path: Path) -> list[Row]:
    """The rows of a local file. BenchmarkError, with file and row, if anything is wrong with it."""
    try:
        content = read_bytes(path, MOST_BYTES)
    except FileError as error:
        raise BenchmarkError(str(error)) from None
    if path.suffix == ".parquet":
        rows = [Row(f"{path} row {n + 1}", n, values) for n, values in enumerate(_parquet(path))]
    else:
        lines = enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1)
        found = [(f"{path} row {number}", line) for number, line in lines if line.strip()]
        if len(found) > MOST_ROWS:
            raise BenchmarkError(f"{path}: too large, {len(found):,} rows of at most {MOST_ROWS:,}")
        rows = [Row(where, n, _json(where, line)) for n, (where, line) in enumerate(found)]
    if not rows:
        raise BenchmarkError(f"{path}: the file has no rows")
    return rows


def make_items(
    rows: Sequence[Row], make: Callable[[Row], Item], problems: int | None = None, seed: int | None = None
) -> list[Item]:
    """An item of every row, checked for duplicate ids, and of these the first `problems`, or all.

    With a `seed` they come in an order that it and their ids alone decide, so that fewer problems are a prefix of more.
    """
    items: dict[str, Item] = {}
    for row in rows:
        item = make(row)
        if item.id in items:
            raise row.error(f"id {item.id!r} is also that of {items[item.id].where}")
        items[item.id] = item
    return choose(list(items.values()), problems, seed)


def choose(items: list[Item], problems: int | None, seed: int | None) -> list[Item]:
    """See `make_items`. BenchmarkError if there are not that many problems."""
    if problems is not None and not 1 <= problems <= len(items):
        raise BenchmarkError(f"problems must be from 1 to {len(items)}, the number available, got {problems}")
    if seed is not None:
        items = sorted(items, key=lambda item: hashlib.sha256(f"{seed}/{item.id}".encode()).digest())
    return items[:problems]


def chat(user: str, system: str = "") -> tuple[dict[str, str], ...]:
    """Messages of one turn, for `Item`."""
    turns = ({"role": "system", "content": system}, {"role": "user", "content": user})
    return turns if system else turns[1:]


def shown(value: Any, quote: bool = True) -> str:
    """A value for an error message, on one line and short."""
    text = " ".join((repr(value) if quote else str(value)).split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _json(where: str, line: bytes) -> dict[str, Any]:
    try:
        values = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise BenchmarkError(f"{where}: not UTF-8 text (byte {error.start} of the line)") from None
    except json.JSONDecodeError as error:
        raise BenchmarkError(f"{where}: not JSON: {error.msg} at column {error.colno}") from None
    except (RecursionError, ValueError) as error:  # nested too deeply, or a number of thousands of digits
        raise BenchmarkError(f"{where}: not JSON that can be read: {shown(str(error), quote=False)}") from None
    if not isinstance(values, dict):
        raise BenchmarkError(f"{where}: must be a JSON object, got {shown(values)}")
    return values


def _parquet(path: Path) -> list[dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        _check_parquet(path)
        batches = pq.ParquetFile(path).iter_batches(4096)
        rows: list[dict[str, Any]] = []
        for batch in batches:
            try:
                rows += batch.to_pylist()
            except UnicodeDecodeError:
                for row in range(len(batch)):
                    _decoded(batch.slice(row, 1), f"{path} row {len(rows) + row + 1}")
    except (pa.ArrowException, OSError) as error:
        raise BenchmarkError(f"{path}: not a Parquet file: {shown(str(error), quote=False)}") from None
    return rows


def _check_parquet(path: Path) -> None:
    """BenchmarkError for a file of more than it should have once it is unpacked: one text can stand for a million."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    def most(what: str, count: int, limit: int) -> None:
        if count > limit:
            raise BenchmarkError(f"{path}: too large, {count:,} {what} of at most {limit:,}")

    about = pq.read_metadata(path)
    columns = [about.schema.column(number) for number in range(about.num_columns)]
    chunks = [
        (n, about.row_group(group).column(n)) for group in range(about.num_row_groups) for n in range(len(columns))
    ]
    most("rows", about.num_rows, MOST_ROWS)
    most("values", sum(chunk.num_values for _, chunk in chunks), MOST_VALUES)
    most("bytes", sum(chunk.total_uncompressed_size for _, chunk in chunks), MOST_BYTES)
    # texts are kept once for all rows that have them, and their lengths are added up before they are given to each
    texts = [column.path for column in columns if column.physical_type == "BYTE_ARRAY"]
    size = sum(max(columns[n].length, 0) * chunk.num_values for n, chunk in chunks)
    most("bytes", size, MOST_BYTES)
    for batch in pq.ParquetFile(path, read_dictionary=texts).iter_batches(4096, columns=texts or None):
        for column in batch.columns:
            for leaf in _leaves(column):
                if pa.types.is_dictionary(leaf.type):
                    lengths = pc.binary_length(leaf.dictionary).take(leaf.indices)
                    size += pc.sum(lengths, min_count=0).as_py()
                    most("bytes", size, MOST_BYTES)


def _leaves(column: Any) -> Iterator[Any]:
    """The columns without parts that a column is made of."""
    import pyarrow.types as types

    if types.is_struct(column.type):
        for part in column.flatten():
            yield from _leaves(part)
    elif types.is_list(column.type) or types.is_large_list(column.type) or types.is_map(column.type):
        parts = [column.keys, column.items] if types.is_map(column.type) else [column.flatten()]
        for part in parts:
            yield from _leaves(part)
    else:
        yield column


def _decoded(row: Any, where: str) -> None:
    try:
        row.to_pylist()
    except UnicodeDecodeError as error:
        raise BenchmarkError(f"{where}: not UTF-8 text (byte {error.start} of a text in it)") from None


def _encodes(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
