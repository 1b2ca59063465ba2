"""What a notebook shows of a run: its name, and its results as a table of HTML."""

from collections.abc import Mapping
from html import escape
from typing import Any

from bertctl.config.schema import Recipe
from bertctl.reporting.document import TableBlock
from bertctl.reporting.summary import figure, interval, metric_name, results_table


def data_text(recipe: Recipe) -> str:
    """Returns what a run's rows are called: the data set, the files, or rows in memory."""
    data = recipe.data
    files = [file for file in data.own_files.values() if file]
    if data.name:
        return data.name
    return files[0] if files else ", ".join(recipe.pretraining.corpus or ()) or "no data"


def score_text(metrics: Mapping[str, Any]) -> str:
    """Returns the primary score of a run with its 95 % interval; empty where it has none."""
    primary = metrics["primary"]
    metric = metrics["metrics"].get(primary["split"], {}).get(primary["name"])
    if metric is None:
        return ""
    name = metric_name(primary["name"], metrics)
    score = f"{name} on {primary['split']} {figure(metric['value'])}"
    between = interval(metric)
    return f"{score} ({between})" if between else score


def run_html(title: str, facts: Mapping[str, str], metrics: Mapping[str, Any]) -> str:
    """Returns a run as HTML: its name, what it is made of, and a row per split and metric.

    Args:
        title: Its name.
        facts: What is said of it, by name.
        metrics: Content of metrics.json.
    """
    items = "<br>".join(f"{escape(name)}: {escape(value)}" for name, value in facts.items())
    table = table_html(results_table(metrics))
    return f"<div><strong>{escape(title)}</strong><br>{items}{table}</div>"


def table_html(table: TableBlock) -> str:
    """Returns a table as HTML that brings no style of its own but the alignment of numbers."""
    aligned = [
        ' style="text-align: right"' if column.number else ' style="text-align: left"'
        for column in table.columns
    ]
    names = [column.name for column in table.columns]
    head = "".join(
        f"<th{style}>{escape(name)}</th>" for style, name in zip(aligned, names, strict=True)
    )
    rows = []
    for cells in table.cells():
        texts = [
            f"<strong>{escape(str(cell))}</strong>" if cell.strong else escape(str(cell))
            for cell in cells
        ]
        rows.append(
            "".join(f"<td{style}>{text}</td>" for style, text in zip(aligned, texts, strict=True))
        )
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    caption = f"<caption>{escape(table.caption)}</caption>" if table.caption else ""
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
