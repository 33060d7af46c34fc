"""MLflow's environment variables, set wherever we call it."""

from __future__ import annotations

# Nothing leaves this machine but to the given store, and a server that does not answer is told in seconds, not minutes.
ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # for each run, with the address as it was given
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
}
