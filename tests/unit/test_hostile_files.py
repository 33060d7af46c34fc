"""Small files that declare much are refused in one line, by a process that has little memory and little time."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROOM = 768 << 20  # bytes of address space that a reader may take beyond what its imports have
READERS = {
    "model": "from specloss.models.checkpoint import locate as found; read = lambda path: found(path).check_sizes()",
    "header": "from specloss.models.checkpoint import locate as found; read = lambda path: found(path).header",
    "rows": "from specloss.benchmarks.sources.rows import read_file; read = lambda path: read_file(Path(path))",
}
PROGRAM = """
import resource, sys
from pathlib import Path
import pyarrow.compute, pyarrow.parquet, gguf.constants
{reader}
room = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + {room}
resource.setrlimit(resource.RLIMIT_AS, (room, room))
resource.setrlimit(resource.RLIMIT_CPU, (10, 10))
try:
    read(sys.argv[1])
except Exception as error:
    print(type(error).__name__, error)
"""


def said(reader: str, path: Path) -> str:
    """What a reader with little memory and time says of a file; 'read' if it has no complaint."""
    program = PROGRAM.format(reader=READERS[reader], room=ROOM)
    # allocators that reserve address space by the gigabyte would be what is measured
    limits = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    limits |= {"MALLOC_ARENA_MAX": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, timeout=60, env=limits
    )
    assert done.returncode == 0, done.stderr
    return done.stdout or "read"


def gguf(fields: bytes = b"", count: int = 0, tensors: bytes = b"", tensor_count: int = 0) -> bytes:
    return struct.pack("<4sIQQ", b"GGUF", 3, tensor_count, count) + fields + tensors


def text(content: bytes) -> bytes:
    return struct.pack("<Q", len(content)) + content


def listed(kind: int, count: int, entries: bytes = b"") -> bytes:
    return text(b"a") + struct.pack("<IIQ", 9, kind, count) + entries


def tensor(*shape: int, kind: int = 0, offset: int = 0) -> bytes:
    return text(b"t") + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


HOSTILE_GGUF = {
    "a list of 2^60": gguf(listed(0, 1 << 60), 1),
    "a list of 2^60 texts": gguf(listed(8, 1 << 60), 1),
    "a long list that is there": gguf(listed(0, 3 << 20, bytes(3 << 20)), 1),
    "lists within lists": gguf(listed(9, 1 << 40), 1),
    "a text of 2^60": gguf(text(b"a") + struct.pack("<IQ", 8, 1 << 60), 1),
    "a name of 2^60": gguf(struct.pack("<Q", 1 << 60), 1),
    "2^60 fields": gguf(b"", 1 << 60),
    "2^60 tensors": gguf(tensor_count=1 << 60),
    "a tensor of 2^62": gguf(tensors=tensor(1 << 62), tensor_count=1),
    "a tensor whose size wraps": gguf(tensors=tensor(1 << 32, 1 << 32), tensor_count=1),
    "a tensor of 2^31 dimensions": gguf(tensors=text(b"t") + struct.pack("<I", 1 << 31), tensor_count=1),
    "a tensor that lies far behind": gguf(tensors=tensor(1, offset=1 << 63), tensor_count=1),
}


@pytest.mark.parametrize("case", HOSTILE_GGUF)
def test_a_gguf_file_that_declares_more_than_it_has_is_refused(tmp_path: Path, case: str):
    from specloss.models.checkpoint import ModelError, locate

    path = tmp_path / "model.gguf"
    path.write_bytes(HOSTILE_GGUF[case])
    with pytest.raises(ModelError, match="damaged or cut GGUF file") as error:
        locate(str(path)).check_sizes()
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_a_list_without_end_takes_neither_memory_nor_time(tmp_path: Path):
    path = tmp_path / "model.gguf"
    path.write_bytes(HOSTILE_GGUF["a list of 2^60"])
    assert "damaged or cut GGUF file" in said("header", path)


def header(content: object, declared: int | None = None, data: bytes = b"") -> bytes:
    written = content if isinstance(content, bytes) else json.dumps(content).encode()
    return struct.pack("<Q", len(written) if declared is None else declared) + written + data


HOSTILE_TENSORS = {
    "a header of 2^63": header({}, 1 << 63),
    "a header longer than the file": header({}, 100),
    "no header": b"\x02",
    "a list": header([]),
    "a tensor without its place": header({"a": {"dtype": "F32"}}),
    "a tensor beyond the end": header({"a": {"dtype": "F32", "shape": [9], "data_offsets": [0, 36]}}, data=bytes(35)),
    "a tensor that ends before it begins": header({"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}}),
    "endless nesting": header(b"[" * 100_000),
}


@pytest.mark.parametrize("case", HOSTILE_TENSORS)
def test_a_safetensors_file_that_declares_more_than_it_has_is_refused(tmp_path: Path, case: str):
    from specloss.common.files import FileError
    from specloss.models.sizes import safetensors_header

    path = tmp_path / "model.safetensors"
    path.write_bytes(HOSTILE_TENSORS[case])
    with pytest.raises(FileError, match=r"damaged.* safetensors file") as error:
        safetensors_header(path)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


HOSTILE_CONFIGS = [
    {"num_hidden_layers": 1_000_000},
    {"n_layer": 10**30},
    {"vocab_size": 1 << 40},
    {"hidden_size": 1 << 30},
    {"num_attention_heads": 1e12},
    {"text_config": {"num_key_value_heads": -(10**9)}},
    {"max_position_embeddings": 1 << 40},
    {"draft_vocab_size": 10**12},
    {"num_local_experts": 10**6},
]


@pytest.mark.parametrize("config", HOSTILE_CONFIGS, ids=str)
def test_a_config_of_sizes_that_no_model_has_is_refused_before_a_library_reads_it(tmp_path: Path, config: dict):
    from specloss.models.checkpoint import ModelError, locate
    from specloss.models.loading import load_config

    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen2"} | config))
    key = json.dumps(config).split('"')[-2]
    with pytest.raises(ModelError, match=rf"{key} is .* more than any model has"):
        load_config(locate(str(tmp_path)))


@pytest.mark.parametrize("name", ["tokenizer.json", "config.json", "tokenizer.model", "model.safetensors"])
def test_a_pipe_in_a_model_folder_is_refused_at_once(tmp_path: Path, name: str):
    from specloss.models.checkpoint import ModelError, locate

    os.mkfifo(tmp_path / name)
    with pytest.raises(ModelError, match="no regular file"):
        locate(str(tmp_path)).check_sizes()


def test_a_pickle_that_unpacks_to_much_is_refused(tmp_path: Path):
    with zipfile.ZipFile(tmp_path / "pytorch_model.bin", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data/0", bytes(8 << 20))
    assert "that unpacks to 8,388,608" in said("model", tmp_path)


def test_weights_that_a_small_file_does_not_have_are_not_made_up(tmp_path: Path):
    import torch
    from safetensors.torch import save_file
    from transformers import LlamaConfig

    from specloss.models.checkpoint import ModelError, locate
    from specloss.models.loading import load_model

    LlamaConfig(vocab_size=1 << 22, hidden_size=1 << 14, num_hidden_layers=100).save_pretrained(tmp_path)
    save_file({"model.norm.weight": torch.ones(8)}, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError, match=r"its config is of a model of .* weights .* its files have"):
        load_model(locate(str(tmp_path)), "float32", "cpu")


LONG = "x" * (1 << 20)


def many(count: int) -> pa.Array:
    """One long text, many times: a dictionary keeps it once."""
    return pa.DictionaryArray.from_arrays(pa.nulls(count, pa.int32()).fill_null(0), [LONG])


HOSTILE_TABLES = {
    "20,000,000 rows": lambda: pa.table({"a": pa.nulls(20_000_000, pa.string())}),
    "a long text 100,000 times": lambda: pa.table({"a": many(100_000)}),
    "a long text 100,000 times in a list": lambda: pa.table(
        {"a": pa.ListArray.from_arrays(pa.array([0, 100_000], pa.int32()), many(100_000))}
    ),
    "10,000,000 numbers in a list": lambda: pa.table(
        {"a": pa.ListArray.from_arrays(pa.array([0, 10_000_000], pa.int32()), pa.nulls(10_000_000, pa.int8()))}
    ),
}


@pytest.mark.parametrize("case", HOSTILE_TABLES)
def test_a_small_parquet_file_of_much_is_refused_within_little_memory(tmp_path: Path, case: str):
    path = tmp_path / "items.parquet"
    pq.write_table(HOSTILE_TABLES[case](), path, store_schema=False)
    assert path.stat().st_size < 300_000
    message = said("rows", path)
    assert message.startswith(f"BenchmarkError {path}: too large")
    assert message.count("\n") == 1


def test_a_parquet_file_of_parts_is_read_as_it_was_written(tmp_path: Path):
    from specloss.benchmarks.sources.rows import read_file

    rows = [
        {"name": "one", "calls": [{"to": "f", "with": [1.5, 2.0]}], "raw": b"\0\1", "places": [("a", 1)]},
        {"name": None, "calls": [], "raw": None, "places": []},
    ]
    places = pa.array([row.pop("places") for row in rows], pa.map_(pa.string(), pa.int64()))
    table = pa.Table.from_pylist(rows).append_column("places", places)
    pq.write_table(table, tmp_path / "items.parquet")
    assert [row.values for row in read_file(tmp_path / "items.parquet")] == table.to_pylist()
