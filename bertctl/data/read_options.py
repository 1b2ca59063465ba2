"""How a file of rows is to be read, and what comes of it.

Options, rows with their columns, and rows that were left out.
"""

from bisect import bisect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypedDict

from bertctl.config.recipe_sections import DataSection
from bertctl.data.label_cells import NO_RULES, LabelRules
from bertctl.data.rows import Rows
from bertctl.data.table import Table
from bertctl.errors import DataError
from bertctl.progress import SILENT, Listener
from bertctl.words import count
from bertctl.writing import write_jsonl

FORM_FIELDS = ("encoding", "delimiter", "header")
"""Fields of `data` that are detected anew in a file that is not the run's own."""
COLUMN_FIELDS = (
    "text_column",
    "pair_column",
    "label_column",
    "label_columns",
    "choice_columns",
    "id_column",
)
"""Fields of `data` that name columns."""
_MOST_MESSAGES = 5  # rows left out that are named one by one

OnBadRecord = Callable[[DataError], None]
"""Receives the error of a record that can't be read. The record is then left out."""


def json_form(fields: str) -> str:
    """Returns what JSON of rows with these fields looks like, for remedies.

    `'"text": "..."'` -> `JSON has one object per line, or is a list of them: {"text": "..."}.`
    """
    return f"JSON has one object per line, or is a list of them: {{{fields}}}."


@dataclass
class SkippedRows:
    """Rows that can't be read and are left out, as they are found.

    Attributes:
        errors: what is wrong with each, with its place.
        unlabelled: file and line of rows that nobody labelled, which are none of a labelled split.
    """

    errors: list[DataError] = field(default_factory=list)
    unlabelled: list[tuple[str, int]] = field(default_factory=list)

    def ids(self, lines: Sequence[int], source: str, *, first_id: int) -> list[str]:
        """Returns the numbers of rows as ids, counting the rows between them that were left out.

        If the row on line 3 was left out, the rows on lines 2 and 4 are 0 and 2. So ids are the
        same whether or not a row is left out.

        Args:
            lines: Where the rows begin, ascending.
            source: Name of the file.
            first_id: Number of the first row.
        """
        lines_left_out = [error.line or 0 for error in self.errors if error.file == source]
        lines_left_out += [line for file, line in self.unlabelled if file == source]
        lines_left_out.sort()
        return [
            str(first_id + position + bisect(lines_left_out, line))
            for position, line in enumerate(lines)
        ]

    def finish(self, output: Path | None, listener: Listener) -> dict[str, Any]:
        """Reports how many rows were skipped, and writes their errors to `OUT.skipped.jsonl`.

        Args:
            output: The file OUT with the answers; None writes no file.
            listener: Receives the report.

        Returns:
            The number of rows and the file, for the answer of a verb; empty if none was skipped.
        """
        if not self.errors:
            return {}
        first_messages = "\n".join(f"  {error.message}" for error in self.errors[:_MOST_MESSAGES])
        if len(self.errors) > _MOST_MESSAGES:
            more = f"\n  ... and {len(self.errors) - _MOST_MESSAGES} more"
        else:
            more = ""
        listener.warn(
            f"{count(len(self.errors), 'row')} left out (`on_error=skip`):\n{first_messages}{more}"
        )
        document: dict[str, Any] = {"skipped": len(self.errors)}
        if output is not None:
            path = output.with_name(f"{output.name}.skipped.jsonl")
            write_jsonl(path, (error.as_json()["error"] for error in self.errors))
            document["skipped_file"] = str(path)
        return document


@dataclass(frozen=True)
class Reading:
    """What a reader made of a file, or of a chunk of one.

    Attributes:
        rows: the split.
        columns: canonical name -> name in the file, as given or guessed.
        settings: the person's settings with the guesses written in, so that the next file is read
            as this one was.
        class_names: names of the labels in the order of their numbers, where the file says them.
        has_ids: Whether the ids are the file's own, and not the numbers of the rows.
    """

    rows: Rows
    columns: Mapping[str, str]
    settings: DataSection
    class_names: tuple[str, ...] = ()
    has_ids: bool = False


@dataclass(frozen=True)
class ReadOptions:
    """How a file is to be read.

    Attributes:
        settings: columns, delimiter, header and encoding, where the user named them.
        split: what the rows are to be called.
        label_needed: whether to refuse rows without labels.
        keep_labels: whether labels are kept even where only texts are needed.
        kind: what the file is; by its suffix where None.
        chunk_rows: rows per chunk; None for the whole file at once.
        listener: receives what is guessed and detected.
        on_bad_record: receives the errors of records that can't be read. Without it, such a record
            refuses the file.
        hints: fields of `settings` whose columns were named for another file, such as the training
            file. They count if this file has such columns.
        skipped: gets rows that are not what the task needs, too; without it they refuse the file.
        form: what JSON of such rows looks like, for remedies.
        labels: what the recipe says of its labels.
    """

    settings: DataSection
    split: str
    label_needed: bool = False
    keep_labels: bool = True
    kind: str | None = None
    chunk_rows: int | None = None
    listener: Listener = SILENT
    on_bad_record: OnBadRecord | None = None
    hints: frozenset[str] = frozenset()
    skipped: SkippedRows | None = None
    form: str = json_form('"text": "...", "label": "..."')
    labels: LabelRules = NO_RULES

    @property
    def reads_whole_file(self) -> bool:
        """Whether the file is read at once, and not in chunks."""
        return self.chunk_rows is None

    def fitting(self, table: Table) -> "ReadOptions":
        """Returns the options without hints whose columns this file has not.

        A hint is a column name for another file, such as the training file.
        """
        absent: dict[str, None] = {}  # fields of the settings that become None
        for hinted_field in self.hints:
            name_or_names = getattr(self.settings, hinted_field) or ()
            if isinstance(name_or_names, str):
                names = {name_or_names}
            else:
                names = set(name_or_names)
            if not names <= table.columns.keys():
                absent[hinted_field] = None
        return replace(self, settings=self.settings.model_copy(update=absent))

    def skipping(self, skipped: SkippedRows | None) -> "ReadOptions":
        """Returns options with which rows that can't be read are left out and go to `skipped`.

        None changes nothing: the first such row is then an error.
        """
        if skipped is None:
            return self
        return replace(self, skipped=skipped, on_bad_record=skipped.errors.append)

    def skipping_bad_records(self) -> "ReadOptions":
        """Returns options whose `skipped`, if it is there, also gets records that can't be parsed.

        A record is a line of JSON or of CSV, before it is a row.
        """
        return self.skipping(self.skipped)


class ReaderOptions(TypedDict, total=False):
    """Options that the callers of `Reader.read` and `Reader.stream` choose. See `ReadOptions`."""

    kind: str | None
    listener: Listener
    hints: frozenset[str]
    skipped: SkippedRows | None
    keep_labels: bool
    labels: LabelRules
