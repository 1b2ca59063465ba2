"""Texts that are near or far in meaning.

Pairs with a score or a label, pairs and triplets that belong together, and single texts with a
label.

Canonical columns: `text`, `pair`, `negative` (a text that does not belong to the first), `label`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from bertctl.data.columns import FileColumns, columns_named
from bertctl.data.files import input_kind
from bertctl.data.names import LABEL_NAMES, folded
from bertctl.data.negatives import unfolded
from bertctl.data.nested_questions import NestedTable, json_tables
from bertctl.data.read_options import Reading, ReadOptions
from bertctl.data.rows import Rows
from bertctl.data.sources import Source
from bertctl.data.table import Table
from bertctl.data.text_columns import TextColumns, choose_columns, rows_from
from bertctl.data.text_rows import TextReader
from bertctl.errors import DataError

MATCH = "match"
"""Label of a pair that stands in a file without labels: its texts belong together."""

_NEGATIVES = (
    "negative", "hard_negative", "neg", "negative_1", "hard_negative_1", "neg_1", "negative1",
    "text3", "text_c", "sentence3",
)  # fmt: skip


@dataclass(frozen=True)
class SentenceColumns(TextColumns):
    """The file's names of the canonical columns.

    Attributes:
        negative: a text that does not belong to the first one, or None.
    """

    settings_of: ClassVar[Mapping[str, str]] = {
        **TextColumns.settings_of,
        "negative": "negative_column",
    }

    negative: str | None = None


@dataclass(frozen=True)
class SentenceReader(TextReader):
    """Makes rows of texts, pairs, triplets, and of SQuAD's questions with their paragraphs."""

    stratify: bool = False
    columns: tuple[str, ...] = ("text", "pair", "negative", "label")

    def readings(self, source: Source, options: ReadOptions) -> Iterator[Reading]:
        """Yields the rows of a file or of stdin."""
        # JSON may be that of SQuAD: then its questions and their paragraphs are the pairs.
        if input_kind(source, options) == "jsonl":
            return self.table_readings(map(_question_pairs, json_tables(source, options)), options)
        return super().readings(source, options)

    def table_readings(
        self, tables: Iterable[Table], options: ReadOptions, columns: FileColumns | None = None
    ) -> Iterator[Reading]:
        """Yields the rows; rows with several right or wrong texts are unfolded first."""
        is_train = options.split == "train"
        return super().table_readings(
            (unfolded(table, train=is_train) for table in tables), options, columns
        )

    def guess(self, path: Any, options: ReadOptions) -> None:
        """Returns None: pairs may be for several tasks, so the recipe has to say this one."""

    def columns_of(self, table: Table, options: ReadOptions) -> SentenceColumns:
        """Returns which column of a file is which.

        The columns that the recipe names must be in the training file. Rows to score may lack them:
        they may be pairs with scores in a column of another name, where training pairs have no
        label.

        Raises:
            DataError: The training file lacks a column that the recipe names.
            UsageError: A column can't be guessed.
        """
        settings = options.settings
        is_train = options.split == "train"
        if is_train:  # refuse a missing column
            columns_named({"negative": settings.negative_column}, table)
        if is_train and options.label_needed:  # refuse a missing column
            columns_named({"label": settings.label_column}, table)
        elif settings.label_column not in table.columns:
            settings = settings.model_copy(update={"label_column": None})
        negative = _negative_column(table, settings.negative_column)
        without_negative = replace(
            table,
            columns={name: values for name, values in table.columns.items() if name != negative},
        )
        columns = choose_columns(without_negative, settings, label_needed=False)
        is_guessed = settings.label_column is None
        has_label_name = folded(columns.label or "") in LABEL_NAMES
        if columns.pair is not None and is_guessed and not has_label_name:
            # Pairs need no label, and a column that was guessed by its values may be a title.
            columns = replace(columns, label=None)
        return SentenceColumns(**vars(columns), negative=negative)

    def rows_of(
        self, table: Table, columns: TextColumns, options: ReadOptions, *, first_id: int
    ) -> Rows:
        """Returns the rows of a file, with `text` and perhaps `pair`, `label` and `negative`.

        Pairs without a label belong together.

        Raises:
            DataError: single texts without a label, where one is needed.
        """
        rows = rows_from(
            table,
            columns,
            split=options.split,
            first_id=first_id,
        )
        needs_no_label = not options.keep_labels and not options.label_needed
        if rows.has("label") or needs_no_label:
            return rows
        if rows.has("pair"):
            return replace(rows, columns={**rows.columns, "label": [MATCH] * len(rows)})
        if options.label_needed:
            message = (
                f"{table.source} has single texts and no label: which texts are near each other "
                "is not known"
            )
            raise DataError(
                message,
                remedy="Name a second text with `data.pair_column=`, or a label with "
                "`data.label_column=`.",
            )
        return rows


def _negative_column(table: Table, from_recipe: str | None) -> str | None:
    """Returns the column of wrong texts (hard negatives); None if the file has none.

    Args:
        table: The file.
        from_recipe: The column that the recipe names. If the file lacks it, the usual names count.
    """
    if from_recipe in table.columns:
        return from_recipe
    name_in_file = {folded(name): name for name in table.columns}
    for name in _NEGATIVES:
        if name in name_in_file:
            return name_in_file[name]
    return None


def _question_pairs(table: Table) -> Table:
    """Returns SQuAD's questions that have an answer, paired with their paragraphs.

    Another table is returned as it is.
    """
    if not isinstance(table, NestedTable):
        return table
    answers = table.columns.get("answers", [True] * len(table))
    answered = table.select([i for i, answer in enumerate(answers) if answer])
    return Table({name: answered.columns[name] for name in ("question", "context")}, table.source)
