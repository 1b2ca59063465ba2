"""Several files that are read as one.

The rows are those of the files one behind the other: their numbers go on, and they are cut into the
same chunks, so an answer does not depend on where one file ends and the next one begins.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

from bertctl.data.decoding import NoRowsError
from bertctl.data.file_lists import FileList
from bertctl.data.files import detected_kind
from bertctl.data.read_options import Reading, ReadOptions
from bertctl.data.rows import Rows, joined_columns
from bertctl.data.sources import Source
from bertctl.errors import UsageError
from bertctl.progress import SILENT, Listener
from bertctl.words import listing


class FileReader(Protocol):
    """Makes rows of a file."""

    def readings(self, source: Source, options: ReadOptions) -> Iterator[Reading]:
        """Yields the rows of a file, chunk by chunk."""


def readings_of_files(
    reader: FileReader, files: FileList, options: ReadOptions
) -> Iterator[Reading]:
    """Yields the rows of several files, chunk by chunk, as if they were one file.

    Args:
        reader: Reads each file.
        files: The files. Files without rows are passed over.
        options: How the files are read. Columns that are guessed in the first file count for all.

    Raises:
        UsageError: Files of different formats or columns; both are named.
        DataError: None of the files has rows.
    """
    readings = _of_each_file(reader, files, options)
    if options.chunk_rows is None:
        parts = list(readings)
        if not parts:  # all rows were left out
            return
        yield replace(parts[0], rows=_joined([part.rows for part in parts], files))
        return
    yield from _in_equal_chunks(readings, options.chunk_rows, files)


def _of_each_file(reader: FileReader, files: FileList, options: ReadOptions) -> Iterator[Reading]:
    """Yields the readings of one file after the other, with rows that are numbered through.

    Args:
        reader: Reads each file. The later files are read like the first file that has rows.
        files: The files.
        options: How they are read.

    Raises:
        UsageError: A file has other columns than the first one.
        NoRowsError: None of the files has rows.
    """
    first_reading: Reading | None = None  # of the first file with rows
    first_path = files.paths[0]  # that file
    no_rows_error: NoRowsError | None = None
    n_before = 0  # rows of the files before, with those that were left out
    listener = _WholeListener(options.listener, files)
    for path in files.paths:
        listener.begin(path, n_before)
        n_skipped_before = _n_skipped(options)
        file_options = replace(options, listener=listener)
        if first_reading is not None:
            file_options = _as_first(file_options, first_reading)
        n_rows = 0
        try:
            for reading in reader.readings(path, file_options):
                if first_reading is None:
                    first_reading = reading
                    first_path = path
                elif not n_rows:  # the first chunk of a later file
                    _require_same_columns(
                        first_reading,
                        first_path,
                        reading,
                        path,
                        options,
                    )
                n_rows += len(reading.rows)
                yield _numbered_from(reading, n_before)
        except NoRowsError as error:
            if n_rows:
                raise
            no_rows_error = error  # an empty file counts for nothing, unless all are empty
        n_before += n_rows + _n_skipped(options) - n_skipped_before
    if first_reading is None and no_rows_error is not None:
        raise no_rows_error


def _as_first(options: ReadOptions, first: Reading) -> ReadOptions:
    """Returns options that read a file as the first one was read.

    Columns that were guessed in the first one are hints: they count if this file has them.
    """
    from_recipe = options.settings
    column_fields = [
        name for name in type(from_recipe).model_fields if name.endswith(("_column", "_columns"))
    ]
    guessed = {
        name
        for name in column_fields
        if getattr(from_recipe, name) != getattr(first.settings, name)
    }
    settings = first.settings
    # If the first file has no header, the others have none either. If it has one, the recipe
    # decides for the others.
    if settings.header:
        settings = settings.model_copy(update={"header": from_recipe.header})
    return replace(options, settings=settings, hints=options.hints | guessed)


def _n_skipped(options: ReadOptions) -> int:
    """Returns how many rows have been left out so far."""
    if options.skipped is None:
        return 0
    return len(options.skipped.errors) + len(options.skipped.unlabelled)


def _numbered_from(reading: Reading, n_before: int) -> Reading:
    """Returns the rows of a file numbered after those of the files before it.

    With 100 rows before, `0` becomes `100`. Ids of the file's own stay.
    """
    rows = reading.rows
    if not n_before or reading.has_ids or not all(row_id.isdecimal() for row_id in rows.ids):
        return reading
    return replace(
        reading, rows=replace(rows, ids=[str(int(row_id) + n_before) for row_id in rows.ids])
    )


def _require_same_columns(
    first: Reading, first_path: Path, reading: Reading, path: Path, options: ReadOptions
) -> None:
    """Refuses a file whose columns differ from the columns of the first file.

    Objects of JSON may lack a column that nobody reads.

    Raises:
        UsageError: With both files.
    """
    silent = replace(options, listener=SILENT)
    kinds = [options.kind or detected_kind(file, silent) for file in (first_path, path)]
    if kinds[0] != kinds[1]:
        message = f"{first_path} is {kinds[0]} and {path} is {kinds[1]}"
        raise UsageError(message, remedy="Give files of one format: they are read as one file.")

    columns_read = _columns_read(first, options)
    if _columns_read(reading, options) != columns_read:
        message = (
            f"{first_path} is read by its columns {listing([*columns_read.values()])}, and {path} "
            "has other ones"
        )
        remedy = (
            f"Columns of {path}: {listing(_names(reading))}. Rename them, or name the columns that "
            "all files have."
        )
        raise UsageError(message, remedy=remedy)
    differing = set(_names(first)).symmetric_difference(_names(reading))
    if differing and kinds[0] != "jsonl":
        message = (
            f"{first_path} and {path} have different columns: {listing(sorted(differing))} in one "
            "of them only"
        )
        raise UsageError(
            message, remedy="Give files with the same columns: they are read as one file."
        )


def _columns_read(reading: Reading, options: ReadOptions) -> dict[str, str]:
    """Returns canonical name -> name in the file, of the columns that are needed."""
    is_needed = {"label": options.label_needed}
    return {role: name for role, name in reading.columns.items() if is_needed.get(role, True)}


def _names(reading: Reading) -> list[str]:
    """Returns the columns of rows, as the file calls them."""
    file_names = reading.rows.file_names
    return [file_names.get(column, column) for column in reading.rows.columns]


def _in_equal_chunks(readings: Iterable[Reading], size: int, files: FileList) -> Iterator[Reading]:
    """Yields the rows in chunks of one size, across the ends of files; the last one may be shorter.

    Args:
        readings: The readings of all files, in their order.
        size: Rows of a chunk.
        files: The files, for the name of rows that are of several files.
    """
    waiting: list[Rows] = []  # rows that do not fill a chunk yet
    n_waiting = 0
    last: Reading | None = None
    for reading in readings:
        last = reading
        rows = reading.rows
        while n_waiting + len(rows) >= size:
            n_missing = size - n_waiting
            if n_missing == len(rows):
                waiting.append(rows)
            else:
                waiting.append(rows.select(range(n_missing)))
            yield replace(reading, rows=_joined(waiting, files))
            rows = rows.select(range(n_missing, len(rows)))
            waiting = []
            n_waiting = 0
        if len(rows):
            waiting.append(rows)
            n_waiting += len(rows)
    if waiting and last is not None:
        yield replace(last, rows=_joined(waiting, files))


def _joined(parts: Sequence[Rows], files: FileList) -> Rows:
    """Returns the rows of several parts with the columns that any of them has.

    Lines and numbers are positions in a file, so rows of several files have none.
    """
    if len(parts) == 1:
        return parts[0]
    lines: Sequence[int] = ()
    numbers: Sequence[int] = ()
    is_of_one_file = len({rows.source for rows in parts}) == 1
    if is_of_one_file:
        source = parts[0].source
        lines = _flat(rows.lines for rows in parts)
        numbers = _flat(rows.numbers for rows in parts)
    else:
        source = str(files)
    all_have_ids = all(rows.file_ids for rows in parts)
    return replace(
        parts[0],
        columns=joined_columns(parts),
        ids=_flat(rows.ids for rows in parts),
        source=source,
        lines=lines,
        numbers=numbers,
        groups=(),  # rows get them later, when all files are read
        file_ids=_flat(rows.file_ids for rows in parts) if all_have_ids else (),
    )


def _flat(lists: Iterable[Iterable[Any]]) -> list[Any]:
    """Returns the items of all lists, in their order."""
    return list(chain.from_iterable(lists))


class _WholeListener(Listener):
    """Passes on messages about single files, and an estimate of the rows of all files.

    Args:
        listener: Receives the messages.
        files: The files.

    Attributes:
        _sizes: Each file -> its bytes.
        _n_before: Rows of the files before the one that is read.
        _ratio_left: Bytes of that file and all later ones, divided by the bytes of that file.
    """

    def __init__(self, listener: Listener, files: FileList) -> None:
        """Looks up the size of each file; `begin` says which one is read."""
        self._listener = listener
        self._sizes = {path: _size_of(path) for path in files.paths}
        self._n_before = 0  # rows of the files before
        self._ratio_left = 0.0  # bytes from this file on / bytes of this file

    def begin(self, path: Path, n_before: int) -> None:
        """Begins a file. Its rows tell how many rows this file and the later ones have.

        These are estimated as the rows of this file, times the bytes of all these files, divided by
        its own bytes.

        Args:
            path: The file.
            n_before: Rows of the files before it.
        """
        paths = list(self._sizes)
        bytes_left = sum(self._sizes[later] for later in paths[paths.index(path) :])
        self._n_before = n_before
        if self._sizes[path]:
            self._ratio_left = bytes_left / self._sizes[path]
        else:
            self._ratio_left = 0.0

    def say(self, text: str) -> None:
        """Passes on a message."""
        self._listener.say(text)

    def warn(self, text: str) -> None:
        """Passes on a warning."""
        self._listener.warn(text)

    def expect(self, rows: int) -> None:
        """Passes on about how many rows all files have, by the rows of this one."""
        n_expected = self._n_before + int(rows * self._ratio_left)
        self._listener.expect(n_expected if rows else 0)


def _size_of(path: Path) -> int:
    """Returns the size of a file in bytes; 0 where there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
