"""Layouts of answers of token classification.

They are CoNLL columns, and texts with character spans as annotation tools have them
(`data/annotations`).
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, TextIO

from bertctl.data.annotations import bioc, brat, docbin, label_studio, pubtator
from bertctl.data.annotations.document import Document
from bertctl.errors import DataError, UsageError
from bertctl.metrics.tagging import entities
from bertctl.tasks.base import AnswerFormat

_UD_COLUMNS = 10
"""Columns of a line of CoNLL-U."""

_UPOS = 3
"""Number of the column with the part of speech, from 0."""

_MARK = re.compile(r"O|[BIESLU](?:-.*)?", re.DOTALL)
"""A tag of an entity; gold tags may be parts of speech."""


def write_conll(answers: Iterable[dict[str, Any]], out: TextIO) -> None:
    """Writes a word and its tag on each line, a tab between, a blank line after each sentence.

    A blank in a word becomes `_`, since it would part columns; a line of `-DOCSTART-` stands where
    a document begins.

    Raises:
        UsageError: The answers were made without their words.
    """
    document: Any = None
    for answer in answers:
        if answer.get("document") is not None and answer["document"] != document:
            document = answer["document"]
            out.write("-DOCSTART-\tO\n\n")
        for word, tag in zip(_words(answer), answer["prediction"], strict=True):
            out.write(f"{'_'.join(word.split()) or '_'}\t{tag}\n")
        out.write("\n")


def write_conlleval(answers: Iterable[dict[str, Any]], out: TextIO) -> None:
    """Writes one word per line with its columns, and the predicted tag as the last column.

    conlleval needs the gold tag in the column before the predicted one. The lines of a file of
    columns are kept, as its gold tags are in the last column. Other rows, and CoNLL-U files with
    gold tags, which are in another column there, are written as word, gold tag (if there is one)
    and predicted tag. Lines of `-DOCSTART-`, which conlleval would count as words, and comments, at
    which it would stop, are left out.

    Args:
        answers: One for each sentence: prediction; label, its gold tags; lines, those of its file
            as pairs of the text and whether it is a word's.
        out: File that is written.

    Raises:
        DataError: Some rows have gold tags, others none: conlleval wants the same columns
            everywhere.
    """
    has_gold: bool | None = None
    for answer in answers:
        tags = answer["prediction"]
        gold = answer.get("label") or None
        lines = [line for line, is_word in answer.get("lines") or () if is_word]
        is_tagged_conllu = bool(gold and lines) and _is_conllu(lines[0])
        if lines and not is_tagged_conllu:
            for line, tag in zip(lines, tags, strict=True):
                gap = "\t" if "\t" in line else " "
                out.write(f"{line}{gap}{tag}\n")
            out.write("\n")
            continue

        if tags and has_gold is not None and has_gold != (gold is not None):
            tags_there = "gold tags" if gold else "no gold tags"
            message = f"the row {answer['id']} has {tags_there}, unlike those before it"
            raise DataError(
                message, remedy="Tag all rows, or take `format=conll`, which has answers alone."
            )
        if tags:  # a sentence without words shows no columns
            has_gold = gold is not None
        words = ["_".join(word.split()) or "_" for word in _words(answer)]
        if gold:
            columns_of_file = [words, gold, tags]
        else:
            columns_of_file = [words, tags]
        for columns in zip(*columns_of_file, strict=True):
            out.write("\t".join(columns) + "\n")
        out.write("\n")


def write_conllu(answers: Iterable[dict[str, Any]], out: TextIO) -> None:
    """Writes CoNLL-U, with parts of speech in UPOS and entities in MISC.

    Lines that came from a CoNLL-U file keep their other columns and comments. Other words get lines
    whose columns are blank (`_`).
    """
    for answer in answers:
        tags = iter(answer["prediction"])
        lines = answer.get("lines") or ()
        if not any(is_word and _is_conllu(line) for line, is_word in lines):
            words = [" ".join(word.split()) or "_" for word in _words(answer)]
            blank = "\t_" * (_UD_COLUMNS - 2)
            lines = [
                (f"{number}\t{word}{blank}", True) for number, word in enumerate(words, start=1)
            ]
        for line, is_word in lines:
            columns = line.split("\t")
            if is_word and "entities" not in answer:
                columns[_UPOS] = next(tags)
            elif is_word:
                tag = next(tags)
                misc = [
                    feature
                    for feature in columns[-1].split("|")
                    if feature != "_" and not feature.startswith("NER=")
                ]
                if tag != "O":
                    misc.append(f"NER={tag}")
                columns[-1] = "|".join(misc) or "_"
            out.write("\t".join(columns) + "\n")
        out.write("\n")


def _is_conllu(line: str) -> bool:
    """Returns whether a line has as many columns as CoNLL-U."""
    return line.count("\t") == _UD_COLUMNS - 1


def documents_of(answers: Iterable[dict[str, Any]]) -> Iterator[Document]:
    """Yields answers as documents of annotation tools.

    Raises:
        UsageError: The answers were made without their words, or mark no entities.
    """
    for answer in answers:
        if "entities" not in answer:
            raise UsageError(
                "these answers mark no entities", remedy="Take `format=conll`, conllu or jsonl."
            )
        text, offsets = _placed(answer, _words(answer))
        answered = answer["entities"]
        spans = [
            (offsets[entity["start"]][0], offsets[entity["end"] - 1][1], entity["type"])
            for entity in answered
        ]
        gold = None
        # Gold tags that mark no entities, such as parts of speech, are left out.
        if answer.get("label") is not None and all(map(_MARK.fullmatch, answer["label"])):
            gold = [
                (offsets[start][0], offsets[end - 1][1], kind)
                for kind, start, end in entities(answer["label"])
            ]
        probabilities = [entity["probability"] for entity in answered]
        yield Document(
            str(answer["id"]),
            text,
            spans,
            probabilities,
            gold=gold,
        )


def _annotations(
    write: Callable[[Iterable[Document], TextIO], None],
    *,
    to_file: bool = False,
    reads: tuple[str, ...] = (),
) -> AnswerFormat:
    """Returns the format of an annotation tool, whose writer gets documents with spans.

    Args:
        write: Writes documents to a file.
        to_file: Whether the format can't be written to a terminal or a pipe.
        reads: Further columns of the rows that are written, if the rows have them.
    """
    return AnswerFormat(
        lambda answers, out: write(documents_of(answers), out), to_file=to_file, reads=reads
    )


def write_spacy(answers: Iterable[dict[str, Any]], out: TextIO) -> None:
    r"""Writes a JSON object per line, as spaCy and Prodigy have documents.

    It has `text`, `tokens`, and `spans` with `start`, `end` (characters) and `label`. Words that
    came without their text are joined by spaces. Tags that mark no entities (parts of speech) are a
    field `tag` of the tokens.

    Raises:
        UsageError: The answers were made without their words.
    """
    for answer in answers:
        words = _words(answer)
        text, offsets = _placed(answer, words)
        tokens: list[dict[str, Any]] = [
            {"text": word, "start": start, "end": end, "id": i}
            for i, (word, (start, end)) in enumerate(zip(words, offsets, strict=True))
        ]
        if "entities" not in answer:
            for token, tag in zip(tokens, answer["prediction"], strict=True):
                token["tag"] = tag
        spans = [
            {
                "start": offsets[entity["start"]][0],
                "end": offsets[entity["end"] - 1][1],
                "token_start": entity["start"],
                "token_end": entity["end"] - 1,
                "label": entity["type"],
            }
            for entity in answer.get("entities", ())
        ]
        line = {"id": answer["id"], "text": text, "tokens": tokens, "spans": spans}
        out.write(json.dumps(line, ensure_ascii=False) + "\n")


def _words(answer: Mapping[str, Any]) -> Sequence[str]:
    """Returns the words of a sentence.

    Raises:
        UsageError: The answers were made without their words.
    """
    words: Sequence[str] | None = answer.get("words")
    if words is None:
        raise UsageError(
            "these answers have no words to write",
            remedy="Leave `evaluation.keep_text=False` out, or take `format=jsonl`.",
        )
    return words


def _placed(
    answer: Mapping[str, Any], words: Sequence[str]
) -> tuple[str, Sequence[tuple[int, int]]]:
    """Returns the text of a sentence and the (start, end) characters of each word.

    Words that came without their text are joined by spaces: "a", "cat" at (0, 1), (2, 5).
    """
    if answer.get("text") is not None and answer.get("offsets") is not None:
        return answer["text"], answer["offsets"]
    # Where each word begins, and where one more word would.
    starts = accumulate((len(word) + 1 for word in words), initial=0)
    return " ".join(words), [
        (start, start + len(word)) for start, word in zip(starts, words, strict=False)
    ]


FORMATS: Mapping[str, AnswerFormat] = {
    "conll": AnswerFormat(write_conll),
    "conlleval": AnswerFormat(write_conlleval, reads=("lines", "label")),
    "conllu": AnswerFormat(write_conllu, reads=("lines",)),
    "spacy": AnswerFormat(write_spacy),
    "label-studio": _annotations(label_studio.write, reads=("label",)),
    "brat": replace(
        _annotations(brat.write),
        extra={".txt": lambda answers, out: brat.write_texts(documents_of(answers), out)},
    ),
    "pubtator": _annotations(pubtator.write),
    "bioc": _annotations(bioc.write),
    "docbin": _annotations(docbin.write, to_file=True),
}
