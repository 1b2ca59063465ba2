"""`sweep-merge`: the parts of a sweep that ran in folders of their own, as one."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertctl.errors import UnavailableError, UsageError
from bertctl.progress import SILENT, Listener
from bertctl.run_folder import write_failure, write_json
from bertctl.sweeps.keep import prune
from bertctl.sweeps.plan import plan_at, read_plan, refuse_other_plan
from bertctl.sweeps.results import CELLS, PLAN, Cell, read_cells
from bertctl.sweeps.run import locked


def merge(folders: Sequence[Path], output: Path, *, listener: Listener = SILENT) -> dict[str, Any]:
    """Copy the finished runs of several folders of one sweep into one.

    Args:
        folders: at least one; each with a plan.json.
        output: where to; may hold a merge of the same sweep already.
        listener: hears what was found, and what is missing.

    Returns:
        The plan.

    Raises:
        UsageError: no folder; or they are parts of different sweeps, with what differs; or the output holds another.
        UnavailableError: a folder that holds no sweep; or the output can't be written.
        DataError, UnavailableError: parts that ran on other data or with other model files.
    """
    if not folders:
        raise UsageError("no folder to merge is given", remedy="bertctl sweep-merge DIR DIR ... -o OUT")
    plans = [_plan(folder) for folder in folders]
    for folder, plan in zip(folders[1:], plans[1:], strict=True):
        refuse_other_plan(plans[0], plan, f"{folders[0]} and {folder}: they were started", "They can't be merged.")
    plan = plans[0] | {"shard": None}
    before = plan_at(output)
    if before is not None:
        refuse_other_plan(before, plan, f"the sweep in {output} was started", "Choose another folder with -o.")
    with locked(output, None):
        write_json(output / PLAN, plan)
        for folder in folders:
            if folder.resolve() != output.resolve():
                _copy(folder, output)
        found = read_cells(output)[1]
        missing = [cell for cell in found if cell.state == "missing"]
        listener.say(f"{len(found) - len(missing)} of {len(found)} runs are there")
        if missing:
            listener.warn(
                f"{len(missing)} of {len(found)} runs are missing: the table is made of the others; "
                "run their shards, and merge again"
            )
        if plan["keep"] == "best":
            prune(output, {cell.name for cell in found}, finished=not missing)
    return plan


def _plan(folder: Path) -> dict[str, Any]:
    plan = read_plan(folder)
    if plan is None:
        raise UnavailableError(
            f"{folder} holds no sweep (no {PLAN})", remedy="Give the folders that `bertctl sweep --shard` was given."
        )
    return plan


def _copy(folder: Path, output: Path) -> None:
    """The runs that are over and better known here than there; a failed one gives way to one that did not fail."""
    there = {cell.name: cell for cell in read_cells(output)[1]}
    for cell in read_cells(folder)[1]:
        if not _is_wanted(cell, there[cell.name]):
            continue
        target = output / CELLS / cell.name
        try:
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(cell.path, target, ignore=shutil.ignore_patterns(".lock", "checkpoints", "*.part"))
        except OSError as error:
            raise write_failure(target, error) from error


def _is_wanted(cell: Cell, there: Cell) -> bool:
    if cell.state == "missing":
        return False
    return there.state == "missing" or (there.state == "failed" and cell.state != "failed")
