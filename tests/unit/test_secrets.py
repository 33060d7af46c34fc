"""Passwords and tokens: refused in configs, and never in what is written, printed or logged."""

from __future__ import annotations

import socket
import traceback
from pathlib import Path

import pytest
import yaml
from tracked_study import Study

from specloss.common.address import has_secret, public, without_secrets
from specloss.common.yamlfile import ConfigError
from specloss.experiment.config import read_config
from specloss.tracking import TrackingError

ROOT = Path(__file__).parents[2]
SECRET = "hunter2"
SECRETS = [
    f"http://someone:{SECRET}@127.0.0.1:5000",
    f"https://{SECRET}@127.0.0.1",
    f"http://127.0.0.1/mlflow?a=1&access_token={SECRET}",
    f"postgresql://mlflow:{SECRET}@127.0.0.1/mlflow",
    f"postgresql+psycopg2://mlflow:{SECRET}/more@127.0.0.1:5432/mlflow",
    f"postgresql://127.0.0.1/mlflow?user=mlflow&password={SECRET}",
    f"mysql://:{SECRET}@127.0.0.1/mlflow",
    f"sqlite:///store.db?key={SECRET}",
]
HARMLESS = [
    "http://127.0.0.1:5000",
    "http://127.0.0.1:5000/who@where",
    "https://host/path?experiment=1&pass_through=2",
    "postgresql://mlflow@127.0.0.1/mlflow?sslmode=verify-full&sslkey=/etc/mlflow.key",
    "sqlite:////home/user@host/mlflow.db",
    "databricks://profile",
    "owner/name",
]


@pytest.mark.parametrize("address", SECRETS)
@pytest.mark.parametrize("at", ["mlflow.uri", "cluster.address", "benchmarks.chain_l2.options.source", "mlflow.ur"])
def test_a_config_with_a_secret_is_refused_without_showing_it(tmp_path: Path, address: str, at: str):
    config = yaml.safe_load((ROOT / "config" / "demo.yaml").read_text())
    section = config
    for key in at.split(".")[:-1]:
        section = section.setdefault(key, {})
    section[at.rpartition(".")[2]] = address
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(config))
    with pytest.raises(ConfigError, match="MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD") as error:
        read_config(path)
    assert str(error.value).startswith(f"{path}: {at}: an address with a password or token")
    assert SECRET not in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("address", HARMLESS)
def test_an_address_without_a_secret_is_taken(tmp_path: Path, address: str):
    config = yaml.safe_load((ROOT / "config" / "demo.yaml").read_text())
    config["mlflow"] = {"uri": address}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(config))
    assert read_config(tmp_path / "mine.yaml").mlflow.uri == address
    assert not has_secret(address)


@pytest.mark.parametrize("address", SECRETS)
def test_an_address_is_shown_without_its_secret(address: str):
    assert SECRET not in public(address)
    password = f"{SECRET}/more" if "/more" in address else SECRET
    said = without_secrets(f"cannot open {address}: no user someone, {password}, at {address}/api", address)
    assert SECRET not in said and said.startswith("cannot open ")


def test_a_secret_in_another_form_and_one_of_the_environment_are_hidden(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "of-the-environment")
    said = without_secrets(
        "wrong: p@ss word, p%40ss%20word, of-the-environment", "postgresql://m:p%40ss%20word@host/db"
    )
    assert said == "wrong: ***, ***, ***"


def test_a_plan_of_before_with_a_secret_is_refused_without_showing_it(tmp_path: Path):
    study = Study(tmp_path)
    study.config["mlflow"] = {"uri": SECRETS[0]}
    with pytest.raises(TrackingError, match="belongs into the environment") as error:
        study.track()
    assert SECRET not in str(error.value)


@pytest.mark.parametrize(
    "address",
    [
        f"http://someone:{SECRET}@127.0.0.1:PORT",
        f"postgresql://mlflow:{SECRET}@127.0.0.1:PORT/mlflow",
        f"postgresql://mlflow:{SECRET}@127.0.0.1:port/mlflow",
        f"nonsense://mlflow:{SECRET}@127.0.0.1:PORT/mlflow",
        f"mysql://mlflow:{SECRET}@127.0.0.1:PORT/mlflow",
    ],
)
def test_a_store_of_the_environment_that_fails_leaves_its_secret_nowhere(
    tmp_path: Path,
    address: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
):
    import mlflow.store.db.utils

    study = Study(tmp_path)
    study.results.mkdir()
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setattr(mlflow.store.db.utils, "MAX_RETRY_COUNT", 1)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refuses connections
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address.replace("PORT", str(taken.getsockname()[1])))
        with pytest.raises(TrackingError) as error:
            study.track()
    shown = "".join(traceback.format_exception(error.value)) + "".join(capfd.readouterr()) + caplog.text
    assert "TrackingError: MLflow store" in shown and SECRET not in shown
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files and not [path for path in files if SECRET.encode() in path.read_bytes()]
