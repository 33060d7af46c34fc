"""MLflow says what the files say, once, whatever happened before."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pandas as pd
import pytest

import specloss
from specloss import tracking
from specloss.cells import Cell
from specloss.tracking import AGGREGATE, CELL, FINGERPRINT, PARENT, TrackingError, track

pytestmark = pytest.mark.timeout(120)

DECODING = {"gamma": 8, "temperature": 0.7, "top_k": 0, "top_p": 1.0}


class Study:
    """A tiny experiment on disk, as the workflow leaves it: plan, summary and reports."""

    def __init__(self, root: Path) -> None:
        self.results, self.reports = root / "results", root / "reports" / "tiny"
        self.config = {"name": "tiny", "decoding": DECODING, "seeds": [0, 1], "mlflow": {"uri": None}}
        self.cells = [
            Cell("tiny", "demo", "chain_l2", method, param, seed, self.settings(method))
            for method, param in (("standard_sd", None), ("lenience", 0.4), ("lenience", 0.8))
            for seed in (0, 1)
        ]
        self.summary = pd.DataFrame(
            {
                "pair": "demo",
                "benchmark": "chain_l2",
                "method": [cell.method for cell in self.cells],
                "param": pd.array([cell.param for cell in self.cells], dtype="Float64").astype(float),
                "seed": [cell.seed for cell in self.cells],
                "status": "whole",
                "accuracy": [0.9, 0.92, 0.7, 0.72, 0.8, 0.82],
                "be": [5.0, 5.1, 7.0, 7.1, 6.0, 6.1],
                "tv_pi_p": [float("nan")] * 2 + [0.1] * 4,
            }
        )
        (self.reports / "tables").mkdir(parents=True)
        (self.reports / "tables" / "table4.csv").write_text("method,be\n")
        (self.reports / "index.html").write_text("<html></html>")

    @staticmethod
    def settings(method: str) -> dict:
        return {
            "pair": {"kind": "draft", "target": "models/target", "draft": "models/draft", "dtype": "auto"},
            "benchmark": {"task": "chain", "options": {"level": 2}, "max_new_tokens": 64},
            "decoding": DECODING,
            "rule": method,
            "options": {"residual": "matched"},
        }

    def track(self) -> int:
        folder = self.results / "tiny"
        folder.mkdir(parents=True, exist_ok=True)
        self.summary.to_parquet(folder / "summary.parquet")
        plan = {"config": self.config, "source": "tiny.yaml", "cells": [cell.to_dict() for cell in self.cells]}
        (folder / "experiment.json").write_text(json.dumps(plan))
        return track(folder / "experiment.json", self.results, self.reports)

    def client(self):
        from mlflow import MlflowClient

        return MlflowClient(f"sqlite:///{self.results.resolve()}/mlflow.db")

    def runs(self) -> dict[str, object]:
        """Active runs by cell id; fails on duplicates."""
        client = self.client()
        experiment = client.get_experiment_by_name("tiny")
        runs = list(client.search_runs([experiment.experiment_id]))
        by_cell = {run.data.tags[CELL]: run for run in runs}
        assert len(by_cell) == len(runs)
        return by_cell


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty_store: Path) -> Study:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    study = Study(tmp_path)
    study.results.mkdir()
    (study.results / "mlflow.db").write_bytes(empty_store.read_bytes())
    return study


@pytest.fixture(scope="module")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated store, made once: the migration takes seconds."""
    path = tmp_path_factory.mktemp("store") / "mlflow.db"
    tracking._create_sqlite(f"sqlite:///{path}")
    return path


def test_each_cell_is_a_run_below_the_aggregate_run(study: Study):
    assert study.track() == 7
    runs = study.runs()
    assert runs.keys() == {cell.id for cell in study.cells} | {AGGREGATE}
    cell = study.cells[2]
    run = runs[cell.id]
    assert run.info.run_name == "lenience(0.4) · chain_l2 · seed 0"
    assert run.info.status == "FINISHED"
    assert run.data.metrics == {"accuracy": 0.7, "be": 7.0, "tv_pi_p": 0.1}
    assert run.data.params.items() >= {
        "gamma": "8", "temperature": "0.7", "rule": "lenience", "param": "0.4", "seed": "0",
        "options.residual": "matched", "target": "models/target", "max_new_tokens": "64",
    }.items()  # fmt: skip
    assert run.data.tags.items() >= {
        "pair": "demo", "benchmark": "chain_l2", "method": "lenience", "param": "0.4", "seed": "0",
        "config_hash": cell.key, PARENT: runs[AGGREGATE].info.run_id,
    }.items()  # fmt: skip


def test_a_run_names_the_code_that_decoded_its_cell(study: Study):
    folder = study.cells[0].folder(study.results)
    folder.mkdir(parents=True)
    made = {"code": {"version": "0.0.9", "commit": "abc123+changes"}, "device": "cpu", "dtype": "float32"}
    (folder / "cell.json").write_text(json.dumps({"key": study.cells[0].key, "run": made}))
    study.track()
    runs = study.runs()
    assert runs[study.cells[0].id].data.tags.items() >= {
        "code_version": "0.0.9 abc123+changes", "device": "cpu", "dtype": "float32"
    }.items()  # fmt: skip
    assert runs[study.cells[1].id].data.tags["code_version"] == specloss.__version__


def test_a_rule_without_parameter_is_named_without_and_nan_is_no_metric(study: Study):
    study.track()
    run = study.runs()[study.cells[0].id]
    assert run.info.run_name == "standard_sd · chain_l2 · seed 0"
    assert run.data.params["param"] == "none"
    assert run.data.metrics == {"accuracy": 0.9, "be": 5.0}


def test_tables_and_plots_are_artifacts_of_the_aggregate_run_beside_the_results(study: Study):
    study.track()
    run_id = study.runs()[AGGREGATE].info.run_id
    client = study.client()
    assert [file.path for file in client.list_artifacts(run_id)] == ["index.html", "tables"]
    assert [file.path for file in client.list_artifacts(run_id, "tables")] == ["tables/table4.csv"]
    assert any((study.results / "mlflow-artifacts").rglob("table4.csv"))


def test_running_again_writes_nothing(study: Study):
    study.track()
    before = {cell: run.info.run_id for cell, run in study.runs().items()}
    assert study.track() == 0
    assert {cell: run.info.run_id for cell, run in study.runs().items()} == before


def test_a_changed_metric_updates_its_run_and_no_other(study: Study):
    study.track()
    before = study.runs()
    study.summary.loc[3, "accuracy"] = 0.5
    assert study.track() == 1
    after = study.runs()
    changed = study.cells[3].id
    assert after[changed].data.metrics["accuracy"] == 0.5
    assert after[changed].info.status == "FINISHED"
    assert {cell: run.info.run_id for cell, run in after.items()} == {
        cell: run.info.run_id for cell, run in before.items()
    }


def test_a_changed_table_updates_the_aggregate_run_alone(study: Study):
    study.track()
    (study.reports / "tables" / "table4.csv").write_text("method,be\nlenience,7\n")
    assert study.track() == 1


def test_a_changed_parameter_replaces_the_run(study: Study):
    study.track()
    old = study.runs()[study.cells[0].id].info.run_id
    settings = study.cells[0].settings | {"options": {"residual": "standard"}}
    study.cells[0] = Cell("tiny", "demo", "chain_l2", "standard_sd", None, 0, settings)
    assert study.track() == 1
    run = study.runs()[study.cells[0].id]
    assert run.info.run_id != old
    assert run.data.params["options.residual"] == "standard"
    assert study.client().get_run(old).info.lifecycle_stage == "deleted"


def test_a_metric_that_is_no_more_leaves_no_trace(study: Study):
    study.track()
    study.summary.loc[5, "tv_pi_p"] = float("nan")
    assert study.track() == 1
    assert study.runs()[study.cells[5].id].data.metrics == {"accuracy": 0.82, "be": 6.1}


def test_new_seeds_add_runs_and_leave_the_others(study: Study):
    cells, summary = study.cells, study.summary
    study.cells, study.summary = cells[::2], summary[summary.seed == 0]
    assert study.track() == 4
    study.cells, study.summary = cells, summary
    assert study.track() == 4  # three new cells, and the aggregate that now counts six
    assert len(study.runs()) == 7


def test_cells_without_results_get_no_run(study: Study, capsys: pytest.CaptureFixture):
    study.summary.loc[1, ["accuracy", "be"]] = float("nan")
    assert study.track() == 6
    assert study.cells[1].id not in study.runs()
    assert "1 cells have no results yet" in capsys.readouterr().err


@pytest.mark.parametrize("call", ["create_run", "log_batch", "set_terminated"])
@pytest.mark.parametrize("number", [1, 4])
def test_killed_in_between_the_next_try_leaves_no_duplicate(
    study: Study, monkeypatch: pytest.MonkeyPatch, call: str, number: int
):
    """Killed just after the call took effect in the store."""
    from mlflow import MlflowClient

    real, calls = getattr(MlflowClient, call), []

    def last_words(self, *args, **values):
        result = real(self, *args, **values)
        calls.append(call)
        if len(calls) == number:
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(MlflowClient, call, last_words)
    with pytest.raises(KeyboardInterrupt):
        study.track()
    monkeypatch.undo()
    study.track()
    runs = study.runs()
    assert len(runs) == 7
    assert {run.info.status for run in runs.values()} == {"FINISHED"}
    assert all(FINGERPRINT in run.data.tags for run in runs.values())
    assert runs[study.cells[5].id].data.metrics["accuracy"] == 0.82
    assert study.track() == 0


def test_killed_while_the_store_is_made_the_next_try_makes_it(
    study: Study, monkeypatch: pytest.MonkeyPatch, empty_store: Path
):
    import mlflow

    (study.results / "mlflow.db").unlink()

    def half_migrated(uri: str):
        Path(uri.removeprefix("sqlite:///")).write_bytes(empty_store.read_bytes()[:5000])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(mlflow, "MlflowClient", half_migrated)
        with pytest.raises(KeyboardInterrupt):
            study.track()
    assert not (study.results / "mlflow.db").exists()
    assert study.track() == 7


def test_an_experiment_deleted_in_the_ui_is_restored(study: Study):
    study.track()
    client = study.client()
    client.delete_experiment(client.get_experiment_by_name("tiny").experiment_id)
    study.track()
    assert len(study.runs()) == 7


def test_an_unreachable_server_is_one_line_and_quick(study: Study):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refuses connections, and nobody else takes the port
        port = taken.getsockname()[1]
        study.config["mlflow"] = {"uri": f"http://someone:secret@127.0.0.1:{port}"}
        with pytest.raises(TrackingError) as error:
            study.track()
    message = str(error.value)
    assert "\n" not in message
    assert f"http://127.0.0.1:{port}" in message
    assert "secret" not in message
    assert "results" in message


def test_the_config_names_the_store_before_the_environment(study: Study, monkeypatch: pytest.MonkeyPatch):
    default = f"sqlite:///{(study.results / 'mlflow.db').resolve()}"
    assert tracking.tracking_uri(study.config, study.results) == default
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://from.environment")
    assert tracking.tracking_uri(study.config, study.results) == "http://from.environment"
    study.config["mlflow"] = {"uri": "http://from.config"}
    assert tracking.tracking_uri(study.config, study.results) == "http://from.config"
