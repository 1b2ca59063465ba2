"""A model's heads as a report: which pattern each follows over a corpus, and how much it matters to a task."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bertctl.interpretability.head_importance import HeadImportance
from bertctl.interpretability.head_patterns import BROAD, MAJORITY, MIXED, PATTERNS, HeadPatterns
from bertctl.reporting.document import Block, Cell, Column, Note, Report, Section, TableBlock, Tile
from bertctl.words import count

Records = Sequence[dict[str, Any]]
"""What is known of each head, layer by layer."""


def head_records(patterns: HeadPatterns | None, importance: HeadImportance | None) -> list[dict[str, Any]]:
    """Returns what is known of each head, layer by layer, both counted from 1."""
    columns = {**(patterns.columns if patterns else {}), **(importance.columns if importance else {})}
    names = patterns.names() if patterns else None
    layers, heads = next(iter(columns.values())).shape
    return [
        {"layer": i + 1, "head": j + 1}
        | ({"pattern": str(names[i, j])} if names is not None else {})
        | {name: float(values[i, j]) for name, values in columns.items()}
        for i in range(layers)
        for j in range(heads)
    ]


def heads_report(
    title: str, source: str, records: Records, patterns: HeadPatterns | None, importance: HeadImportance | None
) -> Report:
    """Returns the report: a section for each, whose first block is its table, and one of all heads.

    Args:
        title: of the page.
        source: where the texts come from.
        records: what `head_records` gives.
        patterns: over a corpus.
        importance: to a task.
    """
    tiles: list[Tile] = []
    sections: list[Section] = []
    if patterns is not None:
        named = sum(one["pattern"] in PATTERNS for one in records)
        tiles.append(Tile("heads with a pattern", f"{named} of {len(records)}", "more than half of their attention"))
        note = f"{count(patterns.tokens, 'token')}; {count(patterns.cut, 'text')} cut"
        tiles.append(Tile("texts", f"{patterns.texts:,}", note))
        what = Note(
            "A share is the mean attention that a token pays to what the pattern names, over the tokens that have such "
            f"a thing. A head has a pattern if its share is over {MAJORITY}; else it is `{BROAD}`, with an entropy "
            f"near that of even attention ({patterns.even['entropy']:.2f} nats; mean distance "
            f"{patterns.even['distance']:.1f}), or `{MIXED}`."
        )
        cells = [Cell(one["pattern"], shade=max(one[name] for name in PATTERNS if name in one)) for one in records]
        grid = _grid(records, cells, "Each head's pattern; the darker, the larger its largest share.")
        sections.append(Section("patterns", "What heads attend to", [_patterns(patterns, records), what, grid]))
    if importance is not None:
        name = importance.metric.replace("_", " ")
        tiles.append(Tile(name, f"{importance.value:.4f}", f"of the whole model, {count(importance.rows, 'row')}"))
        sections.append(Section("importance", "How much heads matter", _importance(importance, records)))
    return Report(title, source, tiles, [*sections, Section("heads", "All heads", [_all(records)])])


def _patterns(patterns: HeadPatterns, records: Records) -> TableBlock:
    """Returns each pattern with its strongest head."""
    rows = []
    for name, what in PATTERNS.items():
        if name not in patterns.columns:
            continue
        shares = patterns.columns[name]
        layer, head = np.unravel_index(shares.argmax(), shares.shape)
        numbers = (f"{shares.max():.3f}", f"{patterns.even[name]:.3f}", f"{patterns.counts[name]:,}")
        heads = str(sum(one["pattern"] == name for one in records))
        rows.append([name, what, heads, f"layer {layer + 1}, head {head + 1}", *numbers])
    return _table(("pattern", "attention to", "heads", "strongest", "share", "by chance", "tokens"), rows)


def _importance(importance: HeadImportance, records: Records) -> list[Block]:
    """Returns the ten heads that matter most, by ablation where there was one, and how much each matters by that."""
    names = ["layer", "head", *importance.columns]
    by, how = ("loss_rise", "what the loss rises by without the head; red where it falls")
    if by not in names:
        by, how = ("gradient", "mean size of the loss's derivative by a gate on the head's output")
    first = sorted(records, key=lambda one: -float(one[by]))[:10]
    whole = f"loss of the whole {importance.loss:.4f}, {importance.metric} {importance.value:.4f}"
    caption = f"The ten that matter most to '{importance.split}' (Michel et al. 2019); {whole}."
    table = _table(names, [[_text(name, one[name]) for name in names] for one in first], caption)
    top = max(abs(one[by]) for one in records) or 1.0
    cells = [Cell(f"{100 * one[by] / top:.0f}", shade=abs(one[by]) / top, wrong=one[by] < 0) for one in records]
    return [table, _grid(records, cells, f"{by.replace('_', ' ').capitalize()} in % of the largest: {how}.")]


def _all(records: Records) -> TableBlock:
    rows = [
        [Cell(_text(name, value), shade=value if name in PATTERNS else 0.0) for name, value in one.items()]
        for one in records
    ]
    caption = "Shares, entropy in nats, mean distance in tokens; layers and heads count from 1."
    return _table(list(records[0]), rows, caption)


def _text(name: str, value: str | float) -> str:
    if isinstance(value, float):
        return f"{value:.3f}" if name in (*PATTERNS, "entropy", "distance") else f"{value:.3g}"
    return str(value)


def _table(names: Sequence[str], rows: Sequence[Sequence[str | Cell]], caption: str = "") -> TableBlock:
    words = ("pattern", "attention to", "strongest")
    return TableBlock([Column(name.replace("_", " "), number=name not in words) for name in names], rows, caption)


def _grid(records: Records, cells: Sequence[Cell], caption: str) -> TableBlock:
    heads = records[-1]["head"]
    starts = range(0, len(cells), heads)
    rows = [[Cell(f"layer {records[at]['layer']}"), *cells[at : at + heads]] for at in starts]
    return TableBlock([Column(""), *(Column(f"head {head + 1}") for head in range(heads))], rows, caption)
