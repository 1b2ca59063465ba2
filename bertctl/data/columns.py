"""What every reader does with a file's columns.

It has their names here and there, ids, and the columns that nobody reads.
"""

import shlex
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from bertctl.config.recipe_sections import DataSection
from bertctl.data.column_contents import are_flags, names_with_values
from bertctl.data.names import SPLIT_NAMES, folded
from bertctl.data.packed_columns import are_different, column_of, is_packed, numbered_ids
from bertctl.data.table import Table
from bertctl.errors import DataError, UsageError
from bertctl.progress import Listener
from bertctl.words import count, hinted, shorten

_SPLITS = 10
"""Values up to which a column such as `split` names parts of the data."""

_TYPED_OUT = 3
"""Columns up to which a remedy shows the option for each."""


@dataclass(frozen=True)
class FileColumns:
    """The file's names of the canonical columns.

    Attributes:
        id: The column with ids, or None.
        settings_of: Canonical name -> field of `DataSection` that names the column.
    """

    settings_of: ClassVar[Mapping[str, str]] = {}

    id: str | None

    @property
    def used(self) -> tuple[str, ...]:
        """Names in the file of all these columns, without that of the ids."""
        names: list[str | None] = []
        for role in self._roles():
            name_or_names = getattr(self, role)
            if isinstance(name_or_names, tuple):  # a column for each choice
                names.extend(name_or_names)
            else:
                names.append(name_or_names)
        return tuple(name for name in names if name is not None)

    def require(self, table: Table, *, optional: Collection[str] = ()) -> None:
        """Refuses a table without one of these columns.

        Raises:
            DataError: The table lacks a column. The message shows its columns.
        """
        for name in (*self.used, self.id):
            if name is not None and name not in table.columns and name not in optional:
                raise absent_column(name, table)

    def names(self) -> dict[str, str]:
        """Returns canonical name -> name in the file; several columns of one role are joined.

        `{"context": "stem", "choices": "choice1, choice2"}`. Roles without a column are left out.
        """
        names: dict[str, str] = {}
        for role in self._roles():
            name_or_names = getattr(self, role)
            if isinstance(name_or_names, tuple):
                names[role] = ", ".join(name_or_names)
            elif name_or_names is not None:
                names[role] = name_or_names
        return names

    def _roles(self) -> list[str]:
        """Returns the canonical names of the columns, without that of ids."""
        return [
            field.name
            for field in fields(self)
            if field.name != "id" and field.metadata.get("is_column", True)
        ]

    def as_settings(self, settings: DataSection, *, header: bool) -> DataSection:
        """Returns the settings with these columns written in, so that the next file is read alike.

        Args:
            settings: Their label column stays if this file has none.
            header: Whether this file has a header; if not, the next one has none either.
        """
        update: dict[str, Any] = {}
        for role, field in self.settings_of.items():
            name_or_names = getattr(self, role)
            if isinstance(name_or_names, tuple):  # settings have lists
                update[field] = list(name_or_names)
            else:
                update[field] = name_or_names
        if not update["label_column"]:
            update["label_column"] = settings.label_column
        update["header"] = settings.header if header else False
        return settings.model_copy(update=update)


def say_guesses(
    table: Table, columns: FileColumns, settings: DataSection, listener: Listener
) -> None:
    """Reports which columns were guessed, and which other columns the file has.

    It reports nothing for subclasses of `Table`, whose formats fix the names of the columns.

    Args:
        table: The file.
        columns: The file's columns, named by the settings or guessed.
        settings: The settings, which may name columns.
        listener: Receives the message.
    """
    choices = ", ".join(settings.choice_columns or ())
    from_settings = (settings.text_column, settings.pair_column, settings.label_column, choices)
    guessed = [
        f"{role} from '{shorten(name)}'"
        for role, name in columns.names().items()
        if name not in from_settings
    ]
    if columns.id not in (None, "id", settings.id_column):
        guessed.append(f"id from '{shorten(str(columns.id))}'")
    if guessed and type(table) is Table:
        unread = [name for name in table.columns if name not in (*columns.used, columns.id)]
        if unread:
            also = f"; also there: {shorten(', '.join(unread), 200)}"
        else:
            also = ""
        listener.say(f"{table.source}: {', '.join(guessed)} (guessed{also})")


def warn_of_splits(table: Table, columns: FileColumns, listener: Listener) -> None:
    """Warns of a column such as `split` that may part training from test rows: all are read."""
    for name in table.columns:
        if folded(name) not in SPLIT_NAMES or name in (*columns.used, columns.id):
            continue
        counts = Counter(str(value) for value in table.columns[name])
        if 2 <= len(counts) <= _SPLITS:
            parts = " and ".join(
                f"{value!r} in {count(number, 'row')}" for value, number in counts.most_common()
            )
            listener.warn(
                f"{table.source}: the column '{name}' has {parts}, and all rows are read. If it "
                "separates training from test rows, write these to files of their own."
            )


def say_blank(
    blank: int, total: int, source: str, listener: Listener, *, noun: str = "texts"
) -> None:
    """Reports blank texts, which are examples like others."""
    if blank:
        listener.say(f"{source}: {blank} of {total} {noun} are blank; they stay in as examples")


def columns_named(
    columns_by_role: Mapping[str, str | None], table: Table, *, optional: str = ""
) -> list[str]:
    """Returns the names of the columns that the settings give, after checking them.

    Args:
        columns_by_role: What a column is for, such as `label` -> its name, or None.
        table: The file as it was read.
        optional: A role whose column the file may lack; empty for no role.

    Raises:
        DataError: The file lacks a column.
        UsageError: One column is named for two roles.
    """
    for role, name in columns_by_role.items():
        if name is not None and name not in table.columns and role != optional:
            raise absent_column(name, table)
    names = [name for name in columns_by_role.values() if name is not None]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(
                f"the column '{name}' is named for two things", remedy=shown_columns(table)
            )
    return names


def other_columns(
    table: Table, used: Collection[str | None], canonical: Collection[str]
) -> dict[str, Sequence[Any]]:
    """Returns the columns that are read as nothing else, by name. Rows keep them.

    What is read has canonical names in `Rows`, whatever the file calls it: `text`, `label` ...

    Args:
        table: The file as it was read.
        used: Names, in the file, of the columns that are read.
        canonical: The canonical names. An unread column that the file calls by one of them is
            renamed: `label` -> `file_label`.
    """
    unread: dict[str, Sequence[Any]] = {}
    for name, values in table.columns.items():
        if name in used:
            continue
        if name in canonical:  # rows have a column of this name already
            unread[beside_canonical(name)] = values
        else:
            unread[name] = values
    return unread


def beside_canonical(name: str) -> str:
    """Returns the name in `Rows` of an unread column that the file calls like a canonical one.

    For example, the labels are read from `rating`. The file's own column `label` is then called
    `file_label`.
    """
    return f"file_{name}"


def ids_of(table: Table, name: str | None, *, first_id: int = 0) -> Sequence[str]:
    """Returns the ids of a table's rows: a column, or without one the numbers from `first_id` on.

    Raises:
        DataError: An id is blank or occurs twice; with file and line.
    """
    if name is None:
        return numbered_ids(len(table), first=first_id)
    remedy = "Leave `data.id_column=` out (data.id_column in a recipe): rows are numbered."
    return distinct_ids(table.columns[name], table.where, remedy=remedy)


def distinct_ids(
    values: Sequence[Any], where: Callable[[int], str], *, remedy: str, reason: str = ""
) -> Sequence[str]:
    """Returns the ids of a column as texts, each of them different.

    Args:
        values: The cells of the column.
        where: Returns the file and line of a row, by its position.
        remedy: What to do about ids that are refused.
        reason: Why repeated ids are refused, as the end of the message's sentence.

    Raises:
        DataError: An id is blank or occurs twice, with file and line.
    """
    # For a large column this needs less memory. `are_different` is False for blank ids, too.
    if is_packed(values) and are_different(values):
        if all(type(value) is str for value in values):
            return values
        return column_of(map(str, values))
    ids = ["" if value is None else str(value) for value in values]
    index_of_id: dict[str, int] = {}
    for index, value in enumerate(ids):
        if value == "":
            raise DataError(f"{where(index)}: the id is blank{reason}", remedy=remedy)
        if value in index_of_id:
            message = f"'{value}' is at {where(index_of_id[value])} already"
            raise DataError(f"{where(index)}: the id {message}{reason}", remedy=remedy)
        index_of_id[value] = index
    return ids


def label_of(
    free: Mapping[str, str], usual: Sequence[str], table: Table, *, needed: bool
) -> str | None:
    """Returns the name of the label column, guessed by usual names; None if no column is clear.

    Args:
        free: Lowercase name -> name of the columns that have no other role.
        usual: Usual names of label columns, in lower case.
        table: The file, for messages.
        needed: Whether to refuse a file in which no column is clear.

    Raises:
        UsageError: No column, or several, could be the label, and one is needed.
    """
    candidates = [free[name] for name in usual if name in free]
    if "label" in free:
        return free["label"]
    if len(candidates) == 1:
        return candidates[0]
    if not needed:
        return None
    flags = [name for name in candidates if are_flags(table.columns[name])]
    advice = shown_columns(table)
    if len(flags) > 1:
        flags_option = label_columns_option(flags)
        advice = f"If each column is a 0/1 flag of one label: {flags_option}. {advice}"
    if len(table.columns) == 1:
        advice += (
            " Are the labels in a file of their own? Join the two: paste TEXTS LABELS > BOTH.tsv"
        )
    raise unclear_column("label", candidates, table.source, more=advice)


def unclear_column(role: str, candidates: Sequence[str], source: str, *, more: str) -> UsageError:
    """Returns the error for a column that can't be guessed; the remedy says what to type.

    Args:
        role: What the column is for, such as `label`.
        candidates: Columns that could be it: several, or none.
        source: Name of the file.
        more: Further advice, at the end of the remedy.
    """
    if candidates:
        message = f"several columns could be the {role}: {', '.join(candidates)}"
    else:
        message = f"no column is known as the {role}"
    if 0 < len(candidates) <= _TYPED_OUT:
        names = candidates
    else:
        names = ["NAME"]
    choices = " or ".join(f"`data.{role}_column={shlex.quote(name)}`" for name in names)
    return UsageError(f"{source}: {message}", remedy=f"Name it: {choices}. {more}")


def label_columns_option(names: Sequence[str]) -> str:
    """Returns what to type for columns that hold 0 or 1 for a label each."""
    return f"`data.label_columns={shlex.quote('[' + ', '.join(names) + ']')}`"


def absent_column(name: str, table: Table) -> DataError:
    """Returns the error for a column that was named and is not there."""
    return DataError(
        hinted(f"{table.source} has no column '{name}'", name, table.columns),
        remedy=shown_columns(table)
        + ("" if table.header else " (No header was found: `data.header=True` says there is.)"),
    )


def shown_columns(table: Table) -> str:
    """Returns the columns of a table, for a remedy; those without names with their first values."""
    return f"Columns there: {shorten(names_with_values(table), 600)}."
