"""On a real Slurm of one node, with GPUs that are not there: a grid from end to end."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
import yaml
from cluster_project import PROFILE, SUMMARY, Project, make_project
from places import DEMO, ROOT

from specloss.cluster.ray_head import OWNER

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="sl") as temporary:  # sockets want a short path
        yield make_project(tmp_path / "clone", Path(temporary))


def test_a_grid_on_slurm_has_the_tokens_of_a_local_run_and_a_pair_loads_once_per_allocation(slurm, project, pair):
    from specloss.decoding.cell import decode_cell

    said = project.run()
    # jobs: decode alone, six cells in batches of three
    jobs = slurm.jobs(project.folder)
    assert {job.state for job in jobs} == {"COMPLETED"}
    assert sorted(job.comment for job in jobs) == sorted(f"rule_decode_wildcards_{log.stem}" for log in project.logs())
    assert len(jobs) == 2
    # one GPU each, so one actor, that loads once
    loads = [[line for line in log.read_text().splitlines() if "loaded pair demo" in line] for log in project.logs()]
    assert [len(lines) for lines in loads] == [1, 1]
    # what jobs say reaches Snakemake's own output
    assert said.count("loaded pair demo") == 2 and "decode  6/6 cells" in said
    # as decoded without Snakemake, Ray or Slurm
    local = {}
    for cell in project.plan.cells:
        _, generations = decode_cell(pair, cell, range(4), batch_size=4, trace="light")
        local |= {(cell.id, row["problem"]): row["token_ids"] for row in generations.to_pylist()}
    assert project.tokens() == local
    assert list(project.table()["status"]) == ["whole"] * 6
    project.assert_nothing_is_left()


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_the_whole_demo_has_the_tables_and_tokens_of_a_local_run(slurm, tmp_path):
    demo = yaml.safe_load((ROOT / "config/demo.yaml").read_text())
    for role in ("target", "draft"):
        demo["pairs"]["demo"][role] = str(DEMO / role)
    tables = ("table2", "table4", "gaps", "distortion", "verdicts", "findings")
    targets = [SUMMARY, *(f"reports/grid/tables/{name}.csv" for name in tables)]
    found = {}
    for where in ("slurm", "local"):
        with tempfile.TemporaryDirectory(dir="/tmp", prefix="sl") as temporary:
            project = make_project(tmp_path / where, Path(temporary), **demo | {"name": "grid"})
            profile = project.folder / PROFILE
            profile.write_text(profile.read_text().replace("cells_per_job: 3", "cells_per_job: 60"))
            project.run(*targets, slurm=where == "slurm", seconds=3000)
            project.assert_nothing_is_left()
            found[where] = project
    jobs, cells = slurm.jobs(found["slurm"].folder), len(found["slurm"].plan.cells)
    assert len(jobs) == math.ceil(cells / 60) and {job.state for job in jobs} == {"COMPLETED"}
    assert [log.read_text().count("loaded pair demo") for log in found["slurm"].logs()] == [1] * len(jobs)
    assert found["slurm"].tokens() == found["local"].tokens()
    assert len(found["slurm"].tokens()) == cells * 100
    for name in tables:
        one, other = (pd.read_csv(p.folder / f"reports/grid/tables/{name}.csv") for p in found.values())
        timed = [column for column in one if column.startswith("ds")]
        pd.testing.assert_frame_equal(one.drop(columns=timed), other.drop(columns=timed))


def test_only_what_holds_models_is_submitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from snakemake.api import ConfigSettings, OutputSettings, ResourceSettings, SnakemakeApi, StorageSettings

    for name in ("PATH", OWNER):  # the Snakefile sets them
        monkeypatch.setenv(name, os.environ.get(name, ""))
    with SnakemakeApi(OutputSettings(quiet={"all"})) as api:
        workflow = api.workflow(
            resource_settings=ResourceSettings(cores=1),
            config_settings=ConfigSettings(config={"results": str(tmp_path), "reports": str(tmp_path)}),
            storage_settings=StorageSettings(),
            snakefile=ROOT / "Snakefile",
            workdir=ROOT,
        )
        rules = {rule.name for rule in workflow._workflow.rules}
        local = set(workflow._workflow._localrules)
    assert rules - local == {"decode", "trace", "distil_model", "train_demo", "train_demo_eagle3"}
