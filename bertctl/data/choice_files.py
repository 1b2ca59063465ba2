"""Files of multiple choice: SWAG's CSV, CODAH's TSV, JSON Lines, Parquet.

They have a list of choices, or a column for each.

Canonical columns: `context` (may be blank), `choices` (a list of at least two texts; rows may
differ in how many), and `label` (the number of the right one, counted from 0).
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bertctl.config.recipe_sections import DataSection
from bertctl.data.choice_cells import Choices, flattened
from bertctl.data.choice_columns import (
    ChoiceColumns,
    choices_of,
    find_columns,
    further_labels,
    readable_choices,
    reading_of,
    with_further_choices,
)
from bertctl.data.choice_labels import (
    LabelReading,
    find_reading,
    numbers_of_choices,
    refuse_other_label,
)
from bertctl.data.columns import ids_of, other_columns, shown_columns
from bertctl.data.files import input_kind, read_tables
from bertctl.data.names import folded
from bertctl.data.read_options import Reading, ReadOptions, json_form
from bertctl.data.reading import Reader
from bertctl.data.rows import Rows
from bertctl.data.sources import MemoryFile, Source, source_name
from bertctl.data.table import Table
from bertctl.data.text_columns import texts_of
from bertctl.data.text_files import open_bytes
from bertctl.errors import DataError, UnavailableError, UsageError, WholeFileError
from bertctl.words import as_number, count, nearly_all

_COUNTS = (
    "num_choices",
    "n_choices",
    "number_of_choices",
    "choice_count",
    "num_options",
    "n_options",
)


@dataclass(frozen=True)
class ChoiceReader(Reader):
    """Makes rows with choices of CSV, TSV, JSONL and Parquet."""

    columns: tuple[str, ...] = ("context", "choices", "label")
    no_label: tuple[Any, ...] = (None, "", -1, "-1")
    together: tuple[str, ...] = ("context",)
    form: str = json_form('"context": "...", "choices": ["...", "..."], "label": 0')
    is_sure: bool = True

    def readings(self, source: Source, options: ReadOptions) -> Iterator[Reading]:
        """Yields the rows of a file or of stdin, chunk by chunk.

        A file that is read whole and called .txt is JSON Lines or a table with tabs.

        Raises:
            UsageError: Lines of text that are read in chunks, to predict on them.
        """
        kind = input_kind(source, options)
        if kind == "lines" and not options.reads_whole_file:
            remedy = "Give JSONL, CSV, TSV or Parquet; for stdin name it with `input_format=jsonl`."
            raise UsageError(f"{source_name(source)}: lines of text have no choices", remedy=remedy)
        if kind == "lines":
            if _begins_with_object(source):
                kind = "jsonl"
            else:
                kind = "tsv"
        tables = (flattened(table) for table in read_tables(source, kind, options))
        return self.table_readings(tables, options)

    def columns_of(self, table: Table, options: ReadOptions) -> ChoiceColumns:
        """Returns the columns of context, choices and label, and how the labels are read."""
        columns = find_columns(table, options.settings, label_needed=options.label_needed)
        label = columns.label
        if label is None or not options.keep_labels:
            return columns

        first_choice = options.settings.first_choice
        if _is_prediction_file(table):
            # `bertctl` wrote this file, and counts choices from 0. The setting is about the files
            # that the run was trained on, so it isn't used here.
            first_choice = 0
        elif first_choice is None and _counts_from_zero(table, columns):
            first_choice = 0
        columns = replace(columns, first=first_choice)
        readable = readable_choices(table, columns)
        reading = reading_of(table, label, readable, columns.first)

        # The right choice may be in further columns, too, such as `answer_text`. They are compared
        # with the label if nearly all of their values mean a choice.
        further_readings: dict[str, LabelReading] = {}
        for name in further_labels(table, columns):
            further_reading = reading_of(table, name, readable, columns.first)
            fits = nearly_all(further_reading.fitting, len(readable))
            if fits and not further_reading.is_ambiguous:
                further_readings[name] = further_reading
        return replace(
            columns,
            reading=reading,
            others=further_readings,
            is_whole=options.reads_whole_file,
        )

    def settled(self, settings: DataSection, files: Sequence[Path | MemoryFile]) -> DataSection:
        """Returns the settings with the number of the first choice, if one of the files shows it.

        A file of few rows may have no label 0 though its labels count from 0, so all files of a
        recipe are looked at.

        Args:
            settings: How the files are read. A number of the first choice in them stays.
            files: All files of the recipe.
        """
        if settings.first_choice is not None:
            return settings
        options = ReadOptions(settings, "train", form=self.form)
        for path in files:
            # The error comes again when the file is read for good.
            with suppress(DataError, UsageError, UnavailableError):
                kind = input_kind(path, options)
                if kind == "lines":  # a table that is called .txt
                    kind = "tsv"
                for table in map(flattened, read_tables(path, kind, options)):
                    columns = self.columns_of(table, options.fitting(table))
                    if columns.reading is None:
                        continue
                    first_number = columns.reading.seen_first
                    # Labels that seem to count from 1 are believed if the columns do, too.
                    if first_number == 0 or (first_number == 1 and columns.are_from_one):
                        return settings.model_copy(update={"first_choice": first_number})
        return settings

    def further_columns(
        self, columns: ChoiceColumns, table: Table, options: ReadOptions
    ) -> ChoiceColumns:
        """Returns the columns, with choices that only a later chunk has (`choice5` after four)."""
        if options.settings.choice_columns:
            return columns
        return with_further_choices(columns, table)

    def rows_of(
        self, table: Table, columns: ChoiceColumns, options: ReadOptions, *, first_id: int
    ) -> Rows:
        """Returns the rows of a table, with its columns under their canonical names.

        Args:
            table: The file, or a chunk of it.
            columns: The file's columns of context, choices and label.
            options: How the file is read.
            first_id: Id of the first row if the rows are numbered.

        Raises:
            DataError: A row has fewer than two choices, a label that means none of them, or a cell
                that is no text; with file and line.
        """
        # A chunk of JSONL lacks the columns of the last choices if all of its rows have fewer.
        has_column_per_choice = len(columns.choices) > 1
        columns.require(table, optional=columns.choices if has_column_per_choice else ())
        contexts = texts_of(table, columns.context)
        choices = choices_of(table, columns)
        endings = [row.texts for row in choices]
        _require_two_choices(table, columns, endings)
        _compare_counts(table, endings)  # with a column such as `num_choices`
        canonical: dict[str, Sequence[Any]] = {"context": contexts, "choices": endings}
        if columns.beginning is not None:
            beginnings = texts_of(table, columns.beginning)
            canonical["choices"] = list(map(_continued, beginnings, endings))
        if columns.label is not None:
            canonical["label"] = _labels_of(table, columns, choices, options)
            # Further columns that say the right choice must agree with the label.
            for name, reading in columns.others.items():
                refuse_other_label(
                    table,
                    names=(columns.label, name),
                    numbers=canonical["label"],
                    choices=choices,
                    reading=reading,
                )
        canonical |= other_columns(table, columns.used, ("context", "choices", "label"))
        return Rows(
            options.split,
            columns=canonical,
            ids=ids_of(table, columns.id, first_id=first_id),
            source=table.source,
            lines=table.lines,
        )


def _continued(beginning: str, endings: Sequence[str]) -> Sequence[str]:
    """Returns the choices of a row: its endings, each behind the beginning if there is one.

    `"He", ["sat.", "ran."]` -> `["He sat.", "He ran."]`.
    """
    if not beginning:
        return endings
    return [f"{beginning} {ending}" for ending in endings]


def _labels_of(
    table: Table, columns: ChoiceColumns, choices: Sequence[Choices], options: ReadOptions
) -> list[int]:
    """Returns the number of each row's right choice, counted from 0.

    It reports whether the file's labels count from 0 or from 1 if they don't show it themselves.

    Args:
        table: The file, or a chunk of it.
        columns: With the reading of the whole file's labels, if it is known.
        choices: The choices of each row.
        options: Whether the table is the whole file, and the settings of the recipe or run.

    Raises:
        DataError: A label that means no choice.
        WholeFileError: Labels that could count from 0 or from 1.
    """
    name = str(columns.label)
    reading = columns.reading or find_reading(table.columns[name], choices, columns.first)
    numbers = numbers_of_choices(
        table,
        name,
        choices,
        reading,
        keys_are_columns=len(columns.choices) > 1,
        is_whole=options.reads_whole_file,
    )
    if reading.kind == "key" and columns.are_from_one:
        options.listener.say(
            f"{table.source}: the labels in '{name}' count from 1, as the columns of the choices do"
        )
    # For a prediction file the settings do not count: it is known to count from 0.
    has_start = options.settings.first_choice is not None and not _is_prediction_file(table)
    needs_start = reading.kind == "number" and reading.seen_first is None
    if has_start and needs_start:
        _report_first_number(table, columns, reading, options)
    return numbers


def _report_first_number(
    table: Table, columns: ChoiceColumns, reading: LabelReading, options: ReadOptions
) -> None:
    """Reports that labels count as the recipe or the run says, as they don't show it themselves.

    Args:
        table: The file, for messages.
        columns: The columns of the file.
        reading: How the labels are read.
        options: How the file is read. `hints` is not empty if the settings were made for other
            files, such as those that a run was trained on.

    Raises:
        WholeFileError: Labels count from 0 in those other files, and this file's columns of choices
            count from 1.
    """
    name = str(columns.label)
    are_of_other_files = bool(options.hints)
    if are_of_other_files and reading.first == 0 and columns.are_from_one:
        raise WholeFileError(
            f"{table.source}: the labels in '{name}' would count from 0, as those the run was "
            "trained on, and the columns of the choices count from 1; no label is 0",
            remedy="Write letters: A is the first choice.",
        )
    options.listener.say(
        f"{table.source}: the labels in '{name}' count from {reading.first} (data.first_choice)"
    )


def _require_two_choices(
    table: Table, columns: ChoiceColumns, endings: Sequence[Sequence[str]]
) -> None:
    """Refuses a row with fewer than two choices.

    Args:
        table: The file, for messages.
        columns: The columns of the file, for messages.
        endings: The texts of the choices of each row.

    Raises:
        DataError: A row has fewer than two; with file and line.
    """
    for index, row in enumerate(endings):
        if len(row) < 2:
            message = (
                f"{count(len(row), 'choice')} in {', '.join(columns.choices)}, where at least "
                "2 are needed"
            )
            remedy = f"Give each row its choices, or take the row out. {shown_columns(table)}"
            raise DataError(f"{table.where(index)}: {message}", remedy=remedy)


def _compare_counts(table: Table, endings: Sequence[Sequence[str]]) -> None:
    """Refuses rows with more or fewer choices than a column such as `num_choices` says.

    Args:
        table: The file, which may have such a column.
        endings: The texts of the choices of each row.

    Raises:
        DataError: A row has another number of choices; with file and line.
    """
    for name in table.columns:
        if folded(name) not in _COUNTS:
            continue
        for index, (value, row) in enumerate(zip(table.columns[name], endings, strict=True)):
            number = as_number(value)
            is_number = not math.isnan(number)
            if is_number and number != len(row):
                message = (
                    f"{table.where(index)}: {count(len(row), 'choice')}, where '{name}' says "
                    f"{value}"
                )
                raise DataError(message, remedy="Correct the choices of the row, or their number.")


def _is_prediction_file(table: Table) -> bool:
    """Returns whether a file was written by `predict`, which counts choices from 0."""
    return {"context", "choices", "gold", "prediction"} <= table.columns.keys()


def _counts_from_zero(table: Table, columns: ChoiceColumns) -> bool:
    """Returns whether a file is PIQA or COPA, whose labels count from 0, their columns from 1."""
    names = {folded(name) for name in columns.used}
    if {"goal", "sol1", "sol2"} <= names:
        return True
    questions = table.columns.get(columns.beginning or "", ())
    asks_cause = len(questions) > 0 and all(
        question in ("cause", "effect") for question in questions
    )
    return asks_cause and {"premise", "choice1", "choice2"} <= names


def _begins_with_object(source: Source) -> bool:
    """Returns whether a file begins as an object of JSON, whatever its name says.

    RACE's files are called .txt.
    """
    if source == "-":
        return False
    with open_bytes(source) as file:
        return file.read(64).lstrip()[:1] == b"{"
