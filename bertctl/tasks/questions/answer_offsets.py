"""Answers by characters and by tokens.

It says where a context's tokens stand in it, and whether an answer is at its offset.

Letters: D contexts, T tokens of all of them together.
"""

import functools
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from tokenizers import Tokenizer

from bertctl.arrays import Ints, Ints32
from bertctl.tokenization.layout import Ragged
from bertctl.tokenization.reference import chunks, unknown_id

if TYPE_CHECKING:
    from tokenizers.pre_tokenizers import PreTokenizer

_SPACES = np.array([chr(code).isspace() for code in range(0x3001)])
"""Whether each character is white space, by its number; U+3000 is the last one that is."""


@dataclass(frozen=True)
class Contexts:
    """D contexts as ids, each token with the characters it stands for.

    Attributes:
        tokens: Ids, without special tokens.
        char_starts: (T,) first character of each token, blanks before it not counted. Never inside
            a grapheme (a letter with its accents, an emoji of several parts).
        char_ends: (T,) the character after its last, blanks not counted. Never inside a grapheme.
        unknown: (D,) unknown tokens.
    """

    tokens: Ragged
    char_starts: Ints32
    char_ends: Ints32
    unknown: Ints

    def followed_by(self, appended: "Contexts") -> "Contexts":
        """Returns these contexts and then the appended ones."""
        return Contexts(
            tokens=self.tokens.followed_by(appended.tokens),
            char_starts=np.concatenate([self.char_starts, appended.char_starts]),
            char_ends=np.concatenate([self.char_ends, appended.char_ends]),
            unknown=np.concatenate([self.unknown, appended.unknown]),
        )

    def tokens_of(self, context: int, start: int, end: int) -> tuple[int, int] | None:
        """Returns the first and last token of the characters from `start` up to `end`.

        It is None if no token has any of these characters.

        Args:
            context: Number of the context.
            start: First character.
            end: The one after the last.
        """
        context_start = int(self.tokens.starts[context])
        of_context = slice(context_start, context_start + int(self.tokens.lengths[context]))
        first_token = int(np.searchsorted(self.char_ends[of_context], start, side="right"))
        last_token = int(np.searchsorted(self.char_starts[of_context], end, side="left")) - 1
        if first_token <= last_token:
            return (first_token, last_token)
        return None


def encode_contexts(texts: Sequence[str], tokenizer: Tokenizer) -> Contexts:
    """Returns texts as tokens with character offsets, by the library `tokenizers`.

    Offsets are moved past blanks and to the borders of graphemes, so that answers that are cut out
    of a text have no half characters.
    """
    unknown = unknown_id(tokenizer)
    ids: list[Ints32] = [np.zeros(0, dtype=np.int32)]
    offsets: list[Ints32] = [np.zeros((0, 2), dtype=np.int32)]
    counts: list[int] = []
    for chunk in chunks(texts):
        encodings = tokenizer.encode_batch(chunk, add_special_tokens=False)
        for text, encoding in zip(chunk, encodings, strict=True):
            ids.append(np.array(encoding.ids, dtype=np.int32))
            spans = np.array(encoding.offsets, dtype=np.int32).reshape(-1, 2)
            offsets.append(_whole_graphemes(_without_blanks(spans, text), text))
            counts.append(0 if unknown is None else encoding.ids.count(unknown))
    # ids[0] is no text: it is the empty array that np.concatenate needs if there are no texts.
    lengths = np.array([len(text_ids) for text_ids in ids[1:]], dtype=np.int64)
    begins, ends = map(np.ascontiguousarray, np.concatenate(offsets).T)
    return Contexts(
        tokens=Ragged.joined(np.concatenate(ids), lengths),
        char_starts=begins,
        char_ends=ends,
        unknown=np.array(counts, dtype=np.int64),
    )


def _without_blanks(offsets: Ints32, text: str) -> Ints32:
    """Returns the (n, 2) character offsets of tokens, moved past blanks at their ends.

    Byte-level and SentencePiece tokens begin or end with blanks: " cat" at (3, 7) moves to (4, 7).
    Offsets are changed in place.
    """
    codes = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
    has_low_code = codes < len(_SPACES)
    is_space = _SPACES[np.minimum(codes, len(_SPACES) - 1)] & has_low_code
    is_space = np.append(is_space, False)  # an offset may be the end of the text
    # Each pass moves all tokens by one blank, until none begins (then: ends) with one.
    while (begins_blank := is_space[offsets[:, 0]] & (offsets[:, 0] < offsets[:, 1])).any():
        offsets[:, 0] += begins_blank
    while (ends_blank := is_space[offsets[:, 1] - 1] & (offsets[:, 0] < offsets[:, 1])).any():
        offsets[:, 1] -= ends_blank
    return offsets


@functools.cache
def _grapheme_splitter() -> "PreTokenizer":
    r"""Returns a splitter of texts into graphemes, the characters that a reader sees (`\X`)."""
    from tokenizers import Regex, pre_tokenizers

    return pre_tokenizers.Split(Regex(r"\X"), "isolated")


_JOINING_RANGES = (
    ("\u0e33", "\u0e33"),  # a Thai vowel that is a letter to Unicode, and the Lao one
    ("\u0eb3", "\u0eb3"),
    ("\u1100", "\u11ff"),  # Hangul letters that are written apart
    ("\ua960", "\ua97f"),
    ("\ud7b0", "\ud7ff"),
    ("\U0001f1e6", "\U0001f1ff"),  # letters of flags
    ("\U0001f3fb", "\U0001f3ff"),  # colours of skin
)


def _has_graphemes(text: str) -> bool:
    """Returns whether a text has graphemes of several characters."""
    if text.isascii():
        return False
    for character in set(text):
        if unicodedata.category(character) in ("Mn", "Mc", "Me", "Cf"):
            return True
        if any(low <= character <= high for low, high in _JOINING_RANGES):
            return True
    return False


def _whole_graphemes(offsets: Ints32, text: str) -> Ints32:
    """Returns offsets moved to the borders of graphemes.

    An uncased model's tokens may begin or end inside a grapheme.
    """
    if not _has_graphemes(text):
        return offsets
    begin_of = np.arange(len(text) + 1, dtype=np.int32)
    end_of = begin_of.copy()
    for grapheme, (start, end) in _grapheme_splitter().pre_tokenize_str(text):
        # A blank and an accent on it are one grapheme, but offsets must not move back to the blank.
        if not grapheme[0].isspace():
            begin_of[start + 1 : end] = start
            end_of[start + 1 : end] = end
    return np.stack([begin_of[offsets[:, 0]], end_of[offsets[:, 1]]], axis=1)


def answer_span(context: str, text: str, start: int) -> tuple[int, int] | None:
    """Returns the characters of an answer without blanks around it: the first, and the end.

    The result is None if the answer's text is not at its offset.

    White space in the text and in the context may differ, as it does where one of them was
    re-wrapped.
    """
    words = text.split()
    if start < 0 or not words:
        return None
    if context.startswith(text, start):
        return start + len(text) - len(text.lstrip()), start + len(text.rstrip())
    match = re.compile(r"\s*" + r"\s+".join(map(re.escape, words))).match(context, start)
    if match is None:
        return None
    n_characters = len(match[0].lstrip())  # without white space before the answer
    return match.end() - n_characters, match.end()


def offset_units(context: str, text: str, start: int) -> set[str]:
    """Returns the units in which an offset that is wrong in characters leads to its answer.

    Args:
        context: The text.
        text: The answer.
        start: Its offset, as the file has it.
    """
    if start < 0:
        return set()
    offsets = {
        "UTF-16 units, as JavaScript and Java do": _characters_in(
            context.encode("utf-16-le")[: 2 * start], "utf-16-le"
        ),
        "bytes of UTF-8": _characters_in(context.encode()[:start], "utf-8"),
        "characters from 1": start - 1,
        "two characters for a line end (\\r\\n)": _without_carriage_returns(context, start),
    }
    return {
        unit
        for unit, offset in offsets.items()
        if offset >= 0 and offset != start and context.startswith(text, offset)
    }


def _characters_in(encoded: bytes, encoding: str) -> int:
    """Returns how many characters bytes stand for; -1 where they end inside of one."""
    try:
        return len(encoded.decode(encoding))
    except UnicodeDecodeError:
        return -1


def _without_carriage_returns(context: str, start: int) -> int:
    r"""Returns the right offset for one that was counted with two characters per line end.

    In "a\nb", offset 3 (as in "a\r\nb") becomes 2. It is -1 if the offset is inside a line end.
    """
    place = 0
    while place < len(context) and start > 0:
        start -= 2 if context[place] == "\n" else 1
        place += 1
    return place if start == 0 else -1
