"""Where words and tags are in the lines of a CoNLL column file.

The settings of a recipe say it, or else the file's first sentence.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bertctl.config.recipe_sections import DataSection
from bertctl.errors import DataError, UsageError
from bertctl.words import did_you_mean

UD_NAMES = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
_USUAL_NAMES = {
    1: ("word",),
    2: ("word", "tag"),
    3: ("word", "pos", "tag"),
    4: ("word", "pos", "chunk", "ner"),
}
"""Number of columns -> their names if the file has none; four are the columns of CoNLL-2003."""
ENTITY_KEY = "NER"
"""Key of entities in MISC of CoNLL-U, as `predict --format conllu` and stanza write them."""
BLANKS = " \t\r\n"
"""Characters around a line that do not count."""
_SPACES = re.compile(r"[ \t]+")


class Line(NamedTuple):
    """A line of a file, with its number, counted from 1."""

    number: int
    text: str


@dataclass(frozen=True)
class ConllLayout:
    """How the lines of a CoNLL file are written: their columns, and which have words and tags.

    Attributes:
        tabs: Whether columns are separated by single tabs; else by runs of spaces and tabs.
        names: Names of the columns, in their order.
        word: Position of the column of words.
        tag: Position of the column of tags, or None.
        ud: Whether the file is CoNLL-U.
        has_more: Whether lines may have further columns, as in CoNLL-2012.
        misc_key: Key of the tags in the column MISC of CoNLL-U, such as `NER`; empty if the tags
            are in a column of their own.
    """

    tabs: bool
    names: tuple[str, ...]
    word: int
    tag: int | None
    ud: bool
    misc_key: str = ""
    has_more: bool = False

    def fields(self, line: str) -> list[str]:
        """Returns the columns of a line."""
        return split_columns(line, tabs=self.tabs)

    def sentence(self) -> str:
        """Returns the layout in words: "words from column 0 (word), tags from column 1 (ner) of 2".

        It is what the listener gets.
        """
        word = f"words from column {self.word} ({self.names[self.word]})"
        if self.tag is None:
            return f"{word}, no tags"
        if self.misc_key:
            return (
                f"{word}, tags from {self.misc_key}= in column {self.tag} ({self.names[self.tag]})"
            )
        return f"{word}, tags from column {self.tag} ({self.names[self.tag]}) of {len(self.names)}"

    def tag_of(self, fields: Sequence[str]) -> str:
        """Returns the tag of a line's columns; empty where there is none.

        In MISC of CoNLL-U it is the value of a key: `SpaceAfter=No|NER=B-PER` -> `B-PER`.
        """
        if self.tag is None:
            return ""
        cell = fields[self.tag].strip(" ")
        if not self.misc_key:
            if self.ud and cell == "_":
                return ""
            return cell
        for pair in cell.split("|"):
            key, equals, value = pair.partition("=")
            if equals and key.strip().casefold() == self.misc_key.casefold():
                return value.strip()
        return "O"  # words outside of entities need no key in MISC


def split_columns(line: str, *, tabs: bool) -> list[str]:
    """Returns the columns of a line, parted by single tabs or by runs of spaces and tabs."""
    if tabs:
        return line.rstrip("\r\n").split("\t")
    return _SPACES.split(line.strip(BLANKS))


def find_layout(
    block: list[Line],
    source: str,
    settings: DataSection,
    *,
    names: Sequence[str] | None,
    ud: bool,
    tags_needed: bool,
) -> ConllLayout:
    """Returns which columns have words and tags, by the settings or else by the first sentence.

    Args:
        block: Lines of the first sentence, without comments.
        source: Name of the file in messages.
        settings: `text_column` and `label_column` are positions or names of columns, or None.
        names: Names of the columns if the file has them.
        ud: Whether the file is CoNLL-U.
        tags_needed: Whether a file without tags is refused.

    Raises:
        DataError: Another number of columns than of names, or no tags where they are needed.
        UsageError: A column of the settings does not exist.
    """
    first_line = block[0]
    where = f"{source}:{first_line.number}"
    tabs = ud or "\t" in first_line.text.strip(BLANKS)
    width = len(split_columns(first_line.text, tabs=tabs))
    if names is None:
        names = _USUAL_NAMES.get(width) or tuple(f"column{i}" for i in range(width))
    if len(names) != width:
        raise wrong_width_error(where, width, names, first_line.text)

    word_column = settings.text_column or ("form" if ud else None)
    if word_column is not None:
        word = _require_position(word_column, names, where, "`data.text_column=`")
    else:
        # A first column of 1, 2, 3 ... counts the words, which then are the second column.
        first_column = [split_columns(line.text, tabs=tabs)[0] for line in block]
        counting = [str(i) for i in range(1, len(block) + 1)]
        is_count = width > 2 and len(block) > 1 and first_column == counting
        word = 1 if is_count else 0

    tag, misc_key = _tag_column(settings, names, where, ud=ud, tags_needed=tags_needed)
    if tag == word:  # the last column has the words, so no column has tags
        tag = None
    if tag is None and tags_needed:
        remedy = (
            "Each line needs a word and its tag, with a tab or spaces between; blank lines part "
            "sentences."
        )
        raise DataError(
            f"{where}: there are words but no tags: {first_line.text.strip(BLANKS)[:80]!r}",
            remedy=remedy,
        )
    return ConllLayout(
        tabs=tabs,
        names=tuple(names),
        word=word,
        tag=tag,
        ud=ud,
        misc_key=misc_key,
    )


def _tag_column(
    settings: DataSection, names: Sequence[str], where: str, *, ud: bool, tags_needed: bool
) -> tuple[int | None, str]:
    """Returns the position of the tags, and their key in that column (`NER` in MISC, else empty).

    Without `data.label_column` the tags are `upos` in CoNLL-U, and the last column elsewhere. The
    position is None if no column has tags.

    Args:
        settings: `label_column` is the position or name of the column, or None.
        names: Names of the columns.
        where: File and line, for messages.
        ud: Whether the file is CoNLL-U.
        tags_needed: Whether a file without tags is refused.

    Raises:
        UsageError: The column does not exist, and tags are needed.
    """
    column = settings.label_column or ("upos" if ud else None)
    if column is None:
        last = len(names) - 1
        if last == 0:  # the only column has the words
            return None, ""
        return last, ""

    misc_key = ""
    is_entity_key = ud and column.casefold() == ENTITY_KEY.casefold()
    # A file of CoNLL-U Plus may have a column of this name.
    if is_entity_key and _find_position(column, names) is None:
        misc_key = ENTITY_KEY
        column = "misc"
    if tags_needed:
        return _require_position(column, names, where, "`data.label_column=`"), misc_key
    return _find_position(column, names), misc_key


def _find_position(column: str, names: Sequence[str]) -> int | None:
    """Returns the position of a column by its number or name; None if it does not exist.

    In a file of three columns `-1` is the last one, at position 2. A number that is no position may
    be a name, such as `2019`.
    """
    if column.removeprefix("-").isdecimal():
        number = int(column)
        if -len(names) <= number < len(names):
            return number % len(names)  # also counts negative numbers from the end
    lowered = [name.lower() for name in names]
    if column.lower() in lowered:
        return lowered.index(column.lower())
    return None


def _require_position(column: str, names: Sequence[str], where: str, option: str) -> int:
    """Returns the position of a column by its number or name.

    Args:
        column: The number or name.
        names: Names of the columns.
        where: File and line, for messages.
        option: The option that gave the column, for the remedy: "`data.text_column=`".

    Raises:
        UsageError: No column has this number or name.
    """
    position = _find_position(column, names)
    if position is not None:
        return position
    hint = did_you_mean(column, names)
    numbered_names = ", ".join(f"{i} {name}" for i, name in enumerate(names))
    message = f"{where}: no column '{column}'" + (f": {hint}" if hint else f" among {len(names)}")
    remedy = (
        f"Columns there: {numbered_names}. Name one by its number from 0 on, or by its name: "
        f"{option} NUMBER."
    )
    raise UsageError(message, remedy=remedy)


def wrong_width_error(where: str, width: int, names: Sequence[str], text: str) -> DataError:
    """Returns the error for a line with more or fewer columns than the file's first one.

    Args:
        where: File and line.
        width: Number of the line's columns.
        names: Names of the file's columns.
        text: The line.
    """
    if width == 1:
        columns_there = "1 column"
    else:
        columns_there = f"{width} columns"
    return DataError(
        f"{where}: {columns_there} where the file has {len(names)}: {text.strip(BLANKS)[:80]!r}",
        remedy="Every line is a word with the same columns; blank lines part sentences. Words with "
        "a space in them need tabs between the columns.",
    )
