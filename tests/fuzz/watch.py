"""What a process touches.

An audit hook that notes writes outside one folder, connections, programs, code.
"""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_ON_PATHS = {
    "os.rename": 2,
    "os.remove": 1,
    "os.rmdir": 1,
    "os.mkdir": 1,
    "os.link": 2,
    "os.symlink": 2,
    "os.truncate": 1,
    "os.chmod": 1,
    "os.chown": 1,
    "os.utime": 1,
}
"""Audit events that change what is at a path -> how many of their first arguments are paths."""
_PROGRAMS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "pty.spawn")
_HARMLESS = ("fc-list", "uname", "lscpu")
"""What matplotlib and `platform` ask about the machine."""
_CONNECTIONS = ("socket.connect", "socket.getaddrinfo", "socket.sendto", "socket.bind")


class Watch:
    """Notes what should not happen while `inside` is set.

    Attributes:
        inside: the folder in which files may be written; None while nothing is watched.
        seen: what happened, one sentence each.
    """

    def __init__(self) -> None:
        self.inside: str | None = None
        self.seen: list[str] = []
        sys.addaudithook(self._heard)

    def _heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.inside is None:
            return
        if event == "open":
            path, _, flags = arguments
            if not isinstance(path, str | bytes):
                return
            if flags & _WRITES:
                self._written(event, path, follow=not flags & os.O_NOFOLLOW)
            elif os.fsdecode(path).startswith(self.inside) and os.fsdecode(path).endswith(
                (".py", ".pyc")
            ):
                self.seen.append(f"code was read: {path!r}")
        elif event in _ON_PATHS:
            for path in arguments[: _ON_PATHS[event]]:
                if isinstance(path, str | bytes):
                    self._written(event, path, follow=False)
        elif (event in _PROGRAMS and str(arguments[0]) not in _HARMLESS) or event in _CONNECTIONS:
            self.seen.append(f"{event} {str(arguments)[:200]}")

    def _written(self, event: str, path: str | bytes, *, follow: bool = True) -> None:
        folder, name = os.path.split(os.fsdecode(path))
        real = (
            os.path.realpath(path) if follow else str(Path(os.path.realpath(folder or "."), name))
        )
        caches = (
            os.environ.get(name, "/dev/null") for name in ("HF_HOME", "BERTCTL_CACHE")
        )  # speeds of the machine
        allowed = (self.inside or "", str(tempfile.tempdir), *caches, "/dev/null")
        if not any(real == entry or real.startswith(f"{entry}/") for entry in allowed):
            self.seen.append(f"{event} outside: {real}")
