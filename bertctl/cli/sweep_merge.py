"""`bertctl sweep-merge`."""

from pathlib import Path
from typing import Annotated

import typer

from bertctl.cli.output import Output

FoldersArgument = Annotated[
    list[Path], typer.Argument(metavar="DIR...", help="Folders that `bertctl sweep --shard` was given with -o.")
]
IntoOption = Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder for the whole sweep.")]


def sweep_merge(out: Output, folders: FoldersArgument, output: IntoOption) -> None:
    """Merge the shards of a sweep: copy their runs into one folder and compute the result from all of them.

    The shards must belong to one sweep: the same recipe, grid, seeds, data and model. Missing runs are reported.

    Examples:
        bertctl sweep-merge shard1 shard2 -o whole
    """
    from bertctl.sweeps.conclude import conclude
    from bertctl.sweeps.merge import merge
    from bertctl.sweeps.page import sweep_tables

    merge(folders, output, listener=out)
    document = conclude(output, listener=out)
    out.answer(document, sweep_tables(document))
    out.say(f"sweep: {output}")
