"""Texts and pairs with a label or a score, from CSV, TSV, JSON Lines, Parquet and plain lines."""

import itertools
import shlex
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from bertctl.config.recipe_sections import DataSection
from bertctl.data.annotations import label_studio
from bertctl.data.annotations.prodigy import with_chosen_options
from bertctl.data.column_contents import are_flags, is_class_column
from bertctl.data.columns import FileColumns, absent_column, label_columns_option, shown_columns
from bertctl.data.files import input_kind, read_tables
from bertctl.data.groups import group_keys, size_of_largest
from bertctl.data.label_cells import FLAGS, label_form
from bertctl.data.names import ID_NAMES, LABEL_NAMES, SPLIT_NAMES, TEXT_NAMES, folded
from bertctl.data.read_options import Reading, ReadOptions
from bertctl.data.reading import Reader
from bertctl.data.rows import Rows
from bertctl.data.sources import MemoryFile, Source
from bertctl.data.table import Table, require_label, require_score
from bertctl.data.text_columns import (
    TextColumns,
    choose_columns,
    label_kind,
    refuse_other_texts,
    rows_from,
)
from bertctl.errors import DataError, UsageError

_ABOUT_ROWS = ("is_", "has_", "was_", "verified")
"""How names of 0/1 columns begin that may say something of the row, beside columns of labels."""
_FORMS_WITH_SEVERAL_LABELS = frozenset({"lists", "vectors"})
_TABLE_FIELDS = frozenset({"text_column", "pair_column", "delimiter", "header"})
"""Fields of `data` that describe a table, so that a file for which they are set is one."""


@dataclass(frozen=True)
class TextReader(Reader):
    """Makes rows of texts or pairs.

    Attributes:
        stratify: True where labels are classes, False where they are scores.
    """

    stratify: bool
    columns: tuple[str, ...] = ("text", "pair", "label")
    together: tuple[str, ...] = ("text",)
    streams_labels: bool = True
    nouns: tuple[tuple[str, str], ...] = (("text", "texts"), ("pair", "second texts"))

    @property
    def reads_classes(self) -> bool:
        """Whether labels are classes. Otherwise they are scores, of which no shares can be kept."""
        return self.stratify

    def groups(self, rows: Rows) -> Sequence[Hashable]:
        """Returns one key per row, the same for rows that belong together: those with equal texts.

        Pairs with the same first text belong together. But if more than a tenth of the rows have
        the same first text, it is an instruction or the kind of the text, and the second texts
        count.
        """
        keys = group_keys(rows, self.together)
        first_text_is_kind = rows.has("pair") and size_of_largest(keys) > max(10, len(rows) // 10)
        if first_text_is_kind:
            return group_keys(rows, ("pair",))
        return keys

    def readings(self, source: Source, options: ReadOptions) -> Iterator[Reading]:
        """Yields the rows of a file or of stdin.

        A .txt file that is read to predict has a text on each line, unless the settings describe a
        table. A .txt file that is read as a whole, or for its labels, is a table.
        """
        kind = input_kind(source, options)
        # Hints were named for another file, such as the training file.
        fields_of_this_file = _TABLE_FIELDS - options.hints
        names_columns = any(
            getattr(options.settings, field) is not None for field in fields_of_this_file
        )
        is_table = options.reads_whole_file or options.label_needed or names_columns
        if kind == "lines" and is_table:
            kind = "tsv"
        if kind == "lines":
            columns = TextColumns(id=None, text="text")
        else:
            columns = None
        return self.table_readings(read_tables(source, kind, options), options, columns)

    def guess(self, path: Path | MemoryFile, options: ReadOptions) -> Reading | None:
        """Returns the first rows of a file if its labels fit this reader, else None.

        Raises:
            UsageError: The file has several texts, or labels that could be classes or scores.
        """
        reading = super().guess(path, options)
        if reading is None:
            return None
        labels = reading.rows.columns["label"]
        items = chain.from_iterable(label for label in labels if isinstance(label, list))
        have_spans = any(isinstance(item, list | dict) for item in items)
        if have_spans:  # the file is for token classification
            return None
        refuse_other_texts(reading.rows, reading.columns, options.settings)
        kind = label_kind(labels, reading.columns["label"], reading.rows.source)
        has_classes = kind == "class"
        if has_classes == self.reads_classes:
            return reading
        return None

    def table_readings(
        self, tables: Iterable[Table], options: ReadOptions, columns: FileColumns | None = None
    ) -> Iterator[Reading]:
        """Yields the rows of tables, the chunks of one file.

        Columns that have 0 or 1 for one label each (flags) become one label column with lists of
        labels. The first chunk decides whether the file has flags.

        Args:
            tables: The chunks.
            options: How the file is read.
            columns: Which column is which, if that is known: then the file is running text, which
                has no flags.
        """
        annotated = (_as_annotated(table, options) for table in tables)
        first_tables = list(itertools.islice(annotated, 1))
        if first_tables and columns is None:
            flag_names = _flag_columns(first_tables[0], options)
        else:
            flag_names = []
        all_tables = itertools.chain(first_tables, annotated)
        if not flag_names:
            yield from super().table_readings(all_tables, options, columns)
            return

        with_label_lists = (
            _with_label_lists(table, flag_names, lenient=not options.reads_whole_file)
            for table in all_tables
        )
        settings = options.settings.model_copy(update={"label_column": ", ".join(flag_names)})
        for reading in super().table_readings(
            with_label_lists, replace(options, settings=settings)
        ):
            # The column of lists exists in no file. The settings that read further files of the
            # split, and the names of the file's columns, have the flags instead.
            settings_read = reading.settings.model_copy(
                update={"label_column": None, "label_columns": flag_names}
            )
            file_names = {
                role: name for role, name in reading.rows.file_names.items() if role != "label"
            }
            yield replace(
                reading, rows=replace(reading.rows, file_names=file_names), settings=settings_read
            )

    def columns_of(self, table: Table, options: ReadOptions) -> TextColumns:
        """Returns which column of a file is which, and what nearly all cells of its labels are."""
        columns = choose_columns(table, options.settings, label_needed=options.label_needed)
        if columns.label is None or not self.reads_classes:  # a score is always a number
            return columns
        form = label_form(table.columns[columns.label], options.labels, is_typed=table.is_typed)
        return replace(columns, form=form)

    def rows_of(
        self, table: Table, columns: TextColumns, options: ReadOptions, *, first_id: int
    ) -> Rows:
        """Returns the rows of a file, with the columns `text` and perhaps `pair` and `label`.

        Raises:
            DataError: The file is read whole, and a label can't be read. If rows can be skipped,
                missing labels and labels that are no scores are refused here, too.
        """
        rows = rows_from(
            table,
            columns,
            split=options.split,
            first_id=first_id,
            rules=options.labels,
            lenient=not options.reads_whole_file,
        )
        are_labels_used = options.reads_whole_file and options.label_needed and rows.has("label")
        if options.skipped is not None and are_labels_used:
            self._refuse_unusable_labels(rows, columns, options)
        return rows

    def _refuse_unusable_labels(
        self, rows: Rows, columns: TextColumns, options: ReadOptions
    ) -> None:
        """Refuses a missing label, or one that is no score where scores are needed.

        The task would refuse the whole file for it; refused here, the row can be skipped.

        Raises:
            DataError: With file and line.
        """
        has_form_of_several = (
            columns.form is not None and columns.form.kind in _FORMS_WITH_SEVERAL_LABELS
        )
        # A row that can have several labels can have none.
        may_be_blank = options.labels.several or options.labels.separator or has_form_of_several
        for index in range(len(rows)):
            if not self.reads_classes:
                require_score(rows, index)
            elif not may_be_blank:
                require_label(rows, index)


def _as_annotated(table: Table, options: ReadOptions) -> Table:
    """Returns a table of Prodigy or Label Studio with the options that annotators chose as labels.

    Other tables stay as they are.
    """
    of_prodigy = with_chosen_options(table, options.settings.label_column)
    return label_studio.with_listed_choices(of_prodigy)


def _flag_columns(table: Table, options: ReadOptions) -> list[str]:
    """Returns the columns that have 0 or 1 for one label each; [] if the file has no such columns.

    They are named by `data.label_columns`. Otherwise they are guessed if the file needs labels and
    no column has the usual name of a label; the listener receives the guess.

    Args:
        table: The file's first rows.
        options: How it is read.

    Raises:
        DataError: A column that was named does not exist.
        UsageError: Another column could be the label as well.
    """
    settings = options.settings
    flag_names = settings.label_columns or []
    missing = [name for name in flag_names if name not in table.columns]
    # A hint was named for another file, such as the training file, so this file may lack it.
    is_hint = "label_columns" in options.hints
    if missing and options.label_needed and not is_hint:
        raise absent_column(missing[0], table)
    if missing:
        return []
    if flag_names:
        return flag_names
    if not options.label_needed or settings.label_column or not table.header:
        return []
    if any(folded(name) in LABEL_NAMES for name in table.columns):
        return []
    flags = _guess_flags(table, settings)
    if flags:
        options.listener.say(
            f"{table.source}: labels from {', '.join(flags)}, 0 or 1 in each (guessed)"
        )
    return flags


def _guess_flags(table: Table, settings: DataSection) -> list[str]:
    """Returns the columns of nothing but 0 and 1, if there are two or more; else [].

    Args:
        table: The file's first rows.
        settings: The columns of the texts, if they were named.

    Raises:
        UsageError: Another column has classes, or some of these columns may not be labels.
    """
    free = {
        name: values
        for name, values in table.columns.items()
        if folded(name) not in (*ID_NAMES, *SPLIT_NAMES)
    }
    flags = [name for name, values in free.items() if are_flags(values)]
    if len(flags) < 2:
        return []
    classes = []
    for name, values in free.items():
        named_as_text = name in (settings.text_column, settings.pair_column)
        has_role = named_as_text or folded(name) in TEXT_NAMES or name in flags
        if not has_role and is_class_column(values):
            classes.append(name)
    if classes:
        raise UsageError(
            f"{table.source}: the label could be '{classes[0]}', or {', '.join(flags)} with 0 or 1 "
            "for each label",
            remedy=f"Name it: `data.label_column={shlex.quote(classes[0])}`, or "
            f"{label_columns_option(flags)}. {shown_columns(table)}",
        )
    about_rows = [name for name in flags if folded(name).startswith(_ABOUT_ROWS)]
    labels = [name for name in flags if name not in about_rows]
    if about_rows and labels:
        raise UsageError(
            f"{table.source}: {', '.join(flags)} hold 0 or 1. Not all may be labels: "
            f"{', '.join(about_rows)}",
            remedy=f"Name the labels: {label_columns_option(labels)}, or "
            f"{label_columns_option(flags)}.",
        )
    return flags


def _with_label_lists(table: Table, names: Sequence[str], *, lenient: bool) -> Table:
    """Returns a table with a list of labels in place of a column of 0 and 1 for each label.

    `a,b,c` with `1,0,1` -> `["a", "c"]`.

    Args:
        table: The file, or a chunk of it.
        names: Its columns with 0 and 1. Joined by commas, they are the name of the new column.
        lenient: Whether a row with something else becomes None, since nobody learns or scores its
            labels. Otherwise it becomes the error, which is raised or skipped with the row.
    """
    labels: list[Any] = [[] for _ in range(len(table))]
    for name in names:
        for index, value in enumerate(table.columns[name]):
            if isinstance(labels[index], DataError):  # by an earlier column
                continue
            flag = FLAGS.get(str(value).strip())
            if flag is None:
                labels[index] = DataError(
                    f"{table.where(index)}: column '{name}' holds '{value!s:.40}' where 0 or 1 is "
                    "needed",
                    remedy="Each column of data.label_columns is a 0/1 flag of its label. "
                    "Correct it or name others.",
                )
            elif flag:
                labels[index].append(name)
    if lenient:
        labels = [None if isinstance(label, DataError) else label for label in labels]
    unchanged = {name: values for name, values in table.columns.items() if name not in names}
    return replace(table, columns={**unchanged, ", ".join(names): labels})


TEXT_READER = TextReader(stratify=True)
"""Reads texts whose task does not matter."""
