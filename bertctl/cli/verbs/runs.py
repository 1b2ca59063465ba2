"""`bertctl runs`: list runs, delete some, or all but the best. Nothing here needs torch."""

import os
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from bertctl.cli.framework.completion import run_folders
from bertctl.cli.framework.option_names import as_options
from bertctl.cli.framework.output import Output, Shown, plain_table
from bertctl.errors import BertctlError, UsageError
from bertctl.words import count, human_bytes, human_seconds

if TYPE_CHECKING:
    from bertctl.reporting.run_list import ListedRun

_Folder = Annotated[
    Path, typer.Argument(metavar="[DIR]", help="Folder with the runs.", show_default=True)
]


def ls(
    out: Output,
    folder: _Folder = Path("runs"),
    sort: Annotated[
        Literal["age", "name", "score", "size", "state"], typer.Option("--sort")
    ] = "age",
) -> None:
    """List the runs in a folder: recipe, score with its 95 % interval, state, size and age.

    The score is the primary metric on the split that `gate` would use. A run is `killed` if its
    process ended without recording why. With -q, only the folders are printed, one per line.

    Args:
        out: Prints the answer and messages.
        folder: Folder that holds the runs.
        sort: Order of the list. age: newest first; score: best first, by recipe; size: smallest
            first.

    Examples:
        bertctl runs ls --sort score
        bertctl runs ls -q | xargs -n 1 bertctl report
        bertctl runs ls sweep/cells --json
    """
    from bertctl.reporting.run_list import list_runs

    runs = list_runs(folder, order=sort)
    document = {"folder": str(folder), "runs": [asdict(run) for run in runs]}
    if out.quiet:
        out.answer(document, *(run.run for run in runs))
        return
    summary_line = (
        f"{count(len(runs), 'run')} in {folder}, {human_bytes(sum(run.bytes for run in runs))}"
    )
    out.answer(document, *([_table(runs)] if runs else []), summary_line)


def rm(
    out: Output,
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", autocompletion=run_folders)],
) -> None:
    """Delete runs by name. Other files in their folders are kept.

    Nothing is deleted if one of the names is not a run, is a link, or is part of a sweep. A run in
    progress is kept.

    Args:
        out: Prints the answer and messages.
        runs: Run folders.

    Examples:
        bertctl runs rm runs/sst2-1a2b3c4d
    """
    from bertctl.run_folder import RunFolder

    # By absolute paths, as one folder may be named twice.
    paths = {os.path.abspath(path): path for path in runs}  # noqa: PTH100
    folders = [RunFolder(path) for path in paths.values()]
    refusals = [reason for folder in folders if (reason := folder.why_kept())]
    if refusals:
        raise UsageError("\n  ".join(["nothing was deleted:", *refusals]))
    for folder in folders:
        is_folder_gone = folder.delete()
        message = f"deleted: {folder.path}"
        if not is_folder_gone:
            message += "; its folder stays, for what else is in it"
        out.say(message)
    out.answer(
        {"deleted": [str(folder.path) for folder in folders]},
        f"{count(len(folders), 'run')} deleted",
    )


def gc(
    out: Output,
    keep_best: Annotated[int, typer.Option("--keep-best", min=1, metavar="N")],
    folder: _Folder = Path("runs"),
    dry_run: Annotated[bool, typer.Option("--dry-run")] = False,
) -> None:
    """Delete the finished runs in a folder, except the best of each recipe.

    Only runs of the same recipe name are compared, if they have the same primary metric on the same
    rows. Unfinished runs, runs without a score, and everything that is not a run are kept. No link
    is followed.

    Args:
        out: Prints the answer and messages.
        keep_best: Number of runs to keep of each recipe.
        folder: Folder that holds the runs.
        dry_run: List the runs that would be deleted, and delete nothing.

    Examples:
        bertctl runs gc --keep-best 3 --dry-run
    """
    from bertctl.reporting.run_list import beyond_best, list_runs
    from bertctl.run_folder import RunFolder

    runs = list_runs(folder)
    deleted = []
    refused = []
    for run in beyond_best(runs, keep_best):
        try:
            RunFolder(Path(run.run)).delete(only_done=True, dry_run=dry_run)
            deleted.append(run)
        except BertctlError as error:
            refused.append({"run": run.run, "why": as_options(error.message)})
            out.warn(f"{run.run} stays: {error.message}")
    freed = sum(run.bytes for run in deleted)
    document = {
        "dry_run": dry_run,
        "deleted": [asdict(run) for run in deleted],
        "kept": refused,
        "bytes": freed,
    }
    outcome = "would be deleted" if dry_run else "deleted"
    summary_line = f"{count(len(deleted), 'run')} of {len(runs)} {outcome}, {human_bytes(freed)}"
    parts: list[Shown] = [summary_line]
    if deleted:
        parts.insert(0, _table(deleted))
    out.answer(document, *parts)


COMMANDS = {"ls": ls, "rm": rm, "gc": gc}


def _table(runs: "Iterable[ListedRun]") -> Shown:
    """Returns a row per run folder; one that was never scored has empty cells for the score."""
    from bertctl.reporting.summary import figure, interval

    numbers = ("score", "size", "age")
    columns = (
        "run",
        "kind",
        "recipe",
        "model",
        "split",
        "score",
        "95 % interval",
        "state",
        "size",
        "age",
    )
    table = plain_table(*columns, right=numbers)
    for run in runs:
        score = run.score
        sizes = (human_bytes(run.bytes), human_seconds(run.age_seconds, brief=True))
        if score:
            scored = (f"{run.metric} {figure(score.value)}", interval(score.low, score.high))
        else:
            scored = ("", "")
        model = Path(run.model).name  # of a folder the last part, of a hub id the model
        table.add_row(
            run.run,
            run.kind,
            run.recipe,
            model,
            run.split,
            *scored,
            run.state,
            *sizes,
        )
    return table
