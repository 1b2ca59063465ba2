"""What every registered task must do: overfit, save, load in plain transformers, agree, and not mind its batch."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from bertctl.config.load import load_recipe
from bertctl.inference.forward import forward
from bertctl.inference.trained import open_run
from bertctl.run_folder import RunFolder
from bertctl.tasks.registry import TASKS
from bertctl.training.finetune import Result, prepare, run

TEXTS = [
    "good film", "bad film", "the food was good", "the food was not good", "very fine", "very poor indeed it was",
    "a bright film, was it not?", "dull",
]  # fmt: skip
LABELS = {
    "text-classification": ["pos", "neg"] * 4,
    "text-regression": [4.5, 0.5, 4.0, 1.0, 5.0, 0.0, 4.25, 0.75],
}
PRIMARY_FLOOR = {"text-classification": 1.0, "text-regression": 0.95}


def test_every_registered_task_is_under_contract() -> None:
    assert set(LABELS) == set(PRIMARY_FLOOR) == set(TASKS)
    assert len(TASKS) == 2


@pytest.fixture(scope="module", params=sorted(LABELS))
def finished(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Result:
    """A run that has learned its 8 examples by heart (training and validation rows are the same file)."""
    task: str = request.param
    folder = tmp_path_factory.mktemp(task)
    data = folder / "rows.jsonl"
    data.write_text(
        "".join(json.dumps({"text": t, "label": y}) + "\n" for t, y in zip(TEXTS, LABELS[task], strict=True))
    )
    recipe = load_recipe(
        task,
        options={
            "data.train_file": str(data),
            "data.validation_file": str(data),
            "model.name": str(tiny_model),
            "model.max_length": 40,
            "model.dropout": 0.0,
            "training.epochs": 60,
            "training.evaluate_every": 120,
            "training.batch_size": 4,
            "optimizer.learning_rate": 3e-3,
            "runtime.precision": "fp32",
            "runtime.device": "cpu",
            "evaluation.bootstrap_resamples": 100,
            "evaluation.primary_metric": "loss",
        },
    )
    return run(prepare(recipe), RunFolder.create(folder / "run"))


def test_it_overfits_eight_examples(finished: Result) -> None:
    task = open_run(finished.folder.path).task
    scored = finished.metrics["metrics"]["validation"]
    assert scored[task.primary_metric]["value"] >= PRIMARY_FLOOR[task.name]
    assert scored["loss"]["value"] < 0.1


def test_plain_transformers_loads_it_and_agrees(finished: Result) -> None:
    trained = open_run(finished.folder.path)
    network = getattr(transformers, trained.task.auto_class).from_pretrained(finished.folder.model)
    assert type(network).__name__.startswith("BertFor")
    tokenizer = transformers.AutoTokenizer.from_pretrained(finished.folder.model)
    lines = [json.loads(line) for line in finished.folder.predictions("validation").read_text().splitlines()]
    assert [line["text"] for line in lines] == TEXTS
    for line in lines:
        with torch.inference_mode():
            logits = network(**tokenizer(line["text"], return_tensors="pt")).logits[0]
        if "probabilities" in line:
            theirs = dict(zip(network.config.id2label.values(), logits.softmax(0).tolist(), strict=True))
            assert line["probabilities"] == pytest.approx(theirs, abs=1e-5)
            assert network.config.id2label[int(logits.argmax())] == line["prediction"] == line["gold"]
        else:
            assert line["prediction"] == pytest.approx(logits.item(), abs=1e-4)


def test_a_batch_of_one_equals_a_batch_of_many_whatever_the_padding(finished: Result) -> None:
    trained = open_run(finished.folder.path)
    loaded, compute = trained.load()
    lines = [json.loads(line) for line in finished.folder.predictions("validation").read_text().splitlines()]
    rows = prepare(trained.recipe).data.splits["validation"]
    features = trained.task.encode(rows, loaded.tokenizer, max_length=40)
    assert len(set(features.lengths.tolist())) > 3, "the premise: batches of many need padding"
    many = forward(loaded.network, loaded, trained.task, features, compute=compute, batch_size=8)
    one = forward(loaded.network, loaded, trained.task, features, compute=compute, batch_size=1)
    np.testing.assert_allclose(many.outputs["logits"], one.outputs["logits"], atol=1e-5)
    assert many.losses == pytest.approx([line["loss"] for line in lines], abs=1e-5)


def test_its_prediction_file_reads_back(finished: Result, tmp_path: Path) -> None:
    """A prediction file is a JSONL file of rows like any other: it can be scored again with its gold column."""
    from bertctl.inference.score_run import evaluate_file

    trained = open_run(finished.folder.path, options={"data.label_column": "gold", "data.text_column": "text"})
    metrics = evaluate_file(trained, finished.folder.predictions("validation"), tmp_path / "again")
    assert metrics["metrics"]["file"] == finished.metrics["metrics"]["validation"]


def test_it_beats_the_baseline_that_ignores_the_text(finished: Result) -> None:
    primary = open_run(finished.folder.path).task.primary_metric
    value = finished.metrics["metrics"]["validation"][primary]["value"]
    assert value > finished.metrics["baseline"]["validation"][primary] + 0.2
