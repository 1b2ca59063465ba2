"""A worker: one process that runs cell after cell. Imports, rows and tokens are there once, the model is loaded anew.

parent  -> {"cell": "0123456789abcdef"} as one line for each cell, {} to leave
worker  -> {"cell": ..., "state": "done", "reason": "", "value": 0.81, "seconds": {...}} when it is over
"""

import contextlib
import gc
import json
import logging
import os
import shutil
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from bertctl.config.schema import Recipe
from bertctl.errors import BertctlError, ExitCode, InterruptedRunError, UnavailableError
from bertctl.progress import Listener
from bertctl.run_folder import RunFolder
from bertctl.runtime.launch import die_when_parent_does
from bertctl.sweeps.early_stopping import SweepWatch
from bertctl.sweeps.results import CELLS
from bertctl.training.finetune import RunOptions
from bertctl.training.job import Encoded, Job, encode, encoding_key, prepare
from bertctl.training.optim import warmup_steps
from bertctl.training.out_of_memory import is_out_of_memory
from bertctl.training.start import start

SECONDS_BETWEEN_CHECKPOINTS = 60.0
"""The end of an epoch saves a checkpoint in runs that last longer; shorter ones are started again."""


@dataclass(frozen=True)
class Order:
    """What a worker has to know.

    Attributes:
        folder: SWEEP.
        recipes: name of a cell -> its recipe, as `model_dump` gives it.
        keep: `best`, `all` or `none`.
        parent: the sweep's process.
        locks: open files of the parent's locks, which a forked worker must not hold on to.
        device: GPU that this worker sees, as CUDA_VISIBLE_DEVICES names it; None without.
    """

    folder: Path
    recipes: Mapping[str, dict[str, Any]]
    keep: str
    parent: int
    locks: tuple[int, ...] = ()
    device: str | None = None


@dataclass
class Answer:
    """What became of a cell.

    Attributes:
        cell: its name.
        state: as in status.json.
        reason: likewise.
        value: primary metric on the selection split, where it was scored.
        message: why it failed.
        code: exit code of the error.
        seconds: `train`, `evaluate`, and `whole` for all that the cell took.
    """

    cell: str
    state: str
    reason: str = ""
    value: float | None = None
    message: str = ""
    code: int = 0
    seconds: dict[str, float] = field(default_factory=dict)


def work(door: Connection, order: Order, encoded: dict[str, Encoded]) -> None:
    """Run what comes through the door until it says to leave, or is closed.

    Args:
        door: lines of JSON, one a message.
        order: see there.
        encoded: rows read and tokenized by the parent; empty where this process has to do it itself.
    """
    _settle(order, forked=bool(encoded))
    with contextlib.suppress(KeyboardInterrupt, EOFError, OSError):
        while True:
            task = json.loads(door.recv_bytes())
            if not task:
                return
            answer = run_cell(task["cell"], order, encoded)
            door.send_bytes(json.dumps(vars(answer)).encode())
            gc.collect()  # what a run leaves behind in cycles is as large as a model


def _settle(order: Order, *, forked: bool) -> None:
    """Make this process one that says nothing, hears the parent alone, and does not outlive it."""
    if sys.platform == "linux":
        die_when_parent_does(signal.SIGKILL)
    if os.getppid() != order.parent:
        os._exit(ExitCode.TERMINATED)
    for number in order.locks if forked else ():
        os.close(number)
    os.setsid()  # a terminal's Ctrl-C reaches the parent, which passes it on once
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # threads of the parent's tokenizer are not there after a fork
    sink = os.open(order.folder / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (1, 2):
        os.dup2(sink, stream)
    logging.captureWarnings(capture=True)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    logging.getLogger().handlers = [handler]


def run_cell(name: str, order: Order, encoded: dict[str, Encoded]) -> Answer:
    """Runs one cell, from wherever it is to its end; a cell that fails says so and raises nothing."""
    started = time.perf_counter()
    folder = RunFolder(order.folder / CELLS / name)
    answer = Answer(name, "failed", reason="error")
    try:
        recipe = Recipe.model_validate(order.recipes[name])
        key = encoding_key(recipe)
        if key not in encoded:
            encoded[key] = encode(recipe)
        job = prepare(recipe, encoded=encoded[key])
        if not job.hash.startswith(name):
            raise UnavailableError("the data or the model's files have changed since the sweep was started")  # noqa: TRY301
        _train(job, folder, order, answer)
    except InterruptedRunError as error:
        answer.state, answer.reason, answer.message, answer.code = "interrupted", "", error.message, error.exit_code
    except BertctlError as error:
        answer.message, answer.code = error.message, error.exit_code
    except Exception as error:  # noqa: BLE001 - a cell that fails doesn't end the others
        answer.message = f"{type(error).__name__}: {error}"
        answer.code = ExitCode.DEVICE if is_out_of_memory(error) else ExitCode.BUG
    if answer.state == "failed":
        with contextlib.suppress(BertctlError):
            note_failure(folder, answer)
    answer.seconds["whole"] = time.perf_counter() - started
    return answer


def note_failure(folder: RunFolder, answer: Answer) -> None:
    """Have status.json say that the cell failed, unless the run has said why itself; fills in the reason.

    Raises:
        UnavailableError: it can't be written.
    """
    status = folder.read(folder.status) if folder.status.exists() else {}
    if status.get("state") == "failed" and status.get("message") == answer.message:
        answer.reason = status.get("reason", "error")
        return
    folder.path.mkdir(parents=True, exist_ok=True)
    folder.set_status("failed", step=status.get("step", 0), message=answer.message, reason="error")


def _train(job: Job, folder: RunFolder, order: Order, answer: Answer) -> None:
    """Trains and scores; goes on from a checkpoint where there is one."""
    if not folder.status.exists():  # killed before there was one
        shutil.rmtree(folder.path, ignore_errors=True)
    watch = SweepWatch(
        warmup=warmup_steps(job.recipe.optimizer, job.steps),
        parent=order.parent,
        likelihood=job.task.name != "text-regression",
    )
    options = RunOptions(
        early_stopping=watch,
        model_file="never" if order.keep == "none" else "at the end",
        checkpoint_pause=SECONDS_BETWEEN_CHECKPOINTS,
    )
    result = start(job, folder.path, resume="if any", options=options, listener=_CellLog(folder.log))
    answer.state, answer.reason = "done", folder.read(folder.status).get("reason", "")
    split, metric = result.metrics["primary"]["split"], result.metrics["primary"]["name"]
    answer.value = result.metrics["metrics"][split][metric]["value"]
    answer.seconds |= {phase: result.performance["seconds"][phase] for phase in ("train", "evaluate")}


class _CellLog(Listener):
    """What a run has to say goes into its log.txt."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def say(self, text: str) -> None:
        """One line."""
        with contextlib.suppress(OSError), self._path.open("a", encoding="utf-8") as out:
            out.write(f"{text}\n")

    def warn(self, text: str) -> None:
        """One line."""
        self.say(f"warning: {text}")
