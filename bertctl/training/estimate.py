"""How long a run will take and what it will need.

A few of its own steps are timed, and its batches say the rest.

A step's time is close to a straight line in the padded tokens of its batch, with a part that grows
with their square in long ones. So batches are picked evenly from the narrowest to the widest,
timed, and the line through them is read off at every batch of every epoch. The first batch of a
shape takes longer (its kernels are made), and on a GPU the second one (they are recorded): each
picked batch is run once more, the last time counts for all, the differences once for each shape.
"""

import json
import time
from collections.abc import Mapping
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from bertctl.arrays import Floats, Ints
from bertctl.config.recipe_sections import LoraSection
from bertctl.config.schema import Recipe
from bertctl.data.unlabelled_rows import TRAINING_SPLITS
from bertctl.errors import UsageError
from bertctl.inference.evaluate import prediction_lines
from bertctl.memory import memory
from bertctl.metrics.paired import detectable_shares
from bertctl.progress import SILENT, Listener
from bertctl.run_folder import SCHEMA, RunFolder
from bertctl.runtime.batching import Plan
from bertctl.runtime.launch import ALONE
from bertctl.runtime.machine import existing_folder, free_bytes
from bertctl.runtime.seeding import WindowRandom
from bertctl.training.checkpoints.checkpoint import KEPT, Checkpoints
from bertctl.training.checkpoints.snapshot import random_states, take
from bertctl.training.head_start import sampled_windows, starts_head
from bertctl.training.job import Job, prepare
from bertctl.training.loop.loop import TrainingState, plan_epoch
from bertctl.training.loop.step import training_step
from bertctl.training.loop.training_engine import build_engine
from bertctl.training.step_memory import peak_memory_bytes, resident_bytes
from bertctl.training.time_shares import FROZEN_SHARE, HEAD_START_SHARE, WORDS_SHARE
from bertctl.training.timed_scoring import time_scoring
from bertctl.words import floor_to_tenth, human_bytes, seconds_in
from bertctl.writing import failures_of, part_in

TIMED_STEPS = 10
"""Batches that are timed, each twice, or on a GPU three times."""

_LEAST_SPREAD = 0.25
"""The share by which an estimate may be off at least: clocks and neighbours change as much within
minutes."""
BASELINES_SHARE = 0.1
"""Time of the simple models beside a run, at most, as a share of its training."""

_BUSY = 0.5  # timed steps that are off by this share of what their sizes explain
_SCORED_ROWS = 256
_HISTORY_LINE = 200  # bytes
_MOST_PLANNED = 20_000  # batches; those of further epochs are like them


def estimate_run(
    recipe: Recipe,
    *,
    place: Path,
    steps: int = TIMED_STEPS,
    cells: int = 1,
    listener: Listener = SILENT,
) -> dict[str, Any]:
    """Times a few steps of the run that a recipe describes, and returns what the whole will take.

    Nothing is kept.

    Args:
        recipe: as `finetune` takes it; all its refusals come here too.
        place: folder that would hold the run; its disk is looked at, and weights and a checkpoint
            are once saved beside it to time that.
        steps: how many batches are timed.
        cells: runs of a sweep, one after the other.
        listener: hears of progress, and of memory or disk that will not do.

    Returns:
        `steps`, `examples`, `seconds` by phase and in total (each estimate, low, high),
        `peak_memory_bytes`, `disk_bytes`, and `sweep` with the same for all cells. With LoRA,
        `lora` has the `speedup` of its steps over those that train all weights.

    Raises:
        BertctlError: what fine-tuning would refuse, or numbers below 1.
    """
    for option, value in (("`steps=`", steps), ("`cells=`", cells)):
        if value < 1:
            raise UsageError(f"{option} {value}: it must be at least 1")
    started = time.perf_counter()
    # Trackers are left out: nothing of this is worth recording.
    job = prepare(recipe.with_fields("runtime", log_to=[]), listener=listener)
    start = time.perf_counter() - started
    listener.say(f"compute: {job.compute.why}")
    if job.chosen:
        listener.say(job.chosen)
    free = memory()["available"]
    if job.memory > free + resident_bytes() and job.compute.device == "cpu":
        needed = (
            f"about {human_bytes(job.memory)} will be needed, {human_bytes(free)} of memory is free"
        )
        listener.warn(f"{needed}: this may end here")
    with failures_of(place), part_in(existing_folder(place)) as scratch:
        rehearsal = Rehearsal(job, scratch)
        train, spread = rehearsal.training(steps, listener)
        evaluate, head_start, line_bytes = rehearsal.evaluation(listener)
        checkpoints = _checkpoints(job, train)
        save = rehearsal.saving(checkpoints)
        disk = _disk(job, rehearsal.folder, checkpoints, line_bytes)
        peak_memory = rehearsal.peak_memory()
        speedup = _speedup_of_lora(
            job,
            seconds=train,
            scratch=scratch / "all-weights",
            steps=steps,
            listener=listener,
        )
    seconds = {
        "start": start,
        "head_start": head_start,
        "train": train,
        "evaluate": evaluate,
        "save": save,
    }
    beside = 0.0
    if job.recipe.evaluation.baselines and job.task.baselines:
        beside = seconds["baselines"] = BASELINES_SHARE * train
    seconds["total"] = sum(seconds.values())
    document = {
        "schema": SCHEMA,
        "recipe": job.recipe.name,
        "model": job.recipe.model.name,
        "device": job.compute.device,
        "precision": job.compute.precision,
        "threads": job.compute.threads,
        "epochs": job.epochs,
        "steps": job.steps,
        "examples": {split: len(rows) for split, rows in job.data.splits.items()},
        "detectable": {
            split: detectable_shares(len(rows))
            for split, rows in job.data.splits.items()
            if split not in TRAINING_SPLITS
        },
        "evaluations": rehearsal.evaluations,
        "checkpoints": checkpoints,
        "timed_steps": min(steps, job.steps),
        "seconds": {
            phase: _between(phase_seconds, spread) for phase, phase_seconds in seconds.items()
        },
        "peak_memory_bytes": peak_memory,
        "disk_bytes": {**disk, "free": free_bytes(place)},
        "sweep": {
            "cells": cells,
            # Runs of a sweep have no baselines.
            "seconds": _between(_limited(job, seconds["total"] - beside) * cells, spread),
            "disk_bytes": disk["run"] * cells,
        },
        "busy": spread > _BUSY,
    }
    if speedup is not None:
        document["lora"] = {"speedup": round(speedup, 2)}
    if job.recipe.training.time_limit is not None:
        document["time_limit"] = what_fits(job, seconds, evaluations=rehearsal.evaluations)
    _warn(document, spread, listener)
    return document


def _speedup_of_lora(
    job: Job, seconds: float, scratch: Path, steps: int, listener: Listener
) -> float | None:
    """Returns how many times as fast as training all weights LoRA's steps are.

    It is None without LoRA, or where memory is too short for all weights.

    Args:
        job: Made ready, perhaps with LoRA.
        seconds: Of all its steps.
        scratch: Free place for the other run.
        steps: How many batches are timed.
        listener: Receives progress, and why nothing was measured.
    """
    if job.loaded.adapter is None:
        return None
    recipe = job.recipe.model_copy(update={"lora": LoraSection()})
    all_weights = prepare(recipe)
    needed = all_weights.memory - resident_bytes()
    if job.compute.device == "cpu" and needed > memory()["available"]:
        listener.say(
            f"LoRA: training all weights would need about {human_bytes(all_weights.memory)}, more "
            "than is free, so its steps were not timed"
        )
        return None
    all_seconds, _ = Rehearsal(all_weights, scratch).training(steps, listener)
    return all_seconds / seconds


def rehearse_time_limit(
    job: Job, *, used_seconds: float, listener: Listener = SILENT
) -> dict[str, Any]:
    """Times a few steps of a job, and returns what fits into its time limit. Nothing is kept.

    Args:
        job: Made ready, with `training.time_limit`.
        used_seconds: Seconds that were used until now.
        listener: Receives progress.
    """
    with TemporaryDirectory() as scratch:
        rehearsal = Rehearsal(job, Path(scratch))
        train, _ = rehearsal.training(TIMED_STEPS, listener)
        evaluate, head_start, _ = rehearsal.evaluation(listener)
    seconds = {
        "start": used_seconds,
        "head_start": head_start,
        "train": train,
        "evaluate": evaluate,
        "save": 0.0,
    }
    seconds["total"] = sum(seconds.values())
    return what_fits(job, seconds, evaluations=rehearsal.evaluations)


def what_fits(job: Job, seconds: Mapping[str, float], *, evaluations: int) -> dict[str, Any]:
    """Returns how much of a run fits into its time limit.

    Args:
        job: Made ready, with `training.time_limit`.
        seconds: Estimated seconds of the whole run by phase, and their total.
        evaluations: Evaluations of the whole run.

    Returns:
        `limit`, `seconds` of it, `steps` and `epochs` that fit, and whether the whole run does
        (`fits`).
    """
    limit = seconds_in(job.recipe.training.time_limit or "")
    every = job.recipe.training.evaluate_every or job.steps_per_epoch
    of_step = seconds["train"] / job.steps
    of_evaluation = (seconds["evaluate"] + seconds["save"]) / evaluations

    numbers = np.arange(1, job.steps + 1)
    time_left = max(0.0, limit - seconds.get("start", 0.0))
    baselines = min(seconds.get("baselines", 0.0), (FROZEN_SHARE + WORDS_SHARE) * time_left)
    head_start = min(seconds.get("head_start", 0.0), HEAD_START_SHARE * time_left)
    before = seconds.get("start", 0.0) + baselines + head_start
    ends = before + numbers * of_step + np.ceil(numbers / every) * of_evaluation
    steps = max(1, int((ends <= limit).sum()))
    return {
        "limit": job.recipe.training.time_limit,
        "seconds": limit,
        "steps": steps,
        "epochs": floor_to_tenth(steps / job.steps_per_epoch),
        "whole_seconds": round(seconds["total"], 3),
        "fits": steps == job.steps,
    }


def _limited(job: Job, total: float) -> float:
    """Returns the seconds of a run within its time limit, if it has one."""
    limit = job.recipe.training.time_limit
    if limit is None:
        return total
    return min(total, seconds_in(limit))


def _between(seconds: float, spread: float) -> dict[str, float]:
    """Returns what is expected of a time, and its range.

    The time lies between the two if the machine is as busy as now.
    """
    low = seconds * max(0.0, 1.0 - spread)
    high = seconds * (1.0 + spread)
    return {"estimate": round(seconds, 3), "low": round(low, 3), "high": round(high, 3)}


class Rehearsal:
    """Takes a few steps of a run, with its own model, optimizer and batches.

    Nothing of it is kept.
    """

    def __init__(self, job: Job, scratch: Path) -> None:
        self.job = job
        self.folder = RunFolder(scratch)
        self.engine = build_engine(job, self.folder, ALONE)
        self.engine.network.train()
        self.features = job.training_features
        epochs = (plan_epoch(job.recipe, self.features, epoch) for epoch in range(job.epochs))
        self.plan: Plan = [*islice(chain.from_iterable(epochs), min(job.steps, _MOST_PLANNED))]
        due = job.recipe.training.evaluate_every  # of the validation rows; patience is not counted
        self.starts_head = starts_head(job)
        if due:
            self.evaluations = -(-job.steps // due)
        else:
            self.evaluations = job.epochs
        if self.starts_head:
            self.evaluations += 1  # before the first step

    def training(self, count: int, listener: Listener) -> tuple[float, float]:
        """Returns the seconds of all steps of the run, and the share by which they may be off."""
        shapes = np.array([self._shape(batch) for batch in self.plan], dtype=np.float64)
        order = np.lexsort((shapes[:, 1], shapes[:, 0]))
        # AdamW makes its moments in the first step; the widest batch, which needs most memory,
        # comes next.
        self.step(self.plan[0])
        self.step(self.plan[order[-1]])
        count = min(count, len(order))
        # Timed batches are spread evenly from narrow to wide.
        picked = order[((np.arange(count) + 0.5) * len(order) / count).astype(np.int64)]
        # In rounds of mixed widths, as in a run: right after a batch of its own width one is
        # quicker. And a machine that slows down meanwhile does not bend the line.
        rng = np.random.default_rng(self.job.recipe.training.seed)
        rounds = np.empty((2 if self.engine.graphs is None else 3, count))
        for number, times in enumerate(rounds):
            for done, i in enumerate(rng.permutation(count)):
                times[i] = self.step(self.plan[picked[i]])
                listener.advance("timing", number * count + done + 1, rounds.size)
        listener.finish("timing")

        seconds, error = extrapolate(shapes[picked], rounds[-1], shapes)
        epochs = self.job.steps / len(order)
        # The first steps of a shape are slower, by as much as the earlier rounds were.
        extra = max(0.0, float(np.median((rounds - rounds[-1]).sum(0))))
        n_shapes = len(np.unique(shapes, axis=0))
        total = epochs * seconds + extra * n_shapes
        return total, max(_LEAST_SPREAD, 2 * epochs * error / total)

    def evaluation(self, listener: Listener) -> tuple[float, float, float]:
        """Returns estimates of what evaluations cost.

        Returns:
            The seconds of all scoring in the run, the seconds in which the rows are read that the
            head starts from, and the bytes of a prediction line.
        """
        job = self.job
        sample, elapsed = time_scoring(job, _SCORED_ROWS, listener=listener)
        lines = prediction_lines(sample, settings=job.recipe.evaluation)
        size = sum(len(json.dumps(line, ensure_ascii=False).encode()) + 1 for line in lines)
        seconds_per_token = elapsed / int(sample.features.lengths.sum())
        tokens = {
            split: int(job.features[split].lengths.sum())
            for split in {*job.evaluated, job.selection}
        }
        scoring = seconds_per_token * (
            sum(tokens.values()) + (self.evaluations - 1) * tokens[job.selection]
        )
        if self.starts_head:
            read = job.features["train"].lengths[sampled_windows(job)].sum()
        else:
            read = 0
        return scoring, seconds_per_token * int(read), size / len(sample.rows)

    def saving(self, checkpoints: int) -> float:
        """Returns the seconds of saving the weights of every evaluation, and checkpoints.

        It assumes that each evaluation is the best.
        """
        started = time.perf_counter()
        self.job.loaded.save(self.folder.model)
        weights = time.perf_counter() - started
        started = time.perf_counter()
        snapshot = take(self.engine, TrainingState(step=1, best_step=1), random_states(ALONE))
        snapshot_seconds = time.perf_counter() - started
        if checkpoints:
            # Training goes on while a checkpoint is written: the memory is needed at once.
            self.step(max(self.plan, key=self._shape))
        started = time.perf_counter()
        Checkpoints(self.folder, self.job.hash).save(snapshot, behind=False)
        written = time.perf_counter() - started
        # Written behind the training, a checkpoint takes some of its time, between none and all
        # that it takes alone.
        return weights * self.evaluations + (snapshot_seconds + written / 2) * checkpoints

    def peak_memory(self) -> dict[str, int | None]:
        """Returns the peaks of this process and of the GPU.

        The widest batch was among the steps.
        """
        import torch

        on_gpu = self.job.compute.device == "cuda"
        return {
            "process": peak_memory_bytes(),
            "device": torch.cuda.max_memory_allocated() if on_gpu else None,
        }

    def step(self, indices: Ints) -> float:
        """Takes one whole training step and returns the seconds it took."""
        import torch

        micro_batches = self.job.recipe.training.accumulation_steps
        started = time.perf_counter()
        training_step(
            self.engine,
            self.features,
            indices,
            WindowRandom(0),
            micro_batches=micro_batches,
        )
        self.engine.optimizer.step()
        self.engine.optimizer.zero_grad(set_to_none=True)
        if self.job.compute.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - started

    def _shape(self, batch: Ints) -> tuple[int, int]:
        """Returns the padded tokens of a batch, and the sum of its squared lengths.

        The lengths are those of its examples, and all parts are counted.
        """
        lengths = self.features.lengths
        parts = np.array_split(batch, self.job.recipe.training.accumulation_steps)
        widths = [self.job.loaded.padding.mask(lengths[part]).shape for part in parts if len(part)]
        return sum(count * width for count, width in widths), sum(
            count * width**2 for count, width in widths
        )


def extrapolate(timed: Floats, seconds: Floats, shapes: Floats) -> tuple[float, float]:
    """Returns the seconds of all batches, from those of a few.

    Args:
        timed: (K, 2) padded tokens of each timed batch and the sum of their squares.
        seconds: (K,) what they took.
        shapes: (N, 2) the same of all batches.

    Returns:
        The sum over all, and its standard error by the scatter about the line.
    """
    from scipy.optimize import nnls

    scale = np.array([1.0, *np.maximum(shapes.max(axis=0), 1.0)])
    # A fixed cost, one per token and one per pair of tokens; none of them can be negative.
    design = np.column_stack([np.ones(len(timed)), timed]) / scale
    costs, _ = nnls(design, seconds)
    predicted = (np.column_stack([np.ones(len(shapes)), shapes]) / scale) @ costs
    free = max(1, len(seconds) - int(np.count_nonzero(costs)))
    scatter = float(np.sqrt(((seconds - design @ costs) ** 2).sum() / free))
    return float(predicted.sum()), len(shapes) * scatter / float(np.sqrt(len(seconds)))


def _checkpoints(job: Job, train: float) -> int:
    """Returns how many checkpoints the run will save."""
    every = job.recipe.training.checkpoint_every
    if every == "off":
        return 0
    count = job.epochs
    if every is not None:
        number, unit = every.split()
        count += int((job.steps if unit == "steps" else train / 60) / int(number))
    return count


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _disk(job: Job, saved: RunFolder, checkpoints: int, line: float) -> dict[str, int]:
    """Returns the bytes of the finished run folder and at the worst moment.

    Then it has new weights beside the old, or a checkpoint beside two.

    Args:
        job: gives the numbers of lines.
        saved: holds a model and a checkpoint of the run.
        checkpoints: how many are saved; one is, too, when a run is interrupted.
        line: bytes of a prediction line.
    """
    model = _size(saved.model)
    checkpoint = _size(saved.checkpoints)
    scored = sum(len(job.data.splits[split]) for split in {*job.evaluated, job.selection})
    history = _HISTORY_LINE * (job.steps // job.recipe.training.log_every + 2 * job.epochs)
    run = model + int(scored * line) + history
    # Trainable states that wait to be averaged; each checkpoint has them, too.
    state = sum(file.stat().st_size for file in saved.checkpoints.glob("step-*/model.safetensors"))
    waiting = state * (job.recipe.training.average_best or 0)
    beside = (checkpoint + waiting) * min(KEPT + 1, max(1, checkpoints)) + waiting
    return {
        "model": model,
        "checkpoint": checkpoint,
        "run": run,
        "while_running": run + model + beside,
    }


def _warn(document: dict[str, Any], spread: float, listener: Listener) -> None:
    disk = document["disk_bytes"]
    sweep = document["sweep"]
    needed_bytes = sweep["disk_bytes"] + disk["while_running"] - disk["run"]
    if needed_bytes > disk["free"]:
        free = human_bytes(disk["free"])
        listener.warn(f"{human_bytes(needed_bytes)} of disk will be needed, {free} is free")
    if document["busy"]:
        listener.warn(
            "the machine was busy: the timed steps leave the estimate uncertain by "
            f"{100 * spread:.0f} %. Run it again on a quiet machine for firm figures."
        )
