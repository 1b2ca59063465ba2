"""The disk that a sweep needs, and whose model stays on it (`--keep`)."""

import shutil
from collections.abc import Collection
from pathlib import Path

from bertctl.data.unlabelled_rows import TRAINING_SPLITS
from bertctl.progress import Listener
from bertctl.run_folder import RunFolder
from bertctl.runtime.machine import free_bytes
from bertctl.sweeps.best_setting import best_cell, best_score, ranked
from bertctl.sweeps.plan import SweepPlan
from bertctl.sweeps.results import by_setting, read_cells
from bertctl.training.job import Encoded
from bertctl.words import human_bytes

_OTHER_FILES = 300_000  # bytes of a cell without its model: recipe, history, log, metrics
_LINE = 400  # bytes of a line of predictions, about


def delete_models(folder: Path, mine: Collection[str]) -> None:
    """Deletes model/ of every run that `--keep best` does not keep.

    While runs are missing or have failed, so that the same command runs them again, the best run of
    each setting that isn't complete stays, and of the complete ones that of the best; afterwards
    the recommended run alone.

    Args:
        folder: SWEEP.
        mine: names of the cells of this shard; others are left alone.
    """
    plan, cells = read_cells(folder)
    shard_cells = [cell for cell in cells if cell.name in mine]
    settings = [setting for setting in by_setting(plan, shard_cells) if setting.scores]
    if all(cell.is_over for cell in shard_cells):
        if settings:
            best = best_cell(plan, settings)
        else:
            best = None
        if best is not None:
            kept_names = {best.name}
        else:
            kept_names = set()
    else:
        closed = []
        scores = []
        for setting in settings:
            if all(cell.is_over for cell in setting.cells):
                closed.append(setting)
            else:
                scores.append(best_score(plan, setting))
        if closed:
            scores.append(best_score(plan, ranked(plan, closed, by=plan.choose)[0]))
        kept_names = {score.cells[0].name for score in scores if score is not None}
    for cell in shard_cells:
        if cell.is_over and cell.name not in kept_names:
            shutil.rmtree(RunFolder(cell.path).model, ignore_errors=True)


def disk_needed(plan: SweepPlan, encoded: Encoded, *, cells: int) -> int:
    """Returns the bytes at the worst moment, about.

    Args:
        plan: of the sweep.
        encoded: model and rows of one of the runs.
        cells: runs to be made. Each that is under way, or waits at a rung, may leave a checkpoint
            (weights, AdamW's two moments, the best weights).
    """
    model_bytes = sum(file.stat().st_size for file in encoded.source.folder.glob("*.safetensors"))
    rows = sum(
        len(rows) for split, rows in encoded.data.splits.items() if split not in TRAINING_SPLITS
    )
    # The best setting's, one of each open setting (as many as jobs, or all where a shard has parts
    # of each), and those being written.
    if plan.shard:
        open_settings = len(plan.settings)
    else:
        open_settings = plan.jobs
    models = {"all": cells, "best": min(cells, 1 + open_settings) + plan.jobs, "none": 0}[plan.keep]
    checkpoints = cells if plan.rungs else plan.jobs
    return (
        models * model_bytes + checkpoints * 4 * model_bytes + cells * (_OTHER_FILES + rows * _LINE)
    )


def say_disk(folder: Path, needed: int, plan: SweepPlan, listener: Listener) -> None:
    """Reports what will be needed, and warns where it is more than is free."""
    free = free_bytes(folder)
    listener.say(
        f"disk: up to {human_bytes(needed)} with `keep={plan.keep}`, {human_bytes(free)} free"
    )
    if needed > free:
        listener.warn(
            f"up to {human_bytes(needed)} of disk will be needed, {human_bytes(free)} is free"
        )
