"""The splits of a recipe as far as they can be read; what the readers refuse becomes a finding."""

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bertctl.catalog.datasets import find_dataset
from bertctl.checking.findings import Example, Finding, FindingRules, shorten
from bertctl.config.recipe_files import expanded_path
from bertctl.config.schema import Recipe
from bertctl.data.files import input_kind, read_tables
from bertctl.data.read_options import ReadOptions, SkippedRows
from bertctl.data.readers import READERS
from bertctl.data.recipe_data import load_data
from bertctl.data.recipe_sources import label_rules
from bertctl.data.rows import Rows
from bertctl.data.tagged_tables import SPAN_COLUMNS
from bertctl.errors import DataError, UnavailableError, UsageError
from bertctl.progress import SILENT, Listener

_RULES = FindingRules("files")
_PLACE = re.compile(r"(?P<where>.+?:\d+)(?: \(id .*?\))?: (?P<what>.*)", re.DOTALL)


_Read = tuple[dict[str, Rows], tuple[str, ...] | None, list[Finding]]
"""Rows by split; label names in the data set's official order, where it has one; what was refused
or warned of."""


def read_data(recipe: Recipe, *, listener: Listener = SILENT) -> _Read:
    """Reads all splits that exist, whole: without hold-out, sample or limit.

    Args:
        recipe: Its sections `data` and `evaluation` are read.
        listener: Receives what the readers guess and detect.

    Returns:
        Rows by split, official label names, and findings; see `_Read`.

    Raises:
        UsageError: No data, an unknown data set or split, columns that can't be guessed.
        UnavailableError: A file that is named, or the training rows of a data set, can't be had.
    """
    if recipe.data.name:
        return _read_dataset(recipe, listener)
    return _read_own(recipe, listener)


def _read_dataset(recipe: Recipe, listener: Listener) -> _Read:
    """Reads each split of a data set in the catalog by itself.

    Each split is read whole (`unsplit`): no part of it is held out for validation. A split that
    training would not read may be missing, and the test split is not downloaded for this.
    """
    dataset = find_dataset(recipe.data.name or "", recipe.data.datasets_file)
    requested = {"train", *recipe.evaluation.splits}
    if dataset.validation_splits:
        requested.add(dataset.validation_splits[0])
    is_local = bool(recipe.data.data_dir) or dataset.bundled or dataset.home is not None
    splits: dict[str, Rows] = {}
    findings: list[Finding] = []
    for name in dataset.split_names:
        is_validation = name in dataset.validation_splits
        if name not in requested and not is_local and not is_validation:
            continue  # a test split is not downloaded only to look at it
        recorder = _WarningRecorder(listener)
        try:
            splits[name] = load_data(
                recipe,
                listener=recorder,
                splits=[name],
                unsplit=True,
            ).splits[name]
        except DataError as error:
            findings.append(refusal(error, name))
        except UnavailableError:
            if name in requested:
                raise
            listener.say(f"{name}: not there, not checked")
        findings += recorder.findings(name)
    return splits, dataset.labels or None, findings


def _read_own(recipe: Recipe, listener: Listener) -> _Read:
    """Reads the recipe's own files, all at once as training does.

    If they can't be read so, each is read by itself, so that one file's fault doesn't hide the
    others.
    """
    files = {name: file for name, file in recipe.data.own_files.items() if file}
    recorder = _WarningRecorder(listener)
    try:
        loaded = load_data(
            recipe,
            listener=recorder,
            splits=list(files),
            unsplit=True,
        )
    except DataError:
        return _read_own_one_by_one(recipe, files, listener)
    return dict(loaded.splits), loaded.labels, [*recorder.findings("")]


def _read_own_one_by_one(recipe: Recipe, files: Mapping[str, str], listener: Listener) -> _Read:
    """Reads each file by itself, past the records that can't be read.

    Args:
        recipe: Its section `data` is read.
        files: Split name -> path.
        listener: Receives what the readers guess and detect.

    Returns:
        The rows by split, None in place of label names, and findings; see `_Read`.
    """
    splits: dict[str, Rows] = {}
    findings: list[Finding] = []
    for name, file in files.items():
        recorder = _WarningRecorder(listener)
        try:
            splits[name] = load_data(
                recipe,
                listener=recorder,
                splits=[name],
                unsplit=True,
            ).splits[name]
        except DataError as error:
            bad_records: list[DataError] = []
            rows = _read_past(expanded_path(file), recipe, name, bad_records)
            if rows is not None:
                splits[name] = rows
            if rows is not None and bad_records:
                findings.append(_bad_records(bad_records, len(rows), name))
            else:
                findings.append(refusal(error, name))
        findings += recorder.findings(name)
    return splits, None, findings


def refusal(error: DataError, split: str, *, code: str = "unreadable") -> Finding:
    """Returns an error of a reader or task as a finding.

    If the message begins with a place, `FILE:LINE: ...`, that becomes the finding's example.
    """
    examples = (_example(error),) if _PLACE.fullmatch(error.message) else ()
    return Finding(
        code,
        severity="error",
        split=split,
        count=1,
        total=1,
        message=error.message,
        examples=examples,
        remedy=error.remedy,
    )


def _example(error: DataError) -> Example:
    """Returns the place that a message begins with, and the rest of the message, as an example.

    If it begins with no place, the example has none.
    """
    match = _PLACE.fullmatch(error.message)
    if match is None:
        return Example("", shorten(error.message, limit=140))
    return Example(match["where"], shorten(match["what"], limit=140))


class _WarningRecorder(Listener):
    """Keeps the readers' warnings, which become findings; passes on the rest."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._warnings: list[str] = []

    def say(self, text: str) -> None:
        self._listener.say(text)

    def warn(self, text: str) -> None:
        self._warnings.append(text)

    def findings(self, split: str) -> Iterator[Finding]:
        """Yields a finding for each warning."""
        for text in self._warnings:
            yield _RULES.finding("reader-warning", split, (1, 1), message=text)


def _read_past(path: Path, recipe: Recipe, split: str, errors: list[DataError]) -> Rows | None:
    """Returns the rows of a user's file that can be read, past records that can't; None for none.

    Three ways are tried:

    1. The task's reader, past records that are damaged. It refuses the file if a row is unfit.
    2. A table of texts with spans, whatever the spans are. `check_spans` finds what is wrong.
    3. The task's reader, past damaged records and unfit rows.

    Args:
        path: The file.
        recipe: Its sections `data` and task are read.
        split: Name of the split.
        errors: Receives an error for each record that is left out.
    """
    reader = READERS[recipe.task]
    options = ReadOptions(
        recipe.data,
        split,
        label_needed=split != "test",
        on_bad_record=errors.append,
        labels=label_rules(recipe),
    )
    with contextlib.suppress(DataError, UsageError):
        return reader.read_whole(path, options).rows
    errors.clear()  # the next reading meets the same records again
    if "words" in reader.columns:
        rows = _span_rows(path, recipe, split)
        if rows is not None:
            return rows
    with contextlib.suppress(DataError, UsageError):
        return reader.read_whole(path, options.skipping(SkippedRows(errors))).rows
    return None


def _span_rows(path: Path, recipe: Recipe, split: str) -> Rows | None:
    """Returns a file's texts and spans as they are, without making tags of them.

    It is None if the file has no columns of texts and spans.
    """
    try:
        options = ReadOptions(recipe.data, split, on_bad_record=lambda _: None)
        [table] = read_tables(path, input_kind(path, options), options)
    except (DataError, UsageError):
        return None
    spans = next((name for name in SPAN_COLUMNS if name in table.columns), None)
    if spans is None or "text" not in table.columns:
        return None
    columns = {"text": table.columns["text"], spans: table.columns[spans]}
    return Rows(
        split,
        columns,
        [str(i) for i in range(len(table))],
        table.source,
        table.lines,
    )


def _bad_records(errors: Sequence[DataError], n_sound: int, split: str) -> Finding:
    """Returns the finding about the records of a split that can't be read.

    Args:
        errors: An error for each of these records.
        n_sound: Number of the other records of the split.
        split: Name of the split.
    """
    counts = (len(errors), len(errors) + n_sound)
    different_remedies = list(dict.fromkeys(error.remedy for error in errors if error.remedy))
    remedy = " ".join(
        [
            "Correct them: training refuses the file until every record fits the task.",
            *different_remedies[:2],
        ]
    )
    return _RULES.finding(
        "bad-record",
        split,
        counts,
        tuple(_example(error) for error in errors[:5]),
        remedy=remedy,
    )
