"""The configs of the paper's experiments are complete: their grids, settings and options, without the hub."""

import csv
from collections import Counter

import pytest
import yaml
from places import ROOT

from specloss.benchmarks import MODULES, get_benchmark
from specloss.experiment.checks import check_arguments
from specloss.experiment.plan import make_plan

LENGTHS = {"math": 2048, "mbppplus": 4000, "include": 2048, "bfcl": 1024}
PAPER = {"math": "MATH", "mbppplus": "MBPP+", "include": "INCLUDE", "bfcl": "BFCL"}


def plan_of(name):
    path = ROOT / f"config/{name}.yaml"
    return make_plan(yaml.safe_load(path.read_text()), str(path), check=False)


@pytest.mark.parametrize("name", ["paper_qwen", "fig1_ladder"])
def test_the_options_and_gradings_are_those_that_the_benchmarks_take(name):
    for label, benchmark in plan_of(name).experiment.benchmarks.items():
        if benchmark.task not in MODULES:
            pytest.skip(f"this version has no benchmark {benchmark.task}")
        module = get_benchmark(benchmark.task)
        check_arguments(module.load, benchmark.options, label)
        check_arguments(module.grade, benchmark.grading, label, given=2)


def test_paper_qwen_is_the_grid_of_table_4_with_three_seeds():
    plan = plan_of("paper_qwen")
    with open(next((ROOT / "src").rglob("table4.csv")), encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    printed = {(row["method"], float(row["param"]) if row["param"] else None, row["benchmark"]) for row in rows}
    cells = Counter((cell.method, cell.param, PAPER[cell.benchmark]) for cell in plan.cells)
    assert cells.keys() == printed and set(cells.values()) == {3}
    assert len(plan.cells) == 29 * 4 * 3


@pytest.mark.parametrize("name", ["paper_qwen", "fig1_ladder"])
def test_the_settings_are_the_papers(name):
    experiment = plan_of(name).experiment
    decoding = experiment.decoding
    assert (decoding.gamma, decoding.temperature, decoding.top_p, decoding.top_k) == (10, 0.7, 0.8, 20)
    assert experiment.seeds == [0, 1, 2]
    for label, benchmark in experiment.benchmarks.items():
        assert benchmark.max_new_tokens == LENGTHS.get(label, benchmark.max_new_tokens)
    (pair,) = experiment.pairs.values()
    assert pair.target == "Qwen/Qwen2.5-72B-Instruct-GPTQ-Int8"
    assert pair.draft == "Qwen/Qwen2.5-0.5B-Instruct-GPTQ-Int8"


def test_the_ladder_compares_one_gate_with_its_baseline_on_three_benchmarks():
    plan = plan_of("fig1_ladder")
    assert list(plan.experiment.benchmarks) == ["gsm8k", "math", "aime"]
    assert {(cell.method, cell.param) for cell in plan.cells} == {
        ("standard_sd", None),
        ("min_p_sampling", 0.5),
        ("spec_cascade", 0.5),
    }
