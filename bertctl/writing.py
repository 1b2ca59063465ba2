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
    """Yields an unused path beside `path`, to write a file or folder that then replaces `path`.

    What was written is synced, then renamed. So a reader sees the old content or the new, never a
    part. If `path` is a folder already, its files are replaced one by one, and others stay. A pipe,
    a terminal or a device is yielded as it is.

    Raises:
        UnavailableError: The disk is full, or `path` can't be written. The old content stays.
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
            is_existing_folder = path.is_dir() and not path.is_symlink()
            if aside.is_dir() and is_existing_folder:
                for file in aside.rglob("*"):
                    if not file.is_file():
                        continue
                    target = path / file.relative_to(aside)
                    target.parent.mkdir(exist_ok=True)
                    file.replace(target)
                _sync(path, with_content=False)  # the new names of the files
            else:
                aside.replace(path)
                _sync(path.parent, with_content=False)  # the new name


@contextmanager
def failures_of(path: Path, *, replaced: bool = False) -> Iterator[None]:
    """Turns errors of writing to a path into an `UnavailableError`, inside the context.

    Args:
        path: The file or folder that is written.
        replaced: Whether the old file under this path stays whole if writing fails.

    Raises:
        UnavailableError: The disk is full, or the path can't be written.
    """
    try:
        yield
    except BrokenPipeError:
        raise  # The reader of a pipe has left, which is no failure of the path.
    except OSError as error:
        raise write_failure(path, error, replaced=replaced) from error
    except Exception as error:
        # safetensors raises an error of its own, which only has the system's words in its message.
        for code in _FULL:
            system_words = os.strerror(code)
            if system_words in str(error):
                system_error = OSError(code, system_words)
                raise write_failure(path, system_error, replaced=replaced) from error
        raise


def write_failure(path: Path, error: OSError, *, replaced: bool = False) -> UnavailableError:
    """Returns the error for a path that can't be written, with what to do about it.

    Args:
        path: The path.
        error: What the system said.
        replaced: Whether the old file under this path stays whole.
    """
    is_in_cache = False
    with suppress(UnavailableError):  # raised if there is no cache folder
        is_in_cache = path.absolute().is_relative_to(cache_folder().absolute())
    if is_in_cache:
        where_to_choose = "in BERTCTL_CACHE"
    else:
        where_to_choose = "with `output=`"

    if error.errno in _FULL:
        limit = _FULL[error.errno]  # such as ", by your quota"; empty for the disk itself
        if replaced and path.is_file():
            note = " (the version written before is whole)"
        else:
            note = ""
        existing_folder = next((parent for parent in path.parents if parent.is_dir()), Path())
        free = human_bytes(shutil.disk_usage(existing_folder).free)
        return UnavailableError(
            f"{path}: the disk is full{limit}{note}",
            remedy=f"Free some space on the disk of {path.parent} ({free} are free), or choose "
            f"another folder {where_to_choose}.",
            file=path,
        )
    cause: object = error.strerror or error
    if error.errno == errno.ELOOP:
        cause = "it is a link, and none is followed"
    return UnavailableError(
        f"{path}: can't be written ({cause})",
        remedy="Check that the folder exists and that you may write there, or choose another "
        f"{where_to_choose}.",
        file=path,
    )


@contextmanager
def replacing_file(path: Path) -> Iterator[BinaryIO]:
    """Yields a file that takes the name `path` when it is whole; see `replacing`."""
    descriptor = _descriptor(path)
    with replacing(path) as aside:
        file: BinaryIO
        if descriptor is None:
            file = aside.open("wb")
        else:
            # Opening /dev/stdout by its name would write a file from its beginning again.
            file = os.fdopen(os.dup(descriptor), "wb")
        with file:
            yield file


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
    """Replaces `path` by what `write` writes to the path that it gets; see `replacing`."""
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
        UnavailableError: The user has no home folder.
        UsageError: A variable names an address.
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
    """Replaces `target` by a copy of `source`, which may be the same file.

    A copy of itself parts a file from its hard links: writing to it doesn't change them.
    """
    atomic_write(target, lambda aside: shutil.copyfile(source, aside))


def link_file(source: Path, target: Path) -> None:
    """Makes a hard link to a file, or a copy if the disk has no links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def append_text(path: Path, text: str) -> None:
    """Adds text to the end of a file, which others may read at the same time.

    Raises:
        UnavailableError: The disk is full, or the file can't be written.
    """
    with (
        failures_of(path),
        os.fdopen(open_in_place(path, os.O_WRONLY | os.O_APPEND), "w", encoding="utf-8") as out,
    ):
        out.write(text)


def open_in_place(path: Path, flags: int) -> int:
    """Opens a file to write in place, such as a log that grows, and returns its descriptor.

    A missing file is created.

    Args:
        path: The file, or a name such as /dev/stdout, whose open descriptor is taken.
        flags: Flags of `os.open`.

    Raises:
        OSError: As for any file; with ELOOP, the path is a symbolic link.
    """
    descriptor = _descriptor(path)
    if descriptor is not None:
        return os.dup(descriptor)
    with suppress(FileNotFoundError):
        status = path.lstat()
        has_hard_links = stat.S_ISREG(status.st_mode) and status.st_nlink > 1
        if has_hard_links:
            copy_file(path, path)  # so that the other names keep their content
    # O_NONBLOCK: if somebody has put a pipe there, opening it doesn't wait for its reader.
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
    """Returns the descriptor that a name such as /dev/stdout or /dev/fd/3 stands for, else None."""
    match = _DESCRIPTOR.fullmatch(os.path.abspath(path))  # noqa: PTH100 - `resolve` follows links
    if match is None:
        return None
    stream_name, number = match.groups()
    if stream_name:
        return {"stdout": 1, "stderr": 2}[stream_name]
    return int(number)


def is_stream(path: Path) -> bool:
    """Returns whether a name stands for a pipe, a terminal or a device.

    Such a name is never replaced by a file.
    """
    if _descriptor(path) is not None:
        return True
    if not os.path.lexists(path):
        return False
    file_type = stat.S_IFMT(path.lstat().st_mode)
    return file_type not in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK)


def sweep(folder: Path, *, deep: bool = False) -> None:
    """Deletes the folders `.bertctl-*.part` that dead processes left behind.

    Args:
        folder: Folder in which they lie.
        deep: Whether they are looked for in the folders within it, too.
    """
    if deep:
        parts = folder.rglob(PARTS)
    else:
        parts = folder.glob(PARTS)
    for part in parts:
        # A living process holds the lock of its part. Then `_hold` fails, and the part stays.
        with suppress(OSError):
            lock = _hold(part, waits=False)
            shutil.rmtree(part, ignore_errors=True)
            os.close(lock)


def protect(*inputs: Path, anew: bool = False) -> None:
    """Protects files and folders that this command reads: writing to them is refused from now on.

    `refuse_input` and `replacing` refuse them as outputs.

    Args:
        inputs: The files and folders. /dev/stdin stands for the file that stdin is redirected from.
            Paths that don't exist are left out.
        anew: Whether the inputs of earlier calls are no longer protected.
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
        path: The output.
        replaces: Whether the output is a folder whose content will be deleted, so that no input may
            lie in it.

    Raises:
        UsageError: The output is an input, or an input lies in it. The message names the input.
    """
    # `samefile` raises an OSError if the output does not exist. Then it can't be an input.
    with suppress(OSError):
        # Inputs that were deleted meanwhile are left out, as `samefile` fails for them as well.
        for input_path in filter(Path.exists, current().part(_Inputs)):
            # New files may be written into a folder that is an input.
            will_be_overwritten = replaces or not path.is_dir()
            if path.samefile(input_path) and will_be_overwritten:
                raise UsageError(
                    f"{path} is an input of this command ({input_path})", remedy=_ANOTHER
                )
            if replaces and input_path.resolve().is_relative_to(path.resolve()):
                raise UsageError(
                    f"{input_path} lies in {path}, which `overwrite=True` would replace",
                    remedy=_ANOTHER,
                )


def refuse_links(*folders: Path) -> None:
    """Refuses folders that are symbolic links, as nothing is written through links.

    Raises:
        UsageError: A folder is a link.
    """
    for folder in folders:
        if folder.is_symlink():
            raise UsageError(
                f"{folder} is a link, and nothing is written through it", remedy=_ANOTHER
            )


@contextmanager
def part_in(folder: Path) -> Iterator[Path]:
    """Yields a new folder `.bertctl-*.part` that this process holds locked, then deletes it.

    Args:
        folder: Folder in which it is made. Parts that dead processes left in it are deleted.
    """
    sweep(folder)
    lock = None
    while lock is None:
        part = folder / f".bertctl-{os.urandom(8).hex()}.part"
        part.mkdir()
        # The `sweep` of another process may delete the part before it is locked. Then a new one is
        # made.
        with suppress(FileNotFoundError):
            lock = _hold(part)
    try:
        yield part
    finally:
        shutil.rmtree(part, ignore_errors=True)
        os.close(lock)


def _hold(part: Path, *, waits: bool = True) -> int:
    """Locks a folder until the descriptor that is returned is closed, or the process dies.

    Args:
        part: The folder.
        waits: Whether to wait for another process that holds it. On a disk without locks, the
            folder is then used without one.

    Raises:
        OSError: The folder is gone. If `waits` is False also: another process holds it, or the disk
            has no locks, so that nobody can tell whether one does.
    """
    descriptor = os.open(part, os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if waits:
            with suppress(OSError):  # the disk has no locks
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Fails if another process has deleted the folder before this one had the lock.
        part.stat()
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
