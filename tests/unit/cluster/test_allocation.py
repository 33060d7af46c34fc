"""What a job takes from its allocation, and whom it belongs to: no Ray, no Slurm."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from specloss.cluster import pool as pools
from specloss.cluster import ray_head as heads
from specloss.cluster import relay as relays
from specloss.cluster.pool import Pool
from specloss.cluster.ray_head import RayHeadError
from specloss.cluster.runs import claim_folder, remember_owner
from specloss.cluster.supervisor import allocated_gpus
from specloss.common.processes import owner_id
from specloss.common.yamlfile import ConfigError

SLURM = {"SLURM_JOB_ID": "7"}


@pytest.mark.parametrize(
    ("environment", "gpus"),
    [
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, None),  # outside of Slurm Ray counts
        (SLURM | {"CUDA_VISIBLE_DEVICES": "2,3"}, 2),
        (SLURM | {"CUDA_VISIBLE_DEVICES": "MIG-5c38, GPU-91aa,3"}, 3),
        (SLURM | {"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, 0),
        (SLURM | {"CUDA_VISIBLE_DEVICES": ""}, 0),
        (SLURM | {"ROCR_VISIBLE_DEVICES": "0"}, 1),
        (SLURM | {"SLURM_GPUS_ON_NODE": "4"}, 4),
        (SLURM, 0),  # a job without GPUs on a node that has some
    ],
)
def test_the_gpus_of_a_job_are_those_of_its_allocation(monkeypatch, environment, gpus):
    for name in ("SLURM_JOB_ID", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "SLURM_GPUS_ON_NODE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert allocated_gpus() == gpus


def pool(nodes: list[dict], **cluster: object) -> Pool:
    ray = SimpleNamespace(nodes=lambda: [{"Alive": True, "Resources": node} for node in nodes])
    return Pool(ray, "pair", {}, cluster)


@pytest.mark.parametrize(
    ("nodes", "cluster", "actors", "threads"),
    [
        ([{"CPU": 8, "GPU": 3}] * 2, {"gpus_per_pair": 2}, 2, 8),  # six GPUs, but a pair is on one node
        ([{"CPU": 8, "GPU": 3}, {"CPU": 4}], {}, 3, 2),
        ([{"CPU": 8, "GPU": 4}], {"gpus_per_pair": 0.5}, 8, 1),
        ([{"CPU": 8, "GPU": 4}], {"gpus_per_pair": 1, "actors": 2}, 2, 4),
        ([{"CPU": 8}], {}, 2, 4),
        ([{"CPU": 1}], {}, 1, 1),
    ],
)
def test_actors_are_as_many_as_fit_the_nodes(nodes, cluster, actors, threads):
    fitted = pool(nodes, **cluster)
    assert (fitted.size, fitted._threads) == (actors, threads)


def test_a_pair_larger_than_any_node_is_refused_with_both_numbers():
    with pytest.raises(RayHeadError, match=r"pair pair needs 4 GPUs on one node .*, the largest node .* has 3"):
        pool([{"CPU": 8, "GPU": 3}] * 2, gpus_per_pair=4)


def test_idle_actors_are_ended_and_busy_ones_are_not():
    idle = {"ours": 9.0, "idle": 9.0, "busy": 0.0}
    ended = []

    class RayError(Exception):
        pass

    ray = SimpleNamespace(
        util=SimpleNamespace(list_named_actors=lambda: list(idle)),
        get_actor=lambda name: SimpleNamespace(name=name, idle=SimpleNamespace(remote=lambda: idle[name])),
        get=lambda value, timeout: value,
        kill=lambda actor: ended.append(actor.name),
        exceptions=SimpleNamespace(RayError=RayError),
    )
    pools.end_idle_actors(ray, 5.0, {"ours"})
    assert ended == ["idle"]


def test_an_owner_counts_only_where_it_is(monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setenv(heads.OWNER, heads.owner_here())
    assert heads._owner() == (owner_id(), False)
    # its environment in a Slurm job: another place, be it on the same host
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert heads._owner() == (owner_id(), True)
    # a Snakemake inside the job, with local jobs
    monkeypatch.setenv(heads.OWNER, heads.owner_here())
    assert heads._owner() == (owner_id(), False)


def test_a_lock_is_kept_for_a_living_run_and_for_one_on_another_host(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    lock = Path(".snakemake/locks/0.input.lock")
    lock.parent.mkdir(parents=True)
    lock.touch()
    remember_owner("grid")
    with pytest.raises(ConfigError, match=rf"another run of grid \(process {os.getpid()}\) is running"):
        claim_folder("grid")
    owner = Path(".snakemake/specloss/grid")
    owner.write_text("1:1@login-2/")
    with pytest.raises(ConfigError, match=rf"\(process 1 on login-2\) .* if it is gone, remove {owner}"):
        claim_folder("grid")
    assert lock.exists()
    owner.write_text(f"1:1@{socket.gethostname()}/")
    claim_folder("grid")
    assert not lock.exists()


def test_the_relay_says_what_jobs_say_once_and_counts_cells_itself(tmp_path, capsys):
    logs = tmp_path / "logs/decode"
    logs.mkdir(parents=True)
    stamp = "2026-01-01 00:00:00  "
    (logs / "old.log").write_text(f"{stamp}of an earlier run\n")
    (tmp_path / "run.json").write_text('{"pending": 2, "started": 1.0}')
    relay = relays.Relay(tmp_path)
    (logs / "new.log").write_text(
        f"{stamp}loaded pair demo\n{stamp}finished a cell\n{stamp}decode  1/2 cells\n{stamp}cut"
    )
    (tmp_path / "progress.tsv").write_text("60.0\ta cell\t118\t59.0\n59.9\tcut by a full di\n")
    relay._look()
    relay._look()
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "loaded pair demo" and said[1].startswith("decode  1/2 cells") and len(said) == 2
    with (logs / "new.log").open("a") as file:
        file.write(" off, then whole\n")
    relay._look()
    assert capsys.readouterr().err.splitlines() == ["cut off, then whole"]
