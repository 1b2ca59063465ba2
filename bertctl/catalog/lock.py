"""`bertctl.lock`: the files that commands read from elsewhere, by hash.

Whatever finds such files (`locate_model`, the functions of `hub`, the readers of data) passes them
to `check_or_record` before they are read. Inside of `recording` they are recorded, so that a lock
is made of what a run reads. Where a lock is in force (`--locked`), files that it does not have are
refused.
"""

import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bertctl.catalog.huggingface_internals import set_hub_variable
from bertctl.config.recipe_files import expanded_path
from bertctl.documents import read_json_document, sha256_of
from bertctl.errors import DataError, UnavailableError
from bertctl.session import current
from bertctl.words import listing

LOCK_NAME = "bertctl.lock"
LOCKED = "BERTCTL_LOCKED"
"""Environment variable that names the lock in force: a file, or the folder that it is in."""

# A path with "..", from the root, or with a backslash or a null byte.
_LEADS_OUT = re.compile(r"(^|/)\.\.(/|$)|^/|[\\\0]")

_LOCK_AGAIN = (
    "`bertctl fetch` brings what the lock has of the hub; `bertctl fetch RECIPE...` locks the "
    "files that are here now."
)

Kind = Literal["model", "dataset"]


@dataclass(frozen=True)
class FilesToRead:
    """Files that are about to be read.

    Attributes:
        kind: whether they are of a model or a data set.
        name: the hub's repository; what is of this disk (the package, a folder, a person's file) is
            called as in the catalog, or by the last word of its path.
        files: path inside the repository or folder -> where the file is.
        asked: the revision of the hub that was asked for; empty for what is of this disk.
        revision: the commit that it stands for.
        whole: whether these are all files of it that are read, so that none may be missing.
    """

    kind: Kind
    name: str
    files: Mapping[str, Path]
    asked: str = ""
    revision: str = ""
    whole: bool = False


@dataclass(frozen=True)
class Lock:
    """Lock: the files that a command may read, by hash.

    Attributes:
        path: the lock's file.
        parts: one for each repository or thing of this disk, as `schemas/lock.json` describes them.
        folder: name of the folder beside it that holds the hub's files; empty where they are in the
            hub's cache.
    """

    path: Path
    parts: Sequence[Mapping[str, Any]] = ()
    folder: str = ""

    def parts_of(self, kind: Kind, name: str, revision: str) -> Sequence[Mapping[str, Any]]:
        """Returns the parts of the lock for a model or data set.

        Args:
            kind: `model` or `dataset`.
            name: Name of the repository, or of the file or folder on this disk.
            revision: Branch, tag or commit; empty for what is on this disk.

        Raises:
            UnavailableError: The lock has none.
        """
        parts_of_name = [
            part for part in self.parts if (part["kind"], part["name"]) == (kind, name)
        ]
        matching = [part for part in parts_of_name if revision in (part["asked"], part["revision"])]
        if matching:
            return matching
        at_revision = f" at {revision}" if revision else ""
        message = f"the {kind} {name}{at_revision} is not in {self.path}"
        has = f"It has {listing([part['name'] for part in self.parts]) or 'nothing'}."
        what_to_name = name if kind == "model" else "MODEL"
        remedy = (
            f"{has} Lock all that is used: `bertctl fetch RECIPE`, or `bertctl fetch FILE "
            f"{what_to_name}`."
        )
        raise UnavailableError(message, remedy=remedy, file=self.path)

    def check(self, snapshot: FilesToRead) -> None:
        """Refuses files that differ from the lock.

        Raises:
            UnavailableError: A file differs from the lock, or the lock does not have the model or
                data set.
        """
        # Files on this disk are locked under the last word of their path. So the lock may have
        # several parts of one name, and the files must fit one of these parts.
        parts = self.parts_of(snapshot.kind, snapshot.name, snapshot.revision)
        problems = [self._problem(part["files"], snapshot) for part in parts]
        fits_one_part = "" in problems
        if fits_one_part:
            return
        problem = problems[-1]
        # A problem of a single file begins with its path.
        file = self.path
        for path in snapshot.files.values():
            if problem.startswith(str(path)):
                file = path
                break
        raise UnavailableError(problem, remedy=_LOCK_AGAIN, file=file)

    def _problem(self, locked: Mapping[str, Any], snapshot: FilesToRead) -> str:
        """Returns which of the files differs from the lock, and how; empty if none does.

        Args:
            locked: Files of one part of the lock: path -> SHA-256 and size.
            snapshot: The files that are about to be read.
        """
        for name, path in snapshot.files.items():
            if name not in locked or not path.is_file():
                return f"{path}: {self.path} has no such file of {snapshot.name}"
            sha256 = file_sha256(path)
            if sha256 != locked[name]["sha256"]:
                return (
                    f"{path} is not the file in {self.path}: its SHA-256 is {sha256}, not "
                    f"{locked[name]['sha256']}"
                )
        missing = [name for name in locked if name not in snapshot.files]
        if snapshot.whole and missing:
            return f"{missing[0]} of {snapshot.name} is missing, and {self.path} has it"
        return ""


_recorded: ContextVar[list[FilesToRead] | None] = ContextVar("recorded", default=None)


@contextlib.contextmanager
def recording() -> Iterator[list[FilesToRead]]:
    """Yields a list that gets all files which are read inside the context."""
    snapshots: list[FilesToRead] = []
    token = _recorded.set(snapshots)
    try:
        yield snapshots
    finally:
        _recorded.reset(token)


def check_or_record(snapshot: FilesToRead) -> None:
    """Records files that are about to be read, and checks them against the lock.

    They are recorded inside of `recording`, and checked if a lock is in force.

    Raises:
        UnavailableError: a lock is in force, and they are not what it has.
        DataError: the lock is not what it should be.
    """
    recorded = _recorded.get()
    if recorded is not None:
        recorded.append(snapshot)
    lock = in_force()
    if lock is not None:
        lock.check(snapshot)


def in_force() -> Lock | None:
    """Returns the lock that BERTCTL_LOCKED names; None where it names none."""
    if os.environ.get(LOCKED):
        return read_lock(lock_file())
    return None


def enforce() -> None:
    """Puts the lock in force for this process and those that it starts.

    It is the lock that BERTCTL_LOCKED names, else the one in the current folder.

    Raises:
        UnavailableError: there is none.
        DataError: it is not what it should be.
    """
    lock = read_lock(lock_file())
    current().set_variable(LOCKED, str(lock.path))
    if lock.folder:
        set_hub_variable("HF_HUB_CACHE", str(lock.path.parent / lock.folder))


def lock_file() -> Path:
    """Returns the absolute path of the lock.

    BERTCTL_LOCKED names it; otherwise it lies in the current folder.
    """
    path = expanded_path(os.environ.get(LOCKED, "")).absolute()
    if path.is_dir():
        return path / LOCK_NAME
    return path


def read_lock(path: Path) -> Lock:
    """Returns the lock in a file.

    Raises:
        UnavailableError: there is none.
        DataError: another version, or something in it is wrong: a path that leads out of its
            folder.
    """
    remedy = (
        f"Make one: bertctl fetch RECIPE... It is {LOCK_NAME} in the current folder, or where "
        f"{LOCKED} says."
    )
    if not path.is_file():
        raise UnavailableError(f"no such lock: {path}", remedy=remedy, file=path)
    from bertctl.run_documents.lock_document import LockDocument

    document = read_json_document(path, LockDocument, kind=DataError, remedy=remedy)
    names = [document.folder]
    for part in document.parts:
        names += [part.name, part.revision, *part.files]
    for name in names:
        if _LEADS_OUT.search(name):
            raise DataError(
                f"{path}: {name!r:.80} leads out of the lock's folder", remedy=remedy, file=path
            )
    return Lock(path, [part.as_json() for part in document.parts], document.folder)


class _Hashes(dict[Path, tuple[tuple[int, int, int], str]]):
    """Path -> inode, size and time of change of a file that was read, and its SHA-256."""


def file_sha256(path: Path) -> str:
    """Returns a file's SHA-256; a command reads each file once for it, until the file changes."""
    hashes = current().part(_Hashes)
    status = path.stat()
    state = (status.st_ino, status.st_size, status.st_mtime_ns)
    known_state, sha256 = hashes.get(path, (None, ""))
    if known_state != state:
        sha256 = sha256_of(path)
        hashes[path] = (state, sha256)
    return sha256


def forget_hashes() -> None:
    """Forgets the SHA-256 of all files: each is read again."""
    current().part(_Hashes).clear()
