"""A job of a sweep on another machine: one process that runs one cell with a worker of its own.

The machines share the sweep's folder. A signal has the worker save a checkpoint, whenever it comes.
"""

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from bertctl.catalog.huggingface_internals import set_hub_variable
from bertctl.errors import ExitCode
from bertctl.runtime.stopping import STOPS, StopRequest
from bertctl.session import current
from bertctl.sweeps.plan import PLAN
from bertctl.sweeps.pool import Pool, visible_devices
from bertctl.sweeps.worker import TIME_IS_UP, CellReply, WorkerSettings

SECONDS_UNSEEN = 60
"""So long NFS remembers what is not there."""


def run_far(settings: WorkerSettings, cell: str, where: Path, offline: str) -> dict[str, Any]:
    """Runs a cell with a worker on this machine; returns its reply as a dictionary.

    Args:
        settings: Settings of the worker.
        cell: Name of the cell.
        where: Folder in which the sweep's command was typed; paths in recipes are relative to it.
        offline: Value of HF_HUB_OFFLINE in that command.
    """
    request = StopRequest()
    with ignored_until_heard(request):
        if not (settings.folder / PLAN).is_file():
            return vars(unseen_folder(cell, settings.folder))
        os.chdir(where)
        set_hub_variable("HF_HUB_OFFLINE", offline)
        current().command = settings.command
        if settings.recipes[cell]["runtime"]["device"] == "cuda":
            devices = visible_devices()
        else:
            devices = []
        # This reply counts if the worker gives none. If that happens again and again, the time
        # limit is too short to read the data and to load the model.
        message = (
            "it was told to stop, by its time limit or by scancel, before it could save anything "
            "new"
        )
        replies = [CellReply(cell, "interrupted", message)]
        pool = Pool(
            replace(settings, parent=os.getpid()),
            {},
            jobs=1,
            devices=devices,
            request=request,
        )
        pool.run([cell], replies.append)
    return vars(replies[-1])


def unseen_folder(cell: str, folder: Path) -> CellReply:
    """Returns the reply of a machine that does not see the folder of a sweep or of a run."""
    return CellReply(
        cell,
        "failed",
        f"{os.uname().nodename} does not see {folder}, as all must",
        ExitCode.UNAVAILABLE,
    )


@contextlib.contextmanager
def ignored_until_heard(request: StopRequest) -> Iterator[None]:
    """Records signals to a job from its first line on, instead of ending it.

    At first there is no worker that could save a checkpoint. `Pool.run` then looks whether a signal
    was recorded, and handles later ones itself.

    Args:
        request: The signals are recorded in it.
    """

    def note(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        """Records a signal to stop."""
        request.hear(number)

    def pass_on(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        """Turns the signal of Slurm that the time is nearly up into one to stop."""
        signal.raise_signal(signal.SIGTERM)

    handlers = {number: signal.getsignal(number) for number in (*STOPS, TIME_IS_UP)}
    for number in STOPS:
        signal.signal(number, note)
    signal.signal(TIME_IS_UP, pass_on)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
