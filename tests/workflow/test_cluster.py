"""The Ray layer, with real heads, actors, kills and sockets. Only decoding itself is a stub (see stub_decoding)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from specloss.cluster import ray_head as heads
from specloss.cluster.progress import Progress
from specloss.cluster.supervisor import NODE_IP, free_ports, head_environment
from specloss.common.processes import end_session, owner_id, process_alive, session_members
from specloss.experiment.batches import CellBatch, batch_folder, write_batches
from specloss.experiment.cells import GENERATIONS, STEPS, Cell

STUB = Path(__file__).parent / "stub_decoding"
CLIENT = """
import os, resource, sys
from pathlib import Path
from specloss.cluster import job

job.LINGER_SECONDS = float(os.environ.get("TEST_LINGER", job.LINGER_SECONDS))

def write_with_little_room(*arguments, write=job.write_cell):
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), hard))
    try:
        return write(*arguments)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))

if len(sys.argv) > 3:
    job.write_cell = write_with_little_room
sys.exit(job.run_batch(Path(sys.argv[1]), Path("results"), Path(sys.argv[2])))
"""


def cell(name: str, seed: int = 0, pair: str = "stub", **options: object) -> Cell:
    benchmark = {"options": {"problems": 4, **options}, "max_new_tokens": 2}
    settings = {"pair": {"target": pair}, "benchmark": benchmark, "decoding": {}}
    return Cell("test", pair, name, "standard_sd", None, seed, settings)


class Workdir:
    """A working directory with a head of its own, owned by this test process."""

    def __init__(self, path: Path, **environment: str) -> None:
        self.path = path
        path.mkdir(exist_ok=True)
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "SLURM_", "SPECLOSS_"))}
        self.environment = inherited | {"SPECLOSS_OWNER": heads.owner_here(), "PYTHONPATH": str(STUB)} | environment

    def client(self, *cells: Cell, name: str = "job", room: str = "", **cluster: object) -> subprocess.Popen[str]:
        """A decode job in a process of its own, perhaps with little room on its disk."""
        batch = CellBatch(cells)
        write_batches([batch], self.path / "results", {"actors": 2, "batch_size": 4, **cluster})
        file = batch_folder(self.path / "results", "test") / f"{batch.id}.json"
        command = [sys.executable, "-c", CLIENT, str(file), f"{name}.log", *room.split()]
        return subprocess.Popen(command, cwd=self.path, env=self.environment, stderr=subprocess.PIPE, text=True)

    def run(self, *cells: Cell, fails: int = 0, **cluster: object) -> str:
        """Run a job to its end; what it says."""
        client = self.client(*cells, **cluster)
        said = client.communicate(timeout=60)[1]
        assert client.returncode == fails, said
        return said

    @property
    def folder(self) -> Path:
        return heads.state_folder(self.path, private=False)

    @property
    def record(self) -> dict:
        return json.loads((self.folder / "head.json").read_text())

    def processes(self) -> list[psutil.Process]:
        return session_members(self.record["session"])

    def workers(self) -> list[psutil.Process]:
        return [p for p in self.processes() if "PairWorker" in p.cmdline()[0]]

    def finished(self) -> list[str]:
        """Cells in the order in which they were finished, from the whole folder's progress."""
        file = self.path / "results/test/progress.tsv"
        return [line.split("\t")[1] for line in file.read_text().splitlines()] if file.exists() else []

    def whole(self, *cells: Cell) -> bool:
        return all(c.is_whole(self.path / "results") for c in cells)

    def stop(self) -> bool:
        return heads.stop_head(self.path)


def wait_for(condition: Callable[[], object], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workdir]:
    """One head for all tests that leave it alive."""
    workdir = Workdir(tmp_path_factory.mktemp("shared"))
    yield workdir
    workdir.stop()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Workdir]:
    """A head for one test."""
    workdir = Workdir(tmp_path)
    yield workdir
    workdir.stop()


def test_simultaneous_clients_share_one_head_and_each_actor_loads_once(shared: Workdir) -> None:
    batches = [[cell(f"together{i}", seed, seconds=0.05) for seed in range(4)] for i in range(3)]
    clients = [shared.client(*cells, name=f"together{i}") for i, cells in enumerate(batches)]
    said = [client.communicate(timeout=60)[1] for client in clients]
    assert [client.returncode for client in clients] == [0, 0, 0], said
    assert all(shared.whole(*cells) for cells in batches)
    assert len([p for p in shared.processes() if "gcs_server" in p.name()]) == 1
    loads = [line for log in shared.path.glob("together*.log") for line in log.read_text().splitlines()]
    loads = [line for line in loads if "loaded pair stub in" in line]
    workers = {line.partition("(worker ")[2] for line in loads}
    assert len(loads) == len(workers) == len(shared.workers()) == 2


def test_a_whole_batch_starts_no_ray(own: Workdir) -> None:
    done = cell("done")
    for name in ("steps.parquet", "generations.parquet", "cell.json"):
        path = done.folder(own.path / "results") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert own.run(done) == ""
    assert not own.folder.exists()


def test_a_split_cell_is_whole_and_in_order_and_says_how_it_was_made(shared: Workdir) -> None:
    split = cell("split", seed=5, problems=11)
    shared.run(split, problems_per_task=3)
    folder = split.folder(shared.path / "results")
    steps, generations = (pq.read_table(folder / name, partitioning=None) for name in (STEPS, GENERATIONS))
    assert generations["token_ids"].to_pylist() == [[5, index] for index in range(11)]
    at = zip(steps["index"].to_pylist(), steps["step"].to_pylist(), strict=True)
    assert list(at) == [(index, step) for index in range(11) for step in (0, 1)]
    meta = json.loads((folder / "cell.json").read_text())
    assert Cell.from_dict(meta["cell"]) == split and meta["key"] == split.key
    assert {*("code", "packages", "device", "dtype", "models", "generation", "seed", "decode_seconds")} == meta[
        "run"
    ].keys()
    for table in (steps, generations):
        assert json.loads(table.schema.metadata[b"specloss"]) == {"key": split.key, "run": meta["run"]}


def test_a_failing_cell_is_named_and_the_others_finish(shared: Workdir) -> None:
    bad, good, greedy = cell("bad", fault="prompt 3 is empty"), cell("good"), cell("greedy", rows=1)
    said = shared.run(bad, good, greedy, fails=1)
    failure = bad.folder(shared.path / "results") / "failure.txt"
    lines = [line for line in said.splitlines() if line.startswith("failed")]
    assert len(lines) == 1 and bad.label in lines[0] and "ValueError: prompt 3 is empty" in lines[0]
    assert "prompt 3 is empty" in failure.read_text() and "decode_cell" in failure.read_text()
    assert shared.whole(good, greedy) and not shared.whole(bad)
    assert "out of memory with 4 rows" in said and "going on with 1" in said
    mended = cell("bad")
    shared.run(mended)
    assert shared.whole(mended) and not failure.exists()


def test_progress_is_that_of_the_whole_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    started = time.time() - 100
    (tmp_path / "run.json").write_text(json.dumps({"pending": 8, "started": started}))
    rows = [(started - 50, "earlier run", 1000, 1), (started + 60, "another job's", 600, 20)]
    (tmp_path / "progress.tsv").write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))
    progress = Progress(tmp_path, pending=3, log=tmp_path / "logs/job.log")
    for name in ("first", "second"):  # less than two seconds apart: the second is told at the end
        progress.finished(name, 300, 1.0)
    assert capsys.readouterr().err == "decode  2/8 cells  15 tokens/s  3m00s left\n"
    progress.show()
    progress.show()
    assert capsys.readouterr().err == "decode  3/8 cells  20 tokens/s  1m40s left\n"
    assert "finished second: 300 tokens" in (tmp_path / "logs/job.log").read_text()


def test_a_full_disk_ends_the_job_in_one_line_and_leaves_nothing_half_written(shared: Workdir) -> None:
    small, large = cell("small"), cell("large", problems=5000)
    client = shared.client(small, large, room="20000")
    last = client.communicate(timeout=60)[1].splitlines()[-1]
    assert client.returncode == 1 and "ResultsError: cannot write" in last and "File too large" in last
    assert shared.whole(small) and not list(large.folder(shared.path / "results").iterdir())
    shared.run(small, large)
    assert shared.whole(small, large)


def test_an_actor_killed_in_a_cell_comes_back_and_no_other_cell_is_redone(shared: Workdir) -> None:
    cells = [cell("killed", seed, seconds=0.3) for seed in range(4)]
    before = len(shared.finished())
    client = shared.client(*cells)
    wait_for(lambda: len(shared.finished()) > before)
    shared.workers()[0].kill()
    said = client.communicate(timeout=60)[1]
    assert client.returncode == 0, said
    assert sorted(shared.finished()[before:]) == sorted(c.id for c in cells)


def test_a_client_killed_in_the_middle_leaves_no_half_written_cell(shared: Workdir) -> None:
    cells = [cell("client", seed, seconds=0.2) for seed in range(5)]
    before = len(shared.finished())
    client = shared.client(*cells)
    wait_for(lambda: len(shared.finished()) > before)
    client.kill()
    client.communicate()
    results = shared.path / "results"
    finished = {path: path.stat().st_mtime_ns for c in cells for path in c.folder(results).glob("cell.json")}
    assert finished and len(finished) < len(cells)
    for file in results.rglob("pair=*/**/*.parquet"):
        pq.read_table(file)  # whatever has its name is whole
    shared.run(*cells)
    assert shared.whole(*cells)
    assert all(path.stat().st_mtime_ns == mtime for path, mtime in finished.items())
    assert not list(results.rglob("*.part"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_client_ends_promptly_on_a_signal(shared: Workdir, number: int) -> None:
    cells = [cell(f"signal{number}", seed, seconds=1) for seed in range(4)]
    client = shared.client(*cells)
    wait_for(psutil.Process(client.pid).net_connections)  # that is, with Ray
    time.sleep(1)
    client.send_signal(number)
    client.communicate(timeout=5)
    assert client.returncode != 0
    assert not shared.whole(*cells)
    assert process_alive(shared.record["supervisor"])


def test_what_listens_is_on_loopback_and_asks_for_the_token(shared: Workdir) -> None:
    """The GCS, the raylet's node and object managers, each worker and the agents; the token is for other users.

    Nothing listens where other heads look for ports, nor outside of our own block.
    """
    shared.run(cell("listening"))
    found = set()
    for process in shared.processes():
        for connection in process.net_connections("inet"):
            if connection.status == psutil.CONN_LISTEN:
                assert 20000 <= connection.laddr.port < 32000
                assert connection.laddr.ip.removeprefix("::ffff:").startswith("127.")
                found.add(process.cmdline()[0].rpartition("/")[2])
    assert found >= {"gcs_server", "raylet"}
    # what ray.init asks first; ray.init itself tries for 20 seconds
    ask = f"from ray._raylet import GcsClient; GcsClient({shared.record['address']!r}).get_all_node_info(timeout=5)"
    for authentication in ({}, {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")} | authentication
        asked = subprocess.run([sys.executable, "-c", ask], env=environment, capture_output=True, text=True)
        assert asked.returncode != 0 and "token authentication is enabled" in asked.stderr, asked.stderr


def test_a_given_address_is_used_and_never_stopped(shared: Workdir, tmp_path: Path) -> None:
    shared.run(cell("given"))
    token = head_environment(shared.folder.parent / "token")
    guest = Workdir(tmp_path / "guest", TEST_LINGER="1", **token)
    done, hosts = cell("guest", pair="guest"), {worker.pid for worker in shared.workers()}
    guest.run(done, address=shared.record["address"])
    assert guest.whole(done)
    assert not guest.folder.exists() and not guest.stop()
    # its actors do not keep what is not theirs, even if nobody ends them, and no others end
    wait_for(lambda: {worker.pid for worker in shared.workers()} == hosts)
    # as the workflow does at its end: actors of this user that no client waits for go, the cluster stays
    del guest.environment["TEST_LINGER"]
    client = guest.client(cell("long", pair="guest", seconds=10), address=shared.record["address"], actors=1)
    wait_for(lambda: {worker.pid for worker in shared.workers()} > hosts)
    time.sleep(1)
    client.send_signal(signal.SIGINT)
    assert client.wait(10) != 0
    stop = [sys.executable, "-m", "specloss.cli", "stop", "--address", shared.record["address"]]
    subprocess.run(stop, cwd=guest.path, env=guest.environment, check=True)
    wait_for(lambda: not shared.workers())
    assert all(process_alive(shared.record[name]) for name in ("supervisor", "session"))


@pytest.mark.slow
def test_pairs_take_turns_on_a_gpu_that_holds_one_of_them(tmp_path: Path) -> None:
    """On a cluster of one make-believe GPU, started here and given by address."""
    port, token = free_ports(), tmp_path / "token"
    token.write_text("1" * 64)
    guest = Workdir(tmp_path / "guest", **head_environment(token))
    start = ["--head", "--block", f"--port={port}", f"--node-ip-address={NODE_IP}", "--num-gpus=1", "--num-cpus=2"]
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", *start, "--include-dashboard=false"]
    cluster = subprocess.Popen(command, env=guest.environment, start_new_session=True, stdout=subprocess.PIPE)
    session = owner_id(cluster.pid)
    try:
        assert cluster.stdout and any(b"Ray runtime started" in line for line in cluster.stdout)
        address = f"{NODE_IP}:{port}"
        first, second = cell("first", pair="first"), cell("second", pair="second")
        for one in (first, second, cell("third", pair="first")):
            guest.run(one, address=address, actors="auto")
            assert guest.whole(one)
        said = guest.client(cell("greedy"), address=address, gpus_per_pair=2).communicate(timeout=60)[1]
        assert "pair stub needs 2 GPUs on one node" in said
    finally:
        end_session(session)


def test_nothing_outlives_a_killed_owner_and_nothing_else_is_touched(own: Workdir, shared: Workdir) -> None:
    shared.run(cell("bystander"))
    bystanders = [*shared.processes(), psutil.Popen(["bash", "-c", "exec -a raylet sleep 60"])]
    owner = subprocess.Popen(["sleep", "60"])
    own.environment["SPECLOSS_OWNER"] = heads.owner_here().replace(owner_id(), owner_id(owner.pid))
    own.run(cell("orphan"))
    ours = [*own.processes(), psutil.Process(int(own.record["supervisor"].partition(":")[0]))]
    assert len(ours) > 5
    owner.kill()
    owner.wait()
    wait_for(lambda: not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in ours), 10)
    wait_for(lambda: not own.folder.exists(), 5)
    assert all(p.is_running() for p in bystanders)
    bystanders[-1].kill()


def test_a_lost_head_is_replaced(own: Workdir) -> None:
    # killed while a job runs
    cells = [cell("headless", seed, seconds=0.3) for seed in range(4)]
    client = own.client(*cells)
    wait_for(own.finished)
    first = own.record["session"]
    os.kill(int(first.partition(":")[0]), signal.SIGKILL)
    said = client.communicate(timeout=90)[1]
    assert client.returncode == 0, said
    assert "is gone; starting a new one" in said
    assert sorted(own.finished()) == sorted(c.id for c in cells)
    second = own.record["session"]
    assert second != first and not session_members(first)
    # half dead between two jobs: `ray start` does not notice when its raylet is ended by SIGTERM
    next(p for p in own.processes() if p.name() == "raylet").terminate()
    own.run(cell("after"))
    third = own.record["session"]
    assert third != second and not session_members(second)
    # without its supervisor: Ray's two agents would live for half a minute more
    os.kill(int(own.record["supervisor"].partition(":")[0]), signal.SIGKILL)
    assert own.stop() and not session_members(third)


def test_a_slurm_job_has_a_head_of_its_own_that_ends_with_it(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="sl") as node:  # pytest's own is too long for sockets
        job = Workdir(tmp_path, TMPDIR=node, SLURM_JOB_ID="7", SPECLOSS_OWNER="1:1@login-node/")
        client = job.client(cell("slurm", seconds=0.2))
        wait_for(job.finished)
        (record,) = Path(node).glob("specloss-*/*/head.json")
        session = json.loads(record.read_text())["session"]
        assert client.wait(timeout=20) == 0
        assert not session_members(session)
        assert not record.parent.exists()
