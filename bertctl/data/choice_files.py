"""Files of multiple choice: SWAG's CSV, CODAH's TSV, JSON Lines, Parquet; a list of choices, or a column for each.

Canonical columns: `context` (may be blank), `choices` (a list of at least two texts; rows may differ in how many), and
`label` (the number of the right one, counted from 0).
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from bertctl.config.recipe_sections import DataSection
from bertctl.data.column_contents import written_list
from bertctl.data.columns import FileColumns, columns_named, ids_of, label_of, other_columns, shown_columns
from bertctl.data.files import input_kind, read_tables
from bertctl.data.names import folded
from bertctl.data.reading import Reader, Reading, ReadOptions, json_form
from bertctl.data.rows import Rows
from bertctl.data.table import Table, require_label
from bertctl.data.text_columns import texts_of
from bertctl.data.text_files import Source, source_name
from bertctl.errors import DataError, UsageError, WholeFileError
from bertctl.words import count

_WITH_BEGINNING = (
    ("sent1", "sent2"),
    ("ctx_a", "ctx_b"),
    ("context", "question"),
    ("article", "question"),
    ("passage", "question"),
)
"""A context, and what stands before every choice: SWAG; HellaSwag; Cosmos QA; RACE."""
_CONTEXTS = (
    "context", "prompt", "question", "premise", "stem", "question_stem", "question_propmt", "ctx", "startphrase",
    "sentence", "text", "passage", "article",
)  # fmt: skip
_LISTS = ("choices", "options", "endings", "answers", "alternatives", "candidates", "candidate_answers")
_LABELS = (
    "label", "labels", "gold_label", "gold", "answer", "answerkey", "correct", "correct_answer", "correct_answer_idx",
    "answer_idx", "target", "y",
)  # fmt: skip
_NUMBERED = re.compile(
    r"(ending|choice|option|answer|alternative|candidate|solution|sol|hypothesis|)[ _-]?(\d+|[a-h])", re.IGNORECASE
)
_CODAH_CATEGORIES = frozenset(("", "i", "n", "o", "p", "q", "r"))
_OPTIONS = (
    "Call them choice1, choice2, ...; or, in training, name them: --text-column NAME for the context, --label-column "
    "NAME, --set data.choice_columns='[NAME, NAME, ...]' (one column with lists, or one for each choice)."
)


_LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class ChoiceColumns(FileColumns):
    """The file's names of the canonical columns.

    Attributes:
        context: what the choices are about.
        beginning: words that every choice continues (SWAG's `sent2`), or None.
        choices: one column with lists, or a column for each choice, in order.
        label: the right choice, or None.
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


@dataclass(frozen=True)
class ChoiceReader(Reader):
    """Makes rows with choices of CSV, TSV, JSONL and Parquet."""

    columns: tuple[str, ...] = ("context", "choices", "label")
    no_label: tuple[Any, ...] = (None, "", -1, "-1")
    together: tuple[str, ...] = ("context",)
    form: str = json_form('"context": "...", "choices": ["...", "..."], "label": 0')
    is_sure: bool = True

    def readings(self, source: Source, options: ReadOptions) -> Iterator[Reading]:
        """Yields the rows of a file or of stdin; labels only of whole files."""
        kind = input_kind(source, options)
        if kind == "lines" and not options.whole:
            remedy = "Give JSONL, CSV, TSV or Parquet; for stdin say which with --input-format jsonl."
            raise UsageError(f"{source_name(source)}: lines of text have no choices", remedy=remedy)
        return self.table_readings(read_tables(source, "tsv" if kind == "lines" else kind, options), options)

    def columns_of(self, table: Table, options: ReadOptions) -> ChoiceColumns:
        """Returns which column of a file is which."""
        return find_columns(table, options.settings, label_needed=options.label_needed)

    def further_columns(self, columns: ChoiceColumns, table: Table, options: ReadOptions) -> ChoiceColumns:
        """Returns the columns, with those that go on numbering the choices."""
        return columns if options.settings.choice_columns else _with_further_choices(columns, table)

    def rows_of(self, table: Table, columns: ChoiceColumns, options: ReadOptions, *, first_id: int) -> Rows:
        """Returns a file's columns under their canonical names.

        Raises:
            DataError: fewer than two choices, a label that points at none of them, something that is no text, with
                file and line.
        """
        optional = columns.choices if len(columns.choices) > 1 else ()  # a chunk of JSONL may lack the last ones
        columns.require(table, optional=optional)
        contexts = texts_of(table, columns.context)
        if len(columns.choices) == 1:
            endings = [_listed(table, columns.choices[0], index) for index in range(len(table))]
        else:
            blank = [""] * len(table)
            cells = [texts_of(table, name) if name in table.columns else blank for name in columns.choices]
            endings = [_without_blank_end(row) for row in zip(*cells, strict=True)]
        for index, row in enumerate(endings):
            if len(row) < 2:
                what = f"{count(len(row), 'choice')} in {', '.join(columns.choices)}, where at least 2 are needed"
                remedy = f"Give each row its choices, or take the row out. {shown_columns(table)}"
                raise DataError(f"{table.where(index)}: {what}", remedy=remedy)
        found: dict[str, Sequence[Any]] = {"context": contexts, "choices": endings}
        if columns.beginning is not None:
            beginnings = texts_of(table, columns.beginning)
            found["choices"] = [
                [f"{beginning} {ending}" if beginning else ending for ending in row]
                for beginning, row in zip(beginnings, endings, strict=True)
            ]
        if columns.label is not None:
            found["label"] = _choice_numbers(table, columns.label, endings)
        found |= other_columns(table, columns.used, ("context", "choices", "label"))
        return Rows(options.split, found, ids_of(table, columns.id, first_id=first_id), table.source, table.lines)


def find_columns(table: Table, settings: DataSection, *, label_needed: bool) -> ChoiceColumns:
    """Finds which column is which, as the person said or by the usual names.

    Args:
        table: the file as it was read.
        settings: `text_column` is the context, `pair_column` what stands before every choice.
        label_needed: whether to refuse a table without a label column.

    Raises:
        DataError: a column that was named is not there (those there are shown).
        UsageError: a column can't be guessed, or one column was named twice.
    """
    said = [settings.text_column, settings.pair_column, *(settings.choice_columns or ())]
    is_here = all(name in table.columns for name in said if name is not None)
    if not is_here and {"context", "choices"} <= set(table.columns):  # a prediction file: it has names of its own
        settings = settings.model_copy(update={"text_column": "context", "pair_column": None, "choice_columns": None})
        said = ["context"]
    named = {f"{number}": name for number, name in enumerate(said)}
    named |= {"label": settings.label_column, "id": settings.id_column}
    taken = columns_named(named, table, optional="" if label_needed else "label")
    if not table.header and not (settings.text_column and settings.choice_columns):
        return _guess_headerless(table, settings)
    free = {folded(name): name for name in table.columns if name not in taken}
    choices = tuple(settings.choice_columns or ()) or _guess_choices(table, free)
    free = {key: name for key, name in free.items() if name not in choices}
    context, beginning = settings.text_column, settings.pair_column
    if context is None:
        context, beginning = _guess_context(table, free, beginning)
    label = settings.label_column if settings.label_column in table.columns else None
    if label is None and settings.label_column is None:
        free = {key: name for key, name in free.items() if name not in (context, beginning)}
        label = label_of(free, _LABELS, table, needed=label_needed)
    return ChoiceColumns(settings.id_column, context, beginning, choices, label)


def _listed(table: Table, name: str, index: int) -> list[str]:
    """Returns the choices of a row out of a column with lists, or with lists written as texts (a CSV's cells)."""
    value = table.columns[name][index]
    if isinstance(value, str):
        value = written_list(value)
    if not isinstance(value, list | tuple):
        raise DataError(
            f"{table.where(index)}: column '{name}' holds {table.columns[name][index]!r:.80} where a list of choices "
            "is needed",
            remedy='A list is written ["one", "two"]; columns for each choice are named with '
            "--set data.choice_columns='[NAME, NAME, ...]'. " + shown_columns(table),
        )
    for number, choice in enumerate(value):
        if not isinstance(choice, str | int | float) or isinstance(choice, bool):
            what = f"{table.where(index)}: choice {number} in '{name}' is {choice!r:.80}, which is no text"
            raise DataError(what, remedy="Each choice is a text.")
    return [str(choice) for choice in value]


def _without_blank_end(cells: Sequence[str]) -> list[str]:
    """Returns cells without the blank ones at the end: rows may have fewer choices than there are columns."""
    last = max((i for i, cell in enumerate(cells) if cell.strip()), default=-1)
    return list(cells[: last + 1])


def _guess_choices(table: Table, free: Mapping[str, str]) -> tuple[str, ...]:
    lists = [free[key] for key in _LISTS if key in free and _holds_lists(table.columns[free[key]])]
    numbered = [family for family in _families(free.values()) if len(family) > 1]
    candidates = [*((name,) for name in lists), *numbered]
    if len(candidates) == 1:
        return candidates[0]
    what = "which columns hold the choices can't be seen"
    if candidates:
        what = "several columns could hold the choices: " + "; ".join(", ".join(names) for names in candidates)
    raise UsageError(f"{table.source}: {what}", remedy=f"{_OPTIONS} {shown_columns(table)}")


def _families(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Returns columns whose names differ by their number or letter alone (`ending0`, `ending1`; `A`, `B`), in order."""
    found: dict[tuple[str, bool], list[tuple[int, str]]] = {}
    for name in names:
        match = _NUMBERED.fullmatch(folded(name))
        if match and (match[1] or not match[2].isdecimal()):
            number = int(match[2]) if match[2].isdecimal() else ord(match[2]) - ord("a")
            found.setdefault((match[1], match[2].isdecimal()), []).append((number, name))
    return [tuple(name for _, name in sorted(family)) for family in found.values()]


def _with_further_choices(columns: ChoiceColumns, table: Table) -> ChoiceColumns:
    """Returns the columns of a file's first chunk, and those of a later one that go on numbering its choices."""
    free = [name for name in table.columns if name not in columns.used and name != columns.id]
    families = _families(dict.fromkeys((*columns.choices, *free)))
    return replace(columns, choices=next((f for f in families if columns.choices[0] in f), columns.choices))


def _holds_lists(values: Sequence[Any]) -> bool:
    first = next((value for value in values if value is not None), None)
    return isinstance(first, list | tuple) or (isinstance(first, str) and first.lstrip().startswith("["))


def _guess_context(table: Table, free: Mapping[str, str], beginning: str | None) -> tuple[str, str | None]:
    """Returns the context, and what stands before every choice where the two have the names of a known pair."""
    for context, second in _WITH_BEGINNING:
        if context in free and beginning is None and second in free:
            return free[context], free[second]
    found = [free[key] for key in _CONTEXTS if key in free]
    if len(found) == 1 or (found and folded(found[0]) == "context"):
        return found[0], beginning
    what = f"several columns could be the context: {', '.join(found)}" if found else "no column is known as the context"
    raise UsageError(f"{table.source}: {what}", remedy=f"{_OPTIONS} {shown_columns(table)}")


def _guess_headerless(table: Table, settings: DataSection) -> ChoiceColumns:
    """Returns CODAH's columns: a letter for the category, the prompt, four endings, and the label, if there is one."""
    names = list(table.columns)
    if len(names) not in (6, 7) or not {str(value) for value in table.columns[names[0]]} <= _CODAH_CATEGORIES:
        raise UsageError(
            f"{table.source}: it has no header, and which of its {len(names)} columns are the choices can't be seen",
            remedy="Name them by number: --text-column column1 --label-column column4 --set "
            "data.choice_columns='[column2, column3]'; if the first line is a header, add --header.",
        )
    return ChoiceColumns(settings.id_column, names[1], None, tuple(names[2:6]), names[6] if len(names) == 7 else None)


def _choice_numbers(table: Table, name: str, choices: Sequence[Sequence[str]]) -> list[int]:
    """Returns labels as numbers of choices, by the one reading (number, text, letter) that fits most rows.

    The whole column decides, since the choices of an arithmetic exercise can be numbers themselves.

    Raises:
        DataError: a label that is missing, or points at none of the row's choices.
    """
    labels = [require_label(table, index, name) for index in range(len(table))]
    found = [[read(label, row) for label, row in zip(labels, choices, strict=True)] for read in _READINGS]
    best = max(found, key=lambda numbers: sum(number is not None for number in numbers))
    wrong = next((index for index, number in enumerate(best) if number is None), None)
    if wrong is not None:
        raise _refused(table, labels, choices, wrong)
    if found[0] != found[1] and None not in (*found[0], *found[1]):
        what = f"{table.source}: each label in '{name}' fits as the number of one choice and as the text of another"
        raise DataError(what, remedy="Write them as letters: A is the first choice.")
    return [number for number in best if number is not None]


def _by_number(label: Any, choices: Sequence[str]) -> int | None:
    number = _whole(label)
    return number if number is not None and 0 <= number < len(choices) else None


def _by_text(label: Any, choices: Sequence[str]) -> int | None:
    stripped = [choice.strip() for choice in choices]
    wanted = label.strip() if isinstance(label, str) else str(label)
    return stripped.index(wanted) if stripped.count(wanted) == 1 else None


def _by_letter(label: Any, choices: Sequence[str]) -> int | None:
    letter = label.strip().lower() if isinstance(label, str) else ""
    number = _LETTERS.find(letter) if len(letter) == 1 else -1
    return number if 0 <= number < len(choices) else None


_READINGS: tuple[Callable[[Any, Sequence[str]], int | None], ...] = (_by_number, _by_text, _by_letter)


def _whole(label: Any) -> int | None:
    """Returns a label as a whole number, where it is one: 2, '2', 2.0."""
    if isinstance(label, bool):
        return None
    if isinstance(label, str):
        text = label.strip()
        return int(text) if text.removeprefix("-").isdecimal() and text.isascii() else None
    if isinstance(label, float):
        return int(label) if label.is_integer() else None
    return label if isinstance(label, int) else None


def _refused(table: Table, labels: Sequence[Any], choices: Sequence[Sequence[str]], index: int) -> DataError:
    label, row = labels[index], choices[index]
    kind, number, stripped = DataError, _whole(label), [choice.strip() for choice in row]
    remedy = "A label is the number of the right choice counted from 0, its letter (A is the first), or its text."
    if number is not None:
        what = f"points outside its {len(row)} choices, which are numbers 0 to {len(row) - 1}"
        numbers = [_whole(value) for value in labels]
        if all(n is not None and 1 <= n <= len(of) for n, of in zip(numbers, choices, strict=True)):
            kind = WholeFileError
            remedy += " No label of this file is 0: if they count from 1, take 1 off each."
    elif isinstance(label, str) and len(label.strip()) == 1:
        what = f"points outside its {len(row)} choices, which are letters A to {_LETTERS[len(row) - 1].upper()}"
    elif isinstance(label, str) and stripped.count(label.strip()) > 1:
        what = "is the text of several of its choices"
    else:
        what = f"is none of its {len(row)} choices: " + ", ".join(f"{choice!r:.40}" for choice in row[:6])
    return kind(f"{table.where(index)}: the label {label!r:.60} {what}", remedy=remedy)
