"""A teacher's answers to the rows that a student learns from, where they lie on a disk."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bertctl.arrays import Floats32, Ints
from bertctl.tasks.base import Features
from bertctl.tasks.questions.answer_windows import AnswerFeatures


def n_answers(features: Features) -> int:
    """Returns how many answers a teacher gives to a split.

    There is one for each prediction; for questions, one for each position of each window.
    """
    if isinstance(features, AnswerFeatures):
        return int(features.position_starts[-1])
    return features.num_predictions


@dataclass(frozen=True)
class TeacherAnswers:
    """Logits of a teacher, one entry for each prediction.

    Attributes:
        parts: (P, C) logits of the training rows, then of rows without labels; they may be maps of
            files, of which only what is taken is read.
        order: (C,) the teacher's output for each output of the student.
    """

    parts: Sequence[Floats32]
    order: tuple[int, ...]

    @classmethod
    def of(cls, logits: Floats32) -> "TeacherAnswers":
        """Returns (P, C) logits in memory, in the order of the student."""
        return cls([logits], tuple(range(logits.shape[1])))

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def take(self, predictions: Ints) -> Floats32:
        """Returns the (B, C) logits for some predictions, in the order of the student's outputs."""
        logits = np.empty((len(predictions), len(self.order)), dtype=np.float32)
        begin = 0
        for part in self.parts:
            end = begin + len(part)
            is_in_part = (predictions >= begin) & (predictions < end)
            logits[is_in_part] = part[predictions[is_in_part] - begin]
            begin = end
        return np.ascontiguousarray(logits[:, list(self.order)])
