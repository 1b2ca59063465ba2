"""Inputs that can be read only once: a pipe with a name, `<(command)`, `/dev/stdin`.

Their bytes go into a temporary file, once, and whoever reads the input again reads that. What an
input is decides, not what it is called.
"""

import os
import re
import select
import shutil
import stat
import tempfile
from pathlib import Path
from typing import BinaryIO, cast

from bertctl.errors import UnavailableError
from bertctl.session import current
from bertctl.words import human_bytes

_DESCRIPTOR = re.compile(r"/(?:dev|proc/self)/fd/(\d+)")
_HAS_PROC = os.path.exists("/proc/self/fd")  # noqa: PTH110 - at import
_PIECE_BYTES = 2**20
"""Bytes that are copied at once."""
_SPARE_BYTES = 2**26
"""Bytes of a disk that are left free."""


class _Copies(dict[tuple[int, int], BinaryIO]):
    """Device and inode of an input -> the temporary file with its bytes.

    The file goes with the command.
    """


def is_read_once(path: Path) -> bool:
    """Returns whether a path is a pipe or a socket, of which each byte comes once."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def regular(path: Path, *, seen_by_others: bool = False) -> Path:
    """Returns the file to open for an input: the input itself, or a temporary copy of a pipe.

    Args:
        path: Path of the input.
        seen_by_others: whether other processes open it, as long as this one lives.

    Raises:
        UnavailableError: The pipe can't be read, or holds more than the disk; or several processes
            would share it.
    """
    if not is_read_once(path):
        return path
    if int(os.environ.get("WORLD_SIZE") or 1) > 1:
        message = f"{path} is a pipe, and of several processes each would read a part of it"
        raise UnavailableError(
            message, remedy="Give a file, or start the processes with `num_processes=`.", file=path
        )
    status = path.stat()
    key = (status.st_dev, status.st_ino)
    session = current()
    copies = session.part(_Copies)
    if key not in copies:
        copies[key] = _bytes_of(path)
        session.restore_later(f"copy of pipe {key}", copies[key].close)
    copy_of_pipe = copies[key]
    # Readers get a path and open the copy anew, so each of them begins at the first byte.
    if not _HAS_PROC:
        return Path(copy_of_pipe.name)
    # Here the copy has no name. /proc has a path to it, by the process that has it open.
    if seen_by_others:
        process = str(os.getpid())
    else:
        process = "self"
    return Path(f"/proc/{process}/fd/{copy_of_pipe.fileno()}")


def _bytes_of(path: Path) -> BinaryIO:
    """Returns a temporary file with all bytes of a pipe; waits for whoever writes into it."""
    # The file is opened again by its path. With /proc an open file has a path even without a name,
    # and a file without a name is gone with the process.
    make_file = tempfile.TemporaryFile if _HAS_PROC else tempfile.NamedTemporaryFile
    file = cast(BinaryIO, make_file())  # closed at the end of the command, by `regular`
    try:
        descriptor = _opened(path)
        try:
            _copy(descriptor, file, path)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise UnavailableError(
            f"{path} can't be read: {error.strerror or error}", file=path
        ) from error
    file.flush()
    return file


def _opened(path: Path) -> int:
    """Returns a descriptor of a pipe that is open for reading, without waiting for a writer.

    `_copy` waits for the writer instead: a signal can end its wait.
    """
    own_descriptor = _DESCRIPTOR.fullmatch(str(path))  # of `<(command)`, which is open already
    if own_descriptor:
        return os.dup(int(own_descriptor[1]))
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK)


def copy_bounded(file: BinaryIO, temporary: BinaryIO, name: str) -> None:
    """Copies all bytes of a file into a temporary one, as long as its disk has room.

    Raises:
        UnavailableError: the disk is nearly full.
    """
    room = _room()
    while piece := file.read(_PIECE_BYTES):
        room -= len(piece)
        if room < 0:
            raise _disk_is_full(f"{name}, unpacked or read from a pipe,", temporary)
        temporary.write(piece)


def _room() -> int:
    """Returns how many bytes may still be written into temporary files."""
    return shutil.disk_usage(tempfile.gettempdir()).free - _SPARE_BYTES


def _disk_is_full(subject: str, temporary: BinaryIO) -> UnavailableError:
    """Returns the error for an input that is larger than the disk of its temporary copy."""
    size = human_bytes(temporary.tell())
    message = (
        f"{subject} is larger than the disk of {tempfile.gettempdir()}: after {size} it is nearly "
        "full"
    )
    return UnavailableError(
        message, remedy="Write it to a file, or set TMPDIR to a folder with more room."
    )


def _copy(descriptor: int, file: BinaryIO, path: Path) -> None:
    """Copies all bytes of an open pipe into a temporary file.

    Args:
        descriptor: Descriptor of the open pipe.
        file: The temporary file.
        path: Path of the pipe, for messages.

    Raises:
        UnavailableError: The disk is nearly full.
    """
    room = _room()
    poll = select.poll()
    poll.register(descriptor, select.POLLIN | select.POLLHUP)
    while True:
        # Waits until the pipe has bytes, or its writer has closed it. A signal ends this wait; a
        # read that waits would be tried again after the signal.
        poll.poll()
        try:
            piece = os.read(descriptor, _PIECE_BYTES)
        except BlockingIOError:
            continue
        if not piece:
            return
        room -= len(piece)
        if room < 0:
            raise _disk_is_full(f"{path}, a pipe,", file)
        file.write(piece)
