"""What few-shot training brought, beside the frozen encoder, from metrics.json of its run."""

from collections.abc import Mapping
from typing import Any

from bertctl.reporting.document import Cell, Column, Note, Section, TableBlock
from bertctl.reporting.summary import figure


def few_shot_table(metrics: Mapping[str, Any]) -> TableBlock:
    """Returns a row per draw, and the means of several with their deviations.

    Args:
        metrics: content of metrics.json.
    """
    found = metrics["few_shot"]
    name = metrics["primary"]["name"]
    columns = [
        Column("draw"),
        *(Column(text, number=True) for text in (f"few-shot {name}", "frozen", "difference")),
    ]
    rows: list[list[str | Cell]] = [
        [f"seed {row['seed']}", *_figures(row)] for row in found["draws"]
    ]
    if found["deviation"]:
        rows.append(["mean", *(Cell(text, strong=True) for text in _figures(found["mean"]))])
        rows.append(["deviation", *_figures(found["deviation"])[:2], ""])
    return TableBlock(
        columns,
        rows,
        f"{found['rows']} training rows a draw; scored on {metrics['primary']['split']}.",
    )


def few_shot_section(metrics: Mapping[str, Any]) -> Section:
    """Returns the same for a page, with the verdict."""
    return Section(
        "few-shot",
        "Few-shot training",
        [few_shot_table(metrics), Note(metrics["few_shot"]["sentence"])],
    )


def _figures(scores: Mapping[str, float]) -> list[str]:
    ours = scores["few_shot"]
    frozen = scores["frozen"]
    return [figure(ours), figure(frozen), f"{ours - frozen:+.4f}"]
