"""The attention of one text as a page: lines between tokens, all heads at a glance, and query times key.

Numbers travel as bytes, compressed and in base64: attention as the rounded square root (small weights keep two digits,
and rounding moves none by more than `1 / levels`), the elements of queries and keys as shares of their layer's largest.
A page that would be too large is rounded more.

Letters: L layers, H heads, T tokens, D size of a head.
"""

import base64
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bertctl.arrays import Array
from bertctl.reporting.page import render_page
from bertctl.words import count, harmless, shorten

_LEVELS = ((255, 127), (255, 31), (127, 31), (63, 31), (63, 15), (31, 15), (15, 7))
"""From fine to coarse: steps of an attention from 0 to 1, and of an element from 0 to its layer's largest."""

_SMALL, _SMALL_BYTES, _BYTES = 1_200_000, 1_400_000, 24_000_000
"""Attentions (128 tokens, 6 x 12 heads) up to which the numbers take the fewer bytes, and bytes."""


def attention_page(found: Mapping[str, Any], texts: Sequence[str]) -> str:
    """Returns the page of what `read_attention` gives for a text, or pair."""
    cut = f" ({count(found['cut'], 'token')} more were cut off)" if found["cut"] else ""
    tokens, layers, heads = (count(len(found[f"{noun}s"]), noun) for noun in ("token", "layer", "head"))
    data = {name: found[name].tolist() for name in ("sides", "layers", "heads", "scaling") if name in found}
    data |= {"tokens": [harmless(token) for token in found["tokens"]], **_packed(found)}
    read = " · ".join(shorten(one, 160) for one in texts)
    size = f"{tokens}{cut}, {layers} × {heads}"
    return render_page("attention.html.j2", scripts=["attention.js"], data=data, found=found, text=read, size=size)


def _packed(found: Mapping[str, Any]) -> dict[str, Any]:
    """Returns attention, queries and keys as text for each layer, as fine as there is room for."""
    room = _SMALL_BYTES if found["attentions"].size <= _SMALL else _BYTES
    vectors = {one: found[several] for one, several in (("query", "queries"), ("key", "keys")) if several in found}
    scales = {name: [np.abs(layer).max() or 1.0 for layer in each] for name, each in vectors.items()}
    packed: dict[str, Any] = {f"{name}Scale": [float(scale) for scale in each] for name, each in scales.items()}
    for levels, steps in _LEVELS:
        packed |= {"levels": levels, "steps": steps}
        packed["attention"] = [_text(np.sqrt(layer) * levels, np.uint8) for layer in found["attentions"]]
        for name, each in vectors.items():
            shares = (layer / scale * steps for layer, scale in zip(each, scales[name], strict=True))
            packed[name] = [_text(share, np.int8) for share in shares]
        if sum(len(text) for name in ("attention", *scales) for text in packed[name]) <= room:
            break
    return packed


def _text(numbers: Array, kind: type) -> str:
    return base64.b64encode(zlib.compress(np.round(numbers).astype(kind).tobytes(), 6)).decode()
