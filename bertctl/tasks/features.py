"""What a split says of itself, whatever its task is: what most splits answer alike."""

from abc import ABC, abstractmethod
from typing import ClassVar

from bertctl.arrays import Array, Ints


class SplitFeatures(ABC):
    """Base of the features of a split, with the answers that most of them give.

    Class attributes:
        prediction_noun: What one prediction is about, for people.
    """

    prediction_noun: ClassVar[str] = "row"

    @abstractmethod
    def __len__(self) -> int:
        """Returns U, the number of windows."""

    @property
    @abstractmethod
    def lengths(self) -> Ints:
        """(U,) tokens of each window."""

    def prediction_labels(self) -> Array | None:
        """Returns (P,) or (P, C) labels of the predictions.

        It is None without labels, or where a prediction has none of its own.
        """
        return None

    def texts_to_keep_apart(self) -> Ints | None:
        """Returns (U, K) numbers of texts that no batch should hold twice, for each window.

        It is None if a batch may hold them all.
        """
        return None

    @property
    def splits_long_texts(self) -> bool:
        """Whether one long text is read in several passes that share a loss."""
        return False

    @abstractmethod
    def windows_of_rows(self) -> Ints:
        """Returns (N,) windows that each row is read in."""

    @abstractmethod
    def release_memory(self) -> None:
        """Gives back memory of token ids that were read from a disk; they can be read again."""

    def tokens_in(self, indices: Ints) -> int:
        """Returns how many tokens are read for these windows."""
        return int(self.lengths[indices].sum())


class OneAnswer(SplitFeatures):
    """A split in which each window has one answer."""

    def release_memory(self) -> None:
        """Does nothing: what is read is no file of this split's own."""

    @property
    def num_predictions(self) -> int:
        """One for each window."""
        return len(self)

    def prediction_indices(self, indices: Ints) -> Ints:
        """Returns the windows themselves."""
        return indices
