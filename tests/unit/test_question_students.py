"""Students of question answering.

The loss by hand, the teacher's scores of each position, and which windows are refused.
"""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bertctl.config.load import load_recipe
from bertctl.config.schema import Recipe
from bertctl.errors import InterruptedRunError, UsageError
from bertctl.run_folder import RunFolder
from bertctl.runtime.batching import Padding
from bertctl.runtime.seeding import WindowRandom
from bertctl.tasks.distillation import (
    Distillation,
    SpanDistillation,
    TaughtBatch,
    distillation_of,
)
from bertctl.tasks.objectives import SpanCrossEntropy
from bertctl.tasks.teacher_answers import TeacherAnswers
from bertctl.training.checkpoints.checkpoint import Checkpoints
from bertctl.training.finetune import run
from bertctl.training.job import prepare
from tests.heard import Interrupting
from tests.stopping import digests_of

TEMPERATURE = 2.0


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERTCTL_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    """Questions about contexts, of which every second one is read in several windows."""
    path = tmp_path / "questions.jsonl"
    rows = []
    for number in range(8):
        context = "a good film " * (1 + 8 * (number % 2)) + f"was made in {number}"
        answer = {"text": [str(number)], "answer_start": [len(context) - 1]}
        rows.append(
            {"id": f"q{number}", "question": "when?", "context": context, "answers": answer}
        )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def recipe_of(model: Path, data: Path, **fields: Any) -> Recipe:
    options = {
        "data.train_file": str(data),
        "data.validation_file": str(data),
        "model.name": str(model),
        "model.max_length": 24,
        "model.dropout": 0.1,
        "question_answering.doc_stride": 8,
        "training.epochs": 2,
        "training.batch_size": 4,
        "training.checkpoint_every": "3 steps",
        "optimizer.learning_rate": 1e-3,
        "runtime.device": "cpu",
        "runtime.precision": "fp32",
        "runtime.threads": 1,
        "evaluation.bootstrap_resamples": 100,
    }
    return load_recipe("question-answering", options=options | fields)


@pytest.fixture
def teacher(tiny_model: Path, questions: Path, tmp_path: Path) -> Path:
    """A finished run on the questions."""
    recipe = recipe_of(tiny_model, questions)
    return run(prepare(recipe), RunFolder.create(tmp_path / "teacher")).folder.path


def softmax(scores: list[float]) -> list[float]:
    powers = [math.exp(score / TEMPERATURE) for score in scores]
    return [power / sum(powers) for power in powers]


def test_the_loss_of_spans_is_the_mean_divergence_of_starts_and_ends_without_padding() -> None:
    padding = [9.0, 9.0]
    student = [[[1.0, 0.5], [0.0, -1.0], padding]]
    teacher_padding = [0.0, 0.0]
    teacher = [[[2.0, 0.0], [-1.0, 1.5], teacher_padding]]
    objective = _span_objective(TEMPERATURE)
    batch = _taught_batch(teacher)

    losses = objective.losses(torch.tensor(student), batch)

    start_divergence = _divergence([2.0, -1.0], [1.0, 0.0])
    end_divergence = _divergence([0.0, 1.5], [0.5, -1.0])
    expected = 0.75 * TEMPERATURE**2 * (start_divergence + end_divergence) / 2
    assert losses["teacher"].item() == pytest.approx(expected, rel=1e-5)
    assert objective.counts(batch) == {"label": 1, "teacher": 1}


def _span_objective(temperature: float) -> SpanDistillation:
    objective = distillation_of(
        SpanCrossEntropy(Padding(0)),
        TeacherAnswers.of(np.zeros((2, 2), dtype=np.float32)),
        alpha=0.25,
        temperature=temperature,
    )
    assert isinstance(objective, SpanDistillation)
    return objective


def _taught_batch(teacher: list[list[list[float]]]) -> TaughtBatch:
    """A window of two tokens and one of padding, whose answer is both tokens."""
    mask = torch.tensor([[1, 1, 0]])
    labels = torch.tensor([[0, 1]])
    return TaughtBatch({"attention_mask": mask}, labels, answers=torch.tensor(teacher))


def _divergence(teacher: list[float], student: list[float]) -> float:
    """Kullback-Leibler divergence of the student's distribution from the teacher's."""
    divergence = 0.0
    for p, q in zip(softmax(teacher), softmax(student), strict=True):
        divergence += p * math.log(p / q)
    return divergence


def test_padding_has_no_gradient() -> None:
    outputs = torch.tensor([[[1.0, 0.5], [0.0, -1.0], [9.0, 9.0]]], requires_grad=True)
    objective = _span_objective(temperature=0.5)
    batch = _taught_batch([[[2.0, 0.0], [-1.0, 1.5], [7.0, 7.0]]])

    losses = objective.losses(outputs, batch)
    torch.stack([*losses.values()]).sum().backward()

    assert outputs.grad is not None
    assert torch.isfinite(outputs.grad).all()
    assert (outputs.grad[0, 2] == 0).all()
    assert (outputs.grad[0, :2] != 0).any()


def test_answers_are_the_teachers_scores_of_each_position_of_each_window(
    tiny_model: Path, questions: Path, teacher: Path
) -> None:
    fields = {"distillation.teacher": str(teacher), "model.keep_layers": [1]}
    job = prepare(recipe_of(tiny_model, questions, **fields))
    features: Any = job.training_features
    objective = job.objective_with_teacher()
    assert isinstance(objective, Distillation)
    windows = np.array([len(features) - 1, 0])

    batch: Any = objective.batch(features, windows, WindowRandom(0))

    assert len(features) > 8
    assert job.teacher is not None
    engine = job.teacher.run.load()
    inputs = features.collate(windows, engine.padding).inputs
    with torch.no_grad():
        output = engine.backend(**inputs)
    expected = torch.stack([output.start_logits, output.end_logits], dim=2)
    expected = expected * inputs["attention_mask"][:, :, None]
    assert (batch.answers - expected).abs().max() < 1e-5


def test_an_interrupted_student_of_questions_goes_on_to_the_same_bytes(
    tiny_model: Path, questions: Path, teacher: Path, tmp_path: Path
) -> None:
    more = tmp_path / "more.jsonl"
    rows = [{"question": "when?", "context": f"it was made in {year}"} for year in range(6)]
    more.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    fields = {
        "distillation.teacher": str(teacher),
        "distillation.unlabelled": str(more),
        "model.keep_layers": [1],
    }
    recipe = recipe_of(tiny_model, questions, **fields)
    undisturbed = run(prepare(recipe), RunFolder.create(tmp_path / "undisturbed")).folder
    folder = RunFolder.create(tmp_path / "interrupted")
    with pytest.raises(InterruptedRunError):
        run(prepare(recipe), folder, listener=Interrupting(4))
    job = prepare(recipe)

    run(job, folder, checkpoint=Checkpoints(folder, job.hash).latest())

    assert digests_of(folder) == digests_of(undisturbed)
    assert job.training_features.rows.max() == 8 + 6 - 1


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"model.max_length": 32}, "model.max_length 24, and the student 32"),
        ({"question_answering.doc_stride": 4}, "doc_stride 8, and the student 4"),
        ({"question_answering.max_question_length": 9}, "max_question_length 64"),
    ],
)
def test_other_windows_than_the_teachers_are_refused(
    fields: dict[str, Any], words: str, tiny_model: Path, questions: Path, teacher: Path
) -> None:
    of_student = {"distillation.teacher": str(teacher), **fields}

    with pytest.raises(UsageError) as refusal:
        prepare(recipe_of(tiny_model, questions, **of_student))

    assert words in refusal.value.message


def test_another_tokenizer_than_the_teachers_is_refused(
    tiny_model: Path, questions: Path, teacher: Path, tmp_path: Path
) -> None:
    other = shutil.copytree(tiny_model, tmp_path / "other")
    file = other / "tokenizer.json"
    tokenizer = json.loads(file.read_text(encoding="utf-8"))
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["good"], vocabulary["film"] = vocabulary["film"], vocabulary["good"]
    file.write_text(json.dumps(tokenizer), encoding="utf-8")
    fields = {"distillation.teacher": str(teacher)}

    with pytest.raises(UsageError, match="the tokenizers of") as refusal:
        prepare(recipe_of(other, questions, **fields))

    assert "(model)" in refusal.value.message
