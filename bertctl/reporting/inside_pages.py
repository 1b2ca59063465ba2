"""What looking into a model finds, as pages.

The attention of one text, its heads, and what is near a word.

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
from itertools import chain
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

_SMALL = 1_200_000
"""Attentions of a small page, such as those of 128 tokens and 6 x 12 heads."""

_SMALL_BYTES = 1_400_000
"""Bytes that the numbers of a small page may take."""

_BYTES = 24_000_000
"""Bytes that the numbers of any other page may take."""


def attention_page(attention: Mapping[str, Any], texts: Sequence[str]) -> str:
    """Returns the page of what `read_attention` gives for a text, or pair."""
    if attention["cut"]:
        cut = f" ({count(attention['cut'], 'more token')} cut off)"
    else:
        cut = ""
    tokens, layers, heads = (
        count(len(attention[f"{noun}s"]), noun) for noun in ("token", "layer", "head")
    )
    data = {
        name: attention[name].tolist()
        for name in ("sides", "layers", "heads", "scaling")
        if name in attention
    }
    data |= {"tokens": [harmless(token) for token in attention["tokens"]], **_packed(attention)}
    read = " · ".join(shorten(text, 160) for text in texts)
    size = f"{tokens}{cut}, {layers} × {heads}"
    return render_page(
        "attention.html.j2",
        scripts=["attention.js"],
        data=data,
        found=attention,
        text=read,
        size=size,
    )


def _packed(attention: Mapping[str, Any]) -> dict[str, Any]:
    """Returns attention, queries and keys as texts for the page, one for each layer.

    Each number is rounded to one byte. An attention a becomes `sqrt(a) * levels`, an element x of a
    query or key becomes `x / scale * steps`, where the scale is the layer's largest element. The
    finest pair of levels and steps is taken whose texts fit into the page. The page gets levels,
    steps and scales, to compute the numbers again.

    Args:
        attention: What `read_attention` gives.
    """
    if attention["attentions"].size <= _SMALL:
        most_bytes = _SMALL_BYTES
    else:
        most_bytes = _BYTES
    vectors = {}
    if "queries" in attention:
        vectors["query"] = attention["queries"]
    if "keys" in attention:
        vectors["key"] = attention["keys"]
    scales = {}
    packed: dict[str, Any] = {}
    for name, layers in vectors.items():
        scales[name] = [np.abs(layer).max() or 1.0 for layer in layers]
        packed[f"{name}Scale"] = [float(scale) for scale in scales[name]]

    # From fine to coarse, until the page is small enough.
    for levels, steps in _LEVELS:
        packed |= {"levels": levels, "steps": steps}
        # Most attentions are small, and the square root spreads small numbers over more levels.
        packed["attention"] = [
            _text(np.sqrt(layer) * levels, np.uint8) for layer in attention["attentions"]
        ]
        for name, layers in vectors.items():
            shares = (
                layer / scale * steps for layer, scale in zip(layers, scales[name], strict=True)
            )
            packed[name] = [_text(share, np.int8) for share in shares]
        texts = chain.from_iterable(packed[name] for name in ("attention", *vectors))
        if sum(map(len, texts)) <= most_bytes:
            break
    return packed


def _text(numbers: Array, kind: type) -> str:
    """Returns numbers as text: rounded to bytes, compressed, in base64."""
    rounded: Array = np.round(numbers).astype(kind)
    packed = zlib.compress(rounded.tobytes(), 6)
    return base64.b64encode(packed).decode()


Measured = Mapping[str, Any] | None
"""What `measure_patterns` or `measure_importance` gives, where it was asked."""

Records = Sequence[dict[str, Any]]
"""What is known of each head, layer by layer."""


def head_records(patterns: Measured, importance: Measured) -> list[dict[str, Any]]:
    """Returns what is known of each head, layer by layer, both counted from 1."""
    columns: dict[str, Any] = {}
    for measured in (patterns, importance):
        if measured:
            columns |= measured["columns"]
    records = []
    for layer, head in np.ndindex(*next(iter(columns.values())).shape):
        record: dict[str, Any] = {"layer": layer + 1, "head": head + 1}
        for name, values in columns.items():
            record[name] = values[layer, head].item()
        records.append(record)
    return records


def heads_report(
    title: str, source: str, records: Records, patterns: Measured, importance: Measured
) -> Report:
    """Returns the report: a section for patterns, one for importance, and one with all heads.

    The sections on patterns and importance begin with a table, which the terminal shows alone.

    Args:
        title: Of the page.
        source: Where the texts come from.
        records: What `head_records` gives.
        patterns: What `measure_patterns` gives over a corpus, or None.
        importance: What `measure_importance` gives for a task, or None.
    """
    sections: list[Section] = []
    if patterns is not None:
        texts = count(patterns["texts"], "text")
        tokens = count(patterns["tokens"], "token")
        cut = patterns["cut"]
        table = _strongest(patterns, records, f"{texts}, {tokens}; {count(cut, 'text')} cut.")
        note = Note(
            "A share is the mean attention that a token pays to what the pattern names, over the "
            "tokens that have such a thing. "
            f"A head has a pattern if its share is over {MAJORITY}; else it is `{MIXED}`."
        )
        sections.append(Section("patterns", "What heads attend to", [table, note]))
    if importance is not None:
        if "loss_rise" in importance["columns"]:
            importance_column = "loss_rise"
        else:
            importance_column = "gradient"
        ranked = sorted(records, key=lambda record: -float(record[importance_column]))[:10]
        names = ("layer", "head", *importance["columns"])
        strongest_heads = [_with_columns(record, names) for record in ranked]
        loss_text = (
            f"loss of the whole {importance['loss']:.4f}, {importance['metric']} "
            f"{importance['value']:.4f}"
        )
        split = importance["split"]
        caption = f"The ten that matter most to '{split}' (Michel et al. 2019); {loss_text}."
        sections.append(
            Section("importance", "How much heads matter", [record_table(strongest_heads, caption)])
        )
    caption = "Shares, entropy in nats, mean distance in tokens; layers and heads count from 1."
    all_heads = record_table(records, caption, shaded=PATTERNS)
    sections.append(Section("heads", "All heads", [*_maps(records), all_heads]))
    return Report(title, source, [], sections)


def _with_columns(record: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Returns some fields of a head's record, in this order."""
    return {name: record[name] for name in names}


def _strongest(patterns: Mapping[str, Any], records: Records, caption: str) -> TableBlock:
    """Returns a row for each pattern, with its strongest head and how many heads have it."""
    rows = []
    for name, tokens in patterns["counts"].items():
        if name in PATTERNS:
            strongest_head = max(records, key=lambda record: float(record[name]))
            n_heads = sum(record["pattern"] == name for record in records)
            strongest = f"layer {strongest_head['layer']}, head {strongest_head['head']}"
            facts = {
                "pattern": name,
                "attention to": PATTERNS[name],
                "heads": n_heads,
                "strongest": strongest,
            }
            rows.append({**facts, "share": strongest_head[name], "tokens": tokens})
    n_mixed = sum(record["pattern"] == MIXED for record in records)
    rows.append(
        {"pattern": MIXED, "attention to": "none of these with more than half", "heads": n_mixed}
    )
    return record_table(rows, caption)


def _maps(records: Records) -> list[TableBlock]:
    """Returns a heat map for each pattern: a row for each layer, a column for each head."""
    layers = sorted({record["layer"] for record in records})
    heads = sorted({record["head"] for record in records})
    by_place = {(record["layer"], record["head"]): record for record in records}
    maps = []
    for name, meaning in PATTERNS.items():
        if any(name in record for record in records):
            columns = [Column("layer \\ head"), *(Column(str(head), number=True) for head in heads)]
            rows: list[list[str | Cell]] = []
            for layer in layers:
                cells = [_map_cell(by_place[layer, head][name]) for head in heads]
                rows.append([str(layer), *cells])
            maps.append(
                TableBlock(columns, rows, f"{name}: share of the attention that goes to {meaning}.")
            )
    return maps


def _map_cell(share: float) -> Cell:
    """Returns a cell of a heat map: a share of the attention, shaded by it."""
    return Cell(f"{share:.2f}", shade=share)


def neighbours_page(answer: Mapping[str, Any]) -> str:
    """Returns the page of the words or texts that are nearest to one, as a picture and a table.

    Args:
        answer: What `interpretability.neighbours` gives.
    """
    near_words = answer["neighbours"]
    rows = [
        {"number": i, "text": neighbour["text"], "cosine": neighbour["score"]}
        for i, neighbour in enumerate(near_words, start=1)
    ]
    caption = "Principal components of the vectors; the star is what they are compared with."
    picture = Chart(partial(places_chart, answer["at"], near_words), caption, wide=True)
    table = replace(record_table(rows, data=["text"]), stacked=True)
    if "context" in answer:
        about = f"{answer['model']}, layer {answer['layer']}: {answer['context']}"
    else:
        about = answer["model"]
    section = Section("neighbours", "Neighbours", [picture, table])
    return render_html(Report(f"Neighbours of {answer['query']}", about, [], [section]))
