"""Graphs of near vectors (Malkov & Yashunin 2018, "HNSW"), by usearch."""

from importlib.util import find_spec
from typing import Any

from bertctl.errors import UnavailableError, UsageError

_METRICS = {"cosine": "cos", "dot": "ip", "euclidean": "l2sq"}
"""usearch's names of measures."""

_WITHOUT = "Leave `approximate=True` out."


def require_graph(similarity: str, subject: str = "") -> None:
    """Refuses what there is no graph for, before anything is computed.

    Args:
        similarity: One of `MEASURES`.
        subject: What is compared by it, as the end of the message.

    Raises:
        UsageError: A measure that usearch has no graph for.
        UnavailableError: usearch is not installed.
    """
    if similarity not in _METRICS:
        message = f"`approximate=True` has no graph for {similarity} similarity{subject}"
        raise UsageError(message, remedy=_WITHOUT)
    if find_spec("usearch") is None:
        remedy = "Install it: pip install 'bertctl[search]'; or leave `approximate=True` out."
        raise UnavailableError("`approximate=True` needs the package usearch", remedy=remedy)


def new_graph(similarity: str, size: int, dtype: str = "float32") -> Any:
    """Returns an empty graph of vectors with so many numbers.

    Raises:
        UsageError: A measure that usearch has no graph for.
        UnavailableError: usearch is not installed.
    """
    require_graph(similarity)
    from usearch.index import Index as Graph

    # Cosines by the cosine: vectors of whole numbers have several lengths.
    return Graph(ndim=size, metric=_METRICS[similarity], dtype=dtype)
