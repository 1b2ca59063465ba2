"""`--dry-run`: what a sweep will take, from a few timed steps of its batch sizes."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from bertctl.progress import SILENT, Listener
from bertctl.run_folder import SCHEMA
from bertctl.runtime.machine import free_bytes
from bertctl.sweeps.disk import disk_needed
from bertctl.sweeps.halving import REDUCTION, RUNG_SHARES, full_steps, most_steps
from bertctl.sweeps.plan import PLAN, SweepPlan
from bertctl.sweeps.prepare import Sweep, SweepCell
from bertctl.sweeps.results import read_cells
from bertctl.training.estimate import estimate_run
from bertctl.training.job import n_training_windows
from bertctl.training.steps import steps_per_epoch, total_steps
from bertctl.words import seconds_in

STEPS = 5
"""Batches that are timed for each kind of run, each twice."""

_MOST_TIMED = 4
_BOUNDS = ("estimate", "low", "high")  # the seconds of a run are an estimate with its interval

Kind = tuple[Any, ...]
"""What decides how long a step of a run takes."""

Timed = Mapping[Kind, tuple[SweepCell, Mapping[str, Any]]]
"""Of each kind the run that was timed, and its estimate."""


def dry_run(sweep: Sweep, *, listener: Listener = SILENT) -> dict[str, Any]:
    """Estimates the time and the disk space that the missing runs of a sweep take.

    A few steps are timed; nothing of them is kept. Runs that differ only in learning rate, epochs
    or seeds take the same time per step, so one run of such a kind is timed, for the first four
    kinds. Runs that are done in the sweep's folder are not estimated.

    Args:
        sweep: The sweep, made ready.
        listener: Receives a message before each timing.

    Returns:
        `runs`, `done`, `to_run`, `jobs`, `threads`, `seconds` (estimate, low, high: wall time; of
        successive halving at most), `run_seconds` (of the shortest and longest run), `disk_bytes`
        (needed, free), `cells`, `halving` (`shares` and `promoted` of each rung, `most_steps` and
        `full_steps`; None without it).
    """
    plan = sweep.plan
    mine = sweep.mine
    folder = sweep.folder
    if (folder / PLAN).exists():
        finished = {cell.name for cell in read_cells(folder)[1] if cell.is_over}
    else:
        finished = set()
    waiting = [cell for cell in mine if cell.name not in finished]
    timed = _timed(sweep, waiting, listener)
    run_times = [_scaled(cell, sweep, timed) for cell in waiting] or [dict.fromkeys(_BOUNDS, 0.0)]
    # Successive halving takes at most this share of the steps of all runs.
    if plan.rungs:
        share = most_steps(plan) / full_steps(plan)
    else:
        share = 1.0
    computing_seconds = {}  # of all runs together
    for name in _BOUNDS:
        computing_seconds[name] = share * sum(run_time[name] for run_time in run_times)
    longest = max(run_times, key=lambda run_time: run_time["estimate"])
    shortest = min(run_time["estimate"] for run_time in run_times)
    jobs = min(plan.jobs, max(1, len(waiting)))
    # The sweep can't be faster than its longest run.
    wall_seconds = {}
    for name in _BOUNDS:
        wall_seconds[name] = round(max(computing_seconds[name] / jobs, longest[name]), 3)

    needed = disk_needed(
        plan.model_copy(update={"jobs": jobs}),
        sweep.encoded[sweep.cells[0].key],
        cells=len(waiting),
    )
    return {
        "schema": SCHEMA,
        "folder": str(folder),
        "runs": len(mine),
        "done": len(mine) - len(waiting),
        "to_run": len(waiting),
        "jobs": plan.jobs,
        "threads": plan.threads,
        "seconds": wall_seconds,
        "run_seconds": {"shortest": round(shortest, 3), "longest": round(longest["estimate"], 3)},
        "disk_bytes": {"needed": needed, "free": free_bytes(folder)},
        "cells": [
            {"name": cell.name, "setting": cell.setting, "seed": cell.seed, "fold": cell.fold}
            for cell in mine
        ],
        "halving": _halving(plan),
    }


def _halving(plan: SweepPlan) -> dict[str, Any] | None:
    """Returns the plan of successive halving; None without it."""
    if not plan.rungs:
        return None
    n_runs = len(plan.rungs)
    promoted = []
    for _ in RUNG_SHARES:
        n_runs = math.ceil(n_runs / REDUCTION)
        promoted.append(n_runs)
    return {
        "shares": list(RUNG_SHARES),
        "promoted": promoted,
        "most_steps": most_steps(plan),
        "full_steps": full_steps(plan),
    }


def _kind(cell: SweepCell) -> Kind:
    """Returns what a step's time depends on: batch size, accumulation, model, longest input."""
    recipe = cell.recipe
    return (
        recipe.training.batch_size,
        recipe.training.accumulation_steps,
        recipe.model.name,
        recipe.model.max_length,
    )


def _timed(sweep: Sweep, waiting: Sequence[SweepCell], listener: Listener) -> Timed:
    """Times a few steps of the longest run of each kind, for the first kinds."""
    longest: dict[Kind, SweepCell] = {}
    for cell in sweep.by_cost(waiting):  # the longest run comes first
        longest.setdefault(_kind(cell), cell)
    timed = {}
    for kind, cell in list(longest.items())[:_MOST_TIMED]:
        listener.say(f"timing a few steps in batches of {cell.recipe.training.batch_size}")
        timed[kind] = (
            cell,
            estimate_run(
                cell.recipe,
                place=sweep.folder,
                steps=STEPS,
                listener=SILENT,
            ),
        )
    return timed


def _steps_and_epochs(cell: SweepCell, sweep: Sweep) -> tuple[int, float]:
    """Returns how many steps a run takes, and how many epochs they are."""
    n_examples = n_training_windows(sweep.encoded[cell.key].features)
    steps = total_steps(cell.recipe, n_examples)
    return steps, steps / steps_per_epoch(cell.recipe, n_examples)


def _scaled(cell: SweepCell, sweep: Sweep, timed: Timed) -> dict[str, float]:
    """Returns the seconds of a run (estimate, low, high), computed from the timed run of its kind.

    Training time grows with the number of steps, scoring time with the number of epochs. The model
    is written once. `training.time_limit` may end a run earlier.
    """
    # If no run of its kind was timed, the first timed one has to do.
    timed_cell, timing = timed.get(_kind(cell)) or next(iter(timed.values()))
    steps, epochs = _steps_and_epochs(cell, sweep)
    timed_steps, timed_epochs = _steps_and_epochs(timed_cell, sweep)
    # The estimate is of a run that saves its model after each evaluation. A sweep's run saves once.
    times_saved = max(1, timing["evaluations"])
    shares = {
        "train": steps / timed_steps,
        "evaluate": epochs / timed_epochs,
        "save": 1 / times_saved,
    }
    limit = cell.recipe.training.time_limit
    if limit is None:
        longest = math.inf
    else:
        longest = seconds_in(limit)
    seconds = {}
    for name in _BOUNDS:
        unlimited = sum(share * timing["seconds"][phase][name] for phase, share in shares.items())
        seconds[name] = min(unlimited, longest)
    return seconds
