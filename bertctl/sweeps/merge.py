"""`sweep-merge`: the shards of a sweep that ran in folders of their own, as one."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from bertctl.errors import UsageError
from bertctl.progress import SILENT, Listener
from bertctl.run_folder import RunFolder
from bertctl.sweeps.disk import delete_models
from bertctl.sweeps.plan import find_plan, read_plan, refuse_other_plan, write_plan
from bertctl.sweeps.results import STATES, read_cells
from bertctl.sweeps.run import locked
from bertctl.words import command
from bertctl.writing import replacing


def merge(folders: Sequence[Path], output: Path, *, listener: Listener = SILENT) -> None:
    """Copies the finished runs of several folders of one sweep into one.

    Args:
        folders: At least one folder of a shard, each with a plan.json.
        output: Folder of the merged sweep; it may have a merge of the same sweep already.
        listener: Receives the number of runs, and a warning if some are missing.

    Raises:
        UsageError: no folder; or they are shards of different sweeps, with what differs; or the
            output holds another.
        UnavailableError: a folder that holds no sweep; or the output can't be written.
        DataError, UnavailableError: shards that ran on other data or with other model files.
    """
    if not folders:
        raise UsageError(
            "no folder to merge is given", remedy=command("sweep-merge DIR DIR ...", output="OUT")
        )
    plans = [read_plan(folder) for folder in folders]
    for folder, shard_plan in zip(folders[1:], plans[1:], strict=True):
        refuse_other_plan(
            plans[0],
            shard_plan,
            f"{folders[0]} and {folder}: they were started",
            "They can't be merged.",
        )
    plan = plans[0].model_copy(update={"shard": None})
    before = find_plan(output)
    if before is not None:
        refuse_other_plan(
            before,
            plan,
            f"the sweep in {output} was started",
            "Choose another folder with `output=`.",
        )
    with locked(output, None):
        write_plan(output, plan)
        for folder in folders:
            if folder.resolve() != output.resolve():
                _copy(folder, output)
        cells = read_cells(output)[1]
        missing = [cell for cell in cells if cell.state == "missing"]
        listener.say(f"{len(cells) - len(missing)} of {len(cells)} runs are there")
        if missing:
            listener.warn(
                f"{len(missing)} of {len(cells)} runs are missing: the table is made of the "
                "others; run their shards, and merge again"
            )
        if plan.keep == "best":
            delete_models(output, {cell.name for cell in cells})


def _copy(folder: Path, output: Path) -> None:
    """Copies the runs of a sweep's folder that the output lacks, or has in a worse state.

    Runs that are over in the output stay; one that failed there is replaced by one that did not.

    Args:
        folder: SWEEP of a shard.
        output: SWEEP of the merged runs, with the same plan.
    """
    for cell, existing in zip(read_cells(folder)[1], read_cells(output)[1], strict=True):
        if existing.is_over or STATES.index(cell.state) >= STATES.index(existing.state):
            continue
        with replacing(existing.path) as aside:
            ignored = shutil.ignore_patterns(".lock", "checkpoints", "*.part")
            shutil.copytree(
                cell.path,
                aside,
                symlinks=True,
                ignore=ignored,
            )
            # The copy is complete. It takes the place of the old run's files on leaving `with`.
            RunFolder(existing.path).clear()
