"""Trackers for real.

A local MLflow server with SQLite behind it, W&B offline, Trackio's local store, TensorBoard's files
read back.

    pip install mlflow wandb trackio tensorboard; pytest -n 0 -m slow tests/slow/test_trackers.py

The server is the program `mlflow` on PATH, of this or another environment; the tests' own needs
`mlflow-skinny`.
"""

import json
import shutil
import socket
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Run

pytestmark = pytest.mark.slow

HOW = [
    "--epochs",
    2,
    "--batch-size",
    8,
    "--device",
    "cpu",
    "--precision",
    "fp32",
    "--threads",
    1,
    "--max-length",
    40,
]
HOW += ["--set", "training.log_every=1", "--set", "evaluation.bootstrap_resamples=100"]


@pytest.fixture
def training(bertctl: Run, opinions: Path, tiny_model: Path):
    def run(
        *more: object, env: dict[str, str] | None = None, code: int = 0
    ) -> subprocess.CompletedProcess[str]:
        words = [
            "finetune",
            "text-classification",
            "--train-file",
            opinions,
            "--model",
            tiny_model,
            *HOW,
            *more,
        ]
        done = bertctl(*words, env=env)
        assert done.returncode == code, done.stderr
        return done

    return run


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of an MLflow server."""
    pytest.importorskip("mlflow", reason="pip install 'bertctl[mlflow]'")
    program = shutil.which("mlflow")
    if (
        program is None
        or "server"
        not in subprocess.run([program, "--help"], capture_output=True, text=True).stdout
    ):
        pytest.skip("no program mlflow with a server: pip install mlflow")
    folder = tmp_path_factory.mktemp("mlflow")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [
        "--backend-store-uri",
        f"sqlite:///{folder}/mlflow.db",
        "--artifacts-destination",
        str(folder / "files"),
    ]
    words += ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen([program, "server", *words], stdout=log, stderr=log) as process,
    ):
        for _ in range(600):
            with socket.socket() as door:
                if door.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}"
        process.terminate()


def test_a_finished_run_becomes_a_version_and_a_gate_reads_it(
    bertctl: Run, training, server: str, tmp_path: Path
) -> None:
    env = {"MLFLOW_TRACKING_URI": server, "HF_HUB_OFFLINE": ""}
    target = ["--set", "runtime.mlflow_register=opinions@champion"]
    stderr = training("-o", "first", "--log-to", "mlflow", *target, env=env).stderr
    assert "registered in MLflow: opinions, version 1, alias champion" in stderr
    stderr = training(
        "-o", "second", "--seed", 7, *target, env=env
    ).stderr  # not logged: an MLflow run of its own
    assert "registered in MLflow: opinions, version 2, alias champion" in stderr

    import mlflow

    client = mlflow.MlflowClient(server)
    entry, two = (client.get_model_version("opinions", number) for number in "12")
    assert client.get_model_version_by_alias("opinions", "champion").version == two.version
    losses = client.get_metric_history(entry.run_id, "loss")
    history = [
        json.loads(line) for line in (tmp_path / "first" / "history.jsonl").read_text().splitlines()
    ]
    assert [loss.value for loss in losses] == pytest.approx(
        [line["loss"] for line in history if "loss" in line]
    )
    paths = {file.path for file in client.list_artifacts(entry.run_id, "run")}
    assert {"run/metrics.json", "run/model", "run/recipe.yaml", "run/predictions"} <= paths
    assert not {"run/checkpoints", "run/trackers"} & paths
    got = Path(client.download_artifacts(two.run_id, "run/model/model.safetensors", str(tmp_path)))
    assert got.read_bytes() == (tmp_path / "second" / "model" / "model.safetensors").read_bytes()

    words = [
        "gate",
        "first",
        "--max-drop",
        "accuracy=0.9",
        "--policy",
        "lenient",
        "--allow-constant",
        "--json",
    ]
    by_name = bertctl(*words, "--baseline", "mlflow:opinions@champion", env=env)
    by_path = bertctl(*words, "--baseline", "second", env=env)
    assert by_name.returncode == by_path.returncode == 0, by_name.stderr
    selected = json.loads(by_name.stdout)
    path = json.loads(by_path.stdout)
    assert selected.pop("baseline") == "mlflow:opinions@champion"
    assert path.pop("baseline") == "second"
    assert selected == path

    again = training("-o", "second", "--seed", 7, *target, "--resume", env=env)
    assert "version 3" in again.stderr, "a finished run is registered by the same command"


def test_a_registry_that_is_not_there_is_said_before_anything_is_trained(
    bertctl: Run, training, server, tmp_path
) -> None:
    target = ["--set", "runtime.mlflow_register=opinions@champion", "-o", "none"]
    nowhere = "http://user:secret@127.0.0.1:9"
    env = {
        "MLFLOW_TRACKING_URI": nowhere,
        "HF_HUB_OFFLINE": "",
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    }
    stderr = training(*target, env=env, code=4).stderr
    assert "opinions@champion can't be registered: MLflow at 127.0.0.1:9" in stderr
    assert "secret" not in stderr
    assert not (tmp_path / "none").exists()
    stderr = training(
        *target, "--offline", env={**env, "MLFLOW_TRACKING_URI": server}, code=4
    ).stderr
    assert "offline mode is on" in stderr
    env["MLFLOW_TRACKING_URI"] = server
    for by_name, code in (
        ("mlflow:opinions", 2),
        ("mlflow:@x", 2),
        ("mlflow:nothing@x", 4),
        ("mlflow:opinions@x", 4),
    ):
        done = bertctl(
            "gate", tmp_path, "--baseline", by_name, "--max-drop", "accuracy=0.1", env=env
        )
        assert done.returncode == code, done.stderr
        assert done.stderr.startswith(f"error: {by_name} ")


def records(content: bytes) -> Iterator[bytes]:
    """The records of a file of W&B: a header of 7 bytes, then LevelDB's log (blocks of 32 KiB)."""
    at = 7
    text = b""
    while at + 7 <= len(content):
        if 32768 - at % 32768 < 7:  # too little room for a header: the rest of the block is empty
            at += 32768 - at % 32768
            continue
        length = int.from_bytes(content[at + 4 : at + 6], "little")
        kind = content[at + 6]
        text += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # the whole of a record, or its last fragment
            yield text
            text = b""


def test_wandb_offline_has_the_losses(training, tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="pip install 'bertctl[wandb]'")
    training(
        "-o",
        "run",
        "--log-to",
        "wandb",
        env={"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_DIR": str(tmp_path)},
    )
    (stored,) = tmp_path.rglob("run-*.wandb")

    from wandb.proto.wandb_internal_pb2 import Record

    losses = []
    for data in records(stored.read_bytes()):
        record = Record()
        record.ParseFromString(data)
        items = {
            item.key or "/".join(item.nested_key): item.value_json for item in record.history.item
        }
        losses += [json.loads(items["loss"])] if "loss" in items else []
    history = [
        json.loads(line) for line in (tmp_path / "run" / "history.jsonl").read_text().splitlines()
    ]
    assert losses == pytest.approx([line["loss"] for line in history if "loss" in line])


def test_trackios_local_store_has_the_losses(training, tmp_path: Path) -> None:
    pytest.importorskip("trackio", reason="pip install 'bertctl[trackio]'")
    store = tmp_path / "store"
    done = training("-o", "run", "--log-to", "trackio", "--json", env={"TRACKIO_DIR": str(store)})
    json.loads(done.stdout)  # what Trackio prints is not part of the answer

    with sqlite3.connect(store / "bertctl.db") as database:
        rows = database.execute("SELECT step, metrics FROM metrics ORDER BY id").fetchall()
    metrics = [(step, json.loads(text)) for step, text in rows]
    losses = {step: values["loss"] for step, values in metrics if "loss" in values}
    history = [
        json.loads(line) for line in (tmp_path / "run" / "history.jsonl").read_text().splitlines()
    ]
    assert losses == pytest.approx(
        {line["step"]: line["loss"] for line in history if "loss" in line}
    )


def test_tensorboards_files_have_the_losses(training, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="pip install 'bertctl[tensorboard]'")
    training("-o", "run", "--log-to", "tensorboard")

    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    files = (tmp_path / "run" / "trackers").rglob("events.out.tfevents.*")
    (events,) = {path.parent for path in files if path.parent.name == "bertctl"}
    read = EventAccumulator(str(events))
    read.Reload()
    history = [
        json.loads(line) for line in (tmp_path / "run" / "history.jsonl").read_text().splitlines()
    ]
    for name in ("loss", "learning_rate", "validation_accuracy"):
        expected = {int(line["step"]): line[name] for line in history if name in line}
        assert {event.step: event.value for event in read.Scalars(name)} == pytest.approx(
            expected, rel=1e-6
        )
