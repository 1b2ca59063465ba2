"""A worker: one process that runs cell after cell.

Imports, rows and tokens are there once, the model is loaded anew.

parent  -> {"cell": "0123456789abcdef"} for each cell, {} to leave
worker  -> {"cell": ..., "state": "done", "message": "", "code": 0, "seconds": {...}} when it is
           over

What a run came to is read from its folder (results.py).
"""

import contextlib
import gc
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from bertctl.config.schema import Recipe
from bertctl.errors import (
    BertctlError,
    ExitCode,
    InterruptedRunError,
    UnavailableError,
    is_out_of_memory,
    said_of,
)
from bertctl.jobs.prepare import prepare
from bertctl.progress import Listener
from bertctl.run_folder import RunFolder, hold
from bertctl.runtime.launch import die_when_parent_does
from bertctl.runtime.stopping import STOPS
from bertctl.session import current
from bertctl.sweeps.early_stopping import SweepWatch
from bertctl.sweeps.plan import CELLS, Keep
from bertctl.training.finetune import RunOptions
from bertctl.training.job import Encoded, Job, encode, encoding_key
from bertctl.training.loop.best_model import ModelFile
from bertctl.training.loop.optim import warmup_steps
from bertctl.training.start import start
from bertctl.writing import append_text, open_in_place

SECONDS_BETWEEN_CHECKPOINTS = 60.0
"""The end of an epoch saves a checkpoint in runs that last longer; shorter ones are started
again."""


TIME_IS_UP = signal.SIGUSR2
"""Signal that Slurm sends, through submitit, to every process of a job when its time is nearly
up."""
SIGNALS_AT_START = (*STOPS, TIME_IS_UP)
"""Signals that a worker is born with blocked, until it knows what to make of them."""


@dataclass(frozen=True)
class WorkerSettings:
    """Settings of a worker.

    Attributes:
        folder: SWEEP.
        recipes: name of a cell -> its recipe, as `model_dump` gives it.
        keep: `best`, `all` or `none`.
        parent: Id of the sweep's process.
        locks: open files of the parent's locks, which a forked worker must not hold on to.
        device: GPU that this worker sees, as CUDA_VISIBLE_DEVICES names it; None without.
        trains_again: whether a run that is done is trained again, because its model was not kept.
        pauses: Step at which a run waits for the others, by name; the rest go on to their ends.
        command: words of the sweep's command line, of which the runs' environment.json tells; empty
            where this process has them itself.
    """

    folder: Path
    recipes: Mapping[str, dict[str, Any]]
    keep: Keep
    parent: int
    locks: tuple[int, ...] = ()
    device: str | None = None
    trains_again: bool = False
    pauses: Mapping[str, int] = field(default_factory=dict)
    command: tuple[str, ...] = ()


@dataclass
class CellReply:
    """Reply of a worker about a cell that is over.

    Attributes:
        cell: Name of the cell.
        state: `done`, `failed`, `interrupted`, or `paused` where it waits at a rung.
        message: why it failed.
        code: exit code of the error.
        seconds: `train`, `evaluate`, and `whole` for all that the cell took.
    """

    cell: str
    state: str
    message: str = ""
    code: int = 0
    seconds: dict[str, float] = field(default_factory=dict)


def work(connection: Connection, settings: WorkerSettings, encoded: dict[str, Encoded]) -> None:
    """Runs the cells that the parent names until it says to leave, or is gone.

    Args:
        connection: to the parent; JSON in both directions.
        settings: Settings of the worker.
        encoded: rows read and tokenized by the parent; empty where this process has to do it
            itself.
    """
    _become_worker(settings, forked=bool(encoded))
    with contextlib.suppress(KeyboardInterrupt, EOFError, OSError):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS_AT_START)  # see `Pool._start`
        while True:
            request = json.loads(connection.recv_bytes())
            if not request:
                return
            reply = run_cell(request["cell"], settings, encoded)
            connection.send_bytes(json.dumps(vars(reply)).encode())
            gc.collect()  # what a run leaves behind in cycles is as large as a model


def _become_worker(settings: WorkerSettings, *, forked: bool) -> None:
    """Turns this process into a worker: it writes to log.txt, obeys its parent, and ends with it.

    Args:
        settings: Settings of the worker.
        forked: Whether it was forked, and so has the parent's open files.
    """
    if sys.platform == "linux":
        die_when_parent_does(signal.SIGKILL)
    # The parent may have died just before.
    if os.getppid() != settings.parent:
        os._exit(ExitCode.TERMINATED)
    # A lock is held until all processes have closed its file: only the parent is to hold it.
    if forked:
        for descriptor in settings.locks:
            os.close(descriptor)
    session = current()
    if settings.command:
        session.command = settings.command
    if settings.device is not None:
        # CUDA reads the variable when torch initialises it, which happens later.
        session.set_variable("CUDA_VISIBLE_DEVICES", settings.device)
    os.setsid()  # a terminal's Ctrl-C reaches the parent, which passes it on once
    for number in STOPS:
        signal.signal(number, signal.default_int_handler)
    signal.signal(TIME_IS_UP, signal.SIG_IGN)  # the parent passes it on as SIGTERM
    # The parent's tokenizer has threads, which a fork does not copy. So it may not use them here.
    session.set_variable("TOKENIZERS_PARALLELISM", "false")
    sink = open_in_place(settings.folder / "log.txt", os.O_WRONLY | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(sink, stream)
    logging.captureWarnings(capture=True)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    logging.getLogger().handlers = [handler]


def run_cell(name: str, settings: WorkerSettings, encoded: dict[str, Encoded]) -> CellReply:
    """Runs one cell, from its last checkpoint if there is one, and returns the reply about it.

    A failure is in the reply and in the cell's status.json; nothing is raised.

    Args:
        name: Name of the cell.
        settings: Settings of the worker.
        encoded: Rows that were read and tokenized, by key. If it lacks the rows of this cell, they
            are added.
    """
    started = time.perf_counter()
    folder = RunFolder(settings.folder / CELLS / name)
    reply = CellReply(name, "failed")
    try:
        recipe = Recipe.model_validate(settings.recipes[name])
        key = encoding_key(recipe)
        if key not in encoded:
            encoded[key] = encode(recipe)
        job = prepare(recipe, encoded=encoded[key])
        # A cell's name is the beginning of the hash that its recipe, data and model had.
        if not job.hash.startswith(name):
            message = "the data or the model's files have changed since the sweep was started"
            raise UnavailableError(message)  # noqa: TRY301
        pause_at = settings.pauses.get(name)
        seconds = _train(job, folder, settings, pause_at)
        if seconds is None:
            reply.state = "paused"
        else:
            reply.state = "done"
        reply.seconds = seconds or {}
    except BertctlError as error:
        if isinstance(error, InterruptedRunError):
            reply.state = "interrupted"
        else:
            reply.state = "failed"
        reply.message = error.message
        reply.code = error.exit_code
    except Exception as error:  # noqa: BLE001 - a cell that fails doesn't end the others
        reply.message = said_of(error)
        if is_out_of_memory(error):
            reply.code = ExitCode.DEVICE
        else:
            reply.code = ExitCode.BUG
    if reply.state == "failed":
        with contextlib.suppress(BertctlError):
            note_failure(folder, reply.message)
    reply.seconds["whole"] = time.perf_counter() - started
    return reply


def note_failure(folder: RunFolder, message: str) -> None:
    """Writes into status.json that the cell failed, unless the run has said so itself.

    Raises:
        UnavailableError: it can't be written.
    """
    step = 0
    if folder.status.exists():
        status = folder.read_status()
        if status.state == "failed" and status.message == message:
            return
        step = status.step
    folder.set_status(
        "failed",
        step=step,
        message=message,
        reason="error",
    )


def _clear_unless_resumable(folder: RunFolder) -> None:
    """Empties a folder unless a run in it can continue.

    It can't where the status is missing or damaged, as the run was killed too early. A run that is
    done can't either: it is of another recipe, or is trained again as its model was not kept.
    """
    try:
        is_resumable = folder.read_status().state != "done"
    except BertctlError:
        is_resumable = False
    if not is_resumable:
        folder.clear()


def _train(
    job: Job, folder: RunFolder, settings: WorkerSettings, pause_at: int | None
) -> dict[str, float] | None:
    """Trains and scores a run, from a checkpoint if there is one.

    Args:
        job: The run, made ready.
        folder: Its run folder.
        settings: Settings of the worker.
        pause_at: Step of the rung at which the run waits; None to go on to its end.

    Returns:
        The seconds of training and of evaluation; None if the run waits at its rung.
    """
    # Another worker that was just killed may hold the lock for a moment.
    with hold(folder.path / ".lock", patient=True):
        if not settings.trains_again:
            seconds = _seconds_of_done(job, folder)
            if seconds:
                return seconds
        _clear_unless_resumable(folder)
    warmup = warmup_steps(job.recipe.optimizer, job.steps)
    likelihood = job.objective.is_log_likelihood
    watch = SweepWatch(
        warmup=warmup,
        parent=settings.parent,
        likelihood=likelihood,
        pause_at=pause_at,
    )
    pause = SECONDS_BETWEEN_CHECKPOINTS
    if settings.keep == "none":
        model_file: ModelFile = "never"
    else:
        model_file = "at the end"
    options = RunOptions(early_stopping=watch, model_file=model_file, checkpoint_pause=pause)
    try:
        result = start(
            job,
            folder.path,
            resume="if any",
            options=options,
            listener=_CellLog(folder.log),
        )
    except InterruptedRunError:
        if not watch.is_paused:
            raise
        # It was no signal: `watch` has ended the run at its rung, with a checkpoint.
        step = folder.read_status().step
        message = f"waits at step {step} of {job.steps} for the other runs of the sweep"
        folder.set_status("interrupted", step=step, message=message)
        return None
    return {phase: result.performance.seconds[phase] for phase in ("train", "evaluate")}


def _seconds_of_done(job: Job, folder: RunFolder) -> dict[str, float]:
    """Returns the seconds of a run that another worker has finished meanwhile; empty if none has.

    A job that Slurm has requeued, or one of an earlier command, may begin when the run is done.
    A folder whose files can't all be read does not count as finished.
    """
    try:
        is_done = folder.read_status().state == "done"
        is_same = folder.read_environment().recipe_hash == job.hash
        folder.read_metrics()  # raises if there are no metrics
        seconds = folder.read_performance().seconds
        if is_done and is_same:
            return {phase: seconds[phase] for phase in ("train", "evaluate")}
        return {}
    except (BertctlError, KeyError):
        return {}


class _CellLog(Listener):
    """Writes what a run has to say into its log.txt."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def say(self, text: str) -> None:
        """Writes one line."""
        with contextlib.suppress(BertctlError):
            append_text(self._path, f"{text}\n")

    def warn(self, text: str) -> None:
        """Writes one line."""
        self.say(f"warning: {text}")
