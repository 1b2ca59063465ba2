"""Whose model stays: `--keep best` takes the others away as soon as they can't be the best any more."""

import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from bertctl.progress import Listener
from bertctl.run_folder import RunFolder
from bertctl.runtime.machine import free_bytes
from bertctl.sweeps.results import by_setting, read_cells
from bertctl.sweeps.select import best_cell, best_score, ranked
from bertctl.training.job import Encoded
from bertctl.words import human_bytes

_OTHER_FILES = 300_000  # bytes of a cell without its model: recipe, history, log, metrics
_LINE = 400  # bytes of a line of predictions, about


def prune(folder: Path, mine: Collection[str], *, finished: bool) -> None:
    """Delete model/ of every run that `--keep best` does not keep.

    While the sweep goes on, the best run of each setting that isn't complete stays, and of the complete ones that of
    the best; afterwards the recommended run alone.

    Args:
        folder: SWEEP.
        mine: names of the cells of this shard; others are left alone.
        finished: whether all of them are over.
    """
    plan, cells = read_cells(folder)
    own = [cell for cell in cells if cell.name in mine]
    found = [one for one in by_setting(plan, own) if one.scores]
    is_open = {
        one.index: not finished and any(cell.state == "missing" for score in one.scores for cell in score.cells)
        for one in found
    }
    closed = [one for one in found if not is_open[one.index]]
    kept = {best_score(plan, one) for one in found if is_open[one.index]}
    if closed:
        kept.add(best_score(plan, ranked(plan, closed, by=plan["choose"])[0]))
    names = {score.cells[0].name for score in kept if score is not None}
    if finished:
        best = best_cell(plan, found) if found else None
        names = {best.name} if best is not None else set()
    for cell in own:
        if cell.is_over and cell.name not in names:
            shutil.rmtree(RunFolder(cell.path).model, ignore_errors=True)


def disk_needed(plan: Mapping[str, Any], encoded: Encoded, *, cells: int, jobs: int) -> int:
    """Bytes at the worst moment, about.

    Args:
        plan: content of plan.json.
        encoded: model and rows of one of the runs.
        cells: runs to be made.
        jobs: runs at a time. Each may leave a checkpoint (weights, AdamW's two moments, the best weights).
    """
    model_bytes = sum(file.stat().st_size for file in encoded.source.folder.glob("*.safetensors"))
    rows = sum(len(rows) for split, rows in encoded.data.splits.items() if split != "train")
    # The best setting's, one of each open setting (as many as jobs, or all where a shard has parts of each), and those
    # being written.
    open_settings = len(plan["settings"]) if plan["shard"] else jobs
    models = {"all": cells, "best": min(cells, 1 + open_settings) + jobs, "none": 0}[plan["keep"]]
    return models * model_bytes + jobs * 4 * model_bytes + cells * (_OTHER_FILES + rows * _LINE)


def say_disk(folder: Path, needed: int, keep: str, listener: Listener) -> None:
    """Say what will be needed, and warn where it is more than is free."""
    free = free_bytes(folder)
    listener.say(f"disk: up to {human_bytes(needed)} with --keep {keep}, {human_bytes(free)} free")
    if needed > free:
        listener.warn(f"up to {human_bytes(needed)} of disk will be needed, {human_bytes(free)} is free")
