"""What the cells of a label column say.

They hold a name, several names, a vector of 0 and 1, or nothing that can be named.

A column is what nearly all of its cells are (`label_form`). A cell that is something else is
refused by its line (`label_cells`), with what to type.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

from bertctl.data.groups import normalised
from bertctl.data.packed_columns import CodedValues
from bertctl.data.rows import is_missing
from bertctl.data.unlabelled import NoLabel, UnusableLabel
from bertctl.data.written_values import written_structure
from bertctl.errors import DataError
from bertctl.words import as_number, count, listing, nearly_all, shorten

FLAGS: Mapping[str, int] = {
    **dict.fromkeys(("0", "0.0", "0.", "False", "false"), 0),
    **dict.fromkeys(("1", "1.0", "1.", "True", "true"), 1),
}
"""Written values that say whether one label holds."""

NO_LABEL = -1
"""What the library `datasets` writes for a row without a label."""

_BETWEEN_FLAGS = re.compile(r"[\s,;|/]+")
_DIGITS = re.compile(r"[+-]?\d+")
_DIGITS_OF_FLAGS = re.compile(r"[01]{2,}")

_SEPARATORS = "|;,/"
_WORDS_FOR_NOTHING = ("none", "null", "n/a", "na", "<na>", "nat")

_NAME_THE_LABELS = "`text_classification.labels='[...]'`"


@dataclass(frozen=True)
class LabelRules:
    """What a recipe says of its labels, as far as it decides how their cells are read.

    Attributes:
        names: Label names, in the order of the positions of a 0/1 vector. Empty if nobody named
            them.
        separator: Character between several labels in one cell.
        several: Whether the recipe says that a row can have several labels, or none.
        can_name: Whether the caller can still name the labels (`finetune`), or a trained model has
            named them.
    """

    names: tuple[str, ...] = ()
    separator: str | None = None
    several: bool = False
    can_name: bool = True


NO_RULES = LabelRules()
"""What is known of labels where no recipe says anything."""


@dataclass(frozen=True)
class LabelForm:
    """What nearly all cells of a label column are.

    Attributes:
        kind: `lists` of names, `vectors` of 0 and 1, single `words`, single `numbers`,
            `booleans`, written as words or not, or `any` of lists and names.
        width: Length of the vectors; 0 for other kinds.
        has_unlabelled: Whether -1 stands for no label.
    """

    kind: Literal["any", "words", "numbers", "booleans", "lists", "vectors"]
    width: int = 0
    has_unlabelled: bool = False


ANY_FORM = LabelForm("any")


@dataclass(frozen=True)
class _Unreadable:
    """A cell whose structure is not understood.

    Attributes:
        message: What it is.
        remedy: What to type.
    """

    message: str
    remedy: str


def label_name(label: object) -> str:
    """Returns the name that a label is known by.

    It is `true` for JSON's value and 3 for 3.0, as pandas writes class numbers.
    """
    if isinstance(label, bool):
        return "true" if label else "false"
    is_decimal = isinstance(label, float) or (isinstance(label, str) and "." in label)
    if is_decimal and as_number(label).is_integer():
        return str(int(as_number(label)))
    return str(label)


def spelt_alike(counts: Counter[str]) -> Iterator[tuple[str, list[str]]]:
    """Yields names that differ in case or spacing alone: the most frequent one, and the others."""
    variants: dict[str, list[str]] = {}
    for name, _ in counts.most_common():
        variants.setdefault(normalised(name), []).append(name)
    for usual, *other_spellings in variants.values():
        if other_spellings:
            yield usual, other_spellings


def joined_labels(names: Collection[str]) -> tuple[str, set[str]] | None:
    """Returns the separator of several labels in one cell, and the labels; None for no such lists.

    `a`, `b` and `a|b` are three names of two labels: the parts are fewer than the names.
    """
    different = {name.strip() for name in names}
    for separator in _SEPARATORS:
        parts = {part.strip() for name in different for part in name.split(separator)}
        if len(parts) < len(different):
            return separator, parts
    return None


def oddly_written_numbers(counts: Counter[str]) -> list[str]:
    """Returns rare names such as `1e3` or `0.5` among whole numbers in digits; [] elsewhere.

    Either such a name is a slip, or the labels are scores. Nobody means a class `0.5` beside 0 and
    1.

    Args:
        counts: Name -> rows that have it.
    """
    odd = [name for name in counts if not _DIGITS.fullmatch(name)]
    are_numbers = all(math.isfinite(as_number(name)) for name in odd)
    n_others = counts.total() - sum(counts[name] for name in odd)
    if are_numbers and nearly_all(n_others, counts.total()):
        return odd
    return []


def words_for_nothing(counts: Counter[str]) -> list[str]:
    """Returns the rare names, such as `None`, that other programs write where there is no label."""
    words = [name for name in counts if name.strip().lower() in _WORDS_FOR_NOTHING]
    n_others = counts.total() - sum(counts[word] for word in words)
    if words and nearly_all(n_others, counts.total()):
        return words
    return []


def label_form(values: Sequence[Any], rules: LabelRules, *, is_typed: bool = False) -> LabelForm:
    """Returns what nearly all cells of a label column are.

    `["pos", "neg"]` are words, `[0, 1]` numbers, `["1 0 1", "0 1 1"]` vectors.

    Args:
        values: Cells as the file has them.
        rules: What the recipe says of its labels.
        is_typed: Whether the file's columns have types (Parquet), so that `datasets` may have
            written it.
    """
    cells = _counted_cells(values)
    lists = [(cell, n) for cell, n in cells if isinstance(cell, list)]
    names = [(cell, n) for cell, n in cells if not isinstance(cell, list | _Unreadable)]
    n_cells = _total(cells)
    are_single_names = nearly_all(_total(names), n_cells)
    if lists and not are_single_names:
        width = _vector_width(lists, rules.names, n_cells)
        if width:
            return LabelForm("vectors", width)
        if nearly_all(_total(lists), n_cells):
            return LabelForm("lists")
        return ANY_FORM

    width = _width_of_written_vectors(names, rules.names, n_cells)
    if width:
        return LabelForm("vectors", width)
    # What the recipe says of its labels decides, not what they look like.
    if rules.names or rules.several or rules.separator:
        return ANY_FORM
    return _form_of_names(names, is_typed=is_typed)


_Counted = Sequence[tuple[Any, int]]
"""Cells, each with how many rows have it."""


def _form_of_names(names: _Counted, *, is_typed: bool) -> LabelForm:
    """Returns what nearly all single labels are: true or false, words or numbers; else `any`.

    Args:
        names: Cells that are single names or numbers, each with how many rows have it.
        is_typed: Whether the file's columns have types.
    """
    n_rows = _total(names)
    n_booleans = _total([(cell, n) for cell, n in names if _is_boolean(cell)])
    if n_booleans and nearly_all(n_booleans, n_rows):
        return LabelForm("booleans")

    numbers = [(cell, n) for cell, n in names if _is_number(cell)]
    n_numbers = _total(numbers)
    if nearly_all(n_rows - n_numbers, n_rows):
        return LabelForm("words")
    if nearly_all(n_numbers, n_rows):
        return LabelForm("numbers", has_unlabelled=_has_unlabelled(numbers, is_typed=is_typed))
    return ANY_FORM


def _counted_cells(values: Sequence[Any]) -> list[tuple[Any, int]]:
    """Returns the cells of a label column as `_cell` reads them, each with how many rows have it.

    Only texts are counted; each other cell is returned by itself, with 1. Blank cells, errors and
    marks of a missing label are left out.
    """
    texts = Counter(value for value in values if isinstance(value, str))
    others = (
        (value, 1)
        for value in values
        if not isinstance(value, str | DataError | NoLabel | UnusableLabel)
    )
    cells = [(_cell(value), n) for value, n in (*texts.items(), *others)]
    return [(cell, n) for cell, n in cells if cell is not None]


def _total(cells: _Counted) -> int:
    """Returns how many rows have these cells."""
    return sum(n for _, n in cells)


def label_cells(
    values: Sequence[Any], form: LabelForm, rules: LabelRules, where: Callable[[int], str]
) -> Sequence[Any | DataError]:
    """Returns the labels of a column's cells: names, numbers, lists of names, or None for nothing.

    Args:
        values: Cells as the file has them. A `DataError` among them is passed on.
        form: What nearly all of them are.
        rules: What the recipe says of its labels.
        where: Returns the file and line of a row, for messages.

    Returns:
        One label per cell; in place of a cell that can't be read the error that says so.
    """
    if isinstance(values, CodedValues):
        coded = values.mapped(lambda value: _label(value, form, rules))
        if not any(isinstance(label, _Unreadable) for label in coded.values):
            return coded
    labels: list[Any | DataError] = []
    label_of_text: dict[str, Any] = {}  # texts recur, so each is read once
    for index, value in enumerate(values):
        if isinstance(value, str):
            if value not in label_of_text:
                label_of_text[value] = _label(value, form, rules)
            label = label_of_text[value]
        elif isinstance(value, DataError):
            label = value
        else:
            label = _label(value, form, rules)
        if isinstance(label, _Unreadable):
            label = DataError(f"{where(index)}: {label.message}", remedy=label.remedy)
        labels.append(label)
    return labels


def _label(value: Any, form: LabelForm, rules: LabelRules) -> Any:
    """Returns the label of one cell, or an `_Unreadable` with why it has none.

    Args:
        value: The cell as the file has it.
        form: What nearly all cells of the column are.
        rules: What the recipe says of its labels.
    """
    if isinstance(value, str) and value.strip() in rules.names:
        return value.strip()  # a name that was given is a name, whatever it looks like
    cell = _cell(value)
    if cell is None:  # a blank cell: an empty text, or a null or NaN, which stays as it is
        if isinstance(value, str):
            return ""
        return value
    if isinstance(cell, _Unreadable):
        return cell
    if form.kind == "vectors":
        return _named_places(cell, form.width, rules)
    if form.kind == "lists":
        if isinstance(cell, list):
            return _list_of_names(cell, rules)
        return _odd(cell, "a list of labels", f'Write it as a list: ["{cell}"].')
    if isinstance(cell, list):
        if form.kind == "any":
            return _list_of_names(cell, rules)
        return _odd(cell, "one label")
    if form.has_unlabelled and as_number(cell) == NO_LABEL:
        return _Unreadable(
            "the label is -1, which means no label (as `datasets` writes it)",
            f"Take the row out. If -1 is a class, name all of them: {_NAME_THE_LABELS}.",
        )
    if form.kind == "booleans" and not _is_boolean(cell):
        return _odd(cell, "true or false")
    if form.kind == "words" and _is_number(cell):
        return _odd(cell, "a word")
    if form.kind == "numbers" and not _is_number(cell):
        return _odd(cell, "a number")
    return cell


def _list_of_names(items: list[Any], rules: LabelRules) -> Any:
    """Returns a list of names as it is, and a vector among such lists as the names that it marks.

    A list of 0 and 1 is a vector if one of them is repeated, as `[0, 1, 1]`. `[1]` may be a list of
    one name, and so are lists of 0 and 1 if the labels have these names.
    """
    if not _is_vector(items):  # checked first: it is quick, and nearly all lists are of names
        return items
    texts = [str(item) for item in items]
    has_repeated = len(set(texts)) < len(texts)
    are_names = all(text in rules.names for text in texts)
    if has_repeated and not are_names:
        return _named_places(items, len(items), rules)
    return items


def _odd(cell: Any, expected: str, remedy: str = "Correct the label.") -> _Unreadable:
    """Returns the error for a label of another kind than nearly all labels of its column.

    Args:
        cell: The cell with the label.
        expected: What the other labels are, such as `a number`.
        remedy: What to do.
    """
    if isinstance(cell, list):
        cell_text = shorten(cell, 40)
    else:
        cell_text = repr(cell)
    return _Unreadable(
        f"the label is {cell_text}, where nearly all rows have {expected}",
        f"{remedy} If it is the name of a label, name all labels: {_NAME_THE_LABELS}.",
    )


def _cell(value: Any) -> Any:
    """Returns a cell as a name, a number or a list of those; None for a blank cell.

    `" pos "` -> `pos`, `'["a", "b"]'` and `{"a": 1, "b": 1, "c": 0}` -> `["a", "b"]`. For a cell
    that can't be read it returns an `_Unreadable` with the reason.
    """
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if isinstance(value, str):
        text = value.strip()
        if not text:
            return None
        value = written_structure(text)
        if isinstance(value, str):
            if _is_bracketed(text):
                return _not_understood(text)
            return text
    if is_missing(value):
        return None
    if isinstance(value, Mapping):
        return _names_of_flags(value)
    if isinstance(value, list | tuple):
        return _names_of_items(list(value))
    if isinstance(value, set | frozenset):
        return _names_of_items(sorted(value, key=str))
    return value


def _is_bracketed(text: str) -> bool:
    """Returns whether a text begins like a list or an object, or ends like one that was cut off."""
    begins = text[0] in "[{" or text.startswith(("('", '("'))
    # A name such as `sport [ball]` has both brackets, and is no list.
    ends_list = text[-1] == "]" and "[" not in text
    ends_object = text[-1] == "}" and "{" not in text
    return begins or ends_list or ends_object


def _not_understood(text: str) -> _Unreadable:
    """Returns the error for a text that looks like a list, but can't be read as one."""
    return _Unreadable(
        f"the label {text!r:.80} looks like a list or an object, and can't be read as one",
        'Write a list as JSON, such as ["a", "b"]. If the text is the name of a label, name all '
        "labels: "
        f"{_NAME_THE_LABELS}.",
    )


def _names_of_flags(cell: Mapping[Any, Any]) -> Any:
    """Returns the names that an object such as `{"good": 1, "film": 0}` marks."""
    flags = {str(name).strip(): FLAGS.get(str(flag)) for name, flag in cell.items()}
    if None in flags.values():
        return _Unreadable(
            f"the label is an object ({shorten(dict(cell), 60)}), and which names it means can't "
            "be told",
            'Write the name alone, a list of names such as ["a", "b"], or 0 or 1 for each: {"a": '
            '1, "b": 0}.',
        )
    return [name for name, flag in flags.items() if flag]


def _names_of_items(items: list[Any]) -> Any:
    """Returns the names in a list, `["a ", 2.0]` -> `["a", 2]`, or why it can't be read.

    A list of nothing but nulls has no names.
    """
    names: list[Any] = []
    n_missing = sum(map(is_missing, items))
    if 0 < n_missing < len(items):
        return _Unreadable(
            f"the label is a list with {count(n_missing, 'null')} among its names "
            f"({shorten(items, 60)})",
            'Write the name that is missing, or take the null out: ["a"] in place of ["a", null].',
        )
    for item in items:
        if isinstance(item, list | tuple | set | dict):
            return _Unreadable(
                f"the label is a list of lists or objects ({shorten(items, 60)})",
                'Write the names alone, such as ["a", "b"]. For spans of a text the task is '
                "token-classification.",
            )
        if isinstance(item, float) and not item.is_integer() and not math.isnan(item):
            return _Unreadable(
                f"the label is a list of decimal numbers ({shorten(items, 60)}), which are not "
                "names",
                'Write the names of the labels that hold, such as ["a", "b"]. Probabilities can\'t '
                "be learned.",
            )
        if isinstance(item, str):
            names.append(item.strip())
        elif isinstance(item, float) and item.is_integer():
            names.append(int(item))
        elif not is_missing(item):
            names.append(item)
    return names


def _is_boolean(cell: Any) -> bool:
    """Returns whether a cell is a truth value, or one of the words `true` and `false`."""
    return isinstance(cell, bool) or (isinstance(cell, str) and cell.lower() in ("true", "false"))


def _is_number(cell: Any) -> bool:
    """Returns whether a cell is a finite number, or the text of one."""
    return not isinstance(cell, bool) and math.isfinite(as_number(cell))


def _has_unlabelled(cells: _Counted, *, is_typed: bool) -> bool:
    """Returns whether -1 stands for no label beside class numbers from 0 on.

    -1, 0 and 1 may also be three classes (sentiment). They count as classes unless the file has
    types, as files of `datasets` have, or -1 is rare.

    Args:
        cells: Numbers, each with how many rows have it.
        is_typed: Whether the file's columns have types.
    """
    counts: Counter[float] = Counter()
    for cell, n in cells:
        counts[as_number(cell)] += n
    others = counts.keys() - {NO_LABEL}
    are_class_numbers = all(number >= 0 and number.is_integer() for number in others)
    if NO_LABEL not in counts or not are_class_numbers:
        return False
    if others == {1.0}:
        return False  # -1 and 1 are two classes
    if not others:
        return True

    is_rare = nearly_all(counts.total() - counts[NO_LABEL], counts.total())
    are_three_classes_at_most = max(others) <= 1
    return is_typed or is_rare or not are_three_classes_at_most


# Vectors


def _flags_in(cell: Any) -> list[Any]:
    """Returns the parts of `1 0 1`, `1,0,1` or `101`; nothing where a text is no vector."""
    if not isinstance(cell, str):
        return []
    parts = _BETWEEN_FLAGS.split(cell)
    if len(parts) > 1:
        return parts
    if _DIGITS_OF_FLAGS.fullmatch(cell):
        return list(cell)
    return []


def _width_of_written_vectors(names: _Counted, label_names: Sequence[str], n_cells: int) -> int:
    """Returns the length of the vectors that texts write as `1 0 1` or `101`; 0 if they write none.

    Digits without anything between them are taken for numbers such as 101, unless one text begins
    with 0, as no number does, or the recipe names as many labels as there are digits.

    Args:
        names: Cells that are single names or numbers, each with how many rows have it.
        label_names: The names of the labels, where the recipe says them.
        n_cells: Rows with a cell of any kind; nearly all must be vectors.
    """
    if any(isinstance(cell, str) and cell in label_names for cell, _ in names):
        return 0
    # The parts of a text are no names of labels, even if labels are called 0 and 1.
    parts = [(_flags_in(cell), n) for cell, n in names]
    width = _vector_width(parts, label_names=(), n_cells=n_cells)
    texts = [cell for cell, _ in names if isinstance(cell, str)]
    digits = [text for text in texts if _DIGITS_OF_FLAGS.fullmatch(text)]
    could_be_numbers = bool(digits) and not any(text.startswith("0") for text in digits)
    if could_be_numbers and len(label_names) != width:
        return 0
    return width


def _vector_width(lists: _Counted, label_names: Sequence[str], n_cells: int) -> int:
    """Returns the length of the vectors of 0 and 1 in a column's cells; 0 if they are no vectors.

    Lists of the names of labels are no vectors, whatever the labels are called.

    Args:
        lists: Cells that are lists, each with how many rows have it.
        label_names: The names of the labels, where the recipe says them.
        n_cells: Rows with a cell of any kind; nearly all must be vectors.
    """
    all_items = chain.from_iterable(items for items, _ in lists)
    if label_names and all(str(item) in label_names for item in all_items):
        return 0
    widths: Counter[int] = Counter()
    for items, n in lists:
        if _is_vector(items):
            widths[len(items)] += n
    if not widths:
        return 0
    width, n_vectors = widths.most_common(1)[0]
    # `[0]` and `[1]` are lists with the number of a class, unless the recipe names one label alone.
    are_class_lists = width < 2 and len(label_names) != width
    if are_class_lists or not nearly_all(n_vectors, n_cells):
        return 0
    return width


def _is_vector(items: Sequence[Any]) -> bool:
    """Returns whether a list has nothing but 0 and 1."""
    return bool(items) and all(str(item) in FLAGS for item in items)


def _named_places(cell: Any, width: int, rules: LabelRules) -> Any:
    """Returns the names of the labels that a vector marks with 1, or why they are unknown.

    With the names a, b, c: `[1, 0, 1]` or `1 0 1` -> `["a", "c"]`.

    Args:
        cell: The vector, as a list or as a text.
        width: Length of nearly all vectors of the column.
        rules: Names of the labels, if the recipe says them.

    Returns:
        A list of names, or an `_Unreadable`.
    """
    if isinstance(cell, list):
        items = cell
    else:
        items = _flags_in(cell)
    cell_text = shorten(cell, 40)
    example = ", ".join("abcdefgh"[:width])  # a list of as many names, for the remedy
    if width > 8:
        example += ", ..."
    if rules.can_name:
        name_them = f"Name its places in their order: `text_classification.labels='[{example}]'`"
    else:
        name_them = "Write the names of the labels that hold in its place"
    if not _is_vector(items) or len(items) != width:
        return _Unreadable(
            f"the label is {cell_text}, where nearly all rows have a vector of {width} times 0 or "
            "1",
            "Correct the label.",
        )
    if not rules.names:
        return _Unreadable(
            f"the label is a vector of 0 and 1 ({cell_text}), whose places have no names",
            f"{name_them}. If 0 and 1 are the labels themselves, write them as words.",
        )
    if len(rules.names) != width:
        return _Unreadable(
            f"the label is a vector of {count(width, 'place')} ({cell_text}), where "
            f"{count(len(rules.names), 'label')} have a name ({listing(rules.names)})",
            f"{name_them}.",
        )
    return [name for name, item in zip(rules.names, items, strict=True) if FLAGS[str(item)]]
