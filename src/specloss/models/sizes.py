"""What a model's files declare, held against what is there, before anything is read or made by it.

A file of 50 bytes can declare a list of 2^60 entries, and a config of one line a million layers. Every size here comes
from a file of anyone. Each fault is a FileError, in one line. Imports neither torch nor transformers.
"""

from __future__ import annotations

import json
import math
import re
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from specloss.common.files import FileError, check_file, read_json, shown_path

LARGEST_CONFIG = 1 << 24  # bytes of a config.json: those of published models have thousands
LARGEST_TEXT = 1 << 28  # bytes of a tokenizer, which libraries read whole: 35 MB for 260,000 tokens
LARGEST_HEADER = 1 << 25  # bytes of a safetensors header, which has some 120 for each tensor
MOST_TENSORS = 1 << 17
MOST_FIELDS = 1 << 12  # of a GGUF file, which have some 40
MOST_ENTRIES = 1 << 21  # of all lists of a GGUF file: 1.3 million for 260,000 tokens. Each becomes an array of NumPy
LONGEST_NAME, LONGEST_STRING = 1 << 10, 1 << 24
MOST_DIMENSIONS = 4
# What a config calls a size, by the end of the key, and more than any published model has of it
_MOST = (
    (re.compile(r"(^|_)(layers?|blocks?)$"), 1 << 10),
    (re.compile(r"(^|_)heads?$"), 1 << 14),
    (re.compile(r"(^|_)experts?$"), 1 << 14),
    (re.compile(r"(^|_)vocab_size$|^vocab_size_"), 1 << 23),
    (re.compile(r"(^|_)(n_positions|n_ctx|max_position_embeddings|max_sequence_length|max_seq_len)$"), 1 << 27),
    (re.compile(r"(^|_)(size|dim|embd|model|inner|rank|width|length)$"), 1 << 24),
)
_SCALARS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # GGUF: bytes of a value, by its type
_STRING, _ARRAY = 8, 9
_MAGIC = b"GGUF"


def check_folder(folder: Path) -> None:
    """FileError if a file of a model folder is none that a library should be given: a pipe, a huge text, a bomb."""
    for pattern, limit in (("*.json", LARGEST_TEXT), ("*.model", LARGEST_TEXT), ("*.jinja", LARGEST_CONFIG)):
        for path in sorted(folder.glob(pattern)):
            check_file(path)
            most = LARGEST_CONFIG if path.name.endswith("config.json") else limit
            if path.stat().st_size > most:
                raise FileError(f"{shown_path(path)}: too large, more than {most:,} bytes")
    for path in sorted(folder.glob("*.safetensors")):
        safetensors_header(path)
    for path in sorted(folder.glob("pytorch_model*.bin")):
        check_archive(path)
    if (folder / "config.json").exists():
        check_config(folder / "config.json")


def check_config(path: Path) -> dict[str, Any]:
    """The content of a `config.json` whose sizes a model can have. FileError for any other."""
    config = read_json(path, LARGEST_CONFIG)
    if not isinstance(config, dict):
        raise FileError(f"{shown_path(path)} is no model config: it has no keys")
    for key, value in _numbers(config):
        most = next((most for pattern, most in _MOST if pattern.search(key)), None)
        if most is not None and abs(value) > most:
            raise FileError(f"{shown_path(path)}: {key} is {value:.3g}, more than any model has (at most {most:,})")
    return config


def _numbers(config: dict[str, Any]) -> Iterator[tuple[str, int | float]]:
    """Each number of a config with its key, at any depth."""
    left: list[tuple[str, Any]] = list(config.items())
    while left:
        key, value = left.pop()
        if isinstance(value, dict):
            left += value.items()
        elif isinstance(value, list):
            left += [(key, entry) for entry in value]
        elif isinstance(value, int | float) and not isinstance(value, bool):
            # thousands of digits have no place in a message either
            yield str(key), value if isinstance(value, float) or abs(value) < 1 << 64 else math.inf


def safetensors_header(path: Path) -> dict[str, tuple[str, int]]:
    """(type, bytes) of each tensor of a safetensors file by name. FileError if it declares more than it has."""
    check_file(path)
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, LARGEST_HEADER):
            raise FileError(
                f"{shown_path(path)}: a damaged or cut safetensors file, it has {size:,} bytes and declares a header "
                f"of {length:,}"
            )
        text = file.read(length)
    try:
        header = json.loads(text)
        header.pop("__metadata__", None)
        found = {name: (tensor["dtype"] + "", *map(int, tensor["data_offsets"])) for name, tensor in header.items()}
        tensors = {name: (dtype, end - start) for name, (dtype, start, end) in found.items()}
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise FileError(f"{shown_path(path)}: a damaged safetensors file ({type(error).__name__} {error})") from None
    if any(not 0 <= start <= end <= size - 8 - length for _, start, end in found.values()):
        raise FileError(f"{shown_path(path)}: a damaged or cut safetensors file, it has {size:,} bytes of more")
    return tensors


def check_archive(path: Path) -> None:
    """FileError for a `pytorch_model.bin` that unpacks to more than it is: torch packs nothing."""
    check_file(path)
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
    except (zipfile.BadZipFile, ValueError, OSError):  # of torch before 1.6, or damaged: torch says so
        return
    if unpacked > path.stat().st_size:
        raise FileError(f"{shown_path(path)}: an archive of {path.stat().st_size:,} bytes that unpacks to {unpacked:,}")


def check_gguf(path: Path) -> None:
    """FileError unless a GGUF file's header, lists and tensors fit into the file and into memory."""
    check_file(path)
    with path.open("rb") as file:
        if file.read(4) != _MAGIC:
            raise FileError(f"{shown_path(path)}: not a GGUF file, it does not begin with {_MAGIC.decode()}")
        try:
            _Gguf(file, path.stat().st_size).check()
        except (FileError, struct.error, UnicodeDecodeError) as error:
            reason = "its header is cut" if isinstance(error, struct.error) else error
            raise FileError(
                f"{shown_path(path)}: a damaged or cut GGUF file of {path.stat().st_size:,} bytes ({reason})"
            ) from None


class _Gguf:
    """A walk through the header of a GGUF file, from behind its first four bytes, which keeps nothing of it."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self.file, self.size, self.entries = file, size, 0

    def check(self) -> None:
        """FileError or struct.error for what cannot be."""
        (version,) = self._read("I")
        if version not in (2, 3):
            raise FileError(f"version {version}, which is none of 2 and 3 in this machine's byte order")
        tensors, fields = self._read("QQ")
        self._limit("tensors", tensors, MOST_TENSORS, 24)
        self._limit("fields", fields, MOST_FIELDS, 13)
        alignment = 32
        for _ in range(fields):
            name = self._string(LONGEST_NAME)
            (kind,) = self._read("I")
            if name == b"general.alignment" and kind == 4:
                (alignment,) = self._read("I")
            else:
                self._skip(kind)
        ends = [self._tensor() for _ in range(tensors)]
        start = self.file.tell()
        start += -start % max(alignment, 1)
        if start + max(ends, default=0) > self.size:
            raise FileError(f"its tensors need at least {start + max(ends):,}")

    def _tensor(self) -> int:
        """Where a tensor ends, from the start of the data."""
        from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

        self._string(LONGEST_NAME)
        (count,) = self._read("I")
        self._limit("dimensions of a tensor", count, MOST_DIMENSIONS, 8)
        elements = math.prod(self._read(f"{count}Q"))
        kind, offset = self._read("IQ")
        try:
            block, width = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
        except (ValueError, KeyError):
            raise FileError(f"a tensor of the unknown type {kind}") from None
        return offset + elements // block * width

    def _skip(self, kind: int) -> None:
        if kind == _STRING:
            self._string(LONGEST_STRING)
        elif kind == _ARRAY:
            kind, count = self._read("IQ")
            if kind != _STRING and kind not in _SCALARS:
                raise FileError(f"a list of the unknown type {kind}")
            self.entries += count
            self._limit("entries of lists", self.entries, MOST_ENTRIES, 1)
            self._limit("entries of a list", count, MOST_ENTRIES, _SCALARS.get(kind, 8))
            if kind == _STRING:
                for _ in range(count):
                    self._string(LONGEST_STRING)
            else:
                self.file.seek(count * _SCALARS[kind], 1)
        elif kind in _SCALARS:
            self.file.seek(_SCALARS[kind], 1)
        else:
            raise FileError(f"a field of the unknown type {kind}")

    def _string(self, longest: int) -> bytes:
        """A string, or nothing of one that is no name."""
        (length,) = self._read("Q")
        self._limit("bytes of a text", length, longest, 1)
        if length <= LONGEST_NAME:
            return self.file.read(length)
        self.file.seek(length, 1)
        return b""

    def _limit(self, what: str, count: int, most: int, width: int) -> None:
        """FileError if there are not, or must not be, `count` things of at least `width` bytes from here on."""
        if count > most or count * width > self.size - self.file.tell():
            raise FileError(f"it declares {count:,} {what}, which do not fit")

    def _read(self, form: str) -> tuple[Any, ...]:
        form = f"<{form}"
        return struct.unpack(form, self.file.read(struct.calcsize(form)))
