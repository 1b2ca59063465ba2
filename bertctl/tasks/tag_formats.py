"""Layouts of answers of token classification: CoNLL columns, and texts with character spans as spaCy and Prodigy have
them.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

from bertctl.errors import UsageError
from bertctl.tasks.base import AnswerFormat


def write_conll(answers: Iterable[dict[str, Any]], out: TextIO) -> None:
    """Writes a word and its tag on each line, a tab between, a blank line after each sentence.

    A blank in a word becomes `_`, since it would part columns; a line of `-DOCSTART-` stands where a document begins.

    Raises:
        UsageError: the answers were made without their words.
    """
    document: Any = None
    for answer in answers:
        if answer.get("document") is not None and answer["document"] != document:
            document = answer["document"]
            out.write("-DOCSTART-\tO\n\n")
        for word, tag in zip(_words(answer), answer["prediction"], strict=True):
            out.write(f"{'_'.join(word.split()) or '_'}\t{tag}\n")
        out.write("\n")


def write_spacy(answers: Iterable[dict[str, Any]], out: TextIO) -> None:
    r"""Writes an object per line: `text`, `tokens`, and `spans` with `start`, `end` (characters) and `label`.

    Words that came without their text are joined by spaces. Tags that mark no entities (parts of speech) stand at the
    tokens, as `tag`.

    Raises:
        UsageError: the answers were made without their words.
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
    words: Sequence[str] | None = answer.get("words")
    if words is None:
        raise UsageError("these answers have no words to write", remedy="Leave --no-text out, or take --format jsonl.")
    return words


def _placed(answer: Mapping[str, Any], words: Sequence[str]) -> tuple[str, Sequence[tuple[int, int]]]:
    """Returns the text and where its words stand."""
    if answer.get("text") is not None and answer.get("offsets") is not None:
        return answer["text"], answer["offsets"]
    offsets: list[tuple[int, int]] = []
    at = 0
    for word in words:
        offsets.append((at, at + len(word)))
        at += len(word) + 1
    return " ".join(words), offsets


FORMATS: Mapping[str, AnswerFormat] = {
    "conll": AnswerFormat("CoNLL columns: word and tag, in the tags' own scheme", write_conll),
    "spacy": AnswerFormat("JSON Lines of texts with tokens and character spans, as spaCy and Prodigy", write_spacy),
}
