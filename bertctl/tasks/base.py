"""The Task protocol: one object for each task type turns columns into numbers and numbers into answers.

Letters: B examples in a batch, N examples in a split, C outputs of the head, T tokens.
The loop, inference and the command line know tasks only through this.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from torch import Tensor

    from bertctl.config.schema import Recipe
    from bertctl.data.rows import Rows
    from bertctl.metrics.value import MetricValue


class Features(Protocol):
    """A split as the model reads it: numbers, no padding yet."""

    def __len__(self) -> int:
        """N."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(N,) tokens of each example, for batches of like lengths."""

    @property
    def truncated(self) -> NDArray[np.bool_]:
        """(N,) whether something of the example was cut off."""

    @property
    def lost_tokens(self) -> NDArray[np.int64]:
        """(N,) tokens of each example that were cut off."""

    @property
    def unknown(self) -> NDArray[np.int64]:
        """(N,) unknown tokens of each example."""


class Task(Protocol):
    """One task, fitted to one data set: it knows its label names.

    Class attributes:
        name: as in `recipe.task`.
        auto_class: the Auto class of transformers that has the head.
        columns: canonical columns it needs; `label` only for training and scoring.
    """

    name: ClassVar[str]
    auto_class: ClassVar[str]
    columns: ClassVar[tuple[str, ...]]

    @property
    def primary_metric(self) -> str:
        """Name of the metric that picks the best weights."""

    @classmethod
    def from_data(cls, recipe: "Recipe", train: "Rows", labels: Sequence[str] | None) -> Self:
        """Learn the label names from the training rows.

        Args:
            labels: names in the data set's official order, or None.

        Raises:
            DataError: labels that don't fit the task, each with file and line.
        """

    @classmethod
    def from_model(cls, recipe: "Recipe", model_config: Mapping[str, Any]) -> Self:
        """The task of a trained model: label names from `id2label` of its config.json."""

    def head(self) -> dict[str, Any]:
        """Fields of the model's config that the head needs: num_labels, id2label, label2id, problem_type."""

    def check(self, rows: "Rows") -> None:
        """Refuse labels that this task doesn't know.

        Raises:
            DataError: with the file, the line, what was found and what fits.
        """

    def encode(self, rows: "Rows", tokenizer: "Tokenizer", *, max_length: int) -> Features:
        """Columns to numbers; labels too where the rows have them."""

    def collate(
        self, features: Any, indices: NDArray[np.int64], *, pad_id: int, pad_left: bool, width: int | None = None
    ) -> "Batch":
        """Some examples as padded tensors: to `width` tokens, or to the longest among them when left out."""

    def loss(self, logits: "Tensor", batch: Any) -> "Tensor":
        """Loss of each example, (B,); the loop divides its sum by the whole global batch's `weight`."""

    def weight(self, batch: Any) -> int:
        """How many things the batch's loss is a sum over: examples, or labelled words."""

    def decode(self, logits: NDArray[np.float32], rows: "Rows") -> list[dict[str, Any]]:
        """(N, C) logits to one answer an example: `prediction`, and `probabilities` where there are any."""

    def score(
        self, logits: NDArray[np.float32], features: Any, *, resamples: int, seed: int
    ) -> "dict[str, MetricValue]":
        """The official metrics of the task, with 95 % intervals."""

    def baseline(self, train: Any, features: Any) -> dict[str, float]:
        """The same metrics for the answer that ignores the text: the majority class, the mean score."""

    def describe(self, rows: "Rows") -> str:
        """The label counts (or the range of the scores) of a split, in a line."""

    def gold(self, rows: "Rows", index: int) -> Any:
        """The label of a row, as prediction files show it."""


class Batch(Protocol):
    """Tensors of some examples.

    Attributes:
        inputs: name -> (B, T) tensor for the model's forward: input_ids, attention_mask, token_type_ids.
        labels: (B,) or (B, C) tensor, or None.
    """

    inputs: "dict[str, Tensor]"
    labels: "Tensor | None"
