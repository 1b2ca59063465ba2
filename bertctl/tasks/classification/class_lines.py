"""Prediction lines of many rows with one label each, as arrays.

A line is made when it is asked for.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np

from bertctl.arrays import Array, Bools, Ints

_AT_ONCE = 8192
"""Lines that are made at once."""


@dataclass(frozen=True, eq=False)
class ClassLines(Sequence[dict[str, Any]]):
    """Prediction lines of rows that have one of C labels each.

    Attributes:
        labels: Names of the labels.
        gold: (N,) number of each row's label.
        predicted: (N,) number of the label that was answered.
        probabilities: (N, C) of all labels.
        clusters: (N,) number of the cluster of each row; None where the lines name none.
    """

    labels: tuple[str, ...]
    gold: Ints
    predicted: Ints
    probabilities: Array
    clusters: Ints | None = None

    def __len__(self) -> int:
        return len(self.gold)

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return list(self._lines(index))
        position = range(len(self))[index]  # a negative index counts from the end
        return next(self._lines(slice(position, position + 1)))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for begin in range(0, len(self), _AT_ONCE):
            yield from self._lines(slice(begin, begin + _AT_ONCE))

    def side(self, key: str) -> list[str]:
        """Returns the names of the `gold` labels, or of those of the `prediction`."""
        if key == "gold":
            numbers = self.gold
        else:
            numbers = self.predicted
        return [self.labels[number] for number in numbers.tolist()]

    def present(self) -> tuple[Bools, Bools]:
        """Returns (N, C) whether each label is there, and whether it was answered."""
        numbers = np.arange(len(self.labels))
        return self.gold[:, None] == numbers, self.predicted[:, None] == numbers

    def _lines(self, rows: slice) -> Iterator[dict[str, Any]]:
        """Yields some of the lines, with the names of labels in place of their numbers."""
        gold = self.gold[rows].tolist()
        predicted = self.predicted[rows].tolist()
        probabilities = self.probabilities[rows].tolist()
        if self.clusters is None:
            clusters = None
        else:
            clusters = self.clusters[rows].tolist()
        for i in range(len(gold)):
            line = {
                "gold": self.labels[gold[i]],
                "prediction": self.labels[predicted[i]],
                "probabilities": dict(zip(self.labels, probabilities[i], strict=True)),
            }
            if clusters is not None:
                line["cluster"] = clusters[i]
            yield line
