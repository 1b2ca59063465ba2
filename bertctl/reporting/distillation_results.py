"""Students beside their teacher: a table, a section of the report, a picture."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bertctl.reporting.charts import ACCENT, MUTED, SECOND, write_charts
from bertctl.reporting.document import Block, Cell, Column, Note, Section, TableBlock
from bertctl.reporting.summary import figure, interval
from bertctl.run_documents.distillation_document import DistillationDocument, ModelFigures
from bertctl.run_documents.metrics_document import BaselineDifference
from bertctl.words import human_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_CAPTION = (
    "Scored and timed on the same rows, one after the other. Differences are paired, with their "
    "95 % intervals."
)


def students_table(students: Mapping[str, DistillationDocument]) -> TableBlock:
    """Returns a row for the teacher and one for each of its students.

    Args:
        students: Name of each student -> its comparison with the teacher that all share.
    """
    first_student = next(iter(students.values()))
    numbers = (
        first_student.metric,
        "95 % interval",
        "student minus this",
        "rows/s",
        "parameters",
        "weights",
    )
    columns = [Column("model"), *(Column(name, number=True) for name in numbers)]
    rows: list[list[str | Cell]] = []
    for name, document in students.items():
        if document is first_student:
            rows.append(_row("teacher", document.teacher, document.difference))
        rows.append(_row(name, document.student, None))
        if document.plain is not None:
            rows.append(
                _row(f"{name} without a teacher", document.plain, document.plain_difference)
            )
    return TableBlock(columns, rows, f"On {first_student.split}. {_CAPTION}")


def distillation_section(document: DistillationDocument) -> Section:
    """Returns the section of a student's report about its teacher."""
    blocks: list[Block] = [students_table({"student": document}), Note(document.sentence)]
    return Section("distillation", "Student and teacher", blocks)


def draw_students(
    students: Mapping[str, DistillationDocument], paths: Sequence[Path], *, title: str
) -> None:
    """Draws the metric of each model over its rows per second, with intervals.

    Args:
        students: Name of each student -> its comparison with the teacher that all share.
        paths: Files to write; the suffix says the format (.png, .svg).
        title: Title of the picture.

    Raises:
        UnavailableError: A file can't be written.
    """
    draw = partial(_draw, students=students, title=title)
    write_charts(
        draw,
        paths,
        width=7.0,
        height=4.5,
    )


def _draw(figure: "Figure", *, students: Mapping[str, DistillationDocument], title: str) -> None:
    """Draws a point for each model: students, their teacher, and the same students without one."""
    axes = figure.subplots()
    first_student = next(iter(students.values()))
    untaught = [document.plain for document in students.values() if document.plain is not None]
    for figures in untaught:
        _point(axes, "", figures, SECOND)
    _point(axes, "teacher", first_student.teacher, MUTED)
    for name, document in students.items():
        _point(axes, name, document.student, ACCENT)
    if untaught:
        # Without a point: one entry of the legend for all of them.
        axes.plot(
            [],
            [],
            marker="o",
            linestyle="",
            color=SECOND,
            label="the same student without a teacher",
        )
        axes.legend()
    axes.set_xlabel("rows per second")
    axes.set_ylabel(f"{first_student.metric}, {first_student.split}")
    axes.set_title(title)
    axes.margins(x=0.2)


def _point(axes: "Axes", name: str, figures: ModelFigures, color: str) -> None:
    """Draws a model's score over its speed, with its interval and its name."""
    if figures.low is not None and figures.high is not None:
        axes.vlines(
            figures.rows_per_second,
            figures.low,
            figures.high,
            color=color,
            linewidth=1,
        )
    axes.plot(
        figures.rows_per_second,
        figures.score,
        marker="o",
        color=color,
    )
    axes.annotate(
        name,
        (figures.rows_per_second, figures.score),
        textcoords="offset points",
        xytext=(6, 4),
    )


def _row(
    name: str, figures: ModelFigures, difference: BaselineDifference | None
) -> list[str | Cell]:
    """Returns a model's row of the table.

    Args:
        name: What to call it.
        figures: Its score, speed and size.
        difference: The student's score minus this model's; None in the student's own row.
    """
    beside = ""
    if difference is not None:
        beside = f"{difference.value:+.4f} ({difference.low:+.4f} to {difference.high:+.4f})"
    return [
        name,
        figure(figures.score),
        interval(figures.low, figures.high) or "",
        beside,
        f"{figures.rows_per_second:,.0f}",
        f"{figures.parameters:,}",
        human_bytes(figures.n_bytes),
    ]
