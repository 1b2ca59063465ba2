"""Slices of prediction lines: those with a value in a column, or with a gold label."""

from collections.abc import Sequence
from itertools import chain
from typing import Any

from bertctl.errors import UsageError
from bertctl.metrics.contributions import Contributions
from bertctl.tasks.answers import Answers, Lines
from bertctl.words import listing, natural_order

LABEL = "label"
"""The column that stands for the gold label, where the task has labels."""


def slice_contributions(
    kind: type[Answers], lines: Lines, name: str, *, column: str, value: str
) -> Contributions | None:
    """Returns what the examples of a slice add to a metric.

    `label=X` is the gold label (or type of entity); there `precision`, `recall` and `f1` are those
    of X against all else, and other metrics are those of the examples whose gold label is X. Any
    other column selects the lines that have the value in it.

    Args:
        kind: Class that interprets the lines.
        lines: Lines of a prediction file, at least one.
        name: Name of the metric.
        column: `label`, or a field of the lines.
        value: as text; true and false for booleans.

    Returns:
        None where the metric can't be computed from such lines.

    Raises:
        UsageError: a column that the lines don't have, a value that does not occur, a metric that
            is undefined there.
    """
    answers = kind.from_lines(lines)
    has_labels = answers.labels_of(lines[0]) is not None
    by_label = column == LABEL and has_labels
    values: list[Sequence[str]] = []  # the values that each line counts for
    for line in lines:
        if by_label:
            values.append(answers.labels_of(line) or [])
        else:
            values.append([_text(line.get(column))])
    if not by_label and not any(column in line for line in lines):
        columns = [LABEL if has_labels else "gold"]
        columns += [
            key
            for key in lines[0]
            if key not in ("id", "probabilities", "prediction", "gold", "positive")
        ]
        raise UsageError(
            f"the predictions have no column '{column}'",
            remedy=f"Columns: {', '.join(columns)}. Others are copied into prediction files when "
            f"the run is made with `evaluation.slice_columns='[{column}]'`.",
        )
    slice_lines = [
        line for line, line_values in zip(lines, values, strict=True) if value in line_values
    ]
    if not slice_lines:
        if by_label:
            message = f"no example has the gold label '{value}'"
        else:
            message = f"no example has {column}={value}"
        occurring = sorted(set(chain.from_iterable(values)), key=natural_order)
        raise UsageError(message, remedy=f"Values: {listing(occurring)}.")
    if by_label:
        label_contributions = answers.of_label(lines, name, value)
    else:
        label_contributions = None
    # A metric that is not defined for one label is computed on the label's own examples.
    return label_contributions or answers.contributions(slice_lines, name)


def _text(value: Any) -> str:
    """Returns a value of a column as it is typed: True -> true."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)
