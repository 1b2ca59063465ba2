"""JSON Lines and Parquet as rows of token classification.

They have words and tags, or texts and character spans.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from bertctl.config.recipe_sections import DataSection
from bertctl.data.annotations.surface import require_surface
from bertctl.data.column_contents import content_of
from bertctl.data.columns import (
    FileColumns,
    absent_column,
    columns_named,
    ids_of,
    other_columns,
    shown_columns,
)
from bertctl.data.names import ID_NAMES, TEXT_NAMES, folded
from bertctl.data.read_options import ReadOptions
from bertctl.data.rows import Rows
from bertctl.data.spans import Misaligned, read_span, surface_of, tags_of_spans
from bertctl.data.table import Table
from bertctl.data.word_splitting import find_words, split_tagged_words
from bertctl.errors import DataError, UsageError
from bertctl.words import count, count_of

Offsets = list[tuple[int, int]]
Content = Literal["text", "words", "numbers", "objects", "nothing"]

_WORDS = ("words", "tokens", "token", "form", "forms", "word")
_TAGS = (
    "tags", "ner_tags", "labels", "label", "ner", "iob", "bio", "tag", "ner_tag", "upos",
    "pos_tags", "pos", "gold",
)  # fmt: skip
SPAN_COLUMNS = ("spans", "entities", "ents", "annotations")
"""Usual names of a column of spans."""
_CANONICAL = ("words", "label", "text", "offsets")
"""Names that no other column of a file may keep. A column `document` is the canonical one."""


@dataclass(frozen=True)
class TaggedColumns(FileColumns):
    """The file's names of the canonical columns.

    Attributes:
        words: lists of words, or of objects with `text`, `start` and `end` (Prodigy's tokens); or
            None.
        text: running text, or None.
        label: lists of tags, or of character spans; or None.
    """

    words: str | None
    text: str | None
    label: str | None


def find_columns(table: Table, settings: DataSection, *, label_needed: bool) -> TaggedColumns:
    """Finds which column is which, as the settings say or by the usual names.

    Args:
        table: The file as it was read.
        settings: `text_column` is a column of texts or of lists of words, `label_column` that of
            the tags or spans.
        label_needed: Whether to refuse a table without tags.

    Raises:
        DataError: a column that was named is not there.
        UsageError: a column can't be guessed.
    """
    contents = {name: _content(values) for name, values in table.columns.items()}
    words_or_text = _existing(settings.text_column, table)
    label = _existing(settings.label_column, table, required=label_needed)
    columns_named({"id": settings.id_column}, table)  # refuses an id column that is not there
    words, text = _words_and_text(table, contents, words_or_text)
    if words is None and text is None:
        remedy = (
            f"Name it: `data.text_column=NAME` (lists of words, or running text). "
            f"{shown_columns(table)}"
        )
        raise UsageError(f"{table.source}: no column holds words or a text", remedy=remedy)
    # A recipe for CoNLL files names the label column by its position, which a table has not.
    is_unnamed = settings.label_column is None or _says_nothing(settings.label_column, table)
    if label is None and is_unnamed:
        free = {name: content for name, content in contents.items() if name != words}
        label = _guess_tags(table, free, has_text=text is not None)
    if label is None and label_needed:
        remedy = (
            "Name it: `data.label_column=NAME` (a tag for each word, or spans of the text). "
            f"{shown_columns(table)}"
        )
        raise UsageError(f"{table.source}: no column is known as the tags", remedy=remedy)
    return TaggedColumns(settings.id_column, words, text, label)


def _words_and_text(
    table: Table, contents: Mapping[str, Content], words_or_text: str | None
) -> tuple[str | None, str | None]:
    """Returns the column with lists of words, and that with running text; None for a missing one.

    Args:
        table: The file.
        contents: What its columns hold.
        words_or_text: The column that was named for one of the two, or None.
    """
    if words_or_text is not None and contents[words_or_text] == "text":
        return None, words_or_text

    words = words_or_text or _find_column(_WORDS, contents, ("words", "objects"))
    # Beside words, `document` names the document that the sentence is from.
    text_names = [name for name in TEXT_NAMES if words is None or name != "document"]
    text = _find_column(text_names, contents, ("text",))
    if words is None and text is None:
        text = _text_of_any_name(table, contents)
    return words, text


def _guess_tags(table: Table, contents: Mapping[str, Content], *, has_text: bool) -> str | None:
    """Returns the column with tags or spans, by its usual name and what it holds; None without one.

    Args:
        table: The file.
        contents: Column -> what it holds, for all columns but the column with the words.
        has_text: Whether the file has texts, in which spans can be.
    """
    label = _find_column(_TAGS, contents, ("words", "numbers", "objects"))
    label = label or _find_column(SPAN_COLUMNS, contents, ("objects", "nothing"))
    if label is not None or not has_text:
        return label
    # A file without any span may have only empty lists in a column such as doccano's `label`. It
    # holds "nothing", as a blank column does, but a blank column has no lists.
    with_empty_lists = {
        name: content
        for name, content in contents.items()
        if any(cell == [] for cell in table.columns[name])
    }
    return _find_column(_TAGS, with_empty_lists, ("nothing",))


def _text_of_any_name(table: Table, contents: Mapping[str, Content]) -> str | None:
    """Returns the text column of a file whose columns have no usual names; None if it is unclear.

    It is doccano's `data`, the only column of strings beside spans, or the only one with prose.

    Args:
        table: The file.
        contents: What each column has in its cells, such as `text` for strings.
    """
    string_columns = [
        name
        for name, content in contents.items()
        if content == "text" and folded(name) not in ID_NAMES
    ]
    spans = _find_column((*_TAGS, *SPAN_COLUMNS), contents, ("objects",))
    if spans is not None and "data" in string_columns:
        return "data"
    if spans is not None and len(string_columns) == 1:
        return string_columns[0]
    # Strings may also be names or classes: `content_of` looks at how they differ.
    prose_columns = [name for name in string_columns if content_of(table.columns[name]) == "text"]
    return prose_columns[0] if len(prose_columns) == 1 else None


def _says_nothing(column: str, table: Table) -> bool:
    """Returns whether a column's name in the settings says nothing about this file.

    CoNLL files name a column by its position, such as `-1`, which no table has. Prediction files of
    bertctl have column names of their own.
    """
    return column.removeprefix("-").isdecimal() or {"words", "prediction"} <= set(table.columns)


def _existing(column: str | None, table: Table, *, required: bool = True) -> str | None:
    """Returns a column that the settings name, if the file has it; else None.

    Raises:
        DataError: It is required, meant for this file, and not there.
    """
    if column is None or column in table.columns:
        return column
    if _says_nothing(column, table) or not required:
        return None
    raise absent_column(column, table)


def _content(values: Sequence[Any]) -> Content:
    """Returns what a column holds, by its first value that is a text or a list that is not empty.

    `"Anna sleeps"` is a text, `["Anna"]` words, `[3, 0]` numbers, `[{"start": 0, ...}]` objects.
    """
    for value in values:
        if isinstance(value, str):
            return "text"
        if isinstance(value, list | tuple) and value:
            kinds: dict[type, Content] = {
                str: "words",
                int: "numbers",
                dict: "objects",
                list: "objects",
            }
            return kinds.get(type(value[0]), "nothing")
    return "nothing"


def _find_column(
    names: Sequence[str], contents: Mapping[str, Content], fitting: Sequence[Content]
) -> str | None:
    """Returns the first column of these names that exists and has fitting cells; else None.

    Args:
        names: In small letters, the likeliest first.
        contents: What the columns of the file hold, by name.
        fitting: What the column may hold.
    """
    name_in_file = {name.lower(): name for name in contents}
    for name in names:
        if name in name_in_file and contents[name_in_file[name]] in fitting:
            return name_in_file[name]
    return None


def rows_of_table(
    table: Table, columns: TaggedColumns, options: ReadOptions, *, first_id: int = 0
) -> Rows:
    """Returns the rows of a file, with `words` and perhaps `text`, `offsets` and `label`.

    Args:
        table: the file as it was read.
        columns: which column is which.
        options: `label_needed` says whether to refuse a row without tags. Otherwise, if one row has
            no tags, the tags of all rows are left out.
        first_id: number of the first row, where there is no id column.

    Raises:
        DataError: something that is no list of words, more or fewer tags than words, spans that are
            not in their text or overlap; with file and line.
    """
    rows = _tagged_rows(table, columns, options)
    n_unlabelled = sum(row.tags is None for row in rows)
    if columns.label is not None and 0 < n_unlabelled < len(rows):
        counted = count_of(n_unlabelled, len(rows), "row")
        options.listener.warn(
            f"{table.source}: {counted} have no tags, so those of the others are not used"
        )
    canonical: dict[str, Sequence[Any]] = {"words": [row.words for row in rows]}
    # A column that a row lacks is left out.
    optional: dict[str, Sequence[Any]] = {
        "text": [row.text for row in rows],
        "offsets": [row.offsets for row in rows],
        "label": [row.tags for row in rows],
    }
    canonical |= {name: values for name, values in optional.items() if _is_complete(values)}
    canonical |= other_columns(table, (*columns.names().values(), "offsets"), _CANONICAL)
    return Rows(
        options.split,
        columns=canonical,
        ids=ids_of(table, columns.id, first_id=first_id),
        source=table.source,
        lines=table.lines,
    )


class _TaggedRow(NamedTuple):
    """A row of token classification.

    Attributes:
        words: Its words.
        text: The text of the row, or None.
        offsets: Start and end of each word in the text; None if they are not known.
        tags: One per word; None if it has no tags.
    """

    words: list[str]
    text: str | None
    offsets: Offsets | None
    tags: list[str] | None


def _tagged_rows(table: Table, columns: TaggedColumns, options: ReadOptions) -> list[_TaggedRow]:
    """Returns each row of a file with its words and tags; warns of spans that don't fit the words.

    Args:
        table: The file.
        columns: Which column is which.
        options: Whether a row without tags is refused, and which overlapping spans are kept.

    Raises:
        DataError: A row that can't be read, or that has no tags though it needs them.
    """
    misaligned = Misaligned(longest=options.settings.overlapping_spans == "longest")
    if columns.label is not None:
        label_cells = table.columns[columns.label]
    else:
        label_cells = [None] * len(table)
    rows: list[_TaggedRow] = []
    n_spans = 0
    for i, label in enumerate(label_cells):
        row = _tagged_row(table, columns, i, label, misaligned)
        if row.tags is None and options.label_needed:
            message = f"{table.where(i)}: the sentence has no tags in the column '{columns.label}'"
            raise DataError(
                message,
                remedy="Each row needs tags: leave out what nobody tagged. Is `data.label_column=` "
                "right?",
            )
        has_spans = label and isinstance(label[0], dict | list | tuple)
        if has_spans:
            n_spans += len(label)
        rows.append(row)
    misaligned.report(table.source, n_spans, options.listener)
    return rows


def _tagged_row(
    table: Table, columns: TaggedColumns, index: int, label: Any, misaligned: Misaligned
) -> _TaggedRow:
    """Returns a row of a file with its words and tags.

    Args:
        table: The file.
        columns: Which column is which.
        index: Number of the row.
        label: Its tags or spans, as the file has them.
        misaligned: Gets spans that begin or end inside of words.

    Raises:
        DataError: Something that is no list of words, tags or spans that don't fit the words.
    """
    where = table.where(index)
    if columns.text is not None:
        text = _text(table.columns[columns.text][index], where, columns.text)
    else:
        text = None
    words, offsets = _words(
        table,
        columns,
        index,
        text,
        label,
    )
    can_have_spans = columns.label in SPAN_COLUMNS and text is not None
    if label is None and can_have_spans and _is_accepted(table, index):
        label = []  # Prodigy leaves `spans` out where there are none
    tags = _tags(
        label,
        text,
        words=words,
        offsets=offsets,
        where=where,
        misaligned=misaligned,
    )
    # In Universal Dependencies, `im` stands beside its words `in` and `dem`, with the tag `_`.
    if tags and columns.label in ("upos", "xpos") and "_" in tags:
        words, tags = _without_contractions(words, tags)
        offsets = None
    return _TaggedRow(words, text, offsets, tags)


def _is_accepted(table: Table, index: int) -> bool:
    """Returns whether an annotator of Prodigy has accepted a row."""
    return "answer" in table.columns and table.columns["answer"][index] == "accept"


def _without_contractions(words: Sequence[str], tags: Sequence[str]) -> tuple[list[str], list[str]]:
    """Returns the words of a sentence without contractions, and their tags.

    The hub's Universal Dependencies have contractions beside their words, with the tag `_`: `im`
    `_`, `in` `ADP`, `dem` `DET`.
    """
    tagged = [(word, tag) for word, tag in zip(words, tags, strict=True) if tag != "_"]
    return [word for word, _ in tagged], [tag for _, tag in tagged]


def _text(value: Any, where: str, column: str) -> str:
    """Returns a cell that must be a text.

    Raises:
        DataError: It is something else.
    """
    if not isinstance(value, str):
        message = (
            f"{where}: column '{column}' holds {type(value).__name__} where a text is needed: "
            f"{value!r:.80}"
        )
        raise DataError(
            message, remedy="Name the column with the words or the text with `data.text_column=`."
        )
    return value


def _words(
    table: Table, columns: TaggedColumns, index: int, text: str | None, label: Any
) -> tuple[list[str], Offsets | None]:
    """Returns the words of a row, and the start and end of each in its text.

    Instead of the offsets it returns None if the row has no text, or if its words are not all of
    the text.

    Args:
        table: The file.
        columns: Which column is which. Without a column of words, the text is split.
        index: Number of the row.
        text: The text of the row, if it has one.
        label: Its tags or spans, as the file has them.

    Raises:
        DataError: The cell is no list of words, or words are not where their offsets say.
    """
    where = table.where(index)
    if columns.words is None:
        has_tag_per_word = isinstance(label, list) and label and isinstance(label[0], str)
        if has_tag_per_word:  # the tags were counted for words that spaces separate
            words = (text or "").split()
            return words, find_words(words, text or "")
        return split_tagged_words(text or "")
    value = table.columns[columns.words][index]
    if not isinstance(value, list | tuple):
        raise DataError(
            f"{where}: column '{columns.words}' holds {type(value).__name__} where a list of words "
            f"is needed: {value!r:.80}",
            remedy='A row is {"words": ["Anna", "sleeps"], "tags": ["B-PER", "O"]}.',
        )
    are_tokens = len(value) > 0 and all(
        isinstance(token, dict) and isinstance(token.get("text"), str) for token in value
    )
    if are_tokens:  # of Prodigy
        return _words_of_tokens(value, text, where)
    for word in value:
        if type(word) is not str:
            message = f"{where}: {word!r:.60} in the column '{columns.words}' is not a word"
            raise DataError(message, remedy="Words are texts.")
    words = list(value)
    if text is None:
        return words, None
    return words, find_words(words, text)


def _words_of_tokens(
    tokens: Sequence[Mapping[str, Any]], text: str | None, where: str
) -> tuple[list[str], Offsets | None]:
    """Returns the words of Prodigy's tokens, and start and end of each if all tokens have them.

    Args:
        tokens: `{"text": "Anna", "start": 0, "end": 4}`, ...
        text: The text of the row, or None.
        where: File and line.

    Raises:
        DataError: A token is not in the text where its offsets say.
    """
    words = [str(token["text"]) for token in tokens]
    offsets = [(token.get("start"), token.get("end")) for token in tokens]
    known_offsets = [
        (start, end) for start, end in offsets if type(start) is int and type(end) is int
    ]
    if text is None or len(known_offsets) < len(tokens):
        return words, None
    for word, (start, end) in zip(words, known_offsets, strict=True):
        require_surface(
            text,
            start,
            end,
            word,
            where,
        )
    return words, known_offsets


def _is_complete(values: Sequence[Any]) -> bool:
    """Returns whether no value is None."""
    return all(value is not None for value in values)


def _require_token_numbers(value: Any, span: tuple[int, int], offsets: Offsets, where: str) -> None:
    """Refuses a span of Prodigy whose `token_start` and `token_end` are not the words it covers.

    Args:
        value: The span as the file has it; others than Prodigy's have no token numbers.
        span: Its start and end in characters.
        offsets: Start and end of each word.
        where: File and line.

    Raises:
        DataError: The token numbers and the offsets name different words.
    """
    if not isinstance(value, Mapping):
        return
    first = value.get("token_start")
    last = value.get("token_end")
    if type(first) is not int or type(last) is not int:
        return
    start, end = span
    is_in_range = 0 <= first <= last < len(offsets)
    if is_in_range:
        starts_in_first = offsets[first][0] <= start < offsets[first][1]
        ends_in_last = offsets[last][0] < end <= offsets[last][1]
        if starts_in_first and ends_in_last:
            return
        counted = f"characters {offsets[first][0]} to {offsets[last][1]}"
    else:
        counted = f"not among its {len(offsets)}"
    raise DataError(
        f"{where}: the span {start} to {end} has the tokens {first} to {last}, which are {counted}",
        remedy="Export the rows again, or take `token_start` and `token_end` out if `start` and "
        "`end` are right.",
    )


def _tags(
    label: Any,
    text: str | None,
    words: list[str],
    offsets: Offsets | None,
    where: str,
    misaligned: Misaligned,
) -> list[str] | None:
    """Returns one tag per word; None if the row has no tags.

    Args:
        label: A list of tags, or of spans, as the file has it.
        text: The text of the row, in which spans count characters; None if it has none.
        words: The words of the row.
        offsets: Start and end of each word in the text, if they are known.
        where: File and line.
        misaligned: Gets spans that begin or end inside of words.

    Raises:
        DataError: Something else than a list, spans without a text, or more or fewer tags than
            words.
    """
    # An empty list may be a text without spans, or a row without tags. Only spans can be placed, so
    # they need the offsets of the words: without offsets it is a row without tags.
    has_empty_tags = not label and len(words) > 0 and offsets is None
    if label is None or has_empty_tags:
        return None
    if not isinstance(label, list | tuple):
        remedy = (
            'A row is {"words": [...], "tags": [...]} or {"text": "...", "spans": [{"start", '
            '"end", "label"}]}.'
        )
        raise DataError(
            f"{where}: the label is {label!r:.60}, where a list of tags or spans is needed",
            remedy=remedy,
        )
    if label:
        are_spans = not isinstance(label[0], str | int)
    else:  # a text with words and without spans; a text without words has no tags either
        are_spans = len(words) > 0
    if are_spans:
        return _tags_of_spans(
            label,
            text,
            offsets,
            where,
            misaligned,
        )
    tags = [str(tag) for tag in label if tag is not None and tag != ""]
    if len(tags) != len(words):
        n_words = count(len(words), "word")
        n_tags = count(len(tags), "tag")
        message = f"{where}: {n_words} and {n_tags}: {words[:8]}, {tags[:8]}"
        raise DataError(message, remedy="Every word needs a tag, O where there is nothing.")
    return tags


def _tags_of_spans(
    label: Sequence[Any],
    text: str | None,
    offsets: Offsets | None,
    where: str,
    misaligned: Misaligned,
) -> list[str]:
    """Returns one tag per word for a list of spans.

    Args:
        label: The spans, as the file has them.
        text: The text of the row, in which spans count characters; None if it has none.
        offsets: Start and end of each word in the text, if they are known.
        where: File and line.
        misaligned: Gets spans that begin or end inside of words.

    Raises:
        DataError: The text or the offsets are not known, or a span contradicts the text or the
            words that the file gives beside it.
    """
    if text is None or offsets is None:
        message = f"{where}: there are spans, but the words' places in the text are not known"
        raise DataError(
            message,
            remedy="Spans need the column `text`, with the words in their order.",
        )
    spans = [read_span(span, where) for span in label]
    for value, (start, end, _) in zip(label, spans, strict=True):
        require_surface(
            text,
            start,
            end,
            surface_of(value),
            where,
        )
        _require_token_numbers(value, (start, end), offsets, where)
    return tags_of_spans(
        spans,
        text,
        offsets,
        where,
        misaligned,
    )
