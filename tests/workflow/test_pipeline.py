"""The whole pipeline for real: Snakemake, Ray, MLflow and the demo pair on a grid of 16 cells."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import duckdb
import mlflow
import pandas as pd
import psutil
import pyarrow.parquet as pq
import pytest
import yaml
from places import ROOT

from specloss.analysis.outputs import FIGURES, tables_for
from specloss.cluster.runs import claim_folder
from specloss.common.yamlfile import ConfigError
from specloss.experiment.plan import Plan, make_plan
from specloss.experiment.study import Study


@dataclass
class Project:
    """A working directory with a config; Snakemake runs there on the repository's Snakefile."""

    folder: Path
    config: dict

    @property
    def plan(self) -> Plan:
        return make_plan(self.config, "grid.yaml", check=False)

    def command(self, *arguments: str) -> list[str]:
        (self.folder / "grid.yaml").write_text(yaml.safe_dump(self.config))
        snakemake = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--cores", "2"]
        return [*snakemake, "--rerun-incomplete", *arguments, "--configfile", "grid.yaml"]

    def run(self, *arguments: str) -> str:
        done = subprocess.run(self.command(*arguments), cwd=self.folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stderr + done.stdout

    def tokens(self) -> dict[tuple[str, str], list[int]]:
        """Output of every problem of every cell, by (cell without its experiment, problem)."""
        outputs = {}
        for cell in self.plan.cells:
            folder = self.folder / cell.folder(self.plan.results)
            table = pq.read_table(folder / "generations.parquet", partitioning=None)
            outputs |= {(cell.id, row["problem"]): row["token_ids"] for row in table.to_pylist()}
        return outputs

    def finished(self) -> dict[Path, int]:
        """Time stamps of the finished cells."""
        return {path: path.stat().st_mtime_ns for path in self.folder.glob("results/*/cells/**/cell.json")}

    def processes(self) -> list[psutil.Process]:
        """Whatever still runs in this working directory or was started from it."""
        found = []
        for process in psutil.process_iter():
            try:
                if str(self.folder) in (process.environ().get("PWD", ""), process.cwd()):
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def wait_until_gone(self, seconds: float) -> None:
        """Fail if anything still runs here after that long."""
        deadline = time.monotonic() + seconds
        while self.processes() and time.monotonic() < deadline:
            time.sleep(0.2)
        assert not self.processes()


def make_project(folder: Path, source: str = "demo.yaml", **changes) -> Project:
    config = yaml.safe_load((ROOT / "config" / source).read_text())
    pair = config["pairs"]["demo"]
    pair |= {role: str(ROOT / pair[role]) for role in ("target", "draft")}
    config |= {
        "name": "grid",
        "benchmarks": {
            f"chain_l{level}": {
                "task": "chain",
                "options": {"level": level, "problems": 12},
                "max_new_tokens": 60,
            }
            for level in (2, 6)
        },
        "methods": {"spec_cascade": {"params": [0.3]}, "lenience": {"params": [0.4]}},
        "seeds": [0, 1],
        "cluster": {"cells_per_job": 5},
    } | changes
    folder.mkdir(exist_ok=True)
    return Project(folder, config)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A grid that ran once, whole."""
    project = make_project(tmp_path_factory.mktemp("grid"))
    project.log = project.run()
    return project


def test_one_command_gives_cells_tables_figures_and_the_report(project):
    assert len(project.plan.cells) == 16
    for cell in project.plan.cells:
        folder = project.folder / cell.folder(project.plan.results)
        assert {path.name for path in folder.iterdir()} == {
            "steps.parquet",
            "generations.parquet",
            "graded.parquet",
            "cell.json",
        }
    reports = project.folder / "reports/grid"
    assert (reports / "index.html").stat().st_size > 10_000
    assert (reports / "tables/table4.csv").exists() and (reports / "figures/fig1_gap_by_level.svg").exists()


def test_cells_are_hive_style_for_other_tools(project):
    cells = project.folder / "results/grid/cells/**/graded.parquet"
    rows = duckdb.sql(f"select method, count(*) n from read_parquet('{cells}', hive_partitioning=true) group by all")
    assert dict(rows.fetchall()) == dict.fromkeys(("standard_sd", "min_p_sampling", "spec_cascade", "lenience"), 48)


def test_models_load_once_per_actor_and_progress_is_shown(project):
    assert 1 <= project.log.count("loaded pair demo") <= 2
    assert "16/16 cells" in project.log and "tokens/s" in project.log


def test_every_file_says_how_it_was_made(project):
    cell = project.plan.cells[0]
    folder = project.folder / cell.folder(project.plan.results)
    for name in ("steps.parquet", "generations.parquet", "graded.parquet"):
        metadata = {key.decode(): value.decode() for key, value in pq.read_schema(folder / name).metadata.items()}
        text = str(metadata)
        assert cell.key in text
        for word in ("torch", "transformers", "cpu", "float32"):
            assert word in text, (name, word)


def test_mlflow_has_a_run_for_each_cell_setting_and_the_experiment(project):
    client = mlflow.MlflowClient(f"sqlite:///{project.folder}/results/mlflow.db")
    experiment = client.get_experiment_by_name("grid")
    runs = client.search_runs([experiment.experiment_id])
    assert len(runs) == 16 + 4 + 3 + 1  # cells, settings, methods with a grid, the experiment
    cell = next(run for run in runs if run.data.tags.get("method") == "lenience" and run.data.tags["level"] == "cell")
    assert {"accuracy", "be"} <= cell.data.metrics.keys() and "config_hash" in cell.data.tags


def test_the_page_names_no_folder_of_this_machine(project):
    page = (project.folder / "reports/grid/index.html").read_text()
    assert "<dd>grid.yaml, hash" in page and str(project.folder) not in page


def test_a_second_run_does_nothing_and_says_so(project):
    before = project.finished()
    benchmarks = project.folder / "results/grid/benchmarks"
    assert len(list(benchmarks.glob("score/**/*.tsv"))) == len(before) and (benchmarks / "report.tsv").exists()
    shutil.rmtree(benchmarks)  # results of an earlier release have none
    assert "Nothing to be done" in project.run()
    assert project.finished() == before


def test_snakemakes_own_report_has_every_table_figure_and_the_page(project):
    project.run("--report", "snakemake.html")
    text = (project.folder / "snakemake.html").read_text()
    names = [f"{name}.csv" for name in tables_for(Study.from_dict(project.plan.content))]
    for name in [*names, *(f"{name}.svg" for name in FIGURES), "index.html"]:
        assert name in text


def test_nothing_is_left_running(project):
    project.wait_until_gone(10)


def test_another_seed_computes_only_what_is_new(project):
    before = project.finished()
    project.config["seeds"] = [0, 1, 2]
    project.run("--until", "score")
    after = project.finished()
    assert len(after) == 24 and before.items() <= after.items()


def test_batch_size_actors_and_company_change_no_token(project, tmp_path):
    other = make_project(
        tmp_path / "other",
        methods={"lenience": {"params": [0.4]}},
        seeds=[1],
        cluster={"actors": 1, "cells_per_job": 2},
    )
    other.config["decoding"] = project.config["decoding"] | {"batch_size": 5}
    other.run("--until", "score")
    theirs, ours = project.tokens(), other.tokens()
    assert len(ours) == 2 * 2 * 12
    assert {key for key in ours if theirs[key] != ours[key]} == set()


def test_an_eagle3_head_goes_through_the_same_pipeline_in_its_own_convention(tmp_path):
    methods = {"spec_cascade": {"params": [0.3]}, "cos": {"params": [0.4]}}
    project = make_project(tmp_path / "trees", "demo_eagle3.yaml", methods=methods, seeds=[0])
    project.run(*(f"reports/grid/{name}" for name in ("tables/time.csv", "tables/table5.csv", "index.html")))
    assert len(project.plan.cells) == len(project.finished()) == 8
    tables = project.folder / "reports/grid/tables"
    time = pd.read_csv(tables / "time.csv").set_index("method")
    assert {"be", "be_expected", "ds"}.isdisjoint(time.columns)
    assert (time["be_eagle"] > 1).all()
    shown = pd.read_csv(tables / "table5.csv").groupby("method")["be_mean"].mean()
    assert shown.to_dict() == pytest.approx(time["be_eagle"].to_dict(), abs=1e-3)
    page = (project.folder / "reports/grid/index.html").read_text()
    assert "EAGLE-3 convention" in page and "single-draft convention" not in page


def test_one_cell_is_a_target(tmp_path):
    project = make_project(tmp_path / "one")
    cell = next(cell for cell in project.plan.cells if cell.method == "lenience")
    project.run(f"results/grid/cells/{cell.id}/graded.parquet")
    assert [path.parent for path in project.finished()] == [project.folder / cell.folder(project.plan.results)]


def test_a_cell_of_a_table_is_a_target_that_decodes_nothing_else(tmp_path):
    project = make_project(tmp_path / "reviewed")
    path = "reports/grid/cells/table=4/pair=demo/benchmark=chain_l6/method=lenience/param=0.4/seed=1"
    project.run(f"{path}.txt")
    cell = next(c for c in project.plan.cells if (c.method, c.benchmark, c.seed) == ("lenience", "chain_l6", 1))
    assert [path.parent for path in project.finished()] == [project.folder / cell.folder(project.plan.results)]
    text = (project.folder / f"{path}.txt").read_text()
    assert text.startswith("Table 4, chain_l6, lenience (0.4)") and "accuracy" in text

    # the same by its names, decoded again elsewhere: the finished cell is left alone, and every token is the same
    for name in ("Snakefile", "workflow", "config"):
        (project.folder / name).symlink_to(ROOT / name)
    names = ["--benchmark", "chain_l6", "--method", "lenience", "--param", ".4", "--seed", "1", "--rerun"]
    command = [sys.executable, "-m", "specloss.cli", "cell", "grid.yaml", *names]
    before = project.finished()
    done = subprocess.run(command, cwd=project.folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "12 of 12 answers are the same, token for token" in done.stdout
    assert project.finished() == before
    assert len(list(project.folder.glob("results/reruns/grid/cells/**/cell.json"))) == 1
    project.wait_until_gone(20)


def test_a_finished_cell_that_is_removed_is_decoded_again(tmp_path):
    project = make_project(tmp_path / "removed", seeds=[0], cluster={"cells_per_job": 1})
    cell = next(cell for cell in project.plan.cells if cell.method == "lenience")
    target = f"results/grid/cells/{cell.id}/graded.parquet"
    project.run(target)
    shutil.rmtree((project.folder / target).parent)
    project.run(target)
    assert (project.folder / target).exists()


def test_killed_snakemake_leaves_nothing_behind_and_the_next_run_redoes_no_finished_cell(tmp_path):
    project = make_project(tmp_path / "killed", seeds=[0, 1, 2], cluster={"cells_per_job": 24})
    log = (tmp_path / "log").open("w")
    environment = os.environ | {"PWD": str(project.folder)}
    process = subprocess.Popen(project.command(), cwd=project.folder, env=environment, stdout=log, stderr=log)
    while len(project.finished()) < 3 and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    project.wait_until_gone(30)
    before = project.finished()
    assert 3 <= len(before) < 24
    assert "24/24" not in (tmp_path / "log").read_text()
    project.run("--until", "score")
    after = project.finished()
    assert len(after) == 24 and before.items() <= after.items()
    assert not list(project.folder.rglob("*.part"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_ended_run_ends_everything_and_goes_on_later(tmp_path, monkeypatch, number):
    project = make_project(tmp_path / "ended", seeds=[0, 1, 2], cluster={"cells_per_job": 24})
    for benchmark in project.config["benchmarks"].values():
        benchmark["options"]["problems"] = 60  # time enough to be ended in the middle
    project.command()  # writes the config
    for name in ("Snakefile", "workflow", "config"):
        (project.folder / name).symlink_to(ROOT / name)
    command = [sys.executable, "-m", "specloss.cli", "run", "grid.yaml", "--until", "score"]
    process = subprocess.Popen(command, cwd=project.folder, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    while len(project.finished()) < 3 and process.poll() is None:
        time.sleep(0.05)
    with monkeypatch.context() as patch, pytest.raises(ConfigError, match="another run of grid"):
        patch.chdir(project.folder)
        claim_folder("grid")
    process.send_signal(number)
    assert process.wait(60) != 0
    project.wait_until_gone(30)
    before = project.finished()
    assert 3 <= len(before) < 24
    project.run("--until", "score")
    assert len(project.finished()) == 24 and before.items() <= project.finished().items()
