"""The words that a file gives beside a span, compared with what the span's offsets mark."""

import unicodedata
from collections.abc import Iterator, Sequence

from bertctl.errors import DataError
from bertctl.words import shorten

_REMEDY = (
    "Count start and end in characters (Unicode code points) of the text as it stands, the end not "
    "included."
)


def require_surface(text: str, start: int, end: int, surface: str | None, where: str) -> None:
    """Refuses a span whose offsets mark other words than the file gives beside it.

    Blanks, case and the composition of accents may differ: many tools write a line end as a blank.

    Args:
        text: The text with the span.
        start: First character.
        end: The character after the last one.
        surface: The words that the file gives; None or blank where it gives none.
        where: Place of the span, for the message.

    Raises:
        DataError: Other words, with where they stand and how the offsets seem to be counted.
    """
    if surface is None or not surface.strip():
        return
    marked = text[max(start, 0) : max(end, 0)]
    if same_words(marked, surface):
        return
    message = (
        f"{where}: the span {start} to {end} is {shorten(repr(marked))}, the file says "
        f"{shorten(repr(surface))}"
    )
    raise DataError(f"{message}, {_true_place(text, start, end, surface)}", remedy=_REMEDY)


def same_words(marked: str, surface: str) -> bool:
    """Returns whether two texts differ at most in blanks, case and the composition of accents."""
    return marked == surface or _folded(marked) == _folded(surface)


def _folded(text: str) -> str:
    """Returns a text without blanks and case, with composed accents."""
    return "".join(unicodedata.normalize("NFC", text).split()).casefold()


def _true_place(text: str, start: int, end: int, surface: str) -> str:
    """Returns where words of a span really are, as the end of a sentence.

    If another way of counting explains the offsets, it is named; else the nearest place is.

    Args:
        text: The text with the span.
        start: First character by the file.
        end: The character after the last one by the file.
        surface: The words.
    """
    for true_start, true_end, counting in _countings(text, start, end):
        true_words = text[true_start:true_end]
        if true_words == true_words.strip() and same_words(true_words, surface):
            return f"which is at {true_start} to {true_end}: {counting}"

    words = surface.strip()
    starts = list(_occurrences(text, words))
    if not starts:
        return "which is nowhere in the text"
    nearest = min(starts, key=lambda position: abs(position - start))
    shift = nearest - start
    if shift:
        direction = "later" if shift > 0 else "earlier"
        distance = f"{abs(shift)} {direction}"
    else:
        distance = "with another end"
    return f"which is at {nearest} to {nearest + len(words)} ({distance})"


def _occurrences(text: str, words: str) -> Iterator[int]:
    """Yields where the words begin in a text, each time they occur."""
    position = text.find(words)
    while position >= 0:
        yield position
        position = text.find(words, position + 1)


def _countings(text: str, start: int, end: int) -> Iterator[tuple[int, int, str]]:
    """Yields where a span is if a tool did not count its offsets in characters, but in other units.

    In an emoji and `Anna`, offsets 2 to 6 that count UTF-16 are 1 to 5.

    Args:
        text: The text with the span.
        start: The first offset as the tool wrote it.
        end: The last one.

    Yields:
        Start and end in characters, and a sentence that says how the offsets were counted.
    """
    before = ["", *text][: len(text)]  # the character before each one
    after = [*text[1:], ""][: len(text)]
    # How much each character of the text counts: 0, 1 or more.
    widths_by_counting = {
        "the offsets count UTF-16 code units, in which an emoji is two": [
            2 if character > "\uffff" else 1 for character in text
        ],
        "the offsets count bytes (UTF-8)": [
            len(character.encode("utf-8", "surrogatepass")) for character in text
        ],
        "the offsets count a line end (CR LF) as one character": [
            0 if pair == ("\r", "\n") else 1 for pair in zip(text, after, strict=True)
        ],
        "the offsets count a line end as two characters (CR LF)": [
            2 if character == "\n" and previous != "\r" else 1
            for previous, character in zip(before, text, strict=True)
        ],
    }
    for counting, widths in widths_by_counting.items():
        positions = _positions(widths)  # offset of this counting -> number of the character
        if start in positions and end in positions:
            differs = (positions[start], positions[end]) != (start, end)
            if differs:
                yield positions[start], positions[end], counting
    yield start, end + 1, "the end is counted in; add 1 to each end"
    if start > 0:
        yield start - 1, end - 1, "the offsets count from 1"
        yield start - 1, end, "the offsets count from 1, the end included"


def _positions(widths: Sequence[int]) -> dict[int, int]:
    """Returns a mapping from offsets of another counting to positions in characters.

    `[2, 1]` (an emoji and a letter in UTF-16) -> `{0: 0, 2: 1, 3: 2}`. The last offset is the end
    of the text.

    Args:
        widths: How much each character counts in these offsets.
    """
    positions = {}
    offset = 0
    for position, width in enumerate(widths):
        positions[offset] = position
        offset += width
    positions[offset] = len(widths)
    return positions
