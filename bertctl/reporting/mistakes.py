"""The errors to look at first: those that the model was surest of, with their text."""

import numpy as np

from bertctl.reporting.document import Block, Cell, Column, Note, Section, TableBlock
from bertctl.tasks.answers import Answers, Line, Lines

BRIEF = 10
"""Errors that a short format shows."""

MOST_CHARACTERS = 600
"""Characters of a text that are shown; the rest is counted."""

MOST_OF_ANSWER = 300
"""Characters of an answer that are shown."""


def mistakes_section(lines: Lines, answers: Answers, *, limit: int) -> Section:
    """Returns the section of the most confident errors.

    Args:
        lines: Lines of a prediction file.
        answers: Interpretation of the lines.
        limit: Errors to show.
    """
    order = answers.error_order()
    errors = surest_errors(lines, answers)
    if not errors:
        return Section(
            "errors", order.title, [Note(f"Not one of the {len(lines)} answers is wrong.")]
        )
    if not limit:
        return Section("errors", order.title, [])
    shown_errors = errors[:limit]
    numbers = [answers.gravity(line) for line in shown_errors]  # such as the probability given
    columns = [Column("id"), Column("text"), Column("gold"), Column("predicted")]
    if numbers[0] is not None:  # not all tasks have such a number
        columns.append(Column(order.column, number=True))
    rows: list[list[str | Cell]] = []
    for line, number in zip(shown_errors, numbers, strict=True):
        text, gold, predicted = answers.shown(line)
        row: list[str | Cell] = [
            Cell(shorten(str(line["id"]), 80), data=True),
            Cell(shorten(text), data=True),
        ]
        row += [Cell(shorten(side, MOST_OF_ANSWER), data=True) for side in (gold, predicted)]
        if number is not None:
            row.append(order.layout.format(number))
        rows.append(row)
    caption = f"{len(errors):,} in all, {order.words}."
    blocks: list[Block] = [
        TableBlock(
            columns,
            rows,
            caption,
            stacked=True,
            brief=BRIEF,
        )
    ]
    if not any(answers.shown_input(line) for line in shown_errors):
        blocks.append(
            Note(
                "The run was made without texts (evaluation.keep_text is false): look them up by "
                "id."
            )
        )
    return Section("errors", order.title, blocks)


def surest_errors(lines: Lines, answers: Answers) -> list[Line]:
    """Returns the lines that are errors, the gravest first.

    How grave an error is, the task says: often by the probability of the wrong answer.
    """
    units = [lines[position] for position in answers.unit_positions(lines)]
    errors = [line for line in units if answers.is_error(line)]
    gravity = np.array([abs(answers.gravity(line) or 0.0) for line in errors])
    return [errors[i] for i in np.argsort(-gravity, kind="stable")]


def shorten(text: str, limit: int = MOST_CHARACTERS) -> str:
    """Returns the text, or its beginning and how many characters more there are."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]} … ({len(text) - limit} characters more)"
