"""What it takes to compare or to group many texts, worked out before it begins."""

import time
from collections.abc import Iterable

import numpy as np

from bertctl.memory import require_memory
from bertctl.progress import Listener
from bertctl.search.approximate_pairs import ApproximatePairs
from bertctl.search.nearest import pairs_above
from bertctl.words import human_bytes, human_seconds

_TOLD_FROM = 60
"""Seconds from which it is told how long something takes."""

_TIMED_ROWS = 2048
"""Random vectors whose comparison is timed; the time for more is worked out from it."""

_BLOCK = 1024
"""Rows that `pairs_above` compares at once."""

_GROUPED_ROWS = 10_000
"""Random vectors whose grouping is timed."""

_BYTES_OF_TEXT = 300
"""Of a text's words, ids and numbers, beside its vectors."""


def require_room(n_texts: int, size: int, *, copies: int, verb: str) -> None:
    """Refuses more vectors than memory has room for.

    Args:
        n_texts: How many texts there are.
        size: Size of a vector.
        copies: How many copies of all vectors there are at once.
        verb: Verb of the command that needs them.

    Raises:
        DeviceError: They don't fit; the message says what they need and what is free.
    """
    need = n_texts * (size * np.dtype(np.float32).itemsize * copies + _BYTES_OF_TEXT)
    remedy = (
        f"Give fewer texts, such as a sample: shuf -n {n_texts // 10} FILE; or take a machine with "
        "more memory."
    )
    require_memory(need, f"bertctl {verb} of {n_texts:,} texts", remedy=remedy)


def tell_comparing(n_texts: int, size: int, measure: str, listener: Listener) -> None:
    """Reports how long it takes to compare each text with each, if that is a minute or more.

    Some random vectors are compared, and the time grows with the number of pairs.

    Args:
        n_texts: How many texts there are.
        size: Size of a vector.
        measure: Similarity by which they are compared.
        listener: Receives the message.
    """
    n_blocks = -(-n_texts // _BLOCK)
    timed_blocks = _TIMED_ROWS // _BLOCK
    if n_blocks < 10 * timed_blocks:  # so few take seconds, and timing them would take longer
        return
    vectors = np.random.default_rng(0).standard_normal((_TIMED_ROWS, size)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    # Each block is compared with itself and with the blocks after it. No similarity reaches 2.
    n_comparisons = timed_blocks * (timed_blocks + 1) // 2
    seconds = _seconds_of(pairs_above(2.0, vectors, measure=measure)) / n_comparisons
    total = seconds * n_blocks * (n_blocks + 1) / 2
    if total >= _TOLD_FROM:
        n_pairs = n_texts * (n_texts - 1) // 2
        listener.say(
            f"each of {n_texts:,} texts is compared with each, {n_pairs:,} pairs: about "
            f"{human_seconds(total)} once their vectors are there, which take "
            f"{human_bytes(4 * n_texts * size)} of memory; "
            "`approximate=True` is many times faster"
        )


def tell_graph(n_texts: int, size: int, measure: str, listener: Listener) -> None:
    """Reports how long an approximate search for similar pairs takes, if it is a minute or more.

    The search builds an HNSW graph, in which each text is compared with about log n others. It is
    timed on some random vectors, and grows with n log n.

    Args:
        n_texts: How many texts there are, n.
        size: Size of a vector.
        measure: Similarity by which they are compared.
        listener: Receives the message.
    """
    if n_texts < 10 * _TIMED_ROWS:
        return
    vectors = np.random.default_rng(0).standard_normal((_TIMED_ROWS, size)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    started = time.perf_counter()
    # The constructor builds the graph and searches it. No similarity reaches 2, so no pair is kept.
    ApproximatePairs(2.0, vectors, np.arange(_TIMED_ROWS), measure)
    seconds = time.perf_counter() - started
    more_comparisons_per_text = np.log(n_texts) / np.log(_TIMED_ROWS)
    total = float(seconds * n_texts / _TIMED_ROWS * more_comparisons_per_text)
    if total >= _TOLD_FROM:
        listener.say(
            f"a graph of {n_texts:,} texts finds their pairs: about {human_seconds(total)} once "
            f"their vectors are there, which take {human_bytes(4 * n_texts * size)} of memory, and "
            "as much again in the graph"
        )


def _seconds_of(steps: Iterable[object]) -> float:
    """Returns how many seconds it takes to go through some steps."""
    started = time.perf_counter()
    for _ in steps:
        pass
    return time.perf_counter() - started


def tell_grouping(
    n_texts: int, size: int, clusters: int, *, seed: int, starts: int, listener: Listener
) -> None:
    """Reports how long k-means takes, if that is a minute or more.

    One start on some random vectors is timed; the time grows with the number of texts.

    Args:
        n_texts: How many texts there are.
        size: Size of a vector.
        clusters: Number of clusters.
        seed: Seed of k-means.
        starts: Number of starts, of which the best one is kept.
        listener: Receives the message.
    """
    # Few texts take seconds. With more clusters than timed vectors nothing can be timed.
    if n_texts < 10 * _GROUPED_ROWS or clusters > _GROUPED_ROWS:
        return
    from sklearn.cluster import KMeans

    vectors = np.random.default_rng(0).standard_normal((_GROUPED_ROWS, size)).astype(np.float32)
    kmeans = KMeans(
        clusters,
        n_init=1,
        max_iter=10,
        random_state=seed,
    )
    kmeans.fit(vectors)  # the first fit loads libraries
    started = time.perf_counter()
    kmeans.fit(vectors)
    seconds_per_iteration = (time.perf_counter() - started) / max(1, kmeans.n_iter_)
    seconds = seconds_per_iteration * _USUAL_ITERATIONS
    total = seconds * starts * n_texts / _GROUPED_ROWS
    if total >= _TOLD_FROM:
        listener.say(
            f"kmeans of {n_texts:,} texts with {starts} starts: about {human_seconds(total)} once "
            f"their vectors are there, which take {human_bytes(4 * n_texts * size)} of memory; "
            "`approximate=True` is many times faster"
        )


_USUAL_ITERATIONS = 50
"""Iterations of a start on the vectors of many texts."""
