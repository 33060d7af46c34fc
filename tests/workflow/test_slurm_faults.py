"""Faults while cells run, on a real Slurm of one node: each ends in a whole and identical table, and leaves nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from cluster_project import BIN, Project, make_project, pace, wait_for
from slurm_cluster import command

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
SECONDS = 4.0  # that a cell takes at least, so that there is time to break something


@pytest.fixture(scope="module")
def reference(tmp_path_factory) -> Project:
    """The grid after a local run."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="sl") as temporary:
        project = make_project(tmp_path_factory.mktemp("local") / "clone", Path(temporary))
        project.run(slurm=False)
        project.assert_nothing_is_left()
    return project


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="sl") as temporary:
        project = make_project(tmp_path / "clone", Path(temporary))
        pace(project, SECONDS)
        yield project
        project.assert_nothing_is_left()


def assert_same(project: Project, reference: Project) -> None:
    """Token for token, and number for number."""
    assert project.tokens() == reference.tokens()
    pd.testing.assert_frame_equal(project.table(), reference.table())


def session(record: Path) -> int:
    return int(json.loads(record.read_text())["session"].partition(":")[0])


def test_a_killed_actor_and_a_killed_head_cost_nothing_but_time(slurm, project, reference):
    run = project.start()
    run.wait_until(lambda: len(project.heads()) == 2 and len(project.workers()) == 2 and project.finished())
    head, other = (session(record) for record in project.heads())
    worker = next(process for process in project.workers() if os.getsid(process.pid) == other)
    worker.kill()
    os.kill(head, signal.SIGKILL)
    said = run.end()
    assert run.process.returncode == 0, said
    assert "is gone; starting a new one" in said
    assert {job.state for job in slurm.jobs(project.folder)} == {"COMPLETED"}
    assert_same(project, reference)


def test_a_cancelled_job_is_tried_again_once_its_drained_node_is_back(slurm, project, reference):
    run = project.start()
    run.wait_until(lambda: len(project.heads()) == 2 and project.finished())
    before = project.finished()
    command("scontrol", "update", f"nodename={slurm.host}", "state=drain", "reason=test")
    try:
        cancelled = slurm.alive(project.folder)[0]
        command("scancel", cancelled.id)
        run.wait_until(lambda: [job for job in slurm.alive(project.folder) if job.state == "PENDING"])
        wait_for(lambda: len(slurm.alive(project.folder)) == 1, 300)  # the other one ends on the node that drains
    finally:
        command("scontrol", "update", f"nodename={slurm.host}", "state=resume")
    said = run.end()
    assert run.process.returncode == 0, said
    states = sorted(job.state for job in slurm.jobs(project.folder))
    assert states == ["CANCELLED", "COMPLETED", "COMPLETED"]
    assert before.items() <= project.finished().items()  # no whole cell was decoded again
    assert_same(project, reference)


def test_after_a_killed_snakemake_the_same_command_cancels_its_jobs_and_goes_on(slurm, project, reference):
    run = project.start()
    run.wait_until(lambda: len(project.heads()) == 2 and project.finished())
    run.process.kill()
    run.process.wait()
    before = project.finished()
    orphans = {job.id for job in slurm.alive(project.folder)}
    assert orphans
    bystander = command("sbatch", "--parsable", f"--chdir={project.folder}", "--wrap", "sleep 600").strip()
    said = project.run()
    (line,) = [line for line in said.splitlines() if line.startswith("cancelled Slurm jobs of a run that was killed")]
    assert set(line.rpartition(": ")[2].split()) == orphans
    assert [job.id for job in slurm.alive(project.folder)] == [bystander]
    command("scancel", bystander)
    assert before.items() <= project.finished().items()
    assert_same(project, reference)


def test_ctrl_c_cancels_the_jobs(slurm, project):
    run = project.start()
    run.wait_until(lambda: len(project.heads()) == 2 and project.finished())
    run.interrupt()
    run.end(120)
    assert run.process.returncode != 0
    wait_for(lambda: not slurm.alive(project.folder), 60)
    project.assert_nothing_is_left()
    assert not list(project.folder.rglob("*.part"))


def test_a_cell_that_always_fails_is_named_with_its_log_and_the_others_finish(slurm, project, reference):
    bad = next(cell for cell in project.plan.cells if cell.benchmark == "chain_l2" and cell.param == 0.8)
    pace(project, 0, fault=bad.label)
    said = project.run(fails=True)
    log = Path("results/grid/cells") / bad.id / "failure.txt"
    assert f"failed {bad.label}: ValueError: {bad.label} is not to be decoded (see {log})" in said
    assert "decode_cell" in (project.folder / log).read_text()
    assert len(project.finished()) == 5
    assert len(slurm.jobs(project.folder)) == 2  # its batch is not tried again for it
    pace(project, 0)
    project.run()
    assert_same(project, reference)


def test_a_full_disk_is_named_and_the_rerun_goes_on(slurm, project, reference):
    results, ballast = project.folder / "results", project.folder / "results/ballast"
    results.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(results)], check=True)
    try:
        run = project.start()
        run.wait_until(lambda: len(project.heads()) == 2 and project.finished())
        before = project.finished()
        with ballast.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
            while True:
                file.write(b"0" * 4096)
        said = run.end()
        assert run.process.returncode != 0
        logs = "".join(path.read_text() for path in (project.folder / ".snakemake/slurm_logs").rglob("*.log"))
        assert "No space left on device" in said + logs
        assert [line for line in logs.splitlines() if line.startswith("specloss: error: cannot write")]
        assert "Traceback" not in logs
        ballast.unlink()
        project.run()
        assert before.items() <= project.finished().items()
        assert_same(project, reference)
    finally:
        subprocess.run(["umount", str(results)], check=True)


def test_two_users_run_at_the_same_time_on_one_machine(slurm, project, reference):
    """Root through Slurm; nobody without, with the right to read, as this interpreter may be in root's home."""
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    nobody += ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="sl") as temporary:
        (Path(temporary) / "tmp").mkdir()
        other = make_project(Path(temporary) / "clone", Path(temporary) / "tmp")
        pace(other, SECONDS)
        other.environment["HOME"] = temporary
        other.write_config()
        for path in (Path(temporary), *Path(temporary).rglob("*")):
            os.lchown(path, 65534, 65534)
        runs = [project.start(), other.start(slurm=False, prefix=nobody)]
        runs[1].wait_until(other.workers)
        runs[0].wait_until(project.workers)
        users = [{process.uids().real for process in one.processes()} for one in (project, other)]
        assert users == [{0}, {65534}]
        said = [run.end() for run in runs]
        assert [run.process.returncode for run in runs] == [0, 0], said
        assert_same(project, reference)
        assert_same(other, reference)
        other.assert_nothing_is_left()


def test_local_jobs_inside_an_allocation_share_one_head_with_its_gpus(slurm, project, reference):
    """Snakemake by hand in an interactive allocation: not a head, and a pair, for each of its jobs."""
    project.config["cluster"] = {"cells_per_job": 1}
    project.write_config()
    snakemake = [str(BIN / "snakemake"), "results/grid/summary.parquet", "--cores", "3", "--configfile", "grid.yaml"]
    environment = os.environ | project.environment
    allocation = ["srun", "--gres=gpu:2", "--cpus-per-task=2", f"--chdir={project.folder}"]
    done = subprocess.run([*allocation, *snakemake], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(project.logs()) == 6
    loads = [line for line in project.said() if "loaded pair demo" in line]
    assert 1 <= len(loads) <= 2  # as many as GPUs
    assert_same(project, reference)


def test_ray_on_all_nodes_of_an_allocation_and_snakemake_inside(slurm, project, reference):
    project.write_config()
    submit = [
        "sbatch",
        "--wait",
        "--gres=gpu:2",
        "--cpus-per-task=2",
        "--mem=3000",
        f"--output={project.folder}/job.log",
    ]
    submit += ["workflow/scripts/ray_on_slurm.sbatch", "grid.yaml", "results/grid/summary.parquet"]
    environment = os.environ | project.environment | {"PATH": f"{BIN}:{os.environ['PATH']}"}
    job = subprocess.Popen(submit, cwd=project.folder, env=environment)
    wait_for(lambda: project.workers() or job.poll() is not None, 300)
    for process in project.processes():
        if process.name() in ("gcs_server", "raylet"):
            assert process.environ()["RAY_AUTH_MODE"] == "token"
    assert job.wait(900) == 0, (project.folder / "job.log").read_text()
    loads = [line for line in project.said() if "loaded pair demo" in line]
    assert 1 <= len(loads) <= 2
    assert_same(project, reference)
    assert not list((project.folder / ".snakemake").glob("ray-*"))
