"""stdin, stdout and stderr that exist in every process, and never fail.

If the reader of stdout leaves, that is recorded, and the work continues.
"""

import codecs
import contextlib
import io
import os
import re
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO, cast

from bertctl.session import current


class _Streams:
    """Streams of a command.

    Attributes:
        lost: Why nothing more can be written to a descriptor: 1 is stdout, 2 is stderr.
        opened: The streams that `open_streams` and `data` have opened, in order. Empty if the
            command prints to the streams of its caller.
    """

    def __init__(self) -> None:
        self.lost: dict[int, OSError] = {}
        self.opened: list[_Stream] = []


class _Door(io.FileIO):
    """File of a descriptor that never refuses to write. Without a reader, bytes are dropped.

    Args:
        number: Number of the descriptor.
        strict: Whether the first failure is raised, so that work without a reader ends.
    """

    def __init__(self, number: int, *, strict: bool) -> None:
        super().__init__(number, "w", closefd=False)
        self._strict = strict
        self._lost = current().part(_Streams).lost

    def write(self, data: Any, /) -> int:
        """Writes bytes. After a failure, which `lost` returns, they go to the null device."""
        try:
            return os.write(self.fileno(), data)
        except OSError as error:
            self._lost[self.fileno()] = error
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            if self._strict:
                raise
            return len(data)


class _Stream(io.TextIOWrapper):
    """Stream for text on its way out.

    While `guarded`, it writes control characters and workflow commands as visible text
    (`words.spoken`).
    """

    guarded = False
    coloured = False  # our own colours pass the guard
    scrolls = False

    def write(self, text: str) -> int:
        """Writes text, escaped if the stream is guarded. Colour codes of a coloured stream stay."""
        if self.guarded:
            from bertctl.words import spoken

            if self.coloured:
                parts = re.split(r"(\x1b\[[\d;]*m)", text)
            else:
                parts = [text]
            # Splitting by a group puts the colour codes at the odd positions.
            text = "".join(part if i % 2 else spoken(part) for i, part in enumerate(parts))
        return super().write(text)


def lost(number: int) -> OSError | None:
    """Returns why a descriptor can't be written any more; None if all was written."""
    return current().part(_Streams).lost.get(number)


def is_set(name: str) -> bool:
    """Returns whether an environment variable says yes: neither empty nor 0 nor false."""
    return os.environ.get(name, "").lower() not in ("", "0", "false")


def wants_colours(stream: TextIO) -> bool:
    """Returns whether to write colours: to a terminal, or anywhere with FORCE_COLOR.

    NO_COLOR with any value wins.
    """
    if os.environ.get("NO_COLOR"):
        return False
    if is_set("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb" and not is_set("AI_AGENT")


def scrolling() -> bool:
    """Returns whether answers run over the terminal while they are made.

    No bar fits between them.
    """
    return any(stream.scrolls for stream in current().part(_Streams).opened)


def open_streams() -> None:
    r"""Replaces stdout and stderr by streams that never fail, and opens what was closed.

    Descriptors 0 to 2 may be closed, as by `>&-`. They are opened on the null device: otherwise the
    next file would get such a number, and would receive what is printed. Characters that the
    encoding of a stream lacks are written as `\uXXXX`, which JSON allows, too.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            # It is closed. `os.open` takes the lowest free number, which is this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    codecs.register_error("written-out", _written_out)
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = _open(number, guarded=not os.isatty(number))
        stream.coloured = wants_colours(stream)
        setattr(sys, name, stream)


def for_layout(layout: str) -> contextlib.AbstractContextManager[TextIO]:
    """Returns stdout for answers in a layout.

    A JSON document is written when it is complete, so that an error leaves no half of it. Answers
    in any other layout are written row by row.
    """
    if layout == "json":
        return buffered()
    return data()


@contextlib.contextmanager
def buffered() -> Iterator[TextIO]:
    """Yields a file that collects a document, which is written to stdout when it is complete.

    If an error comes before, nothing of it is written: with `--json`, the error is a document, too.
    """
    import tempfile

    with tempfile.SpooledTemporaryFile(
        1 << 24,
        "w+",
        encoding="utf-8",
        errors="surrogatepass",
    ) as spooled:
        yield cast(TextIO, spooled)
        spooled.seek(0)
        with data() as out:
            out.writelines(spooled)


@contextlib.contextmanager
def data() -> Iterator[TextIO]:
    """Yields stdout for answers that are data, which reach a file or a pipe unchanged.

    On a terminal, and in a log that GitHub reads, control characters and workflow commands are
    written as visible text. If the reader of stdout has left, writing raises an OSError, which
    `lost` returns later.
    """
    if not current().part(_Streams).opened:
        # bertctl was called as a function, and prints to the stdout of its caller.
        yield sys.stdout
        return
    is_log = os.environ.get("GITHUB_ACTIONS") == "true" and not stat.S_ISREG(os.fstat(1).st_mode)
    stream = _open(1, strict=True, guarded=os.isatty(1) or is_log)
    stream.scrolls = os.isatty(1)
    yield stream
    stream.flush()


def stdout_file() -> Path | None:
    """Returns the file that stdout is redirected to; None for a terminal or a pipe.

    It is also None on systems without /proc, and if the file has been deleted or renamed.
    """
    try:
        stdout = os.fstat(1)
        path = Path("/proc/self/fd/1").readlink()
        is_file_of_path = stat.S_ISREG(stdout.st_mode) and os.path.samestat(stdout, path.stat())
    except OSError:
        return None
    return path if is_file_of_path else None


def flush() -> None:
    """Writes what the buffers of stdout and stderr still have."""
    for stream in (*current().part(_Streams).opened, sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()


def _open(number: int, *, guarded: bool, strict: bool = False) -> _Stream:
    """Returns a stream that never fails, to replace stdout (1) or stderr (2).

    Args:
        number: The descriptor.
        guarded: Whether control characters and workflow commands are written as visible text.
        strict: Whether a failure to write is raised, too.
    """
    former_stream: TextIO | None = (sys.stdout, sys.stderr)[number - 1]
    if former_stream:
        encoding = former_stream.encoding
    else:
        encoding = "utf-8"
    stream = _Stream(
        io.BufferedWriter(_Door(number, strict=strict)),
        encoding=encoding,
        errors="written-out",  # the handler `_written_out`
        line_buffering=number == 2 or os.isatty(number),
    )
    stream.guarded = guarded
    current().part(_Streams).opened.append(stream)
    return stream


def _written_out(error: UnicodeError) -> tuple[str, int]:
    r"""Escapes characters that an encoding lacks; an error handler for `codecs`.

    Returns:
        Their code units as `\uXXXX`, as in JSON, and the position from which encoding continues.
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    code_units = lacking.encode("utf-16-be", "surrogatepass")  # two bytes each
    escapes = [f"\\u{code_units[i : i + 2].hex()}" for i in range(0, len(code_units), 2)]
    return "".join(escapes), error.end
