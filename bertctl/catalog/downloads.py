"""Files of the hub, brought onto this disk: gone on with after a kill, and hashed before they take their name.

It is huggingface_hub that knows addresses, mirrors, proxies, tokens, the waiting after a 429 or a lost connection, and
the cache. Its own download writes to a new file in each process, so that a kill loses all of it: here its `http_get`
goes on in one file, `blobs/ETAG.bertctl.incomplete`, and what is whole and right is handed to its cache.
"""

import contextlib
import fcntl
import hashlib
import io
import logging
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from bertctl.catalog.hub import HubFiles, endpoint, shown
from bertctl.documents import loading
from bertctl.errors import UnavailableError
from bertctl.progress import SILENT, Listener
from bertctl.words import human_seconds
from bertctl.writing import failures_of

CHUNK_BYTES = 2**16
"""What is written at once, and so the most that a kill loses."""

MOST_WAIT = 300
"""Seconds that a hub may ask to wait (429 with Retry-After): its limits are for five minutes."""

_ETAG = re.compile(r"\w[\w.-]*", re.ASCII)


@dataclass(frozen=True)
class RemoteFile:
    """One file as the hub describes it.

    Attributes:
        path: inside the repository.
        commit: that it is read of.
        size: in bytes; None where the hub doesn't say.
        etag: name of its content: SHA-256 of large files, Git's SHA-1 of small ones; a mirror may have its own.
        sha256: of large files, as the list of files has it; else empty.
    """

    path: str
    commit: str
    size: int | None
    etag: str
    sha256: str = ""

    def problem(self, path: Path) -> str:
        """Returns what is wrong with the bytes in a file, or an empty string."""
        size = path.stat().st_size
        if self.size is not None and size != self.size:
            return f"it has {size:,} bytes, and the hub says {self.size:,}"
        with path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            if wrong := [name for name in (self.sha256, self.etag) if len(name) == 64 and name != sha256]:
                return f"its SHA-256 is {sha256}, and the hub says {wrong[0]}"
            if len(self.etag) == 40:
                file.seek(0)
                git = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
                git.update(file.read())
                return "" if git.hexdigest() == self.etag else "its content is not what the hub's ETag says"
        return ""


@dataclass(frozen=True)
class Remote:
    """A repository at a commit: the files that are wanted of it, and its licence where the hub states one."""

    wanted: HubFiles
    files: tuple[RemoteFile, ...]
    licence: str = ""

    @property
    def size(self) -> int:
        """Is the number of bytes of the files, as far as the hub says it."""
        return sum(file.size or 0 for file in self.files)


@dataclass
class Tally:
    """Counts bytes for a listener.

    Attributes:
        total: bytes of everything.
        done: bytes that are here.
        loaded: bytes that came over the network.
    """

    listener: Listener = SILENT
    total: int = 0
    done: int = 0
    loaded: int = field(default=0)

    def add(self, size: int, file: str, *, loaded: bool = False) -> None:
        """Counts bytes of a file."""
        self.done, self.loaded = self.done + size, self.loaded + (size if loaded else 0)
        self.listener.advance("fetch", self.done, self.total, {"file": file})


def look_up(wanted: HubFiles, *, licence: bool = False) -> Remote:
    """Returns what the hub has of the wanted files; no file is loaded.

    Args:
        wanted: with `patterns`, all files that match one of them; else `files`, all of them.
        licence: whether to ask for the licence where nothing else is to be asked of the repository.

    Raises:
        Exception: whatever huggingface_hub raises.
    """
    from huggingface_hub import get_hf_file_metadata, get_token
    from huggingface_hub.constants import HF_HUB_ETAG_TIMEOUT

    said: dict[str, Any] = {}
    with contextlib.nullcontext() if wanted.patterns else contextlib.suppress(Exception):
        said = _description(wanted) if wanted.patterns or licence else {}
    listed = {each["rfilename"]: each for each in said.get("siblings") or ()}
    names: tuple[str, ...] = wanted.files
    if wanted.patterns:
        fitting = [name for name in listed if any(fnmatch(name, pattern) for pattern in wanted.patterns)]
        names = tuple(name for name in fitting if "/" not in name)
    at = wanted.at(str(said.get("sha") or wanted.revision or "main"))
    files = []
    for name in names:
        there = get_hf_file_metadata(
            at.address(name), token=get_token(), timeout=HF_HUB_ETAG_TIMEOUT, retry_on_errors=True
        )
        etag, commit = there.etag or "", there.commit_hash or ""
        if not (_ETAG.fullmatch(etag) and _ETAG.fullmatch(commit)):
            raise UnavailableError(f"{name} has no ETag or commit: what answers at {shown(endpoint())} is no hub")
        sha256 = (listed.get(name, {}).get("lfs") or {}).get("sha256") or ""
        files.append(RemoteFile(name, commit, there.size, etag, sha256))
    card = said.get("cardData") or {}
    tagged = (tag[8:] for tag in said.get("tags") or () if tag.startswith("license:"))
    stated = card.get("license") or next(tagged, "")
    return Remote(wanted, tuple(files), stated if isinstance(stated, str) else ", ".join(map(str, stated)))


def bring(remote: Remote, store: Path | None, tally: Tally) -> Path:
    """Returns the folder that holds the files of a repository, at their commit, all of them whole.

    Args:
        remote: of `look_up`.
        store: cache folder, in which files stand as such and not as links, so that it can be carried; None for the
            hub's own.
        tally: hears of the bytes.

    Raises:
        UnavailableError: bytes that are not what the hub says they are; a full disk.
        Exception: whatever huggingface_hub raises.
    """
    from huggingface_hub import hf_hub_download

    folder = Path()
    wanted = remote.wanted
    for file in remote.files:
        path = _bring_one(wanted, file, store, tally)
        folder = path.parents[file.path.count("/")]
    if remote.files and (wanted.revision or "main") != folder.name:  # notes which commit the branch or tag is
        hf_hub_download(
            wanted.repo, remote.files[0].path, repo_type=wanted.repo_type, revision=wanted.revision, cache_dir=store,
            endpoint=endpoint(),
        )  # fmt: skip
    return folder


@contextlib.contextmanager
def talking(listener: Listener) -> Iterator[None]:
    """Has what huggingface_hub logs inside (that it waits, or tries again) said to the listener, without secrets."""
    from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined]

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            listener.say(f"hub: {shown(' '.join(record.getMessage().split()))}")

    logger = logging.getLogger("huggingface_hub")
    before, logger.handlers = logger.handlers, [Handler(logging.WARNING)]
    disable_progress_bars("huggingface_hub.http_get")
    try:
        yield
    finally:
        logger.handlers = before


def _description(wanted: HubFiles) -> dict[str, Any]:
    """Returns what the hub says of a repository: its commit, files and licence."""
    from huggingface_hub.constants import HF_HUB_DOWNLOAD_TIMEOUT
    from huggingface_hub.utils import build_hf_headers, hf_raise_for_status, http_backoff  # type: ignore[attr-defined]

    _refuse_long_waits()
    address = f"{endpoint()}/api/{wanted.repo_type}s/{wanted.repo}/revision/{wanted.revision or 'main'}"
    answer = http_backoff(
        "GET", address, params={"blobs": True}, headers=build_hf_headers(), timeout=HF_HUB_DOWNLOAD_TIMEOUT
    )
    hf_raise_for_status(answer)
    with loading(f"the hub's description of {wanted.repo}", kind=UnavailableError):
        said: dict[str, Any] = answer.json()
        return said


class _Growing(io.BufferedWriter):
    """A file that is written through, so that a kill keeps what has come, and that tells of each piece."""

    tell_of: Callable[[int], None]

    def write(self, data: Any, /) -> int:
        size = super().write(data)
        self.flush()
        self.tell_of(size)
        return size


def _bring_one(wanted: HubFiles, file: RemoteFile, store: Path | None, tally: Tally) -> Path:
    from huggingface_hub import hf_hub_download, try_to_load_from_cache
    from huggingface_hub.constants import HF_HUB_CACHE
    from huggingface_hub.file_download import repo_folder_name

    kind, commit = wanted.repo_type, file.commit
    there = try_to_load_from_cache(wanted.repo, file.path, cache_dir=store, revision=commit, repo_type=kind)
    if isinstance(there, str):
        if not file.problem(Path(there)):
            tally.add(Path(there).stat().st_size, file.path)
            return Path(there)
        Path(there).resolve().unlink()
        Path(there).unlink(missing_ok=True)
    folder = Path(store or HF_HUB_CACHE) / repo_folder_name(repo_id=wanted.repo, repo_type=kind)
    blob = folder / "blobs" / file.etag
    part = blob.with_name(f"{file.etag}.bertctl.incomplete")
    with failures_of(part):
        blob.parent.mkdir(parents=True, exist_ok=True)
        if blob.exists() and file.problem(blob):
            blob.unlink()
        with _Growing(io.FileIO(part, "a")) as out:
            out.tell_of = lambda size: tally.add(size, file.path, loaded=True)
            fcntl.flock(out, fcntl.LOCK_EX)  # another process may be loading it
            if not blob.exists():
                _load(wanted, file, part, out, tally)
                os.fsync(out.fileno())
                part.replace(blob)
            part.unlink(missing_ok=True)
    path = Path(
        hf_hub_download(wanted.repo, file.path, repo_type=kind, revision=commit, cache_dir=store, endpoint=endpoint())
    )
    if store is not None and path.is_symlink():
        path.resolve().replace(path)
    return path


def _load(wanted: HubFiles, file: RemoteFile, part: Path, out: _Growing, tally: Tally) -> None:
    """Loads what is missing of a file; once more as a whole where what was there does not go with it."""
    from huggingface_hub import constants
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    _refuse_long_waits()
    before, constants.DOWNLOAD_CHUNK_SIZE = constants.DOWNLOAD_CHUNK_SIZE, CHUNK_BYTES
    try:
        while True:
            if file.size is not None and out.tell() > file.size:
                out.truncate(0)
            begun = out.seek(0, io.SEEK_END)
            tally.add(begun, file.path)
            address = wanted.at(file.commit).address(file.path)
            http_get(address, out, resume_size=begun, headers=build_hf_headers(), expected_size=file.size)
            problem = file.problem(part)
            if not problem:
                return
            tally.add(-out.tell(), file.path)
            out.truncate(0)
            out.seek(0)
            if not begun:
                part.unlink()
                raise UnavailableError(f"{file.path} of {wanted.repo} is damaged or was changed on its way: {problem}")
    except OSError as error:
        if error.errno is not None:
            raise
        raise UnavailableError(
            f"{file.path} of {wanted.repo}: {shown(str(error).partition('.' + chr(10))[0])}"
        ) from error
    finally:
        constants.DOWNLOAD_CHUNK_SIZE = before


def _refuse_long_waits() -> None:
    """Has the session of huggingface_hub end where a hub asks to wait for longer than a job should."""
    from huggingface_hub import get_session

    hooks = get_session().event_hooks
    if _end_long_wait not in hooks["response"]:
        get_session().event_hooks = {**hooks, "response": [*hooks["response"], _end_long_wait]}


def _end_long_wait(response: Any) -> None:
    wait = response.headers.get("Retry-After", "")
    if response.status_code == 429 and wait.isdigit() and int(wait) > MOST_WAIT:
        raise UnavailableError(
            f"the hub has had too many requests (429) and asks to wait {human_seconds(int(wait))}",
            remedy="Try again then. With HF_TOKEN it allows more; HF_ENDPOINT names a mirror.",
        )
