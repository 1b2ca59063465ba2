"""The one door to the hub: files by name, from the cache if they are there, else over the network, soon or never.

Nothing here imports torch or transformers.
"""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from bertctl.errors import UnavailableError

REACH_SECONDS = 5.0
"""How long the hub may take for its first answer; `bertctl` ends within 10 s where there is none."""

RepoType = Literal["model", "dataset"]

_cache_only: ContextVar[bool] = ContextVar("cache_only", default=False)


@dataclass(frozen=True)
class HubFiles:
    """Files of a hub repository, of which one is enough.

    Attributes:
        repo: `org/name`.
        repo_type: `model` or `dataset`.
        revision: commit, tag or branch; None is the default branch.
        files: paths inside the repository, of which one is enough.
    """

    repo: str
    repo_type: RepoType
    revision: str | None
    files: tuple[str, ...]

    def address(self, file: str) -> str:
        """Returns where the hub has a file."""
        kind = "datasets/" if self.repo_type == "dataset" else ""
        return f"{endpoint()}/{kind}{self.repo}/resolve/{self.revision or 'main'}/{file}"


class NotCachedError(UnavailableError):
    """Something is not on this disk, and the hub was not asked (see `cache_only`)."""

    def __init__(self, message: str, *, remedy: str, wanted: HubFiles) -> None:
        super().__init__(message, remedy=remedy)
        self.wanted = wanted


@contextlib.contextmanager
def cache_only() -> Iterator[None]:
    """Fetches nothing inside: what is not on this disk raises `NotCachedError`, the hub reachable or not."""
    token = _cache_only.set(True)
    try:
        yield
    finally:
        _cache_only.reset(token)


@contextlib.contextmanager
def cut_off() -> Iterator[None]:
    """Has the hub's library connect to nothing inside: files in a folder may name others that are elsewhere."""
    from huggingface_hub import constants

    before, constants.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE, True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def is_offline() -> bool:
    """Whether no connection may be tried (`--offline`, `HF_HUB_OFFLINE`, `TRANSFORMERS_OFFLINE`)."""
    return any(
        os.environ.get(name, "").lower() in ("1", "true", "yes", "on")
        for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    )


def endpoint() -> str:
    """Returns the address of the hub, `HF_ENDPOINT` where it is set."""
    return os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")


def fetch_file(
    repo: str, filename: str, *, revision: str | None, repo_type: RepoType, wanted: str, ways: Sequence[str]
) -> Path:
    """Returns a file of a hub repository, on this disk.

    Args:
        repo: `org/name`.
        filename: path inside the repository.
        revision: commit, tag or branch; with a commit the cache answers without any connection.
        repo_type: `model` or `dataset`.
        wanted: what the person asked for, for the message.
        ways: remedies, one per line: the other ways to have it.

    Raises:
        UnavailableError: offline and not cached, no answer, or not there.
    """
    from huggingface_hub import hf_hub_download, try_to_load_from_cache

    cached = try_to_load_from_cache(repo, filename, revision=revision, repo_type=repo_type)
    if isinstance(cached, str):
        return Path(cached)
    fetch = partial(hf_hub_download, repo, filename, revision=revision, repo_type=repo_type)
    files = HubFiles(repo, repo_type, revision, (filename,))
    return _fetched(fetch, files, filename, f"{wanted} ({repo}/{filename}", _ways(wanted, ways))


def fetch_folder(
    repo: str,
    *,
    revision: str | None,
    patterns: Sequence[str],
    required: Sequence[str],
    wanted: str,
    ways: Sequence[str],
) -> Path:
    """Returns the files of a hub model repository that match `patterns`, as a folder on this disk.

    Args:
        required: names of which at least one must be in a cached copy for it to be taken without a connection.

    Raises:
        UnavailableError: offline and not cached, no answer, or not there.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    fetch = partial(snapshot_download, repo, revision=revision, allow_patterns=list(patterns))
    try:
        cached = Path(fetch(local_files_only=True))
    except LocalEntryNotFoundError:
        pass
    else:
        if (cached / "config.json").exists() and any((cached / name).exists() for name in required):
            return cached
    files = HubFiles(repo, "model", revision, tuple(required))
    return _fetched(fetch, files, "config.json", f"{wanted} ({repo}", _ways(wanted, ways))


def remote_size(wanted: HubFiles) -> int | None:
    """Returns the bytes of the first of the files that the hub has; None where it doesn't say. Only headers are read.

    Raises:
        UnavailableError: offline, no answer, or the hub has none of them for this token.
    """
    from huggingface_hub import get_hf_file_metadata, get_token

    problem = unreachable(wanted.address(wanted.files[0]))
    if problem:
        raise UnavailableError(f"the hub can't be asked: {problem}")
    answers = []
    for file in wanted.files:
        try:
            return get_hf_file_metadata(wanted.address(file), token=get_token(), timeout=REACH_SECONDS).size
        except Exception as error:  # noqa: BLE001 - whatever the library raises, the file can't be had
            answers.append(f"{file}: {_said(error)}")
    raise UnavailableError(f"the hub at {endpoint()} does not give {wanted.repo}: {'; '.join(answers)}")


def unreachable(address: str | None = None) -> str:
    """Returns why the hub can't be reached, or an empty string. It is asked once per process, and never offline.

    Args:
        address: a file that is wanted; the config.json of BERT-base when left out.
    """
    if is_offline():
        return "offline mode is on"
    return _reach(address or HubFiles("google-bert/bert-base-uncased", "model", None, ()).address("config.json"))


def cache_folder() -> Path:
    """Returns where the hub's files are kept (`HF_HUB_CACHE`, or `HF_HOME`/hub)."""
    from huggingface_hub.constants import HF_HUB_CACHE

    return Path(HF_HUB_CACHE)


def has_token() -> bool:
    """Whether the hub would be asked in somebody's name (`HF_TOKEN`, or an earlier login)."""
    from huggingface_hub import get_token

    return bool(get_token())


def _fetched(fetch: Callable[[], str], wanted: HubFiles, asked: str, name: str, ways: str) -> Path:
    """Returns what the hub gives, asked for one of the files first; `name` is for messages, its bracket still open."""
    what = f"{name} on the hub)"
    if _cache_only.get():
        raise NotCachedError(f"{what} is not in the cache", remedy=ways, wanted=wanted)
    if is_offline():
        raise UnavailableError(f"{what} is not in the cache, and offline mode is on", remedy=ways)
    problem = _reach(wanted.address(asked))
    if problem:
        raise UnavailableError(
            f"{what} is not in the cache, and the hub at {endpoint()} can't be reached: {problem}", remedy=ways
        )
    try:
        return Path(fetch())
    except Exception as error:
        raise UnavailableError(f"{name}) can't be had from the hub: {_said(error)}", remedy=ways) from error


_answers: dict[str, str] = {}
"""Hub -> why it can't be reached, or an empty string: it is asked once per process, however much is wanted of it."""


def _reach(address: str) -> str:
    """Returns why the hub can't be reached, or an empty string.

    Asked is a file that is wanted, not the front page, which may answer where files do not. The question has a thread
    of its own, because looking up a name (and an answer that drips) knows no time limit.
    """
    hub = endpoint()
    if hub not in _answers:
        found: list[str] = []
        asking = threading.Thread(target=lambda: found.append(_ask(address)), daemon=True)
        asking.start()
        asking.join(REACH_SECONDS + 1)
        _answers[hub] = found[0] if found else f"no answer within {REACH_SECONDS:.0f} s"
    return _answers[hub]


def _ask(address: str) -> str:
    import urllib.error
    import urllib.request
    from http.client import HTTPException

    try:
        request = urllib.request.Request(address, method="HEAD", headers={"User-Agent": "bertctl"})  # noqa: S310
        urllib.request.urlopen(request, timeout=REACH_SECONDS).close()  # noqa: S310 - the person's own HF_ENDPOINT
    except urllib.error.HTTPError:
        return ""  # it answered
    except TimeoutError:
        return f"no answer within {REACH_SECONDS:.0f} s"
    except urllib.error.URLError as error:
        reason = error.reason
        return f"no answer within {REACH_SECONDS:.0f} s" if isinstance(reason, TimeoutError) else str(reason)
    except (OSError, HTTPException, ValueError) as error:
        return str(error) or type(error).__name__
    return ""


def _said(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"


def _ways(wanted: str, ways: Sequence[str]) -> str:
    return f"Ways to have {wanted}:\n" + "\n".join(f"  - {way}" for way in ways) if ways else ""
