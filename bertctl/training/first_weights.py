"""First weights of a new BERT that its corpus gives before any training.

They show which tokens occur, and which occur together.

Letters: V tokens of the vocabulary, U windows of the corpus.
"""

import math
from typing import Any

import numpy as np

from bertctl.arrays import Floats32, Ints
from bertctl.tasks.pretraining.corpus_windows import CorpusWindows

_NEAR = 64  # tokens that count as together
_MOST = 2**21  # tokens that are read of a large corpus
# Numbers that each token's vector gets. What a wider table has beyond them stays random.
_WIDTH = 128
_SMOOTHING = 0.75  # power of the frequencies of contexts (Levy et al. 2015, section 3.2)


def token_vectors(windows: CorpusWindows, size: int, width: int) -> Floats32:
    """Returns (V, at most `width`) vectors of length 1; zeros for a token without neighbours.

    The matrix of the positive pointwise mutual information of neighbouring tokens is factorised,
    which word2vec does approximately (Levy and Goldberg 2014, "Neural Word Embedding as Implicit
    Matrix Factorization").

    Args:
        windows: Of the training text. From a large one, windows are sampled evenly.
        size: V.
        width: Numbers of a vector.
    """
    from scipy.sparse import csr_array
    from sklearn.utils.extmath import randomized_svd
    from threadpoolctl import threadpool_limits

    rows, columns, counts = _neighbours(windows, size)
    tokens = np.bincount(rows, weights=counts, minlength=size)
    contexts = tokens**_SMOOTHING
    information = np.log(counts * (contexts.sum() / (tokens[rows] * contexts[columns])))
    is_positive = information > 0
    matrix = csr_array(
        (
            information[is_positive].astype(np.float32),
            (rows[is_positive], columns[is_positive]),
        ),
        shape=(size, size),
    )
    with threadpool_limits(1):  # the same numbers with any number of threads
        left_vectors, strengths, _ = randomized_svd(
            matrix,
            min(width, size),
            n_iter=3,
            random_state=0,
        )
    vectors = left_vectors * np.sqrt(strengths)
    known = np.bincount(rows[is_positive], minlength=size) > 0
    unit_vectors: Floats32 = np.zeros_like(vectors)
    unit_vectors[known] = vectors[known] / np.linalg.norm(vectors[known], axis=1, keepdims=True)
    return unit_vectors


def _neighbours(windows: CorpusWindows, size: int) -> tuple[Ints, Ints, Floats32]:
    """Returns pairs of different tokens that occur near each other, and how often they do.

    Windows are cut into pieces of `_NEAR` tokens. Each two tokens of a piece are a pair.

    Args:
        windows: Of the training text.
        size: V.

    Returns:
        The first and the second token of each pair, and its count.
    """
    from scipy.sparse import csr_array

    # Of a large corpus, only every n-th window is read, so that about `_MOST` tokens are read.
    step = math.ceil(int(windows.sizes.sum()) / _MOST)
    begins = windows.starts[::step]
    sizes = windows.sizes[::step]
    ids = np.concatenate(
        [windows.text.ids[a : a + n] for a, n in zip(begins, sizes, strict=True)]
    ).astype(np.int32)

    # Bounds of the pieces among all ids: every `_NEAR` tokens from the start of a window, and at
    # its end.
    ends = np.cumsum(sizes)
    starts = ends - sizes
    offsets = np.arange(0, sizes.max() + _NEAR, _NEAR)
    bounds = np.unique(np.minimum(starts[:, None] + offsets, ends[:, None]))

    ones = np.ones(len(ids), dtype=np.float32)
    tokens_of_pieces = csr_array((ones, ids, bounds), shape=(len(bounds) - 1, size))
    together = (tokens_of_pieces.T @ tokens_of_pieces).tocoo()
    # That a token occurs near itself says nothing about other tokens.
    is_pair = together.row != together.col
    return together.row[is_pair], together.col[is_pair], together.data[is_pair]


def begin_from(network: Any, windows: CorpusWindows, counts: Ints) -> None:
    """Writes first weights into a new BERT: token vectors, and the bias of the masked-word head.

    The vectors get the scale of the random ones that they replace. The bias is the logarithm of
    each token's frequency.

    Args:
        network: A new BERT with its head, changed in place.
        windows: Of the training text.
        counts: (V,) occurrences of each token in the training text.
    """
    import torch

    table = network.get_input_embeddings().weight
    bias = network.get_output_embeddings().bias
    vectors = token_vectors(windows, len(table), min(table.shape[1], _WIDTH))
    known = vectors.any(axis=1)
    width = vectors.shape[1]
    scale = network.config.initializer_range * width**0.5
    with torch.no_grad():
        scaled_vectors = torch.from_numpy(vectors[known] * np.float32(scale))
        table[torch.from_numpy(known), :width] = scaled_vectors
        # One occurrence more of each token, so that none has the frequency 0.
        frequencies = (counts + 1) / (counts.sum() + len(counts))
        bias.copy_(torch.from_numpy(np.log(frequencies)))
