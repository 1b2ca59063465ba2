"""Answers by characters and by tokens: where a context's tokens stand in it, and whether an answer is at its offset.

Letters: D contexts, T tokens of all of them together.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer

from bertctl.arrays import Ints, Ints32
from bertctl.tokenization.layout import Ragged
from bertctl.tokenization.reference import chunks, unknown_id

_SPACES = np.array([chr(code).isspace() for code in range(0x3001)])


@dataclass(frozen=True)
class Contexts:
    """D contexts as ids, each token with the characters it stands for.

    Attributes:
        tokens: ids, without special tokens.
        char_starts: (T,) first character of each token, blanks before it not counted.
        char_ends: (T,) the character after its last.
        unknown: (D,) unknown tokens.
    """

    tokens: Ragged
    char_starts: Ints32
    char_ends: Ints32
    unknown: Ints

    def tokens_of(self, context: int, start: int, end: int) -> tuple[int, int] | None:
        """Returns the first and last token of the characters from `start` up to `end`; None where there is none."""
        at = int(self.tokens.starts[context])
        inside = slice(at, at + int(self.tokens.lengths[context]))
        first = int(np.searchsorted(self.char_ends[inside], start, side="right"))
        last = int(np.searchsorted(self.char_starts[inside], end, side="left")) - 1
        return (first, last) if first <= last else None


def encode_contexts(texts: Sequence[str], tokenizer: Tokenizer) -> Contexts:
    """Returns texts as tokens with character offsets, by the library `tokenizers`."""
    unknown = unknown_id(tokenizer)
    ids: list[Ints32] = [np.zeros(0, dtype=np.int32)]
    offsets: list[Ints32] = [np.zeros((0, 2), dtype=np.int32)]
    counts: list[int] = []
    for chunk in chunks(texts):
        for text, encoding in zip(chunk, tokenizer.encode_batch(chunk, add_special_tokens=False), strict=True):
            ids.append(np.array(encoding.ids, dtype=np.int32))
            offsets.append(_without_blanks(np.array(encoding.offsets, dtype=np.int32).reshape(-1, 2), text))
            counts.append(0 if unknown is None else encoding.ids.count(unknown))
    both = np.concatenate(offsets)
    lengths = np.array([len(part) for part in ids[1:]], dtype=np.int64)
    begins, ends = map(np.ascontiguousarray, both.T)
    return Contexts(Ragged.joined(np.concatenate(ids), lengths), begins, ends, np.array(counts, dtype=np.int64))


def _without_blanks(offsets: Ints32, text: str) -> Ints32:
    """Returns offsets without the blanks that byte-level and SentencePiece tokens begin with."""
    codes = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
    blank = np.append(_SPACES[np.minimum(codes, len(_SPACES) - 1)] & (codes < len(_SPACES)), False)
    while True:
        moved = blank[offsets[:, 0]] & (offsets[:, 0] < offsets[:, 1])
        if not moved.any():
            return offsets
        offsets[:, 0] += moved


def answer_span(context: str, text: str, start: int) -> tuple[int, int] | None:
    """Returns the characters of an answer without blanks around it; None where its text is not at its offset.

    White space in the text and in the context may differ, as it does where one of them was re-wrapped.
    """
    words = text.split()
    if start < 0 or not words:
        return None
    if context.startswith(text, start):
        return start + len(text) - len(text.lstrip()), start + len(text.rstrip())
    found = re.compile(r"\s*" + r"\s+".join(map(re.escape, words))).match(context, start)
    return (found.end() - len(found[0].lstrip()), found.end()) if found else None
