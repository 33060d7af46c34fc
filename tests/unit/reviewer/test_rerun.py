"""A rerun says how many answers are the same, and fails where float32 on one type of device should give them all."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from synthetic import write_experiment

from specloss.experiment.study import Study
from specloss.reviewer.answer import CellRequest, answer
from specloss.reviewer.rerun import compare_runs


@pytest.fixture
def twice(tmp_path):
    """Two decodes of a cell with one answer of five changed in the second, by a function of its provenance."""
    grids = {"lenience": [0.8], "standard_sd": [None]}
    paths = [write_experiment(tmp_path / name, problems=5, seeds=(0,), grids=grids) for name in ("before", "again")]
    cell = Study.read(paths[0][0]).cells[0]
    before, again = (results for _, results in paths)

    def made(folder: Path, **changes):
        meta = json.loads((file := cell.folder(folder) / "cell.json").read_text())
        both = {"dtype": changes.pop("draft", "float32")}
        meta["run"] = {
            "device": "cpu",
            "dtype": "float32",
            "packages": {"torch": "2"},
            "models": {"draft": both},
        } | changes
        file.write_text(json.dumps(meta))
        return folder

    return cell, made(before), again, made


def change_an_answer(folder):
    table = pq.read_table(folder / "generations.parquet", partitioning=None)
    tokens = table["token_ids"].to_pylist()
    tokens[0] = [*(tokens[0] or []), 7]
    place = table.schema.get_field_index("token_ids")
    field = table.schema.field(place)
    pq.write_table(table.set_column(place, field, pa.array(tokens, field.type)), folder / "generations.parquet")


def test_the_same_tokens_are_as_they_should_be(twice):
    cell, before, again, made = twice
    found = compare_runs([cell], made(again), before)
    assert (found.same, found.compared, found.new, found.as_it_should_be) == (5, 5, 0, True)
    assert found.text(again).endswith("5 of 5 answers are the same, token for token.\n")


def test_a_run_that_was_not_there_is_new(twice, tmp_path):
    cell, _, again, made = twice
    found = compare_runs([cell], made(again), tmp_path / "none")
    assert (found.same, found.compared, found.new, found.as_it_should_be) == (0, 0, 1, True)


def test_in_float32_on_one_device_other_tokens_are_a_fault(twice):
    cell, before, again, made = twice
    change_an_answer(cell.folder(made(again)))
    found = compare_runs([cell], again, before)
    assert not found.as_it_should_be
    assert "4 of 5 answers are the same tokens as before.\nAll of them should be" in found.text(again)


@pytest.mark.parametrize(
    "now, then, words",
    [
        ({"dtype": "bfloat16"}, {"dtype": "bfloat16"}, "in bfloat16 near ties depend"),
        ({"draft": "float16"}, {"draft": "float16"}, "in float16 near ties depend"),
        ({"dtype": "bfloat16", "draft": "bfloat16"}, {}, "are in bfloat16 now and were in float32"),
        ({"device": "NVIDIA H200"}, {}, "it ran on NVIDIA H200 now and on cpu then"),
        ({"packages": {"torch": "3"}}, {}, "torch is 3 now and was 2"),
    ],
)
def test_other_tokens_are_excused_by_type_device_and_versions(twice, now, then, words):
    cell, before, again, made = twice
    change_an_answer(cell.folder(made(again, **now)))
    found = compare_runs([cell], again, made(before, **then))
    assert found.as_it_should_be and (found.same, found.compared) == (4, 5)
    assert "Some may differ: " in found.text(again) and words in " ".join(found.text(again).split())


def test_a_decoded_cell_is_shown_where_its_models_are_gone(tmp_path):
    path, results = write_experiment(tmp_path, problems=5, seeds=(0,), grids={"standard_sd": [None]})
    content = json.loads(path.read_text())
    content["config"] |= {"results": str(results), "methods": {"standard_sd": {}}}
    for benchmark in content["config"]["benchmarks"].values():
        benchmark["max_new_tokens"] = 100
    path.write_text(json.dumps(content))
    text, rows, _ = answer(CellRequest(path, benchmark="level_2"), snakemake=None)
    assert text.startswith("Table 4, level_2, standard_sd: synthetic")
    assert len(rows) and not rows["value"].isna().any()
