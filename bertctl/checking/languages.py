"""Texts in another script or language than the rest, and words that mix letters of two scripts."""

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from bertctl.checking.findings import (
    SHOWN_EXAMPLES,
    Example,
    Finding,
    FindingRules,
    examples_at,
    shorten,
)
from bertctl.checking.subject import Subject
from bertctl.data.packed_columns import column_of
from bertctl.languages import language_identifier

_RULES = FindingRules("languages")

_SCRIPTS = (
    "Latin", "Cyrillic", "Greek", "Arabic", "Hebrew", "Devanagari", "Han", "Hangul", "Thai", "Lao",
    "Khmer", "Myanmar", "Tibetan", "Bengali", "Gurmukhi", "Gujarati", "Oriya", "Tamil", "Telugu",
    "Kannada", "Malayalam", "Sinhala", "Georgian", "Armenian", "Ethiopic", "Mongolian", "Thaana",
    "Syriac", "Cherokee", "Tifinagh", "Bopomofo", "Javanese", "Balinese", "Nko", "Yi",
)  # fmt: skip
# Cyrillic and Greek letters that look like Latin ones; phonetic script uses others (theta, beta,
# chi) beside Latin.
_ALIKE = (
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455"
    "\u0410\u0412\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0425\u0406"
    "\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7"
    "\u03bf\u03bd"
)
_MAIN = 0.9  # share of the texts from which a script or language is the main one
_LETTERS_OF_SCRIPT = 3  # letters below which a text's script is not judged
_LETTERS_OF_LANGUAGE = 60  # letters below which its language is not
_SURE = 0.95
_LOOKED_AT = 10_000  # texts of a split whose language is looked at, evenly spread
_READ = 200  # characters of a text that its language is judged by


def check_languages(subject: Subject) -> Iterator[Finding]:
    """Yields texts in another script or language than most, and words that mix two scripts."""
    for split in subject.splits:
        columns = list(subject.texts[split].values())
        if len(columns) == 1:
            texts = columns[0]
        else:
            texts = column_of(" ".join(fields) for fields in zip(*columns, strict=True))
        yield from _scripts(subject, split, texts)
        yield from _mixed_words(subject, split, texts)
        yield from _languages(subject, split, texts)


@cache
def _patterns() -> tuple[Any, Any]:
    """Returns two patterns of the library `regex`: runs of letters by script, and mixed words.

    In mixed words, Latin letters are next to letters of another script that look like them.
    """
    import regex

    of_script = [rf"(?P<{name}>\p{{Script={name}}}+)" for name in _SCRIPTS]
    of_script.append(r"(?P<Kana>[\p{Script=Hiragana}\p{Script=Katakana}]+)")
    mixed = rf"\b\w*(?:[A-Za-z][{_ALIKE}]|[{_ALIKE}][A-Za-z])\w*\b"
    return regex.compile("|".join(of_script)), regex.compile(mixed)


def script_of(text: str) -> str | None:
    """Returns the script that more than half of a text's letters have, such as "Latin".

    The result is None if the text has hardly any letters, or if no script has the majority.
    """
    if text.isascii():
        if sum(map(str.isalpha, text)) >= _LETTERS_OF_SCRIPT:
            return "Latin"
        return None
    letters: Counter[str] = Counter()  # letters of each script
    pattern_of_scripts, _ = _patterns()
    for run in pattern_of_scripts.finditer(text):
        letters[run.lastgroup] += len(run[0])
    if letters["Kana"]:  # Japanese is written in both
        letters["Kana"] += letters.pop("Han", 0)
    if letters.total() < _LETTERS_OF_SCRIPT:
        return None
    script, count = letters.most_common(1)[0]
    if 2 * count > letters.total():
        return script
    return None


def _scripts(subject: Subject, split: str, texts: Sequence[str]) -> Iterator[Finding]:
    """Yields a finding on the texts that are not in the script of most texts, if there are any."""
    scripts = column_of(map(script_of, texts))
    counts = Counter(script for script in scripts if script)
    if len(counts) < 2:
        return
    main_script, count = counts.most_common(1)[0]
    total = counts.total()
    script_counts = ", ".join(f"{name} {n:,}" for name, n in counts.most_common())
    in_other_script = [i for i, script in enumerate(scripts) if script and script != main_script]
    examples = examples_at(subject.splits[split], in_other_script, texts.__getitem__)
    if counts.keys() - {main_script} == {"Latin"}:
        remedy = (
            "Nearly every model reads Latin letters: look whether these texts are meant to be here."
        )
        severity = "note"
    else:
        known = f"{subject.recipe.model.name} may know them only as single letters or [UNK]"
        remedy = f"Is the model made for them? {known}; bert-base-multilingual reads 104 languages."
        severity = None
    has_main_script = count >= _MAIN * total
    if has_main_script:
        message = None  # the usual sentence: "N of M texts of SPLIT are not in SCRIPT letters"
    else:
        message = f"the texts of {split} are in several scripts: {script_counts}"
    yield _RULES.finding(
        "other-script",
        split,
        (len(in_other_script), total),
        examples,
        noun="text",
        message=message,
        says=f"are not in {main_script} letters",
        severity=severity,
        remedy=remedy,
    )


def _mixed_words(subject: Subject, split: str, texts: Sequence[str]) -> Iterator[Finding]:
    """Yields the texts with a word that mixes scripts, and shows its letters as escapes."""
    mixed_words: dict[int, str] = {}
    for i, text in enumerate(texts):
        if text.isascii():
            continue
        _, pattern_of_mixed_words = _patterns()
        word = pattern_of_mixed_words.search(text)
        if word is not None:
            escaped = word[0].encode("ascii", "backslashreplace").decode()
            mixed_words[i] = f"{shorten(word[0])!r} is {escaped}"
    if mixed_words:
        rows = subject.splits[split]
        examples = tuple(
            Example(rows.where(i), word_text)
            for i, word_text in list(mixed_words.items())[:SHOWN_EXAMPLES]
        )
        yield _RULES.finding("mixed-script-word", split, (len(mixed_words), len(rows)), examples)


def _has_letters(text: str) -> bool:
    """Returns whether a text has enough letters for its language to be recognised."""
    return sum(map(str.isalpha, text[:_READ])) >= _LETTERS_OF_LANGUAGE


def _languages(subject: Subject, split: str, texts: Sequence[str]) -> Iterator[Finding]:
    """Yields a finding on texts that are in another language than most texts, almost surely.

    Only the beginning of each text is looked at. In a large split, only a sample of the texts is.
    """
    long_enough = (i for i, text in enumerate(texts) if _has_letters(text))
    chosen: Sequence[int] = array("q", long_enough)
    if len(chosen) > _LOOKED_AT:
        # A sample is enough. It is spread evenly over the file, as files are often sorted.
        step = len(chosen) / _LOOKED_AT
        chosen = [chosen[int(k * step)] for k in range(_LOOKED_AT)]
    identify = language_identifier()
    language_of_text: dict[int, str] = {}  # of the texts whose language is almost sure
    for i in chosen:
        language, probability = identify(texts[i][:_READ])
        if probability >= _SURE:
            language_of_text[i] = language
    counts = Counter(language_of_text.values())
    if len(counts) < 2:
        return
    main_language, _ = counts.most_common(1)[0]
    in_other_language = [i for i, language in language_of_text.items() if language != main_language]
    language_counts = ", ".join(f"{language} {n:,}" for language, n in counts.most_common(6))
    says = f"that were looked at are probably in another language than the rest ({language_counts})"
    if len(in_other_language) > 0.01 * len(chosen):
        severity = "warning"
    else:
        severity = "note"
    rows = subject.splits[split]
    examples = examples_at(
        rows, in_other_language, lambda i: f"{language_of_text[i]}: {shorten(texts[i], limit=80)}"
    )
    yield _RULES.finding(
        "other-language",
        split,
        (len(in_other_language), len(chosen)),
        examples,
        says=says,
        severity=severity,
    )
