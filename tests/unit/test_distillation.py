"""Distillation: the loss by hand, the teacher's answers in the cache, and what is refused."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from bertctl.runtime.batching import Padding
from bertctl.tasks.distillation import (
    ClassDistillation,
    Distillation,
    LabelledShare,
    LabelSetDistillation,
    ScoreDistillation,
    TagDistillation,
    TaughtBatch,
    TaughtWords,
    distillation_of,
)
from bertctl.tasks.objectives import (
    BinaryCrossEntropy,
    ChoiceCrossEntropy,
    CrossEntropy,
    SquaredError,
)
from bertctl.tasks.teacher_answers import TeacherAnswers

ALPHA = 0.3
TEMPERATURE = 2.5
STUDENT = [[1.0, -0.5, 0.25], [0.0, 2.0, -1.0]]
TEACHER = [[0.5, 1.5, -2.0], [-1.0, 3.0, 0.5]]


def taught(labels: torch.Tensor, answers: list[list[float]] = TEACHER) -> TaughtBatch:
    return TaughtBatch({}, labels, answers=torch.tensor(answers))


def softmax(logits: list[float], temperature: float = 1.0) -> list[float]:
    powers = [math.exp(logit / temperature) for logit in logits]
    return [power / sum(powers) for power in powers]


def sigmoid(logit: float, temperature: float = 1.0) -> float:
    return 1 / (1 + math.exp(-logit / temperature))


def learned(base: Any) -> Distillation:
    answers = TeacherAnswers.of(np.array(TEACHER, dtype=np.float32))
    return distillation_of(base, answers, alpha=ALPHA, temperature=TEMPERATURE)


def test_the_loss_of_classes_is_that_of_the_paper_computed_by_hand() -> None:
    objective = learned(CrossEntropy(Padding(0)))
    assert isinstance(objective, ClassDistillation)
    batch = taught(torch.tensor([2, 1]))

    losses = objective.losses(torch.tensor(STUDENT), batch)

    first_student, second_student = STUDENT
    cross_entropy = -math.log(softmax(first_student)[2]) - math.log(softmax(second_student)[1])
    divergence = 0.0
    for student, teacher in zip(STUDENT, TEACHER, strict=True):
        student_softmax = softmax(student, TEMPERATURE)
        teacher_softmax = softmax(teacher, TEMPERATURE)
        for q, p in zip(student_softmax, teacher_softmax, strict=True):
            divergence += p * (math.log(p) - math.log(q))
    assert losses["label"].item() == pytest.approx(ALPHA * cross_entropy, rel=1e-6)
    expected = (1 - ALPHA) * TEMPERATURE**2 * divergence
    assert losses["teacher"].item() == pytest.approx(expected, rel=1e-6)
    assert objective.counts(batch) == {"label": 2, "teacher": 2}


def test_the_loss_of_tags_is_that_of_classes_at_each_word() -> None:
    objective = distillation_of(
        CrossEntropy(Padding(0), per_window=2.0),
        TeacherAnswers.of(np.array(TEACHER, dtype=np.float32)),
        alpha=ALPHA,
        temperature=TEMPERATURE,
        by_word=True,
    )
    assert isinstance(objective, TagDistillation)
    # The first tokens of the two words are the second and the fourth of five.
    windows = np.array([0, 0])
    positions = np.array([1, 3])
    labels = torch.full((1, 5), -100)
    labels[windows, positions] = torch.tensor([2, 1])
    outputs = torch.full((1, 5, 3), 9.0)
    outputs[windows, positions] = torch.tensor(STUDENT)
    batch = TaughtWords({}, labels, windows, positions, answers=torch.tensor(TEACHER))

    losses = objective.losses(outputs, batch)

    by_row = learned(CrossEntropy(Padding(0)))
    losses_by_row = by_row.losses(torch.tensor(STUDENT), taught(torch.tensor([2, 1])))
    assert losses["label"].item() == pytest.approx(losses_by_row["label"].item(), rel=1e-6)
    assert losses["teacher"].item() == pytest.approx(losses_by_row["teacher"].item(), rel=1e-6)
    assert objective.counts(batch) == {"label": 2.0, "teacher": 2.0}


def test_the_loss_of_several_labels_is_a_divergence_for_each_label() -> None:
    objective = learned(BinaryCrossEntropy(Padding(0)))
    assert isinstance(objective, LabelSetDistillation)
    labels = [[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]]

    losses = objective.losses(torch.tensor(STUDENT), taught(torch.tensor(labels)))

    cross_entropy = 0.0
    divergence = 0.0
    for student_row, teacher_row, label_row in zip(STUDENT, TEACHER, labels, strict=True):
        for student, teacher, label in zip(student_row, teacher_row, label_row, strict=True):
            probability = sigmoid(student) if label else 1 - sigmoid(student)
            cross_entropy -= math.log(probability) / 3
            q = sigmoid(student, TEMPERATURE)
            p = sigmoid(teacher, TEMPERATURE)
            of_presence = p * math.log(p / q)
            of_absence = (1 - p) * math.log((1 - p) / (1 - q))
            divergence += (of_presence + of_absence) / 3
    assert losses["label"].item() == pytest.approx(ALPHA * cross_entropy, rel=1e-5)
    expected = (1 - ALPHA) * TEMPERATURE**2 * divergence
    assert losses["teacher"].item() == pytest.approx(expected, rel=1e-5)


def test_the_loss_of_scores_is_a_squared_difference_in_units_of_their_variance() -> None:
    objective = learned(SquaredError(Padding(0), deviation=2.0, mean=3.0))
    assert isinstance(objective, ScoreDistillation)
    batch = taught(torch.tensor([1.5, -0.5]), [[4.0], [2.0]])  # labels are standardised

    losses = objective.losses(torch.tensor([[5.0], [3.0]]), batch)

    label_loss = (1.0 - 1.5) ** 2 + (0.0 + 0.5) ** 2
    teacher_loss = ((5 - 4) ** 2 + (3 - 2) ** 2) / 4
    assert losses["label"].item() == pytest.approx(ALPHA * label_loss)
    assert losses["teacher"].item() == pytest.approx((1 - ALPHA) * teacher_loss)


@pytest.mark.parametrize(
    ("base", "labels", "unlabelled"),
    [
        (CrossEntropy(Padding(0)), [2, 1], [2, -100]),
        (
            BinaryCrossEntropy(Padding(0)),
            [[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]],
            [[1.0, 0.0, 0.0], [math.nan] * 3],
        ),
    ],
)
def test_a_row_without_a_label_counts_for_the_teacher_alone(
    base: Any, labels: Any, unlabelled: Any
) -> None:
    objective = learned(base)
    outputs = torch.tensor(STUDENT, requires_grad=True)
    batch = taught(torch.tensor(unlabelled))
    losses = objective.losses(outputs, batch)
    complete = objective.losses(torch.tensor(STUDENT), taught(torch.tensor(labels)))
    first = objective.losses(
        torch.tensor(STUDENT[:1]), taught(torch.tensor(labels[:1]), TEACHER[:1])
    )
    torch.testing.assert_close(losses["label"], first["label"])
    torch.testing.assert_close(losses["teacher"], complete["teacher"])
    assert objective.counts(batch) == {"label": 1, "teacher": 2}
    sum(losses.values()).backward()
    assert outputs.grad is not None
    assert torch.isfinite(outputs.grad).all()


def test_labels_of_some_rows_weigh_the_same_whatever_else_is_in_their_batch() -> None:
    share = LabelledShare(windows=0.25)
    answers = TeacherAnswers.of(np.array(TEACHER, dtype=np.float32))
    objective = distillation_of(
        CrossEntropy(Padding(0)),
        answers,
        alpha=ALPHA,
        temperature=TEMPERATURE,
        labelled=share,
    )

    both_labelled = objective.counts(taught(torch.tensor([2, 1])))
    none_labelled = objective.counts(taught(torch.tensor([-100, -100])))

    assert both_labelled == none_labelled == {"label": 0.5, "teacher": 2}


def test_answers_of_two_files_are_taken_in_the_order_of_rows_and_outputs() -> None:
    first = np.array([[0.0, 1.0], [2.0, 3.0]], dtype=np.float32)
    second = np.array([[4.0, 5.0]], dtype=np.float32)
    answers = TeacherAnswers([first, second], order=(1, 0))

    used = answers.take(np.array([2, 0, 1]))

    assert used.tolist() == [[5.0, 4.0], [1.0, 0.0], [3.0, 2.0]]
    assert len(answers) == 3


def test_the_gradient_keeps_its_size_whatever_the_temperature_is() -> None:
    sizes = []
    for temperature in (1.0, 8.0):
        outputs = torch.tensor([[0.2, -0.1, 0.05]], requires_grad=True)
        answers = np.array([[0.1, 0.3, -0.2]], dtype=np.float32)
        objective = distillation_of(
            CrossEntropy(Padding(0)),
            TeacherAnswers.of(answers),
            alpha=0.0,
            temperature=temperature,
        )
        batch = taught(torch.tensor([0]), answers.tolist())
        objective.losses(outputs, batch)["teacher"].backward()
        assert outputs.grad is not None
        sizes.append(float(outputs.grad.norm()))
    assert sizes[1] == pytest.approx(sizes[0], rel=0.1)


def test_a_loss_without_a_counterpart_is_no_students() -> None:
    with pytest.raises(TypeError, match="ChoiceCrossEntropy"):
        learned(ChoiceCrossEntropy(Padding(0)))
