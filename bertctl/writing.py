"""The one writer of what `bertctl` leaves on a disk.

It is written aside, synced and renamed, and no link is followed.

Aside is a folder `.bertctl-*.part` beside the target, of a random name, which its process holds
locked: a part that nobody holds was left by a process that is dead, and the next write into that
folder sweeps it away. A link that stands under the final name is replaced itself; what it points to
stays as it is. Pipes, terminals and devices take what comes.
"""

import errno
import fcntl
import gzip
import io
import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

from bertctl.addresses import refuse_address
from bertctl.errors import UnavailableError, UsageError
from bertctl.session import current
from bertctl.words import human_bytes

_DESCRIPTOR = re.compile(r"/dev/(stdout|stderr)|/(?:dev|proc/self)/fd/(\d+)")
_FULL = {
    errno.ENOSPC: "",
    errno.EDQUOT: ", by your quota",
    errno.EFBIG: ", by the limit on a file's size (ulimit -f)",
}
"""Why there is no room, beside the disk itself."""
PARTS = ".bertctl-*.part"
"""What is written aside, as a pattern."""
_ANOTHER = "Nothing was written. Choose another place for the output."


class _Inputs(dict[Path, None]):
    """Files and folders that the command reads, and never overwrites."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields an unused path, where a file or folder is made.

    It takes the place of `path` when it is whole and synced.

    A reader sees the old content or the new, never a part. Of a folder that is there, the files are
    replaced one by one and others stay. A pipe, a terminal or a device is yielded as it is.

    Raises:
        UnavailableError: the disk is full, or the place can't be written; what was there stays.
    """
    refuse_input(path)
    with failures_of(path, replaced=True):
        if is_stream(path):
            yield path
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        with part_in(path.parent) as part:
            aside = part / path.name
            yield aside
            _sync(aside)
            if aside.is_dir() and path.is_dir() and not path.is_symlink():
                for file in aside.rglob("*"):
                    if not file.is_file():
                        continue
                    target = path / file.relative_to(aside)
                    target.parent.mkdir(exist_ok=True)
                    file.replace(target)
                _sync(path, with_content=False)
            else:
                aside.replace(path)
                _sync(path.parent, with_content=False)


@contextmanager
def failures_of(path: Path, *, replaced: bool = False) -> Iterator[None]:
    """Turns what is said of a place that can't be written into our error.

    The system says it, or a library in its words.

    Args:
        path: the place.
        replaced: whether what stands there stays whole when this fails.

    Raises:
        UnavailableError: the disk is full, or the place can't be written.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise write_failure(path, error, replaced=replaced) from error
    except Exception as error:
        # safetensors has the system's error in its message alone.
        number = next((code for code in _FULL if os.strerror(code) in str(error)), 0)
        if not number:
            raise
        raise write_failure(
            path, OSError(number, os.strerror(number)), replaced=replaced
        ) from error


def write_failure(path: Path, error: OSError, *, replaced: bool = False) -> UnavailableError:
    """Returns the error for a path that can't be written, with what to do about it."""
    how = "with `output=`"
    with suppress(UnavailableError):  # there is no cache
        if path.absolute().is_relative_to(cache_folder().absolute()):
            how = "in BERTCTL_CACHE"
    if error.errno in _FULL:
        if replaced and path.is_file():
            note = " (the version written before is whole)"
        else:
            note = ""
        place = next((parent for parent in path.parents if parent.is_dir()), Path())
        return UnavailableError(
            f"{path}: the disk is full{_FULL[error.errno]}{note}",
            remedy=f"Free some space on the disk of {path.parent} "
            f"({human_bytes(shutil.disk_usage(place).free)} are "
            f"free), or choose another folder {how}.",
            file=path,
        )
    cause: object = error.strerror or error
    if error.errno == errno.ELOOP:
        cause = "it is a link, and none is followed"
    return UnavailableError(
        f"{path}: can't be written ({cause})",
        remedy="Check that the folder exists and that you may write there, or choose another "
        f"{how}.",
        file=path,
    )


@contextmanager
def replacing_file(path: Path) -> Iterator[BinaryIO]:
    """Yields a file that takes the name `path` when it is whole; see `replacing`."""
    number = _descriptor(path)
    with (
        replacing(path) as aside,
        aside.open("wb") if number is None else os.fdopen(os.dup(number), "wb") as out,
    ):
        yield out


@contextmanager
def replacing_text(path: Path) -> Iterator[TextIO]:
    """Yields a text file (UTF-8) that replaces `path` when it is whole.

    It is compressed if `path` ends with `.gz`.
    """
    with ExitStack() as stack:
        raw = stack.enter_context(replacing_file(path))
        if path.suffix == ".gz":
            # mtime=0: the same bytes at any time.
            packed = gzip.GzipFile(
                "",
                "wb",
                fileobj=raw,
                mtime=0,
            )
            raw = cast(BinaryIO, stack.enter_context(packed))
        yield stack.enter_context(io.TextIOWrapper(raw, encoding="utf-8", newline="\n"))


def atomic_write(path: Path, write: Callable[[Path], object]) -> None:
    """Replaces `path` by what `write` puts into the place that it is given; see `replacing`."""
    with replacing(path) as aside:
        write(aside)


def write_text(path: Path, text: str) -> None:
    """Replaces a text file atomically (UTF-8)."""
    with replacing_text(path) as out:
        out.write(text)


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Replaces a JSON file atomically; keys stay in the order given, numbers at full precision."""
    write_text(
        path,
        json.dumps(
            document,
            indent=2,
            ensure_ascii=False,
            allow_nan=False,
        )
        + "\n",
    )


def write_jsonl(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Replaces a JSON Lines file atomically."""
    with replacing_text(path) as out:
        out.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def write_array(items: Iterable[Any], out: TextIO) -> None:
    """Writes a JSON array as its items come, each in a line."""
    opening = "["
    for item in items:
        out.write(f"{opening}\n{json.dumps(item, ensure_ascii=False)}")
        opening = ","
    out.write("[]\n" if opening == "[" else "\n]\n")


def cache_folder() -> Path:
    """Returns BERTCTL_CACHE, else XDG_CACHE_HOME/bertctl, else ~/.cache/bertctl.

    Raises:
        UnavailableError: the user has no home folder.
        UsageError: a variable names an address.
    """
    from_environment = os.environ.get("BERTCTL_CACHE")
    for variable in ("BERTCTL_CACHE", "XDG_CACHE_HOME"):
        refuse_address(os.environ.get(variable), variable, is_output=True)
    try:
        if from_environment:
            return Path(from_environment).expanduser()
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bertctl"
    except RuntimeError as error:
        if from_environment:
            message = f"BERTCTL_CACHE is {from_environment}, but no such user exists"
        else:
            message = "this user has no home folder"
        raise UnavailableError(
            message, remedy="Name a folder where you may write in BERTCTL_CACHE."
        ) from error


def copy_file(source: Path, target: Path) -> None:
    """Replaces a file by a copy of a file, perhaps of itself.

    The copy shares nothing with a second name elsewhere.
    """
    atomic_write(target, lambda aside: shutil.copyfile(source, aside))


def link_file(source: Path, target: Path) -> None:
    """Makes a second name for a file, or a copy where the disk has no links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def append_text(path: Path, text: str) -> None:
    """Adds text to a file that grows while it is read.

    Raises:
        UnavailableError: the disk is full, or the place can't be written.
    """
    with (
        failures_of(path),
        os.fdopen(open_in_place(path, os.O_WRONLY | os.O_APPEND), "w", encoding="utf-8") as out,
    ):
        out.write(text)


def open_in_place(path: Path, flags: int) -> int:
    """Opens a file of ours that grows, made where it is missing; returns its number.

    A link is refused, and a file with a second name elsewhere gives way to a copy of its own.

    Raises:
        OSError: as for any file; ELOOP for a link.
    """
    number = _descriptor(path)
    if number is not None:
        return os.dup(number)
    with suppress(FileNotFoundError):
        status = path.lstat()
        if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
            copy_file(path, path)
    # Without waiting for the reader of a pipe that somebody has put there.
    return os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)


def _sync(path: Path, *, with_content: bool = True) -> None:
    """Makes a file or folder outlive a loss of power.

    Args:
        path: File or folder.
        with_content: Whether all that is in a folder is to be synced too.
    """
    if with_content and path.is_dir():
        for entry in path.iterdir():
            _sync(entry)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _descriptor(path: Path) -> int | None:
    """Returns the descriptor behind a name such as /dev/stdout, without opening it once more."""
    match = _DESCRIPTOR.fullmatch(os.path.abspath(path))  # noqa: PTH100 - `resolve` follows links
    if match is None:
        return None
    return int(match[2] or {"stdout": 1, "stderr": 2}[match[1]])


def is_stream(path: Path) -> bool:
    """Returns whether a name stands for a pipe, a terminal or a device.

    Such a name is never replaced by a file.
    """
    if _descriptor(path) is not None or not os.path.lexists(path):
        return _descriptor(path) is not None
    return stat.S_IFMT(path.lstat().st_mode) not in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK)


def sweep(folder: Path, *, deep: bool = False) -> None:
    """Deletes the parts that dead processes left in a folder.

    With `deep` it also deletes those in the folders in it.
    """
    for left in (folder.rglob if deep else folder.glob)(PARTS):
        with suppress(OSError):
            held = _hold(left, waits=False)
            shutil.rmtree(left, ignore_errors=True)
            os.close(held)


def protect(*inputs: Path, anew: bool = False) -> None:
    """Notes files and folders that this command reads.

    `refuse_input` and `replacing` then leave them alone.

    Args:
        inputs: those that are there count; so does the file that stdin comes from.
        anew: forget those of an earlier call.
    """
    protected = current().part(_Inputs)
    if anew:
        protected.clear()
    for path in inputs:
        with suppress(OSError, ValueError):
            status = path.stat()
            # A terminal may be input and output.
            if stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode):
                protected[path] = None


def refuse_input(path: Path, *, replaces: bool = False) -> None:
    """Refuses an output that is an input of this command, through links too.

    Call it before anything is written.

    Args:
        path: of the output.
        replaces: whether it is a folder that is replaced by another, so that no input may lie in
            it.

    Raises:
        UsageError: it is; which.
    """
    # `samefile` raises an error where the output does not exist: it can't be an input then.
    with suppress(OSError):
        # An input that was deleted meanwhile would raise one, too, and end the loop too early.
        for input_path in filter(Path.exists, current().part(_Inputs)):
            if path.samefile(input_path) and (replaces or not path.is_dir()):
                raise UsageError(
                    f"{path} is an input of this command ({input_path})", remedy=_ANOTHER
                )
            if replaces and input_path.resolve().is_relative_to(path.resolve()):
                raise UsageError(
                    f"{input_path} lies in {path}, which `overwrite=True` would replace",
                    remedy=_ANOTHER,
                )


def refuse_links(*folders: Path) -> None:
    """Refuses to write into folders of ours in whose place somebody has put a link.

    Raises:
        UsageError: one is a link.
    """
    for folder in folders:
        if folder.is_symlink():
            raise UsageError(
                f"{folder} is a link, and nothing is written through it", remedy=_ANOTHER
            )


@contextmanager
def part_in(folder: Path) -> Iterator[Path]:
    """Yields a new folder of this process's own, which is gone afterwards."""
    sweep(folder)
    held = -1
    while held < 0:
        part = folder / f".bertctl-{os.urandom(8).hex()}.part"
        part.mkdir()
        with suppress(FileNotFoundError):  # another process's sweep was quicker than the lock
            held = _hold(part)
    try:
        yield part
    finally:
        shutil.rmtree(part, ignore_errors=True)
        os.close(held)


def _hold(part: Path, *, waits: bool = True) -> int:
    """Locks a folder until the descriptor that is returned is closed, or the process dies.

    Args:
        part: The folder.
        waits: Whether to wait for another process that holds it; a disk without locks is accepted
            then.

    Raises:
        OSError: The folder is gone. Without waiting also: another process holds it, or the disk has
            no locks, so that nobody can tell.
    """
    descriptor = os.open(part, os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if waits:
            with suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        part.stat()
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
