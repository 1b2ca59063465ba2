"""Imported by a `bertctl` process of the tests.

Kills it, and all it started, just before its n-th change to a file.

DIES_AT says n (0: never); DIES_COUNT is a file that says how many changes there were.
"""

import mmap
import os
import signal
import sys
from typing import Any

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = {
    "os.rename",
    "os.remove",
    "os.rmdir",
    "os.mkdir",
    "os.link",
    "os.symlink",
    "os.truncate",
    "shutil.rmtree",
}

_dies_at = int(os.environ.get("DIES_AT", "0"))
_to = os.open(os.environ["DIES_COUNT"], os.O_WRONLY | os.O_CREAT, 0o600)
_count = mmap.mmap(-1, 8)  # processes that are forked count on


def _heard(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open":
        path, _, flags = arguments
        if not flags & _WRITES or not isinstance(path, str) or path.startswith("/dev/"):
            return
    elif event not in _CHANGES:
        return
    number = int.from_bytes(_count[:], "little") + 1
    _count[:] = number.to_bytes(8, "little")
    if number == _dies_at:
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os.pwrite(_to, str(number).encode(), 0)


sys.addaudithook(_heard)
