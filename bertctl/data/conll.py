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
from dataclasses import replace
from typing import NamedTuple

from bertctl.data.annotations.surface import same_words
from bertctl.data.conll_layout import (
    BLANKS,
    ENTITY_KEY,
    UD_NAMES,
    ConllLayout,
    Line,
    find_layout,
    split_columns,
    wrong_width_error,
)
from bertctl.data.read_options import ReadOptions
from bertctl.errors import DataError
from bertctl.words import shorten

_HEADER_NAMES = frozenset(
    (
        "word", "words", "token", "tokens", "form", "lemma", "pos", "upos", "xpos", "chunk",
        "label", "labels", "tag", "tags", "ner", "ner_tag", "ner_tags", "iob", "bio",
    )
)  # fmt: skip
_COMMENT = re.compile(r"#\s*(?:id|sent_id|text|newdoc)\b")
_TAG = re.compile(r"\s(?:O|[BIESLU]-\S+)\s*$")
_PIPED = re.compile(r"\S+?(?:\|[^\s|]+)?\|(?:O|[BIESLU]-\S+)")
_BRACKETS = re.compile(r"(?:\([^()*\s]+)*\*?\)*(?<=[*)])")
_ONTONOTES_DOCUMENT = ("#begin document", "#end document")
_ONTONOTES_WORD, _ONTONOTES_TAG = 3, 10
"""Columns of CoNLL-2012; behind them as many as the sentence has verbs."""


def kinds_of_tags(lines: Iterable[str]) -> set[str]:
    """Returns which tags lines of CoNLL-U have: `upos`, and `NER` for entities in MISC."""
    kinds = set()
    entity_key = f"{ENTITY_KEY.casefold()}="
    for line in lines:
        fields = line.rstrip("\r\n").split("\t")
        is_word = len(fields) == len(UD_NAMES) and fields[0].isdecimal()
        if not is_word:
            continue
        if fields[UD_NAMES.index("upos")] != "_":
            kinds.add("upos")
        if any(pair.casefold().startswith(entity_key) for pair in fields[-1].split("|")):
            kinds.add(ENTITY_KEY)
        if len(kinds) == 2:  # both are known, so the rest of the file need not be read
            break
    return kinds


class Sentence(NamedTuple):
    """A sentence of a column file.

    Attributes:
        line: Number of the line with its first word.
        document: Number of its document, from 0; -1 before any has begun.
        words: The words as the file has them.
        tags: One per word; None where the file has none.
        lines: All its lines, with comments, and whether each is a word: `("Anna B-PER", True)`.
            Predictions are written into them. They are there only if the file is read in chunks,
            and is CoNLL-U or has its tags, if any, in the last column.
    """

    line: int
    document: int
    words: list[str]
    tags: list[str] | None
    lines: Sequence[tuple[str, bool]] = ()


def conll_sentences(
    lines: Iterable[str], source: str, options: ReadOptions, *, ud: bool
) -> Iterator[Sentence]:
    """Yields the sentences of a column file.

    Args:
        lines: The lines with their ends, without a byte-order mark.
        source: Name of the file in messages.
        options: In their settings, `text_column` and `label_column` are names of columns or
            positions, counted from 0 or, if negative, from the end. Without them, words are in the
            first column (or the second if the first one counts the words) and tags in the last; in
            CoNLL-U they are `form` and `upos`. `header` says whether the first line has the names
            of the columns. If it is not set, a line of nothing but usual names is a header.
        ud: Whether the file is CoNLL-U.

    Raises:
        DataError: A line has more or fewer columns than the first, a word has no tag, or the file
            has no sentence; with file and line.
        UsageError: A column of the settings does not exist.
    """
    reader = _SentenceReader(source, options, ud=ud)
    numbered = (Line(number, text) for number, text in enumerate(lines, start=1))
    last_blank = Line(0, "")  # ends the last sentence
    n_sentences = 0
    for line in itertools.chain(numbered, [last_blank]):
        sentence = reader.add(line)
        if sentence is not None:
            yield sentence
            n_sentences += 1

    if reader.n_comments:
        options.listener.say(
            f"{source}: {reader.n_comments} lines that begin with # before a sentence are taken as "
            "comments"
        )
    if not n_sentences:
        raise DataError(
            f"{source} has no sentences", remedy="Give a file with a word and its tag on each line."
        )


class _SentenceReader:
    """Collects the lines of a column file until a sentence is complete.

    Args:
        source: The file, for messages.
        options: As of `conll_sentences`.
        ud: Whether it is CoNLL-U.

    Attributes:
        n_comments: Lines taken as comments so far, in files that are not CoNLL-U.
        _column_names: Names of the columns, by the format, the header or a comment; else None.
        _header_names: The same if the first line has them, to recognize it when it is repeated.
        _layout: Where words and tags are. The first sentence decides it.
        _is_ontonotes: Whether `#begin document` has been read, as in files of CoNLL-2012.
        _document_number: Number of the document that has begun, from 0; -1 before the first one.
        _pending_lines: Lines of the sentence that is not complete yet.
    """

    def __init__(self, source: str, options: ReadOptions, *, ud: bool) -> None:
        self._source = source
        self._options = options
        self._ud = ud
        self._column_names: tuple[str, ...] | None = UD_NAMES if ud else None
        self._header_names: tuple[str, ...] = ()
        self._layout: ConllLayout | None = None
        self._is_ontonotes = False
        self._document_number = -1
        self._pending_lines: list[Line] = []
        self.n_comments = 0

    def add(self, line: Line) -> Sentence | None:
        """Takes the next line, and returns the sentence that it ends, if it ends one.

        Blank lines and lines that begin a document end a sentence.
        """
        if not self._ud and line.text.startswith(_ONTONOTES_DOCUMENT):
            self._is_ontonotes = True
            begin_document, _ = _ONTONOTES_DOCUMENT
            # The line `#end document` above it has ended the last sentence of another document.
            if line.text.startswith(begin_document):
                self._document_number += 1
            line = Line(line.number, "")  # it has no word, and ends a sentence like a blank line

        is_blank = not line.text.strip(BLANKS)
        begins_document = line.text.startswith("-DOCSTART-")
        if not is_blank and not begins_document:
            self._add_filled(line)
            return None

        sentence = self._finish_sentence()
        if begins_document:
            self._document_number += 1
        return sentence

    def _add_filled(self, line: Line) -> None:
        """Takes a line that is not blank: the header, the header again, or part of a sentence."""
        can_be_header = (
            self._layout is None
            and self._column_names is None
            and not self._pending_lines
            and not self._ud
        )
        if can_be_header and self._is_header(line):
            self._header_names = tuple(split_columns(line.text, tabs=False))
            self._column_names = self._header_names
            if self._options.settings.header is None:
                self._options.listener.say(
                    f"{self._source}: the first line is taken for the names of the columns"
                )
        elif self._header_names and _repeats_names(line, self._header_names):
            self._refuse_or_skip(_repeated_names(line, self._source))
        else:
            self._pending_lines.append(line)

    def _is_header(self, line: Line) -> bool:
        """Returns whether the first line has names, by `data.header` or by its words."""
        if self._options.settings.header is None:
            return _has_usual_names(line)
        return self._options.settings.header

    def _refuse_or_skip(self, error: DataError) -> None:
        """Raises an error, or adds it to the rows to skip if the caller wants them skipped."""
        if self._options.skipped is None:
            raise error
        self._options.skipped.errors.append(error)

    def _finish_sentence(self) -> Sentence | None:
        """Returns the collected lines as a sentence, and begins to collect the next one.

        The result is None if the lines have no words, or if they are wrong and skipped.
        """
        all_lines = self._pending_lines
        self._pending_lines = []
        word_lines, comments = self._without_comments(all_lines)
        for comment in comments:
            self._read_comment(comment)
        if not word_lines:
            return None

        if self._layout is None:
            self._layout = self._find_layout(word_lines)
            self._options.listener.say(f"{self._source}: {self._layout.sentence()}")
        try:
            sentence = _sentence(
                word_lines,
                self._layout,
                self._source,
                self._document_number,
                tags_needed=self._options.label_needed,
            )
            if self._ud and self._options.label_needed:
                _require_text_of_comment(word_lines, comments, self._source)
        except DataError as error:
            self._refuse_or_skip(error)
            return None

        if not sentence.words:
            return None
        if self._options.reads_whole_file:  # the file is read to train or to score, not to predict
            return sentence

        # `predict` needs the lines to write its tags into them: in CoNLL-U into the column of the
        # tags, elsewhere into the last column or a new one behind it.
        tag_is_last = self._layout.tag in (None, len(self._layout.names) - 1)
        # In CoNLL-2012 lines may go on after the named columns, so none is known as the last.
        has_known_last_column = not self._layout.has_more
        can_take_tags = self._ud or (tag_is_last and has_known_last_column)
        if not can_take_tags:
            return sentence
        return sentence._replace(lines=self._marked_lines(all_lines, word_lines))

    def _read_comment(self, comment: str) -> None:
        """Takes the columns' names, or the beginning of a document, from a comment of CoNLL-U."""
        names = _global_columns(comment)
        if names:
            self._column_names = names
        if comment.startswith(("# newdoc", "#newdoc")):
            self._document_number += 1

    def _without_comments(self, lines: list[Line]) -> tuple[list[Line], list[str]]:
        """Returns the lines of a sentence without comments, and the comments.

        Only the comments of CoNLL-U are returned. In other files they are only counted.
        """
        if self._ud:
            comments = [line.text for line in lines if line.text.startswith("#")]
            return [line for line in lines if not line.text.startswith("#")], comments
        # In other files `#` can be a word, so only lines before the first word are comments.
        # `_is_comment` looks at the first line, and compares it with the second.
        while _is_comment(lines):
            lines = lines[1:]
            self.n_comments += 1
        return lines, []

    def _find_layout(self, word_lines: list[Line]) -> ConllLayout:
        """Returns where words and tags are, by the settings or else by the file's first sentence.

        In files of CoNLL-2012 they are in columns 3 and 10, unless the settings name others.
        """
        settings = self._options.settings
        if self._is_ontonotes:
            columns = {"text_column": str(_ONTONOTES_WORD), "label_column": str(_ONTONOTES_TAG)}
            from_settings = settings.model_dump(include=set(columns), exclude_none=True)
            settings = settings.model_copy(update={**columns, **from_settings})
        layout = find_layout(
            word_lines,
            self._source,
            settings,
            names=self._column_names,
            ud=self._ud,
            tags_needed=self._options.label_needed,
        )
        # Lines of CoNLL-2012 have a further column for each verb of the sentence.
        return replace(layout, has_more=self._is_ontonotes)

    def _marked_lines(
        self, all_lines: Sequence[Line], word_lines: Sequence[Line]
    ) -> list[tuple[str, bool]]:
        """Returns all lines of a sentence, and whether each is a word: `("Anna B-PER", True)`.

        Contractions (`3-4`) and empty nodes (`8.1`) of CoNLL-U are no words.
        """
        numbers_of_words: set[int] = set()
        for line in word_lines:
            number, _, _ = line.text.partition("\t")
            if not self._ud or number.isdecimal():
                numbers_of_words.add(line.number)
        return [(line.text.rstrip("\r\n"), line.number in numbers_of_words) for line in all_lines]


def _is_comment(block: Sequence[Line]) -> bool:
    """Returns whether the first line of a sentence is a comment such as `# id 7 domain=train`.

    The word `#` is no comment: its line has as many columns as the next one, and a tag.
    """
    if len(block) < 2 or not block[0].text.startswith("#"):
        return False
    text = block[0].text
    next_text = block[1].text
    has_other_width = len(text.split()) != len(next_text.split())
    if has_other_width:  # all lines with words have the same number of columns
        return True
    is_usual_comment = _COMMENT.match(text) is not None
    return is_usual_comment and not _TAG.search(text)


def _has_usual_names(line: Line) -> bool:
    """Returns whether a line is a header, made of nothing but usual names of columns."""
    fields = split_columns(line.text, tabs=False)
    return len(fields) > 1 and all(field.casefold() in _HEADER_NAMES for field in fields)


def _repeats_names(line: Line, names: Sequence[str]) -> bool:
    """Returns whether a line has the names of the columns again."""
    fields = split_columns(line.text, tabs=False)
    # A second file that was joined to the first may begin with a byte-order mark.
    names_in_line = [field.removeprefix("\ufeff").casefold() for field in fields]
    return names_in_line == [name.casefold() for name in names]


def _repeated_names(line: Line, source: str) -> DataError:
    """Returns the error for names of columns in the middle of a file, as joined files have them."""
    message = (
        f"{source}:{line.number}: the names of the columns stand here again: "
        f"{line.text.strip(BLANKS)!r:.80}"
    )
    return DataError(
        message,
        remedy="Take the line out: only the first file of several that are joined keeps it.",
    )


def _global_columns(comment: str) -> tuple[str, ...] | None:
    """Returns the names that a file of CoNLL-U Plus gives its columns, None for other comments.

    `# global.columns = ID FORM UPOS` -> `("id", "form", "upos")`.
    """
    key, equals, value = comment.removeprefix("#").partition("=")
    if equals and key.strip() == "global.columns":
        return tuple(value.lower().split())
    return None


def _sentence(
    block: Sequence[Line], layout: ConllLayout, source: str, document: int, *, tags_needed: bool
) -> Sentence:
    """Returns the lines of a sentence as words and tags.

    Args:
        block: The lines, without comments.
        layout: Where words and tags stand.
        source: The file, for messages.
        document: Number of the sentence's document.
        tags_needed: Whether a word without a tag is refused. Otherwise it leaves the whole
            sentence without tags.

    Raises:
        DataError: A line with more or fewer columns than the first, without a word, or without a
            tag that is needed.
    """
    words: list[str] = []
    tags: list[str] = []
    for number, text in block:
        fields = layout.fields(text)
        if layout.has_more:
            # Lines of CoNLL-2012 differ in width. They need the columns of the word and the tag.
            has_wrong_width = len(fields) <= max(layout.word, layout.tag or 0)
        else:
            has_wrong_width = len(fields) != len(layout.names)
        if has_wrong_width:
            raise wrong_width_error(f"{source}:{number}", len(fields), layout.names, text)
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
                    remedy="Every word of a labelled file needs a tag; is `data.label_column=` the "
                    "right one?",
                )
            tags.append(tag)
    first_number = block[0].number
    if layout.tag is None or not all(tags):
        return Sentence(first_number, document, words, tags=None)
    has_brackets = any("*" in tag or "(" in tag for tag in tags)
    if has_brackets and all(map(_BRACKETS.fullmatch, tags)):
        tags = _tags_of_brackets(tags, f"{source}:{first_number}")
    return Sentence(first_number, document, words, tags)


def _tags_of_brackets(tags: Sequence[str], where: str) -> list[str]:
    """Returns entities in brackets as IOB2: `(PERSON*`, `*)`, `*` -> `B-PERSON`, `I-PERSON`, `O`.

    Raises:
        DataError: A bracket is inside another one, or is not closed.
    """
    iob2_tags: list[str] = []
    kind = ""  # of the entity whose bracket is open
    for tag in tags:
        n_opened = tag.count("(")
        is_nested = n_opened > 1 or (n_opened == 1 and kind != "")
        if is_nested:
            message = (
                f"{where}: entities in brackets stand inside each other: {' '.join(tags)[:80]}"
            )
            raise DataError(
                message, remedy="A word has one tag: keep the outer brackets, or the inner ones."
            )
        if n_opened:
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
    """Yields the sentences of spaCy's `.iob`, one per line: `Anna|B-PER sleeps|O`.

    Each word has its tag, or its part of speech and its tag (`Anna|NNP|B-PER`).

    Raises:
        DataError: A word has more or fewer parts than the first one.
    """
    width = 0  # parts of the first word, which all words must have; 0 until it has been read
    n_bars = 2  # most bars of a word that part it: until the width is known, WORD|POS|TAG
    n_sentences = 0
    for number, line in enumerate(lines, start=1):
        # The word itself may contain a bar, so its parts are split off from the right.
        parts_by_word = [item.rsplit("|", n_bars) for item in line.split()]
        if not parts_by_word:
            continue
        if not width:
            width = len(parts_by_word[0])
            if width > 1:
                n_bars = width - 1
        for parts in parts_by_word:
            has_all_parts = len(parts) == width and all(parts)
            if not has_all_parts:
                message = (
                    f"{source}:{number}: {'|'.join(parts)!r:.80} has not {width} parts, as the "
                    "first word has"
                )
                raise DataError(
                    message, remedy="Each word is WORD|TAG, or WORD|POS|TAG, with blanks between."
                )
        words = [parts[0] for parts in parts_by_word]
        tags = [parts[-1] for parts in parts_by_word]
        yield Sentence(number, -1, words, tags)
        n_sentences += 1
    if not n_sentences:
        raise DataError(
            f"{source} has no sentences", remedy="Give a file with a sentence on each line."
        )


def are_piped(lines: Iterable[str]) -> bool:
    """Returns whether lines are sentences of words with their tags behind a bar (`Anna|B-PER`)."""
    words: list[str] = []
    for line in lines:
        if not line.startswith("-DOCSTART-"):
            words += line.split()
    return bool(words) and all(map(_PIPED.fullmatch, words))


def _require_text_of_comment(block: Sequence[Line], comments: Sequence[str], source: str) -> None:
    """Refuses a sentence of CoNLL-U whose words are not those of its `# text` comment.

    It also refuses words that are not numbered 1, 2, 3 ...

    Args:
        block: The sentence's lines without comments.
        comments: The sentence's comments.
        source: Name of the file in messages.

    Raises:
        DataError: The words differ from the text, or their numbers are wrong; with file and line.
    """
    # Wrong numbers are refused here. A contraction is one part: `im` for the words `in` and `dem`.
    parts = _words_of_text(block, source)
    for comment in comments:
        key, _, text = comment.removeprefix("#").partition("=")
        if key.strip() == "text" and not same_words("".join(parts), text):
            raise DataError(
                f"{source}:{block[0].number}: '# text' is {shorten(text.strip())!r}, its words are "
                f"{shorten(' '.join(parts))!r}",
                remedy="Correct the comment or the words; without the comment nothing is compared.",
            )


def _words_of_text(block: Sequence[Line], source: str) -> list[str]:
    """Returns the words of a sentence of CoNLL-U as its text has them.

    For a contraction (`3-4 im`, `3 in`, `4 dem`) they are the contraction alone: `im`.

    Raises:
        DataError: The words are not numbered 1, 2, 3 ..., with file and line.
    """
    n_words = 0
    parts: list[str] = []
    last_of_contraction = 0  # number of the last word that a contraction stands for
    for number, text in block:
        fields = text.rstrip("\r\n").split("\t")
        first, hyphen, last = fields[0].partition("-")
        if hyphen and first.isdecimal() and last.isdecimal():
            parts.append(fields[1])
            last_of_contraction = int(last)
        if not fields[0].isdecimal():
            continue
        n_words += 1
        if int(fields[0]) != n_words:
            message = (
                f"{source}:{number}: the word {fields[1]!r} has the number {fields[0]}, where "
                f"{n_words} is next"
            )
            raise DataError(
                message, remedy="Words are numbered from 1; a line may be missing or repeated."
            )
        if n_words > last_of_contraction:
            parts.append(fields[1])
    return parts
