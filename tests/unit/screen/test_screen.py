"""One trace, every rule: what is recorded, what the pass over it gives, and how it is set beside the runs."""

from __future__ import annotations

import copy
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from exactness import rounding
from places import DEMO, ROOT
from typer.testing import CliRunner

from specloss.cli import app
from specloss.decoding.cell import decode_cell
from specloss.decoding.recorder import Recorder
from specloss.experiment.cells import Cell
from specloss.experiment.plan import Plan, make_plan
from specloss.screen import TABLES, ScreenError
from specloss.screen.comparison import agreements, compare
from specloss.screen.estimate import QUANTITIES, ScreenedSetting, registry_grid, screen, screened_settings
from specloss.screen.output import gates, read_screen, write_screen
from specloss.screen.places import chosen_places, parse_top_k, read_plan, trace_path, tracing_cell
from specloss.screen.recording import RecordingFile, record, write_trace
from specloss.verification import RULES, distortion, get_rule

PROBLEMS = 12
FULL = 8  # a block of the demo's gamma
# Of float32: a quantity is a few sums over the vocabulary, of terms of up to 1; a BE is a sum of products of those
OFF = rounding(torch.ones(1), 4 * 34)
BE_OFF = rounding(torch.tensor(1.0 + FULL), FULL * 4 * 34)


@pytest.fixture(scope="module")
def plan(tmp_path_factory) -> Plan:
    values = yaml.safe_load((ROOT / "config/demo.yaml").read_text())
    folder = tmp_path_factory.mktemp("screen")
    values |= {"name": "tiny", "seeds": [0], "results": str(folder / "results"), "reports": str(folder / "reports")}
    values["pairs"]["demo"] |= {"target": str(DEMO / "target"), "draft": str(DEMO / "draft")}
    for benchmark in values["benchmarks"].values():
        benchmark["options"]["problems"] = PROBLEMS
    return make_plan(values, "a test")


@pytest.fixture(scope="module")
def cell(plan) -> Cell:
    return tracing_cell(plan, "demo", "chain_l6")


@pytest.fixture(scope="module")
def recorded(pair, cell) -> dict[int | str, pa.Table]:
    """The same decode, recorded with different k; the vocabulary of the demo pair is 34."""
    return {k: record(pair, cell, k, batch_size=PROBLEMS) for k in ("full", 34, 8, 2)}


@pytest.fixture(scope="module")
def traces(recorded, tmp_path_factory) -> dict[int | str, RecordingFile]:
    files = {}
    for k, table in recorded.items():
        path = tmp_path_factory.mktemp("trace") / f"{k}.parquet"
        write_trace(table, path)
        files[k] = RecordingFile(path)
    return files


@pytest.fixture(scope="module")
def screened(traces) -> pd.DataFrame:
    return screen(traces["full"], registry_grid())


@pytest.fixture(scope="module")
def steps(pair, cell) -> pa.Table:
    """The step log of the traced cell, decoded without recording."""
    return decode_cell(pair, cell, range(PROBLEMS), batch_size=PROBLEMS)[0]


def row(table: pd.DataFrame, method: str, param: float | None = None) -> pd.Series:
    return table[
        (table["method"] == method) & (table["param"].isna() if param is None else table["param"] == param)
    ].iloc[0]


def lists(table: pa.Table, *names: str):
    return zip(*(table[name].to_pylist() for name in names), strict=True)


# --- recording ---


def test_recording_changes_no_token(recorded, steps):
    for name in ("problem", "index", "step", "position", "drafted", "accepted", "token"):
        assert recorded["full"][name].equals(steps[name]), name


def test_the_recorded_masses_of_the_drafted_tokens_are_those_of_the_step_log(recorded, steps):
    for table in recorded.values():
        for name in ("p", "q"):
            at = [
                values[ids.index(x)]
                for tokens, all_ids, masses in lists(table, "token", "ids", name)
                for x, ids, values in zip(tokens, all_ids, masses, strict=True)
            ]
            assert at == [value for row in steps[name].to_pylist() for value in row]


@pytest.mark.parametrize("k", ["full", 34, 8, 2])
def test_kept_masses_and_the_rest_add_up_to_one(recorded, k):
    for name in ("p", "q"):
        for masses, rests in lists(recorded[k], name, f"{name}_rest"):
            totals = [sum(values) + rest for values, rest in zip(masses, rests, strict=True)]
            assert totals == pytest.approx([1.0] * len(totals), rel=0, abs=OFF)


def test_the_rest_is_the_sum_of_what_the_full_trace_has_beyond_the_kept_tokens(recorded):
    for name in ("p", "q"):
        full = lists(recorded["full"], "ids", name)
        for (all_ids, all_masses), (ids, rests) in zip(full, lists(recorded[8], "ids", f"{name}_rest"), strict=True):
            for i, rest in enumerate(rests):
                mass = dict(zip(all_ids[i], all_masses[i], strict=True))
                assert rest == pytest.approx(sum(v for x, v in mass.items() if x not in ids[i]), rel=1e-9, abs=1e-15)


def test_kept_are_the_k_most_probable_of_either_model_and_the_drafted_token():
    vocab, k = 50, 3
    p, q = torch.rand(2, 1, 2, vocab, generator=torch.Generator().manual_seed(0)).softmax(-1)
    least = q.argmin(-1)  # [rows 1, gamma 2]
    recorder = Recorder(k)
    recorder.add(np.array([0]), np.array([0]), np.array([2]), least, p, q)
    for i, ids in enumerate(recorder.table()["ids"].to_pylist()[0]):
        expected = {*p[0, i].topk(k).indices.tolist(), *q[0, i].topk(k).indices.tolist(), int(least[0, i])}
        assert set(ids) == expected and ids == sorted(ids)


def test_positions_that_were_not_drafted_and_rows_without_a_prompt_are_not_recorded():
    recorder = Recorder(None)
    p = torch.full((3, 4, 5), 0.2)
    tokens = torch.zeros(3, 4, dtype=torch.int64)
    recorder.add(np.array([1, -1, 0]), np.array([7, 0, 3]), np.array([2, 4, 0]), tokens, p, p)
    table = recorder.table()
    assert table["prompt"].to_pylist() == [0, 1] and table["step"].to_pylist() == [3, 7]
    assert [len(ids) for ids in table["ids"].to_pylist()] == [0, 2]


def test_a_vocabulary_that_k_covers_is_recorded_whole(recorded):
    for name in ("ids", "p", "q", "p_rest", "q_rest"):
        assert recorded[34][name].equals(recorded["full"][name])
    assert not any(np.any(rests) for rests in recorded[34]["p_rest"].to_pylist())


# --- the pass over a trace ---


def test_the_traced_rule_has_the_expected_be_of_its_step_log(screened, steps):
    expected = [1 + kept for drafted, kept in lists(steps, "drafted", "expected_accepted") if drafted == FULL]
    assert row(screened, "standard_sd")["be_expected"] == pytest.approx(np.mean(expected), rel=0, abs=BE_OFF)
    assert row(screened, "standard_sd")["full_blocks"] == len(expected)


def test_lenience_of_one_is_standard_sd(traces):
    table = screen(
        traces["full"], [ScreenedSetting("standard_sd", "standard_sd"), ScreenedSetting("lenience", "lenience", 1.0)]
    )
    np.testing.assert_allclose(*table["be_expected"], rtol=0, atol=BE_OFF)
    np.testing.assert_allclose(*table[list(QUANTITIES)].to_numpy(), rtol=0, atol=OFF)


def test_every_registered_rule_is_screened_on_a_full_trace(screened):
    assert set(screened["method"]) == set(RULES)
    numbers = screened[screened["method"] != "blockwise"].select_dtypes("number").drop(columns="param")
    assert np.isfinite(numbers.to_numpy()).all()


def test_one_pass_over_all_rules_equals_each_rule_alone(traces, screened):
    for number, setting in enumerate(registry_grid()):
        if number % 6 == 0:  # every kind of rule is among them
            alone = screen(traces["full"], [setting], blocks=17).iloc[0]
            here = screened.iloc[number]
            for numbers, off in (
                (["be_expected", "be_expected_maximal"], BE_OFF),
                ([*QUANTITIES, "alpha_maximal"], OFF),
            ):
                np.testing.assert_allclose(alone[numbers].astype(float), here[numbers].astype(float), rtol=0, atol=off)


@pytest.mark.parametrize(
    ("name", "param"), [("spec_cascade", 0.5), ("cos", 0.4), ("eta_sampling", 0.2), ("cascade_opt", 0.5)]
)
def test_the_pass_equals_calling_the_rule_position_by_position(recorded, screened, pair, name, param):
    rule = get_rule(name, param)
    be, weight, sums = [], 0.0, dict.fromkeys(QUANTITIES, 0.0)
    for tokens, ids, ps, qs in lists(recorded["full"], "token", "ids", "p", "q"):
        reach, kept = 1.0, 0.0
        for x, these, *masses in zip(tokens, ids, ps, qs, strict=True):
            p, q = (torch.zeros(34).scatter_(0, torch.tensor(these), torch.tensor(mass)) for mass in masses)
            found = distortion(p, q, rule, keys=QUANTITIES)
            weight += reach
            for quantity in QUANTITIES:
                sums[quantity] += reach * float(found[quantity])
            reach *= float(rule(p, q)[0][x] / q[x])
            kept += reach
            if x in pair.eos_ids:
                break
        if len(tokens) == FULL:
            be.append(1 + kept)
    assert row(screened, name, param)["be_expected"] == pytest.approx(np.mean(be), rel=0, abs=BE_OFF)
    for quantity in QUANTITIES:
        assert row(screened, name, param)[quantity] == pytest.approx(sums[quantity] / weight, rel=0, abs=OFF), quantity


def test_the_block_rule_keeps_what_it_would_on_each_whole_block(recorded, screened, pair):
    rule = get_rule("blockwise")
    expected = []
    for tokens, ids, ps, qs in lists(recorded["full"], "token", "ids", "p", "q"):
        if len(tokens) < FULL:
            continue
        p, q = torch.zeros(1, FULL + 1, 34), torch.zeros(1, FULL, 34)
        for i, (these, *masses) in enumerate(zip(ids, ps, qs, strict=True)):
            p[0, i, these], q[0, i, these] = map(torch.tensor, masses)
        uniforms = torch.zeros(1, FULL, dtype=torch.float64)
        h = rule.verify(p, q, torch.tensor([tokens]), torch.tensor([FULL]), uniforms).accept_prob
        ends = [i + 1 for i, x in enumerate(tokens) if x in pair.eos_ids] or [FULL]
        expected.append(1 + float(rule.survival(h.double())[0, : ends[0]].sum()))
    assert row(screened, "blockwise")["be_expected"] == pytest.approx(np.mean(expected), rel=0, abs=BE_OFF)


def test_the_block_rule_is_left_out_of_pooled_traces(traces):
    assert "blockwise" not in set(screen(traces[8], registry_grid())["method"])


def test_k_of_the_whole_vocabulary_equals_full(traces, screened):
    pd.testing.assert_frame_equal(screen(traces[34], registry_grid()), screened)


def test_maximal_coupling_never_lowers_acceptance_and_helps_the_gates(screened):
    rules = screened[screened["method"] != "blockwise"]
    assert (rules["be_expected_maximal"] >= rules["be_expected"] - BE_OFF).all()
    gating = gates(screened)
    assert set(gating["method"]) == {"spec_cascade", "typical_acceptance"}
    assert (gating["be_expected_maximal"] - gating["be_expected"]).mean() > 0.05


def test_the_maximal_column_is_what_the_option_gives(traces, screened):
    option = ScreenedSetting("coupled", "spec_cascade", 0.7, {"coupling": "maximal"})
    coupled = screen(traces["full"], [option]).iloc[0]
    native = row(screened, "spec_cascade", 0.7)
    assert coupled["be_expected"] == pytest.approx(native["be_expected_maximal"], rel=0, abs=BE_OFF)
    assert coupled["alpha"] == pytest.approx(native["alpha_maximal"], rel=0, abs=OFF)
    assert json.loads(coupled["options"]) == {"coupling": "maximal"}


ONE_TOKEN_AT_A_TIME = ("standard_sd", "lenience", "overshoot_ceiling", "cos")


@pytest.mark.parametrize("k", [8, 2])
def test_pooling_leaves_the_be_of_rules_that_look_at_one_token_as_it_is(traces, screened, k):
    settings = [s for s in registry_grid() if s.rule in ONE_TOKEN_AT_A_TIME]
    pooled = screen(traces[k], settings)
    full = screened[screened["rule"].isin(ONE_TOKEN_AT_A_TIME)].reset_index(drop=True)
    np.testing.assert_allclose(pooled["be_expected"], full["be_expected"], rtol=0, atol=BE_OFF)
    assert (pooled["alpha"] >= full["alpha"] - OFF).all()


@pytest.mark.parametrize("setting", [s for s in registry_grid() if s.rule in ONE_TOKEN_AT_A_TIME], ids=repr)
def test_pooling_moves_acceptance_and_tv_of_such_rules_by_at_most_the_rest_of_q(setting):
    generator, rule = torch.Generator().manual_seed(1), setting.build()
    p, q = (3 * torch.randn(2, 500, 30, generator=generator, dtype=torch.float64)).softmax(-1)
    kept = torch.zeros_like(p, dtype=torch.bool)
    for mass in (p, q):
        kept.scatter_(-1, mass.topk(3).indices, True)
    rest = [mass.masked_fill(kept, 0).sum(-1, keepdim=True) for mass in (p, q)]
    pooled = [torch.cat([mass.where(kept, 0), other], -1) for mass, other in zip((p, q), rest, strict=True)]
    whole, found = (distortion(*pair, rule, keys=("alpha", "tv_pi_p")) for pair in ((p, q), pooled))
    gained, moved = (found[name] - whole[name] for name in ("alpha", "tv_pi_p"))
    assert (gained >= -1e-12).all() and (gained <= rest[1][:, 0] + 1e-12).all() and gained.max() > 0.01
    assert (moved.abs() <= rest[1][:, 0] + 1e-12).all()
    if setting.rule == "cos":
        assert (moved <= 1e-12).all()


def test_eight_tokens_are_nearly_the_whole_trace_on_the_demo_pair(traces, screened):
    pooled = screen(traces[8], registry_grid())
    full = screened[screened["method"] != "blockwise"].reset_index(drop=True)
    assert 0 < pooled["p_rest"].iloc[0] < 0.01
    error = (pooled[["be_expected", *QUANTITIES]] - full[["be_expected", *QUANTITIES]]).abs().max()
    print(f"largest error of k = 8 over {len(full)} settings, mean rest of p {pooled['p_rest'].iloc[0]:.1e}:")
    print(error.to_string())
    relative = ((pooled["be_expected"] - full["be_expected"]) / full["be_expected"]).abs().max()
    assert relative < 0.02 and (error[list(QUANTITIES)] < 0.01).all()


# --- settings, files, errors ---


def test_the_grid_is_the_registry_and_the_experiments_own_settings(plan):
    own = {(cell.method, cell.param) for cell in plan.cells}
    everything = {(s.method, s.param) for s in screened_settings(plan, "all")}
    assert own < everything and {(s.method, s.param) for s in registry_grid()} <= everything
    assert {(s.method, s.param) for s in screened_settings(plan, "experiment")} == own


def test_the_files_say_where_the_prefixes_come_from(plan, recorded, tmp_path):
    path = trace_path(plan, "demo", "chain_l6")
    write_trace(recorded["full"], path)
    written = write_screen(plan, [("demo", "chain_l6")], tmp_path)
    text = (tmp_path / TABLES[1]).read_text()
    assert "Prefixes come from the traced policy" in text and "standard_sd (seed 0)" in text
    read = read_screen(tmp_path)
    assert list(read["method"]) == list(written["method"])
    np.testing.assert_allclose(read["be_expected"], written["be_expected"], rtol=1e-5)  # six digits are written
    about = json.loads(pq.read_schema(path).metadata[b"specloss"])
    assert about["run"]["code"]["version"] and about["run"]["device"] == "cpu"
    other = copy.deepcopy(plan.experiment.model_dump())
    other["decoding"]["temperature"] = 0.9
    with pytest.raises(ScreenError, match="recorded with other settings"):
        write_screen(make_plan(other, "a test"), [("demo", "chain_l6")], tmp_path)


def test_errors_are_one_line_and_name_what_is_missing(plan, tmp_path):
    def message(function, *arguments) -> str:
        with pytest.raises(ScreenError) as error:
            function(*arguments)
        assert "\n" not in str(error.value)
        return str(error.value)

    assert "no such trace" in message(write_screen, plan, [("demo", "chain_l2")], tmp_path)
    assert "no benchmark 'chain_l9'; it has chain_l2" in message(chosen_places, plan, None, ["chain_l9"])
    assert "no pair 'big'" in message(chosen_places, plan, "big", [])
    assert "got '0'" in message(parse_top_k, "0") and "got 'most'" in message(parse_top_k, "most")
    assert "run `specloss screen` first" in message(read_screen, tmp_path / "nowhere")
    foreign = tmp_path / "foreign.parquet"
    pq.write_table(pa.table({"a": [1]}), foreign)
    assert "not a trace" in message(RecordingFile, foreign)


def test_the_command_refuses_an_unknown_benchmark(plan, tmp_path):
    plan.write()
    result = CliRunner().invoke(app, ["screen", str(plan.file), "--benchmark", "none", "--out", str(tmp_path)])
    assert isinstance(result.exception, ScreenError) and "no benchmark 'none'" in str(result.exception)


# --- beside the runs ---


def runs_like(screened: pd.DataFrame, **changes: float) -> pd.DataFrame:
    """A summary of two seeds that says what the screen says, but for `changes` of be_expected by method."""
    own = screened[["pair", "benchmark", "method", "param", "be_expected", "alpha", "tv_pi_p"]].copy()
    own["be_expected"] += own["method"].map(changes).fillna(0.0)
    return pd.concat([own.assign(seed=seed, status="whole") for seed in (0, 1)], ignore_index=True)


def test_a_screen_that_foretells_the_runs_has_rank_correlation_one(screened):
    agreement = agreements(compare(screened, runs_like(screened)))
    assert agreement["rank_correlation"].to_numpy() == pytest.approx(1.0)
    assert agreement["largest_difference"].to_numpy() == pytest.approx(0.0)


def test_the_largest_difference_is_named_and_signed(screened):
    table = compare(screened, runs_like(screened, cos_contrastive=-0.4, lenience=0.9))
    be = agreements(table).set_index("metric").loc["be_expected"]
    assert be["largest_difference"] == pytest.approx(-0.9) and be["where"].startswith("lenience (")
    assert be["rank_correlation"] < 1 and be["settings"] == len(screened)


def test_cells_that_are_not_whole_are_not_compared(screened):
    runs = runs_like(screened)
    runs.loc[runs["method"] == "cos", "status"] = "not decoded"
    assert "cos" not in set(compare(screened, runs)["method"])


def test_an_experiment_on_trees_is_refused_in_one_line(tmp_path):
    values = yaml.safe_load((ROOT / "config/demo.yaml").read_text())
    values["pairs"]["demo"] |= {
        "kind": "eagle3", "target": str(DEMO / "target"), "draft": str(ROOT / "tests/data/eagle3/head")
    }  # fmt: skip
    values["decoding"] = {"tree": {"total_token": 20, "depth": 3, "top_k": 4}}
    values["results"] = values["reports"] = str(tmp_path)
    path = tmp_path / "trees.yaml"
    path.write_text(yaml.safe_dump(values))
    with pytest.raises(ScreenError, match=r"trees\.yaml: its pairs draft trees, and only a decode of chains can be"):
        read_plan(path)
