"""Exact search and mining of vectors.

`bertctl` against a plain product of matrices, and sentence-transformers.

Both sides get the same vectors of length 1, near duplicates among them, and take turns. What each
finds stands beside its time: a pair or a row that is not found is no speed.
"""

import argparse
import time
from collections.abc import Callable
from importlib.util import find_spec

import numpy as np

from bertctl.arrays import Floats32
from bertctl.search.nearest import Nearest, block_rows, pairs_above

SIZE = 384
TOP = 10
THRESHOLD = 0.8
ALIKE = 300


def main() -> None:
    """Parses the options, measures, prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--mined", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--quick", action="store_true", help="few vectors once, to see that it works"
    )
    options = parser.parse_args()
    rows = options.rows
    requests = options.queries
    mined = options.mined
    rounds = options.rounds
    if options.quick:
        rows = 3000
        requests = 20
        mined = 600
        rounds = 1
    vectors = unit(rows, 0)
    near = unit(mined, 1)
    near[:ALIKE] = near[0] + 0.01 * unit(ALIKE, 2)
    near /= np.linalg.norm(near, axis=1, keepdims=True)
    queries = unit(requests, 3)
    sides: dict[str, dict[str, Callable[[], int]]] = {
        f"search {requests:,} queries, {rows:,} rows": {
            "bertctl": lambda: search(vectors, queries),
            "product and argsort": lambda: brute_force(vectors, queries),
        },
        f"pairs of {mined:,} rows, {ALIKE * (ALIKE - 1) // 2:,} alike": {
            "bertctl": lambda: sum(len(first) for first, _, _ in pairs_above(THRESHOLD, near)),
            "product and comparison": lambda: int(np.triu(near @ near.T >= THRESHOLD, 1).sum()),
        },
    }
    if find_spec("sentence_transformers"):
        first, second = sides.values()
        first["sentence-transformers"] = lambda: semantic_search(vectors, queries)
        second["sentence-transformers"] = lambda: paraphrase_mining(near)
    for subject, entry in sides.items():
        seconds: dict[str, list[float]] = {name: [] for name in entry}
        results = {}
        for _ in range(rounds):
            for name, side in entry.items():
                started = time.perf_counter()
                results[name] = side()
                seconds[name].append(time.perf_counter() - started)
        ours = min(seconds["bertctl"])
        print(f"\n{subject}")
        for name, measured in seconds.items():
            print(
                f"{name:24} {min(measured):8.2f} s  {min(measured) / ours:6.1f} times ours  "
                f"{results[name]:9,} found"
            )


def unit(rows: int, seed: int) -> Floats32:
    """Returns random vectors of length 1."""
    made = np.random.default_rng(seed).standard_normal((rows, SIZE), dtype=np.float32)
    return made / np.linalg.norm(made, axis=1, keepdims=True)


def search(vectors: Floats32, queries: Floats32) -> int:
    """Returns how many rows were found, by blocks as an index is read."""
    actual = Nearest(queries, TOP)
    size = block_rows(len(queries))
    for first in range(0, len(vectors), size):
        actual.see(vectors[first : first + size], first)
    return actual.rows.size


def brute_force(vectors: Floats32, queries: Floats32) -> int:
    """Returns how many rows were found, with all scores in memory."""
    scores = queries @ vectors.T
    order = np.argsort(-scores, axis=1, kind="stable")
    return int(order[:, :TOP].size)


def semantic_search(vectors: Floats32, queries: Floats32) -> int:
    """Returns how many rows sentence-transformers has found."""
    from sentence_transformers.util import semantic_search

    return sum(map(len, semantic_search(queries, vectors, top_k=TOP)))


def paraphrase_mining(vectors: Floats32) -> int:
    """Returns how many pairs sentence-transformers has found, with the defaults of its function."""
    import torch
    from sentence_transformers.util import paraphrase_mining_embeddings

    pairs = paraphrase_mining_embeddings(torch.from_numpy(vectors))
    return sum(score >= THRESHOLD for score, _, _ in pairs)


if __name__ == "__main__":
    main()
