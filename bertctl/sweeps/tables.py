"""The answer of a sweep on a terminal: settings by their mean, what was chosen, whether that is more than chance."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bertctl.reporting.summary import figure
from bertctl.sweeps.words import count_words, seed_words, setting_words, short_names, shown
from bertctl.words import human_seconds

STOPPED = ("collapsed", "diverged", "failed", "missing")


def sweep_tables(document: Mapping[str, Any]) -> RenderableType:
    """The settings sorted by mean, the chosen one in bold; below it the choice, the comparison, and what to know.

    Args:
        document: content of sweep.json.
    """
    headers, rows = setting_rows(document)
    title = f"{document['primary']['name']} on {document['primary']['split']} over seeds, by setting"
    table = Table(title=title, title_justify="left", box=None, header_style="bold", pad_edge=False)
    for header in headers:
        table.add_column(header, justify="right")
    chosen = document["chosen"]
    for row, cells in zip(document["settings"], rows, strict=True):
        is_chosen = chosen is not None and row["setting"] == chosen["setting"]
        table.add_row(*cells, style="bold" if is_chosen else None)
    lines = [f"{what}: {text}" for what, text in findings(document)]
    notes = [f"- {note}" for note in document["notes"]]
    return Group(table, Text(), *map(Text, lines), *([Text()] if notes else []), *map(Text, notes))


def setting_rows(document: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Headings and texts of the table by setting; the chosen one has a `*`.

    Columns for states in which no run is are left out, but for the collapsed.
    """
    axes, chosen, counts = document["axes"], document["chosen"], document["counts"]
    stopped = [state for state in STOPPED if counts[state] or state == "collapsed"]
    times = document["performance"]["settings"]
    rows = []
    for row in document["settings"]:
        mark = " *" if chosen is not None and row["setting"] == chosen["setting"] else ""
        seconds = times.get(str(row["setting"]))
        cells = [shown(row["values"][axis]) if axis in row["values"] else "" for axis in axes]
        cells += [_figure(row["mean"]) + mark, *(_figure(row[name]) for name in ("deviation", "min", "max"))]
        cells += [str(row["n"]), *(str(row[state]) for state in stopped)]
        rows.append([*cells, "" if seconds is None else human_seconds(seconds)])
    return [*short_names(axes), "mean", "deviation", "min", "max", "n", *stopped, "time"], rows


def findings(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What was found, in a few lines: a word for what it is, and a sentence."""
    chosen, counts = document["chosen"], document["counts"]
    if chosen is not None:
        by = "the mean over seeds" if chosen["by"] == "mean" else f"the best of {count_words(chosen['of'], 'run')}"
        yield f"chosen by {by}", chosen["sentence"]
        yield "comparison", document["comparison"]["sentence"]
        yield "expected best", _expected(document["expected_best"])
    if document["baseline"] is not None:
        yield "majority", f"{figure(document['baseline'])}, the answer that ignores the input"
    for entry in document["test"] or ():
        spread = "" if entry["low"] is None else f" ({figure(entry['low'])} to {figure(entry['high'])})"
        run = f"run {entry['run']} of {_setting_of(document, entry['run'])}"
        yield entry["split"], f"{entry['metric']} {figure(entry['value'])}{spread}, n {entry['n']}, {run}"
    if document["test"] == []:
        yield "test", "not scored: the recommended run has no test split, or was not asked for it"
    if chosen is not None and chosen["run"] is not None:
        value = "" if chosen["run_value"] is None else f", which gave {figure(chosen['run_value'])}"
        seed = seed_words(document["seeds"][chosen["seed"]])
        fold = "" if chosen["fold"] is None else f", fold {chosen['fold']}"
        yield "best.yaml", f"run {chosen['run']}, {seed}{fold}{value}"
    time = human_seconds(document["performance"]["seconds"])
    there = counts["runs"] - counts["missing"]
    yield "runs", f"{there:,} of {counts['runs']:,}, {time} of computing"


def _setting_of(document: Mapping[str, Any], run: str) -> str:
    number = next(row["setting"] for row in document["runs"] if row["run"] == run)
    values = next(row["values"] for row in document["settings"] if row["setting"] == number)
    return setting_words(values, document["axes"])


def _expected(entries: Sequence[Mapping[str, Any]]) -> str:
    numbers = [n for n in dict.fromkeys((1, 5, len(entries))) if 1 <= n <= len(entries)]
    parts = [
        f"{figure(entries[n - 1]['value'])} ± {figure(entries[n - 1]['deviation'])} of {count_words(n, 'run')}"
        for n in numbers
    ]
    return ", ".join(parts) + " (Dodge et al. 2019)"


def _figure(value: float | None) -> str:
    return "" if value is None else figure(value)
