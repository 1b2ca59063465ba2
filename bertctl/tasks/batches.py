"""Windows of a split as padded arrays, and as tensors.

Letters: B windows in a batch, T tokens of the longest of them.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np

from bertctl.arrays import Array, Ints
from bertctl.runtime.batching import Padding

if TYPE_CHECKING:
    from torch import Tensor

_T = TypeVar("_T")

IGNORED = -100
"""Label of what no loss counts (the default `ignore_index` of torch and of transformers)."""


@dataclass(frozen=True)
class ArrayBatch:
    """Arrays of B windows: a batch before torch has seen it; a task may add fields of its own.

    Attributes:
        inputs: Name -> (B, T) int64 array: input_ids, attention_mask, token_type_ids.
        labels: Array whose first dimension is B, or None.
    """

    inputs: dict[str, Array]
    labels: Array | None

    def as_tensors(self) -> "Batch":
        """Returns the batch for torch."""
        return Batch(tensors_of(self.inputs), tensor_of(self.labels))


@dataclass(frozen=True)
class Batch:
    """Tensors of B windows; a task may add fields of its own.

    Attributes:
        inputs: Name -> (B, T) tensor for the model's forward: input_ids, attention_mask,
            token_type_ids.
        labels: Tensor whose first dimension is B, or None.
    """

    inputs: "dict[str, Tensor]"
    labels: "Tensor | None"

    @property
    def gold(self) -> "Tensor":
        """Returns the labels, where the caller knows that there are some.

        Raises:
            ValueError: There are none.
        """
        return present(self.labels)

    def tensors(self) -> "dict[str, Tensor]":
        """Returns all tensors by name, the inputs first."""
        import torch

        attributes = {field.name: getattr(self, field.name) for field in fields(self)}
        return self.inputs | {
            name: value for name, value in attributes.items() if isinstance(value, torch.Tensor)
        }

    def to(self, device: str) -> Self:
        """Returns the batch with all its tensors on a device."""
        moved: dict[str, Any] = {}
        for name, tensor in self.tensors().items():
            moved[name] = tensor.to(device)
        inputs = {name: moved.pop(name) for name in self.inputs}
        return replace(self, inputs=inputs, **moved)


def present(labels: _T | None) -> _T:
    """Returns the labels.

    Raises:
        ValueError: There are none.
    """
    if labels is None:
        raise ValueError("these examples have no labels")
    return labels


def labels_of_none(like: Array, n_rows: int) -> Array:
    """Returns labels for rows that have none: `IGNORED` for classes, NaN for 0/1 rows and scores.

    Args:
        like: (N, ...) labels of other rows.
        n_rows: How many rows.
    """
    filler = math.nan if like.dtype.kind == "f" else IGNORED
    return np.full((n_rows, *like.shape[1:]), filler, dtype=like.dtype)


def tensor_of(values: Array | None) -> "Tensor | None":
    """Returns an array as a tensor that shares its memory; None for None."""
    import torch

    if values is None:
        return None
    return torch.from_numpy(values)


def tensors_of(arrays: Mapping[str, Array]) -> "dict[str, Tensor]":
    """Returns arrays by name as tensors that share their memory."""
    import torch

    return {name: torch.from_numpy(values) for name, values in arrays.items()}


def padded_inputs(
    ids: Array, type_ids: Array, lengths: Ints, padding: Padding
) -> "dict[str, Tensor]":
    """Returns `padded_arrays` as tensors."""
    return tensors_of(
        padded_arrays(
            ids,
            type_ids,
            lengths,
            padding,
        )
    )


def padded_arrays(ids: Array, type_ids: Array, lengths: Ints, padding: Padding) -> dict[str, Array]:
    """Returns input_ids, attention_mask and token_type_ids, (B, T) int64 each.

    Args:
        ids: Tokens of all windows, one window after the other.
        type_ids: Segments of the same tokens.
        lengths: (B,) tokens of each window.
        padding: What fills up the shorter ones, and on which side.
    """
    mask = padding.mask(lengths)
    padded_ids = np.full(mask.shape, padding.id, dtype=np.int64)
    padded_types = np.zeros(mask.shape, dtype=np.int64)
    # The mask visits its positions row by row, which is the order of the tokens.
    padded_ids[mask] = ids
    padded_types[mask] = type_ids
    return {
        "input_ids": padded_ids,
        "attention_mask": mask.astype(np.int64),
        "token_type_ids": padded_types,
    }
