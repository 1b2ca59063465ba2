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


def compare(
    out: Output,
    runs: Annotated[list[Path], typer.Argument(metavar="RUN RUN...", autocompletion=run_folders)],
    split: Annotated[str | None, typer.Option("--split")] = None,
    examples: Annotated[int, typer.Option("--examples", min=0)] = 10,
) -> None:
    """Compare runs with the first of them.

    The answer shows metrics with 95 % intervals, differences with p values (paired by example,
    adjusted by Holm's method where there are several runs), differences of the recipes and the
    data, examples that changed sides, and speed.

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
    out.answer(comparison, *_answer(comparison))
    for note in comparison["notes"]:
        out.say(f"note: {note}")
    publish_tables(out, "bertctl compare", tables(comparison, comparison["runs"]))


def _answer(comparison: dict[str, Any]) -> list[Shown]:
    from rich.text import Text

    from bertctl.reporting.comparison_tables import tables

    names = [chr(ord("A") + i) if i < 26 else str(i) for i in range(len(comparison["runs"]))]
    parts: list[Shown] = [
        f"{name}  {path}" for name, path in zip(names, comparison["runs"], strict=True)
    ]
    for title, header, rows in tables(comparison, names):
        if not rows:
            parts.append(f"\n{title}")
            continue
        numbers = (
            ()
            if title.startswith("examples")
            else tuple(name for name in header[1:] if name not in _WORDS)
        )
        table = plain_table(*header, title=f"\n{title}", right=numbers)
        for row in rows:
            table.add_row(*map(Text, row), style=_COLOURS.get(row[-1]))
        parts.append(table)
    return parts
