"""Character spans of a text as tags of its words."""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bertctl.data.annotations.document import Span
from bertctl.data.names import first_field
from bertctl.data.tag_schemes import write_tags
from bertctl.errors import DataError
from bertctl.progress import Listener
from bertctl.words import count

_STARTS = ("start_char", "start", "start_offset", "begin")
_ENDS = ("end_char", "end", "end_offset", "stop")
_LABELS = ("label", "type", "tag", "entity", "entity_group", "class")
_SURFACES = (
    "text", "surface", "mention", "surface_form", "string", "word", "phrase", "span_text",
    "entity_text", "covered_text", "coveredText", "matched_text", "mention_text",
)  # fmt: skip
"""Usual names of the words that a file gives beside a span's offsets."""
_BEGINNINGS_OF_WORDS = "\u0120\u2581"
"""Characters by which byte-level and SentencePiece tokens begin words."""
_MOST_EXAMPLES = 5


@dataclass
class Misaligned:
    """Spans that don't begin and end where words do, as they are found.

    Attributes:
        count: how many were widened to whole words.
        lost: how many could not be kept, since other spans have their words.
        examples: the first ones, with file and line.
        longest: whether of spans over each other the longest is kept; else they are refused.
        overlapping: how many were left out so.
    """

    longest: bool = False
    overlapping: int = 0
    count: int = 0
    lost: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, example: str, *, lost: bool) -> None:
        """Counts a span that was widened, or was `lost`; the first ones are kept as examples."""
        if lost:
            self.lost += 1
        else:
            self.count += 1
        if len(self.examples) < _MOST_EXAMPLES:
            self.examples.append(example)

    def report(self, source: str, total: int, listener: Listener) -> None:
        """Warns of spans that were left out, widened or lost, if there are any.

        Args:
            source: Name of the file.
            total: All of its spans.
            listener: Receives the warnings.
        """
        if self.overlapping:
            listener.warn(
                f"{source}: {self.overlapping} of {total} spans lie over longer ones and are left "
                "out"
            )
        if not self.examples:
            return
        if self.lost:
            lost = f", {self.lost} can't be kept because other spans have their words"
        else:
            lost = ""
        n_more = self.count + self.lost - len(self.examples)
        example_lines = "\n".join(f"  {example}" for example in self.examples)
        if n_more:
            example_lines += f"\n  ... and {n_more} more"
        listener.warn(
            f"{source}: {self.count + self.lost} of {total} spans begin or end inside a word; "
            f"{self.count} are taken as the whole words{lost}:\n"
            f"{example_lines}\n"
            "  To tag parts of these words, give the words yourself: a column `tokens` with a list "
            "of them beside the text"
        )


def named_parts(span: Mapping[str, Any]) -> list[Any]:
    """Returns start, end and label of a span by their usual names; None for what it lacks.

    `{"start_offset": 0, "end_offset": 4, "type": "PER"}` -> `[0, 4, "PER"]`.
    """
    return [first_field(span, names) for names in (_STARTS, _ENDS, _LABELS)]


def read_span(value: Any, where: str) -> Span:
    """Returns start, end and label of a span, `(0, 4, "PER")`.

    Args:
        value: An object with these keys (spaCy, Prodigy), or a list `[0, 4, "PER"]` (doccano).
        where: File and line.

    Raises:
        DataError: It is something else.
    """
    start = None
    end = None
    label = None
    if isinstance(value, Mapping):
        start, end, label = named_parts(value)
        labels = value.get("labels")
        if label is None and isinstance(labels, list):  # Label Studio's short form
            if len(labels) != 1:
                if labels:
                    counted = f"{len(labels)} labels: {', '.join(map(str, labels))}"
                else:
                    counted = "no label"
                message = f"{where}: the span {start} to {end} has {counted}"
                raise DataError(
                    message, remedy="A word has one label: correct it where it was annotated."
                )
            label = labels[0]
    elif isinstance(value, list | tuple) and len(value) == 3:
        start, end, label = value
    if not (type(start) is int and type(end) is int and isinstance(label, str) and label):
        remedy = (
            'A span is {"start": 0, "end": 4, "label": "PER"}, counted in characters, or [0, 4, '
            '"PER"].'
        )
        raise DataError(f"{where}: this is not a span: {value!r:.100}", remedy=remedy)
    return start, end, label


def surface_of(value: Any) -> str | None:
    """Returns the words that a span's object gives beside its offsets; None where it gives none."""
    if not isinstance(value, Mapping):
        return None
    name = next((name for name in _SURFACES if isinstance(value.get(name), str)), None)
    if name is None:
        return None
    if name != "word":
        return str(value[name])
    # The pipelines of transformers write tokens as `word`, `##ing` or `[UNK]`.
    word = str(value[name]).removeprefix("##").lstrip(_BEGINNINGS_OF_WORDS)
    return None if "[UNK]" in word else word


def tags_of_spans(
    spans: Sequence[Span],
    text: str,
    offsets: Sequence[tuple[int, int]],
    where: str,
    misaligned: Misaligned,
) -> list[str]:
    """Returns spans as tags in IOB2, one per word.

    A span that begins or ends inside a word is widened to the whole word. If an earlier span
    already has all words of a span, the later span is lost.

    Args:
        spans: start, end (in characters) and label.
        text: the text with the spans.
        offsets: start and end of each word, ascending.
        where: file and line.
        misaligned: gets spans that were widened, or could not be kept.

    Raises:
        DataError: a span outside the text, an empty one, or two over each other.
    """
    starts = [start for start, _ in offsets]
    ends = [end for _, end in offsets]
    entities: list[tuple[str, int, int]] = []  # type, first word, word after the last one
    last_end = 0  # of the span before, in characters
    last_span = ""  # that span, for messages
    first_free_word = 0  # behind the words of the span before
    allowed_spans = _longest(spans) if misaligned.longest else spans
    misaligned.overlapping += len(spans) - len(allowed_spans)
    for start, end, label in sorted(allowed_spans):
        span_text = f"{text[max(start, 0) : end]!r} ({start} to {end}, {label})"
        is_in_text = 0 <= start < end <= len(text)
        if not is_in_text or not text[start:end].strip():
            length = count(len(text), "character")
            message = f"{where}: the span {span_text} is not in its text of {length}, or is empty"
            raise DataError(
                message, remedy="Spans count characters of `text` from 0, the end not included."
            )
        if start < last_end:
            raise DataError(
                f"{where}: the spans {last_span} and {span_text} overlap; a word has one tag",
                remedy="Keep one of the two, or of all the longest: "
                "`data.overlapping_spans=longest`; for nested "
                "entities train a run for each layer.",
            )
        last_end = end
        last_span = span_text
        # The words that the span touches: `first_touched` up to, not including, `after`.
        first_touched = bisect_right(ends, start)
        after = bisect_left(starts, end)
        # An earlier span that was widened to whole words may have taken the first one.
        first_word = max(first_touched, first_free_word)
        if first_word >= after:
            misaligned.add(f"{where}: {span_text}", lost=True)
            continue
        words = text[starts[first_word] : ends[after - 1]]
        is_changed = words != text[start:end].strip() or first_word != first_touched
        if is_changed:
            misaligned.add(f"{where}: {span_text}: taken as {words!r}", lost=False)
        entities.append((label, first_word, after))
        first_free_word = after
    return write_tags(entities, len(offsets), "IOB2")


def _longest(spans: Sequence[Span]) -> list[Span]:
    """Returns spans without overlaps.

    Longer spans are taken first; of equally long spans, the one that begins first.
    """
    chosen: list[Span] = []
    by_length = sorted(spans, key=lambda span: (span[0] - span[1], span))  # the longest first
    for start, end, label in by_length:
        is_free = all(
            end <= chosen_start or start >= chosen_end for chosen_start, chosen_end, _ in chosen
        )
        if is_free:
            chosen.append((start, end, label))
    return chosen
