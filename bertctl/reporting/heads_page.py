"""A model's heads as a report: which pattern each follows over a corpus, and how much it matters to a task."""

from collections.abc import Sequence
from typing import Any

from bertctl.interpretability.head_importance import HeadImportance
from bertctl.interpretability.head_patterns import MAJORITY, MIXED, PATTERNS, HeadPatterns
from bertctl.reporting.document import Note, Report, Section, TableBlock, record_table
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
    sections: list[Section] = []
    if patterns is not None:
        read = f"{count(patterns.texts, 'text')}, {count(patterns.tokens, 'token')}; {count(patterns.cut, 'text')} cut."
        what = Note(
            "A share is the mean attention that a token pays to what the pattern names, over the tokens that have such "
            f"a thing. A head has a pattern if its share is over {MAJORITY}; else it is `{MIXED}`."
        )
        sections.append(Section("patterns", "What heads attend to", [_strongest(patterns, records, read), what]))
    if importance is not None:
        by = "loss_rise" if "loss_rise" in importance.columns else "gradient"
        ranked = sorted(records, key=lambda one: -float(one[by]))[:10]
        first = [{name: one[name] for name in ("layer", "head", *importance.columns)} for one in ranked]
        whole = f"loss of the whole {importance.loss:.4f}, {importance.metric} {importance.value:.4f}"
        caption = f"The ten that matter most to '{importance.split}' (Michel et al. 2019); {whole}."
        sections.append(Section("importance", "How much heads matter", [record_table(first, caption)]))
    caption = "Shares, entropy in nats, mean distance in tokens; layers and heads count from 1."
    every = record_table(records, caption, shaded=PATTERNS)
    return Report(title, source, [], [*sections, Section("heads", "All heads", [every])])


def _strongest(patterns: HeadPatterns, records: Records, caption: str) -> TableBlock:
    """Returns each pattern with its strongest head."""
    rows = []
    for name in (name for name in PATTERNS if name in patterns.columns):
        best = max(records, key=lambda one: float(one[name]))
        heads = sum(one["pattern"] == name for one in records)
        strongest = f"layer {best['layer']}, head {best['head']}"
        what = {"pattern": name, "attention to": PATTERNS[name], "heads": heads, "strongest": strongest}
        rows.append({**what, "share": best[name], "tokens": patterns.counts[name]})
    return record_table(rows, caption)
