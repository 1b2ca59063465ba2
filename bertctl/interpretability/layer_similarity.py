"""How alike the layers of two models are on the same texts: linear CKA (Kornblith et al. 2019).

Letters: N texts, P and Q sizes of the vectors of the two models, L layers.
"""

import tempfile
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertctl.errors import DataError
from bertctl.features.extract_job import VectorNames
from bertctl.interpretability.vectors import open_encoder
from bertctl.modeling.pooling import finite
from bertctl.progress import SILENT, Listener

_CHUNK = 1024  # texts whose vectors are in memory at once


def layer_similarity(
    first: str, second: str, texts: Iterable[Sequence[str]], *, listener: Listener = SILENT
) -> dict[str, Any]:
    """Returns the similarity of each layer of one model with each of another, 0 (the embeddings) to L.

    A text is the mean vector of its tokens. The vectors lie in a temporary file, so memory does not grow with them.

    Args:
        first: a model's name, folder or hub id.
        second: another's, or the same.
        texts: some at a time.
        listener: hears of progress, and of too few texts.

    Raises:
        DataError: fewer than two texts.
        UsageError: no such model.
    """
    opened = [open_encoder(name, VectorNames(layers=("all",))) for name in (first, second)]
    with tempfile.TemporaryFile() as one, tempfile.TemporaryFile() as other:
        number = 0
        for chunk in (part[i : i + _CHUNK] for part in texts for i in range(0, len(part), _CHUNK)):
            for (encoder, windows), file in zip(opened, (one, other), strict=True):
                finite(np.stack(encoder.texts(windows(chunk)), axis=1), encoder.source.name).tofile(file)
                file.flush()
            number += len(chunk)
            listener.advance("texts", number, 0)
        listener.finish("texts")
        if number < 2:
            raise DataError("layers are compared on at least two texts", remedy="Give a file with a text on each line.")
        shapes = [(number, len(encoder.sizes), encoder.sizes[0]) for encoder, _ in opened]
        a, b = (np.memmap(file, np.float32, "r", 0, shape) for file, shape in zip((one, other), shapes, strict=True))
        if number < min(a.shape[2], b.shape[2]):
            listener.warn(f"{number:,} texts: CKA is too high where texts are fewer than the numbers of a vector")
        similarity = cka_matrix(a, b, listener=listener)
    return {"texts": number, "cka": [[round(float(value), 6) for value in row] for row in similarity]}


def cka_matrix(a: NDArray[np.float32], b: NDArray[np.float32], *, listener: Listener = SILENT) -> NDArray[np.float64]:
    """Returns (K, M), the linear CKA of each layer of one model with each of another.

    With X and Y centred, CKA = ||Y'X||^2 / (||X'X|| ||Y'Y||), Frobenius norms (Kornblith et al. 2019, section 3);
    0 where all vectors of a layer are the same.

    Args:
        a: (N, K, P) vectors of N texts.
        b: (N, M, Q) vectors of the same texts.
        listener: hears of progress.
    """
    found = np.zeros((a.shape[1], b.shape[1]))
    centre_a, centre_b = (each.mean(axis=0, dtype=np.float64) for each in (a, b))
    own = [_squared_norm(b[:, j], b[:, j], centre_b[j], centre_b[j]) for j in range(b.shape[1])]
    for i in range(a.shape[1]):
        norm = _squared_norm(a[:, i], a[:, i], centre_a[i], centre_a[i])
        for j in range(b.shape[1]):
            scale = np.sqrt(norm * own[j])
            found[i, j] = _squared_norm(a[:, i], b[:, j], centre_a[i], centre_b[j]) / scale if scale else 0.0
        listener.advance("layers", i + 1, a.shape[1])
    listener.finish("layers")
    return found


def _squared_norm(
    x: NDArray[np.float32], y: NDArray[np.float32], centre_x: NDArray[np.float64], centre_y: NDArray[np.float64]
) -> float:
    """Returns ||X'Y||^2 of X (N, P) and Y (N, Q) with their centres taken away, some rows at a time."""
    product = np.zeros((x.shape[1], y.shape[1]))
    for first in range(0, len(x), _CHUNK):
        product += (x[first : first + _CHUNK] - centre_x).T @ (y[first : first + _CHUNK] - centre_y)
    return float(np.square(product).sum())
