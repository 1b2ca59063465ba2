"""The one door to the hub: files by name.

They come from the cache if they are there, else over the network, soon or never.

Nothing here imports torch or transformers.
"""

import contextlib
import logging
import os
import threading
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Literal

from bertctl.catalog import patience
from bertctl.catalog.hub_files import MODULES, HubFiles, cache_folder, cached_files, endpoint
from bertctl.catalog.lock import FilesToRead, check_or_record, in_force
from bertctl.documents import weight_files
from bertctl.errors import UnavailableError
from bertctl.progress import SILENT, Listener
from bertctl.session import current
from bertctl.words import without_secrets

Names = Sequence[str]

REACH_SECONDS = 5.0
"""How long the hub may take for its first answer; `bertctl` ends within 10 s where there is
none."""

_cache_only: ContextVar[Literal["no", "yes", "as if empty"]] = ContextVar(
    "cache_only", default="no"
)


class NotCachedError(UnavailableError):
    """Something is not on this disk, and the hub was not asked (see `cache_only`)."""

    def __init__(self, message: str, *, remedy: str, hub_files: HubFiles) -> None:
        super().__init__(message, remedy=remedy)
        self.hub_files = hub_files


@contextlib.contextmanager
def cache_only(*, as_if_empty: bool = False) -> Iterator[None]:
    """Takes files from the disk alone inside the context.

    A file that isn't there raises `NotCachedError`, whether or not the hub can be reached.

    Args:
        as_if_empty: Treat the cache as empty. The first look-up raises `NotCachedError` then, and
            its `hub_files` tell what is needed, whether or not it is on this disk.
    """
    token = _cache_only.set("as if empty" if as_if_empty else "yes")
    try:
        yield
    finally:
        _cache_only.reset(token)


@contextlib.contextmanager
def cut_off() -> Iterator[None]:
    """Keeps the hub's library from any connection inside the context.

    Files of a local folder may name files on the hub, which the library would download.
    """
    from huggingface_hub import constants

    was_offline = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = was_offline


def is_offline() -> bool:
    """Returns whether no connection may be tried, by the variables that `--offline` sets, too."""
    return any(
        os.environ.get(name, "").lower() in ("1", "true", "yes", "on")
        for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    )


def fetch_file(
    repo: str, filename: str, *, revision: str | None, noun: str, ways: Sequence[str]
) -> Path:
    """Returns a file of a hub repository of data, on this disk.

    Args:
        repo: `org/name`.
        filename: path inside the repository.
        revision: commit, tag or branch; with a commit the cache answers without any connection.
        noun: what the file is called in messages.
        ways: remedies, one per line: the other ways to have it.

    Raises:
        UnavailableError: offline and not cached, no answer, or not there.
    """
    files = _pinned(HubFiles(repo, "dataset", revision, (filename,)))
    path = cached_files(files).get(filename)
    # Inside `cache_only(as_if_empty=True)` the file counts as missing, though it may be cached.
    is_cache_ignored = _cache_only.get() == "as if empty"
    if path is None or is_cache_ignored:
        path = _fetched(files, f"{repo}/{filename}", noun, ways) / filename
    commit = path.parents[filename.count("/")].name  # the folder of a snapshot is called so
    check_or_record(
        FilesToRead(
            kind="dataset",
            name=repo,
            files={filename: path},
            asked=revision or "main",
            revision=commit,
        )
    )
    return path


def fetch_folder(
    repo: str,
    *,
    revision: str | None,
    patterns: Names,
    needed: Sequence[Names],
    noun: str,
    ways: Names,
) -> Path:
    """Returns the files of a hub model repository that match `patterns`, as a folder on this disk.

    Args:
        repo: Id of the repository.
        revision: Branch, tag or commit; the default branch for None.
        patterns: Patterns of the files' names.
        needed: Groups of file names, of which one file each is needed: those of the tokenizer, and
            last those of the weights, if they are needed. A cached copy is taken without a
            connection only if it has a file of each group: other programs cache single files, too.
        noun: What the files are called in messages.
        ways: Other ways to get them, for the remedy of an error.

    Raises:
        UnavailableError: offline and not cached, no answer, or not there.
    """
    last_group = needed[-1]
    files = _pinned(
        HubFiles(
            repo,
            repo_type="model",
            revision=revision,
            files=tuple(last_group),  # a copy with one of them was fetched to its end
            patterns=tuple(patterns),
        )
    )
    folder = _complete_copy(files, needed)
    if folder is None:
        folder = _fetched(files, repo, noun, ways)
    file_paths = files.found_in(folder)
    # If only the tokenizer is read, the lock may have more files than these.
    reads_weights = "model.safetensors" in last_group
    check_or_record(
        FilesToRead(
            kind="model",
            name=repo,
            files=file_paths,
            asked=revision or "main",
            revision=folder.name,
            whole=reads_weights,
        )
    )
    return folder


def _complete_copy(files: HubFiles, needed: Sequence[Names]) -> Path | None:
    """Returns the folder of a cached copy that can be read without a connection, or None.

    Args:
        files: The files that match its patterns are read.
        needed: Groups of names; the copy must have a file of each group.
    """
    groups = (["config.json"], *needed)
    cached = cached_files(replace(files, files=tuple(chain(*groups))))
    if _cache_only.get() == "as if empty":
        return None
    has_all_groups = all(cached.keys() & names for names in groups)
    if not has_all_groups:
        return None
    folder = cached["config.json"].parent
    has_broken_links = not all(path.exists() for path in files.found_in(folder).values())
    if has_broken_links:
        return None
    # Of a model in parts, transformers loads this file first.
    index = cached.get("model.safetensors.index.json")
    if index is not None and not all(part.exists() for part in weight_files(index)):
        return None
    # If transformers cached the copy, it lacks the file of sentence-transformers that names the
    # pooling, which transformers never loads. So the copy counts as incomplete, unless the cache
    # knows that the repository has no such file, or the hub can't be asked for it.
    lacks_modules = files.matches(MODULES) and not _is_known(files, MODULES)
    may_ask_hub = _cache_only.get() == "no"
    if lacks_modules and may_ask_hub and not unreachable():
        return None
    return folder


def _is_known(hub_files: HubFiles, file: str) -> bool:
    """Returns whether a file is in the cache, or noted there as one that the repository has not."""
    from huggingface_hub import try_to_load_from_cache

    return (
        try_to_load_from_cache(
            hub_files.repo,
            file,
            revision=hub_files.revision,
            repo_type=hub_files.repo_type,
        )
        is not None
    )


def remote_size(hub_files: HubFiles) -> int | None:
    """Returns the bytes of the first file that the hub has; None if the hub does not say them.

    Only headers are read.

    Raises:
        UnavailableError: offline, no answer, or the hub has none of them for this token.
    """
    from huggingface_hub import get_hf_file_metadata, get_token

    problem = unreachable(hub_files.address(hub_files.files[0]))
    if problem:
        raise UnavailableError(f"the hub can't be asked: {problem}")
    reasons = []
    for file in hub_files.files:
        try:
            return get_hf_file_metadata(
                hub_files.address(file), token=get_token(), timeout=REACH_SECONDS
            ).size
        # Whatever the library raises, the file can't be had.
        except Exception as error:  # noqa: BLE001
            reasons.append(f"{file}: {_error_summary(error)}")
    raise UnavailableError(
        masked(f"the hub at {endpoint()} does not give {hub_files.repo}: {'; '.join(reasons)}")
    )


def unreachable(address: str | None = None) -> str:
    """Returns why the hub can't be reached, or an empty string.

    A command asks it once, and never offline.

    Args:
        address: Address of a file that is needed; None asks for the config.json of BERT-base.
    """
    if is_offline():
        return "offline mode is on"
    if not address:
        bert_base = HubFiles("google-bert/bert-base-uncased", "model", None, ())
        address = bert_base.address("config.json")
    return _reach(address)


def has_token() -> bool:
    """Returns whether requests to the hub have a token (`HF_TOKEN`, or an earlier login)."""
    from huggingface_hub import get_token

    return bool(get_token())


def _pinned(hub_files: HubFiles) -> HubFiles:
    """Returns the files at the commit that the lock in force has; refuses what it has not."""
    lock = in_force()
    if lock is None:
        return hub_files
    [part, *_] = lock.parts_of(hub_files.repo_type, hub_files.repo, hub_files.requested_revision)
    return replace(hub_files, revision=part["revision"])


def _fetched(files: HubFiles, hub_name: str, noun: str, ways: Names) -> Path:
    """Returns the folder with files that are downloaded, unless the cache alone may be read.

    Args:
        files: To download.
        hub_name: What the hub calls them.
        noun: What the user calls them, for messages.
        ways: Other ways to have them, for the remedy.

    Raises:
        NotCachedError: Only the cache may be read.
        UnavailableError: Offline, no answer, or the hub does not have them.
    """
    message = f"{noun} ({hub_name} on the hub)"
    remedy = "\n  - ".join([f"Ways to have {noun}:", *ways])
    may_ask_hub = _cache_only.get() == "no"
    if not may_ask_hub:
        raise NotCachedError(f"{message} is not in the cache", remedy=remedy, hub_files=files)
    from bertctl.catalog.downloads import download_files, look_up

    branch = files.folder / "refs" / files.requested_revision
    # If other files of the branch are cached, this one is fetched of their commit, too.
    if not files.patterns and branch.is_file():
        files = replace(files, revision=branch.read_text())
    with hub_access(files, message, remedy):
        return download_files(look_up(files))


@contextlib.contextmanager
def hub_access(
    hub_files: HubFiles, noun: str, ways: str = "", listener: Listener = SILENT
) -> Iterator[None]:
    """Refuses a hub that can't be reached, and turns errors of its library into `UnavailableError`.

    Args:
        hub_files: Files that are asked for inside the context.
        noun: What the files are called in messages.
        ways: Other ways to have the files, for the remedy.
        listener: Receives what the library logs: that it waits, or tries again.

    Raises:
        UnavailableError: offline, no answer, or any error inside.
    """
    if is_offline():
        raise UnavailableError(f"{noun} is not in the cache, and offline mode is on", remedy=ways)
    # The request is for a file that is needed: the hub's front page may answer where files do not.
    probe = "config.json" if hub_files.patterns else "".join(hub_files.files[:1])
    problem = _reach(hub_files.address(probe))
    if problem:
        problem = (
            f"{noun} is not in the cache, and the hub at {endpoint()} can't be reached: {problem}"
        )
        raise UnavailableError(masked(problem), remedy=ways)

    def pass_on(record: logging.LogRecord) -> bool:
        """Passes a message of the library on to the listener, and keeps it from stderr."""
        # The library logs that it waits or tries again, which takes time for one more answer.
        patience.sign_of_life(patience.ANSWER_SECONDS)
        listener.say(f"hub: {masked(' '.join(record.getMessage().split()))}")
        return False

    from huggingface_hub.utils.logging import get_logger

    handler, *_ = get_logger().handlers
    handler.addFilter(pass_on)
    try:
        yield
    except Exception as error:
        if isinstance(error, UnavailableError):
            reason = error.message
        else:
            reason = _error_summary(error)
        is_of_disk = isinstance(error, OSError) and error.errno
        if is_of_disk:
            advice = (
                f"Is there room on {cache_folder()}, and may you write there? HF_HOME names "
                "another place."
            )
        else:
            advice = _ADVICE
        remedy = f"{advice}\n{ways}".strip()
        raise UnavailableError(f"{noun} can't be had: {masked(reason)}", remedy=remedy) from error
    finally:
        handler.removeFilter(pass_on)


_ADVICE = (
    "Name and revision may be wrong (404). Private or gated repositories (401, 403) and many "
    "requests (429) take a\ntoken, HF_TOKEN. HF_ENDPOINT names a mirror. `bertctl fetch` continues "
    "where a download has ended."
)


def masked(text: str) -> str:
    """Returns a text with *** for the secrets in it: tokens, passwords, signatures of addresses."""
    from huggingface_hub import get_token

    token = get_token() or "\0"  # without a token, something that is in no text
    return without_secrets(text).replace(token, "***")


class _Answers(dict[str, str]):
    """Hub -> why it can't be reached, or an empty string. A command asks each hub only once."""


def _reach(address: str) -> str:
    """Returns why the hub can't be reached, or an empty string. A command asks once per hub.

    The request has a thread of its own, because looking up a name, and an answer that drips, have
    no time limit.

    Args:
        address: Address of a file that is needed.
    """
    hub = endpoint()
    answers = current().part(_Answers)
    if hub not in answers:
        problems: list[str] = []
        request = threading.Thread(
            target=lambda: problems.append(_ask(masked(address))), daemon=True
        )
        request.start()
        request.join(REACH_SECONDS + 1)
        if problems:
            answers[hub] = problems[0]
        else:
            answers[hub] = f"no answer within {REACH_SECONDS:.0f} s"
    return answers[hub]


def _ask(address: str) -> str:
    """Returns why a server does not answer, or an empty string. An error of HTTP is an answer."""
    import urllib.error
    import urllib.request
    from http.client import HTTPException

    try:
        headers = {"User-Agent": "bertctl"}
        request = urllib.request.Request(address, method="HEAD", headers=headers)  # noqa: S310
        # S310 warns of addresses from strangers. This one is the user's own HF_ENDPOINT.
        urllib.request.urlopen(request, timeout=REACH_SECONDS).close()  # noqa: S310
    except urllib.error.HTTPError:
        return ""  # it answered
    except (OSError, HTTPException, ValueError) as error:
        if isinstance(error, urllib.error.URLError):
            reason = error.reason
        else:
            reason = error
        if isinstance(reason, TimeoutError):
            return f"no answer within {REACH_SECONDS:.0f} s"
        return str(reason) or type(error).__name__
    return ""


def _error_summary(error: Exception) -> str:
    """Returns the type and the first line of an error."""
    lines = str(error).strip().splitlines()
    first_line = lines[0] if lines else ""
    return f"{type(error).__name__}: {first_line}"
