"""CoNLL column files and CoNLL-U, sentence by sentence.

    -DOCSTART- -X- -X- O            a line of any width: a document begins

    U.N.     NNP  I-NP  I-ORG       a line for each word, spaces or tabs between
    official NN   I-NP  O           a blank line ends a sentence

CoNLL-U (universaldependencies.org/format.html) has ten columns with tabs; words written together (`3-4`) and empty
nodes (`8.1`) are no words of the tagged text and are left out, `# newdoc` begins a document.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bertctl.config.recipe_sections import DataSection
from bertctl.data.reading import ReadOptions
from bertctl.errors import DataError, UsageError
from bertctl.words import did_you_mean

_UD_NAMES = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
_USUAL_NAMES = {1: ("word",), 2: ("word", "tag"), 3: ("word", "pos", "tag"), 4: ("word", "pos", "chunk", "ner")}
"""What columns can be called where a file names none; four are those of CoNLL-2003."""
_HEADER_NAMES = frozenset(
    (
        "word", "words", "token", "tokens", "form", "lemma", "pos", "upos", "xpos", "chunk", "label", "labels", "tag",
        "tags", "ner", "ner_tag", "ner_tags", "iob", "bio",
    )
)  # fmt: skip
_BLANKS = " \t\r\n"
_COMMENT = re.compile(r"#\s*(?:id|sent_id|text|newdoc)\b")
_TAG = re.compile(r"\s(?:O|[BIESLU]-\S+)\s*$")
_SPACES = re.compile(r"[ \t]+")


class Sentence(NamedTuple):
    """A sentence of a column file.

    Attributes:
        line: where its first word stands.
        document: number of its document, from 0; -1 before any has begun.
        words: as written.
        tags: one per word; None where the file has none.
        lines: all lines, comments too, and whether each is a word; only where a file is read in chunks, for answers
            that are written beside them.
    """

    line: int
    document: int
    words: list[str]
    tags: list[str] | None
    lines: Sequence[tuple[str, bool]] = ()


class _Line(NamedTuple):
    number: int
    text: str


@dataclass(frozen=True)
class ConllLayout:
    """Where words and tags stand.

    Attributes:
        tabs: whether columns are separated by single tabs; else by runs of spaces and tabs.
        names: of the columns, in their order.
        word: position of the words.
        tag: position of the tags, or None.
        ud: whether it is CoNLL-U.
    """

    tabs: bool
    names: tuple[str, ...]
    word: int
    tag: int | None
    ud: bool

    def fields(self, line: str) -> list[str]:
        """Returns the columns of a line."""
        return line.rstrip("\r\n").split("\t") if self.tabs else _SPACES.split(line.strip(_BLANKS))

    def sentence(self) -> str:
        """Returns what a person is told."""
        word = f"words from column {self.word} ({self.names[self.word]})"
        if self.tag is None:
            return f"{word}, no tags"
        return f"{word}, tags from column {self.tag} ({self.names[self.tag]}) of {len(self.names)}"


def conll_sentences(lines: Iterable[str], source: str, options: ReadOptions, *, ud: bool) -> Iterator[Sentence]:
    """Yields the sentences of a column file.

    Args:
        lines: with their ends, without a byte-order mark.
        source: the file, for messages.
        options: in their settings `text_column` and `label_column` are positions counted from 0 (negative ones from
            the end) or names; left out, the words stand in the first column (in the second after one that counts them)
            and the tags in the last; in CoNLL-U `form` and `upos`. `header` says whether the first line has names;
            where it is not set, a line of nothing but usual names has.
        ud: whether it is CoNLL-U.

    Raises:
        DataError: no such column, a line with more or fewer columns than the first, a word without a tag, no
            sentence at all; with file and line.
    """
    settings, tags_needed = options.settings, options.label_needed
    numbered = (_Line(number, text) for number, text in enumerate(lines, start=1))
    layout: ConllLayout | None = None
    names: tuple[str, ...] | None = _UD_NAMES if ud else None
    header: tuple[str, ...] = ()
    document = -1
    count = 0
    left_out = 0
    block: list[_Line] = []
    for line in itertools.chain(numbered, [_Line(0, "")]):
        if line.text.strip(_BLANKS) and not line.text.startswith("-DOCSTART-"):
            is_first = layout is None and names is None and not block and not ud
            if is_first and (settings.header or (settings.header is None and _has_usual_names(line))):
                names = header = tuple(_SPACES.split(line.text.strip(_BLANKS)))
                if settings.header is None:
                    options.listener.say(f"{source}: the first line is taken for the names of the columns")
            elif header and _repeats_names(line, header):
                repeated = _repeated_names(line, source)
                if options.skipped is None:
                    raise repeated
                options.skipped.errors.append(repeated)
            else:
                block.append(line)
            continue
        all_lines = block
        while not ud and _is_comment(block):
            block = block[1:]
            left_out += 1
        comments = [entry.text for entry in block if ud and entry.text.startswith("#")]
        block = [entry for entry in block if not (ud and entry.text.startswith("#"))]
        for comment in comments:
            names = _global_columns(comment) or names
            document += comment.startswith(("# newdoc", "#newdoc"))
        if block:
            if layout is None:
                layout = _layout(block, source, settings, names=names, ud=ud, tags_needed=tags_needed)
                options.listener.say(f"{source}: {layout.sentence()}")
            try:
                sentence = _sentence(block, layout, source, document, tags_needed=tags_needed)
            except DataError as error:
                if options.skipped is None:
                    raise
                options.skipped.errors.append(error)
            else:
                if sentence.words:
                    if not options.whole:
                        words = {entry.number for entry in block if not ud or entry.text.split("\t")[0].isdecimal()}
                        shown = [(entry.text.rstrip("\r\n"), entry.number in words) for entry in all_lines]
                        sentence = sentence._replace(lines=shown)
                    yield sentence
                    count += 1
            block = []
        document += line.text.startswith("-DOCSTART-")
    if left_out:
        options.listener.say(f"{source}: {left_out} lines that begin with # before a sentence are taken as comments")
    if not count:
        raise DataError(f"{source} has no sentences", remedy="Give a file with a word and its tag on each line.")


def _is_comment(block: Sequence[_Line]) -> bool:
    """Whether a sentence begins with a line such as `# id 7 domain=train`, not with the word `#`."""
    if len(block) < 2 or not block[0].text.startswith("#"):
        return False
    (_, text), (_, after) = block[:2]
    return len(text.split()) != len(after.split()) or (_COMMENT.match(text) is not None and not _TAG.search(text))


def _has_usual_names(line: _Line) -> bool:
    """Returns whether a line is a header, made of nothing but usual names of columns."""
    fields = _SPACES.split(line.text.strip(_BLANKS))
    return len(fields) > 1 and all(field.casefold() in _HEADER_NAMES for field in fields)


def _repeats_names(line: _Line, names: Sequence[str]) -> bool:
    """Returns whether a line has the names of the columns again."""
    fields = _SPACES.split(line.text.strip(_BLANKS))
    return [field.removeprefix("\ufeff").casefold() for field in fields] == [name.casefold() for name in names]


def _repeated_names(line: _Line, source: str) -> DataError:
    what = f"{source}:{line.number}: the names of the columns stand here again: {line.text.strip(_BLANKS)!r:.80}"
    return DataError(what, remedy="Take the line out: only the first file of several that are joined keeps it.")


def _global_columns(comment: str) -> tuple[str, ...] | None:
    """Returns the names that a file of CoNLL-U Plus gives its columns."""
    key, equals, value = comment.removeprefix("#").partition("=")
    return tuple(value.lower().split()) if equals and key.strip() == "global.columns" else None


def _layout(
    block: list[_Line], source: str, settings: DataSection, *, names: Sequence[str] | None, ud: bool, tags_needed: bool
) -> ConllLayout:
    """Returns where words and tags stand, by the first sentence."""
    first = block[0]
    tabs = ud or "\t" in first.text.strip(_BLANKS)
    width = len(ConllLayout(tabs, (), 0, None, ud).fields(first.text))
    where = f"{source}:{first.number}"
    if names is None:
        names = _USUAL_NAMES.get(width) or tuple(f"column{i}" for i in range(width))
    if len(names) != width:
        raise _wrong_width(where, width, names, first.text)
    named = settings.text_column or ("form" if ud else None)
    if named is not None:
        word = _position(named, names, where, "--text-column")
    else:
        counted = [ConllLayout(tabs, (), 0, None, ud).fields(line.text)[0] for line in block]
        is_count = width > 2 and counted == [str(i) for i in range(1, len(block) + 1)] and len(block) > 1
        word = 1 if is_count else 0
    tag = width - 1 if width > 1 else None
    tagged = settings.label_column or ("upos" if ud else None)
    if tagged is not None:
        asked = tags_needed or _place(tagged, names) is not None
        tag = _position(tagged, names, where, "--label-column") if asked else None
    if tag == word:
        tag = None
    if tag is None and tags_needed:
        remedy = "Each line needs a word and its tag, with a tab or spaces between; blank lines part sentences."
        raise DataError(f"{where}: there are words but no tags: {first.text.strip(_BLANKS)[:80]!r}", remedy=remedy)
    return ConllLayout(tabs, tuple(names), word, tag, ud)


def _place(column: str, names: Sequence[str]) -> int | None:
    """Returns a column's place from 0 on; None where there is none of this number or name."""
    number = int(column) if column.removeprefix("-").isdecimal() else None
    if number is not None and -len(names) <= number < len(names):
        return number % len(names)
    lowered = [name.lower() for name in names]
    return lowered.index(column.lower()) if column.lower() in lowered else None


def _position(column: str, names: Sequence[str], where: str, option: str) -> int:
    """Returns a column's place from 0 on.

    Raises:
        UsageError: there is none of this number or name.
    """
    if (place := _place(column, names)) is not None:
        return place
    hint = did_you_mean(column, names)
    shown = ", ".join(f"{i} {name}" for i, name in enumerate(names))
    what = f"{where}: there is no column '{column}'" + (f": {hint}" if hint else f" among {len(names)}")
    remedy = f"Columns there: {shown}. Name one by its number from 0 on, or by its name: {option} NUMBER."
    raise UsageError(what, remedy=remedy)


def _sentence(
    block: Sequence[_Line], layout: ConllLayout, source: str, document: int, *, tags_needed: bool
) -> Sentence:
    words: list[str] = []
    tags: list[str] = []
    for number, text in block:
        fields = layout.fields(text)
        if len(fields) != len(layout.names):
            raise _wrong_width(f"{source}:{number}", len(fields), layout.names, text)
        if layout.ud and not fields[0].isdecimal():  # 3-4 is a contraction, 8.1 a word that is not in the text
            continue
        if not fields[layout.word].strip(" "):
            what = f"{source}:{number}: there is no word: {text.rstrip()!r:.80}"
            raise DataError(what, remedy="Write the word, or take the line out; blank lines part sentences.")
        words.append(fields[layout.word])
        if layout.tag is not None:
            tag = fields[layout.tag].strip(" ")
            if not tag or (layout.ud and tag == "_"):
                if tags_needed:
                    raise DataError(
                        f"{source}:{number}: the word {fields[layout.word]!r} has no tag in the column "
                        f"'{layout.names[layout.tag]}'",
                        remedy="Every word of a labelled file needs a tag; is --label-column the right one?",
                    )
                tag = ""
            tags.append(tag)
    has_tags = layout.tag is not None and all(tags)
    return Sentence(block[0].number, document, words, tags if has_tags else None)


def _wrong_width(where: str, width: int, names: Sequence[str], text: str) -> DataError:
    found = "1 column" if width == 1 else f"{width} columns"
    return DataError(
        f"{where}: {found} where the file has {len(names)}: {text.strip(_BLANKS)[:80]!r}",
        remedy="Every line is a word with the same columns; blank lines part sentences. Words with a space in them "
        "need tabs between the columns.",
    )
