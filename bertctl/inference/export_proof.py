"""The windows that travel in an export, and how far a graph is from what the model said of them.

Letters: U windows, B of them in a batch, T tokens, C outputs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np

from bertctl.arrays import Array, Ints
from bertctl.documents import loading
from bertctl.errors import UnavailableError
from bertctl.inference.graph_backend import answer_outputs
from bertctl.inference.graph_session import GraphSession
from bertctl.run_documents.export_document import LAST_STATE, PROOF
from bertctl.runtime.batching import Padding

_OF_TOKENS = ("start_logits", "end_logits", LAST_STATE)
_EXPECTED = "expected."


@dataclass(frozen=True)
class Window:
    """What the model reads in one pass, without padding.

    Attributes:
        ids: (T,) tokens.
        type_ids: (T,) segments.
    """

    ids: Ints
    type_ids: Ints

    def __len__(self) -> int:
        return len(self.ids)


@dataclass
class FolderProof:
    """A few windows with the model's outputs, stored in an export to be compared again.

    Attributes:
        windows: Short to long.
        expected: Outputs by name, one array for each window: (1, C), or (T, ...) of its tokens.
    """

    windows: list[Window]
    expected: dict[str, list[Array]] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Returns the windows and expected outputs that are stored in the folder of an export.

        Raises:
            UnavailableError: The file is missing or damaged.
        """
        from safetensors.numpy import load_file

        path = folder / PROOF
        with loading(path, kind=UnavailableError, remedy="Export the model again."):
            arrays = load_file(path)
            lengths = arrays["lengths"]
            ends = np.cumsum(lengths)
            windows = [
                Window(
                    arrays["input_ids"][end - length : end],
                    arrays["token_type_ids"][end - length : end],
                )
                for end, length in zip(ends, lengths, strict=True)
            ]
            proof = cls(windows)
            for name, values in arrays.items():
                if not name.startswith(_EXPECTED):
                    continue
                # Outputs of tokens lie one window after the other; others have a row per window.
                is_of_tokens = len(values) != len(windows)
                by_window = np.split(values, ends[:-1] if is_of_tokens else len(windows))
                proof.expected[name.removeprefix(_EXPECTED)] = by_window
        return proof

    def arrays(self) -> dict[str, Array]:
        """Returns the content of proof.safetensors."""
        arrays = {
            "input_ids": np.concatenate([window.ids for window in self.windows]),
            "token_type_ids": np.concatenate([window.type_ids for window in self.windows]),
            "lengths": np.array([len(window) for window in self.windows], dtype=np.int64),
        }
        for name, values in self.expected.items():
            arrays[f"{_EXPECTED}{name}"] = np.ascontiguousarray(np.concatenate(values))
        return arrays

    def difference(self, session: GraphSession, padding: Padding) -> float:
        """Returns the largest difference between the graph's outputs and the expected ones.

        Each window is computed alone: with 8-bit numbers the other windows of a batch change the
        scale, and so the outputs.
        """
        names = answer_outputs(session.outputs)
        largest = 0.0
        for index, window in enumerate(self.windows):
            inputs = padded([window], padding)
            results = session.run(inputs, names)
            for name in names:
                actual = results[name]
                expected = self.expected[name][index].reshape(actual.shape)
                mask = inputs["attention_mask"].astype(bool)
                largest = max(largest, largest_difference(name, expected, actual, mask))
        return largest


def padded(windows: Sequence[Window], padding: Padding) -> dict[str, Ints]:
    """Returns input_ids, attention_mask and token_type_ids of windows, (B, T) int64 each."""
    lengths = np.array([len(window) for window in windows])
    mask = padding.mask(lengths)
    ids = np.full(mask.shape, padding.id, dtype=np.int64)
    types = np.zeros(mask.shape, dtype=np.int64)
    ids[mask] = np.concatenate([window.ids for window in windows])
    types[mask] = np.concatenate([window.type_ids for window in windows])
    return {"input_ids": ids, "attention_mask": mask.astype(np.int64), "token_type_ids": types}


def is_of_tokens(name: str, values: Array) -> bool:
    """Returns whether an output has an entry for each token: (B, T) or (B, T, C)."""
    return name in _OF_TOKENS or values.ndim == 3


def largest_difference(name: str, expected: Array, actual: Array, mask: Array) -> float:
    """Returns the largest difference between two arrays of an output, without padding.

    It is infinite if their shapes differ, or if one of them is not finite.

    Args:
        name: Name of the output.
        expected: (B, C), (B, T) or (B, T, C).
        actual: The same output of another model.
        mask: (B, T) which tokens are no padding.
    """
    if expected.shape != actual.shape:
        return float("inf")
    differences = np.abs(expected - actual)
    if is_of_tokens(name, expected):
        differences = differences[mask]
    if not np.isfinite(differences).all():
        return float("inf")
    return float(differences.max(initial=0.0))
