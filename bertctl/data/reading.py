"""`Reader`: how the files of a task become rows.

It is one way for whole files, for streams and for the hub's columns.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Sequence
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
from bertctl.data.read_options import Reading, ReadOptions, Told
from bertctl.data.rows import Rows
from bertctl.data.several_files import readings_of_files
from bertctl.data.sources import MemoryFile, Source
from bertctl.data.table import Table
from bertctl.data.unlabelled import UnusableLabel, labelled_places, left_out, without_marks
from bertctl.errors import DataError, WholeFileError
from bertctl.progress import SILENT

_UNLABELLED = (
    "Annotate them, or take those of another annotator: `data.annotator=NAME` (data.annotator in a "
    "recipe); `predictions` takes those of a model."
)


def _one_row_per_task(table: Table, columns: Any, options: ReadOptions) -> Table:
    """Returns a whole labelled table with one row for all annotators of a task.

    Warns of rows that nobody approved.
    """
    if not (options.whole and options.label_needed and columns.label in table.columns):
        return table
    table = one_row_per_task(table, columns.label, options.settings.annotator)
    message = unapproved(table)
    if message:
        options.listener.warn(f"{table.source}: {message}")
    return table


def _rejected(table: Table, label: str | None, options: ReadOptions) -> dict[int, DataError]:
    """Returns what is wrong with rows whose label a person rejected or ignored.

    `answer` of Prodigy's files says that.
    """
    if label is not None and options.label_needed:
        cells = table.columns[label]
    else:
        cells = ()
    unusable: dict[int, DataError] = {}
    marked = () if is_packed(cells) else cells
    for index, cell in enumerate(marked):
        if isinstance(cell, UnusableLabel):
            unusable[index] = cell.error(table.where(index))
    answers = table.columns.get("answer", ())
    learned = options.whole and options.label_needed and label not in (None, "answer")
    if not learned or not all(
        answer in ("accept", "reject", "ignore", None) for answer in different_values(answers)
    ):
        return unusable
    rest = """with: grep '"answer": *"accept"' FILE > accepted.jsonl"""
    remedy = (
        f"Keep the accepted rows, {rest}, or learn the answers themselves: "
        f"`data.label_column=answer`."
    )
    message = "its label was not accepted (Prodigy)"
    return unusable | {
        index: DataError(f"{table.where(index)}: 'answer' is '{answer}': {message}", remedy=remedy)
        for index, answer in enumerate(answers)
        if answer not in ("accept", None)
    }


def _numbered(rows: Rows, table: Table, positions: Sequence[int]) -> Rows:
    """Returns rows with their numbers in the file, if the file has no lines."""
    if table.lines:
        return rows
    numbers = np.fromiter(map(table.number, positions), dtype=np.int64, count=len(positions))
    return replace(rows, numbers=int_column(numbers))


class Reader(ABC):
    """Makes rows of the files of one task.

    Attributes:
        columns: canonical columns it fills; they decide a split's content hash.
        stratify: whether rows held out for validation keep the shares of the labels.
        together: columns whose equal values hang together, the widest first: the questions about
            one article.
        streams_labels: whether `stream` keeps labels.
        no_label: what stands for no label: where none is needed, a column of nothing else is left
            out.
        nouns: canonical columns of which blank cells are told, each with what is said to be blank.
        form: what a JSON file of its rows looks like.
        is_sure: whether a file with its columns is for no other task: a row that is wrong is told
            of.
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
        """Returns one key per row, the same for rows that hang together."""
        return group_keys(rows, self.together)

    def settled(
        self,
        settings: DataSection,
        files: Sequence[Path | MemoryFile],  # noqa: ARG002
    ) -> DataSection:
        """Returns the settings with what only all files of a recipe together show.

        Args:
            settings: As the person gave them.
            files: Those of the recipe, in the order in which they are asked.
        """
        return settings

    @abstractmethod
    def readings(self, source: Source, options: ReadOptions) -> Iterator[Reading]:
        """Yields the rows of a file or of stdin, chunk by chunk."""

    def guess(self, path: Path | MemoryFile, options: ReadOptions) -> Reading | None:
        """Returns the first rows of a file that is for this task by its content.

        None where it is for another one.

        Raises:
            UsageError: it can't be told, or the file can't be for this task.
            DataError: its rows are not what this task needs.
        """
        return next(iter(self.readings(path, options)), None)

    def columns_of(self, table: Table, options: ReadOptions) -> FileColumns:
        """Returns which column of a file is which, as the settings say or by the usual names."""
        # what is read otherwise than by tables is never asked for columns
        raise NotImplementedError

    def rows_of(self, table: Table, columns: Any, options: ReadOptions, *, first_id: int) -> Rows:
        """Returns a file's columns under their canonical names.

        Without ids the rows are numbered from `first_id`.
        """
        raise NotImplementedError

    def further_columns(
        self,
        columns: Any,
        table: Table,  # noqa: ARG002
        options: ReadOptions,  # noqa: ARG002
    ) -> Any:
        """Returns the columns, with those that a later chunk of the file brings."""
        return columns

    def table_readings(
        self, tables: Iterable[Table], options: ReadOptions, columns: FileColumns | None = None
    ) -> Iterator[Reading]:
        """Yields the rows of columns that are read already.

        The first table decides which column is which.
        """
        known: Any = columns
        file_ids = FileIds()
        total = n_sound = 0
        blank = dict.fromkeys(dict(self.nouns), 0)
        for table in tables if options.label_needed else map(without_marks, tables):
            if known is None:
                options = options.fitting(table)
                known = self.columns_of(table, options)
                if known.label is not None:
                    labels = table.columns[known.label]
                else:
                    labels = ()
                unlabelled = not options.label_needed and all(
                    label in self.no_label for label in labels
                )
                if unlabelled or not options.keep_labels:
                    known = replace(known, label=None)
                table = _one_row_per_task(table, known, options)
                known, file_ids = self._with_ids(table, known, options)
                say_guesses(
                    table, replace(known, id=file_ids.column), options.settings, options.listener
                )
                if options.whole and options.label_needed:
                    warn_of_splits(table, known, options.listener)
            else:
                known = self.further_columns(known, table, options)
                lacking = {
                    name: [None] * len(table)
                    for name in known.used[1:]
                    if name not in table.columns
                }
                if table.lines:
                    table = replace(table, columns={**table.columns, **lacking})
                table = _one_row_per_task(table, known, options)
            rows = self._sound_rows(
                table,
                known,
                options,
                file_ids,
                first_id=total,
            )
            if table.lines and file_ids.column is None and options.skipped is not None:
                rows = replace(
                    rows, ids=options.skipped.ids(rows.lines, table.source, first_id=n_sound)
                )
            total = total + len(table)
            n_sound = n_sound + len(rows)
            if not len(rows):
                continue
            for column in blank.keys() & rows.columns.keys():
                blank[column] += sum(not text.strip() for text in rows.columns[column])
            settings = options.settings  # the names of a format's own are those of no other file
            if type(table) is Table and known.settings_of:
                settings = known.as_settings(settings, header=table.header)
            class_names = table.class_names.get(known.names().get("label", ""), ())
            has_ids = file_ids.column is not None
            file_names = known.names() | (
                {"id": file_ids.column} if file_ids.column is not None else {}
            )
            rows = replace(rows, file_names=file_names)
            yield Reading(
                rows,
                known.names(),
                settings,
                class_names,
                has_ids=has_ids,
            )
        if total:
            file_ids.report(table.source, options.listener)
            for column, noun in self.nouns:
                say_blank(
                    blank[column],
                    total,
                    table.source,
                    options.listener,
                    noun=noun,
                )

    def _with_ids(self, table: Table, columns: Any, options: ReadOptions) -> tuple[Any, FileIds]:
        """Returns the columns of a file, and the column with the file's own ids, if it has one.

        Such a column becomes `columns.id` only for a whole file in which each row has another id.

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
        if column is None or not options.whole:
            return columns, FileIds(column)

        labelled = table
        if columns.label is not None and not is_packed(table.columns[columns.label]):
            # Of the rows of several annotators, one is labelled.
            labelled = table.select(labelled_places(table.columns[columns.label]))
        if not can_stand_for_rows(labelled, column, options.listener):
            return columns, FileIds()
        return replace(columns, id=column), FileIds(column)

    def _sound_rows(
        self, table: Table, columns: Any, options: ReadOptions, file_ids: FileIds, *, first_id: int
    ) -> Rows:
        """Returns the rows without those that are to be skipped; numbers stay those of the file.

        Rows that nobody labelled are left out and counted, where labels are needed.

        Raises:
            DataError: rows that are not what they should be; all of them, or such as nobody wants
                to skip.
        """
        if columns.label is not None:
            cells = table.columns[columns.label]
        else:
            cells = ()
        labelled = labelled_places(cells)
        if len(labelled) < len(cells):
            message = left_out(cells, len(cells))
            if not labelled and options.whole:
                raise DataError(f"{table.source}: {message}", remedy=_UNLABELLED)
            options.listener.warn(f"{table.source}: {message}")
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
                row_of_line = {line: row for row, line in enumerate(table.lines)}
                return replace(rows, ids=[str(first_id + row_of_line[line]) for line in rows.lines])
            return replace(
                rows, ids=[str(first_id + number - table.first - 1) for number in rows.numbers]
            )
        rejected = _rejected(table, columns.label, options)
        try:
            if rejected:
                raise rejected[min(rejected)]
            rows = self.rows_of(table, columns, options, first_id=first_id)
            return file_ids.attach(
                _numbered(rows, table, range(len(table))), table, as_ids=not self.finds_ids
            )
        except DataError as whole:
            if options.skipped is None or (len(table) > 1 and isinstance(whole, WholeFileError)):
                raise
            alone = replace(options, listener=SILENT)
            sound_indices = []
            bad = []
            for index in range(len(table)):
                try:
                    if index in rejected:
                        raise rejected[index]
                    self.rows_of(table.select([index]), columns, alone, first_id=first_id + index)
                    sound_indices.append(index)
                except DataError as error:
                    if table.lines:
                        error.file = table.source
                        error.line = table.lines[index]
                    bad.append(error)
            if not bad or (options.whole and not sound_indices):
                raise
        options.skipped.errors += bad
        sound = table.select(sound_indices)
        rows = _numbered(
            self.rows_of(sound, columns, options, first_id=first_id), table, sound_indices
        )
        if columns.id is None:
            rows = replace(rows, ids=[str(first_id + index) for index in sound_indices])
        return file_ids.attach(rows, sound, as_ids=not self.finds_ids)

    def read(
        self,
        path: Path | MemoryFile | FileList,
        settings: DataSection,
        *,
        split: str,
        label_needed: bool,
        **reader_options: Unpack[Told],
    ) -> Reading:
        """Returns a whole file; see `ReadOptions`.

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
        return self.read_whole(path, options.skipping(options.skipped))

    def all_readings(self, source: Source | FileList, options: ReadOptions) -> Iterator[Reading]:
        """Yields the rows of a file, of stdin or of several files, chunk by chunk."""
        if isinstance(source, FileList):
            yield from readings_of_files(self, source, options)
        else:
            yield from self.readings(source, options)

    def read_whole(self, path: Path | MemoryFile | FileList, options: ReadOptions) -> Reading:
        """Returns a whole file, read as `options` say; see `read`."""
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
        **reader_options: Unpack[Told],
    ) -> Iterator[Rows]:
        """Yields the rows of a file or of stdin (`-`) in chunks, labels optional.

        A chunk has at most `chunk_rows` (None: all).

        `skipped` gets those that can't be read. Labels are there if the task's answers need them,
        or with `keep_labels`.

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
        **reader_options: Unpack[Told],
    ) -> Iterator[Reading]:
        """Yields the same as `stream`, with the names of the columns."""
        reader_options.setdefault("keep_labels", self.streams_labels)
        options = ReadOptions(
            settings,
            "predict",
            chunk_rows=chunk_rows,
            **reader_options,
        )
        yield from self.all_readings(
            source, replace(options.skipping(options.skipped), form=self.form)
        )
