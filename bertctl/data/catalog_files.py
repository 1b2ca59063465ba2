"""The catalog's data sets, from official files or from the hub's Parquet files.

Both give the same rows.

As the hub's conversion did (`datasets/glue/glue.py` in huggingface/datasets): official files have
no quoting, rows that lack a field are left out (and counted here), labels written as numbers stand
for the name at that place, and nothing is stripped. Only the canonical columns are kept, since the
hub has no others.
"""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from bertctl.catalog import hub
from bertctl.catalog.dataset_row import Columns, DatasetRow, SplitRow
from bertctl.catalog.lock import FilesToRead, check_or_record
from bertctl.config.recipe_sections import DataSection
from bertctl.data.columns import say_blank
from bertctl.data.label_cells import LabelRules
from bertctl.data.read_options import ReaderOptions, ReadOptions
from bertctl.data.readers import READERS
from bertctl.data.rows import Rows
from bertctl.data.table import Table
from bertctl.data.text_files import read_text
from bertctl.errors import DataError, UnavailableError
from bertctl.progress import Listener
from bertctl.words import count, unknown
from bertctl.writing import protect

_NO_LABEL = ("", "-", "-1")


def _settings(
    columns: Columns, header: bool | None = None, *, first_choice: Literal[0] | None = 0
) -> DataSection:
    """Returns a catalog row's columns as the settings of a reader.

    Args:
        columns: Names of the columns in the file, from the catalog.
        header: Whether the file has a header; None if the reader finds out.
        first_choice: Number of the first choice: 0 in the built-in sets, None if it is not known.
    """
    return DataSection(
        text_column=columns.text,
        pair_column=columns.pair,
        label_column=columns.label,
        choice_columns=list(columns.choices) or None,
        first_choice=first_choice,
        header=header,
    )


def _read_by_task(row: DatasetRow, split: SplitRow, path: Path, listener: Listener) -> Rows:
    """Returns the rows of a split's file, read by the reader of its task, as a user's files are."""
    is_delimited = path.suffix in (".csv", ".tsv")
    is_built_in = row.home is None  # else it is from a `datasets.yaml`
    settings = _settings(
        row.columns_in_file(split),
        header=split.header if is_delimited else None,
        first_choice=0 if is_built_in else None,
    )
    reader = READERS[row.task]
    reader_options = ReaderOptions(listener=listener, labels=LabelRules(names=row.labels))
    return reader.read(
        path,
        settings,
        split=split.name,
        label_needed=split.labelled,
        **reader_options,
    ).rows


def find_split_file(row: DatasetRow, split: SplitRow, folder: Path) -> Path | None:
    """Returns the file of a split below a data folder, or None.

    An official file comes before the hub's Parquet file.
    """
    for path in _candidates(row, split, folder):
        if path.is_file():
            return path
    return None


def _candidates(row: DatasetRow, split: SplitRow, folder: Path) -> list[Path]:
    """Returns where the file of a split may be below a data folder, the likeliest path first."""
    folders = [*(folder / name for name in row.folders), folder]
    candidates = [parent / name for parent in folders for name in split.files]
    if row.hub:
        return [*candidates, folder / row.hub.file_of(split.name)]
    return candidates


def read_from_folder(row: DatasetRow, split: SplitRow, folder: Path, listener: Listener) -> Rows:
    """Returns a split of a catalog data set, read from its file in the user's data folder.

    Args:
        row: The data set in the catalog.
        split: The split to read.
        folder: The data folder.
        listener: Receives warnings and messages about the file.

    Raises:
        UnavailableError: The folder does not exist, or has none of the files that were tried.
        DataError: The file is not what it should be.
    """
    if not folder.is_dir():
        raise UnavailableError(
            f"the data folder {folder} does not exist", remedy=_files_wanted(row)
        )
    path = find_split_file(row, split, folder)
    if path is None:
        tried = "\n".join(f"  - {path}" for path in _candidates(row, split, folder))
        message = f"{folder} has no {split.name} file of '{row.name}'; tried:\n{tried}"
        raise UnavailableError(message, remedy=_files_wanted(row))
    protect(path)  # from being overwritten by an output of this command
    check_or_record(FilesToRead("dataset", row.name, {path.name: path}))  # for the lock file

    if path.suffix == ".parquet":
        return _read_parquet(
            row,
            split,
            path,
            str(path),
            listener,
        )
    if row.layout == "glue":
        return _read_glue_file(row, split, path, listener)
    return _read_by_task(row, split, path, listener)


def read_from_hub(row: DatasetRow, split: SplitRow, listener: Listener) -> Rows:
    """Returns a split of a catalog data set, read from the hub's Parquet file or its cached copy.

    Args:
        row: The data set in the catalog.
        split: The split to read.
        listener: Receives warnings and messages about the file.

    Raises:
        UnavailableError: The hub does not have the file, or it is not cached and the hub can't be
            reached.
        DataError: The file is not what it should be.
    """
    if row.hub is None:
        raise UnavailableError(
            f"the data set '{row.name}' is not on the hub", remedy=_files_wanted(row)
        )
    file = row.hub.file_of(split.name)
    path = hub.fetch_file(
        row.hub.repo,
        file,
        revision=row.hub.revision,
        noun=f"the data set '{row.name}'",
        ways=[
            f"`data.data_dir=DIR` (or BERTCTL_DATA=DIR) with the files: "
            f"{', '.join(row.official_files)}",
            "a warmed cache: `bertctl fetch` where the hub can be reached, and keep HF_HOME",
            "other rows: files of your own with `data.train_file=`, or the data set `demo`, which "
            "needs nothing",
        ],
    )
    return _read_parquet(
        row,
        split,
        path,
        f"{row.hub.repo}/{file}@{row.hub.revision[:8]}",
        listener,
    )


def _files_wanted(row: DatasetRow) -> str:
    """Returns the remedy for a missing file: which files `data.data_dir` must have."""
    if row.hub:
        hub_note = " Without `data.data_dir=` and BERTCTL_DATA the hub is asked."
    else:
        hub_note = ""
    return (
        f"`data.data_dir=DIR` needs the files {', '.join(row.official_files)}, below DIR or in DIR "
        f"itself.{hub_note}"
    )


def _read_glue_file(row: DatasetRow, split: SplitRow, path: Path, listener: Listener) -> Rows:
    """Returns the rows of an official TSV file of GLUE, the same as in the hub's Parquet file.

    Rows that lack one of the fields that are read are left out.

    Raises:
        DataError: A column is missing, or a file without a header has a row that lacks a field.
    """
    # The hub's conversion read the file in Python's text mode, which has three line ends.
    lines = read_text(path, None, listener).replace("\r\n", "\n").replace("\r", "\n").split("\n")
    positions = _positions(split, row.columns_in_file(split), lines[0], path)
    n_header_lines = 0 if split.header is False else 1
    width = 1 + max(positions.values())  # fields up to the last one that is read
    columns: dict[str, list[str]] = {name: [] for name in positions}
    line_numbers: list[int] = []
    n_short = 0
    for number, line in enumerate(lines[n_header_lines:], start=n_header_lines + 1):
        fields = line.split("\t")
        if len(fields) >= width:
            line_numbers.append(number)
            for name, position in positions.items():
                columns[name].append(fields[position])
        elif line:  # a row that lacks a field
            n_short += 1
            # Without a header, the hub's conversion reads fields by position, and fails here.
            if split.header is False:
                message = (
                    f"{path}:{number}: {len(fields)} tab-separated fields where {width} are "
                    f"needed: {line[:80]!r}"
                )
                raise DataError(message, remedy=f"Is this the official file of '{row.name}'?")
    if n_short:
        listener.warn(
            f"{path}: {count(n_short, 'row')} without all fields left out, as the hub's conversion "
            "does"
        )
    return _canonical(
        row,
        split,
        columns,
        source=str(path),
        lines=line_numbers,
        listener=listener,
    )


def _positions(split: SplitRow, columns: Columns, first_line: str, path: Path) -> dict[str, int]:
    """Returns canonical name -> position in the official file: `{"text": 3, "label": 1}`.

    Args:
        split: The split. Its file may have no header; then the catalog has positions of columns.
        columns: Names or positions of the columns, from the catalog.
        first_line: First line of the file.
        path: The file, for messages.

    Raises:
        DataError: The header lacks a column.
    """
    columns_in_file = _names_in_file(columns)
    if split.header is False:
        return {name: int(column) for name, column in columns_in_file.items()}
    names = first_line.split("\t")
    for column in columns_in_file.values():
        if column not in names:
            message = f"{path}:1: {unknown('column', column, names)}"
            raise DataError(message, remedy=f"Columns there: {', '.join(names)[:300]}.")
    return {name: names.index(column) for name, column in columns_in_file.items()}


def _names_in_file(columns: Columns) -> dict[str, str]:
    """Returns canonical name -> name in the file, of the columns that the data set has."""
    columns_by_role = {"text": columns.text, "pair": columns.pair, "label": columns.label}
    return {name: column for name, column in columns_by_role.items() if column is not None}


def _read_parquet(
    row: DatasetRow, split: SplitRow, path: Path, source: str, listener: Listener
) -> Rows:
    """Returns the rows of the hub's file, read by the library `datasets`, which knows label names.

    Args:
        row: The data set in the catalog.
        split: The split that the file has.
        path: The file.
        source: Name of the file in messages: repository, file and revision.
        listener: Receives a warning of rows that are left out.

    Raises:
        DataError: The file can't be read, lacks a column, or has other labels than the catalog.
    """
    data = _hub_dataset(path, source)
    hub_columns = row.columns_on_hub(split)
    if row.layout != "glue":  # the reader of the task reads it, as it reads a user's files
        table = Table(
            {name: _decoded(data, name, row, hub_columns.label) for name in data.column_names},
            source,
        )
        options = ReadOptions(
            _settings(hub_columns),
            split.name,
            label_needed=split.labelled,
            listener=listener,
            labels=LabelRules(names=row.labels),
        )
        [reading] = READERS[row.task].table_readings([table], options)
        return reading.rows
    columns_in_file = _names_in_file(hub_columns)
    for column in columns_in_file.values():
        if column not in data.column_names:
            raise DataError(
                f"{source}: no column '{column}'", remedy=f"Columns: {data.column_names}."
            )
    label_feature = data.features.get(columns_in_file.get("label", ""))
    names = getattr(label_feature, "names", None)  # only classes have names
    if names is not None and tuple(names) != row.labels:
        message = (
            f"{source}: its label names {names} are not those of '{row.name}': {list(row.labels)}"
        )
        raise DataError(
            message, remedy="Use the pinned revision, or the official files with `data.data_dir=`."
        )
    columns = {
        name: data.data.column(column).to_pylist() for name, column in columns_in_file.items()
    }
    return _canonical(
        row,
        split,
        columns,
        source=source,
        lines=[],
        listener=listener,
    )


def _hub_dataset(path: Path, source: str) -> Any:
    """Returns a Parquet file of the hub as a `datasets.Dataset`, all of it in memory.

    Raises:
        DataError: The file can't be read; `source` is what the message calls it.
    """
    import datasets

    datasets.disable_progress_bars()
    # A cache of its own: nothing is left behind, and nothing of an earlier release is read.
    with tempfile.TemporaryDirectory(prefix="bertctl-") as scratch:
        try:
            return datasets.Dataset.from_parquet(str(path), cache_dir=scratch, keep_in_memory=True)
        except Exception as error:
            raise DataError(
                f"{source} can't be read: {type(error).__name__}: {str(error)[:200]}"
            ) from error


def _decoded(data: Any, column: str, row: DatasetRow, label_column: str | None) -> list[Any]:
    """Returns a column of the hub's, its class numbers (or lists of them) as names.

    Args:
        data: A `datasets.Dataset`.
        column: Name of the column in it.
        row: The data set in the catalog, which may name the classes of lists of class numbers.
        label_column: Name of the column with labels.
    """
    values: list[Any] = data.data.column(column).to_pylist()
    feature = data.features[column]
    names = getattr(feature, "names", None)
    if names is not None:  # -1 is a label that is not published
        return [None if value is None or value < 0 else names[value] for value in values]
    item_feature = getattr(feature, "feature", None)  # that of a list's items
    item_names = getattr(item_feature, "names", None)
    is_label = column == label_column
    if item_names is None and is_label and row.hub is not None and row.hub.labels:
        item_names = row.hub.labels
    if item_names is not None:
        return [[item_names[number] for number in numbers] for numbers in values]
    return values


def _canonical(
    row: DatasetRow,
    split: SplitRow,
    columns: Mapping[str, Sequence[Any]],
    source: str,
    lines: Sequence[int],
    listener: Listener,
) -> Rows:
    """Returns the rows with labels as names or scores, numbered from 0.

    Rows without a label or a text are left out.

    Args:
        row: The data set in the catalog.
        split: The split that the rows are.
        columns: Canonical name -> cells as the file has them.
        source: Name of the file in messages.
        lines: Number of the line of each row, or nothing.
        listener: Receives a warning of rows that are left out, and of blank texts.

    Raises:
        DataError: A label is none of the data set's, or no row is complete.
    """
    rows = Rows(
        split.name,
        columns=columns,
        ids=[str(i) for i in range(len(columns["text"]))],
        source=source,
        lines=lines,
    )
    if "label" in columns:
        rows = _with_labels(rows, row)
    complete = [
        i for i, cells in enumerate(zip(*rows.columns.values(), strict=True)) if None not in cells
    ]
    if not complete:
        raise DataError(
            f"{source} has no rows", remedy=f"Is this the official file of '{row.name}'?"
        )
    if len(complete) < len(rows):
        listener.warn(
            f"{source}: {len(rows) - len(complete)} rows without a label or a text are left out"
        )
        # The complete rows are numbered anew, in their ids and in messages.
        rows = replace(
            rows.select(complete), ids=[str(i) for i in range(len(complete))], numbers=()
        )
    n_blank = sum(not text.strip() for text in rows.columns["text"])
    say_blank(n_blank, len(rows), source, listener)
    return rows


def _with_labels(rows: Rows, row: DatasetRow) -> Rows:
    """Returns rows with their labels as names, or as scores if the data set names no labels.

    Raises:
        DataError: A label is none of the data set's.
    """
    written = rows.columns["label"]
    if row.labels:
        names = _names_by_written_label(row.labels)
        labels = [names.get(value, _STRANGE) for value in written]
    else:
        labels = [_score(value) for value in written]
    if _STRANGE in labels:
        index = labels.index(_STRANGE)
        message = f"{rows.where(index)}: '{written[index]}' is not a label of '{row.name}'"
        raise DataError(message, remedy=f"Labels: {', '.join(row.labels) or 'a number'}.")
    return replace(rows, columns={**rows.columns, "label": labels})


_STRANGE = object()
"""Stands for a label that the data set does not have."""


def _names_by_written_label(labels: Sequence[str]) -> dict[Any, Any]:
    """Returns label as files write it -> its name, None for no label.

    Labels `neg`, `pos`: `{"pos": "pos", "1": "pos", 1: "pos", "-1": None, ...}`.
    """
    names: dict[Any, Any] = dict.fromkeys((None, *_NO_LABEL, -1))
    for index, name in enumerate(labels):
        names.update({name: name, str(index): name, index: name})
    return names


def _score(value: Any) -> Any:
    """Returns a score rounded to single precision, as the hub has it: `"3.8000001"` -> 3.8.

    It is None for no label, and `_STRANGE` for something that is no number.
    """
    import numpy as np

    if value is None or value in _NO_LABEL:
        return None
    try:
        # By its text, 3.8 in single precision stays 3.8; `float` alone gives 3.799999952316284.
        return float(str(np.float32(value)))
    except ValueError:
        return _STRANGE
