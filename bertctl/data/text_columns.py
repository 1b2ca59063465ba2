"""Which column is which: as the recipe says, or guessed from the usual names; then a file's columns as `Rows`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from bertctl.config.recipe_sections import DataSection
from bertctl.data.columns import FileColumns, columns_named, ids_of, label_of, other_columns, say_guesses, shown_columns
from bertctl.data.names import ID_NAMES, LABEL_NAMES, PAIR_NAMES, TEXT_NAMES, folded
from bertctl.data.rows import Rows
from bertctl.data.table import Table
from bertctl.errors import DataError, UsageError
from bertctl.progress import Listener


@dataclass(frozen=True)
class TextColumns(FileColumns):
    """The file's names of the canonical columns.

    Attributes:
        text: the text, or the first sentence of a pair.
        pair: the second sentence, or None.
        label: the label or score, or None.
    """

    settings_of: ClassVar[Mapping[str, str]] = {"text": "text_column", "pair": "pair_column", "label": "label_column"}

    text: str
    pair: str | None = None
    label: str | None = None


def choose_columns(table: Table, settings: DataSection, *, label_needed: bool, listener: Listener) -> TextColumns:
    """Finds the canonical columns; what was guessed is told.

    Args:
        table: the file as it was read.
        settings: the columns that the person named.
        label_needed: whether to refuse a table without a label column.
        listener: told of guesses.

    Raises:
        DataError: a column that was named is not there (those there are shown).
        UsageError: a column can't be guessed, or one column was named twice.
    """
    given = {
        "text": settings.text_column,
        "pair": settings.pair_column,
        "label": settings.label_column,
        "id": settings.id_column,
    }
    taken = columns_named(given, table, optional="" if label_needed else "label")
    label = settings.label_column if settings.label_column in table.columns else None
    text, pair = settings.text_column, settings.pair_column
    guessed: list[str] = []
    if text is None:
        text, partner = _guess_text(table, taken, pair=pair, label=label, header=table.header)
        guessed.append(f"text from '{text}'")
        if pair is None and partner is not None:
            pair = partner
            guessed.append(f"pair from '{pair}'")
    if label is None and settings.label_column is None:
        label = _guess_label(table, [*taken, text, *([pair] if pair else [])], needed=label_needed)
        if label is not None:
            guessed.append(f"label from '{label}'")
    say_guesses(table, guessed, (text, pair, label), listener)
    return TextColumns(settings.id_column, text, pair, label)


def rows_from(table: Table, names: TextColumns, *, split: str, first_id: int = 0) -> Rows:
    """Returns a file's columns under their canonical names.

    Args:
        table: the file as it was read.
        names: which column is which.
        split: what the rows are to be called.
        first_id: number of the first row, where there is no id column.

    Raises:
        DataError: a column is missing, a text is no text, an id is missing or stands twice.
    """
    names.require(table)
    columns = {
        canonical: table.columns[name] if canonical == "label" else texts_of(table, name)
        for canonical, name in names.names().items()
    }
    columns |= other_columns(table, names.used, ("text", "pair", "label"))
    return Rows(split, columns, ids_of(table, names.id, first_id=first_id), table.source, table.lines)


def texts_of(table: Table, name: str) -> Sequence[str]:
    """Returns a column as texts: numbers are their digits, None is blank.

    Raises:
        DataError: something that is no text, with file and line.
    """
    values = table.columns[name]
    if any(type(value) is not str for value in values):
        values = [_text(value, name, index, table) for index, value in enumerate(values)]
    return values


def _text(value: Any, name: str, index: int, table: Table) -> str:
    """Returns a text; None is a blank one, a number is its digits."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, (int, float)):
        return str(value)
    raise DataError(
        f"{table.where(index)}: column '{name}' holds {type(value).__name__} where a text is needed: {value!r:.80}",
        remedy=f"Name the column with the texts with --text-column. {shown_columns(table)}",
    )


def _guess_text(
    table: Table, taken: Sequence[str], *, pair: str | None, label: str | None, header: bool
) -> tuple[str, str | None]:
    """Returns the text column, and its partner where both have the names of a pair."""
    free = {folded(name): name for name in table.columns if name not in taken}
    if not header:
        return _guess_headerless(table, list(free.values()), label), None
    pairs = [(free[a], free[b]) for a, b in PAIR_NAMES if a in free and b in free]
    if pair is not None:
        pairs = [(free[a], pair) for a, b in PAIR_NAMES if b == folded(pair) and a in free]
    of_pairs = {name for found in pairs for name in found}
    singles = [free[name] for name in TEXT_NAMES if name in free and free[name] not in of_pairs]
    if len(pairs) == 1 and not singles:
        return pairs[0]
    if not pairs and "text" in free:
        return free["text"], None
    if not pairs and len(singles) == 1:
        return singles[0], None
    if not pairs and not singles:
        rest = [name for key, name in free.items() if key not in (*LABEL_NAMES, *ID_NAMES)]
        if len(rest) == 1:
            return rest[0], None
        what = "no column has one of the usual names for a text"
    else:
        candidates = ", ".join(dict.fromkeys([*(name for found in pairs for name in found), *singles]))
        what = f"several columns could be the text: {candidates}"
    raise UsageError(
        f"{table.source}: {what}",
        remedy=f"Name it: --text-column NAME (and --pair-column NAME for a second sentence). {shown_columns(table)}",
    )


def _guess_headerless(table: Table, free: Sequence[str], label: str | None) -> str:
    """Returns the text of two columns without names, the one with more different values; alone, it is the text."""
    if len(free) == 1:
        return free[0]
    if len(free) == 2 and label is None:
        kinds = {name: len(set(table.columns[name])) for name in free}
        few, many = sorted(free, key=lambda name: kinds[name])
        if kinds[few] < kinds[many] or kinds[few] <= len(table) // 2:
            return many
    raise UsageError(
        f"{table.source}: it has no header, and which of its {len(table.columns)} columns is the text can't be seen",
        remedy="Name them: --text-column column1 --label-column column2, as the numbers are; "
        "if the first line is a header, add --header.",
    )


def _guess_label(table: Table, taken: Sequence[str], *, needed: bool) -> str | None:
    free = {folded(name): name for name in table.columns if name not in taken}
    usual = LABEL_NAMES if table.header else tuple(free) if len(free) == 1 else ()
    return label_of(free, usual, table, needed=needed)
