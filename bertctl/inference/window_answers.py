"""One answer of a long text from the vectors of its windows, in numpy.

It is for models that were exported.

What it computes is what `modeling/window_pooling.py` and `modeling/probe_network.py` compute with
torch. Letters: U windows of B texts, D size of a vector, C outputs.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from bertctl.arrays import Array, Floats32, Ints
from bertctl.documents import loading
from bertctl.errors import UnavailableError
from bertctl.modeling.pooling import join_windows
from bertctl.run_documents.export_document import WINDOWS, ExportWindows


@dataclass(frozen=True)
class WindowAnswers:
    """How the windows of a text become one answer.

    Attributes:
        how: How the windows of a text are pooled, as export.json says it.
        weight: (C, D) of the last layer.
        bias: (C,) of it; zeros where it has none.
        query: (D + 2,) what attention weighs windows by; None for other poolings.
    """

    how: ExportWindows
    weight: Floats32
    bias: Floats32
    query: Floats32 | None = None

    @classmethod
    def read(cls, folder: Path, how: ExportWindows) -> Self:
        """Returns the last layer of an exported model, as its folder has it.

        Args:
            folder: Folder of the export.
            how: How the windows of a text are pooled.

        Raises:
            UnavailableError: The file is missing or damaged.
        """
        from safetensors.numpy import load_file

        path = folder / WINDOWS
        with loading(path, kind=UnavailableError, remedy="Export the model again."):
            arrays = load_file(path)
            return cls(how, arrays["weight"], arrays["bias"], arrays.get("query"))

    def save(self, folder: Path) -> None:
        """Writes the last layer, and the query of attention pooling, into an export's folder."""
        from safetensors.numpy import save_file

        arrays = {"weight": self.weight, "bias": self.bias}
        if self.query is not None:
            arrays["query"] = self.query
        save_file(
            {name: np.ascontiguousarray(values) for name, values in arrays.items()},
            folder / WINDOWS,
        )

    def answers(self, vectors: Floats32, owners: Ints, counts: Ints) -> Floats32:
        """Returns (B, C) logits of texts, each pooled from the windows of the text.

        Either the vectors of the windows are pooled and the last layer is applied to the result, or
        (pooling `logits`) the last layer is applied to each window and its logits are averaged. The
        vectors of a probe are pooled by a function of their own, as feature extraction pools them.

        Args:
            vectors: (U, D) what the last layer reads of each window.
            owners: (U,) text of each window.
            counts: (U,) tokens that count in each window.
        """
        is_probe = self.how.tokens_pooling is not None
        if is_probe:
            return self._of_probe(vectors, owners, counts)
        pools_logits = self.how.pooling == "logits"
        if pools_logits:
            vectors = self._last(vectors)
        texts = range(int(owners.max()) + 1)
        pooled = np.stack([self._pooled(vectors[owners == text]) for text in texts])
        if pools_logits:
            return pooled
        return self._last(pooled)

    def counted(self, ids: Ints, mask: Ints) -> Ints:
        """Returns (U,) how many tokens count in each window, at least 1.

        Args:
            ids: (U, T) tokens.
            mask: (U, T) which of them are no padding.
        """
        is_counted = mask.astype(bool) & ~np.isin(ids, self.how.uncounted)
        return np.asarray(np.maximum(is_counted.sum(axis=1), 1))

    def _last(self, vectors: Array) -> Floats32:
        """Returns (..., C) outputs of the last layer for (..., D) vectors."""
        return np.asarray(vectors @ self.weight.T + self.bias, dtype=np.float32)

    def _pooled(self, vectors: Floats32) -> Floats32:
        """Returns (D,) one vector of a text, pooled from the vectors of its windows.

        Args:
            vectors: (W, D) vectors of the text's windows, in order.
        """
        if self.how.pooling == "first":
            return np.asarray(vectors[0])
        if self.how.pooling == "max":
            return np.asarray(vectors.max(axis=0))
        if self.how.pooling != "attention" or self.query is None:
            return np.asarray(vectors.mean(axis=0))

        # Attention, computed as `WindowPooling` does in training: the softmax of the scores weighs
        # the windows. The query has two more numbers than a vector, which score whether a window is
        # the text's first and its last one.
        root = math.sqrt(vectors.shape[1])
        ends = np.zeros((len(vectors), 2), dtype=np.float32)
        ends[0, 0] = root
        ends[-1, 1] = root
        scores = np.concatenate([vectors, ends], axis=1) @ self.query * root
        weights = np.exp(scores - scores.max())
        return np.asarray((weights / weights.sum()) @ vectors, dtype=np.float32)

    def _of_probe(self, vectors: Floats32, owners: Ints, counts: Ints) -> Floats32:
        """Returns (B, C) answers of texts, whose vectors are pooled as by feature extraction."""
        pooled = join_windows(
            vectors, owners, counts, how=str(self.how.tokens_pooling), windows=self.how.pooling
        )
        if self.how.normalize:
            lengths = np.linalg.norm(pooled, axis=-1, keepdims=True)
            pooled = pooled / np.maximum(lengths, 1e-12)
        return self._last(pooled)
