"""Whose labels are learned.

Those of people who agree, or of the annotator whom `data.annotator` names.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bertctl.data.packed_columns import is_packed
from bertctl.data.spans import named_parts
from bertctl.data.table import Table
from bertctl.data.unlabelled import NoLabel, UnusableLabel
from bertctl.words import count_of, listing, shorten

PREDICTIONS = "predictions"
"""Value of `data.annotator` that takes the labels of a model."""

_TASK_AND_ANNOTATOR = (
    ("_task_hash", "_annotator_id"),
    ("_task_hash", "_session_id"),
    ("_input_hash", "_annotator_id"),
    ("_input_hash", "_session_id"),
    ("id", "annotator"),
)
"""Columns that name a task and its annotator: Prodigy's, then those of Label Studio's short JSON
and CSV."""
_MOST_SHOWN = 4
"""Annotators whose labels a message shows."""


@dataclass(frozen=True)
class Annotation:
    """What one annotator gave to a row.

    Attributes:
        names: What the annotator may be called: number, e-mail address, name; the first one is
            shown.
        label: The label, the labels or the spans.
        is_truth: Whether it is marked as the right one.
        is_prediction: Whether a model gave it.
    """

    names: tuple[str, ...]
    label: Any
    is_truth: bool = False
    is_prediction: bool = False

    def is_by(self, annotator: str) -> bool:
        """Whether this is one of the annotator's names."""
        return annotator.casefold() in (name.casefold() for name in self.names)


def agreed_label(
    annotations: Sequence[Annotation],
    annotator: str | None,
    *,
    key: Callable[[Any], Any],
    show: Callable[[Any], str],
    absent: str = "not annotated",
) -> Any:
    """Returns the label that people agree on; else `NoLabel` or `UnusableLabel` with the reason.

    Args:
        annotations: What annotators and models gave to a row.
        annotator: `data.annotator`: whose labels count. None takes those of all people, or, if some
            are marked as ground truth, those alone.
        key: Returns a value that is equal for equal labels.
        show: Returns a label in a few words.
        absent: The reason if there is no annotation at all.
    """
    if annotator is not None:
        chosen = [annotation for annotation in annotations if annotation.is_by(annotator)]
        if not chosen:
            return NoLabel(f"not by {annotator}" if annotations else absent)
    else:
        of_people = [annotation for annotation in annotations if not annotation.is_prediction]
        if not of_people:
            return NoLabel("predictions alone" if annotations else absent)
        chosen = [annotation for annotation in of_people if annotation.is_truth] or of_people

    for annotation in chosen:
        if isinstance(annotation.label, UnusableLabel):
            return annotation.label
    if len({key(annotation.label) for annotation in chosen}) == 1:
        return chosen[0].label
    return _disagreement(chosen, show)


def _disagreement(annotations: Sequence[Annotation], show: Callable[[Any], str]) -> UnusableLabel:
    """Returns why a row with different labels can't be learned, with the labels of its annotators.

    Args:
        annotations: The annotations of the row, with their labels.
        show: Returns a label in a few words.
    """
    answers = []
    for annotation in annotations[:_MOST_SHOWN]:
        name = annotation.names[0] if annotation.names else "?"
        answers.append(f"{name}: {shorten(show(annotation.label), 80)}")
    all_answers = "; ".join(answers)
    names = list(
        dict.fromkeys(annotation.names[0] for annotation in annotations if annotation.names)
    )
    remedy = "Agree on one where they were made, or mark it as ground truth."
    if len(names) > 1:
        remedy += (
            " Or take those of one: `data.annotator=NAME` (data.annotator in a recipe), such as "
            f"{listing(names)}."
        )
    return UnusableLabel(
        f"its {len(annotations)} annotations are not the same ({all_answers})", remedy
    )


def one_row_per_task(table: Table, label: str, annotator: str | None) -> Table:
    """Returns a table in which one row of each task has a label, if its annotators agree on it.

    The other rows of the task get `NoLabel` in place of their label. If annotators disagree, all of
    the task's rows get `UnusableLabel`. Files of Prodigy, and short JSON and CSV of Label Studio,
    have a row for each task and annotator.

    Args:
        table: One row for each task and annotator.
        label: The label's column.
        annotator: Whose labels count; None for all.
    """
    columns = _task_and_annotator(table)
    if columns is None:
        return _with_agreed_users(table, label, annotator)
    task_column, annotator_column = columns
    tasks = table.columns[task_column]
    people = table.columns[annotator_column]
    rows_by_task: dict[Any, list[int]] = {}
    for row_number, task in enumerate(tasks):
        # A row without a task is a task of its own, under its number. Tasks are put into a tuple,
        # which is never equal to a number.
        task_key = row_number if task is None else (task,)
        rows_by_task.setdefault(task_key, []).append(row_number)

    labels = list(table.columns[label])
    for rows in rows_by_task.values():
        if annotator is None and len({people[row] for row in rows}) == 1:
            continue
        annotations = [Annotation((str(people[row]),), labels[row]) for row in rows]
        agreed = agreed_label(
            annotations,
            annotator,
            key=_comparable,
            show=_label_text,
        )
        if isinstance(agreed, NoLabel | UnusableLabel):
            for row in rows:
                labels[row] = agreed
            continue
        # The first row with the label keeps it, and stands for the others.
        has_labelled_row = False
        for row in rows:
            if labels[row] is agreed and not has_labelled_row:
                has_labelled_row = True
            else:
                labels[row] = NoLabel("same row by another annotator")
    return replace(table, columns={**table.columns, label: labels})


def _task_and_annotator(table: Table) -> tuple[str, str] | None:
    """Returns the columns with the task and the annotator of each row; None if it lacks them."""
    for task_column, annotator_column in _TASK_AND_ANNOTATOR:
        if task_column in table.columns and annotator_column in table.columns:
            # `id` and `annotator` may be in any file; Label Studio's has `annotation_id`, too.
            is_of_tool = task_column != "id" or "annotation_id" in table.columns
            return (task_column, annotator_column) if is_of_tool else None
    return None


def unapproved(table: Table) -> str:
    """Returns how many rows of doccano nobody approved, as a sentence; empty if all or none are."""
    approvers = table.columns.get("annotation_approver", ())
    n_unapproved = sum(approver is None or approver == "" for approver in approvers)
    if not 0 < n_unapproved < len(approvers):
        return ""
    return (
        f"{count_of(n_unapproved, len(approvers), 'row')} are not approved (annotation_approver), "
        "and are learned like others"
    )


def _with_agreed_users(table: Table, label: str, annotator: str | None) -> Table:
    """Returns a table with the spans that users agree on, if its spans name their `user`.

    Old exports of doccano are such tables. Other tables are returned as they are.

    Args:
        table: The file.
        label: Its column with spans: `[{"user": 1, "start_offset": 0, ...}, ...]`.
        annotator: Whose spans count; None for all.
    """
    if is_packed(table.columns[label]):  # no cell is a list
        return table
    labels: list[Any] = []
    has_users = False
    for cell in table.columns[label]:
        spans_by_user: dict[Any, list[Any]] = {}
        if isinstance(cell, list) and all(isinstance(span, Mapping) for span in cell):
            for span in cell:
                spans_by_user.setdefault(span.get("user"), []).append(span)
        names_no_user = spans_by_user.keys() <= {None}
        has_one_user = len(spans_by_user) == 1
        if names_no_user or (has_one_user and annotator is None):  # nobody has to agree
            labels.append(cell)
            continue
        has_users = True
        agreed = agreed_label(
            [Annotation((str(user),), spans) for user, spans in spans_by_user.items()],
            annotator,
            key=_comparable,
            show=_label_text,
        )
        labels.append(agreed)
    if has_users:
        return replace(table, columns={**table.columns, label: labels})
    return table


def _label_text(label: Any) -> str:
    """Returns a label as a person reads it; spans as `0 to 4 PER, 10 to 14 LOC`."""
    if not _are_spans(label):
        return str(label)
    texts: list[str] = []
    for span in label:
        start, end, kind = named_parts(span)
        texts.append(f"{start} to {end} {kind or ' '.join(map(str, span.get('labels') or ()))}")
    return ", ".join(texts)


def _are_spans(label: Any) -> bool:
    """Returns whether a label is a list of spans that are objects."""
    return (
        isinstance(label, list)
        and len(label) > 0
        and all(isinstance(span, Mapping) for span in label)
    )


def _comparable(label: Any) -> Any:
    """Returns a value that is equal for equal labels.

    For spans it has start, end and type, without ids and hashes.
    """
    if _are_spans(label):
        return frozenset(str((*named_parts(span), span.get("labels"))) for span in label)
    if isinstance(label, list):
        return frozenset(map(str, label))
    return str(label)
