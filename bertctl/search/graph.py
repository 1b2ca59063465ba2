"""Graphs of near vectors (Malkov & Yashunin 2018, "HNSW"), by usearch."""

from importlib.util import find_spec
from typing import Any

from bertctl.errors import UnavailableError, UsageError

_METRICS = {"cosine": "cos", "dot": "ip", "euclidean": "l2sq"}
"""usearch's names of measures."""

_WITHOUT = "Leave `approximate=True` out."


def require_graph(similarity: str, subject: str = "") -> None:
    """Refuses an approximate search that can't be made here, before anything is computed.

    Args:
        similarity: The measure, one of `MEASURES`.
        subject: End of the message, such as ", by which INDEX is searched".

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
    # For cosines it is not the dot product: int8 vectors differ in length.
    return graph_class()(ndim=size, metric=_METRICS[similarity], dtype=dtype)


def graph_class() -> Any:
    """Returns usearch's class of graphs; `require_graph` says whether it is installed.

    ONNX Runtime, by which exports are computed, is loaded first if it is installed: on Linux, its
    loading after usearch ends the process with a segmentation fault (usearch 2.26, ONNX Runtime
    1.32).
    """
    if find_spec("onnxruntime") is not None:
        import onnxruntime  # noqa: F401
    from usearch.index import Index

    return Index
