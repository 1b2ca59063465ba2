"""State of one command: what its parts note, and what it changes in the process.

A command has a session of its own, which is current while it runs. Modules keep nothing for
themselves: what one of them has to remember is an object of a class of its own, of which a session
has one (`part`). What belongs to the whole process (environment variables, threads, settings of
libraries) is changed through the session (`set_variable`, `restore_later`) and is as before when
the session is closed. So two commands in one process do not know of each other.

Code that runs without a command, such as a person's own Python, shares the session of the process,
which is never closed. Commands that change the process take turns, whichever threads they run in.
Nothing is imported here that takes time.
"""

import os
import sys
from _thread import RLock
from contextvars import ContextVar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, ParamSpec, TypeVar

    _Part = TypeVar("_Part")
    _Arguments = ParamSpec("_Arguments")
    _Result = TypeVar("_Result")


class Session:
    """Everything that a command remembers, and how to undo what it changes in the process.

    Attributes:
        command: Words of the command line after `bertctl`; None where they are those of `sys.argv`.
    """

    def __init__(self) -> None:
        self.command: Sequence[str] | None = None
        self._parts: dict[type, Any] = {}
        self._undo: dict[str, Callable[[], object]] = {}

    def part(self, kind: "type[_Part]") -> "_Part":
        """Returns the session's one object of a class, made when it is first asked for."""
        if kind not in self._parts:
            self._parts[kind] = kind()
        part: _Part = self._parts[kind]
        return part

    def restore_later(self, name: str, restore: "Callable[[], object]") -> None:
        """Notes how to restore something of the process when the session is closed.

        Args:
            name: What is restored. Only the first note of a name counts: it knows what was there
                before the session.
            restore: Puts it back.
        """
        self._undo.setdefault(name, restore)

    def set_variable(self, name: str, value: str | None) -> None:
        """Sets an environment variable until the session is closed; None removes it."""
        before = os.environ.get(name)
        self.restore_later(f"${name}", lambda: _put_variable(name, before))
        _put_variable(name, value)

    def default_variable(self, name: str, value: str) -> str:
        """Sets an environment variable unless it is set already, and returns its value."""
        if name not in os.environ:
            self.set_variable(name, value)
        return os.environ[name]

    def close(self) -> None:
        """Restores what the session has changed in the process, the last change first."""
        while self._undo:
            _, restore = self._undo.popitem()
            restore()
        self._parts.clear()


_PROCESS = Session()
_current: "ContextVar[Session | None]" = ContextVar("session", default=None)
_TURN = RLock()
"""Held by a session that may change the process."""

_open: "list[Session]" = []
"""Sessions that are open, each inside the one before."""


def current() -> Session:
    """Returns the session of the command that this code belongs to, else that of the process.

    A thread that a library has started knows of no session: it works for the command that is
    running, as the threads of the library `tokenizers` do, which read a corpus.
    """
    session = _current.get()
    if session is not None:
        return session
    return _open[-1] if _open else _PROCESS


def command_words() -> list[str]:
    """Returns the words of the command line after `bertctl`."""
    command = current().command
    return list(sys.argv[1:] if command is None else command)


class opened:  # noqa: N801 - reads as a verb in `with`; contextlib would have to be imported
    """Gives the code within `with` a session of its own, as soon as no other one is open.

    Sessions that are opened inside each other, in one thread, do not wait for each other.
    """

    def __enter__(self) -> Session:
        """Waits until no other thread has a session open, and returns the new current session."""
        _TURN.acquire()
        self._session = Session()
        _open.append(self._session)
        self._token = _current.set(self._session)
        return self._session

    def __exit__(self, *_: object) -> None:
        """Undoes what the session has changed in the process, and lets the next thread go on."""
        try:
            self._session.close()
        finally:
            _open.remove(self._session)
            _current.reset(self._token)
            _TURN.release()


def carried(work: "Callable[_Arguments, _Result]") -> "Callable[_Arguments, _Result]":
    """Returns a function that does some work in this session, in whichever thread it is called."""
    session = current()

    def run(*arguments: "_Arguments.args", **keywords: "_Arguments.kwargs") -> "_Result":
        """Does the work while the carried session is the current one of this thread."""
        token = _current.set(session)
        try:
            return work(*arguments, **keywords)
        finally:
            _current.reset(token)

    return run


def _put_variable(name: str, value: str | None) -> None:
    """Sets an environment variable; None removes it."""
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value
