"""Running text to words with their places in it."""

import functools
import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers.pre_tokenizers import PreTokenizer

_NO_ASCII_WORD = re.compile(r"[\W_]+")


@dataclass(frozen=True)
class _Script:
    """A script in which a name ends where no blank is.

    Attributes:
        pattern: Its characters, as they stand between brackets.
        names: What their Unicode names begin with.
        has_blanks: Whether there are blanks between words all the same: Korean has them, but writes
            particles at its nouns.
    """

    pattern: str
    names: tuple[str, ...]
    has_blanks: bool = False


_UNSPACED_SCRIPTS = (
    _Script(r"\p{Han}", ("CJK", "IDEOGRAPHIC", "HANGZHOU", "KANGXI")),
    _Script(r"\p{Hiragana}", ("HIRAGANA",)),
    _Script(
        r"\p{Katakana}\u30FC\uFF70",
        ("KATAKANA", "KATAKANA-HIRAGANA", "HALFWIDTH KATAKANA", "HALFWIDTH KATAKANA-HIRAGANA"),
    ),
    _Script(r"\p{Hangul}", ("HANGUL", "HALFWIDTH HANGUL"), has_blanks=True),
    _Script(r"\p{Thai}", ("THAI",)),
    _Script(r"\p{Lao}", ("LAO",)),
    _Script(r"\p{Khmer}", ("KHMER",)),
    _Script(r"\p{Myanmar}", ("MYANMAR",)),
    _Script(r"\p{Tibetan}", ("TIBETAN",)),
    _Script(r"\p{Tai_Le}", ("TAI LE",)),
    _Script(r"\p{New_Tai_Lue}", ("NEW TAI LUE",)),
    _Script(r"\p{Tai_Tham}", ("TAI THAM",)),
    _Script(r"\p{Javanese}", ("JAVANESE",)),
    _Script(r"\p{Balinese}", ("BALINESE",)),
)
_UNSPACED = "".join(script.pattern for script in _UNSPACED_SCRIPTS)
_WITHOUT_BLANKS = tuple(
    f"{name} " for script in _UNSPACED_SCRIPTS if not script.has_blanks for name in script.names
)

_CLITIC = r"(?:[sS]|[dD]|[mM]|[rR][eE]|[vV][eE]|[lL][lL])(?![\p{L}\p{N}])"


def _pattern(scripts: str, character: str) -> str:
    """Returns the pattern of a word.

    Args:
        scripts: Characters of the scripts in which each character is a word, for a `[...]`.
        character: Pattern of one such character.
    """
    # Many scripts need marks (M) and format characters (Cf) inside of words.
    letter = rf"[[\p{{L}}\p{{M}}\p{{N}}\p{{Cf}}_]&&[^{scripts}]]"
    initial = rf"[\p{{L}}&&[^{scripts}]]\."
    in_mail = rf"[[\p{{L}}\p{{N}}._%+-]&&[^{scripts}]]"
    alternatives = [  # the first one that matches counts
        rf"(?:https?://|www\.)[^\s<>\"{scripts}]*[[\p{{L}}\p{{N}}/]&&[^{scripts}]]",  # an address
        rf"{in_mail}+@[\p{{L}}\p{{N}}-]+(?:\.[[\p{{L}}\p{{N}}-]&&[^{scripts}]]+)+",  # a@b.org
        rf"[@#]{letter}+",  # #tag @name
        rf"(?<![\p{{L}}\p{{N}}])(?:{initial}){{2,}}(?![\p{{L}}\p{{N}}])",  # U.S. a.m.
        rf"\p{{N}}+(?:[.,:/]\p{{N}}+)+(?![\p{{L}}&&[^{scripts}]])",  # 1,000.5 10:30
        r"\p{L}+?(?=[nN]['’][tT](?![\p{L}\p{N}]))",  # do|n't
        r"[nN]['’][tT](?![\p{L}\p{N}])",  # n't
        rf"['’]{_CLITIC}",  # Anna|'s
        character,  # of a script without blanks
        rf"{letter}+(?:['’](?!{_CLITIC}){letter}+)*",  # O'Brien
        r"\.{2,}|-{2,}|!{2,}|\?{2,}",  # ... -- !! ??
        r"\S",  # any other character alone
    ]
    return "|".join(alternatives)


@functools.cache
def _splitter(*, unspaced: bool) -> "PreTokenizer":
    """Returns a pre-tokenizer that splits texts into words.

    Args:
        unspaced: Whether each character is a word in all scripts that write no blanks between
            words, such as Thai; else only in Chinese.
    """
    from tokenizers import Regex, pre_tokenizers

    if unspaced:
        scripts = _UNSPACED
        character = rf"(?=[{_UNSPACED}])\X"  # with its marks
    else:
        scripts = r"\p{Han}"
        character = r"\p{Han}"
    word = Regex(_pattern(scripts, character))
    # `invert` keeps what matches: all between the words is removed.
    return pre_tokenizers.Split(word, "removed", invert=True)


def split_words(text: str) -> tuple[list[str], list[tuple[int, int]]]:
    """Returns the words of a text, and where each begins and ends in it, in characters.

    The words are nearly those of the Penn Treebank. Punctuation marks and English clitics (`do
    n't`, `Anna 's`) are words of their own. Addresses, numbers and abbreviations with points stay
    whole. Unlike in the Penn Treebank, words are divided at hyphens. Each Chinese character is a
    word.
    """
    return _parts(text, unspaced=False)


def split_tagged_words(text: str) -> tuple[list[str], list[tuple[int, int]]]:
    """Returns the words of a text that get a tag each, and where each begins and ends in it.

    Scripts such as Thai and Japanese have no blanks that show where a name ends, and Korean writes
    particles at its nouns. In these scripts each character with its marks (a grapheme) is a word.
    Other words are those of `split_words`. Beginnings and ends are in characters.
    """
    return _parts(text, unspaced=True)


def _parts(text: str, *, unspaced: bool) -> tuple[list[str], list[tuple[int, int]]]:
    """Returns the words of a text, and start and end of each in characters."""
    words_with_offsets = _splitter(unspaced=unspaced).pre_tokenize_str(text)
    words = [word for word, _ in words_with_offsets]
    offsets = [offsets for _, offsets in words_with_offsets]
    return words, offsets


def is_word_character(character: str) -> bool:
    r"""Returns whether a character stands within words: letters, marks, numbers and the underscore.

    `\w` of `re` has no marks, but the vowel signs of Indic scripts and decomposed accents are in
    words.
    """
    return character == "_" or unicodedata.category(character)[0] in "LMN"


def is_within_word(text: str, position: int) -> bool:
    """Returns whether a position lies between two characters of one word.

    In scripts without blanks (Chinese, Thai, ...) any two characters may be two words, so a
    position there is within a word only if the next character is a mark, such as an accent.
    """
    if not 0 < position < len(text):
        return False
    previous = text[position - 1]
    following = text[position]
    if not (is_word_character(previous) and is_word_character(following)):
        return False

    is_mark = unicodedata.category(following)[0] == "M"
    return is_mark or not _is_unspaced(previous + following)


def cuts_word(text: str, start: int, end: int) -> bool:
    """Returns whether a part of a text begins or ends inside a word."""
    return is_within_word(text, start) or is_within_word(text, end)


def _is_unspaced(characters: str) -> bool:
    """Returns whether one of the characters is of a script without blanks between words."""
    names = (f"{unicodedata.name(character, '')} " for character in characters)
    return any(name.startswith(_WITHOUT_BLANKS) for name in names)


def words_alone(text: str) -> str:
    """Returns the words of a text with one blank between them: `Anna's, too!` -> `Anna s too`."""
    if text.isascii():
        return _NO_ASCII_WORD.sub(" ", text).strip()
    characters = (
        character if is_word_character(character) and character != "_" else " "
        for character in text
    )
    return " ".join("".join(characters).split())


def find_words(words: list[str], text: str) -> list[tuple[int, int]] | None:
    """Returns start and end of given words in their text; None if they aren't all of its words.

    `["do", "n't"]` in `do  n't` -> `[(0, 2), (4, 7)]`. The words must come one behind the other,
    with nothing but blanks between.
    """
    offsets: list[tuple[int, int]] = []
    end = 0
    for word in words:
        start = text.find(word, end)
        if start < 0 or text[end:start].strip():
            return None
        end = start + len(word)
        offsets.append((start, end))
    return offsets
