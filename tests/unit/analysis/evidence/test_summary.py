"""What the numbers of a cell are, computed by hand; and what happens to cells that are not all there."""

from __future__ import annotations

import json
import os

import numpy as np
import pandas as pd
import pytest
from synthetic import END, as_trees, generation_row, graded_row, save_cell, step_row, write_experiment

from specloss.analysis.evidence.summary import PROBLEMS, read_problems, read_summary, summarise
from specloss.experiment.study import Study

GAMMA = 2


@pytest.fixture
def handmade(tmp_path):
    """One cell of two problems and five calls, at gamma 2; all other cells of its experiment are absent."""
    path, results = write_experiment(tmp_path, problems=0, seeds=(0,), grids={"standard_sd": [None]}, gamma=GAMMA)
    cell = Study.read(path).cells[0]
    steps = [
        step_row(0, 0, 0, 2, 2, 0.5),  # all kept, and a bonus: 3 tokens
        step_row(0, 1, 3, 2, 0, 0.5),  # none kept: 1 token
        # the second drafted token ends the answer and is kept: no bonus, 2 tokens
        step_row(0, 2, 4, 2, 2, 0.5, token=[7, END], emitted=[7, END], stop="eos"),
        # the first drafted token would end the answer; it is kept, and the block is cut after it
        step_row(1, 0, 0, 2, 1, 0.5, token=[END, 7], emitted=[END], stop="eos", expected_accepted=0.5),
        step_row(2, 0, 0, 1, 1, 0.5, stop="length"),  # only one token drafted: not a full block
    ]
    generations = [
        generation_row(0, calls=3, stop="eos", token_ids=[7, 7, 7, 7, 7, END]),
        generation_row(1, calls=1, stop="eos", token_ids=[END]),
        generation_row(2, calls=1, stop="length"),
        generation_row(3, calls=0, stop="context"),
    ]
    graded = [graded_row(0, True), graded_row(1, False), graded_row(2, True, parsed=False), graded_row(3, False)]
    save_cell(cell, results, steps, generations, graded)
    return path, results


@pytest.fixture
def cell_row(handmade) -> pd.Series:
    return summarise(*handmade).iloc[0]


def test_be_counts_accepted_plus_one_over_blocks_with_gamma_drafted_tokens(cell_row):
    assert cell_row["full_blocks"] == 4
    assert cell_row["be"] == pytest.approx((3 + 1 + 3 + 2) / 4)


def test_eagle_be_is_accepted_per_call_without_the_bonus(handmade):
    path, results = handmade
    assert summarise(as_trees(path), results).iloc[0]["be_eagle"] == pytest.approx((2 + 0 + 2 + 1 + 1) / 5)


def test_trees_have_the_measures_of_the_eagle_convention_alone(handmade, cell_row):
    path, results = handmade
    trees = summarise(as_trees(path), results).iloc[0]
    assert trees[["be", "be_expected", "ds"]].isna().all()
    assert cell_row[["be_eagle", "be_eagle_expected", "ds_eagle"]].isna().all()
    assert trees["be_eagle_expected"] > 0
    assert trees["ds_eagle"] == trees["tokens_per_s"] == cell_row["tokens_per_s"]
    assert trees["tokens_per_call"] == cell_row["tokens_per_call"]


def test_expected_be_takes_the_mean_over_the_rules_coin_flips(cell_row):
    # three blocks may keep both tokens: 1 + .5 + .25; the fourth can only keep its first: 1 + .5
    assert cell_row["be_expected"] == pytest.approx((3 * 1.75 + 1.5) / 4)


def test_tokens_per_call_counts_emitted_tokens_over_all_calls(cell_row):
    assert cell_row["tokens"] == 3 + 1 + 2 + 1 + 2
    assert cell_row["tokens_per_call"] == pytest.approx(9 / 5)


def test_speed_divides_by_draft_verify_and_overhead_time(cell_row):
    seconds = 5 * (2.0 + 1.0 + 0.5) / 1000
    assert cell_row["seconds"] == pytest.approx(seconds)
    assert cell_row["ds"] == pytest.approx(4 * GAMMA / seconds)
    assert cell_row["tokens_per_s"] == pytest.approx(9 / seconds)
    assert cell_row["overhead_share"] == pytest.approx(0.5 / 3.5)


def test_unparsed_answers_are_wrong_and_counted(cell_row):
    assert cell_row["problems"] == 4
    assert cell_row["accuracy"] == pytest.approx(25.0)
    assert cell_row["parse_failures"] == pytest.approx(25.0)


def test_acceptance_by_position_is_the_share_of_full_blocks_that_kept_it(cell_row):
    assert list(cell_row["accepted_at"]) == [3 / 4, 2 / 4]


def test_distortion_is_averaged_over_decided_positions_only(handmade):
    path, results = handmade
    cell = Study.read(path).cells[0]
    # the rule decided at the first position and rejected; the second says nothing about the output
    steps = [step_row(0, 0, 0, 2, 0, 0.5, tv_pi_p=[0.2, 0.9]), step_row(0, 1, 1, 2, 2, 0.5, tv_pi_p=[0.4, 0.6])]
    save_cell(cell, results, steps, [generation_row(0, 2, "length")], [graded_row(0, True)])
    assert summarise(path, results).iloc[0]["tv_pi_p"] == pytest.approx((0.2 + 0.4 + 0.6) / 3)


def test_a_light_trace_leaves_distortion_missing_and_not_zero(handmade):
    path, results = handmade
    cell = Study.read(path).cells[0]
    rows = [step_row(0, n, n, 2, 0, 0.5, tv_pi_p=None, alpha=None) for n in range(2)]
    save_cell(cell, results, rows, [generation_row(0, 2, "length")], [graded_row(0, True)])
    row = summarise(path, results).iloc[0]
    assert np.isnan(row["tv_pi_p"]) and np.isnan(row["alpha"])
    assert row["be"] == 1


def test_absent_cells_are_rows_without_numbers_that_say_why(handmade):
    path, results = handmade
    summary = summarise(path, results)
    assert len(summary) == 3
    assert summary["status"].iloc[0] == "whole"
    assert all(status == "no problems in it" for status in summary["status"][1:])
    assert summary.loc[1:, ["accuracy", "be", "ds", "problems", "tokens", "seconds"]].isna().all(axis=None)


def test_an_experiment_without_any_cell_is_all_missing(tmp_path):
    path, results = write_experiment(tmp_path, problems=1, seeds=(0,), grids={"standard_sd": [None]})
    for cell in Study.read(path).cells:
        os.remove(cell.folder(results) / "cell.json")
    summary = summarise(path, results)
    assert set(summary["status"]) == {"decoded in part"}
    assert summary["accuracy"].isna().all() and read_problems(path, results).empty


def garble(path):
    """Overwrite a Parquet file's pages and leave its footer, so that only reading its columns can find out."""
    data = path.read_bytes()
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    path.write_bytes(data[:4] + b"\xff" * (footer - 4) + data[footer:])


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda folder: (folder / "graded.parquet").unlink(), "not graded"),
        (lambda folder: (folder / "cell.json").unlink(), "decoded in part"),
        (lambda folder: (folder / "graded.parquet").write_bytes(b"PAR1 half"), "graded.parquet cannot be read"),
        (lambda folder: (folder / "cell.json").write_text("{"), "cell.json cannot be read"),
        (lambda folder: garble(folder / "graded.parquet"), "graded.parquet cannot be read"),
        (lambda folder: garble(folder / "steps.parquet"), "steps.parquet cannot be read"),
        (lambda folder: garble(folder / "generations.parquet"), "generations.parquet cannot be read"),
    ],
)
def test_a_spoilt_cell_is_missing_with_its_reason(tmp_path, spoil, reason):
    path, results = write_experiment(tmp_path, problems=3, seeds=(0,), grids={"standard_sd": [None]})
    spoil(Study.read(path).cells[1].folder(results))
    summary = summarise(path, results)
    assert list(summary["status"]) == ["whole", reason, "whole"]
    assert list(summary["accuracy"].isna()) == [False, True, False]


def test_a_failed_cell_gives_the_last_line_of_its_failure(tmp_path):
    path, results = write_experiment(tmp_path, problems=3, seeds=(0,), grids={"standard_sd": [None]})
    folder = Study.read(path).cells[0].folder(results)
    (folder / "cell.json").unlink()
    (folder / "failure.txt").write_text("Traceback\n  somewhere\nValueError: too long\n")
    assert summarise(path, results)["status"][0] == "failed: ValueError: too long"


def test_a_cell_of_other_settings_is_not_used(tmp_path):
    path, results = write_experiment(tmp_path, problems=3, seeds=(0,), grids={"standard_sd": [None]})
    meta = Study.read(path).cells[0].folder(results) / "cell.json"
    content = json.loads(meta.read_text())
    content["key"], content["cell"]["settings"]["rule"] = "other", "lenience"
    meta.write_text(json.dumps(content))
    assert "decoded with other settings (rule" in summarise(path, results)["status"][0]


def test_a_cell_with_fewer_problems_than_its_peers_is_missing(tmp_path):
    path, results = write_experiment(tmp_path, problems=3, seeds=(0, 1), grids={"standard_sd": [None]})
    cell = Study.read(path).cells[0]
    save_cell(cell, results, [step_row(0, 0, 0, 4, 1, 0.5)], [generation_row(0, 1, "length")], [graded_row(0, True)])
    assert summarise(path, results)["status"][0] == "only 1 of 3 problems"


def test_a_cell_with_fewer_answers_to_a_problem_than_its_peers_is_missing(tmp_path):
    path, results = write_experiment(tmp_path, problems=0, seeds=(0, 1), grids={"standard_sd": [None]})
    for cell, answers in zip(Study.read(path).cells, (1, 2), strict=False):
        rows = [
            [make(0) | {"sample": sample} for sample in range(answers)]
            for make in (
                lambda i: step_row(i, 0, 0, 4, 1, 0.5),
                lambda i: generation_row(i, 1, "length"),
                lambda i: graded_row(i, True),
            )
        ]
        save_cell(cell, results, *rows)
    assert list(summarise(path, results)["status"])[:2] == ["only 1 of 2 answers", "whole"]


def test_a_cell_with_as_many_but_other_problems_than_its_peers_is_missing(tmp_path):
    path, results = write_experiment(tmp_path, problems=2, seeds=(0, 1, 2), grids={"standard_sd": [None]})
    rows = [
        [make(i) for i in (0, 7)] for make in (lambda i: step_row(i, 0, 0, 4, 1, 0.5), lambda i: graded_row(i, True))
    ]
    save_cell(Study.read(path).cells[0], results, rows[0], [generation_row(i, 1, "length") for i in (0, 7)], rows[1])
    status = list(summarise(path, results)["status"])
    assert status[0] == "1 of its 2 problems are not those of the other cells"
    assert set(status[1:]) == {"whole"}


def test_files_read_back_as_they_were_returned_and_say_what_made_them(tmp_path):
    import pyarrow.parquet as pq

    path, results = write_experiment(tmp_path, problems=3, seeds=(0,), grids={"standard_sd": [None], "cos": [0.2]})
    summary = summarise(path, results)
    pd.testing.assert_frame_equal(
        read_summary(path, results).drop(columns="accepted_at"), summary.drop(columns="accepted_at"), check_dtype=False
    )
    metadata = pq.read_metadata(results / "synthetic" / PROBLEMS).metadata
    assert {b"specloss_version", b"config_hash"} <= metadata.keys()


def test_tables_before_a_summary_say_what_to_run(tmp_path):
    path, results = write_experiment(tmp_path, problems=1, seeds=(0,), grids={"standard_sd": [None]})
    with pytest.raises(FileNotFoundError, match="specloss summarise"):
        read_summary(path, results)
