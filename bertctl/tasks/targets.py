"""What a prediction rests on, as its task sees it.

It is a number that the network gives, and the texts it was computed from.

The number is a sum of logits or the score, never a probability: a softmax moves with the logits of
the other answers, and where it is near 1 nothing moves it. Letters: W words of a text, T tokens of
a line.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bertctl.arrays import Array, Ints
from bertctl.data.rows import Rows


@dataclass(frozen=True)
class Answered:
    """Rows and what was answered.

    Attributes:
        rows: N rows.
        features: The rows as numbers.
        outputs: What the forward pass kept of them.
        answers: N answers, as `Task.decode` gives them.
    """

    rows: Rows
    features: Any
    outputs: Mapping[str, Array]
    answers: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Part:
    """One of the texts that a line of input is made of.

    Attributes:
        column: Column of the rows.
        text: The text as the person wrote it; or its words, where the rows have words.
        start: Where the line begins with it: its token, or its word.
        places: (W, 2) for words: position of each one's first token in the line, and the position
            after its last.
    """

    column: str
    text: str | Sequence[str]
    start: int = 0
    places: Ints | None = None


@dataclass(frozen=True)
class Target:
    """One number that is explained: a sum of what the network gives for one line of its input.

    Attributes:
        row: Number of the row among those that were answered.
        window: Number of the window of the features in which the line is.
        places: The outputs that are added up: their indices within the line's outputs, the position
            of a token first where each token has outputs.
        named: What it stands for, for a person, such as the label.
        parts: The texts of the line, in their order.
        line: Which of the window's lines, where it has several (choices).
    """

    row: int
    window: int
    places: tuple[tuple[int, ...], ...]
    named: Mapping[str, Any]
    parts: tuple[Part, ...]
    line: int = 0


def text_parts(rows: Rows, index: int, names: Iterable[str]) -> tuple[Part, ...]:
    """Returns the texts of a row, those of the named columns that the rows have."""
    return tuple(Part(name, text) for name, text in rows.fields(index, names).items())
