"""`--dry-run`: what a sweep will take, from a few timed steps of its batch sizes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bertctl.progress import SILENT, Listener
from bertctl.run_folder import SCHEMA
from bertctl.runtime.machine import free_bytes
from bertctl.sweeps.cells import Cell, by_cost, share_of
from bertctl.sweeps.keep import disk_needed
from bertctl.sweeps.plan import Sweep
from bertctl.sweeps.results import CELLS, read_cells
from bertctl.training.estimate import Seconds, estimate_run
from bertctl.training.loop import total_steps

STEPS = 5
"""Batches that are timed for each kind of run, each twice."""

_MOST_PROBES = 4


def rehearse(
    sweep: Sweep, folder: Path, *, shard: tuple[int, int] | None = None, listener: Listener = SILENT
) -> dict[str, Any]:
    """Count the cells that are to be run, time a few steps, and say what time and disk they take. Nothing is kept.

    Runs that differ in rate, epochs or seeds alone take the same time a step: one of each other kind is timed, of the
    first four kinds.

    Args:
        sweep: made ready.
        folder: SWEEP; runs that are done there are not counted.
        shard: which part of how many.
        listener: hears of progress.

    Returns:
        `runs`, `done`, `to_run`, `jobs`, `threads`, `seconds` (estimate, low, high: wall time), `run_seconds` (of the
        shortest and longest run), `disk_bytes` (needed, free), `cells`.
    """
    plan, mine = sweep.document, share_of(by_cost(sweep.cells, sweep.encoded), shard)
    there: set[str] = set()
    if (folder / CELLS).is_dir():
        there = {cell.name for cell in read_cells(folder)[1] if cell.is_over}
    waiting = [cell for cell in mine if cell.name not in there]
    timed = _probe(sweep, waiting, folder, listener)
    each = {cell.name: _scaled(cell, sweep, timed) for cell in waiting}
    worked = sum(each.values(), Seconds(0.0, 0.0, 0.0))
    jobs = min(plan["jobs"], max(1, len(waiting)))
    longest = max(each.values(), key=lambda one: one.estimate, default=Seconds(0.0, 0.0, 0.0))
    needed = disk_needed(plan, sweep.encoded[sweep.cells[0].key], cells=len(waiting), jobs=jobs)
    return {
        "schema": SCHEMA,
        "folder": str(folder),
        "runs": len(mine),
        "done": len(mine) - len(waiting),
        "to_run": len(waiting),
        "jobs": plan["jobs"],
        "threads": plan["threads"],
        "seconds": {
            name: round(max(value / jobs, least), 3)
            for name, value, least in (
                ("estimate", worked.estimate, longest.estimate),
                ("low", worked.low, longest.low),
                ("high", worked.high, longest.high),
            )
        },
        "run_seconds": {
            "shortest": round(min((one.estimate for one in each.values()), default=0.0), 3),
            "longest": round(longest.estimate, 3),
        },
        "disk_bytes": {"needed": needed, "free": free_bytes(folder)},
        "cells": [{"name": cell.name, "setting": cell.setting, "seed": cell.seed, "fold": cell.fold} for cell in mine],
    }


def _kind(cell: Cell) -> tuple[Any, ...]:
    """What decides how long a step takes."""
    recipe = cell.recipe
    return (recipe.training.batch_size, recipe.training.accumulation_steps, recipe.model.name, recipe.model.max_length)


def _probe(
    sweep: Sweep, waiting: Sequence[Cell], folder: Path, listener: Listener
) -> dict[tuple[Any, ...], tuple[Cell, Mapping[str, Any]]]:
    """A few steps of the longest run of each kind, for the first kinds."""
    longest: dict[tuple[Any, ...], Cell] = {}
    for cell in by_cost(waiting, sweep.encoded):
        longest.setdefault(_kind(cell), cell)
    timed: dict[tuple[Any, ...], tuple[Cell, Mapping[str, Any]]] = {}
    for kind, cell in list(longest.items())[:_MOST_PROBES]:
        listener.say(f"timing a few steps in batches of {cell.recipe.training.batch_size}")
        timed[kind] = (cell, estimate_run(cell.recipe, place=folder, steps=STEPS, listener=SILENT))
    return timed


def _scaled(cell: Cell, sweep: Sweep, timed: Mapping[tuple[Any, ...], tuple[Cell, Mapping[str, Any]]]) -> Seconds:
    """A run's time by that of the timed one: training as steps, scoring as epochs; the model is written once."""
    probe, found = timed.get(_kind(cell)) or next(iter(timed.values()))
    steps = [total_steps(one.recipe, len(sweep.encoded[one.key].features["train"])) for one in (cell, probe)]
    epochs = cell.recipe.training.epochs / probe.recipe.training.epochs
    shares = {"train": steps[0] / steps[1], "evaluate": epochs, "save": 1 / max(1, found["evaluations"])}
    low, estimate, high = (
        sum(share * found["seconds"][phase][name] for phase, share in shares.items())
        for name in ("low", "estimate", "high")
    )
    return Seconds(estimate, low, high)
