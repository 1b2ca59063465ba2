"""The attention of one text as a page: lines between tokens, all heads at a glance, and query times key.

Numbers travel as bytes, compressed and in base64: attention as the rounded square root (small weights keep two digits,
and rounding moves none by more than `1 / levels`), the elements of queries and keys as shares of their layer's largest.
A page that would be too large is rounded more.

Letters: L layers, H heads, T tokens, D size of a head.
"""

import base64
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertctl.interpretability.attention import TextAttention
from bertctl.reporting.page import render_page
from bertctl.words import count, harmless, shorten

_LEVELS = ((255, 127), (255, 31), (127, 31), (63, 31), (63, 15), (31, 15), (15, 7))
"""From fine to coarse: steps of an attention from 0 to 1, and of an element from 0 to its layer's largest."""

_SMALL, _SMALL_BYTES, _BYTES = 1_200_000, 1_400_000, 24_000_000
"""Attentions (128 tokens, 6 x 12 heads) up to which the numbers take the fewer bytes, and bytes."""


def attention_page(found: TextAttention, text: str, pair: str | None) -> str:
    """Returns the page.

    Args:
        found: what is shown.
        text: the text, for the heading.
        pair: the second text.
    """
    read = " · ".join(shorten(one, 160) for one in (text, pair) if one is not None)
    cut = f" ({count(found.cut, 'token')} more were cut off)" if found.cut else ""
    tokens, layers, heads = (count(len(getattr(found, f"{noun}s")), noun) for noun in ("token", "layer", "head"))
    return render_page(
        "attention.html.j2",
        scripts=["attention.js"],
        data={
            "tokens": [harmless(token) for token in found.tokens],
            "sides": found.sides.tolist(),
            "layers": found.layers,
            "heads": found.heads,
            "scaling": [] if found.scaling is None else found.scaling.tolist(),
            **_packed(found),
        },
        found=found,
        text=read,
        size=f"{tokens}{cut}, {layers} × {heads}",
    )


def _packed(found: TextAttention) -> dict[str, Any]:
    """Returns attention, queries and keys as text for each layer, as fine as there is room for."""
    room = _SMALL_BYTES if found.attentions.size <= _SMALL else _BYTES
    packed: dict[str, Any] = {}
    for levels, steps in _LEVELS:
        if packed.get("levels") != levels:
            roots = (np.round(np.sqrt(layer) * levels).astype(np.uint8) for layer in found.attentions)
            packed |= {"levels": levels, "attention": list(map(_text, roots))}
        for name, vectors in (("query", found.queries), ("key", found.keys)):
            scales = [] if vectors is None else [float(np.abs(layer).max()) or 1.0 for layer in vectors]
            packed |= {name: [*map(_text, _elements(vectors, scales, steps))], f"{name}Scale": scales, "steps": steps}
        if sum(len(text) for name in ("attention", "query", "key") for text in packed[name]) <= room:
            break
    return packed


def _elements(vectors: NDArray[np.float32] | None, scales: list[float], steps: int) -> Iterator[NDArray[np.int8]]:
    for layer, scale in zip(() if vectors is None else vectors, scales, strict=True):
        yield np.round(layer / scale * steps).astype(np.int8)


def _text(numbers: NDArray[Any]) -> str:
    return base64.b64encode(zlib.compress(numbers.tobytes(), 6)).decode()
