"""Which columns of a multiple-choice file have the context, the choices and the label."""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, ClassVar, Literal

from bertctl.config.recipe_sections import DataSection
from bertctl.data.choice_cells import Choices, UnreadableChoicesError, choices_in
from bertctl.data.choice_labels import LabelReading, find_reading
from bertctl.data.columns import (
    FileColumns,
    columns_named,
    label_of,
    shown_columns,
)
from bertctl.data.names import folded
from bertctl.data.rows import is_missing
from bertctl.data.table import Table
from bertctl.data.text_columns import texts_of
from bertctl.data.written_values import is_shortened
from bertctl.errors import DataError, UsageError
from bertctl.words import nearly_all

_WITH_BEGINNING = (
    ("sent1", "sent2"),
    ("ctx_a", "ctx_b"),
    ("context", "question"),
    ("article", "question"),
    ("passage", "question"),
    ("premise", "question"),
)
"""Column of the context, and column of the text that begins every choice, in the files of SWAG,
HellaSwag, Cosmos QA, RACE, others with passages, and COPA (`cause` or `effect`)."""
_CONTEXTS = (
    "context", "prompt", "question", "premise", "stem", "question_stem", "question_propmt", "ctx",
    "startphrase", "sentence", "text", "passage", "article", "goal",
)  # fmt: skip
_LISTS = (
    "choices",
    "options",
    "endings",
    "answers",
    "alternatives",
    "candidates",
    "candidate_answers",
    "ending_options",
)
_LABELS = (
    "label", "labels", "gold_label", "gold", "answer", "answerkey", "correct", "correct_answer",
    "correct_answer_idx", "answer_idx", "target", "y", "cop",
)  # fmt: skip
_YES_NO = ("answer", "label")
_FURTHER_LABELS = (
    "answer_text", "answer_label", "answer_letter", "answer_index", "correct_answer_text",
    "correct_option", "correct_choice", "right_answer", "label_idx",
)  # fmt: skip
"""Names of columns that may also have the right choice. They are only compared with the label."""
_NUMBERED = re.compile(
    r"(ending|choice|option|op|answer|alternative|candidate|solution|sol|hypothesis|)"
    r"[ _-]?(\d+|[a-h])",
    re.IGNORECASE,
)
_CODAH_CATEGORIES = frozenset(("", "i", "n", "o", "p", "q", "r"))
_OPTIONS = (
    "Call them choice1, choice2, ...; or, in training, name them: `data.text_column=NAME` for the "
    "context, `data.label_column=NAME`, `data.choice_columns='[NAME, NAME, ...]'` (one column with "
    "lists, or one for each choice)."
)


@dataclass(frozen=True)
class ChoiceColumns(FileColumns):
    """The file's names of the canonical columns.

    Attributes:
        context: The column of what the choices are about.
        beginning: The column of words that every choice continues (SWAG's `sent2`), or None.
        choices: One column with lists, or a column for each choice, in order.
        label: The column of the right choice, or None.
        first: Number that labels give the first choice (0 or 1), where the settings, the format or
            another file of the recipe says it.
        reading: How the labels of the whole file are read; None where there are none.
        others: Further columns that say the right choice, each with how it is read. They are
            compared with the label.
        is_whole: Whether the whole file was seen, not its first rows alone.
    """

    settings_of: ClassVar[Mapping[str, str]] = {
        "context": "text_column",
        "beginning": "pair_column",
        "choices": "choice_columns",
        "label": "label_column",
    }

    context: str
    beginning: str | None
    choices: tuple[str, ...]
    label: str | None
    first: int | None = field(default=None, metadata={"is_column": False})
    reading: LabelReading | None = field(default=None, metadata={"is_column": False})
    others: Mapping[str, LabelReading] = field(default_factory=dict, metadata={"is_column": False})
    is_whole: bool = field(default=False, metadata={"is_column": False})

    @property
    def numbers(self) -> tuple[str, ...]:
        """Numbers in the names of the choices' columns: `("1", "2")` for `choice1`, `choice2`.

        Nothing if they are not consecutive from 0 or 1, or if the choices are in one column.
        """
        matches = [_NUMBERED.fullmatch(folded(name)) for name in self.choices]
        numbers = [int(match[2]) for match in matches if match and match[2].isdecimal()]
        n_choices = len(self.choices)
        from_zero = list(range(n_choices))
        from_one = list(range(1, n_choices + 1))
        if n_choices > 1 and numbers in (from_zero, from_one):
            return tuple(str(number) for number in numbers)
        return ()

    @property
    def are_from_one(self) -> bool:
        """Whether the choices' columns are numbered from 1, as `choice1`, `choice2`."""
        return self.numbers[:1] == ("1",)

    @property
    def first_choice(self) -> Literal[0, 1] | None:
        """Number that the labels of a whole file give the first choice, 0 or 1; None if unknown."""
        if self.reading is None or self.reading.is_ambiguous or not self.is_whole:
            return None
        if self.reading.kind == "number":
            return 1 if self.reading.first else 0
        if self.reading.kind == "key" and self.numbers:  # labels are numbers of columns
            return 1 if self.are_from_one else 0
        return None

    def as_settings(self, settings: DataSection, *, header: bool) -> DataSection:
        """Returns the settings with these columns, and the number of the first choice if known."""
        with_columns = super().as_settings(settings, header=header)
        if with_columns.first_choice is not None or self.first_choice is None:
            return with_columns
        return with_columns.model_copy(update={"first_choice": self.first_choice})


def find_columns(table: Table, settings: DataSection, *, label_needed: bool) -> ChoiceColumns:
    """Finds the columns of context, choices and label, by the settings or else by usual names.

    Args:
        table: The file as it was read.
        settings: `text_column` names the context, and `pair_column` the text that begins every
            choice (SWAG's `sent2`).
        label_needed: Whether to refuse a table without a label column.

    Raises:
        DataError: A column that the settings name does not exist.
        UsageError: A column can't be guessed, or one column was named twice.
    """
    text_columns = [
        settings.text_column,
        settings.pair_column,
        *(settings.choice_columns or ()),
    ]
    has_text_columns = all(name in table.columns for name in text_columns if name is not None)
    # The settings may be of a training file with other columns. A file that `predict` has written
    # has the names `context` and `choices` instead.
    if not has_text_columns and {"context", "choices"} <= set(table.columns):
        settings = settings.model_copy(
            update={"text_column": "context", "pair_column": None, "choice_columns": None}
        )
        text_columns = ["context"]
    # `columns_named` refuses columns that are not there or are named twice. It needs a role for
    # each column, but only the optional role matters. So the columns of texts are just numbered.
    columns_by_role = {f"text {number}": name for number, name in enumerate(text_columns)}
    columns_by_role |= {"label": settings.label_column, "id": settings.id_column}
    optional_role = "" if label_needed else "label"
    used = columns_named(columns_by_role, table, optional=optional_role)

    if not table.header and not (settings.text_column and settings.choice_columns):
        return _guess_headerless(table, settings)

    # A column that was not named is guessed among the free ones: those without a role so far.
    free = {folded(name): name for name in table.columns if name not in used}
    if settings.choice_columns:
        choices = tuple(settings.choice_columns)
    else:
        choices = _guess_choices(table, free)
    free = {key: name for key, name in free.items() if name not in choices}

    context = settings.text_column
    beginning = settings.pair_column
    if context is None:
        context, beginning = _guess_context(table, free, beginning)
    free = {key: name for key, name in free.items() if name not in (context, beginning)}

    label = settings.label_column
    if label is None:
        label = _agreed_label(free, table, choices)
        if label is None:
            label = label_of(free, _LABELS, table, needed=label_needed)
    elif label not in table.columns:
        # A file to predict on may lack the column. `columns_named` has refused any other file.
        label = None
    return ChoiceColumns(
        settings.id_column,
        context,
        beginning,
        choices,
        label,
    )


def reading_of(
    table: Table, name: str, choices: Mapping[int, Choices], first: int | None
) -> LabelReading:
    """Returns how a column of labels is read, by its labels in the rows that have choices.

    Args:
        table: The file.
        name: Name of the column.
        choices: Position of a row -> its choices.
        first: The number that labels give the first choice, 0 or 1; None if it is not known.
    """
    labels = [table.columns[name][index] for index in choices]
    return find_reading(labels, list(choices.values()), first)


def further_labels(table: Table, columns: ChoiceColumns) -> list[str]:
    """Returns the names of columns without a role that may also contain the right choice."""
    known = (*_LABELS, *_FURTHER_LABELS)
    free = [name for name in table.columns if name not in columns.used and name != columns.id]
    return [name for name in free if folded(name) in known]


def choices_of(table: Table, columns: ChoiceColumns) -> list[Choices]:
    """Returns the choices of each row, out of a column with lists, or out of a column for each.

    Raises:
        DataError: A cell contains something that is no choice; with file and line.
    """
    if len(columns.choices) > 1:
        empty_column = [""] * len(table)  # of a choice that no row of this chunk has
        cells = [
            texts_of(table, name) if name in table.columns else empty_column
            for name in columns.choices
        ]
        return [_from_cells(row, columns) for row in zip(*cells, strict=True)]
    [name] = columns.choices
    return [_from_list(table, name, index) for index in range(len(table))]


def _from_cells(cells: Sequence[str], columns: ChoiceColumns) -> Choices:
    """Returns the choices in the cells of a row, without blank ones at the end.

    `["Oslo", "Bergen", ""]` -> `["Oslo", "Bergen"]`, since rows may have fewer choices than others.
    """
    last_filled = max((i for i, cell in enumerate(cells) if cell.strip()), default=-1)
    texts = list(cells[: last_filled + 1])
    # A label 2 may mean the column `choice2`, so the columns' numbers are the keys of the choices.
    # They are not if it is known already which number means the first choice.
    if columns.first is None:
        keys = columns.numbers[: len(texts)]
    else:
        keys = ()
    return Choices(texts, keys)


def _from_list(table: Table, name: str, index: int) -> Choices:
    """Returns the choices in the cell of a column with lists.

    Raises:
        DataError: The cell contains no choices; with file and line, and how lists are written.
    """
    cell = table.columns[name][index]
    try:
        return choices_in(cell)
    except UnreadableChoicesError as error:
        remedy = (
            'A list is written ["one", "two"], choices with labels {"text": ["one", "two"], '
            '"label": ["A", "B"]}; '
            "columns for each choice are named with `data.choice_columns='[NAME, NAME, ...]'`. "
        )
        if is_shortened(cell):
            remedy = (
                "numpy has left a part out (...). Save the table as JSON Lines or Parquet, which "
                "keep lists. "
            )
        message = f"{table.where(index)}: column '{name}' {error}"
        raise DataError(message, remedy=remedy + shown_columns(table)) from error


def readable_choices(table: Table, columns: ChoiceColumns) -> dict[int, Choices]:
    """Returns the choices of rows by the number of the row.

    Rows without choices are left out; another check reports them.
    """
    if len(columns.choices) > 1:
        present = [table.columns[name] for name in columns.choices if name in table.columns]
        readable: dict[int, Choices] = {}
        for index, cells in enumerate(zip(*present, strict=True)):
            texts = ["" if is_missing(cell) else str(cell) for cell in cells]
            readable[index] = _from_cells(texts, columns)
        return readable
    readable = {}
    for index in range(len(table)):
        with suppress(DataError):
            readable[index] = _from_list(table, columns.choices[0], index)
    return readable


def _guess_choices(table: Table, free: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the column with lists of choices, or the columns with a choice each.

    Args:
        table: The file.
        free: Lowercase name -> name of the columns that are nothing else yet.

    Raises:
        UsageError: No columns fit, or several do.
    """
    known = [free[key] for key in _LISTS if key in free]
    lists = [(name,) for name in known if _holds_lists(table.columns[name])]
    numbered = [family for family in _families(free.values()) if len(family) > 1]
    candidates: list[tuple[str, ...]] = [*lists, *numbered]
    if len(candidates) == 1:
        return candidates[0]
    message = "which columns hold the choices can't be seen"
    if candidates:
        message = "several columns could hold the choices: " + "; ".join(
            ", ".join(names) for names in candidates
        )
    remedy = _OPTIONS
    if not candidates and _asks_yes_or_no(table):
        remedy = (
            "Questions that are answered by yes or no, as in BoolQ, are pairs with a label: "
            "recipe text-classification, `data.text_column=QUESTION` `data.pair_column=PASSAGE` "
            "`data.label_column=ANSWER`."
        )
    raise UsageError(f"{table.source}: {message}", remedy=f"{remedy} {shown_columns(table)}")


def _asks_yes_or_no(table: Table) -> bool:
    """Returns whether all answers are true, false, yes or no, as in BoolQ."""
    cells = chain.from_iterable(table.columns.get(name, ()) for name in _YES_NO)
    answers = [str(cell).casefold() for cell in cells]
    return bool(answers) and set(answers) <= {"true", "false", "yes", "no"}


def _families(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Returns groups of columns whose names differ by their number or letter alone, in order.

    `["ending1", "ending0", "A", "B", "id"]` -> `[("ending0", "ending1"), ("A", "B")]`.
    """
    families: dict[tuple[str, bool], list[tuple[int, str]]] = {}
    for name in names:
        match = _NUMBERED.fullmatch(folded(name))
        if match is None:
            continue
        stem = match[1]
        is_numbered = match[2].isdecimal()
        if not stem and is_numbered:  # a number alone names no choice
            continue
        number = int(match[2]) if is_numbered else ord(match[2]) - ord("a")
        families.setdefault((stem, is_numbered), []).append((number, name))
    return [tuple(name for _, name in sorted(family)) for family in families.values()]


def with_further_choices(columns: ChoiceColumns, table: Table) -> ChoiceColumns:
    """Returns the columns of a file's first chunk, with choices that a later chunk adds.

    `choice1`, `choice2` and a chunk with `choice3` -> `choice1`, `choice2`, `choice3`.
    """
    free = [name for name in table.columns if name not in columns.used and name != columns.id]
    for family in _families([*columns.choices, *free]):
        if columns.choices[0] in family:
            return replace(columns, choices=family)
    return columns


def _holds_lists(values: Sequence[Any]) -> bool:
    """Returns whether the first cell that is not None is a list or an object, or such a text."""
    for value in values:
        if isinstance(value, str):
            return value.lstrip().startswith(("[", "{", "array("))
        if value is not None:
            return isinstance(value, list | tuple | dict)
    return False


def _agreed_label(free: Mapping[str, str], table: Table, choices: tuple[str, ...]) -> str | None:
    """Returns the first of several label columns if the cells of each mean one of the choices.

    MedQA has two such columns: the text of the right answer, and its letter. Whether they agree is
    checked when the rows are read. The result is None if there are fewer than two, or if one of
    them means something else.

    Args:
        free: Lowercase name -> name of the columns that are nothing else yet.
        table: The file.
        choices: Names of its columns with choices.
    """
    names = [free[name] for name in _LABELS if name in free]
    if len(names) < 2 or "label" in free:  # a column `label` needs no guess
        return None
    columns = ChoiceColumns(
        id=None,
        context="",  # not known yet; only the choices are read here
        beginning=None,
        choices=choices,
        label=None,
    )
    readable = readable_choices(table, columns)
    for name in names:
        reading = reading_of(table, name, readable, None)
        fits = nearly_all(reading.fitting, len(readable))
        if reading.is_ambiguous or not fits:
            return None
    return names[0]


def _guess_context(
    table: Table, free: Mapping[str, str], beginning: str | None
) -> tuple[str, str | None]:
    """Returns the column of the context, and that of the text before every choice, or None.

    Args:
        table: The file, for messages.
        free: Lowercase name -> name of the columns that are nothing else yet.
        beginning: The column of the text before every choice, if it was named. Otherwise a known
            pair is looked for, such as SWAG's `sent1` and `sent2`.

    Raises:
        UsageError: No column is known as the context, or several are.
    """
    for context, second in _WITH_BEGINNING:
        if context in free and beginning is None and second in free:
            return free[context], free[second]
    candidates = [free[key] for key in _CONTEXTS if key in free]
    is_called_context = "context" in free  # it is the first of `_CONTEXTS`, and needs no guess
    if len(candidates) == 1 or is_called_context:
        return candidates[0], beginning
    if candidates:
        message = f"several columns could be the context: {', '.join(candidates)}"
    else:
        message = "no column is known as the context"
    raise UsageError(f"{table.source}: {message}", remedy=f"{_OPTIONS} {shown_columns(table)}")


def _guess_headerless(table: Table, settings: DataSection) -> ChoiceColumns:
    """Returns the columns of a file without a header if it is CODAH's.

    They are a letter for the category, the prompt, four endings, and the label, if there is one.

    Raises:
        UsageError: It is another file.
    """
    names = list(table.columns)
    first_cells = {str(value) for value in table.columns[names[0]]}
    is_codah = len(names) in (6, 7) and first_cells <= _CODAH_CATEGORIES
    if not is_codah:
        raise UsageError(
            f"{table.source}: it has no header, and which of its {len(names)} columns are the "
            "choices can't be seen",
            remedy="Name them by number: `data.text_column=column1` `data.label_column=column4` "
            "`data.choice_columns='[column2, column3]'`; if the first line is a header, add "
            "`data.header=True`.",
        )
    return ChoiceColumns(
        id=settings.id_column,
        context=names[1],
        beginning=None,
        choices=tuple(names[2:6]),
        label=names[6] if len(names) == 7 else None,
    )
