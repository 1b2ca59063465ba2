"""How long a run will take and what it will need: a few of its own steps are timed, its batches say the rest.

A step's time is close to a straight line in the padded tokens of its batch, with a part that grows with their square in
long ones. So batches are picked evenly from the narrowest to the widest, timed, and the line through them is read off
at every batch of every epoch. The first batch of a shape takes longer (its kernels are made): each picked batch is run
twice, the second time counts for all, the difference once for each shape.
"""

import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertctl.config.schema import Recipe
from bertctl.errors import UsageError
from bertctl.inference.engine import Engine
from bertctl.inference.evaluate import evaluate_split, prediction_lines
from bertctl.progress import SILENT, Listener
from bertctl.run_folder import SCHEMA, RunFolder
from bertctl.runtime.batching import Plan
from bertctl.runtime.device import Compute
from bertctl.runtime.launch import ALONE
from bertctl.runtime.machine import existing_folder, free_bytes, memory
from bertctl.runtime.seeding import WindowRandom
from bertctl.training.checkpoint import KEPT, Checkpoints
from bertctl.training.job import Job, prepare
from bertctl.training.loop import TrainingState, plan_epoch
from bertctl.training.memory import peak_memory_bytes
from bertctl.training.snapshot import random_states, take
from bertctl.training.step import training_step
from bertctl.training.training_engine import build_engine
from bertctl.words import human_bytes

TIMED_STEPS = 10
"""Batches that are timed, each twice."""

_LEAST_SPREAD = 0.15  # half the range at least: clocks and neighbours change as much within minutes
_OTHER_SPREAD = 0.30  # of what is timed once: reading, evaluation, saving
_BUSY = 1.5  # the slowest matrix product against the fastest; 1.1 on a quiet machine
_SCORED_ROWS = 256
_HISTORY_LINE = 200  # bytes


@dataclass(frozen=True)
class Seconds:
    """A time and how far off it may be.

    Attributes:
        estimate: what is expected.
        low: the run will hardly take less.
        high: nor more, if the machine is as busy as now.
    """

    estimate: float
    low: float
    high: float

    def __add__(self, other: "Seconds") -> "Seconds":
        return Seconds(self.estimate + other.estimate, self.low + other.low, self.high + other.high)

    def times(self, count: int) -> "Seconds":
        """One after the other."""
        return Seconds(self.estimate * count, self.low * count, self.high * count)

    def as_json(self) -> dict[str, float]:
        """Rounded to tenths."""
        return {"estimate": round(self.estimate, 1), "low": round(self.low, 1), "high": round(self.high, 1)}


def estimate_run(
    recipe: Recipe, *, place: Path, steps: int = TIMED_STEPS, cells: int = 1, listener: Listener = SILENT
) -> dict[str, Any]:
    """Time a few steps of the run that a recipe describes, and say what the whole will take. Nothing is kept.

    Args:
        recipe: as `finetune` takes it; all its refusals come here too.
        place: folder that would hold the run; its disk is looked at, and weights and a checkpoint are once saved beside
            it to time that.
        steps: how many batches are timed.
        cells: runs of a sweep, one after the other.
        listener: hears of progress, and of memory or disk that will not do.

    Returns:
        `steps`, `examples`, `seconds` by phase and in total (each estimate, low, high), `peak_memory_bytes`,
        `disk_bytes`, and `sweep` with the same for all cells.

    Raises:
        BertctlError: what fine-tuning would refuse, or numbers below 1.
    """
    for option, value in (("--steps", steps), ("--cells", cells)):
        if value < 1:
            raise UsageError(f"{option} {value}: it must be at least 1")
    started = time.perf_counter()
    untracked = recipe.runtime.model_copy(update={"log_to": []})  # nothing of this is worth a tracker
    job = prepare(recipe.model_copy(update={"runtime": untracked}), listener=listener)
    start = _about(time.perf_counter() - started)
    listener.say(f"compute: {job.compute.why}")
    if job.memory.total > memory().available and job.compute.device == "cpu":
        listener.warn(
            f"about {human_bytes(job.memory.total)} will be needed, {human_bytes(memory().available)} of memory is "
            "free: this may end here"
        )
    with tempfile.TemporaryDirectory(prefix=".bertctl-estimate-", dir=existing_folder(place)) as scratch:
        rehearsal = Rehearsal(job, Path(scratch))
        train = rehearsal.training(steps, listener)
        evaluate, line_bytes = rehearsal.evaluation(listener)
        checkpoints = _checkpoints(job, train)
        save, model_bytes, checkpoint_bytes = rehearsal.saving(checkpoints)
    one = start + train + evaluate + save
    disk = _disk(job, model_bytes, checkpoint_bytes, checkpoints, line_bytes)
    parts = {"start": start, "train": train, "evaluate": evaluate, "save": save}
    document = {
        **_about_the_run(job),
        "evaluations": rehearsal.evaluations,
        "checkpoints": checkpoints,
        "timed_steps": len(rehearsal.seconds),
        "seconds": {phase: seconds.as_json() for phase, seconds in {**parts, "total": one}.items()},
        "peak_memory_bytes": rehearsal.peak_memory(),
        "disk_bytes": {**disk, "free": free_bytes(place)},
        "sweep": {"cells": cells, "seconds": one.times(cells).as_json(), "disk_bytes": disk["run"] * cells},
        "busy": rehearsal.load.spread > _BUSY,
    }
    _warn(document, rehearsal, listener)
    return document


def _about_the_run(job: Job) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "recipe": job.recipe.name,
        "model": job.recipe.model.name,
        "device": job.compute.device,
        "precision": job.compute.precision,
        "threads": job.compute.threads,
        "epochs": job.epochs,
        "steps": job.steps,
        "examples": {split: len(rows) for split, rows in job.data.splits.items()},
    }


class Rehearsal:
    """Takes a few steps of a run, with its own model, optimizer and batches; nothing of it is kept."""

    def __init__(self, job: Job, scratch: Path) -> None:
        self.job = job
        self.folder = RunFolder(scratch)
        self.machine = build_engine(job, self.folder, ALONE)
        self.machine.network.train()
        self.features = job.features["train"]
        self.plan: Plan = [
            batch for epoch in range(job.epochs) for batch in plan_epoch(job.recipe, self.features, epoch)
        ][: job.steps]
        self.evaluations = _evaluations(job)
        self.load = _LoadMeter(job.compute)
        self.seconds: list[float] = []
        self._widest = self.plan[0]
        self._device_peak: int | None = None

    def training(self, count: int, listener: Listener) -> Seconds:
        """All steps of the run."""
        import torch

        shapes = np.array([self._shape(batch) for batch in self.plan], dtype=np.float64)
        order = np.lexsort((shapes[:, 1], shapes[:, 0]))
        # AdamW makes its moments in the first step; the widest batch, which needs most memory, comes next.
        on_gpu = self.job.compute.device == "cuda"
        if on_gpu:  # a process keeps the peak of its loading, as that of the run will
            torch.cuda.reset_peak_memory_stats()
        self.step(self.plan[0])
        self._widest = self.plan[order[-1]]
        self.step(self._widest)
        if on_gpu:
            self._device_peak = int(torch.cuda.max_memory_allocated())
        picked = _evenly(order, min(count, len(self.plan))).tolist()
        # In two rounds of mixed widths, as in a run: right after a batch of its own width one is quicker. And a machine
        # that slows down meanwhile does not bend the line.
        rng = np.random.default_rng(self.job.recipe.training.seed)
        rounds = np.empty((2, len(picked)))
        for number in range(2):
            for done, i in enumerate(rng.permutation(len(picked))):
                rounds[number, i] = self.step(self.plan[picked[i]])
                listener.advance("timing", number * len(picked) + done + 1, 2 * len(picked))
                self.load.measure()
        listener.finish("timing")
        first, again = rounds
        self.seconds = again.tolist()
        whole, error = extrapolate(shapes[picked], again, shapes)
        extra = max(0.0, float(np.median(first - again))) * len(np.unique(shapes, axis=0))
        half = max(_LEAST_SPREAD * (whole + extra), 2 * error, extra)
        return Seconds(whole + extra, max(0.0, whole + extra - half), whole + extra + half)

    def evaluation(self, listener: Listener) -> tuple[Seconds, float]:
        """All scoring of the run, and the bytes of a prediction line."""
        job = self.job
        rows = job.data.splits[job.selection]
        drawn = np.random.default_rng(job.recipe.training.seed).permutation(len(rows))[:_SCORED_ROWS]
        sample = rows.select(sorted(drawn.tolist()))
        features = job.task.encode(sample, job.loaded.tokenizer, max_length=job.recipe.model.max_length)
        for _ in range(2):  # the first time kernels are made
            started = time.perf_counter()
            result = evaluate_split(
                Engine.of(job.loaded, job.compute),
                job.task,
                sample,
                features,
                recipe=job.recipe,
                listener=listener,
            )
            taken = time.perf_counter() - started
        lines = [
            json.dumps(line, ensure_ascii=False) for line in prediction_lines(result, settings=job.recipe.evaluation)
        ]
        each = taken / int(features.lengths.sum())
        tokens = {split: int(job.features[split].lengths.sum()) for split in {*job.evaluated, job.selection}}
        others = sum(count for split, count in tokens.items() if split != job.selection)
        once = each * tokens[job.selection]
        expected = _about(self.evaluations * once + each * others)
        # Where the best weights are not the last ones, the validation rows are scored once more.
        return expected + Seconds(0.0, 0.0, once), sum(len(line.encode()) + 1 for line in lines) / len(lines)

    def saving(self, checkpoints: int) -> tuple[Seconds, int, int]:
        """The weights of every evaluation that is better than those before, at most of all, and the checkpoints.

        Args:
            checkpoints: how many the run will save.

        Returns:
            The time; the bytes of a model folder and of a checkpoint.
        """
        started = time.perf_counter()
        self.job.loaded.save(self.folder.model)
        weights = _about((time.perf_counter() - started) * self.evaluations)
        started = time.perf_counter()
        snapshot = take(self.machine, TrainingState(step=1, best_step=1), random_states(ALONE), history_bytes=0)
        taken = time.perf_counter() - started
        if checkpoints:
            self.step(self._widest)  # training goes on while a checkpoint is written: the memory is needed at once
        started = time.perf_counter()
        Checkpoints(self.folder, self.job.hash).save(snapshot, behind=False)
        written = time.perf_counter() - started
        # Written behind the training, a checkpoint takes some of its time, between none and all that it takes alone.
        each = Seconds(taken + written / 2, taken, taken + written)
        return weights + each.times(checkpoints), _size(self.folder.model), _size(self.folder.checkpoints)

    def peak_memory(self) -> dict[str, int | None]:
        """Of this process, and on the GPU where there is one; the widest batch was among the steps."""
        return {"process": peak_memory_bytes(), "device": self._device_peak}

    def step(self, indices: NDArray[np.int64]) -> float:
        """Takes one whole training step and returns the seconds it took."""
        micro_batches = self.job.recipe.training.accumulation_steps
        started = time.perf_counter()
        training_step(self.machine, self.features, indices, WindowRandom(0), micro_batches=micro_batches)
        self.machine.optimizer.step()
        self.machine.optimizer.zero_grad(set_to_none=True)
        _synchronize(self.job.compute.device)
        return time.perf_counter() - started

    def _shape(self, batch: NDArray[np.int64]) -> tuple[int, int]:
        """Padded tokens of a batch, and the sum over its examples of their squares; both over all its parts."""
        lengths = self.features.lengths
        parts = np.array_split(batch, self.job.recipe.training.accumulation_steps)
        widths = [(len(part), int(lengths[part].max())) for part in parts if len(part)]
        return sum(count * width for count, width in widths), sum(count * width**2 for count, width in widths)


class _LoadMeter:
    """Times one and the same matrix product again and again: how much the times differ says how busy the machine is."""

    def __init__(self, compute: Compute) -> None:
        import torch

        self._device = compute.device
        self._matrix = torch.ones(1024, 1024, device=compute.device)
        self._seconds: list[float] = []
        self._matrix @ self._matrix  # the first product sets things up

    def measure(self) -> None:
        """Times one product."""
        _synchronize(self._device)
        started = time.perf_counter()
        self._matrix @ self._matrix
        _synchronize(self._device)
        self._seconds.append(time.perf_counter() - started)

    @property
    def spread(self) -> float:
        """The slowest product against the fastest."""
        return max(self._seconds) / min(self._seconds)


def _synchronize(device: str) -> None:
    """Waits for the device, so that a clock can be read."""
    import torch

    if device == "cuda":
        torch.cuda.synchronize()
    elif device == "mps":
        torch.mps.synchronize()


def _evenly(items: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Returns `count` of the items, evenly spaced from the first to the last."""
    return items[((np.arange(count) + 0.5) * len(items) / count).astype(np.int64)]


def extrapolate(
    timed: NDArray[np.float64], seconds: NDArray[np.float64], shapes: NDArray[np.float64]
) -> tuple[float, float]:
    """Seconds of all batches, from those of a few.

    Args:
        timed: (K, 2) padded tokens of each timed batch and the sum of their squares.
        seconds: (K,) what they took.
        shapes: (N, 2) the same of all batches.

    Returns:
        The sum over all, and its standard error by the scatter about the line.
    """
    from scipy.optimize import nnls

    scale = np.array([1.0, *np.maximum(shapes.max(axis=0), 1.0)])
    # A fixed cost, one a token and one a pair of tokens; none of them can be negative.
    design = np.column_stack([np.ones(len(timed)), timed]) / scale
    costs, _ = nnls(design, seconds)
    predicted = (np.column_stack([np.ones(len(shapes)), shapes]) / scale) @ costs
    free = max(1, len(seconds) - int(np.count_nonzero(costs)))
    scatter = float(np.sqrt(((seconds - design @ costs) ** 2).sum() / free))
    return float(predicted.sum()), len(shapes) * scatter / float(np.sqrt(len(seconds)))


def _evaluations(job: Job) -> int:
    """How often the validation rows are scored in training, patience not counted."""
    due = job.recipe.training.evaluate_every
    return -(-job.steps // due) if due else job.epochs


def _checkpoints(job: Job, train: Seconds) -> int:
    """How many checkpoints the run will save."""
    every = job.recipe.training.checkpoint_every
    if every == "off":
        return 0
    count = job.epochs
    if every is not None:
        number, unit = every.split()
        count += int((job.steps if unit == "steps" else train.estimate / 60) / int(number))
    return count


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _about(seconds: float) -> Seconds:
    return Seconds(seconds, seconds * (1 - _OTHER_SPREAD), seconds * (1 + _OTHER_SPREAD))


def _disk(job: Job, model: int, checkpoint: int, checkpoints: int, line: float) -> dict[str, int]:
    """Bytes of the finished run folder, and at the worst moment: new weights beside the old, a checkpoint beside two.

    Args:
        job: gives the numbers of lines.
        model: bytes of RUN/model.
        checkpoint: bytes of each.
        checkpoints: how many are saved; one is, too, when a run is interrupted.
        line: bytes of a prediction line.
    """
    scored = sum(len(job.data.splits[split]) for split in {*job.evaluated, job.selection})
    history = _HISTORY_LINE * (job.steps // job.recipe.training.log_every + 2 * job.epochs)
    run = model + int(scored * line) + history
    beside = checkpoint * min(KEPT + 1, max(1, checkpoints))
    return {"model": model, "checkpoint": checkpoint, "run": run, "while_running": run + model + beside}


def _warn(document: dict[str, Any], rehearsal: Rehearsal, listener: Listener) -> None:
    disk, sweep = document["disk_bytes"], document["sweep"]
    wanted = sweep["disk_bytes"] + disk["while_running"] - disk["run"]
    if wanted > disk["free"]:
        listener.warn(f"{human_bytes(wanted)} of disk will be needed, {human_bytes(disk['free'])} is free")
    if document["busy"]:
        listener.warn(
            f"the machine was busy: one and the same matrix product took up to {rehearsal.load.spread:.1f} times as "
            "long. The figures hold for a machine that stays as busy; run it again on a quiet one for firm ones."
        )
