"""What looking into a model finds, as pages: the attention of one text, its heads, what is near a
word.

Of the page of attention, lines between tokens, all heads at a glance, and query times key, the
numbers travel as bytes, compressed and in base64: attention as the rounded square root (small
weights keep two digits, and rounding moves none by more than `1 / levels`), the elements of queries
and keys as shares of their layer's largest. A page that would be too large is rounded more.
"""

import base64
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from bertctl.arrays import Array
from bertctl.interpretability.head_patterns import MAJORITY, MIXED, PATTERNS
from bertctl.reporting.charts import places_chart
from bertctl.reporting.document import (
    Cell,
    Chart,
    Column,
    Note,
    Report,
    Section,
    TableBlock,
    record_table,
)
from bertctl.reporting.html import render_html
from bertctl.reporting.page import render_page
from bertctl.words import count, harmless, shorten

_LEVELS = ((255, 127), (255, 31), (127, 31), (63, 31), (63, 15), (31, 15), (15, 7))
"""From fine to coarse: steps of an attention from 0 to 1, and of an element from 0 to its layer's
largest."""

_SMALL, _SMALL_BYTES, _BYTES = 1_200_000, 1_400_000, 24_000_000
"""Attentions (128 tokens, 6 x 12 heads) up to which the numbers take the fewer bytes, and bytes."""


def attention_page(found: Mapping[str, Any], texts: Sequence[str]) -> str:
    """Returns the page of what `read_attention` gives for a text, or pair."""
    if found["cut"]:
        cut = f" ({count(found['cut'], 'more token')} cut off)"
    else:
        cut = ""
    tokens, layers, heads = (
        count(len(found[f"{noun}s"]), noun) for noun in ("token", "layer", "head")
    )
    data = {
        name: found[name].tolist()
        for name in ("sides", "layers", "heads", "scaling")
        if name in found
    }
    data |= {"tokens": [harmless(token) for token in found["tokens"]], **_packed(found)}
    read = " · ".join(shorten(text, 160) for text in texts)
    size = f"{tokens}{cut}, {layers} × {heads}"
    return render_page(
        "attention.html.j2",
        scripts=["attention.js"],
        data=data,
        found=found,
        text=read,
        size=size,
    )


def _packed(found: Mapping[str, Any]) -> dict[str, Any]:
    """Returns attention, queries and keys as text for each layer, as fine as there is room for."""
    if found["attentions"].size <= _SMALL:
        room = _SMALL_BYTES
    else:
        room = _BYTES
    vectors = {
        one: found[several]
        for one, several in (("query", "queries"), ("key", "keys"))
        if several in found
    }
    scales = {
        name: [np.abs(layer).max() or 1.0 for layer in each] for name, each in vectors.items()
    }
    packed: dict[str, Any] = {
        f"{name}Scale": [float(scale) for scale in each] for name, each in scales.items()
    }
    for levels, steps in _LEVELS:
        packed |= {"levels": levels, "steps": steps}
        packed["attention"] = [
            _text(np.sqrt(layer) * levels, np.uint8) for layer in found["attentions"]
        ]
        for name, each in vectors.items():
            shares = (
                layer / scale * steps for layer, scale in zip(each, scales[name], strict=True)
            )
            packed[name] = [_text(share, np.int8) for share in shares]
        if sum(len(text) for name in ("attention", *scales) for text in packed[name]) <= room:
            break
    return packed


def _text(numbers: Array, kind: type) -> str:
    return base64.b64encode(zlib.compress(np.round(numbers).astype(kind).tobytes(), 6)).decode()


Found = Mapping[str, Any] | None
"""What `measure_patterns` or `measure_importance` gives, where it was asked."""

Records = Sequence[dict[str, Any]]
"""What is known of each head, layer by layer."""


def head_records(patterns: Found, importance: Found) -> list[dict[str, Any]]:
    """Returns what is known of each head, layer by layer, both counted from 1."""
    columns = {
        name: values
        for found in (patterns, importance)
        if found
        for name, values in found["columns"].items()
    }
    return [
        {
            "layer": place[0] + 1,
            "head": place[1] + 1,
            **{name: each[place].item() for name, each in columns.items()},
        }
        for place in np.ndindex(*next(iter(columns.values())).shape)
    ]


def heads_report(
    title: str, source: str, records: Records, patterns: Found, importance: Found
) -> Report:
    """Returns the report: a section for each, whose first block is its table, and one of all heads.

    Args:
        title: of the page.
        source: where the texts come from.
        records: what `head_records` gives.
        patterns: over a corpus.
        importance: to a task.
    """
    sections: list[Section] = []
    if patterns is not None:
        texts = count(patterns["texts"], "text")
        tokens = count(patterns["tokens"], "token")
        cut = patterns["cut"]
        table = _strongest(patterns, records, f"{texts}, {tokens}; {count(cut, 'text')} cut.")
        what = Note(
            "A share is the mean attention that a token pays to what the pattern names, over the "
            "tokens that have such "
            f"a thing. A head has a pattern if its share is over {MAJORITY}; else it is `{MIXED}`."
        )
        sections.append(Section("patterns", "What heads attend to", [table, what]))
    if importance is not None:
        if "loss_rise" in importance["columns"]:
            by = "loss_rise"
        else:
            by = "gradient"
        ranked = sorted(records, key=lambda one: -float(one[by]))[:10]
        first = [
            {name: one[name] for name in ("layer", "head", *importance["columns"])}
            for one in ranked
        ]
        whole = (
            f"loss of the whole {importance['loss']:.4f}, {importance['metric']} "
            f"{importance['value']:.4f}"
        )
        caption = (
            f"The ten that matter most to '{importance['split']}' (Michel et al. 2019); {whole}."
        )
        sections.append(
            Section("importance", "How much heads matter", [record_table(first, caption)])
        )
    caption = "Shares, entropy in nats, mean distance in tokens; layers and heads count from 1."
    every = record_table(records, caption, shaded=PATTERNS)
    return Report(
        title, source, [], [*sections, Section("heads", "All heads", [*_maps(records), every])]
    )


def _strongest(patterns: Mapping[str, Any], records: Records, caption: str) -> TableBlock:
    """Returns each pattern with its strongest head."""
    rows = []
    for name, tokens in patterns["counts"].items():
        if name in PATTERNS:
            best = max(records, key=lambda one: float(one[name]))
            heads = sum(one["pattern"] == name for one in records)
            strongest = f"layer {best['layer']}, head {best['head']}"
            what = {
                "pattern": name,
                "attention to": PATTERNS[name],
                "heads": heads,
                "strongest": strongest,
            }
            rows.append({**what, "share": best[name], "tokens": tokens})
    mixed = sum(one["pattern"] == MIXED for one in records)
    rows.append(
        {"pattern": MIXED, "attention to": "none of these with more than half", "heads": mixed}
    )
    return record_table(rows, caption)


def _maps(records: Records) -> list[TableBlock]:
    """Returns a heat map for each pattern: a row for each layer, a column for each head."""
    layers = sorted({record["layer"] for record in records})
    heads = sorted({record["head"] for record in records})
    by_place = {(record["layer"], record["head"]): record for record in records}
    maps = []
    for name, what in PATTERNS.items():
        if any(name in record for record in records):
            columns = [Column("layer \\ head"), *(Column(str(head), number=True) for head in heads)]
            rows: list[list[str | Cell]] = [
                [str(layer), *(_map_cell(by_place[layer, head][name]) for head in heads)]
                for layer in layers
            ]
            maps.append(
                TableBlock(columns, rows, f"{name}: share of the attention that goes to {what}.")
            )
    return maps


def _map_cell(share: float) -> Cell:
    return Cell(f"{share:.2f}", shade=share)


def neighbours_page(found: Mapping[str, Any]) -> str:
    """Returns the page of an answer of `interpretability.neighbours`."""
    near = found["neighbours"]
    rows = [
        {"number": i, "text": one["text"], "cosine": one["score"]}
        for i, one in enumerate(near, start=1)
    ]
    caption = "Principal components of the vectors; the star is what they are compared with."
    picture = Chart(partial(places_chart, found["at"], near), caption, wide=True)
    table = replace(record_table(rows, data=["text"]), stacked=True)
    if "context" in found:
        about = f"{found['model']}, layer {found['layer']}: {found['context']}"
    else:
        about = found["model"]
    section = Section("neighbours", "Neighbours", [picture, table])
    return render_html(Report(f"Neighbours of {found['query']}", about, [], [section]))
