"""The disk that a sweep needs, and whose model stays on it (`--keep`)."""

import shutil
from collections.abc import Collection, Sequence
from pathlib import Path

from bertctl.data.unlabelled_rows import TRAINING_SPLITS
from bertctl.progress import Listener
from bertctl.run_folder import RunFolder
from bertctl.runtime.machine import free_bytes
from bertctl.sweeps.best_setting import best_cell, best_score, ranked
from bertctl.sweeps.plan import SweepPlan
from bertctl.sweeps.results import SettingScores, by_setting, read_cells
from bertctl.training.job import Encoded
from bertctl.words import human_bytes

_OTHER_FILES = 300_000  # bytes of a cell without its model: recipe, history, log, metrics
_LINE = 400  # bytes of a line of predictions, about


def delete_models(folder: Path, mine: Collection[str]) -> None:
    """Deletes model/ of every run that `--keep best` does not keep.

    Args:
        folder: SWEEP.
        mine: Names of the runs of this shard; the models of other runs are left alone.
    """
    plan, cells = read_cells(folder)
    shard_cells = [cell for cell in cells if cell.name in mine]
    settings = [setting for setting in by_setting(plan, shard_cells) if setting.scores]
    names_to_keep: set[str] = set()
    if not all(cell.is_over for cell in shard_cells):
        names_to_keep = _possible_best_runs(plan, settings)
    elif settings:
        best = best_cell(plan, settings)
        if best is not None:
            names_to_keep = {best.name}

    for cell in shard_cells:
        if cell.is_over and cell.name not in names_to_keep:
            shutil.rmtree(RunFolder(cell.path).model, ignore_errors=True)


def _possible_best_runs(plan: SweepPlan, settings: Sequence[SettingScores]) -> set[str]:
    """Returns the names of the runs that the sweep may still recommend, while runs are missing.

    These are the best run of each setting that isn't complete, as more scores may make it the best
    setting, and the best run of the best complete setting. Runs that failed count as missing: the
    same command runs them again.
    """
    complete = []
    scores = []
    for setting in settings:
        if all(cell.is_over for cell in setting.cells):
            complete.append(setting)
        else:
            scores.append(best_score(plan, setting))
    if complete:
        best_setting = ranked(plan, complete, by=plan.choose)[0]
        scores.append(best_score(plan, best_setting))
    return {score.cells[0].name for score in scores if score is not None}


def disk_needed(plan: SweepPlan, encoded: Encoded, *, cells: int) -> int:
    """Estimates the most disk space that a sweep takes at any time, in bytes.

    It is for models, checkpoints, prediction files and the small files of each run.

    Args:
        plan: Plan of the sweep.
        encoded: Model and rows of one of the runs.
        cells: Number of runs to be made.
    """
    model_files = encoded.source.folder.glob("*.safetensors")
    model_bytes = sum(file.stat().st_size for file in model_files)
    n_predicted_rows = 0
    for split, rows in encoded.data.splits.items():
        if split not in TRAINING_SPLITS:
            n_predicted_rows += len(rows)

    # `--keep best` keeps the model of the best complete setting and one of each incomplete setting.
    # Runs are made setting by setting, so that each job leaves at most one setting incomplete. A
    # shard may have some runs of every setting, and then all settings stay incomplete. The runs
    # under way write their models before others are deleted.
    if plan.shard:
        n_incomplete_settings = len(plan.settings)
    else:
        n_incomplete_settings = plan.jobs
    n_best_models = min(cells, 1 + n_incomplete_settings) + plan.jobs
    n_models = {"all": cells, "best": n_best_models, "none": 0}[plan.keep]

    # Runs that are under way, or wait at a rung, have a checkpoint. It is as large as four models:
    # the weights, AdamW's two moments, and the best weights.
    n_checkpoints = cells if plan.rungs else plan.jobs
    bytes_of_other_files = cells * (_OTHER_FILES + n_predicted_rows * _LINE)
    return n_models * model_bytes + n_checkpoints * 4 * model_bytes + bytes_of_other_files


def say_disk(folder: Path, needed: int, plan: SweepPlan, listener: Listener) -> None:
    """Reports the disk space that a sweep needs and that is free, and warns if it is too little.

    Args:
        folder: SWEEP.
        needed: Bytes that it needs, from `disk_needed`.
        plan: Plan of the sweep.
        listener: Receives both messages.
    """
    free = free_bytes(folder)
    listener.say(
        f"disk: up to {human_bytes(needed)} with `keep={plan.keep}`, {human_bytes(free)} free"
    )
    if needed > free:
        listener.warn(
            f"up to {human_bytes(needed)} of disk will be needed, {human_bytes(free)} is free"
        )
