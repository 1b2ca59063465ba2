"""Running text to words with their places in it."""

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers.pre_tokenizers import PreTokenizer

_LETTER = r"[[\p{L}\p{M}\p{N}\p{Cf}_]&&[^\p{Han}]]"
"""What words are made of. Marks and format characters belong to it: many scripts need them inside words."""
_CLITIC = r"(?:[sS]|[dD]|[mM]|[rR][eE]|[vV][eE]|[lL][lL])(?![\p{L}\p{N}])"
_PATTERN = "|".join(
    [
        r"(?:https?://|www\.)[^\s<>\"]*[\p{L}\p{N}/]",  # an address
        r"[\p{L}\p{N}._%+-]+@[\p{L}\p{N}-]+(?:\.[\p{L}\p{N}-]+)+",
        rf"[@#]{_LETTER}+",
        r"(?<![\p{L}\p{N}])(?:\p{L}\.){2,}(?![\p{L}\p{N}])",  # U.S. a.m.
        r"\p{N}+(?:[.,:/]\p{N}+)+(?![\p{L}])",  # 1,000.5 10:30
        r"\p{L}+?(?=[nN]['’][tT](?![\p{L}\p{N}]))",  # do|n't
        r"[nN]['’][tT](?![\p{L}\p{N}])",
        rf"['’]{_CLITIC}",  # Anna|'s
        r"\p{Han}",
        rf"{_LETTER}+(?:['’](?!{_CLITIC}){_LETTER}+)*",  # O'Brien
        r"\.{2,}|-{2,}|!{2,}|\?{2,}",
        r"\S",
    ]
)


@functools.cache
def _splitter() -> "PreTokenizer":
    from tokenizers import Regex, pre_tokenizers

    return pre_tokenizers.Split(Regex(_PATTERN), "removed", invert=True)


def split_words(text: str) -> tuple[list[str], list[tuple[int, int]]]:
    """Returns the words of a text, and where each begins and ends in it, in characters.

    About the words of the Penn Treebank: marks of punctuation and English clitics (`do n't`, `Anna 's`) stand alone;
    addresses, numbers and abbreviations with points stay whole; unlike there, words are divided at hyphens. A Chinese
    character is a word of its own.
    """
    found = _splitter().pre_tokenize_str(text)
    return [word for word, _ in found], [offsets for _, offsets in found]


def find_words(words: list[str], text: str) -> list[tuple[int, int]] | None:
    """Where given words stand in their text, one behind the other; None where one is not there, or more than blanks
    lie between.
    """
    offsets: list[tuple[int, int]] = []
    at = 0
    for word in words:
        start = text.find(word, at)
        if start < 0 or text[at:start].strip():
            return None
        at = start + len(word)
        offsets.append((start, at))
    return offsets
