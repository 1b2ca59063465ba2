"""The one forward pass: whatever computes the outputs, and however many processes share the
work.
"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bertctl.config.load import load_recipe
from bertctl.inference.engine import Engine
from bertctl.inference.sessions import converted, open_session
from bertctl.tasks.objectives import HeadObjective
from bertctl.training.job import Job, prepare
from tests.contract.task_examples import EXAMPLES


def job_of(task: str, tiny_model: Path, folder: Path) -> Job:
    data = folder / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in EXAMPLES[task].rows))
    options = {
        "data.train_file": str(data),
        "data.validation_file": str(data),
        "model.name": str(tiny_model),
        "model.max_length": 32,
        "runtime.precision": "fp32",
        "runtime.device": "cpu",
    }
    return prepare(load_recipe(task, options=options))


@pytest.mark.parametrize("backend", ["onnx", "openvino"])
@pytest.mark.parametrize(
    "task", ["text-classification", "token-classification", "question-answering"]
)
def test_a_session_of_another_runtime_gives_what_torch_gives(
    task: str, backend: str, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in {"onnx": ("onnx", "onnxruntime"), "openvino": ("onnx", "openvino")}[backend]:
        pytest.importorskip(package, reason=f"pip install 'bertctl[{backend}]'")
    monkeypatch.setenv("BERTCTL_CACHE", str(tmp_path / "cache"))
    job = job_of(task, tiny_model, tmp_path)
    job.loaded.network.eval()
    engine, objective, features = (
        Engine.of(job.loaded, job.compute),
        job.objective,
        job.features["train"],
    )
    assert isinstance(objective, HeadObjective)
    assert len(set(features.lengths.tolist())) > 3, "the premise: batches of many sizes"
    path = converted(job.source, job.loaded, objective.outputs)
    session = replace(engine, backend=open_session(backend, path, objective.outputs, job.compute))
    ours, theirs = (one.forward(job.task, features, batch_size=3) for one in (engine, session))
    assert ours.losses is not None
    assert theirs.losses is not None
    np.testing.assert_allclose(theirs.losses, ours.losses, atol=1e-4)
    assert set(ours.outputs) == set(theirs.outputs)
    for name in set(ours.outputs) - {
        "spans"
    }:  # of spans with nearly equal scores either may come first
        np.testing.assert_allclose(theirs.outputs[name], ours.outputs[name], atol=1e-4)
