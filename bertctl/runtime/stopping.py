"""Ctrl-C, SIGTERM and SIGHUP, from the first line of a command to its last.

Nothing is imported here that takes time.

While a command starts, a signal ends it at once. While it works, the first one raises, so that work
is saved and parts of files are taken away; the second one ends it at once, as any does once the
answer is given. SIGTERM and SIGHUP come several times from a batch system: within a few seconds of
the first one they are no second one. A signal that was ignored from the start (SIGHUP under nohup,
Ctrl-C in a shell's background) stays ignored.

SIGXCPU, which comes when the processor time of `ulimit -t` is used up, is told and ends the work as
SIGTERM does. (Where a file becomes larger than `ulimit -f` allows, Python ignores the signal; the
write fails as on a full disk.)
"""

import os
import signal
import sys
import time

from bertctl.session import carried, command_words, current

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any

    Handler = Callable[[int, FrameType | None], None]

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Terminated(KeyboardInterrupt):
    """Signal that SIGTERM or SIGHUP arrived.

    Whoever handles Ctrl-C handles it too, and can tell the two apart.
    """


_ECHO_SECONDS = 5.0
"""Batch systems signal a job several times at once: each process of a step, and srun, which passes
it on."""


class StopRequest:
    """Signal that asked for the end of some work.

    It tells a second request from an echo of the first.

    Attributes:
        number: The first signal; 0 where none came.
    """

    def __init__(self) -> None:
        self.number = 0
        self._heard_at = 0.0

    def hear(self, number: int) -> bool:
        """Returns whether this signal is a second request, which ends the process at once.

        The first signal is none, and neither is its echo: SIGTERM or SIGHUP within a few seconds. A
        second Ctrl-C is a person's, and never an echo.
        """
        if not self.number:
            self.number = number
            self._heard_at = time.monotonic()
            return False
        return number == signal.SIGINT or time.monotonic() - self._heard_at > _ECHO_SECONDS

    def clear(self) -> None:
        """Forgets the signal."""
        self.number = 0


class _CommandStop:
    """Signals to a command, and how far it is.

    Attributes:
        phase: `starting`, `working` or `ending`; "" where the signals are somebody else's, as in a
            person's own Python.
        number: Signal that ends the work; 0 where none came.
        request: Signals that have come.
    """

    def __init__(self) -> None:
        self.phase = ""
        self.number = 0
        self.request = StopRequest()


def _command() -> _CommandStop:
    """Returns the state of the command that this session runs."""
    return current().part(_CommandStop)


def asked() -> int:
    """Returns the signal that ends the command's work; 0 where none came."""
    return _command().number


def enter(phase: str) -> None:
    """Notes that the command is `working` now, or `ending`: its answer or error is written."""
    command = _command()
    if command.phase:
        command.phase = phase


def ignore() -> None:
    """Lets no signal change the verdict while the interpreter shuts down."""
    for number in STOPS:
        signal.signal(number, signal.SIG_IGN)


def raise_for(number: int) -> None:
    """Raises what a signal means; the next one ends a command at once.

    Raises:
        KeyboardInterrupt: Ctrl-C, or `Terminated` for the others.
    """
    command = _command()
    command.number = number
    command.request.hear(number)
    raise KeyboardInterrupt if number == signal.SIGINT else Terminated


def end_now(number: int) -> None:
    """Ends the process at once with 130 (Ctrl-C) or 143, without the interpreter's shutdown.

    It says so, unless the answer is being written already, or another process speaks for this one.
    """
    phase = _command().phase
    if not phase:  # a person's own Python
        raise_for(number)

    if number == signal.SIGINT:
        code = 130
        message = "interrupted"
    else:
        code = 143
        message = "terminated"
    if phase == "working":
        message += " again: it ended at once"
    else:
        message += " before anything had been started"
    if phase != "ending" and _speaks():
        _write_last_words(code, message)
    os._exit(code)


def _write_last_words(code: int, message: str) -> None:
    """Writes the error to stderr, and its document to stdout if `--json` was typed."""
    if "--json" in command_words():  # written out, as json would have to be imported
        nothing = '"remedy": null, "file": null, "line": null, "field": null'
        _write_at_once(
            1,
            f'{{"error": {{"code": {code}, "kind": "interrupted", "message": "{message}", '
            f"{nothing}}}}}\n",
        )
    cursor = "\r\x1b[?25h" if os.isatty(2) else ""  # a progress bar hides it
    _write_at_once(2, f"{cursor}error: {message}\n")


def _write_at_once(descriptor: int, text: str) -> None:
    """Writes a text past all buffers; nobody may read it any more."""
    try:  # noqa: SIM105 - contextlib would have to be imported
        os.write(descriptor, text.encode())
    except OSError:
        pass


def watch() -> None:
    """Handles the signals of this process from now on."""
    command = _command()
    # `end_now` needs this command's session, and a destructor may run in a thread without it.
    end = carried(end_now)

    def unraisable(event: "Any") -> None:
        """Ends the process if a signal was raised in a destructor or a callback.

        Python reports exceptions of these and then drops them, so the work would continue.
        """
        if command.number and isinstance(event.exc_value, KeyboardInterrupt):
            end(command.number)
        sys.__unraisablehook__(event)

    command.phase = "starting"
    handled_by(_arrived).__enter__()  # and never left: the handler stays until the process ends
    # The limit of processor time (`ulimit -t`), unless a handler is set already.
    if signal.getsignal(signal.SIGXCPU) == signal.SIG_DFL:
        signal.signal(signal.SIGXCPU, _used_up)
    sys.unraisablehook = unraisable


class handled_by:  # noqa: N801 - reads as a verb in `with`; contextlib would have to be imported
    """Gives the signals within `with` to another handler.

    Signals that are ignored stay ignored.
    """

    def __init__(self, handler: "Handler") -> None:
        self._handler = handler

    def __enter__(self) -> None:
        """Sets the handler, and remembers those that were set before."""
        self._before = {number: signal.getsignal(number) for number in STOPS}
        try:
            for number, previous_handler in self._before.items():
                if previous_handler != signal.SIG_IGN:
                    signal.signal(number, self._handler)
        except ValueError:  # another thread than the main one: no signal comes to it
            self._before = {}

    def __exit__(self, *_: object) -> None:
        """Sets the handlers again that were set before."""
        for number, previous_handler in self._before.items():
            signal.signal(number, previous_handler)


def _used_up(number: int, frame: "FrameType | None") -> None:
    """Reports the limit of processor time, and ends the work.

    The signal comes again with each further second.
    """
    import resource

    signal.signal(number, signal.SIG_IGN)
    seconds = resource.getrlimit(resource.RLIMIT_CPU)[0]
    message = (
        f"the {seconds} s of processor time that `ulimit -t` allows are used up: this ends as by "
        "SIGTERM\n"
    )
    if _speaks():
        os.write(2, message.encode())
    _arrived(signal.SIGTERM, frame)


def _speaks() -> bool:
    """Returns whether this process reports the end of the command.

    The launcher does, and its workers do not: they have BERTCTL_EXIT_CODES. Of processes that
    another launcher started, the first one does.
    """
    return "BERTCTL_EXIT_CODES" not in os.environ and os.environ.get("RANK", "0") == "0"


def _arrived(number: int, frame: "FrameType | None") -> None:  # noqa: ARG001
    """Handles a signal: ends the process at once, or raises so that work is saved.

    Args:
        number: The signal.
        frame: Where the main thread was, as Python calls a handler with it.
    """
    command = _command()
    is_first = not command.request.number
    is_second = command.request.hear(number)
    # Batch systems send a signal several times: an echo is neither the first nor a second request.
    is_echo = not is_first and not is_second
    if is_echo:
        return
    # Only a command that is working has something to save.
    if command.phase != "working" or is_second:
        end_now(number)
    raise_for(number)
