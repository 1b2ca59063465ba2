"""A model's heads as a report: which pattern each follows over a corpus, and how much it matters to a task."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bertctl.interpretability.head_patterns import MAJORITY, MIXED, PATTERNS
from bertctl.reporting.document import Note, Report, Section, TableBlock, record_table
from bertctl.words import count

Found = Mapping[str, Any] | None
"""What `measure_patterns` or `measure_importance` gives, where it was asked."""

Records = Sequence[dict[str, Any]]
"""What is known of each head, layer by layer."""


def head_records(patterns: Found, importance: Found) -> list[dict[str, Any]]:
    """Returns what is known of each head, layer by layer, both counted from 1."""
    columns = {name: values for found in (patterns, importance) if found for name, values in found["columns"].items()}
    return [
        {
            "layer": place[0] + 1,
            "head": place[1] + 1,
            **{name: values[place].item() for name, values in columns.items()},
        }
        for place in np.ndindex(*next(iter(columns.values())).shape)
    ]


def heads_report(title: str, source: str, records: Records, patterns: Found, importance: Found) -> Report:
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
        texts, tokens, cut = count(patterns["texts"], "text"), count(patterns["tokens"], "token"), patterns["cut"]
        table = _strongest(patterns, records, f"{texts}, {tokens}; {count(cut, 'text')} cut.")
        what = Note(
            "A share is the mean attention that a token pays to what the pattern names, over the tokens that have such "
            f"a thing. A head has a pattern if its share is over {MAJORITY}; else it is `{MIXED}`."
        )
        sections.append(Section("patterns", "What heads attend to", [table, what]))
    if importance is not None:
        by = "loss_rise" if "loss_rise" in importance["columns"] else "gradient"
        ranked = sorted(records, key=lambda one: -float(one[by]))[:10]
        first = [{name: one[name] for name in ("layer", "head", *importance["columns"])} for one in ranked]
        whole = f"loss of the whole {importance['loss']:.4f}, {importance['metric']} {importance['value']:.4f}"
        caption = f"The ten that matter most to '{importance['split']}' (Michel et al. 2019); {whole}."
        sections.append(Section("importance", "How much heads matter", [record_table(first, caption)]))
    caption = "Shares, entropy in nats, mean distance in tokens; layers and heads count from 1."
    every = record_table(records, caption, shaded=PATTERNS)
    return Report(title, source, [], [*sections, Section("heads", "All heads", [every])])


def _strongest(patterns: Mapping[str, Any], records: Records, caption: str) -> TableBlock:
    """Returns each pattern with its strongest head."""
    rows = []
    for name, tokens in patterns["counts"].items():
        if name in PATTERNS:
            best = max(records, key=lambda one: float(one[name]))
            heads = sum(one["pattern"] == name for one in records)
            strongest = f"layer {best['layer']}, head {best['head']}"
            what = {"pattern": name, "attention to": PATTERNS[name], "heads": heads, "strongest": strongest}
            rows.append({**what, "share": best[name], "tokens": tokens})
    return record_table(rows, caption)
