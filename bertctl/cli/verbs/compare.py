"""`bertctl compare`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from bertctl.cli.framework.completion import run_folders
from bertctl.cli.framework.option_names import all_as_options
from bertctl.cli.framework.output import Output, Shown, plain_table
from bertctl.cli.framework.pipelines import publish_tables

_COLOURS = {"better": "green", "worse": "red"}
_WORDS = ("runs", "method", "")
_WITH_METHODS = 96
"""Columns of a terminal from which on the table of differences names the methods."""


def compare(
    out: Output,
    runs: Annotated[list[Path], typer.Argument(metavar="RUN RUN...", autocompletion=run_folders)],
    split: Annotated[str | None, typer.Option("--split")] = None,
    examples: Annotated[int, typer.Option("--examples", min=0)] = 10,
) -> None:
    """Compare runs with the first of them.

    You see metrics with 95 % intervals, differences with p values (paired by example, adjusted by
    Holm's method for several runs), differences of the recipes and the data, examples that changed
    sides, and speed.

    Args:
        out: Prints the answer and messages.
        runs: Finished runs (or metrics.json files); the first is the reference.
        split: Split to look at. Default: validation, or the one that chose the weights.
        examples: Number of examples that changed sides to show per run.

    Examples:
        bertctl compare runs/old runs/new
    """
    from bertctl.documents import loading
    from bertctl.reporting.compare import compare as compare_runs
    from bertctl.reporting.comparison_tables import tables
    from bertctl.run_folder import DAMAGED

    with loading("one of the runs", remedy=DAMAGED):
        comparison = compare_runs(runs, split=split, examples=examples)
    comparison["notes"] = all_as_options(comparison["notes"])
    out.answer(comparison, *_answer(comparison, out.answers.width))
    for note in comparison["notes"]:
        out.say(f"note: {note}")
    publish_tables(out, "bertctl compare", tables(comparison, comparison["runs"]))


def _answer(comparison: dict[str, Any], width: int) -> list[Shown]:
    """Returns what is printed: a letter for each run, then the tables, which name runs by letter.

    Args:
        comparison: The answer with `--json`.
        width: Columns of the terminal.
    """
    from rich.text import Text

    from bertctl.reporting.comparison_tables import tables

    # From the 27th run on, the letter is a number.
    names = [chr(ord("A") + i) if i < 26 else str(i) for i in range(len(comparison["runs"]))]
    parts: list[Shown] = [
        f"{name}  {path}" for name, path in zip(names, comparison["runs"], strict=True)
    ]
    for title, header, rows in tables(comparison, names):
        is_too_narrow = width < _WITH_METHODS
        if title == "differences" and is_too_narrow:
            parts += _narrow_differences(header, rows)
            continue
        if not rows:  # the title alone
            parts.append(f"\n{title}")
            continue
        if title.startswith("examples"):
            numbers: tuple[str, ...] = ()  # all columns of examples are text
        else:
            numbers = _numbers(header)
        table = plain_table(*header, title=f"\n{title}", right=numbers)
        for row in rows:
            # The last cell of a difference is `better` or `worse`, which have a colour, or neither.
            table.add_row(*map(Text, row), style=_COLOURS.get(row[-1]))
        parts.append(table)
    return parts


def _numbers(header: list[str]) -> tuple[str, ...]:
    """Returns the columns of numbers."""
    return tuple(name for name in header[1:] if name not in _WORDS)


def _narrow_differences(header: list[str], rows: list[list[str]]) -> list[Shown]:
    """Returns the differences without the methods, and lines that name them instead.

    A narrow terminal has no room for the column, nor for both ends of an interval on one line.

    Args:
        header: Headers of the table; one of them is `method`.
        rows: Rows of the table; the first cell is the metric.
    """
    from rich.text import Text

    method_column = header.index("method")
    columns = [name for name in header if name != "method"]
    table = plain_table(*columns, title="\ndifferences", right=_numbers(columns))
    metrics_by_method: dict[str, list[str]] = {}
    for row in rows:
        without_method = (*row[:method_column], *row[method_column + 1 :])
        cells = [cell.replace(" to ", " to\n") for cell in without_method]
        table.add_row(*map(Text, cells), style=_COLOURS.get(row[-1]))
        metrics = metrics_by_method.setdefault(row[method_column], [])
        if row[0] not in metrics:
            metrics.append(row[0])

    lines = [
        f"p of {', '.join(metrics)}: {method}" for method, metrics in metrics_by_method.items()
    ]
    return [table, *lines]
