"""What a notebook shows: how far a training is, and a run with its results as a table of HTML."""

import sys
import time
from collections.abc import Mapping
from html import escape
from pathlib import Path

from bertctl.config.schema import Recipe
from bertctl.progress import Figures, Listener
from bertctl.reporting.document import TableBlock
from bertctl.reporting.summary import figure, interval, metric_name, results_table
from bertctl.run_documents.metrics_document import MetricsDocument
from bertctl.words import harmless, human_seconds


def data_text(recipe: Recipe) -> str:
    """Returns what a run's rows are called: the data set, the first file, or the corpus."""
    data = recipe.data
    files = [file for file in data.own_files.values() if file]
    corpus = recipe.pretraining.corpus or []
    if data.name:
        return data.name
    if files:
        return Path(files[0]).name
    return ", ".join(corpus) or "no data"


def model_text(recipe: Recipe) -> str:
    """Returns what a run's model is called: its name, or that of its folder."""
    name = recipe.model.name
    if Path(name).is_absolute():
        return Path(name).name
    return name


def score_text(metrics: MetricsDocument) -> str:
    """Returns the primary score of a run with its 95 % interval; empty where it has none."""
    primary = metrics.primary
    metric = metrics.metrics.get(primary.split, {}).get(primary.name)
    if metric is None:
        return ""
    name = metric_name(primary.name, metrics)
    score = f"{name} on {primary.split} {figure(metric.value)}"
    between = interval(metric.low, metric.high)
    return f"{score} ({between})" if between else score


def run_html(title: str, facts: Mapping[str, str], metrics: MetricsDocument | None) -> str:
    """Returns a run as HTML: its name, what it is made of, and a row per split and metric.

    Args:
        title: Its name.
        facts: What is said of it, by name.
        metrics: Content of metrics.json; None without scores.
    """
    items = "<br>".join(f"{escape(name)}: {escape(value)}" for name, value in facts.items())
    if metrics is None:
        table = ""
    else:
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
    if table.caption:
        caption = f"<caption>{escape(table.caption)}</caption>"
    else:
        caption = ""
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def in_notebook() -> bool:
    """Returns whether this code runs in a notebook or another shell of IPython."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and ipython.get_ipython() is not None


class NotebookListener(Listener):
    """Listener that shows progress and evaluations under the cell of a notebook.

    One line is written over and over; evaluations and warnings stay above it.
    """

    def __init__(self) -> None:
        self._shown_at = 0.0
        # Phase -> time of its first report, and the share of the work that was done then.
        self._began: dict[str, tuple[float, float]] = {}

    def say(self, text: str) -> None:
        """Shows what was evaluated; the rest of the talk is for a terminal."""
        if text.startswith("step "):
            sys.stderr.write(f"\r{harmless(text)}\n")

    def warn(self, text: str) -> None:
        """Shows a warning."""
        sys.stderr.write(f"\rwarning: {harmless(text)}\n")

    def advance(
        self,
        phase: str,
        done: int,
        total: int,
        figures: Figures | None = None,
        *,
        share: float | None = None,
    ) -> None:
        """Shows how far a phase is and the time that is left, at most once a second.

        The arguments are those of `Listener.advance`. A phase without a total is not shown.
        """
        now = time.monotonic()
        if share is None and total:
            share = done / total
        began, share_at_start = self._began.setdefault(phase, (now, share or 0.0))
        if now - self._shown_at < 1 or not total:
            return

        self._shown_at = now
        parts = [f"{phase} {done}/{total} ({100 * (share or 0.0):.0f} %)"]
        if figures and "loss" in figures:
            parts.append(f"loss {figures['loss']}")
        if share is not None and share > share_at_start:
            # What was done before, by a run that is resumed, took no time now.
            seconds_left = (now - began) * (1 - share) / (share - share_at_start)
            parts.append(f"{human_seconds(seconds_left, brief=True)} left")
        sys.stderr.write(f"\r{', '.join(parts)}   ")
        sys.stderr.flush()

    def finish(self, phase: str) -> None:
        """Forgets when a phase began: it may come again."""
        self._began.pop(phase, None)
