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
from bertctl.catalog.lock import Found, noted
from bertctl.config.recipe_sections import DataSection
from bertctl.data.columns import say_blank
from bertctl.data.label_cells import LabelRules
from bertctl.data.read_options import ReadOptions, Told
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
    """Returns a catalog row's columns as a reader is told them.

    The built-in sets count choices from 0.
    """
    return DataSection(
        text_column=columns.text,
        pair_column=columns.pair,
        label_column=columns.label,
        choice_columns=list(columns.choices) or None,
        first_choice=first_choice,
        header=header,
    )


def _read_own(row: DatasetRow, split: SplitRow, path: Path, listener: Listener) -> Rows:
    """Returns the rows of a file as a person's own files are read."""
    if path.suffix in (".csv", ".tsv"):
        header = split.header
    else:
        header = None
    settings = _settings(
        row.columns_in_file(split), header, first_choice=0 if row.home is None else None
    )
    reader = READERS[row.task]
    reader_options = Told(listener=listener, labels=LabelRules(names=row.labels))
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
    return next((path for path in _candidates(row, split, folder) if path.is_file()), None)


def _candidates(row: DatasetRow, split: SplitRow, folder: Path) -> list[Path]:
    folders = [*(folder / name for name in row.folders), folder]
    candidates = [parent / name for parent in folders for name in split.files]
    if row.hub:
        return [*candidates, folder / row.hub.file_of(split.name)]
    return candidates


def read_from_folder(row: DatasetRow, split: SplitRow, folder: Path, listener: Listener) -> Rows:
    """Returns a split from a data folder.

    Raises:
        UnavailableError: no such folder, or none of the files that were tried is in it.
        DataError: the file is not what it should be.
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
    protect(path)
    noted(Found("dataset", row.name, {path.name: path}))
    if path.suffix == ".parquet":
        return _read_parquet(
            row,
            split,
            path,
            str(path),
            listener,
        )
    if row.layout == "glue":
        return _read_official(row, split, path, listener)
    return _read_own(row, split, path, listener)


def read_from_hub(row: DatasetRow, split: SplitRow, listener: Listener) -> Rows:
    """Returns a split from the hub's Parquet file, out of the cache where it is there.

    Raises:
        UnavailableError: the hub does not have it, or it is neither in the cache nor to be had.
        DataError: the file is not what it should be.
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
            "other rows: files of your own with `data.train_file=`, or the data set `demo`, "
            "which needs "
            "nothing",
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
    if row.hub:
        hub_note = " Without `data.data_dir=` and BERTCTL_DATA the hub is asked."
    else:
        hub_note = ""
    return (
        f"`data.data_dir=DIR` needs the files {', '.join(row.official_files)}, below DIR or in DIR "
        f"itself.{hub_note}"
    )


def _read_official(row: DatasetRow, split: SplitRow, path: Path, listener: Listener) -> Rows:
    # Python's universal line ends, with which the hub's conversion read them.
    lines = read_text(path, None, listener).replace("\r\n", "\n").replace("\r", "\n").split("\n")
    at = _positions(split, row.columns_in_file(split), lines[0], path)
    first = 0 if split.header is False else 1
    width = 1 + max(at.values())
    columns: dict[str, list[str]] = {name: [] for name in at}
    targets = [(columns[name], i) for name, i in at.items()]
    numbers: list[int] = []
    short = 0
    for number, line in enumerate(lines[first:], start=first + 1):
        fields = line.split("\t")
        if len(fields) >= width:
            numbers.append(number)
            for column, i in targets:
                column.append(fields[i])
        elif line:
            short += 1
            if split.header is False:
                message = (
                    f"{path}:{number}: {len(fields)} tab-separated fields where {width} are "
                    f"needed: {line[:80]!r}"
                )
                raise DataError(message, remedy=f"Is this the official file of '{row.name}'?")
    if short:
        left_out = count(short, "row")
        listener.warn(
            f"{path}: {left_out} without all fields left out, as the hub's conversion does"
        )
    return _canonical(
        row,
        split,
        columns,
        source=str(path),
        lines=numbers,
        listener=listener,
    )


def _positions(split: SplitRow, columns: Columns, first_line: str, path: Path) -> dict[str, int]:
    """Returns canonical name -> position in the official file."""
    columns_in_file = _wanted(columns)
    if split.header is False:
        return {name: int(column) for name, column in columns_in_file.items()}
    names = first_line.split("\t")
    for column in columns_in_file.values():
        if column not in names:
            message = f"{path}:1: {unknown('column', column, names)}"
            raise DataError(message, remedy=f"Columns there: {', '.join(names)[:300]}.")
    return {name: names.index(column) for name, column in columns_in_file.items()}


def _wanted(columns: Columns) -> dict[str, str]:
    columns_by_role = {"text": columns.text, "pair": columns.pair, "label": columns.label}
    return {name: column for name, column in columns_by_role.items() if column is not None}


def _read_parquet(
    row: DatasetRow, split: SplitRow, path: Path, source: str, listener: Listener
) -> Rows:
    """Returns the rows of the hub's file, read by the library `datasets`.

    Its features carry the label names.
    """
    import datasets

    datasets.disable_progress_bars()
    with tempfile.TemporaryDirectory(
        prefix="bertctl-"
    ) as scratch:  # nothing is left, and nothing stale is read
        try:
            data = datasets.Dataset.from_parquet(str(path), cache_dir=scratch, keep_in_memory=True)
        except Exception as error:
            raise DataError(
                f"{source} can't be read: {type(error).__name__}: {str(error)[:200]}"
            ) from error
    hub_columns = row.columns_on_hub(split)
    if row.layout != "glue":
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
    columns_in_file = _wanted(hub_columns)
    for column in columns_in_file.values():
        if column not in data.column_names:
            raise DataError(
                f"{source}: no column '{column}'", remedy=f"Columns: {data.column_names}."
            )
    names = getattr(data.features.get(columns_in_file.get("label", "")), "names", None)
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
        source,
        [],
        listener,
    )


def _decoded(data: Any, column: str, row: DatasetRow, label_column: str | None) -> list[Any]:
    """Returns a column of the hub's, its class numbers (or lists of them) as names."""
    values: list[Any] = data.data.column(column).to_pylist()
    feature = data.features[column]
    names = getattr(feature, "names", None)
    if names is not None:
        return [None if value is None or value < 0 else names[value] for value in values]
    inner = getattr(getattr(feature, "feature", None), "names", None)
    if inner is None and row.hub is not None and row.hub.labels and column == label_column:
        inner = row.hub.labels
    if inner is not None:
        return [[inner[number] for number in numbers] for numbers in values]
    return values


def _canonical(
    row: DatasetRow,
    split: SplitRow,
    columns: Mapping[str, Sequence[Any]],
    source: str,
    lines: Sequence[int],
    listener: Listener,
) -> Rows:
    """Returns the labelled rows with labels as names or scores, numbered from 0.

    Rows without a label are left out.
    """
    every = Rows(
        split.name,
        columns=columns,
        ids=[str(i) for i in range(len(columns["text"]))],
        source=source,
        lines=lines,
    )
    if "label" in columns:
        names = _names(row.labels)
        labels = [
            names.get(value, _STRANGE) if row.labels else _score(value)
            for value in columns["label"]
        ]
        every = replace(every, columns={**columns, "label": labels})
        if _STRANGE in labels:
            index = labels.index(_STRANGE)
            message = (
                f"{every.where(index)}: '{columns['label'][index]}' is not a label of '{row.name}'"
            )
            raise DataError(message, remedy=f"Labels: {', '.join(row.labels) or 'a number'}.")
    complete = [
        i
        for i, values in enumerate(zip(*every.columns.values(), strict=True))
        if None not in values
    ]
    if not complete:
        raise DataError(
            f"{source} has no rows", remedy=f"Is this the official file of '{row.name}'?"
        )
    if len(complete) < len(every):
        listener.warn(
            f"{source}: {len(every) - len(complete)} rows without a label or a text are left out"
        )
        every = replace(
            every.select(complete), ids=[str(i) for i in range(len(complete))], numbers=()
        )
    say_blank(sum(not text.strip() for text in every.columns["text"]), len(every), source, listener)
    return every


_STRANGE = object()


def _names(labels: Sequence[str]) -> dict[Any, Any]:
    """Returns the names of written labels; None for no label.

    Others are none of this set: `_STRANGE`.
    """
    known: dict[Any, Any] = dict.fromkeys((None, *_NO_LABEL, -1))
    for index, name in enumerate(labels):
        known.update({name: name, str(index): name, index: name})
    return known


def _score(value: Any) -> Any:
    """Returns the shortest decimal number with the same single-precision value.

    That value is what the hub holds.
    """
    import numpy as np

    if value is None or value in _NO_LABEL:
        return None
    try:
        return float(str(np.float32(value)))
    except ValueError:
        return _STRANGE
