"""`bertctl sweep-merge`."""

from pathlib import Path
from typing import Annotated

import typer

from bertctl.cli.framework.next_command import say_next, use_of_sweep
from bertctl.cli.framework.option_names import all_as_options
from bertctl.cli.framework.output import Output


def sweep_merge(
    out: Output,
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR")],
) -> None:
    """Merge the shards of a sweep into one folder and compute the result from all their runs.

    The shards must belong to one sweep: the same recipe, grid, seeds, data and model. Missing runs
    are reported.

    Args:
        out: Prints the answer and messages.
        folders: Folders that `bertctl sweep --shard` wrote.
        output: Folder for the whole sweep. The same command adds to the sweep in it.

    Examples:
        bertctl sweep-merge shard1 shard2 -o whole
    """
    from bertctl.sweeps.conclude import conclude
    from bertctl.sweeps.merge import merge
    from bertctl.sweeps.page import sweep_tables
    from bertctl.sweeps.plan import read_plan

    merge(folders, output, listener=out)
    document = conclude(output, listener=out)
    document = document.model_copy(update={"notes": all_as_options(document.notes)})
    out.answer(document.as_json(), sweep_tables(document))
    out.say(f"sweep: {output}")
    if document.chosen is not None:
        task = read_plan(output).base_recipe().task
        say_next(out, use_of_sweep(output, document.chosen.run, task))
