"""CoNLL column files and CoNLL-U, sentence by sentence.

    -DOCSTART- -X- -X- O            a line of any width: a document begins

    U.N.     NNP  I-NP  I-ORG       a line for each word, spaces or tabs between
    official NN   I-NP  O           a blank line ends a sentence

CoNLL-U (universaldependencies.org/format.html) has ten columns with tabs; words written together
(`3-4`) and empty nodes (`8.1`) are no words of the tagged text and are left out, `# newdoc` begins
a document. Its tags are those of UPOS, or entities in MISC (`NER=B-PER`).

Entities in brackets, as OntoNotes has them (`(PERSON*`, `*`, `*)`), are read as IOB2; files of
CoNLL-2012, which begin with `#begin document`, have theirs in column 10. spaCy's `.iob` has a
sentence on each line: `Anna|B-PER sleeps|O`.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from bertctl.config.recipe_sections import DataSection
from bertctl.data.annotations.surface import same_words
from bertctl.data.read_options import ReadOptions
from bertctl.errors import DataError, UsageError
from bertctl.words import did_you_mean, shorten

_UD_NAMES = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
_USUAL_NAMES = {
    1: ("word",),
    2: ("word", "tag"),
    3: ("word", "pos", "tag"),
    4: ("word", "pos", "chunk", "ner"),
}
"""What columns can be called where a file names none; four are those of CoNLL-2003."""
ENTITY_KEY = "NER"
"""Key of entities in MISC of CoNLL-U, as `predict --format conllu` and stanza write them."""
_HEADER_NAMES = frozenset(
    (
        "word", "words", "token", "tokens", "form", "lemma", "pos", "upos", "xpos", "chunk",
        "label", "labels", "tag", "tags", "ner", "ner_tag", "ner_tags", "iob", "bio",
    )
)  # fmt: skip
_BLANKS = " \t\r\n"
_COMMENT = re.compile(r"#\s*(?:id|sent_id|text|newdoc)\b")
_TAG = re.compile(r"\s(?:O|[BIESLU]-\S+)\s*$")
_PIPED = re.compile(r"\S+?(?:\|[^\s|]+)?\|(?:O|[BIESLU]-\S+)")
_BRACKETS = re.compile(r"(?:\([^()*\s]+)*\*?\)*(?<=[*)])")
_ONTONOTES_DOCUMENT = ("#begin document", "#end document")
_ONTONOTES_WORD, _ONTONOTES_TAG = 3, 10
"""Columns of CoNLL-2012; behind them as many as the sentence has verbs."""
_SPACES = re.compile(r"[ \t]+")


def kinds_of_tags(lines: Iterable[str]) -> set[str]:
    """Returns which tags lines of CoNLL-U have: `upos`, and `NER` for entities in MISC."""
    kinds = set()
    for line in lines:
        fields = line.rstrip("\r\n").split("\t")
        if len(fields) != len(_UD_NAMES) or not fields[0].isdecimal():
            continue
        if fields[_UD_NAMES.index("upos")] != "_":
            kinds.add("upos")
        if any(
            pair.casefold().startswith(f"{ENTITY_KEY.casefold()}=")
            for pair in fields[-1].split("|")
        ):
            kinds.add(ENTITY_KEY)
        if len(kinds) == 2:
            break
    return kinds


class Sentence(NamedTuple):
    """A sentence of a column file.

    Attributes:
        line: where its first word stands.
        document: number of its document, from 0; -1 before any has begun.
        words: as written.
        tags: one per word; None where the file has none.
        lines: all lines, comments too, and whether each is a word; only where a file is read in
            chunks, for answers that are written beside them, and where the tag is the last column,
            or it is CoNLL-U.
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
        has_more: whether lines may have more columns, as those of CoNLL-2012.
        misc_key: key of the tags in the tags' column, which is MISC of CoNLL-U; empty where a tag
            is all of the column.
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
        if self.tabs:
            return line.rstrip("\r\n").split("\t")
        return _SPACES.split(line.strip(_BLANKS))

    def sentence(self) -> str:
        """Returns what a person is told."""
        word = f"words from column {self.word} ({self.names[self.word]})"
        if self.tag is None:
            return f"{word}, no tags"
        if self.misc_key:
            return (
                f"{word}, tags from {self.misc_key}= in column {self.tag} ({self.names[self.tag]})"
            )
        return f"{word}, tags from column {self.tag} ({self.names[self.tag]}) of {len(self.names)}"

    def tag_of(self, fields: Sequence[str]) -> str:
        """Returns the tag of a line's columns; empty where there is none."""
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
        return "O"


def conll_sentences(
    lines: Iterable[str], source: str, options: ReadOptions, *, ud: bool
) -> Iterator[Sentence]:
    """Yields the sentences of a column file.

    Args:
        lines: with their ends, without a byte-order mark.
        source: the file, for messages.
        options: in their settings `text_column` and `label_column` are positions counted from 0
            (negative ones from the end) or names; left out, the words stand in the first column (in
            the second after one that counts them) and the tags in the last; in CoNLL-U `form` and
            `upos`. `header` says whether the first line has names; where it is not set, a line of
            nothing but usual names has.
        ud: whether it is CoNLL-U.

    Raises:
        DataError: no such column, a line with more or fewer columns than the first, a word without
            a tag, no sentence at all; with file and line.
    """
    settings = options.settings
    tags_needed = options.label_needed
    numbered = (_Line(number, text) for number, text in enumerate(lines, start=1))
    layout: ConllLayout | None = None
    names: tuple[str, ...] | None = _UD_NAMES if ud else None
    header: tuple[str, ...] = ()
    document = -1
    count = 0
    left_out = 0
    block: list[_Line] = []
    is_ontonotes = False
    for line in itertools.chain(numbered, [_Line(0, "")]):
        if not ud and line.text.startswith(_ONTONOTES_DOCUMENT):
            is_ontonotes = True
            document += line.text.startswith(_ONTONOTES_DOCUMENT[0])
            line = _Line(line.number, "")  # ends a sentence, too
        if line.text.strip(_BLANKS) and not line.text.startswith("-DOCSTART-"):
            is_first = layout is None and names is None and not block and not ud
            if is_first and (
                settings.header or (settings.header is None and _has_usual_names(line))
            ):
                names = header = tuple(_SPACES.split(line.text.strip(_BLANKS)))
                if settings.header is None:
                    options.listener.say(
                        f"{source}: the first line is taken for the names of the columns"
                    )
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
                if is_ontonotes:
                    columns = {
                        "text_column": str(_ONTONOTES_WORD),
                        "label_column": str(_ONTONOTES_TAG),
                    }
                    from_settings = settings.model_dump(include=set(columns), exclude_none=True)
                    settings = settings.model_copy(update={**columns, **from_settings})
                layout = _layout(
                    block,
                    source,
                    settings,
                    names=names,
                    ud=ud,
                    tags_needed=tags_needed,
                )
                layout = replace(layout, has_more=is_ontonotes)
                options.listener.say(f"{source}: {layout.sentence()}")
            try:
                sentence = _sentence(
                    block,
                    layout,
                    source,
                    document,
                    tags_needed=tags_needed,
                )
                if ud and tags_needed:
                    _require_whole(block, comments, source)
            except DataError as error:
                if options.skipped is None:
                    raise
                options.skipped.errors.append(error)
            else:
                if sentence.words:
                    tag_is_last = (
                        layout.tag in (None, len(layout.names) - 1) and not layout.has_more
                    )
                    if not options.whole and (ud or tag_is_last):
                        words = {
                            entry.number
                            for entry in block
                            if not ud or entry.text.split("\t")[0].isdecimal()
                        }
                        without_ids = [
                            (entry.text.rstrip("\r\n"), entry.number in words)
                            for entry in all_lines
                        ]
                        sentence = sentence._replace(lines=without_ids)
                    yield sentence
                    count += 1
            block = []
        document += line.text.startswith("-DOCSTART-")
    if left_out:
        options.listener.say(
            f"{source}: {left_out} lines that begin with # before a sentence are taken as comments"
        )
    if not count:
        raise DataError(
            f"{source} has no sentences", remedy="Give a file with a word and its tag on each line."
        )


def _is_comment(block: Sequence[_Line]) -> bool:
    """Whether a sentence begins with a line such as `# id 7 domain=train`.

    The word `#` alone is no comment.
    """
    if len(block) < 2 or not block[0].text.startswith("#"):
        return False
    (_, text), (_, after) = block[:2]
    return len(text.split()) != len(after.split()) or (
        _COMMENT.match(text) is not None and not _TAG.search(text)
    )


def _has_usual_names(line: _Line) -> bool:
    """Returns whether a line is a header, made of nothing but usual names of columns."""
    fields = _SPACES.split(line.text.strip(_BLANKS))
    return len(fields) > 1 and all(field.casefold() in _HEADER_NAMES for field in fields)


def _repeats_names(line: _Line, names: Sequence[str]) -> bool:
    """Returns whether a line has the names of the columns again."""
    fields = _SPACES.split(line.text.strip(_BLANKS))
    return [field.removeprefix("\ufeff").casefold() for field in fields] == [
        name.casefold() for name in names
    ]


def _repeated_names(line: _Line, source: str) -> DataError:
    message = (
        f"{source}:{line.number}: the names of the columns stand here again: "
        f"{line.text.strip(_BLANKS)!r:.80}"
    )
    return DataError(
        message,
        remedy="Take the line out: only the first file of several that are joined keeps it.",
    )


def _global_columns(comment: str) -> tuple[str, ...] | None:
    """Returns the names that a file of CoNLL-U Plus gives its columns."""
    key, equals, value = comment.removeprefix("#").partition("=")
    if equals and key.strip() == "global.columns":
        return tuple(value.lower().split())
    return None


def _layout(
    block: list[_Line],
    source: str,
    settings: DataSection,
    *,
    names: Sequence[str] | None,
    ud: bool,
    tags_needed: bool,
) -> ConllLayout:
    """Returns where words and tags stand, by the first sentence."""
    first = block[0]
    tabs = ud or "\t" in first.text.strip(_BLANKS)
    width = len(
        ConllLayout(
            tabs,
            names=(),
            word=0,
            tag=None,
            ud=ud,
        ).fields(first.text)
    )
    where = f"{source}:{first.number}"
    if names is None:
        names = _USUAL_NAMES.get(width) or tuple(f"column{i}" for i in range(width))
    if len(names) != width:
        raise _wrong_width(where, width, names, first.text)
    word_column = settings.text_column or ("form" if ud else None)
    if word_column is not None:
        word = _position(word_column, names, where, "`data.text_column=`")
    else:
        counted = [
            ConllLayout(
                tabs,
                names=(),
                word=0,
                tag=None,
                ud=ud,
            ).fields(line.text)[0]
            for line in block
        ]
        is_count = (
            width > 2 and counted == [str(i) for i in range(1, len(block) + 1)] and len(block) > 1
        )
        word = 1 if is_count else 0
    tag = width - 1 if width > 1 else None
    tagged = settings.label_column or ("upos" if ud else None)
    misc_key = ""
    if (
        ud
        and tagged is not None
        and tagged.casefold() == ENTITY_KEY.casefold()
        and _place(tagged, names) is None
    ):
        misc_key = ENTITY_KEY
        tagged = "misc"
    if tagged is not None:
        has_tags = tags_needed or _place(tagged, names) is not None
        if has_tags:
            tag = _position(tagged, names, where, "`data.label_column=`")
        else:
            tag = None
    if tag == word:
        tag = None
    if tag is None and tags_needed:
        remedy = (
            "Each line needs a word and its tag, with a tab or spaces between; blank lines part "
            "sentences."
        )
        raise DataError(
            f"{where}: there are words but no tags: {first.text.strip(_BLANKS)[:80]!r}",
            remedy=remedy,
        )
    return ConllLayout(
        tabs,
        tuple(names),
        word,
        tag,
        ud,
        misc_key,
    )


def _place(column: str, names: Sequence[str]) -> int | None:
    """Returns a column's place from 0 on; None where there is none of this number or name."""
    if column.removeprefix("-").isdecimal():
        number = int(column)
    else:
        number = None
    if number is not None and -len(names) <= number < len(names):
        return number % len(names)
    lowered = [name.lower() for name in names]
    if column.lower() in lowered:
        return lowered.index(column.lower())
    return None


def _position(column: str, names: Sequence[str], where: str, option: str) -> int:
    """Returns a column's place from 0 on.

    Raises:
        UsageError: there is none of this number or name.
    """
    place = _place(column, names)
    if place is not None:
        return place
    hint = did_you_mean(column, names)
    numbered_names = ", ".join(f"{i} {name}" for i, name in enumerate(names))
    message = f"{where}: no column '{column}'" + (f": {hint}" if hint else f" among {len(names)}")
    remedy = (
        f"Columns there: {numbered_names}. Name one by its number from 0 on, or by its name: "
        f"{option} "
        "NUMBER."
    )
    raise UsageError(message, remedy=remedy)


def _sentence(
    block: Sequence[_Line], layout: ConllLayout, source: str, document: int, *, tags_needed: bool
) -> Sentence:
    words: list[str] = []
    tags: list[str] = []
    for number, text in block:
        fields = layout.fields(text)
        is_too_short = len(fields) <= max(layout.word, layout.tag or 0)
        if is_too_short if layout.has_more else len(fields) != len(layout.names):
            raise _wrong_width(f"{source}:{number}", len(fields), layout.names, text)
        # `3-4` is a contraction, `8.1` a word that is not in the text.
        if layout.ud and not fields[0].isdecimal():
            continue
        if not fields[layout.word].strip(" "):
            message = f"{source}:{number}: no word: {text.rstrip()!r:.80}"
            raise DataError(
                message, remedy="Write the word, or take the line out; blank lines part sentences."
            )
        words.append(fields[layout.word])
        if layout.tag is not None:
            tag = layout.tag_of(fields)
            if not tag and tags_needed:
                raise DataError(
                    f"{source}:{number}: the word {fields[layout.word]!r} has no tag in the column "
                    f"'{layout.names[layout.tag]}'",
                    remedy="Every word of a labelled file needs a tag; is "
                    "`data.label_column=` the right "
                    "one?",
                )
            tags.append(tag)
    has_tags = layout.tag is not None and all(tags)
    if (
        has_tags
        and any("*" in tag or "(" in tag for tag in tags)
        and all(map(_BRACKETS.fullmatch, tags))
    ):
        tags = _tags_of_brackets(tags, f"{source}:{block[0].number}")
    return Sentence(block[0].number, document, words, tags if has_tags else None)


def _tags_of_brackets(tags: Sequence[str], where: str) -> list[str]:
    """Returns entities in brackets (`(PERSON*`, `*)`) as IOB2.

    Raises:
        DataError: brackets in brackets, or one that is not closed.
    """
    iob2_tags: list[str] = []
    kind = ""
    for tag in tags:
        opened = tag.count("(")
        if opened and (kind or opened > 1):
            message = (
                f"{where}: entities in brackets stand inside each other: {' '.join(tags)[:80]}"
            )
            raise DataError(
                message, remedy="A word has one tag: keep the outer brackets, or the inner ones."
            )
        if opened:
            kind = tag.strip("()*")
            iob2_tags.append(f"B-{kind}")
        else:
            iob2_tags.append(f"I-{kind}" if kind else "O")
        if tag.endswith(")"):
            kind = ""
    if kind:
        raise DataError(
            f"{where}: the bracket of {kind} is not closed",
            remedy="Entities end with their sentence.",
        )
    return iob2_tags


def piped_sentences(lines: Iterable[str], source: str) -> Iterator[Sentence]:
    """Yields the sentences of spaCy's `.iob`, one per line.

    Each word has its tag, or its part of speech and its tag.

    Raises:
        DataError: a word with more or fewer parts than the first.
    """
    width = 0
    count = 0
    for number, line in enumerate(lines, start=1):
        words = [item.rsplit("|", max(width - 1, 0) or 2) for item in line.split()]
        if not words:
            continue
        width = width or len(words[0])
        strange = next((parts for parts in words if len(parts) != width or not all(parts)), None)
        if strange is not None:
            message = (
                f"{source}:{number}: {'|'.join(strange)!r:.80} has not {width} parts, as the first "
                "word has"
            )
            raise DataError(
                message, remedy="Each word is WORD|TAG, or WORD|POS|TAG, with blanks between."
            )
        yield Sentence(number, -1, [parts[0] for parts in words], [parts[-1] for parts in words])
        count += 1
    if not count:
        raise DataError(
            f"{source} has no sentences", remedy="Give a file with a sentence on each line."
        )


def are_piped(lines: Iterable[str]) -> bool:
    """Whether lines are sentences of words with their tags behind a bar."""
    words: list[str] = []
    for line in lines:
        if not line.startswith("-DOCSTART-"):
            words += line.split()
    return bool(words) and all(map(_PIPED.fullmatch, words))


def _require_whole(block: Sequence[_Line], comments: Sequence[str], source: str) -> None:
    """Refuses a sentence of CoNLL-U whose words are not those of its `# text`.

    It also refuses numbers that leave a word out.

    Raises:
        DataError: with file and line.
    """
    numbered = 0
    parts: list[str] = []
    written_together = 0
    for number, text in block:
        fields = text.rstrip("\r\n").split("\t")
        first, hyphen, last = fields[0].partition("-")
        if hyphen and first.isdecimal() and last.isdecimal():
            parts.append(fields[1])
            written_together = int(last)
        if not fields[0].isdecimal():
            continue
        numbered += 1
        if int(fields[0]) != numbered:
            message = (
                f"{source}:{number}: the word {fields[1]!r} has the number {fields[0]}, where "
                f"{numbered} is next"
            )
            raise DataError(
                message, remedy="Words are numbered from 1; a line may be missing or repeated."
            )
        if numbered > written_together:
            parts.append(fields[1])

    for comment in comments:
        key, _, text = comment.removeprefix("#").partition("=")
        if key.strip() == "text" and not same_words("".join(parts), text):
            raise DataError(
                f"{source}:{block[0].number}: '# text' is {shorten(text.strip())!r}, its words are "
                f"{shorten(' '.join(parts))!r}",
                remedy="Correct the comment or the words; without the comment nothing is compared.",
            )


def _wrong_width(where: str, width: int, names: Sequence[str], text: str) -> DataError:
    if width == 1:
        columns_there = "1 column"
    else:
        columns_there = f"{width} columns"
    return DataError(
        f"{where}: {columns_there} where the file has {len(names)}: {text.strip(_BLANKS)[:80]!r}",
        remedy="Every line is a word with the same columns; blank lines part sentences. Words with "
        "a space in them "
        "need tabs between the columns.",
    )
