"""`specloss ui`: MLflow's pages over a results folder, for the user who knows the password.

MLflow lets whoever may talk to it make an experiment whose artifacts lie at any path of the server's machine, and then
read and write there as the server's user. On loopback that is every user of the machine. So only those who
log in can use this server, through MLflow's own basic-auth app, and only its user can read the file with the password.
"""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path

from specloss.common.oneline import OneLine
from specloss.common.private import make_private, write_private
from specloss.tracking.environment import ENVIRONMENT

USER = "admin"
_INI = """[mlflow]
default_permission = NO_PERMISSIONS
database_uri = sqlite:///{users}
authorization_function = mlflow.server.auth:authenticate_request_basic_auth
auth_cache_ttl_seconds = 60
"""


class UiError(OneLine, RuntimeError):
    """There is nothing to show; the message is one line meant for users."""


def serve(results: Path, port: int) -> None:
    """Become the MLflow server over `<results>/mlflow.db`, on loopback. UiError or PrivateError if that cannot be."""
    store = (results / "mlflow.db").resolve()
    if not store.is_file():
        raise UiError(f"no {results / 'mlflow.db'} yet; 'make demo' or a run of another config writes it")
    folder = store.parent / ".mlflow-ui"
    password = _password(folder)
    environment = {
        **os.environ,
        **ENVIRONMENT,
        "MLFLOW_AUTH_CONFIG_PATH": str(folder / "auth.ini"),
        "MLFLOW_AUTH_ADMIN_USERNAME": USER,
        "MLFLOW_AUTH_ADMIN_PASSWORD": password,
        "MLFLOW_FLASK_SERVER_SECRET_KEY": secrets.token_hex(32),  # of one process, see --workers
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_BACKEND_STORE_URI", "MLFLOW_TRACKING_USERNAME"):
        environment.pop(name, None)
    os.execve(
        sys.executable,
        [
            *(sys.executable, "-m", "mlflow", "server", "--app-name", "basic-auth"),
            *("--backend-store-uri", f"sqlite:///{store}"),
            *("--artifacts-destination", str(store.parent / "mlflow-artifacts")),
            *("--host", "127.0.0.1", "--port", str(port), "--workers", "1"),
        ],
        environment,
    )


def _password(folder: Path) -> str:
    """The password in `folder`, which is made, and told, on the first use."""
    make_private(folder)
    file = folder / "password"
    if file.exists():
        print(f"MLflow asks who you are: {USER}, with the password in {file}", file=sys.stderr, flush=True)
        return file.read_text().strip()
    for name in ("auth.ini", "users.db"):  # of a password that is gone
        (folder / name).unlink(missing_ok=True)
    write_private(folder / "auth.ini", _INI.format(users=folder / "users.db"))
    password = secrets.token_urlsafe(16)
    write_private(file, password + "\n")
    print(f"MLflow asks who you are: {USER}, {password} (told once; it is in {file})", file=sys.stderr, flush=True)
    return password
