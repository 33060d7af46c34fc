"""MLflow says what the files say, once, whatever happened before."""

from __future__ import annotations

import base64
import itertools
import json
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from tracked_study import Study

import specloss
from specloss import tracking
from specloss.experiment.cells import Cell
from specloss.tracking import TrackingError
from specloss.tracking.entries import AGGREGATE, PARENT
from specloss.tracking.store import FINGERPRINT, create_sqlite

pytestmark = pytest.mark.timeout(120)


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
    create_sqlite(f"sqlite:///{path}")
    return path


METHOD = "pair=demo/method=lenience"
SETTINGS = {"pair=demo/method=standard_sd", f"{METHOD}/param=0.4", f"{METHOD}/param=0.8"}
ALL = 6 + 3 + 1 + 1  # cells, settings, the method with a grid, the experiment


def test_each_cell_is_a_run_below_its_setting_below_its_method_below_the_experiment(study: Study):
    assert study.track() == ALL
    runs = study.runs()
    assert runs.keys() == {cell.id for cell in study.cells} | SETTINGS | {METHOD, AGGREGATE}
    chain = [study.cells[2].id, f"{METHOD}/param=0.4", METHOD, AGGREGATE]
    for child, parent in itertools.pairwise(chain):
        assert runs[child].data.tags[PARENT] == runs[parent].info.run_id
    cell = study.cells[2]
    run = runs[cell.id]
    assert run.info.run_name == "lenience (0.4) · chain_l2 · seed 0"
    assert run.info.status == "FINISHED"
    assert run.data.metrics == {"accuracy": 0.7, "be": 7.0, "trace/tv_pi_p": 0.1}
    assert run.data.params.items() >= {
        "gamma": "8", "temperature": "0.7", "rule": "lenience", "param": "0.4", "seed": "0",
        "options.residual": "matched", "target": "models/target", "max_new_tokens": "64",
    }.items()  # fmt: skip
    assert run.data.tags.items() >= {
        "pair": "demo", "benchmark": "chain_l2", "method": "lenience", "param": "0.4", "seed": "0",
        "config_hash": cell.key, "level": "cell", "table": "table 4",
    }.items()  # fmt: skip


def test_a_setting_is_the_mean_of_its_cells_beside_what_it_is_compared_with(study: Study):
    study.track()
    runs = study.runs()
    setting, method = runs[f"{METHOD}/param=0.4"], runs[METHOD]
    assert setting.info.run_name == "lenience (0.4)" and method.info.run_name == "lenience"
    assert setting.data.metrics == pytest.approx(
        {"accuracy": 0.71, "be": 7.05, "delta_accuracy": -0.2, "delta_be": 2.0}
    )
    assert method.data.metrics["accuracy"] == pytest.approx(0.76)
    assert method.data.tags.items() >= {"level": "method", "table": "table 2", "against": "standard_sd"}.items()
    assert setting.data.tags.items() >= {"level": "setting", "table": "table 4", "cells": "2 of 2"}.items()


def test_a_mean_that_lacks_a_cell_is_left_out(study: Study):
    study.summary.loc[3, ["accuracy", "be", "tv_pi_p"]] = float("nan")
    study.track()
    runs = study.runs()
    assert runs[f"{METHOD}/param=0.4"].data.metrics == {} and runs[METHOD].data.metrics == {}
    assert runs[f"{METHOD}/param=0.4"].data.tags["cells"] == "1 of 2"
    assert runs[f"{METHOD}/param=0.8"].data.metrics["accuracy"] == pytest.approx(0.81)


def test_key_metrics_come_first_by_name(study: Study):
    study.summary["ds"], study.summary["draft_share"], study.summary["problems"] = 1.0, 0.5, 100
    study.track()
    assert sorted(study.runs()[study.cells[2].id].data.metrics) == [
        "accuracy", "be", "ds", "size/problems", "time/draft_share", "trace/tv_pi_p",
    ]  # fmt: skip


def test_processes_at_once_write_each_run_once(study: Study):
    study.track()
    for run in study.runs().values():
        study.client().delete_run(run.info.run_id)
    script = (
        "import sys; from pathlib import Path; from specloss.tracking import track; track(*map(Path, sys.argv[1:]))"
    )
    paths = [study.results / "tiny" / "experiment.json", study.results, study.reports]
    processes = [subprocess.Popen([sys.executable, "-c", script, *map(str, paths)]) for _ in range(3)]
    assert [process.wait(110) for process in processes] == [0, 0, 0]
    assert len(study.runs()) == ALL


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
    assert study.track() == 3  # the cell, its setting and its method
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
    assert study.track() == ALL - 3
    study.cells, study.summary = cells, summary
    assert study.track() == ALL - 3  # three new cells, and all runs above, whose means have changed
    assert len(study.runs()) == ALL


def test_cells_without_results_get_no_run(study: Study, capsys: pytest.CaptureFixture):
    study.summary.loc[1, ["accuracy", "be"]] = float("nan")
    assert study.track() == ALL - 1
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
    assert len(runs) == ALL
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
    assert study.track() == ALL


def test_an_experiment_deleted_in_the_ui_is_restored(study: Study):
    study.track()
    client = study.client()
    client.delete_experiment(client.get_experiment_by_name("tiny").experiment_id)
    study.track()
    assert len(study.runs()) == ALL


def test_an_unreachable_server_is_one_line_and_quick(study: Study):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refuses connections, and nobody else takes the port
        port = taken.getsockname()[1]
        study.config["mlflow"] = {"uri": f"http://127.0.0.1:{port}"}
        with pytest.raises(TrackingError) as error:
            study.track()
    message = str(error.value)
    assert "\n" not in message
    assert f"http://127.0.0.1:{port}" in message
    assert "results" in message


def test_a_server_that_accepts_and_never_answers_is_one_line(study: Study, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")  # 30 s, three times, where nobody sets it
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    with socket.create_server(("127.0.0.1", 0)) as hung:
        study.config["mlflow"] = {"uri": f"http://127.0.0.1:{hung.getsockname()[1]}"}
        with pytest.raises(TrackingError, match="timed out") as error:
            study.track()
    assert "\n" not in str(error.value) and "complete" in str(error.value)


def test_a_proxy_gets_name_and_password_and_its_refusal_is_one_line_without_them(
    study: Study, monkeypatch: pytest.MonkeyPatch
):
    asked = []

    class Proxy(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.headers["Authorization"])
            self.send_error(401)

        do_POST = do_GET

        def log_message(self, *_):
            pass

    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "someone")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "secret")
    with HTTPServer(("127.0.0.1", 0), Proxy) as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        study.config["mlflow"] = {"uri": f"http://127.0.0.1:{proxy.server_port}"}
        with pytest.raises(TrackingError, match="401") as error:
            study.track()
        proxy.shutdown()
    assert set(asked) == {"Basic " + base64.b64encode(b"someone:secret").decode()}
    assert "\n" not in str(error.value) and "secret" not in str(error.value)


def test_an_upload_that_fails_halfway_is_one_line_and_the_next_try_completes_it(
    study: Study, monkeypatch: pytest.MonkeyPatch
):
    from mlflow import MlflowClient

    real = MlflowClient.log_artifact

    def full(self, run_id: str, path: str, folder: str | None = None):
        if path.endswith("table4.csv"):
            raise OSError(28, "No space left on device")
        real(self, run_id, path, folder)

    with monkeypatch.context() as patch, pytest.raises(TrackingError, match="No space left"):
        patch.setattr(MlflowClient, "log_artifact", full)
        study.track()
    report = study.runs()[AGGREGATE]
    assert report.info.status == "RUNNING" and FINGERPRINT not in report.data.tags
    assert study.track() == 1
    report = study.runs()[AGGREGATE]
    assert report.info.status == "FINISHED" and len(study.runs()) == ALL
    assert [file.path for file in study.client().list_artifacts(report.info.run_id, "tables")] == ["tables/table4.csv"]


def test_the_config_names_the_store_before_the_environment(study: Study, monkeypatch: pytest.MonkeyPatch):
    default = f"sqlite:///{(study.results / 'mlflow.db').resolve()}"
    assert tracking.tracking_uri(study.config, study.results) == default
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://from.environment")
    assert tracking.tracking_uri(study.config, study.results) == "http://from.environment"
    study.config["mlflow"] = {"uri": "http://from.config"}
    assert tracking.tracking_uri(study.config, study.results) == "http://from.config"
