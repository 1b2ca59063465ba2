"""What formats of annotated texts have in common: documents, each a text with character spans."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from bertctl.data.unlabelled import NoLabel, UnusableLabel
from bertctl.errors import DataError

Span = tuple[int, int, str]
"""First character, the one after the last, and type."""


class Document(NamedTuple):
    """A text with its annotations.

    Attributes:
        id: its name.
        text: what the spans count characters of.
        spans: in any order.
        scores: probability of each span, where they are answers; else empty.
        parted: number of spans with words between their parts, which tags can't mark. They were
            left out.
        surfaces: the words that the file gives beside each span, None where it gives none; empty
            where it gives no words at all.
        problem: why its spans can't be learned, or why it has none; None where they can.
        gold: spans of the file, beside those that are answers; None where it has none.
    """

    id: str
    text: str
    spans: list[Span]
    scores: list[float]
    parted: int = 0
    surfaces: Sequence[str | None] = ()
    problem: NoLabel | UnusableLabel | None = None
    gold: list[Span] | None = None

    @property
    def scored(self) -> list[tuple[Span, float | None]]:
        """Spans, each with its probability, or None if they have none."""
        if not self.scores:
            return [(span, None) for span in self.spans]
        return list(zip(self.spans, self.scores, strict=True))

    @property
    def annotated(self) -> bool:
        """Whether somebody annotated the text. Otherwise it may have entities, but no spans."""
        return not isinstance(self.problem, NoLabel)

    @property
    def label(self) -> list[dict[str, Any]] | NoLabel | UnusableLabel:
        """Spans as objects, as JSON Lines have them; or why there are none that can be learned."""
        if self.problem is not None:
            return self.problem
        surfaces = self.surfaces or [None for _ in self.spans]
        return [
            {"start": start, "end": end, "label": label, "text": surface}
            for (start, end, label), surface in zip(self.spans, surfaces, strict=True)
        ]


def show_spans(spans: Iterable[Span]) -> str:
    """Returns spans as a person reads them."""
    return ", ".join(f"{start} to {end} {kind}" for start, end, kind in sorted(spans)) or "no spans"


def part(entry: Any, name: str, kind: type, where: str) -> Any:
    """Returns a field of a JSON object that must have a certain type.

    Args:
        entry: The object.
        name: Name of the field.
        kind: Its type, such as `dict`.
        where: File and place, for messages.

    Raises:
        DataError: The field does not exist, or is something else.
    """
    if isinstance(entry, Mapping):
        value = entry.get(name)
    else:
        value = None
    if type(value) is not kind:
        raise DataError(f"{where}: '{name}' is {value!r:.60}, where {kind.__name__} is needed")
    return value


def joined_parts(text: str, parts: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """Returns the parts of a span as one span; None if words lie between them.

    Tools cut a span at each line end, so in wrapped text many spans have several parts.

    Args:
        text: The text with the parts.
        parts: Start and end of each.
    """
    ordered = sorted(parts)
    for (_, end), (next_start, _) in itertools.pairwise(ordered):
        if next_start < end or text[end:next_start].strip():
            return None
    return ordered[0][0], ordered[-1][1]
