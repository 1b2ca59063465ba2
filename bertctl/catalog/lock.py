"""`bertctl.lock`: the files that commands read from elsewhere, by hash; and the door at which each is looked at.

What finds a file (`locate_model`, the hub's door, the readers of data) tells `noted` of it before it is read. While
`recording`, what is noted is kept, so that a lock is made of what a run reads. Where a lock is in force, which
`--locked` says, whatever it does not have is refused.
"""

import contextlib
import functools
import hashlib
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from bertctl.documents import read_json
from bertctl.errors import DataError, UnavailableError
from bertctl.words import did_you_mean, listing
from bertctl.writing import write_json

LOCK_NAME = "bertctl.lock"
LOCKED = "BERTCTL_LOCKED"
"""Environment variable that names the lock in force: a file, or the folder that it is in."""

SCHEMA = 1
_COMMIT = re.compile(r"\w[\w.-]*", re.ASCII)
_REPO = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?", re.ASCII)
_ANEW = "Make it anew: bertctl fetch RECIPE..."

Kind = Literal["model", "dataset"]


@dataclass(frozen=True)
class Found:
    """Files that are about to be read.

    Attributes:
        kind: what they are of.
        name: the hub's repository; what is of this disk (the package, a folder, a person's file) is called as in the
            catalog, or by the last word of its path.
        files: path inside the repository or folder -> where the file is.
        asked: the revision of the hub that was asked for; empty for what is of this disk.
        revision: its commit.
        whole: whether these are all files of it that are read, so that none may be missing.
    """

    kind: Kind
    name: str
    files: Mapping[str, Path]
    asked: str = ""
    revision: str = ""
    whole: bool = False


@dataclass(frozen=True)
class LockedFile:
    """Content of one file: its SHA-256 and its size."""

    sha256: str
    bytes: int


@dataclass(frozen=True)
class Part:
    """What a lock has of one repository or one thing of this disk; the attributes are those of `Found`.

    Attributes:
        licence: as the hub states it; empty where it doesn't.
    """

    kind: Kind
    name: str
    asked: str = ""
    revision: str = ""
    licence: str = ""
    files: dict[str, LockedFile] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Is the number of bytes of all its files."""
        return sum(file.bytes for file in self.files.values())

    def problem(self, found: Found, lock: Path) -> str:
        """Returns which of the found files is not as this part has it, and how; an empty string if all are."""
        for name, path in found.files.items():
            if name not in self.files:
                return f"{path}: {lock} has no {name} of {self.name}"
            if not path.is_file():
                return f"{path} is no regular file, so that it can't be held against {lock}"
            sha256 = file_sha256(path)
            if sha256 != self.files[name].sha256:
                return f"{path} is not the file in {lock}: its SHA-256 is {sha256}, not {self.files[name].sha256}"
        missing = [name for name in self.files if name not in found.files]
        return f"{self.name} lacks {missing[0]}, which {lock} has" if found.whole and missing else ""


@dataclass(frozen=True)
class Lock:
    """A lock: what may be read.

    Attributes:
        path: its file.
        parts: what it has.
        folder: name of the folder beside it that holds the hub's files; empty where they are in the hub's cache.
    """

    path: Path
    parts: tuple[Part, ...]
    folder: str = ""

    @property
    def store(self) -> Path | None:
        """Is where the hub's files are kept; None for the hub's cache."""
        return self.path.parent / self.folder if self.folder else None

    def document(self) -> dict[str, Any]:
        """Returns what stands in the file."""
        return {"schema": SCHEMA, "folder": self.folder, "parts": [asdict(part) for part in self.parts]}

    def digest(self) -> str:
        """Returns a hash of what it has, wherever that lies."""
        return hashlib.sha256(repr(self.parts).encode()).hexdigest()

    def revision(self, kind: Kind, repo: str, asked: str) -> str:
        """Returns the commit of a repository of the hub.

        Raises:
            UnavailableError: the lock does not have it.
        """
        for part in self.parts:
            if (part.kind, part.name) == (kind, repo) and asked in (part.asked, part.revision):
                return part.revision
        raise self._missing(kind, repo, asked)

    def check(self, found: Found) -> None:
        """Looks at files that are about to be read.

        Raises:
            UnavailableError: one of them is not what the lock has, or the lock does not have them.
        """
        same = [part for part in self.parts if (part.kind, part.name) == (found.kind, found.name)]
        problems = [part.problem(found, self.path) for part in same if part.revision == found.revision]
        if not problems:
            raise self._missing(found.kind, found.name, found.asked)
        if all(problems):
            where = next((path for path in found.files.values() if str(path) in problems[0]), self.path)
            raise UnavailableError(
                problems[0],
                remedy=f"`bertctl fetch` beside {self.path} brings the hub's files anew. If another file is meant, "
                "lock that: bertctl fetch RECIPE...",
                file=where,
            )

    def _missing(self, kind: Kind, name: str, asked: str) -> UnavailableError:
        known = [part.name for part in self.parts if part.kind == kind]
        hint = did_you_mean(name, known)
        at = f" at {asked}" if asked and name in known else ""
        return UnavailableError(
            f"the {kind} {name}{at} is not in {self.path}" + (f": {hint}" if hint else ""),
            remedy=f"It has {listing([part.name for part in self.parts]) or 'nothing'}. Lock what you mean: "
            "bertctl fetch RECIPE... (or leave --locked out).",
            file=self.path,
        )


_recorded: ContextVar[list[Found] | None] = ContextVar("recorded", default=None)
_held: ContextVar[Lock | None] = ContextVar("held", default=None)


@contextlib.contextmanager
def recording() -> Iterator[list[Found]]:
    """Yields a list that gets everything which is noted inside."""
    found: list[Found] = []
    token = _recorded.set(found)
    try:
        yield found
    finally:
        _recorded.reset(token)


@contextlib.contextmanager
def held_to(lock: Lock) -> Iterator[None]:
    """Puts a lock in force inside."""
    token = _held.set(lock)
    try:
        yield
    finally:
        _held.reset(token)


def noted(found: Found) -> None:
    """Hears of files that are about to be read.

    Raises:
        UnavailableError: a lock is in force, and they are not what it has.
        DataError: the lock is not what it should be.
    """
    if (recorded := _recorded.get()) is not None:
        recorded.append(found)
    if (lock := in_force()) is not None:
        lock.check(found)


def in_force() -> Lock | None:
    """Returns the lock of `held_to`, or that which BERTCTL_LOCKED names; None where there is none."""
    if (held := _held.get()) is not None:
        return held
    given = os.environ.get(LOCKED)
    return _read_once(lock_file(given)) if given else None


def enforce() -> None:
    """Puts the lock in force, for this process and those that it starts: what BERTCTL_LOCKED names, else that in here.

    Raises:
        UnavailableError: there is none.
        DataError: it is not what it should be.
    """
    path = lock_file(os.environ.get(LOCKED) or "")
    _read_once(path)
    os.environ[LOCKED] = str(path)


def lock_file(given: str | Path) -> Path:
    """Returns the absolute path of a lock, of which the file or its folder is given."""
    path = Path(given).expanduser().absolute()
    return path / LOCK_NAME if path.is_dir() else path


def read_lock(path: Path) -> Lock:
    """Returns the lock in a file.

    Raises:
        UnavailableError: there is none.
        DataError: another version, or something in it is wrong: a path that leads out of its folder, a hash.
    """
    if not path.is_file():
        raise UnavailableError(
            f"there is no lock {path}",
            remedy=f"Make one: bertctl fetch RECIPE... It is looked for as {LOCK_NAME} in the current folder, or "
            f"where {LOCKED} says.",
            file=path,
        )
    document = read_json(path, "lock", kind=DataError, remedy=_ANEW)
    parts = []
    for number, part in enumerate(document["parts"]):
        repo, revision = part["name"], part["revision"]
        out = [name for name in (document["folder"], *part["files"]) if not _is_inside(name)]
        if out or (revision and not (_COMMIT.fullmatch(revision) and _REPO.fullmatch(repo))):
            wrong = (
                f"the path {out[0]!r:.80} leads out of its folder" if out else f"{repo}@{revision} is not of the hub"
            )
            raise DataError(f"{path}: parts.{number}: {wrong}", remedy=_ANEW, file=path)
        files = {name: LockedFile(file["sha256"], file["bytes"]) for name, file in part["files"].items()}
        parts.append(Part(part["kind"], repo, part["asked"], revision, part["licence"], files))
    return Lock(path, tuple(parts), document["folder"])


def write_lock(lock: Lock) -> None:
    """Replaces a lock's file."""
    write_json(lock.path, lock.document())


def parts_of(found: Iterable[Found], licences: Mapping[str, str]) -> tuple[Part, ...]:
    """Returns what a lock has of files that were found, by kind and name; two files of one name are in two parts.

    Args:
        found: in any order.
        licences: of repositories, by name.
    """
    parts: dict[tuple[str, str, str, str, int], Part] = {}
    for each in found:
        files = {name: LockedFile(file_sha256(path), path.stat().st_size) for name, path in each.files.items()}
        empty = Part(each.kind, each.name, each.asked, each.revision, licences.get(each.name, ""))
        for number in itertools.count():
            key = (each.kind, each.name, each.asked, each.revision, number)
            there = parts.get(key, empty)
            if all(there.files.get(name, file) == file for name, file in files.items()):
                parts[key] = replace(there, files=dict(sorted({**there.files, **files}.items())))
                break
    return tuple(parts[key] for key in sorted(parts))


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return not (path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name)


_read_once = functools.cache(read_lock)


@functools.cache
def file_sha256(path: Path) -> str:
    """Returns the SHA-256 of a file's bytes, in hexadecimal; each file is read once per process."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
