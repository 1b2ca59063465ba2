"""The page of `vocab neighbours`: what is near in a model, as a picture and as a table."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from bertctl.reporting.charts import places_chart
from bertctl.reporting.document import Chart, Report, Section, record_table
from bertctl.reporting.html import render_html


def neighbours_page(found: Mapping[str, Any]) -> str:
    """Returns the page of an answer of `interpretability.neighbours`."""
    near = found["neighbours"]
    rows = [{"number": i, "text": one["text"], "cosine": one["score"]} for i, one in enumerate(near, start=1)]
    caption = "Principal components of the vectors; the star is what they are compared with."
    picture = Chart(partial(places_chart, found["at"], near), caption, wide=True)
    table = replace(record_table(rows, data=["text"]), stacked=True)
    about = f"{found['model']}, layer {found['layer']}: {found['context']}" if "context" in found else found["model"]
    section = Section("neighbours", "Neighbours", [picture, table])
    return render_html(Report(f"Neighbours of {found['query']}", about, [], [section]))
