"""Stands in for models and decoding in the actors of test_cluster.py, which puts this folder on their PYTHONPATH.

Cells then take as long as their benchmark's options say, and fail as these say, without torch.
"""

import sys
import time
from types import ModuleType, SimpleNamespace


def load_pair(**settings):
    made = {"device": "stub", "dtype": "float32", "models": {}}
    return SimpleNamespace(device="stub", notes=(), provenance=lambda: made)


def count_problems(cell):
    return cell.settings["benchmark"]["options"]["problems"]


class OutOfMemoryError(RuntimeError):
    """By the name that torch gives it."""


def decode_cell(pair, cell, indices, *, batch_size, trace):
    import pyarrow as pa

    from specloss.experiment.schema import GENERATIONS, STEPS

    options = cell.settings["benchmark"]["options"]
    if batch_size > options.get("rows", batch_size):
        raise OutOfMemoryError("no room")
    time.sleep(options.get("seconds", 0) * len(indices))
    if "fault" in options:
        raise ValueError(options["fault"])
    rows = [{"problem": f"p{i}", "index": i, "sample": 0, "token_ids": [cell.seed, i]} for i in indices]
    steps = [{"problem": f"p{i}", "index": i, "sample": 0, "step": step} for step in (1, 0) for i in indices]
    return pa.Table.from_pylist(steps, schema=STEPS), pa.Table.from_pylist(rows[::-1], schema=GENERATIONS)


for _name, _contents in {
    "specloss.models": {"load_pair": load_pair},
    "specloss.decoding": {"__path__": []},
    "specloss.decoding.cell": {"decode_cell": decode_cell, "count_problems": count_problems},
}.items():
    _module = ModuleType(_name)
    _module.__dict__.update(_contents)
    sys.modules[_name] = _module
