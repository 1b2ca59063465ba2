"""First weights of a new BERT that its corpus gives before any training.

They show which tokens occur, and which occur together.

Letters: V tokens of the vocabulary, U windows of the corpus.
"""

from typing import Any

import numpy as np

from bertctl.arrays import Floats32, Ints
from bertctl.tasks.pretraining.corpus_windows import CorpusWindows

_NEAR = 64  # tokens that count as together
_MOST = 2**21  # tokens that are read of a large corpus
_WIDTH = (
    128  # numbers that each token's vector gets; what a wider table has beyond them stays random
)
_SMOOTHING = 0.75  # power of the frequencies of contexts (Levy et al. 2015, section 3.2)


def token_vectors(windows: CorpusWindows, size: int, width: int) -> Floats32:
    """Returns a vector of length 1 for each token: (V, at most `width`).

    It is zeros for a token without company.

    They are a factor of the positive pointwise mutual information of tokens that stand near each
    other, which is what word2vec's vectors approximate (Levy and Goldberg 2014, "Neural Word
    Embedding as Implicit Matrix Factorization").

    Args:
        windows: of the training text; some are left out of a large one, evenly.
        size: V.
        width: of the vectors.
    """
    from scipy.sparse import csr_array
    from sklearn.utils.extmath import randomized_svd
    from threadpoolctl import threadpool_limits

    sample = slice(None, None, -(-int(windows.sizes.sum()) // _MOST))
    begins = windows.starts[sample]
    sizes = windows.sizes[sample]
    ids = np.concatenate(
        [windows.text.ids[a : a + n] for a, n in zip(begins, sizes, strict=True)]
    ).astype(np.int32)
    ends = np.cumsum(sizes)
    bounds = np.unique(
        np.minimum(
            (ends - sizes)[:, None] + np.arange(0, sizes.max() + _NEAR, _NEAR), ends[:, None]
        )
    )
    ones = np.ones(len(ids), dtype=np.float32)
    bags = csr_array((ones, ids, bounds), shape=(len(bounds) - 1, size))
    together = (bags.T @ bags).tocoo()
    # A token's company with itself says nothing of other tokens.
    is_pair = together.row != together.col
    row = together.row[is_pair]
    col = together.col[is_pair]
    counts = together.data[is_pair]
    tokens = np.bincount(row, weights=counts, minlength=size)
    contexts = tokens**_SMOOTHING
    information = np.log(counts * (contexts.sum() / (tokens[row] * contexts[col])))
    is_positive = information > 0
    matrix = csr_array(
        (
            information[is_positive].astype(np.float32),
            (row[is_positive], col[is_positive]),
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
    known = np.bincount(row[is_positive], minlength=size) > 0
    unit_vectors: Floats32 = np.zeros_like(vectors)
    unit_vectors[known] = vectors[known] / np.linalg.norm(vectors[known], axis=1, keepdims=True)
    return unit_vectors


def begin_from(network: Any, windows: CorpusWindows, counts: Ints) -> None:
    """Puts the tokens' vectors and the bias of the masked-word head in place.

    They have the scale of random ones.

    Args:
        network: a new BERT with its head.
        windows: of the training text.
        counts: (V,) of each token there.
    """
    import torch

    table = network.get_input_embeddings().weight
    bias = network.get_output_embeddings().bias
    vectors = token_vectors(windows, len(table), min(table.shape[1], _WIDTH))
    known = vectors.any(axis=1)
    width = vectors.shape[1]
    scale = network.config.initializer_range * width**0.5
    with torch.no_grad():
        table[torch.from_numpy(known), :width] = torch.from_numpy(
            vectors[known] * np.float32(scale)
        )
        bias.copy_(torch.from_numpy(np.log((counts + 1) / (counts.sum() + len(counts)))))
