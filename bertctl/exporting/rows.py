"""The rows that a model and its export are compared on."""

from pathlib import Path

import numpy as np

from bertctl.data.read_options import ReaderOptions
from bertctl.data.readers import READERS
from bertctl.data.recipe_sources import label_rules
from bertctl.data.rows import Rows
from bertctl.errors import BertctlError, DataError, UsageError
from bertctl.exporting.proof import ENOUGH_ROWS
from bertctl.exporting.subject import Subject
from bertctl.inference.export_proof import Window
from bertctl.inference.trained_run import TrainedRun
from bertctl.progress import Listener
from bertctl.words import count

_CALIBRATED_ROWS = 300
"""Training rows that activations are calibrated on at most."""

_MOST_ROWS = 10_000
"""Rows that are compared at most, evenly over the split."""


def comparison_rows(
    run: TrainedRun, file: Path | None, *, is_run: bool, with_labels: bool, listener: Listener
) -> Rows:
    """Returns the validation rows of a run, or the rows of a file.

    Args:
        run: The run, or a model without data.
        file: Rows in place of the run's own.
        is_run: Whether it has data of its own.
        with_labels: Whether answers will be scored.
        listener: Receives what was read.

    Raises:
        UsageError: A model without data, and no file; rows of another kind.
        DataError: No row, or rows without the labels that are needed.
    """
    if file is not None:
        rows = _of_file(run, file, with_labels=with_labels, listener=listener)
    elif is_run:
        rows = _of_run(run, listener)
    else:
        raise UsageError(
            f"{run.folder.path} is a model without data of its own, and an export is compared with "
            "the model on rows",
            remedy=f"Give a file of at least {ENOUGH_ROWS} of your rows: `rows=FILE`.",
        )
    if not len(rows):
        raise DataError(f"{rows.source} has no rows to compare the export on")
    run.check_pairs(rows)
    if rows.has("label"):
        run.task.check(rows)
    elif with_labels:
        raise DataError(
            f"{rows.source} has no labels, and a metric is to be measured on it",
            remedy="Give rows with labels, or name their column with `label_column=`.",
        )
    if len(rows) < ENOUGH_ROWS:
        rows_text = count(len(rows), "row")
        listener.warn(
            f"the export is compared on {rows_text} only; name {ENOUGH_ROWS} or more with "
            "`rows=FILE` for a reliable comparison"
        )
    return _at_most(rows, _MOST_ROWS)


def calibration_windows(subject: Subject, listener: Listener) -> list[Window]:
    """Returns windows of some training rows of a run, on which the ranges of int8 are calibrated.

    They are other rows than those of the comparison, which would otherwise look too good.

    Args:
        subject: The model.
        listener: Receives why there are none.
    """
    if not subject.is_run:
        return []
    try:
        rows = subject.run.load_data(["train"], listener=listener).splits["train"]
    except BertctlError as error:
        listener.say(f"calibrated on the compared rows: {error.message}")
        return []
    max_length = subject.run.recipe.model.max_length
    features = subject.task.encode(
        _at_most(rows, _CALIBRATED_ROWS), subject.engine.tokenizer, max_length=max_length
    )
    # Some tasks read other windows in training than in predictions, for which the graph is made.
    windows_for_predictions = subject.task.scored(features)
    all_numbers = np.arange(len(windows_for_predictions))
    return subject.windows_of(windows_for_predictions, all_numbers)


def _of_file(run: TrainedRun, file: Path, *, with_labels: bool, listener: Listener) -> Rows:
    """Returns the rows of a file, read by the run's settings; with labels if these are needed."""
    reader = READERS[run.recipe.task]
    # The labels are those of the trained model, so no message advises to name others.
    reader_options = ReaderOptions(
        listener=listener,
        hints=run.column_hints,
        labels=label_rules(run.recipe, can_name=False),
    )
    # With what only the file shows, such as whether numbers of choices count from 0 or 1.
    settings = reader.settled(run.file_settings, [file])
    return reader.read(
        file,
        settings,
        split="file",
        label_needed=with_labels,
        **reader_options,
    ).rows


def _of_run(run: TrainedRun, listener: Listener) -> Rows:
    """Returns the validation rows of a run."""
    run.require_own_data()
    data = run.load_data(listener=listener)
    return data.splits[data.validation_splits[0]]


def _at_most(rows: Rows, limit: int) -> Rows:
    """Returns all rows, or `limit` of them, evenly spread from the first to the last."""
    if len(rows) <= limit:
        return rows
    return rows.select(np.linspace(0, len(rows) - 1, limit).round().astype(np.int64))
