"""What formats of annotated texts have in common: documents, each a text with character spans."""

from collections.abc import Mapping
from typing import Any, NamedTuple

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
        parted: how many spans of several parts, which tags can't mark, were left out.
        annotated: whether it was looked at; else that there are no spans says nothing.
    """

    id: str
    text: str
    spans: list[Span]
    scores: list[float]
    parted: int = 0
    annotated: bool = True

    @property
    def scored(self) -> list[tuple[Span, float | None]]:
        """Are the spans, each with its probability."""
        scores: list[float | None] = [*self.scores] or [None for _ in self.spans]
        return list(zip(self.spans, scores, strict=True))


def part(entry: Any, name: str, kind: type, where: str) -> Any:
    """Returns a field of a JSON object.

    Raises:
        DataError: it is not there, or is something else.
    """
    value = entry.get(name) if isinstance(entry, Mapping) else None
    if type(value) is not kind:
        raise DataError(f"{where}: '{name}' is {value!r:.60}, where {kind.__name__} is needed")
    return value
