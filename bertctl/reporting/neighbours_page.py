"""The page of `vocab neighbours`: what is near in a model, as a picture and as a table."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from bertctl.reporting.charts import places_chart
from bertctl.reporting.document import Cell, Chart, Column, Report, Section, TableBlock
from bertctl.reporting.html import render_html


def neighbours_page(found: Mapping[str, Any]) -> str:
    """Returns the page of an answer of `interpretability.neighbours`."""
    near = found["neighbours"]
    rows: list[list[str | Cell]] = [
        [str(i), Cell(one["text"], data=True), f"{one['score']:.4f}"] for i, one in enumerate(near, start=1)
    ]
    columns = [Column("number", number=True), Column("text"), Column("cosine", number=True)]
    caption = "Principal components of the vectors; the star is what they are compared with."
    picture = Chart(partial(places_chart, found["at"], near), caption, wide=True)
    about = f"{found['model']}, layer {found['layer']}: {found['context']}" if "context" in found else found["model"]
    section = Section("neighbours", "Neighbours", [picture, TableBlock(columns, rows, stacked=True)])
    return render_html(Report(f"Neighbours of {found['query']}", about, [], [section]))
