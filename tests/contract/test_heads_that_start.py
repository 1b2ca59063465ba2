"""A new head of any family and task starts as the regression on what its last layer reads."""

import json
from pathlib import Path

import numpy as np
import pytest
from families import TRIED, make_encoder_of_its_kind
from matrix import cell
from task_examples import EXAMPLES

from bertctl.config.load import load_recipe
from bertctl.config.schema import Recipe
from bertctl.inference.engine import Engine
from bertctl.progress import SILENT
from bertctl.runtime.launch import ALONE
from bertctl.training.head_start import _fit, start_head
from bertctl.training.head_vectors import SampledFeatures, head_vectors
from bertctl.training.job import prepare

OF_EACH_KIND = ("bert", "distilbert", "gpt2", "roberta", "t5", "xlnet")
"""What the default run tries: a pooler, heads of their own, the last token, ends of texts, padding
on the left."""

TASKS = ("multiple-choice", "text-classification", "text-regression", "token-classification")


def recipe_of(model: Path, task: str, folder: Path) -> Recipe:
    data = folder / f"{task}.jsonl"
    example = EXAMPLES[task]
    data.write_text("".join(json.dumps(row) + "\n" for row in example.rows))
    fields = {
        "data.train_file": str(data),
        "data.validation_file": str(data),
        "model.name": str(model),
        "model.max_length": 40,
        "model.head_start": "probe",
        "training.batch_size": 4,
        "runtime.device": "cpu",
        "runtime.precision": "fp32",
        **example.settings,
    }
    return load_recipe(task, options=fields)


@pytest.mark.parametrize(
    "family",
    [
        name if name in OF_EACH_KIND else pytest.param(name, marks=pytest.mark.slow)
        for name in TRIED
    ],
)
def test_the_first_logits_are_those_of_the_regression(family: str, tmp_path: Path) -> None:
    model = make_encoder_of_its_kind(family, tmp_path / "model")
    for task in TASKS:
        if cell(family, task) == "no":
            continue
        job = prepare(recipe_of(model, task, tmp_path))
        features = job.features["train"]

        started = start_head(job, ALONE, SILENT)

        assert started is not None, task
        assert not started.reason, task
        sample = SampledFeatures(features, np.arange(len(features)))
        vectors = head_vectors(job, sample, ALONE, SILENT)
        from bertctl.modeling.heads import ScoreHead, last_layer

        _, last = last_layer(job.loaded.network)
        expected = _fit(job, sample, vectors, last).function.logits(vectors)
        if isinstance(last, ScoreHead):
            expected = expected * float(last.deviation) + (
                float(last.mean) if last.bias is not None else 0.0
            )
        engine = Engine.of(job.loaded, job.compute)
        logits = engine.forward(job.task, features, batch_size=4).outputs["logits"]
        np.testing.assert_allclose(
            logits.reshape(expected.shape), expected, atol=5e-3, err_msg=task
        )
