"""The worker processes of a sweep.

They are started, given cells, replaced when one dies, and none is left behind.
"""

import contextlib
import importlib
import json
import multiprocessing
import os
import signal
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from types import FrameType
from typing import Any

from bertctl.errors import DeviceError, ExitCode
from bertctl.modeling.families import family_of
from bertctl.modeling.source import ModelSource
from bertctl.modeling.transformers_internals import model_class
from bertctl.run_folder import RunFolder
from bertctl.runtime.stopping import StopRequest, end_now, handled_by
from bertctl.sweeps.plan import CELLS
from bertctl.sweeps.worker import SIGNALS_AT_START, CellReply, WorkerSettings, note_failure, work
from bertctl.training.job import Encoded

_LATE_IMPORTS = ("accelerate", "safetensors.torch", "torch._dynamo", "torch.onnx", "torch.profiler")
"""Modules that are first imported while a run is under way, seconds in all."""

_DEATHS_IN_A_ROW = 3
"""Workers that die without having finished anything, after which the sweep gives up."""


@dataclass
class _Worker:
    """A worker process.

    Attributes:
        process: The process.
        connection: This end of the pipe to it.
        number: Which worker it is, from 0; a process that replaces another keeps the number.
        cell: Name of the cell that it runs; None if it is idle.
    """

    process: Any
    connection: Connection
    number: int
    cell: str | None = None


class Pool:
    """Runs cells in long-lived worker processes.

    On a CPU under Linux they are forked, so they have the imports, the rows and the tokens of this
    process, in which torch must not have computed anything with threads. Elsewhere they are started
    anew and read for themselves.

    Args:
        settings: Settings of the workers.
        encoded: Rows and tokens for forked workers, by key; if empty, workers are started anew.
        jobs: Number of workers.
        devices: GPUs, handed out in turn; empty on a CPU.
        request: Signal to a job of a batch system, which may have come before there was a pool. A
            second signal then kills no workers, as the batch system does that itself. None if a
            person may press Ctrl-C twice.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        encoded: dict[str, Encoded],
        *,
        jobs: int,
        devices: Sequence[str],
        request: StopRequest | None = None,
    ) -> None:
        self._settings = settings
        self._jobs = jobs
        self._devices = devices
        self.forks = bool(encoded) and _can_fork(devices)
        # Only forked workers get the rows and tokens; others read and encode for themselves.
        self._encoded = encoded if self.forks else {}
        self._context: Any = multiprocessing.get_context("fork" if self.forks else "spawn")
        self._workers: list[_Worker] = []
        self._request = request or StopRequest()
        # A request is given in a job of a batch system. There a second signal kills no workers, as
        # the batch system does that itself.
        self._ignores_second_signal = request is not None

    @property
    def stopped_by(self) -> int:
        """Returns the signal that ended the work; 0 where none did."""
        return self._request.number

    def run(self, cells: Sequence[str], on_reply: Callable[[CellReply], None]) -> None:
        """Runs the cells, as many at a time as there are workers.

        Ctrl-C, SIGTERM and SIGHUP end it: each worker saves a checkpoint, and `stopped_by` says
        which signal it was. A second one kills the workers.

        Args:
            cells: names, in order.
            on_reply: called as each is over, in this process.

        Raises:
            DeviceError: worker after worker dies before it has finished a cell.
        """
        waiting = deque(cells)
        deaths = 0  # in a row, without a reply in between
        with handled_by(self._pass_on):
            try:
                for number in range(min(self._jobs, len(waiting))):
                    if self.stopped_by:
                        break
                    self._workers.append(self._start(number))
                while not self.stopped_by and (waiting or self._has_busy_workers()):
                    for worker in self._workers:
                        if worker.cell is None and waiting:
                            self._give(worker, waiting.popleft())
                    for reply, died in self._replies():
                        deaths = deaths + 1 if died else 0
                        on_reply(reply)
                    if deaths >= _DEATHS_IN_A_ROW:
                        message = f"{deaths} workers in a row have died before they finished a run"
                        raise DeviceError(
                            message,
                            remedy="Is there memory for so many at once? Try fewer with `jobs=`.",
                        )
                # After a signal, each worker replies once it has saved its checkpoint.
                while self.stopped_by and self._has_busy_workers():
                    for reply, _ in self._replies():
                        on_reply(reply)
            finally:
                self._dismiss()

    def _has_busy_workers(self) -> bool:
        """Returns whether a worker is running a cell."""
        return any(worker.cell for worker in self._workers)

    def _start(self, number: int) -> _Worker:
        """Starts a worker process; workers share the devices in turn."""
        parent_end, worker_end = self._context.Pipe()
        if self._devices:
            device = self._devices[number % len(self._devices)]
        else:
            device = None
        settings = replace(self._settings, device=device)
        process = self._context.Process(
            target=work, args=(worker_end, settings, self._encoded), daemon=True
        )
        with warnings.catch_warnings():
            # Python warns of forking a process that has threads. These are the tokenizer's, which
            # sleep, and no worker waits for them.
            warnings.simplefilter("ignore", DeprecationWarning)
            # The worker inherits the mask: signals wait until it has its handlers, or they might be
            # lost.
            mask_before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS_AT_START)
            try:
                process.start()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask_before)
        worker_end.close()
        return _Worker(process, parent_end, number)

    def _give(self, worker: _Worker, cell: str) -> None:
        """Sends a cell to an idle worker, which runs it."""
        worker.cell = cell
        with contextlib.suppress(OSError):  # it has died: its end is noticed in a moment
            worker.connection.send_bytes(json.dumps({"cell": cell}).encode())

    def _replies(self) -> Iterator[tuple[CellReply, bool]]:
        """Yields the replies that come within half a second, and whether each is of a dead worker.

        A worker that has died with a cell gets a reply that the cell failed. Another one takes its
        place, unless all are to stop.
        """
        ready = wait([worker.connection for worker in self._workers], timeout=0.5)
        for worker in [worker for worker in self._workers if worker.connection in ready]:
            try:
                reply = CellReply(**json.loads(worker.connection.recv_bytes()))
            except (EOFError, OSError):
                worker.process.join()
                cell = worker.cell
                place = self._workers.index(worker)
                if self.stopped_by:
                    self._workers.remove(worker)
                else:
                    self._workers[place] = self._start(worker.number)
                if cell is not None and not self.stopped_by:
                    yield self._died(cell, worker.process.exitcode), True
                continue
            worker.cell = None
            yield reply, False

    def _died(self, cell: str, code: int | None) -> CellReply:
        """Returns the reply that a dead worker could not give; status.json says the same."""
        if code is not None and code < 0:
            how = f"signal {-code} ({signal.Signals(-code).name})"
        else:
            how = f"exit code {code}"
        if code == -signal.SIGKILL:
            hint = "; out of memory?"
        else:
            hint = ""
        reply = CellReply(cell, "failed", f"its worker died: {how}{hint}", ExitCode.DEVICE)
        folder = RunFolder(self._settings.folder / CELLS / cell)
        if folder.status.exists() and folder.read_status().state == "done":
            reply.message += " (after the run was finished)"
        else:
            note_failure(folder, reply.message)
        return reply

    def _dismiss(self) -> None:
        """Ends all workers: idle ones are told to leave, the others are killed."""
        for worker in self._workers:
            with contextlib.suppress(OSError):
                worker.connection.send_bytes(b"{}")
        for worker in self._workers:
            if worker.cell is None:
                worker.process.join(5)
            if worker.process.is_alive():
                worker.process.kill()
            worker.process.join()
            worker.connection.close()
        self._workers.clear()

    def _pass_on(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """Passes a signal on to the workers, which save what they have; a second one kills them."""
        is_first = not self._request.number
        is_second = self._request.hear(number)  # an echo of the first signal is none
        kills = is_second and not self._ignores_second_signal
        if not (is_first or kills):
            return  # the workers know already that they are to stop
        for worker in list(self._workers):
            if worker.process.is_alive() and worker.process.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker.process.pid, signal.SIGKILL if kills else number)
        if kills:
            # Killed workers save nothing, so this process ends without saying that they did.
            end_now(number)


def import_what_runs_import(source: ModelSource, auto_class: str) -> None:
    """Imports the modules that training and scoring would import later, but computes nothing.

    Forked workers then have these modules from the beginning.

    Args:
        source: Files of the model; its module is imported, if it is one of transformers.
        auto_class: Name of transformers' auto class with the task's head.
    """
    from bertctl.modeling.fast.torch_bert import FAMILIES

    for name in _LATE_IMPORTS:
        # Another release of the library may not have the module. Workers import what they need.
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    # The library transformers is slow to import, so it is imported only for runs that use it. They
    # do if the model's tokenizer comes from transformers, which has then been imported already, or
    # if bertctl has no network of its own for the model's family.
    if "transformers" in sys.modules or family_of(source.config) not in FAMILIES:
        import transformers

        # If the model can't be loaded, `load_model` raises an error with a better message.
        with contextlib.suppress(OSError, ValueError, KeyError):
            config = transformers.AutoConfig.from_pretrained(source.folder, trust_remote_code=False)
            model_class(auto_class, type(config))


def _can_fork(devices: Sequence[str]) -> bool:
    """Returns whether workers can be forked: only under Linux, on a machine without GPUs.

    A forked process can't use CUDA if its parent has initialised it. On Apple's systems, libraries
    may crash in a forked process.
    """
    if sys.platform != "linux" or devices:
        return False
    import torch  # here, as a job on a cluster starts its worker anew and needs no torch itself

    return not torch.cuda.is_available()


def visible_devices() -> list[str]:
    """Returns the GPUs of this process, as CUDA_VISIBLE_DEVICES names them."""
    import torch

    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible:
        return visible.split(",")
    return [str(number) for number in range(torch.cuda.device_count())]
