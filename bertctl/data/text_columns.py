"""Which column is which, and a file's columns as `Rows`.

The recipe says it, or it is guessed from the usual names.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, ClassVar

from bertctl.config.recipe_sections import DataSection
from bertctl.data.column_contents import (
    Content,
    are_numbers,
    content_of,
    filled,
    is_class_column,
    is_filled,
    is_mostly_empty,
    is_prose,
)
from bertctl.data.columns import (
    FileColumns,
    columns_named,
    ids_of,
    label_of,
    other_columns,
    shown_columns,
    unclear_column,
)
from bertctl.data.label_cells import NO_RULES, LabelForm, LabelRules, label_cells
from bertctl.data.names import (
    CLASS_NAMES,
    ID_NAMES,
    LABEL_NAMES,
    PAIR_NAMES,
    SCORE_NAMES,
    SPLIT_NAMES,
    TEXT_NAMES,
    folded,
)
from bertctl.data.packed_columns import (
    CodedValues,
    PackedTexts,
    column_of,
    different_values,
    mapped_values,
)
from bertctl.data.rows import Rows, is_missing
from bertctl.data.table import Table
from bertctl.errors import DataError, UsageError
from bertctl.words import nearly_all, number_with_sign, shorten

_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
_DATE = re.compile(r"\s*(\d{4}[-/.]\d\d?[-/.]\d\d?|\d\d?[-/.]\d\d?[-/.]\d{4})([T ].*)?")
_FEW_CLASSES = 20
"""Whole numbers that are classes, whatever their column is called."""


@dataclass(frozen=True)
class TextColumns(FileColumns):
    """The file's names of the canonical columns.

    Attributes:
        text: the text, or the first sentence of a pair.
        pair: the second sentence, or None.
        label: the label or score, or None.
        form: what nearly all cells of the label's column are; None for scores.
    """

    settings_of: ClassVar[Mapping[str, str]] = {
        "text": "text_column",
        "pair": "pair_column",
        "label": "label_column",
    }

    text: str
    pair: str | None = None
    label: str | None = None
    form: LabelForm | None = field(default=None, metadata={"is_column": False})


def choose_columns(table: Table, settings: DataSection, *, label_needed: bool) -> TextColumns:
    """Finds which column of a file is the text, the second text, the label, and the id.

    Args:
        table: the file as it was read.
        settings: the columns that the person named.
        label_needed: whether to refuse a table without a label column.

    Raises:
        DataError: a column that was named is not there (those there are shown).
        UsageError: a column can't be guessed, or one column was named twice.
    """
    columns_by_role = {
        role: getattr(settings, f"{role}_column") for role in ("text", "pair", "label", "id")
    }
    may_lack = "" if label_needed else "label"  # a file to predict on may lack the named label
    used = columns_named(columns_by_role, table, optional=may_lack)
    if settings.label_column in table.columns:
        label = settings.label_column
    else:
        label = None
    text = settings.text_column
    pair = settings.pair_column
    if text is None:
        text, guessed_pair = _guess_text(
            table,
            used,
            pair=pair,
            label=label,
            label_needed=label_needed,
        )
        pair = pair or guessed_pair
    if settings.label_column is None:
        other_roles = [*used, text]
        if pair:
            other_roles.append(pair)
        label = _guess_label(table, other_roles, needed=label_needed)
    return TextColumns(settings.id_column, text, pair, label)


def rows_from(
    table: Table,
    names: TextColumns,
    *,
    split: str,
    first_id: int = 0,
    rules: LabelRules = NO_RULES,
    lenient: bool = True,
) -> Rows:
    """Returns the rows of a file, with the columns `text` and perhaps `pair` and `label`.

    Args:
        table: The file as it was read.
        names: Which column is which.
        split: What the rows are to be called.
        first_id: Number of the first row, where there is no id column.
        rules: What the recipe says of its labels.
        lenient: Whether labels that can't be read stay as they are in the file, as nobody learns or
            scores them.

    Raises:
        DataError: A column is missing, a text is no text, a label can't be read, an id is missing
            or stands twice.
    """
    names.require(table)
    columns = {
        role: texts_of(table, name) for role, name in names.names().items() if role != "label"
    }
    if names.label is not None:
        columns["label"] = _labels_of(table, names, rules, lenient=lenient)
    columns |= other_columns(table, names.used, ("text", "pair", "label"))
    return Rows(
        split,
        columns=columns,
        ids=ids_of(table, names.id, first_id=first_id),
        source=table.source,
        lines=table.lines,
    )


def _labels_of(
    table: Table, names: TextColumns, rules: LabelRules, *, lenient: bool
) -> Sequence[Any]:
    """Returns the labels of a column, or its scores without blanks around them.

    Args:
        table: The file.
        names: Which column is which. Its `form` says what the label cells are, such as lists of
            names; None stands for scores.
        rules: What the recipe says of its labels.
        lenient: Whether a label that can't be read stays as the file has it.

    Raises:
        DataError: A label can't be read.
    """
    values = table.columns[names.label or ""]
    if names.form is None:
        return mapped_values(values, _stripped)
    labels = label_cells(values, names.form, rules, table.where)
    if isinstance(labels, CodedValues):  # none of them is an error
        return labels
    if lenient:
        return [
            value if isinstance(label, DataError) else label
            for value, label in zip(values, labels, strict=True)
        ]
    for label in labels:
        if isinstance(label, DataError):
            raise label
    return labels


def _stripped(value: Any) -> Any:
    """Returns a text without blanks around it, and anything else as it is."""
    if isinstance(value, str):
        return value.strip()
    return value


def texts_of(table: Table, name: str) -> Sequence[str]:
    """Returns a column as texts: numbers are their digits, None is blank.

    Raises:
        DataError: something that is no text, with file and line.
    """
    values = table.columns[name]
    if isinstance(values, PackedTexts) and not values.has_nulls:
        return values
    if any(type(value) is not str for value in different_values(values)):
        values = column_of(_text(value, name, index, table) for index, value in enumerate(values))
    return values


def _text(value: Any, name: str, index: int, table: Table) -> str:
    """Returns a cell as a text; None is a blank one, a number is its digits.

    Args:
        value: The cell.
        name: Name of its column.
        index: Number of its row in the table.
        table: The file.

    Raises:
        DataError: It is something else, such as a list.
    """
    if isinstance(value, str):
        return value
    if is_missing(value):
        return ""
    if isinstance(value, (int, float)):
        return str(value)
    message = (
        f"{table.where(index)}: column '{name}' holds {type(value).__name__} where a text is "
        f"needed: {value!r:.80}"
    )
    raise DataError(
        message,
        remedy=f"Name the column with the texts with `data.text_column=`. {shown_columns(table)}",
    )


def _guess_text(
    table: Table, used: Sequence[str], *, pair: str | None, label: str | None, label_needed: bool
) -> tuple[str, str | None]:
    """Returns the text column, and the second text's column if both have the names of a pair.

    In a file with a header, the first rule that fits counts:

    1. Two columns have the names of a pair (`premise`, `hypothesis`), and no other column has a
       usual name of a text.
    2. No columns have the names of a pair, and a column is called `text`.
    3. No columns have the names of a pair, and one column alone could be the text: by its usual
       name, because there is no other column, or because no other column holds texts.

    Args:
        table: The file.
        used: Columns that were named for something.
        pair: The column of the second text, if it was named.
        label: The column of the label, if it was named.
        label_needed: Whether the file must have a label.

    Raises:
        UsageError: No column could be the text, or several could.
    """
    free = {folded(name): name for name in table.columns if name not in used}
    if not table.header:
        return _guess_headerless(table, list(free.values()), label)
    pairs = _usual_pairs(free, pair)
    in_pairs = list(chain.from_iterable(pairs))
    usual_names = [free[name] for name in TEXT_NAMES if name in free]
    singles = [name for name in usual_names if name not in in_pairs]  # may be the text alone
    unknown = [name for key, name in free.items() if key not in (*LABEL_NAMES, *ID_NAMES)]
    if len(pairs) == 1 and not singles:
        text, second = pairs[0]
        # A file with only `question,answer` may have classes as answers: then they are the label.
        has_no_other_columns = len(free) == 2 and len(unknown) == 2
        may_be_label = label_needed and label is None and has_no_other_columns
        if may_be_label and content_of(table.columns[second]) == "class":
            return text, None
        return text, second
    if not pairs:
        if "text" in free:
            return free["text"], None
        if not singles and len(unknown) == 1:
            singles = unknown
        elif not singles:
            singles = texts_in(table, unknown)
        if len(singles) == 1:
            return singles[0], None
    candidates = list(dict.fromkeys([*in_pairs, *singles]))
    more = f"A second sentence: `data.pair_column=NAME`. {shown_columns(table)}"
    raise unclear_column("text", candidates, table.source, more=more)


def _usual_pairs(free: Mapping[str, str], pair: str | None) -> list[tuple[str, str]]:
    """Returns pairs of columns with the names of two texts, such as `premise` and `hypothesis`.

    Args:
        free: Lowercase name -> name of the columns that were not named.
        pair: The column of the second text, if it was named.
    """
    if pair is None:
        return [(free[a], free[b]) for a, b in PAIR_NAMES if a in free and b in free]
    return [(free[a], pair) for a, b in PAIR_NAMES if b == folded(pair) and a in free]


def texts_in(table: Table, names: Sequence[str]) -> list[str]:
    """Returns the columns that hold texts.

    A column that is hardly filled counts only if no other column holds texts.
    """
    texts = [name for name in names if content_of(table.columns[name]) == "text"]
    filled_texts = [name for name in texts if not is_mostly_empty(table.columns[name])]
    return filled_texts or texts


def _guess_headerless(
    table: Table, free: Sequence[str], label: str | None
) -> tuple[str, str | None]:
    """Returns the text column of a file without a header, and that of the second text, or None.

    A single column is the text. Of two columns, it is the one with more different values. Of more
    columns, one that holds texts is the text; two that hold texts are the text and the second text.

    Args:
        table: The file.
        free: Its columns that were not named.
        label: The column of the label, if it was named.

    Raises:
        UsageError: No column, or more than one, could be the text.
    """
    if len(free) == 1:
        return free[0], None
    if len(free) == 2 and label is None:
        n_different = {name: len(set(table.columns[name])) for name in free}
        few, many = sorted(free, key=n_different.__getitem__)  # fewer different values first
        has_fewer = n_different[few] < n_different[many]
        values_recur = n_different[few] <= len(table) // 2
        if has_fewer or values_recur:  # so `few` looks like a label
            return many, None
    texts = texts_in(table, free)
    has_other_columns = len(texts) < len(free)
    if has_other_columns and len(texts) == 1:
        return texts[0], None
    if has_other_columns and len(texts) == 2:
        return texts[0], texts[1]
    raise UsageError(
        f"{table.source}: it has no header, and which of its {len(table.columns)} columns is the "
        "text can't be seen",
        remedy="Name them: `data.text_column=column1` `data.label_column=column2`, as the numbers "
        f"are; if the first line is a header, add `data.header=True`. {shown_columns(table)}",
    )


def _guess_label(table: Table, used: Sequence[str], *, needed: bool) -> str | None:
    """Returns the label column: by its usual name, or, if a label is needed, by its values.

    In a file without a header, the label is the one column that is not used, if there is only one.

    Args:
        table: The file.
        used: Columns that are read as something else.
        needed: Whether a file without a label is refused.

    Raises:
        UsageError: A label is needed, and no column or several could be it.
    """
    free = {folded(name): name for name in table.columns if name not in used}
    usual: Sequence[str] = ()
    if table.header:
        usual = LABEL_NAMES
    elif len(free) == 1:
        usual = tuple(free)
    # Where no label is needed, a column without a usual name is not taken for it.
    if needed and not free.keys() & set(usual):
        usual = _label_candidates(table, free)
    return label_of(free, usual, table, needed=needed)


def _label_candidates(table: Table, free: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the columns that may be the label, judged by their values.

    Columns of a few words that recur in nearly all rows win over numbers, which may as well count
    or measure something. Among them, columns without blanks win.

    Args:
        table: First rows of the file.
        free: Columns that nothing else is read from, as name in lower case -> name.

    Returns:
        The lower-case names.
    """
    candidates = {
        key: table.columns[name]
        for key, name in free.items()
        if key not in (*ID_NAMES, *SPLIT_NAMES) and not is_mostly_empty(table.columns[name])
    }
    of_words = [key for key, values in candidates.items() if is_class_column(values)]
    if not of_words:
        return tuple(
            key for key, values in candidates.items() if content_of(values) in ("class", "score")
        )
    without_blanks = [key for key in of_words if is_filled(candidates[key])]
    return tuple(without_blanks or of_words)


def refuse_other_texts(rows: Rows, columns: Mapping[str, str], settings: DataSection) -> None:
    """Refuses a file with a second column of prose, as its task may need both columns.

    A text column that is called `text`, or was named, is not doubted.

    Args:
        rows: The file's first rows.
        columns: Canonical name -> name in the file.
        settings: Columns that the user named.

    Raises:
        UsageError: With both columns.
    """
    text = columns["text"]
    if settings.text_column or "pair" in columns or folded(text) == "text":
        return
    other_texts = []
    for name, values in rows.columns.items():
        has_role = name in columns or folded(name) in (*ID_NAMES, *LABEL_NAMES)
        if not has_role and is_prose(values) and not is_mostly_empty(values):
            other_texts.append(name)
    if other_texts:
        pair_options = (
            f"As a pair: `data.text_column={shlex.quote(text)}` "
            f"`data.pair_column={shlex.quote(other_texts[0])}`."
        )
        raise unclear_column("text", [text, *other_texts], rows.source, more=pair_options)


def label_kind(labels: Sequence[Any], name: str, source: str) -> Content:
    """Returns whether labels are classes (`class`) or scores (`score`).

    Args:
        labels: Labels of the file's first rows.
        name: Name of their column.
        source: Name of the file.

    Raises:
        UsageError: They could be either, or are neither.
    """
    non_empty = filled(labels)
    kind = content_of(labels)
    different = {str(label) for label in non_empty}
    if kind == "score":
        return kind
    _refuse_signed_numbers(non_empty, name, source)
    _refuse_dates(non_empty, name, source)
    if len(different) > _FEW_CLASSES and all(map(_DECIMAL_COMMA.fullmatch, map(str, non_empty))):
        remedy = (
            "Write them with a point, as in 1.90. If they are classes, name the task: "
            "text-classification."
        )
        raise UsageError(
            f"{source}: '{name}' holds numbers with a decimal comma, such as {non_empty[0]}",
            remedy=remedy,
        )
    has_class_name = kind == "class" and folded(name) in CLASS_NAMES
    are_few = len(different) <= _FEW_CLASSES or has_class_name
    # Numbers such as 3.0 may be scores.
    have_points = any(isinstance(label, float) or "." in str(label) for label in non_empty)
    can_be_classes = not are_numbers(non_empty) or (are_few and not have_points)
    if can_be_classes and not is_prose(non_empty):
        return "class"
    raise UsageError(
        f"{source}: whether '{name}' holds classes or scores can't be seen: {len(different)} "
        "different values, such as "
        f"{', '.join(shorten(value) for value in non_empty[:2])}",
        remedy="Name the task, or another column: `data.label_column=NAME`.",
    )


def _refuse_dates(labels: Sequence[Any], name: str, source: str) -> None:
    """Refuses dates and times, which are neither scores nor classes until someone says so.

    Raises:
        UsageError: nearly all labels are dates.
    """
    dates = [str(label) for label in labels if _DATE.fullmatch(str(label))]
    if dates and nearly_all(len(dates), len(labels)):
        raise UsageError(
            f"{source}: '{name}' holds dates, such as {dates[0].strip()}",
            remedy="Name another column: `data.label_column=NAME`. To learn scores write numbers, "
            "such as days since a first day. If they are classes, name the task: "
            "text-classification.",
        )


def _refuse_signed_numbers(labels: Sequence[Any], name: str, source: str) -> None:
    """Refuses scores that are written with a sign or a unit, such as `85.5%` and `$3.50`.

    Raises:
        UsageError: nearly all are, and they can hardly be classes.
    """
    signed = [str(label) for label in labels if number_with_sign(str(label)) is not None]
    if not signed or not nearly_all(len(signed), len(labels)):
        return
    has_decimals = any("." in label for label in signed)
    if has_decimals or len(set(signed)) > _FEW_CLASSES or folded(name) in SCORE_NAMES:
        raise UsageError(
            f"{source}: '{name}' holds numbers with a sign or a unit, such as {signed[0].strip()}",
            remedy=f"To learn scores write plain numbers, such as {number_with_sign(signed[0])}. "
            "If they are classes, name the task: text-classification.",
        )
