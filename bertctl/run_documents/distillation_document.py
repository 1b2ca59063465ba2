"""RUN/distillation.json."""

from typing import ClassVar

from pydantic import ConfigDict

from bertctl.run_documents.document_base import (
    Count,
    Document,
    Number,
    OrAbsent,
    SchemaNumber,
)
from bertctl.run_documents.metrics_document import BaselineDifference


class ModelFigures(Document):
    """What a model answers, how fast, and how large it is."""

    score: Number
    """Primary metric."""

    low: Number | None = None
    """Lower end of the score's 95 % interval."""

    high: Number | None = None
    """Upper end."""

    rows_per_second: Number
    """Rows that it answers in a second, on the machine that compared."""

    parameters: Count
    """Numbers in its weights."""

    n_bytes: Count
    """Size of its weights on disk."""


class DistillationDocument(Document):
    """A student beside its teacher, scored on the same rows."""

    published: ClassVar = "distillation"
    model_config = ConfigDict(title="RUN/distillation.json")

    schema_number: SchemaNumber = 1

    metric: str
    """Name of the primary metric."""

    split: str
    """The rows."""

    teacher: ModelFigures

    student: ModelFigures

    difference: BaselineDifference | None = None
    """The student's metric minus its teacher's; null where the rows give no paired difference."""

    plain: OrAbsent[ModelFigures] = None
    """The same student, trained on the labels alone."""

    plain_difference: OrAbsent[BaselineDifference] = None
    """The student's metric minus that of the same student without a teacher."""

    @property
    def sentence(self) -> str:
        """How much of the teacher the student keeps, for people."""
        if self.teacher.score:
            share = self.student.score / self.teacher.score
        else:
            share = float("nan")
        speed = self.student.rows_per_second / self.teacher.rows_per_second
        size = self.student.parameters / self.teacher.parameters
        return (
            f"{self.split}: the student has {100 * share:.1f} % of its teacher's {self.metric}, "
            f"at {speed:.1f} times its rows per second, with {100 * size:.0f} % of its parameters"
        )
