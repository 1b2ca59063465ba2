"""Estimates of how long a run will take and what it will need.

A few of the run's own steps are timed. The times of all others are computed from their batches.

A step's time is close to a straight line in the padded tokens of its batch. In long batches a part
is added that grows with the square of their length. So a few batches are picked evenly from the
narrowest to the widest and timed. The line through their times gives the time of every batch of
every epoch.

The first step with a batch of some shape takes longer, because its kernels are made. On a GPU the
second one does as well, because its kernels are recorded as a CUDA graph. So each picked batch is
run twice, on such a GPU three times. The last time counts for every step, and what the earlier
times took beyond it counts once for each shape.
"""

import json
import math
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
from bertctl.training.head_start import starts_head
from bertctl.training.head_vectors import sampled_windows
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
"""Batches that are timed, each twice, or three times where steps are recorded as CUDA graphs."""

_LEAST_SPREAD = 0.25
"""The share by which an estimate may be off at least: clocks and neighbours change as much within
minutes."""
BASELINES_SHARE = 0.1
"""Time of the simple models beside a run, at most, as a share of its training."""

_BUSY = 0.5  # share of an uncertain estimate from which on the machine is called busy
_SCORED_ROWS = 256
_HISTORY_LINE = 200  # bytes
_MOST_PLANNED = 20_000  # batches that are looked at; later ones are assumed to be like them


def estimate_run(
    recipe: Recipe,
    *,
    place: Path,
    steps: int = TIMED_STEPS,
    cells: int = 1,
    listener: Listener = SILENT,
) -> dict[str, Any]:
    """Times a few steps of the run that a recipe describes, and returns what the whole will take.

    It leaves no file behind.

    Args:
        recipe: As `finetune` takes it, with all the same refusals.
        place: Folder that would hold the run. Weights and a checkpoint are written to its disk
            once, to time that, and deleted.
        steps: How many batches are timed.
        cells: Runs of a sweep, one after the other.
        listener: Receives progress, and warnings where memory or disk are too small.

    Returns:
        `steps`, `examples`, `seconds` by phase and in total (each estimate, low, high),
        `peak_memory_bytes`, `disk_bytes`, and `sweep` with the seconds and bytes of all cells. With
        LoRA, `lora` has the `speedup` of its steps over those that train all weights. With a time
        limit, `time_limit` has what fits into it.

    Raises:
        BertctlError: What fine-tuning would refuse, or numbers below 1.
    """
    for option, value in (("`steps=`", steps), ("`cells=`", cells)):
        if value < 1:
            raise UsageError(f"{option} {value}: it must be at least 1")
    started = time.perf_counter()
    # Trackers are left out: nothing of this is worth recording.
    job = prepare(recipe.with_fields("runtime", log_to=[]), listener=listener)
    start_seconds = time.perf_counter() - started
    listener.say(f"compute: {job.compute.why}")
    if job.chosen:
        listener.say(job.chosen)
    _warn_of_memory(job, listener)

    with failures_of(place), part_in(existing_folder(place)) as scratch:
        rehearsal = Rehearsal(job, scratch)
        train_seconds, spread = rehearsal.training(steps, listener)
        scoring_seconds, head_start_seconds, line_bytes = rehearsal.evaluation(listener)
        checkpoints = _checkpoints(job, train_seconds)
        save_seconds = rehearsal.saving(checkpoints)
        disk = _disk(job, rehearsal.folder, checkpoints, line_bytes)
        peak_memory = rehearsal.peak_memory()
        speedup = _speedup_of_lora(
            job,
            seconds=train_seconds,
            scratch=scratch / "all-weights",
            steps=steps,
            listener=listener,
        )

    seconds = {
        "start": start_seconds,
        "head_start": head_start_seconds,
        "train": train_seconds,
        "evaluate": scoring_seconds,
        "save": save_seconds,
    }
    baseline_seconds = 0.0
    if job.recipe.evaluation.baselines and job.task.baselines:
        baseline_seconds = BASELINES_SHARE * train_seconds
        seconds["baselines"] = baseline_seconds
    seconds["total"] = sum(seconds.values())
    # Runs of a sweep have no baselines.
    cell_seconds = _limited(job, seconds["total"] - baseline_seconds)

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
            "seconds": _between(cell_seconds * cells, spread),
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


def _warn_of_memory(job: Job, listener: Listener) -> None:
    """Warns if a run on the CPU needs more memory than is free.

    The estimate includes what this process holds already, so that counts as free.
    """
    free = memory()["available"]
    if job.compute.device == "cpu" and job.memory > free + resident_bytes():
        needed = (
            f"about {human_bytes(job.memory)} will be needed, {human_bytes(free)} of memory is free"
        )
        listener.warn(f"{needed}: this may end here")


def _speedup_of_lora(
    job: Job, seconds: float, scratch: Path, steps: int, listener: Listener
) -> float | None:
    """Returns how many times faster steps with LoRA are than steps that train all weights.

    The same run without LoRA is timed for this. The factor is None if the job has no LoRA, or if
    memory is too small to train all weights.

    Args:
        job: Made ready, perhaps with LoRA.
        seconds: Of all its steps.
        scratch: Folder that does not exist yet, for the files of the run without LoRA.
        steps: How many batches are timed.
        listener: Receives progress, and why nothing was measured.
    """
    if job.loaded.adapter is None:
        return None
    recipe_without_lora = job.recipe.model_copy(update={"lora": LoraSection()})
    full_job = prepare(recipe_without_lora)
    needed = full_job.memory - resident_bytes()
    if job.compute.device == "cpu" and needed > memory()["available"]:
        listener.say(
            f"LoRA: training all weights would need about {human_bytes(full_job.memory)}, more "
            "than is free, so its steps were not timed"
        )
        return None
    full_seconds, _ = Rehearsal(full_job, scratch).training(steps, listener)
    return full_seconds / seconds


def rehearse_time_limit(
    job: Job, *, used_seconds: float, listener: Listener = SILENT
) -> dict[str, Any]:
    """Times a few steps of a job, and returns what fits into its time limit.

    Neither saving nor the baselines are timed: they count as 0 seconds.

    Args:
        job: Made ready, with `training.time_limit`.
        used_seconds: Seconds of the limit that passed before the call.
        listener: Receives progress.

    Returns:
        `limit` as the recipe has it and in `seconds`, the `steps` and `epochs` that fit, the
        `whole_seconds` of a run without the limit, and whether that run `fits`.
    """
    with TemporaryDirectory() as scratch:
        rehearsal = Rehearsal(job, Path(scratch))
        train_seconds, _ = rehearsal.training(TIMED_STEPS, listener)
        scoring_seconds, head_start_seconds, _ = rehearsal.evaluation(listener)
    seconds = {
        "start": used_seconds,
        "head_start": head_start_seconds,
        "train": train_seconds,
        "evaluate": scoring_seconds,
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
        `limit` as the recipe has it and in `seconds`, the `steps` and `epochs` that fit, the
        `whole_seconds` of a run without the limit, and whether that run `fits`.
    """
    limit = seconds_in(job.recipe.training.time_limit or "")
    steps_between_evaluations = job.recipe.training.evaluate_every or job.steps_per_epoch
    step_seconds = seconds["train"] / job.steps
    # A better model may be saved after each evaluation.
    evaluation_seconds = (seconds["evaluate"] + seconds["save"]) / evaluations

    # With a limit, the baselines and the head start get no more than their shares of the limit.
    start_seconds = seconds.get("start", 0.0)
    time_left = max(0.0, limit - start_seconds)
    baselines = min(seconds.get("baselines", 0.0), (FROZEN_SHARE + WORDS_SHARE) * time_left)
    head_start = min(seconds.get("head_start", 0.0), HEAD_START_SHARE * time_left)
    seconds_before_training = start_seconds + baselines + head_start

    # A run that stops after n steps is evaluated once more at its end, hence the ceiling.
    step_numbers = np.arange(1, job.steps + 1)
    n_evaluations = np.ceil(step_numbers / steps_between_evaluations)
    seconds_of_steps = step_numbers * step_seconds
    seconds_of_evaluations = n_evaluations * evaluation_seconds
    # Seconds of a run that ends with this step.
    run_seconds = seconds_before_training + seconds_of_steps + seconds_of_evaluations
    steps = max(1, int((run_seconds <= limit).sum()))
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
    """Returns an estimated time with its range, as `estimate`, `low` and `high`.

    The time lies in the range if the machine is as busy during the run as now.

    Args:
        seconds: The estimate.
        spread: Share by which it may be too high or too low.
    """
    low = seconds * max(0.0, 1.0 - spread)
    high = seconds * (1.0 + spread)
    return {"estimate": round(seconds, 3), "low": round(low, 3), "high": round(high, 3)}


class Rehearsal:
    """A few steps of a run, with its own model, optimizer and batches.

    The steps change the weights of the job's model, so the job can't be trained afterwards.

    Attributes:
        job: Made ready.
        folder: Scratch folder for what the run would save.
        engine: The job's model in training mode, with optimizer and schedule.
        features: Windows that training reads.
        plan: Batches of the run in their order, at most `_MOST_PLANNED`.
        starts_head: Whether the head starts as a regression on the frozen encoder.
        evaluations: How many times the run scores its validation rows, without early stopping.
    """

    def __init__(self, job: Job, scratch: Path) -> None:
        self.job = job
        self.folder = RunFolder(scratch)
        self.engine = build_engine(job, self.folder, ALONE)
        self.engine.network.train()
        self.features = job.training_features
        epochs = (plan_epoch(job.recipe, self.features, epoch) for epoch in range(job.epochs))
        n_planned = min(job.steps, _MOST_PLANNED)
        self.plan: Plan = list(islice(chain.from_iterable(epochs), n_planned))
        self.starts_head = starts_head(job)
        steps_between = job.recipe.training.evaluate_every
        if steps_between:
            self.evaluations = math.ceil(job.steps / steps_between)
        else:
            self.evaluations = job.epochs
        if self.starts_head:
            self.evaluations += 1  # before the first step

    def training(self, count: int, listener: Listener) -> tuple[float, float]:
        """Times the steps of a few batches, and extrapolates to all steps of the run.

        Args:
            count: How many batches are timed; no more than the plan has.
            listener: Receives progress.

        Returns:
            The seconds of all steps of the run, and the share by which they may be off.
        """
        # (N, 2) padded tokens of each batch, and the sum of its squared lengths.
        shapes = np.array([self._shape(batch) for batch in self.plan], dtype=np.float64)
        order = np.lexsort((shapes[:, 1], shapes[:, 0]))  # from the fewest padded tokens up
        # AdamW makes its moments in the first step; the widest batch, which needs most memory,
        # comes next.
        self.step(self.plan[0])
        self.step(self.plan[order[-1]])
        # Timed batches are spread evenly from narrow to wide.
        count = min(count, len(order))
        spread_evenly = (np.arange(count) + 0.5) * len(order) / count
        picked = order[spread_evenly.astype(np.int64)]
        rounds = self._time_in_rounds(picked, listener)

        plan_seconds, error = extrapolate(shapes[picked], rounds[-1], shapes)
        # The run is longer than the plan if that was cut at `_MOST_PLANNED`.
        runs_of_plan = self.job.steps / len(order)
        # The first steps with batches of a shape are slower than later ones. By how much, the
        # rounds before the last one show.
        slower = (rounds - rounds[-1]).sum(axis=0)  # (K,) seconds of each timed batch
        first_steps_seconds = max(0.0, float(np.median(slower)))  # for one shape
        n_shapes = len(np.unique(shapes, axis=0))
        total = runs_of_plan * plan_seconds + first_steps_seconds * n_shapes
        # Two standard errors are about a 95 % interval.
        return total, max(_LEAST_SPREAD, 2 * runs_of_plan * error / total)

    def _time_in_rounds(self, picked: Ints, listener: Listener) -> Floats:
        """Returns (R, K) seconds: in each of R rounds, a step is timed with each of K batches.

        Each round has the batches in another random order, as in a run: a step is quicker right
        after one of the same width. It also spreads a slowdown of the machine over all widths.

        Args:
            picked: (K,) numbers of the batches in the plan.
            listener: Receives progress.
        """
        n_rounds = 2 if self.engine.graphs is None else 3
        rng = np.random.default_rng(self.job.recipe.training.seed)
        rounds = np.empty((n_rounds, len(picked)))
        done = 0
        for round_seconds in rounds:
            for i in rng.permutation(len(picked)):
                round_seconds[i] = self.step(self.plan[picked[i]])
                done += 1
                listener.advance("timing", done, rounds.size)
        listener.finish("timing")
        return rounds

    def evaluation(self, listener: Listener) -> tuple[float, float, float]:
        """Scores a sample of the selection split, and extrapolates by the number of tokens.

        Returns:
            The seconds of all scoring in the run, the seconds of reading the rows that the head
            start is fitted to, and the bytes of a prediction line.
        """
        job = self.job
        sample, elapsed = time_scoring(job, _SCORED_ROWS, listener=listener)
        seconds_per_token = elapsed / int(sample.features.lengths.sum())

        # The selection split is scored at every evaluation, the other splits once at the end.
        tokens = {
            split: int(job.features[split].lengths.sum())
            for split in {*job.evaluated, job.selection}
        }
        repeated = (self.evaluations - 1) * tokens[job.selection]
        scoring_seconds = seconds_per_token * (sum(tokens.values()) + repeated)

        n_head_tokens = 0
        if self.starts_head:
            lengths = job.features["train"].lengths
            n_head_tokens = int(lengths[sampled_windows(job)].sum())
        head_start_seconds = seconds_per_token * n_head_tokens

        n_bytes = 0
        for line in prediction_lines(sample, settings=job.recipe.evaluation):
            text = json.dumps(line, ensure_ascii=False)
            n_bytes += len(text.encode()) + 1  # with the end of the line
        return scoring_seconds, head_start_seconds, n_bytes / len(sample.rows)

    def saving(self, checkpoints: int) -> float:
        """Saves the weights and one checkpoint, and returns the seconds of all savings of a run.

        The estimate assumes that each evaluation is the best so far, so its weights are saved.

        Args:
            checkpoints: How many the run saves.
        """
        started = time.perf_counter()
        self.job.loaded.save(self.folder.model)
        weights_seconds = time.perf_counter() - started

        started = time.perf_counter()
        snapshot = take(self.engine, TrainingState(step=1, best_step=1), random_states(ALONE))
        snapshot_seconds = time.perf_counter() - started
        if checkpoints:
            # The run goes on training while a checkpoint is written. This step with the widest
            # batch, while the snapshot is in memory, makes the measured peak include both.
            self.step(max(self.plan, key=self._shape))
        started = time.perf_counter()
        Checkpoints(self.folder, self.job.hash).save(snapshot, behind=False)
        write_seconds = time.perf_counter() - started

        # A checkpoint written while training goes on slows it by something between nothing and all
        # that writing alone takes: half of it is counted.
        checkpoint_seconds = snapshot_seconds + write_seconds / 2
        return weights_seconds * self.evaluations + checkpoint_seconds * checkpoints

    def peak_memory(self) -> dict[str, int | None]:
        """Returns the most bytes so far of this `process` and of the `device`, None without a GPU.

        To be called after `training`, whose steps include the batch that needs most memory.
        """
        import torch

        device_bytes = None
        if self.job.compute.device == "cuda":
            device_bytes = torch.cuda.max_memory_allocated()
        return {"process": peak_memory_bytes(), "device": device_bytes}

    def step(self, indices: Ints) -> float:
        """Takes a training step with a batch, optimizer included, and returns its seconds.

        Args:
            indices: (B,) numbers of the windows of the batch.
        """
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
            torch.cuda.synchronize()  # kernels run behind the calls that start them
        return time.perf_counter() - started

    def _shape(self, batch: Ints) -> tuple[int, int]:
        """Returns the padded tokens of a batch, and the sum of the squared lengths of its windows.

        The length of a window is its length with padding, which differs among micro-batches.

        Args:
            batch: (B,) numbers of the windows.
        """
        lengths = self.features.lengths
        n_tokens = 0
        n_pairs = 0
        for part in np.array_split(batch, self.job.recipe.training.accumulation_steps):
            if len(part):
                n_windows, width = self.job.loaded.padding.mask(lengths[part]).shape
                n_tokens += n_windows * width
                n_pairs += n_windows * width**2
        return n_tokens, n_pairs


def extrapolate(timed: Floats, seconds: Floats, shapes: Floats) -> tuple[float, float]:
    """Returns the seconds of N batches, predicted from the seconds of K timed batches.

    The model is linear: a batch has a fixed cost, a cost per token and a cost per pair of tokens.

    Args:
        timed: (K, 2) padded tokens of each timed batch, and the sum of its squared lengths.
        seconds: (K,) measured seconds of each timed batch.
        shapes: (N, 2) the same two numbers of each of all batches.

    Returns:
        The sum over the N batches and its standard error, from the scatter about the model.
    """
    from scipy.optimize import nnls

    # Columns of about equal size keep the fit well conditioned.
    scale = np.array([1.0, *np.maximum(shapes.max(axis=0), 1.0)])
    design = np.column_stack([np.ones(len(timed)), timed]) / scale  # (K, 3)
    costs, _ = nnls(design, seconds)  # no cost can be negative
    design_of_all = np.column_stack([np.ones(len(shapes)), shapes]) / scale  # (N, 3)
    total = float((design_of_all @ costs).sum())

    residuals = seconds - design @ costs
    degrees_of_freedom = max(1, len(seconds) - int(np.count_nonzero(costs)))
    deviation = float(np.sqrt((residuals**2).sum() / degrees_of_freedom))
    # The deviation is an error of a mean over K batches; N of them are summed.
    return total, len(shapes) * deviation / float(np.sqrt(len(seconds)))


def _checkpoints(job: Job, train_seconds: float) -> int:
    """Returns how many checkpoints the run will save.

    Args:
        job: Made ready.
        train_seconds: Estimated seconds of all its steps.
    """
    interval = job.recipe.training.checkpoint_every
    if interval == "off":
        return 0
    n_checkpoints = job.epochs  # one at the end of each
    if interval is not None:
        number, unit = interval.split()  # "500 steps" or "30 minutes"
        length = job.steps if unit == "steps" else train_seconds / 60
        n_checkpoints += int(length / int(number))
    return n_checkpoints


def _size(folder: Path) -> int:
    """Returns the bytes of all files in a folder and its subfolders."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _disk(job: Job, saved: RunFolder, checkpoints: int, line_bytes: float) -> dict[str, int]:
    """Returns the bytes that a run needs on disk.

    Args:
        job: Made ready; its numbers of rows and steps count.
        saved: Folder with a saved model and one checkpoint of the run.
        checkpoints: How many the run saves. Even without any, one is saved if it is interrupted.
        line_bytes: Bytes of a prediction line.

    Returns:
        The `model`, a `checkpoint`, the finished `run` folder, and the most it has `while_running`:
        new weights beside the old, and a new checkpoint beside those that stay.
    """
    model = _size(saved.model)
    checkpoint = _size(saved.checkpoints)
    n_scored_rows = sum(len(job.data.splits[split]) for split in {*job.evaluated, job.selection})
    # The history has a line for every `log_every` steps, and about two for each epoch.
    n_history_lines = job.steps // job.recipe.training.log_every + 2 * job.epochs
    run = model + int(n_scored_rows * line_bytes) + _HISTORY_LINE * n_history_lines

    # Weights that wait to be averaged are files of the run, and each checkpoint has copies of them.
    state = sum(file.stat().st_size for file in saved.checkpoints.glob("step-*/model.safetensors"))
    waiting = state * (job.recipe.training.average_best or 0)
    n_checkpoints = min(KEPT + 1, max(1, checkpoints))
    temporary = (checkpoint + waiting) * n_checkpoints + waiting
    return {
        "model": model,
        "checkpoint": checkpoint,
        "run": run,
        "while_running": run + model + temporary,
    }


def _warn(document: dict[str, Any], spread: float, listener: Listener) -> None:
    """Warns of an estimate that the disk has no room for, or that a busy machine makes uncertain.

    Args:
        document: The estimate, as `estimate_run` returns it.
        spread: Share by which its times may be off.
        listener: Receives the warnings.
    """
    disk = document["disk_bytes"]
    sweep = document["sweep"]
    # The runs of a sweep stay; only the one that trains needs more than its finished folder.
    needed_bytes = sweep["disk_bytes"] + disk["while_running"] - disk["run"]
    if needed_bytes > disk["free"]:
        free = human_bytes(disk["free"])
        listener.warn(f"{human_bytes(needed_bytes)} of disk will be needed, {free} is free")
    if document["busy"]:
        listener.warn(
            "the machine was busy: the timed steps leave the estimate uncertain by "
            f"{100 * spread:.0f} %. Run it again on a quiet machine for firm figures."
        )
