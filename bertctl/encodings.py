"""Which encoding bytes are written in that are not UTF-8.

It is the one by which they have words of a language.

The usual libraries guess well from many pages. What is asked about here is often a line or two,
which nearly every encoding can decode, so each candidate is judged by what the text would be:
letters of the language that it would be in, at places where letters stand; or the usual characters
of a script. Where none fits, none is named.
"""

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from bertctl.languages import language_identifier

_SEEN = 65_536
"""Bytes that are looked at."""

_LATIN_LETTERS: Mapping[str, str] = {
    "en": "àâäåæçèéêëíîïñóôöøùúûüœßá",
    "fr": "àâæçèéêëîïôœùûüÿ",
    "de": "äöüßéèàç",
    "es": "áéíñóúü",
    "pt": "ãáâàçéêíóõôúü",
    "it": "àèéìíîòóùú",
    "ca": "àçèéíïòóúü",
    "nl": "ëïéèêöüóáäç",
    "sv": "åäöéü",
    "fi": "åäöšž",
    "da": "æøåéöäü",
    "no": "æøåéòô",
    "nb": "æøåéòô",
    "nn": "æøåéòô",
    "is": "áðéíóúýþæö",
    "pl": "ąćęłńóśźż",
    "cs": "áčďéěíňóřšťúůýž",
    "sk": "áäčďéíĺľňóôŕšťúýž",
    "hu": "áéíóöőúüű",
    "ro": "ăâîșțşţ",
    "hr": "čćđšž",
    "bs": "čćđšž",
    "sl": "čšžćđ",
    "tr": "çğıöşüâîû",
    "az": "çəğıöşü",
    "et": "äõöüšž",
    "lv": "āčēģīķļņšūž",
    "lt": "ąčęėįšųūž",
    "sq": "çë",
}
"""Letters beyond ASCII that each language has, by its code."""

_ANY_LATIN = _LATIN_LETTERS["en"]  # names and loan words, where the language is not clear
_LATIN_ENCODINGS = (
    "latin-1",
    "cp1252",
    "cp1254",
    "cp1250",
    "iso8859_2",
    "cp1257",
    "mac_roman",
    "cp850",
    "iso8859_9",
)
_IN_WORDS = "’'`´ʼ·-\xad"  # signs that may stand between letters
_BESIDE_WORDS = "«»„“”‘‚‹›…–—€£¥°©®™¿¡•ªº½¼¾\xa0"  # signs that may touch a word at one side
_SURE_OF_LANGUAGE = 0.8

_COMMON_LETTERS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (
        ("cp1251", "koi8_r", "cp866", "iso8859_5", "mac_cyrillic", "koi8_u"),
        "[а-яёіїєґўђјљњћџ]",
        "оеаинтсрвлкмі",
    ),
    (("cp1253", "iso8859_7"), "[α-ωάέήίόύώϊϋΐΰς]", "αοιετσνηυρπκςάόίέή"),
    (("cp1255", "iso8859_8"), "[א-ת]", "יוהלאתמרבשנד"),
    (("cp1256", "iso8859_6"), "[ء-ي]", "اليمنوترهبعدفةسك"),
    (("tis_620", "cp874"), "[ก-๛]", "านรอกเงมยลวดทสตะปบคหั่้ีิแไ"),
)
"""Encodings of a script, its letters in lower case, and those of them that make up most of every
text."""


class Candidate(NamedTuple):
    """An encoding that bytes may be in.

    Attributes:
        encoding: The encoding's name in Python.
        text: The bytes decoded by it.
        score: How well the text fits, from 0 to 1.
    """

    encoding: str
    text: str
    score: float


def likely_encoding(data: bytes) -> Candidate | None:
    """Returns the encoding by which bytes are words of a language; None if no encoding fits.

    Args:
        data: Lines that are not UTF-8, or only the surroundings of the bytes that are not.
    """
    data = data[:_SEEN]
    runs = re.findall(rb"[\x80-\xff]+", data)
    if not runs:
        return None
    # In a Latin script, single letters such as é stand among those of ASCII, so the runs of other
    # bytes are short. In any other script, whole words consist of such bytes.
    is_latin = sum(map(len, runs)) < 1.8 * len(runs)
    if is_latin:
        candidates = _latin_candidates(data)
    else:
        candidates = [*_asian_candidates(data), *_script_candidates(data)]
    # On a tie the first one.
    return max(candidates, key=lambda candidate: candidate.score, default=None)


def _decoded(data: bytes, encoding: str) -> str | None:
    """Returns the text that bytes are by an encoding; None if they are no text by it.

    A text has no control characters (except white space) and no characters of private use.
    """
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        # Data that was cut to `_SEEN` bytes may end within a character, which is left out.
        is_last_character_cut = len(data) >= _SEEN and error.start >= len(data) - 4
        if not is_last_character_cut:
            return None
        text = data[: error.start].decode(encoding)
    if re.search(r"[\x00-\x08\x0e-\x1f\x7f-\x9f\ue000-\uf8ff]", text):
        return None
    return text


def _latin_candidates(data: bytes) -> list[Candidate]:
    """Returns the Latin encodings by which the bytes are a text.

    Nearly all characters beyond ASCII have to be letters of its language, and to stand in words.
    """
    candidates = []
    for encoding in _LATIN_ENCODINGS:
        text = _decoded(data, encoding)
        if text is None:
            continue
        language, sureness = language_identifier()(text)
        if sureness >= _SURE_OF_LANGUAGE:
            letters = _LATIN_LETTERS.get(language, "")
        else:
            letters = ""
        score = _share_of_letters(text, letters or _ANY_LATIN)
        beyond_ascii = re.findall(r"[^\x00-\x7f]", text)
        if any(map(str.isalpha, beyond_ascii)):
            # At least one letter such as é touches a letter of ASCII.
            has_words = (
                re.search(r"[A-Za-z][^\W\d_A-Za-z]|[^\W\d_A-Za-z][A-Za-z]", text) is not None
            )
        else:
            # There are only signs: all of them have to be usual in or beside words.
            has_words = all(sign in _BESIDE_WORDS or sign in _IN_WORDS for sign in beyond_ascii)
        if score >= 0.9 and has_words:
            candidates.append(Candidate(encoding, text, score))
    return candidates


def _share_of_letters(text: str, letters: str) -> float:
    """Returns the share of the characters beyond ASCII that fit a language, from 0 to 1.

    A letter fits if the language has it, unless it is a capital behind a small letter. A sign, such
    as a dash, fits by its place: in a word, beside one or between words.

    Args:
        text: A text with at least one character beyond ASCII.
        letters: The language's letters beyond ASCII, in lower case.
    """
    n_fitting = 0
    n_characters = 0
    for match in re.finditer(r"[^\x00-\x7f]", text):
        character = match[0]
        before = text[match.start() - 1 : match.start()]
        after = text[match.end() : match.end() + 1]
        if character.isalpha():
            is_capital_in_word = character.isupper() and before.islower()
            fits = character.lower() in letters and not is_capital_in_word
        elif character in _IN_WORDS:
            fits = True
        else:
            n_touched_letters = before.isalpha() + after.isalpha()
            most_touched_letters = 1 if character in _BESIDE_WORDS else 0
            fits = n_touched_letters <= most_touched_letters
        n_fitting += fits
        n_characters += 1
    return n_fitting / n_characters


def _script_candidates(data: bytes) -> list[Candidate]:
    """Returns the encodings of other alphabets by which the bytes are a text.

    By such an encoding, most letters are among the most frequent ones of one script, such as Greek.
    """
    candidates = []
    for encodings, letter_pattern, frequent_letters in _COMMON_LETTERS:
        for encoding in encodings:
            text = _decoded(data, encoding)
            if text is None:
                continue
            beyond_ascii = re.findall(r"[^\x00-\x7f\s«»„“”‘’–—…№]", text)
            letters = [
                character
                for character in beyond_ascii
                if re.match(letter_pattern, character.lower())
            ]
            is_of_script = bool(letters) and len(letters) >= 0.95 * len(beyond_ascii)

            # KOI8-R has its capitals where Windows-1251 has small letters. So a text that is
            # decoded by the wrong one of the two has capitals behind small letters.
            capitals_in_words = re.findall(r"(?<=[^\W\d_])(?<![A-ZА-ЯΑ-Ω])[А-ЯΑ-Ω]", text)
            has_swapped_cases = len(capitals_in_words) > 0.05 * len(letters)
            if not is_of_script or has_swapped_cases:
                continue
            n_frequent = sum(character.lower() in frequent_letters for character in letters)
            score = n_frequent / len(letters)
            if score >= 0.55:
                candidates.append(Candidate(encoding, text, score))
    return candidates


def _asian_candidates(data: bytes) -> list[Candidate]:
    """Returns the encodings of East Asia by which nearly all characters are usual ones.

    Japanese is told from Chinese by its kana, which only Japanese texts have.
    """
    candidates = []
    for encodings, is_usual, least_share_of_kana in _ASIAN_ENCODINGS:
        for encoding in encodings:
            text = _decoded(data, encoding)
            if text is None:
                continue
            beyond_ascii = re.findall(r"[^\x00-\x7f]", text)
            if len(beyond_ascii) < 2:
                continue
            n_kana = sum("\u3040" <= character <= "\u30ff" for character in beyond_ascii)
            has_enough_kana = n_kana >= least_share_of_kana * len(beyond_ascii)
            score = sum(map(is_usual, beyond_ascii)) / len(beyond_ascii)
            if score >= 0.9 and has_enough_kana:
                # With 0.001 more, it is preferred to an alphabet with the same score.
                candidates.append(Candidate(encoding, text, score + 0.001))
                # The next encoding of the group would give the same text: it only has more
                # characters.
                break
    return candidates


def _row(character: str, encoding: str) -> int:
    """Returns the first of a character's two bytes in an encoding of East Asia; 0 if it has none.

    These encodings put their most frequent characters into neighbouring rows, by this byte.
    """
    try:
        return character.encode(encoding)[0]
    except UnicodeEncodeError:
        return 0


def _is_usual_chinese(character: str) -> bool:
    """Returns whether a character is frequent in simplified Chinese (level 1 of GB 2312)."""
    return 0xB0 <= _row(character, "gb2312") <= 0xD7 or character in _PUNCTUATION


def _is_usual_traditional(character: str) -> bool:
    """Returns whether a character is frequent in traditional Chinese (level 1 of Big5)."""
    return 0xA4 <= _row(character, "big5") <= 0xC6 or character in _PUNCTUATION


def _is_usual_japanese(character: str) -> bool:
    """Returns whether a character is kana, or a kanji of level 1 (rows 0xB0 to 0xCF of EUC-JP)."""
    is_frequent_kanji = 0xB0 <= _row(character, "euc_jp") <= 0xCF
    is_kana = "\u3040" <= character <= "\u30ff"
    return is_frequent_kanji or is_kana or character in _PUNCTUATION


def _is_usual_korean(character: str) -> bool:
    """Returns whether a character is a syllable of Hangul."""
    return "\uac00" <= character <= "\ud7a3" or character in _PUNCTUATION


_PUNCTUATION = frozenset("\u3000、。，．・：；？！「」『』（）【】《》〈〉“”‘’…—～〜·％")
_ASIAN_ENCODINGS: tuple[tuple[tuple[str, ...], Callable[[str], bool], float], ...] = (
    (("shift_jis", "cp932"), _is_usual_japanese, 0.1),
    (("euc_jp",), _is_usual_japanese, 0.1),
    (("euc_kr", "cp949"), _is_usual_korean, 0.0),
    (("gbk", "gb18030"), _is_usual_chinese, 0.0),
    (("big5", "cp950"), _is_usual_traditional, 0.0),
)
"""Encodings, which characters are usual in them, and the least share of kana."""
