"""Texts and pairs with a label or a score, from CSV, TSV, JSON Lines, Parquet and plain lines."""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass

from bertctl.data.files import input_kind, read_tables
from bertctl.data.groups import group_keys
from bertctl.data.reading import Reader, Reading, ReadOptions
from bertctl.data.rows import Rows
from bertctl.data.table import Table
from bertctl.data.text_columns import TextColumns, choose_columns, rows_from, say_blank
from bertctl.data.text_files import Source


@dataclass(frozen=True)
class TextReader(Reader):
    """Makes rows of texts or pairs."""

    stratify: bool
    columns: tuple[str, ...] = ("text", "pair", "label")
    together: tuple[str, ...] = ("text",)
    streams_labels: bool = True

    def groups(self, rows: Rows) -> list[Hashable]:
        """Returns one key per row; of pairs by the first sentence, or by the second where the first says a kind."""
        keys = group_keys(rows, self.together)
        kind = rows.has("pair") and max(Counter(keys).values(), default=0) > max(10, len(rows) // 10)
        return group_keys(rows, ("pair",)) if kind else keys

    def readings(self, source: Source, options: ReadOptions) -> Iterator[Reading]:
        """Yields the rows of a file or of stdin. A .txt file is plain lines in a stream, else tab-separated."""
        kind = input_kind(source, options.kind)
        if kind == "lines" and options.whole:
            kind = "tsv"
        columns = TextColumns(None, "text") if kind == "lines" else None
        return self._readings(read_tables(source, kind, options), options, columns)

    def table_readings(self, tables: Iterable[Table], options: ReadOptions) -> Iterator[Reading]:
        """Yields the rows of columns that are read already."""
        return self._readings(tables, options, None)

    def _readings(
        self, tables: Iterable[Table], options: ReadOptions, columns: TextColumns | None
    ) -> Iterator[Reading]:
        count = blank = 0
        for table in tables:
            if columns is None:
                columns = choose_columns(
                    table, options.settings, label_needed=options.label_needed, listener=options.listener
                )
            rows, blanks = rows_from(table, columns, split=options.split, first_id=count)
            count += len(rows)
            blank += blanks
            yield Reading(rows, columns.names(), columns.as_settings(options.settings, header=table.header))
            source = table.source
        if blank:
            say_blank(blank, count, source, options.listener)


TEXT_READER = TextReader(stratify=True)
"""Reads texts whose task does not matter."""
