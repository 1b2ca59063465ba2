"""Finished runs as model versions of MLflow: registered under an alias, and read back for a gate.

No torch.
"""

import contextlib
import importlib.util
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bertctl.catalog.hub import is_offline
from bertctl.errors import UnavailableError, UsageError
from bertctl.session import current

SCHEME = "mlflow:"
"""Begins the name of a registered run: `mlflow:NAME@alias`."""

_FILES = "run"  # folder of the run's files among the artifacts of an MLflow run


def check_registry(target: str) -> None:
    """Refuses a registration that can't succeed, before anything is trained.

    Raises:
        UsageError: MLflow is not installed.
        UnavailableError: no answer, or no connection is allowed.
    """
    with _client(f"{target} can't be registered") as client:
        client.search_registered_models(max_results=1)


def register(folder: Path, target: str, *, logged: bool) -> str:
    """Makes a model version of a finished run, and returns a sentence about it.

    Args:
        folder: the run. All of it is uploaded, but for checkpoints and what trackers wrote.
        target: `NAME@alias`; the alias moves to the new version.
        logged: whether this process has logged the training to MLflow: the version belongs to that
            MLflow run then.

    Raises:
        UsageError: MLflow is not installed.
        UnavailableError: MLflow refuses or is silent; the run stays as it is.
    """
    name, alias = target.rsplit("@", 1)
    with _client(f"{folder} is finished, but not registered as {target}") as client:
        import mlflow

        # A version belongs to a run of MLflow: that of the training, or a new one.
        mlflow_run = mlflow.last_active_run() if logged else None
        if mlflow_run is None:
            mlflow.set_experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", "bertctl"))
            with mlflow.start_run(run_name=folder.name) as mlflow_run:
                pass
        run_id = mlflow_run.info.run_id
        for path in sorted(folder.iterdir()):
            if path.name not in ("checkpoints", "trackers") and not path.name.startswith("."):
                client.log_artifact(run_id, str(path), _FILES)
        # The name may exist already; for any other failure the next line raises.
        with contextlib.suppress(mlflow.MlflowException):
            client.create_registered_model(name)
        version = client.create_model_version(name, f"runs:/{run_id}/{_FILES}/model", run_id)
        client.set_registered_model_alias(name, alias, version.version)
    return f"registered in MLflow: {name}, version {version.version}, alias {alias}"


@contextlib.contextmanager
def registered_run(address: str) -> Iterator[Path]:
    """Yields a temporary folder with the files of a registered run, without its model.

    Args:
        address: `mlflow:NAME@alias`.

    Raises:
        UsageError: no name and alias; MLflow is not installed.
        UnavailableError: MLflow has no such version, or is silent; a version that `register` has
            not made.
    """
    name, _, alias = address.removeprefix(SCHEME).partition("@")
    if not name or not alias:
        raise UsageError(
            f"{address} names no version of a model", remedy=f"Such as {SCHEME}NAME@champion."
        )
    with tempfile.TemporaryDirectory() as temporary:
        with _client(f"{address} can't be read") as client:
            run_id = client.get_model_version_by_alias(name, alias).run_id
            files: list[str] = []
            if run_id:  # a version that another tool made may have none
                files = [file.path for file in client.list_artifacts(run_id, _FILES)]
            if f"{_FILES}/metrics.json" not in files:
                remedy = "Give a version that `runtime.mlflow_register=NAME@alias` has made."
                raise UnavailableError(
                    f"{address} is not a run of bertctl: it has no {_FILES}/metrics.json",
                    remedy=remedy,
                )
            run_files = (file for file in files if file != f"{_FILES}/model")
            # All of them lie in one folder.
            folders = {
                Path(client.download_artifacts(run_id, file, temporary)).parent
                for file in run_files
            }
        yield folders.pop()


@contextlib.contextmanager
def _client(problem: str) -> Iterator[Any]:
    """Yields MLflow's client; what it raises becomes an error that begins with `problem`.

    Raises:
        UsageError: MLflow is not installed.
        UnavailableError: MLflow refuses or is silent, or no connection is allowed.
    """
    if importlib.util.find_spec("mlflow") is None:
        raise UsageError(
            f"{problem}: MLflow is not installed",
            remedy="Install it: pip install 'bertctl[mlflow]'",
        )
    # Without an answer, MLflow tries again for minutes. It also draws a progress bar of its own.
    patience = {
        "HTTP_REQUEST_MAX_RETRIES": "2",
        "HTTP_REQUEST_TIMEOUT": "20",
        "ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    }
    for variable, value in patience.items():
        current().default_variable(f"MLFLOW_{variable}", value)
    import mlflow

    address = mlflow.get_tracking_uri()
    shown_address = address.rpartition("@")[2]  # without the password that may stand in it
    if is_offline() and address.startswith(("http", "databricks")):
        raise UnavailableError(
            f"{problem}: offline mode is on, and MLflow is at {shown_address}",
            remedy="Leave `offline=True` out.",
        )
    try:
        yield mlflow.MlflowClient()
    except (mlflow.MlflowException, OSError) as error:
        if str(error):
            reason = str(error).splitlines()[0].replace(address, shown_address)
        else:
            reason = type(error).__name__
        raise UnavailableError(
            f"{problem}: MLflow at {shown_address} says: {reason}",
            remedy="MLFLOW_TRACKING_URI says where it is; the same command with `resume=True` "
            "registers a finished run.",
        ) from error
