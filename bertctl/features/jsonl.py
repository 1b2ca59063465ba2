"""Vectors as JSON lines, laid out as by `extract_features.py` of google-research/bert: six decimals, layer by layer."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from bertctl.features.sinks import Shape

_DECIMALS = 6


def token_line(number: int, names: Sequence[str], shape: "Shape", vectors: NDArray[np.floating]) -> bytes:
    """One row of tokens (or words): linex_index, features; each feature has its token and its layers.

    Args:
        number: of the row.
        names: (T,) pieces or words.
        shape: names of the layers.
        vectors: (T, K, D).
    """
    rounded = _rounded(vectors)
    features = [
        {"token": name, "layers": _layers(shape.layers, values)} for name, values in zip(names, rounded, strict=True)
    ]
    return _line({"linex_index": number, "features": features})


def text_line(number: int, identity: str, shape: "Shape", vectors: NDArray[np.floating]) -> bytes:
    """One row with one vector for each layer, (K, D)."""
    document = {"linex_index": number, "id": identity, "pooling": shape.pooling}
    return _line(document | {"layers": _layers(shape.layers, _rounded(vectors))})


def _layers(names: Sequence[str], values: Sequence[list[float]]) -> list[dict[str, Any]]:
    return [
        {"index": int(name) if name.lstrip("-").isdigit() else name, "values": numbers}
        for name, numbers in zip(names, values, strict=True)
    ]


def _rounded(vectors: NDArray[np.floating]) -> Any:
    return np.round(vectors.astype(np.float64), _DECIMALS).tolist()


def _line(document: dict[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode() + b"\n"
