"""Files of the hub, brought onto this disk.

Downloads go on after a kill, and are hashed before they take their name.

It is huggingface_hub that knows addresses, mirrors, proxies, tokens, the waiting after a 429 or a
lost connection, and the cache. Its own download writes to a new file in each process, so that a
kill loses all of it: here its `http_get` goes on in one file, `blobs/ETAG.bertctl.incomplete`, and
what is whole and right is handed to its cache.
"""

import contextlib
import fcntl
import hashlib
import io
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from bertctl.catalog import patience
from bertctl.catalog.hub_files import MODULES, HubFiles, cached_files, endpoint
from bertctl.catalog.huggingface_internals import client_factory, name_commit, pointer_path
from bertctl.catalog.patience import sign_of_life, within_patience
from bertctl.documents import sha256_of
from bertctl.errors import UnavailableError
from bertctl.progress import SILENT, Listener
from bertctl.session import current
from bertctl.words import human_bytes, human_seconds
from bertctl.writing import open_in_place, write_text

CHUNK_BYTES = 2**16
"""What is written at once, and so the most that a kill loses."""

MOST_WAIT = 300
"""Seconds that a hub may ask to wait (Retry-After, RateLimit): its limits are for five minutes."""

MOST_ANSWER_BYTES = 2**26
"""Bytes of an answer that is no file: the list of 300,000 files has about so many."""

_NAME = re.compile(r"\w[\w.-]*", re.ASCII)


@dataclass(frozen=True)
class RemoteFile:
    """One file as the hub describes it.

    Attributes:
        hub_files: the repository, at the revision that was asked for.
        path: inside the repository.
        commit: Commit at which it is read.
        size: in bytes; None where the hub doesn't say.
        etag: name of its content: SHA-256 of large files, Git's SHA-1 of small ones; a mirror may
            have its own.
        licence: Licence of the repository, as the hub states it; empty if it states none.
    """

    hub_files: HubFiles
    path: str
    commit: str
    size: int | None
    etag: str
    licence: str = ""

    def problem(self, path: Path) -> str:
        """Returns what is wrong with the bytes in a file, or an empty string."""
        size = path.stat().st_size
        if self.size is not None and size != self.size:
            return f"it has {size:,} bytes, and the hub says {self.size:,}"
        # The length of an ETag tells what it is: SHA-256 of large files, Git's SHA-1 of small ones.
        # A mirror's own can't be checked.
        if len(self.etag) == 64:
            sha256 = sha256_of(path)
            if sha256 == self.etag:
                return ""
            return f"its SHA-256 is {sha256}, and the hub says {self.etag}"
        if len(self.etag) == 40:  # Git hashes a file behind a header with its size
            blob = b"blob %d\0" % size + path.read_bytes()
            git_hash = hashlib.sha1(blob, usedforsecurity=False).hexdigest()
            if git_hash == self.etag:
                return ""
            return f"Git's hash of it is {git_hash}, and the hub says {self.etag}"
        return ""


def look_up(files_of_hub: HubFiles, *, licence: bool = False) -> list[RemoteFile]:
    """Returns the files of a repository as the hub describes them; none is downloaded.

    Args:
        files_of_hub: The repository. If it has `patterns`, all files that match one of them are
            looked up, otherwise its `files`.
        licence: Whether to read the repository's description even without `patterns`, for the
            licence in it. If that fails, the licence stays unknown.

    Raises:
        UnavailableError: what answers is no hub, wants to make wait for too long, or has none of
            the files.
        Exception: whatever huggingface_hub raises.
    """
    limit_sessions()
    description: dict[str, Any] = {}
    if files_of_hub.patterns or licence:
        try:
            description = within_patience(
                partial(_description, files_of_hub), f"the list of files of {files_of_hub.repo}"
            )
        except Exception:
            if files_of_hub.patterns:  # without the list nobody knows which files match
                raise
    licences = [
        tag.removeprefix("license:")
        for tag in description.get("tags") or ()
        if tag.startswith("license:")
    ]
    # One commit for all files, even if a branch moves meanwhile.
    at_commit = replace(files_of_hub, revision=description.get("sha") or files_of_hub.revision)
    files = []
    for name in _names_to_fetch(files_of_hub, description):
        file = _remote_file(name, at_commit)
        # It was looked up at the commit. Its `hub_files` have the revision that was asked for,
        # which may be a branch.
        files.append(replace(file, hub_files=files_of_hub, licence=", ".join(licences)))
    if not files:
        raise UnavailableError(
            f"{files_of_hub.repo} has no file that is read of a {files_of_hub.repo_type}"
        )
    return files


def _names_to_fetch(files_of_hub: HubFiles, description: Mapping[str, Any]) -> Sequence[str]:
    """Returns the paths of the files to fetch from a repository, in the order of fetching.

    Args:
        files_of_hub: The repository, with patterns of files or with files.
        description: What the hub says of the repository, with all of its files (`siblings`).
    """
    if not files_of_hub.patterns:
        return files_of_hub.files
    all_names = [sibling["rfilename"] for sibling in description.get("siblings") or ()]
    matching = [name for name in all_names if files_of_hub.matches(name)]
    # With patterns, `files` are those that mark a complete copy. They are fetched last, so that a
    # copy that was broken off has none of them.
    markers = [name for name in matching if name in files_of_hub.files]
    others = [name for name in matching if name not in files_of_hub.files]
    return [*others, *markers]


def _remote_file(name: str, hub_files: HubFiles) -> RemoteFile:
    """Returns a file as the hub describes it, without its licence.

    Args:
        name: Path inside the repository.
        hub_files: The repository and the revision.

    Raises:
        UnavailableError: What answers is no hub.
        Exception: Whatever huggingface_hub raises.
    """
    from huggingface_hub import constants, get_hf_file_metadata, get_token

    ask = partial(
        get_hf_file_metadata,
        hub_files.address(name),
        get_token(),
        constants.HF_HUB_ETAG_TIMEOUT,
        retry_on_errors=True,
    )
    metadata = within_patience(ask, f"what the hub says of {name}")
    etag = metadata.etag or ""
    commit = metadata.commit_hash or ""
    if not (_NAME.fullmatch(etag) and _NAME.fullmatch(commit)):
        raise UnavailableError(
            f"{name} has no ETag or commit, so the server that answers is not a hub"
        )
    return RemoteFile(
        hub_files,
        path=name,
        commit=commit,
        size=metadata.size,
        etag=etag,
    )


def download_files(files: Sequence[RemoteFile], listener: Listener = SILENT) -> Path:
    """Downloads the files of a repository, and returns the folder of their commit in the cache.

    Args:
        files: The files as `look_up` returns them.
        listener: Receives the progress in bytes.

    Raises:
        UnavailableError: bytes that are not what the hub says they are.
        Exception: whatever huggingface_hub raises, or the system of a disk.
    """
    folder = Path()
    for file in files:
        path = _cached_or_downloaded(file, listener)
        # `1_Pooling/config.json` is one folder deeper than the snapshot.
        folder = path.parents[file.path.count("/")]
    if not files:
        return folder

    # The branch gets its commit only now that all files of the commit are here.
    last_file = files[-1]
    hub_files = last_file.hub_files
    name_commit(hub_files.folder, hub_files.requested_revision, last_file.commit)
    if hub_files.matches(MODULES) and not (folder / MODULES).exists():
        with contextlib.suppress(UnavailableError):  # the cache may be read-only
            # huggingface_hub takes an empty file here to mean that the commit has no such file, and
            # asks the hub no more.
            write_text(hub_files.folder / ".no_exist" / last_file.commit / MODULES, "")
    return folder


def _description(hub_files: HubFiles) -> dict[str, Any]:
    """Returns what the hub says of a repository, as JSON: its files, its commit, its tags.

    Raises:
        UnavailableError: The answer is too long.
        Exception: Whatever huggingface_hub raises.
    """
    from huggingface_hub import constants, hf_raise_for_status
    from huggingface_hub.utils import http_stream_backoff  # type: ignore[attr-defined]

    revision = quote(hub_files.requested_revision, safe="")
    repository = f"{hub_files.repo_type}s/{hub_files.repo}"
    address = f"{endpoint()}/api/{repository}/revision/{revision}"
    timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
    with http_stream_backoff(
        "GET",
        address,
        headers=_headers(),
        timeout=timeout,
    ) as answer:
        hf_raise_for_status(answer)
        content = bytearray()
        for piece in answer.iter_bytes(CHUNK_BYTES):
            content += piece
            if len(content) > MOST_ANSWER_BYTES:
                limit = human_bytes(MOST_ANSWER_BYTES)
                raise UnavailableError(
                    f"what the hub says of {hub_files.repo} is longer than {limit}"
                )
    return dict(json.loads(content))


def _headers() -> dict[str, str]:
    """Returns the headers of a request.

    Bytes are asked for as they are, since packed ones may unpack to any size.
    """
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    return {**build_hf_headers(), "Accept-Encoding": "identity"}


class _Growing(io.BufferedWriter):
    """A file that grows by a download: each piece is on the disk at once, so a kill loses little.

    Attributes:
        tell_of: Receives the length after each piece.
        announced: Bytes that the hub says there are; None where it doesn't say.
    """

    tell_of: Callable[[int], None]
    announced: int | None = None

    def write(self, data: Any, /) -> int:
        """Writes a piece of the download, and reports how long the file is now.

        Raises:
            UnavailableError: The hub sends more than it has announced.
        """
        sign_of_life(patience.PIECE_SECONDS)  # the next piece has this time to arrive
        if self.announced is not None and self.tell() + len(data) > self.announced:
            self.truncate(0)  # so that no later download goes on from these bytes
            raise UnavailableError(
                f"the hub sends more than the {self.announced:,} bytes that it has announced"
            )
        size = super().write(data)
        self.flush()
        self.tell_of(self.tell())
        return size


def _cached_or_downloaded(file: RemoteFile, listener: Listener) -> Path:
    """Returns where a file is in the cache; it is downloaded unless it is there and undamaged.

    Raises:
        UnavailableError: The bytes are not what the hub says they are.
        Exception: Whatever huggingface_hub raises, or the system of a disk.
    """
    from huggingface_hub import constants, hf_hub_download

    repo = file.hub_files.repo
    kind = file.hub_files.repo_type
    # The cache has the content of a file under `blobs`. Under the commit, where the file is read,
    # it has a link to this blob.
    blob = file.hub_files.folder / "blobs" / file.etag
    incomplete = blob.with_name(f"{file.etag}.bertctl.incomplete")
    # Without links, the library would copy the blob, and another process could read a copy that is
    # not complete. So the file is downloaded to where it is read.
    if constants.HF_HUB_DISABLE_SYMLINKS:
        blob = pointer_path(file.hub_files.folder, file.commit, file.path)
    at_commit = replace(file.hub_files, revision=file.commit, files=(file.path,))
    cached = cached_files(at_commit).get(file.path, blob)
    for path in (cached, blob):
        if path.is_file() and file.problem(path):  # damaged: it is downloaded again
            path.unlink()
    if not cached.is_file() and not blob.is_file():
        _download(file, blob, incomplete, listener)
        listener.finish(file.path)
    # The library finds the blob, and links it under the commit.
    return Path(
        hf_hub_download(
            repo,
            file.path,
            repo_type=kind,
            revision=file.commit,
            endpoint=endpoint(),
        )
    )


def _download(file: RemoteFile, blob: Path, incomplete: Path, listener: Listener) -> None:
    """Downloads a file under another name, and gives it its own once all bytes are right.

    Args:
        file: As the hub describes it.
        blob: Where the file is to be.
        incomplete: The other name. What an earlier command has downloaded is there.
        listener: Receives how many bytes there are.

    Raises:
        UnavailableError: The bytes are not what the hub says they are.
    """
    for path in (blob, incomplete):
        path.parent.mkdir(parents=True, exist_ok=True)
    with _Growing(io.FileIO(open_in_place(incomplete, os.O_RDWR | os.O_APPEND), "a")) as out:
        fcntl.flock(out, fcntl.LOCK_EX)  # another process may be downloading it
        out.tell_of = partial(listener.advance, file.path, total=file.size or 0)
        out.announced = file.size
        if blob.is_file():  # the other process has just finished
            return
        try:
            within_patience(partial(_load, file, incomplete, out), file.path)
        except KeyboardInterrupt as stop:
            n_bytes = human_bytes(out.seek(0, io.SEEK_END))
            stop.add_note(
                f"{n_bytes} of {file.path} are kept\nThe same command continues from there."
            )
            raise
        incomplete.replace(blob)


def _load(file: RemoteFile, part: Path, out: _Growing) -> None:
    """Downloads what is missing of a file, and checks all of it; wrong bytes are thrown away.

    Args:
        file: As the hub describes it.
        part: The incomplete file.
        out: The same file, open.

    Raises:
        UnavailableError: The bytes are not what the hub says they are.
    """
    from huggingface_hub import constants
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined]

    # The library writes a piece once it is complete. Small pieces show in time that bytes arrive.
    restore = partial(setattr, constants, "DOWNLOAD_CHUNK_SIZE", constants.DOWNLOAD_CHUNK_SIZE)
    current().restore_later("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", restore)
    constants.DOWNLOAD_CHUNK_SIZE = CHUNK_BYTES
    disable_progress_bars("huggingface_hub.http_get")
    n_bytes = out.seek(0, io.SEEK_END)  # that an earlier command has downloaded
    address = replace(file.hub_files, revision=file.commit).address(file.path)
    if file.size and n_bytes > file.size:  # not the beginning of this file
        n_bytes = out.truncate(0)
    http_get(
        address,
        out,
        resume_size=n_bytes,
        headers=_headers(),
        expected_size=file.size,
    )
    problem = file.problem(part)
    if problem:
        # It is emptied, not deleted: other processes wait for the lock on this very file.
        out.truncate(0)
        raise UnavailableError(f"{file.path} is damaged or was changed on its way: {problem}")
    os.fsync(out.fileno())


def limit_sessions() -> None:
    """Limits how long huggingface_hub waits if a server asks it to, or tries again after errors.

    Its HTTP clients call `_limit_answer` for each answer, until the command ends.
    """
    from huggingface_hub import get_session, set_client_factory

    make_client = client_factory()

    def make_limited_client() -> Any:
        """Returns a client with limits. The library makes a new one after a refused connection."""
        client = make_client()
        client.event_hooks = {**client.event_hooks, "response": [_limit_answer]}
        return client

    is_limited = _limit_answer in get_session().event_hooks["response"]
    if not is_limited:
        current().restore_later(
            "clients of huggingface_hub", lambda: set_client_factory(make_client)
        )
        set_client_factory(make_limited_client)


def _limit_answer(response: Any) -> None:
    """Refuses an answer that asks to wait too long, and bounds the body of an error.

    Raises:
        UnavailableError: It asks to wait for more than `MOST_WAIT`.
    """
    if response.is_error:
        wait = _seconds_to_wait(response)
    else:
        wait = 0
    if wait > MOST_WAIT:
        status = f"{response.status_code} {response.reason_phrase}"
        raise UnavailableError(f"{status}, and it asks to wait {human_seconds(wait)}")

    # The time limit must not end the download while huggingface_hub waits and tries again.
    sign_of_life(patience.ANSWER_SECONDS + wait)
    if response.is_error:
        # huggingface_hub reads the whole body for a message. A body that it unpacks could grow to
        # any size, so it is read as it is, up to a limit.
        response.headers.pop("Content-Encoding", None)
        response.stream = _bounded(response.stream)


def _seconds_to_wait(response: Any) -> int:
    """Returns the seconds that an answer asks to wait, by rate-limit headers or `Retry-After`."""
    from huggingface_hub.utils import parse_ratelimit_headers  # type: ignore[attr-defined]

    rate_limit = parse_ratelimit_headers(response.headers)
    if response.status_code == 429 and rate_limit is not None and rate_limit.remaining == 0:
        return int(rate_limit.reset_in_seconds)

    retry_after = response.headers.get("Retry-After", "").strip()
    if retry_after.isdecimal():
        return int(retry_after)
    return 0


def _bounded(stream: Any) -> Any:
    """Returns the body of an answer, which ends in an error beyond `MOST_ANSWER_BYTES`.

    Args:
        stream: A body of httpx or httpx2, whichever huggingface_hub uses.
    """
    # The base class must be that of the library in use.
    base: Any = next(
        parent for parent in type(stream).__mro__ if parent.__name__ == "SyncByteStream"
    )

    class Bounded(base):  # type: ignore[misc]
        def __iter__(self) -> Iterator[bytes]:
            """Yields the pieces of `stream`, the body of an answer that reports an error."""
            n_bytes = 0
            for piece in stream:
                n_bytes += len(piece)
                if n_bytes > MOST_ANSWER_BYTES:
                    raise UnavailableError(
                        f"its error message is longer than {human_bytes(MOST_ANSWER_BYTES)}"
                    )
                yield piece

        def close(self) -> None:
            """Closes the body."""
            stream.close()

    return Bounded()
