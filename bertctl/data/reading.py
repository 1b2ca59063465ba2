"""`Reader`: how the files of a task become rows.

It is one way for whole files, for streams and for the hub's columns.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from bertctl.config.recipe_sections import DataSection
from bertctl.data.annotations.annotators import one_row_per_task, unapproved
from bertctl.data.columns import FileColumns, say_blank, say_guesses, warn_of_splits
from bertctl.data.file_ids import FileIds, can_stand_for_rows, guess_id_column
from bertctl.data.file_lists import FileList
from bertctl.data.groups import group_keys
from bertctl.data.packed_columns import different_values, int_column, is_packed
from bertctl.data.read_options import ReaderOptions, Reading, ReadOptions
from bertctl.data.rows import Rows
from bertctl.data.several_files import readings_of_files
from bertctl.data.sources import MemoryFile, Source
from bertctl.data.table import Table
from bertctl.data.unlabelled import UnusableLabel, labelled_positions, left_out, without_marks
from bertctl.errors import DataError, WholeFileError
from bertctl.progress import SILENT

_UNLABELLED = (
    "Annotate them, or take those of another annotator: `data.annotator=NAME` (data.annotator in a "
    "recipe); `predictions` takes those of a model."
)


def _one_row_per_task(table: Table, columns: Any, options: ReadOptions) -> Table:
    """Returns a table in which several annotators' rows about one task are one, if they agree.

    It also warns of rows that nobody approved. Chunks and tables whose labels nobody needs stay as
    they are.
    """
    if not (options.reads_whole_file and options.label_needed and columns.label in table.columns):
        return table
    table = one_row_per_task(table, columns.label, options.settings.annotator)
    message = unapproved(table)
    if message:
        options.listener.warn(f"{table.source}: {message}")
    return table


def _rejected(table: Table, label: str | None, options: ReadOptions) -> dict[int, DataError]:
    """Returns the errors of rows whose label can't be learned, by the row's number in the table.

    Annotators disagree about it, or the column `answer` of Prodigy's files says that a person
    rejected or ignored it.

    Args:
        table: The file.
        label: Its label column, if it has one.
        options: Whether labels are needed, and the file is read whole.
    """
    errors: dict[int, DataError] = {}
    if label is not None and options.label_needed and not is_packed(table.columns[label]):
        for index, cell in enumerate(table.columns[label]):
            if isinstance(cell, UnusableLabel):
                errors[index] = cell.error(table.where(index))

    is_learned = options.reads_whole_file and options.label_needed and label not in (None, "answer")
    if not is_learned:
        return errors
    answers = table.columns.get("answer", ())
    is_of_prodigy = all(
        answer in ("accept", "reject", "ignore", None) for answer in different_values(answers)
    )
    if not is_of_prodigy:
        return errors
    keep_accepted = """with: grep '"answer": *"accept"' FILE > accepted.jsonl"""
    remedy = (
        f"Keep the accepted rows, {keep_accepted}, or learn the answers themselves: "
        f"`data.label_column=answer`."
    )
    message = "its label was not accepted (Prodigy)"
    for index, answer in enumerate(answers):
        if answer not in ("accept", None):
            where = table.where(index)
            errors[index] = DataError(f"{where}: 'answer' is '{answer}': {message}", remedy=remedy)
    return errors


def _numbered(rows: Rows, table: Table, positions: Sequence[int]) -> Rows:
    """Returns rows with their numbers in the file, if the file has no lines (Parquet).

    Args:
        rows: One for each position.
        table: The file, or a chunk of it.
        positions: Where the rows are in the table.
    """
    if table.lines:
        return rows
    numbers = np.fromiter(map(table.number, positions), dtype=np.int64, count=len(positions))
    return replace(rows, numbers=int_column(numbers))


def _as_reading(
    rows: Rows, table: Table, columns: Any, options: ReadOptions, file_ids: FileIds
) -> Reading:
    """Returns rows with what is known of the file they are from.

    Args:
        rows: Rows of the file.
        table: The same rows, as the file has them.
        columns: Which column is which.
        options: How the file is read.
        file_ids: The ids that the file gives its rows.
    """
    names = columns.names()
    file_names = dict(names)
    if file_ids.column is not None:
        file_names["id"] = file_ids.column
    settings = options.settings
    # The next file is read with the column names of this one. A subclass of `Table` was made of
    # another format, such as SQuAD's: no file has its column names. Columns of words and tags
    # belong to no settings either: they are found anew in each file.
    has_names_of_file = type(table) is Table
    have_settings = bool(columns.settings_of)
    if has_names_of_file and have_settings:
        settings = columns.as_settings(settings, header=table.header)
    return Reading(
        replace(rows, file_names=file_names),
        columns=names,
        settings=settings,
        class_names=table.class_names.get(names.get("label", ""), ()),
        has_ids=file_ids.column is not None,
    )


def _with_absent_columns(table: Table, columns: Any) -> Table:
    """Returns a chunk of JSON Lines with a column of None for each column that is missing in it.

    Args:
        table: The chunk. Chunks of other formats have all columns of their file.
        columns: Which column is which, by the chunks before.
    """
    if not table.lines:  # Parquet
        return table
    # The first column, such as the text, must be there: a chunk without it is refused later.
    optional = columns.used[1:]
    absent = [name for name in optional if name not in table.columns]
    empty = {name: [None] * len(table) for name in absent}
    return replace(table, columns={**table.columns, **empty})


class Reader(ABC):
    """Makes rows of the files of one task.

    Attributes:
        columns: canonical columns it fills; they decide a split's content hash.
        stratify: whether rows held out for validation keep the shares of the labels.
        together: columns by which rows belong together if their values are equal, the widest groups
            first: `title` for the questions about one article.
        streams_labels: whether `stream` keeps labels.
        no_label: what stands for no label: where none is needed, a column of nothing else is left
            out.
        nouns: canonical columns whose blank cells are reported, each with a noun for the message.
        form: what a JSON file of its rows looks like.
        is_sure: whether a file with its columns is for no other task, so that a wrong row of it is
            an error.
        finds_ids: whether `columns_of` looks for a column of ids that nobody named.
    """

    columns: tuple[str, ...]
    stratify: bool = False
    together: tuple[str, ...] = ()
    streams_labels: bool = False
    no_label: tuple[Any, ...] = ()
    nouns: tuple[tuple[str, str], ...] = ()
    form: str = ReadOptions.form
    is_sure: bool = False
    finds_ids: bool = False

    def groups(self, rows: Rows) -> Sequence[Hashable]:
        """Returns one key per row, the same for rows that belong together."""
        return group_keys(rows, self.together)

    def settled(
        self,
        settings: DataSection,
        files: Sequence[Path | MemoryFile],  # noqa: ARG002
    ) -> DataSection:
        """Returns the settings with what only all files of a recipe together show: here, nothing.

        Readers that need all files override it: for choices, whether labels count from 0 or 1.

        Args:
            settings: As the person gave them.
            files: The recipe's files, in the order in which they are looked at.
        """
        return settings

    @abstractmethod
    def readings(self, source: Source, options: ReadOptions) -> Iterator[Reading]:
        """Yields the rows of a file or of stdin, chunk by chunk."""

    def guess(self, path: Path | MemoryFile, options: ReadOptions) -> Reading | None:
        """Returns the first rows of a file that is for this task by its content.

        None where it is for another one.

        Raises:
            UsageError: the file may be for this task or for another, or can't be for this task.
            DataError: its rows are not what this task needs.
        """
        return next(iter(self.readings(path, options)), None)

    def columns_of(self, table: Table, options: ReadOptions) -> FileColumns:
        """Returns which column of a file is which, as the settings say or by the usual names."""
        # Only `table_readings` calls it. A reader that makes rows in another way has no columns.
        raise NotImplementedError

    def rows_of(self, table: Table, columns: Any, options: ReadOptions, *, first_id: int) -> Rows:
        """Returns the rows of a file, its columns renamed to those of the task, such as `text`.

        Args:
            table: The file, or a chunk of it.
            columns: Which column is which, as `columns_of` returns it.
            options: How the file is read.
            first_id: Number of the first row, where the file has no ids.
        """
        raise NotImplementedError

    def further_columns(
        self,
        columns: Any,
        table: Table,  # noqa: ARG002
        options: ReadOptions,  # noqa: ARG002
    ) -> Any:
        """Returns the columns by which a later chunk of the file is read: here, the same ones.

        Readers whose files have more columns in later chunks override it.
        """
        return columns

    def table_readings(
        self, tables: Iterable[Table], options: ReadOptions, columns: FileColumns | None = None
    ) -> Iterator[Reading]:
        """Yields the rows of tables, the chunks of one file.

        The first table decides which column is which, unless `columns` say it. At the end the
        listener is warned of blank texts and of ids that repeat.

        Args:
            tables: As the file has them.
            options: How it is read.
            columns: Which column is which, if that is known.
        """
        known: Any = columns
        file_ids = FileIds()
        n_rows = 0  # rows of the file so far, with those that could not be used
        n_sound = 0  # rows that were yielded
        n_blank = dict.fromkeys(dict(self.nouns), 0)  # canonical column -> blank texts so far
        if not options.label_needed:
            # It does not matter then why a row has no label.
            tables = map(without_marks, tables)
        for table in tables:
            if known is None:
                options = options.fitting(table)
                table, known, file_ids = self._first_table(table, options)
            else:
                known = self.further_columns(known, table, options)
                table = _one_row_per_task(_with_absent_columns(table, known), known, options)
            rows = self._sound_rows(
                table,
                known,
                options,
                file_ids,
                first_id=n_rows,
            )
            are_numbered = file_ids.column is None
            if are_numbered and options.skipped is not None and table.lines:
                # A row's id is its number in the file, as if no row had been left out. `skipped`
                # knows which lines were left out, and adds them to the number of rows yielded.
                ids = options.skipped.ids(rows.lines, table.source, first_id=n_sound)
                rows = replace(rows, ids=ids)
            n_rows += len(table)
            n_sound += len(rows)
            if not len(rows):
                continue
            for column in n_blank.keys() & rows.columns.keys():
                n_blank[column] += sum(not text.strip() for text in rows.columns[column])
            yield _as_reading(rows, table, known, options, file_ids)
        if n_rows:
            file_ids.report(table.source, options.listener)
            for column, noun in self.nouns:
                say_blank(
                    n_blank[column],
                    n_rows,
                    table.source,
                    options.listener,
                    noun=noun,
                )

    def _first_table(self, table: Table, options: ReadOptions) -> tuple[Table, Any, FileIds]:
        """Decides which column is which by a file's first table, and reports what was guessed.

        Args:
            table: The first rows of the file.
            options: How it is read.

        Returns:
            The table, with one row per task if several annotators have labelled it; which column is
            which; and the ids that the file gives its rows.
        """
        columns = self._labelled_columns(table, options)
        table = _one_row_per_task(table, columns, options)
        columns, file_ids = self._with_ids(table, columns, options)
        # `columns.id` lacks an id column that was guessed in a file of chunks. It is reported, too.
        reported_columns = replace(columns, id=file_ids.column)
        say_guesses(table, reported_columns, options.settings, options.listener)
        if options.reads_whole_file and options.label_needed:
            warn_of_splits(table, columns, options.listener)
        return table, columns, file_ids

    def _labelled_columns(self, table: Table, options: ReadOptions) -> Any:
        """Returns which column of a file is which, without a label column that nobody needs.

        The label column is left out if labels are not kept. If labels are optional, it is left out
        if no row has one.
        """
        columns: Any = self.columns_of(table, options)
        if not options.keep_labels:
            return replace(columns, label=None)
        if options.label_needed:
            return columns
        labels = table.columns[columns.label] if columns.label is not None else ()
        has_no_labels = all(label in self.no_label for label in labels)
        if has_no_labels:
            return replace(columns, label=None)
        return columns

    def _with_ids(self, table: Table, columns: Any, options: ReadOptions) -> tuple[Any, FileIds]:
        """Returns the columns of a file, and the `FileIds` that take its ids chunk by chunk.

        Ids of a named column become `columns.id`. A reader with `finds_ids` has looked for ids
        by itself. For the other readers, a column is guessed by its name:

        - In a file that is read whole, it becomes `columns.id` if each row has a different id.
          Otherwise the rows are numbered.
        - In a file that is read in chunks, nobody knows yet whether ids repeat. `FileIds` passes
          them on as they are, and reports repeated ones at the end.

        Args:
            table: First rows of the file.
            columns: Which column is which, by those rows.
            options: How the file is read.
        """
        if columns.id is not None:
            return columns, FileIds(columns.id, are_strict=not self.finds_ids)
        if self.finds_ids:
            return columns, FileIds()
        column = guess_id_column(table, columns.used)
        if column is None or not options.reads_whole_file:
            return columns, FileIds(column)

        labelled = table
        if columns.label is not None and not is_packed(table.columns[columns.label]):
            # Rows of several annotators about one task may have the same id. Only one of them keeps
            # its label. Rows without a label are left out later, so their ids don't count.
            labelled = table.select(labelled_positions(table.columns[columns.label]))
        if not can_stand_for_rows(labelled, column, options.listener):
            return columns, FileIds()
        return replace(columns, id=column), FileIds(column)

    def _sound_rows(
        self, table: Table, columns: Any, options: ReadOptions, file_ids: FileIds, *, first_id: int
    ) -> Rows:
        """Returns the rows of a table without those that are left out.

        Rows that nobody labelled are left out and counted; rows that can't be read are left out if
        `options.skipped` gets them. The others keep the numbers that they have in the file.

        Args:
            table: The file, or a chunk of it.
            columns: Which column is which.
            options: How the file is read.
            file_ids: The ids that the file gives its rows.
            first_id: Number of the first row.

        Raises:
            DataError: A row can't be read and `options.skipped` is None, or no row can be read.
        """
        cells = table.columns[columns.label] if columns.label is not None else ()
        labelled = labelled_positions(cells)
        if len(labelled) < len(cells):
            return self._labelled_rows(
                table,
                columns,
                options,
                file_ids,
                labelled=labelled,
                first_id=first_id,
            )

        # Position -> error of each row whose label can't be learned, such as one that annotators
        # disagree about.
        rejected = _rejected(table, columns.label, options)
        try:
            if rejected:  # handled below, like a row that can't be read
                first_rejected = min(rejected)
                raise rejected[first_rejected]
            rows = self.rows_of(table, columns, options, first_id=first_id)
            numbered = _numbered(rows, table, range(len(table)))
            return file_ids.attach(numbered, table, as_ids=not self.finds_ids)
        except DataError as error:
            concerns_all = len(table) > 1 and isinstance(error, WholeFileError)
            if options.skipped is None or concerns_all:
                raise
            # The table is read again, row by row, to find the rows to skip.
            sound_positions, errors = self._check_one_by_one(
                table,
                columns,
                options,
                rejected,
                first_id=first_id,
            )
            has_no_rows = options.reads_whole_file and not sound_positions
            if not errors or has_no_rows:  # no single row is at fault, or all are
                raise
        options.skipped.errors += errors
        sound = table.select(sound_positions)
        rows = self.rows_of(sound, columns, options, first_id=first_id)
        rows = _numbered(rows, table, sound_positions)
        if columns.id is None:  # rows that were left out keep their numbers
            rows = replace(rows, ids=[str(first_id + position) for position in sound_positions])
        return file_ids.attach(rows, sound, as_ids=not self.finds_ids)

    def _labelled_rows(
        self,
        table: Table,
        columns: Any,
        options: ReadOptions,
        file_ids: FileIds,
        *,
        labelled: Sequence[int],
        first_id: int,
    ) -> Rows:
        """Returns the rows of a table that somebody labelled, and warns of the others.

        If the file has no ids, the rows keep their numbers in the file, as if the others were
        still there.

        Args:
            table: The file, or a chunk of it.
            columns: Which column is which.
            options: How the file is read.
            file_ids: The ids that the file gives its rows.
            labelled: Positions of the rows that somebody labelled.
            first_id: Number of the first row.

        Raises:
            DataError: Nobody labelled any row of a whole file.
        """
        cells = table.columns[columns.label]
        message = left_out(cells, len(cells))
        if not labelled and options.reads_whole_file:
            raise DataError(f"{table.source}: {message}", remedy=_UNLABELLED)
        options.listener.warn(f"{table.source}: {message}")
        # `SkippedRows.ids` counts rows that were left out, so that others keep their numbers.
        if options.skipped is not None and table.lines:
            absent = set(range(len(table))).difference(labelled)
            options.skipped.unlabelled += [(table.source, table.lines[row]) for row in absent]
        rows = self._sound_rows(
            table.select(labelled),
            columns,
            options,
            file_ids,
            first_id=first_id,
        )
        if columns.id is not None or file_ids.column is not None:
            return rows
        if table.lines:
            position_of_line = {line: position for position, line in enumerate(table.lines)}
            positions = [position_of_line[line] for line in rows.lines]
        else:
            # Numbers count from 1 in the file, positions from 0 in the table.
            positions = [number - table.first - 1 for number in rows.numbers]
        return replace(rows, ids=[str(first_id + position) for position in positions])

    def _check_one_by_one(
        self,
        table: Table,
        columns: Any,
        options: ReadOptions,
        rejected: Mapping[int, DataError],
        *,
        first_id: int,
    ) -> tuple[list[int], list[DataError]]:
        """Returns the positions of rows that can be read alone, and the errors of the others.

        Args:
            table: Rows that can't be read together.
            columns: Which column is which.
            options: How the file is read.
            rejected: Position -> error of rows whose label can't be learned.
            first_id: Number of the first row.
        """
        silent = replace(options, listener=SILENT)
        sound_positions: list[int] = []
        errors: list[DataError] = []
        for position in range(len(table)):
            try:
                if position in rejected:
                    raise rejected[position]
                row = table.select([position])
                self.rows_of(row, columns, silent, first_id=first_id + position)
                sound_positions.append(position)
            except DataError as error:
                if table.lines:
                    error.file = table.source
                    error.line = table.lines[position]
                errors.append(error)
        return sound_positions, errors

    def read(
        self,
        path: Path | MemoryFile | FileList,
        settings: DataSection,
        *,
        split: str,
        label_needed: bool,
        **reader_options: Unpack[ReaderOptions],
    ) -> Reading:
        """Returns all rows of a file or of several files, read as one table.

        Args:
            path: The file or the files.
            settings: How they are read, as a recipe's section `data`.
            split: Name that the rows get as a split.
            label_needed: Whether to refuse a file without labels.
            **reader_options: As of `ReadOptions`. `skipped` gets rows that can't be read, and lines
                that can't be parsed.

        Raises:
            UsageError: an unknown suffix, columns that can't be guessed.
            DataError: an empty file, bytes, records or columns that are not what they should be,
                with file and line.
            UnavailableError: the file does not exist.
        """
        options = ReadOptions(
            settings,
            split,
            label_needed=label_needed,
            **reader_options,
        )
        return self.read_whole(path, options.skipping_bad_records())

    def all_readings(self, source: Source | FileList, options: ReadOptions) -> Iterator[Reading]:
        """Yields the rows of a file, of stdin or of several files, chunk by chunk."""
        if isinstance(source, FileList):
            yield from readings_of_files(self, source, options)
        else:
            yield from self.readings(source, options)

    def read_whole(self, path: Path | MemoryFile | FileList, options: ReadOptions) -> Reading:
        """Returns all rows of a file or of several files, read as `options` say.

        Raises:
            DataError: Every record was left out.
        """
        readings = list(self.all_readings(path, replace(options, form=self.form)))
        if not readings:  # every record was left out
            raise DataError(f"{path} has no rows that can be read", remedy="Give a file with rows.")
        return readings[0]

    def stream(
        self,
        source: Source | FileList,
        settings: DataSection,
        *,
        chunk_rows: int | None = 2048,
        **reader_options: Unpack[ReaderOptions],
    ) -> Iterator[Rows]:
        """Yields the rows of a file or of stdin (`-`) in chunks, labels optional.

        Args:
            source: The file or the files.
            settings: How they are read, as a recipe's section `data`.
            chunk_rows: Rows of a chunk at most; None for all at once.
            **reader_options: As of `ReadOptions`. `skipped` gets rows that can't be read. Labels
                are kept if the task's answers need them, or with `keep_labels`.

        Raises:
            UsageError: an unknown kind or suffix, columns that can't be guessed.
            DataError: nothing there, or not what it should be, with file and line.
            UnavailableError: the file does not exist.
        """
        for reading in self.stream_readings(
            source,
            settings,
            chunk_rows=chunk_rows,
            **reader_options,
        ):
            yield reading.rows

    def stream_readings(
        self,
        source: Source | FileList,
        settings: DataSection,
        *,
        chunk_rows: int | None = 2048,
        **reader_options: Unpack[ReaderOptions],
    ) -> Iterator[Reading]:
        """Yields the rows of a file or of stdin in chunks, each with the names of its columns.

        Args:
            source: The file or the files.
            settings: How they are read, as a recipe's section `data`.
            chunk_rows: Rows of a chunk at most; None for all at once.
            **reader_options: As of `ReadOptions`. `skipped` gets rows that can't be read, and lines
                that can't be parsed.
        """
        reader_options.setdefault("keep_labels", self.streams_labels)
        options = ReadOptions(
            settings,
            "predict",
            chunk_rows=chunk_rows,
            **reader_options,
        )
        yield from self.all_readings(
            source, replace(options.skipping_bad_records(), form=self.form)
        )
