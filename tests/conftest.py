"""Shared by all tests: the demo pair, loaded once, one torch thread (tests share two cores)."""

from __future__ import annotations

import pytest
from cpu_times import CpuTimes
from places import DEMO


def pytest_addoption(parser):
    parser.addoption("--cpu-times", action="store_true", help="show the CPU seconds of each test file")


def pytest_configure(config):
    if config.getoption("--cpu-times"):
        config.pluginmanager.register(CpuTimes())


def pytest_collection_modifyitems(items):
    """The longest files first, so that no process works alone on one at the end."""
    items.sort(key=lambda item: "workflow" not in item.path.parts)


@pytest.fixture(scope="session")
def pair():
    import torch

    from specloss import load_pair

    torch.set_num_threads(1)
    return load_pair(target=DEMO / "target", draft=DEMO / "draft", dtype="float32", device="cpu")


@pytest.fixture(scope="session")
def pair_in_float64():
    from specloss import load_pair

    return load_pair(target=DEMO / "target", draft=DEMO / "draft", dtype="float64", device="cpu")


@pytest.fixture
def exact_pair(pair_in_float64):
    """The demo pair, in float64 through and through."""
    from exactness import InFloat64

    with InFloat64():
        yield pair_in_float64


@pytest.fixture(scope="session")
def tree_head(tmp_path_factory):
    """Folder of an EAGLE-3 head for the demo target: random weights, a reduced vocabulary; it drafts any tree."""
    from eagle3_cases import checkpoint, save

    config, tensors = checkpoint(width=128, target_width=128, head_dim=32, vocab=34, draft_vocab=24)
    config["eagle_aux_hidden_state_layer_ids"] = [1, 2, 3]
    return str(save(tmp_path_factory.mktemp("eagle3") / "head", config, tensors))


@pytest.fixture(scope="session")
def tree_pair(tree_head):
    """The demo target with that head."""
    import torch

    from specloss import load_pair

    torch.set_num_threads(1)
    return load_pair(DEMO / "target", tree_head, kind="eagle3", dtype="float32", device="cpu")


@pytest.fixture(scope="session")
def tree_pair_in_float64(tree_head):
    from specloss import load_pair

    return load_pair(DEMO / "target", tree_head, kind="eagle3", dtype="float64", device="cpu")


@pytest.fixture
def exact_tree_pair(tree_pair_in_float64):
    """The demo target with that head, in float64 through and through."""
    from exactness import InFloat64

    with InFloat64():
        yield tree_pair_in_float64


@pytest.fixture(scope="session")
def prompts():
    """200 prompts of 6 to 189 tokens: problems of all levels, and texts that run several together."""
    from specloss.benchmarks.chain import load

    problems = [item.prompt for level in (8, 1, 4, 2, 6) for item in load(level=level, problems=38)]
    return problems + ["".join(problems[i : i + 1 + i % 7]) for i in range(10)]


@pytest.fixture(scope="session")
def slurm():
    """A real Slurm of one node; skips where there is none to start."""
    from slurm_cluster import running_slurm

    with running_slurm() as cluster:
        yield cluster
