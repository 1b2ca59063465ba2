"""The one door to the hub: files by name, from the cache if they are there, else over the network, soon or never.

Nothing here imports torch or transformers.
"""

import contextlib
import os
import re
import threading
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path

from bertctl.catalog.lock import Found, Kind, in_force, noted
from bertctl.errors import UnavailableError
from bertctl.progress import SILENT

REACH_SECONDS = 5.0
"""How long the hub may take for its first answer; `bertctl` ends within 10 s where there is none."""

_cache_only: ContextVar[bool] = ContextVar("cache_only", default=False)
_asking_all: ContextVar[bool] = ContextVar("asking_all", default=False)
_store: ContextVar[Path | None] = ContextVar("store", default=None)


@dataclass(frozen=True)
class HubFiles:
    """Files of a hub repository, of which one is enough.

    Attributes:
        repo: `org/name`.
        repo_type: `model` or `dataset`.
        revision: commit, tag or branch; None is the default branch.
        files: paths inside the repository, of which one is enough.
        patterns: of names; all files that match one of them are wanted. Without any, all of `files` are.
    """

    repo: str
    repo_type: Kind
    revision: str | None
    files: tuple[str, ...]
    patterns: tuple[str, ...] = ()

    def address(self, file: str) -> str:
        """Returns where the hub has a file."""
        kind = "datasets/" if self.repo_type == "dataset" else ""
        return f"{endpoint()}/{kind}{self.repo}/resolve/{self.revision or 'main'}/{file}"

    def at(self, revision: str) -> "HubFiles":
        """Returns the files at another revision."""
        return replace(self, revision=revision)


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
def asking_all() -> Iterator[None]:
    """Has everything of the hub raise `NotCachedError` inside, on this disk or not: so one learns what is wanted."""
    token = _asking_all.set(True)
    try:
        yield
    finally:
        _asking_all.reset(token)


@contextlib.contextmanager
def kept_in(store: Path | None) -> Iterator[None]:
    """Keeps the hub's files in a folder inside; where it is None, in that of the lock in force, or the hub's cache."""
    token = _store.set(store)
    try:
        yield
    finally:
        _store.reset(token)


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
    repo: str, filename: str, *, revision: str | None, repo_type: Kind, wanted: str, ways: Sequence[str]
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
    from huggingface_hub import try_to_load_from_cache

    asked = revision or "main"
    files = _pinned(HubFiles(repo, repo_type, revision, (filename,)))
    cached = try_to_load_from_cache(repo, filename, cache_dir=_place(), revision=files.revision, repo_type=repo_type)
    if isinstance(cached, str) and not _asking_all.get():
        path = Path(cached)
    else:
        path = _fetched(files, filename, f"{wanted} ({repo}/{filename}", _ways(wanted, ways)) / filename
    commit = path.parents[filename.count("/")].name
    noted(Found(repo_type, repo, {filename: path}, asked, commit))
    return path


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

    asked = revision or "main"
    files = _pinned(HubFiles(repo, "model", revision, tuple(required), tuple(patterns)))
    folder = None
    with contextlib.suppress(LocalEntryNotFoundError):
        cached = snapshot_download(
            repo, revision=files.revision, allow_patterns=[*patterns], local_files_only=True, cache_dir=_place()
        )
        folder = Path(cached)
    complete = folder and (folder / "config.json").exists() and any((folder / name).exists() for name in required)
    if folder is None or not complete or _asking_all.get():
        folder = _fetched(files, "config.json", f"{wanted} ({repo}", _ways(wanted, ways))
    there = {path.name: path for path in sorted(folder.iterdir()) if any(fnmatch(path.name, each) for each in patterns)}
    noted(Found("model", repo, there, asked, folder.name, whole="model.safetensors" in required))
    return folder


def cached_files(wanted: HubFiles, store: Path | None) -> dict[str, Path]:
    """Returns where files are on this disk, those that are; nothing is fetched."""
    from huggingface_hub import try_to_load_from_cache

    found = {}
    for name in wanted.files:
        path = try_to_load_from_cache(
            wanted.repo, name, cache_dir=store, revision=wanted.revision, repo_type=wanted.repo_type
        )
        if isinstance(path, str):
            found[name] = Path(path)
    return found


def require_reachable(wanted: HubFiles, what: str, ways: str = "") -> None:
    """Refuses to go on where the hub does not answer, or may not be asked.

    Raises:
        UnavailableError: offline, or no answer.
    """
    if is_offline():
        raise UnavailableError(f"{what}, and offline mode is on", remedy=ways)
    if problem := _reach(wanted.address(next(iter(wanted.files), "config.json"))):
        raise UnavailableError(
            f"{what}, and the hub at {shown(endpoint())} can't be reached: {shown(problem)}", remedy=ways
        )


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


def _place() -> Path | None:
    """Returns where the hub's files are kept; None for its own cache."""
    lock = in_force()
    return _store.get() or (lock.store if lock else None)


def _pinned(wanted: HubFiles) -> HubFiles:
    """Returns the files at the commit that the lock in force has; refuses what it has not."""
    lock = in_force()
    return wanted.at(lock.revision(wanted.repo_type, wanted.repo, wanted.revision or "main")) if lock else wanted


def _fetched(wanted: HubFiles, asked: str, name: str, ways: str) -> Path:
    """Returns the folder of what the hub gives, asked for one file first; `name` is for messages, its bracket open."""
    what = f"{name} on the hub) is not in the cache"
    if _cache_only.get() or _asking_all.get():
        raise NotCachedError(what, remedy=ways, wanted=wanted)
    require_reachable(replace(wanted, files=(asked,)), what, ways)
    from bertctl.catalog.downloads import Tally, bring, look_up, talking

    with answering(f"{name})", ways), talking(SILENT):
        return bring(look_up(wanted), _place(), Tally())


@contextlib.contextmanager
def answering(what: str, ways: str = "") -> Iterator[None]:
    """Turns what the hub's library raises inside into our error, with what to do about it.

    Raises:
        UnavailableError: it raises anything.
    """
    try:
        yield
    except Exception as error:
        said = error.message if isinstance(error, UnavailableError) else _said(error)
        status = getattr(getattr(error, "response", None), "status_code", 0)
        advice = error.remedy if isinstance(error, UnavailableError) else ""
        remedy = "\n".join(filter(None, (advice or _ADVICE.get(status, _AGAIN), ways)))
        raise UnavailableError(f"{what} can't be had from the hub: {shown(said)}", remedy=remedy) from error


_AGAIN = (
    "The same command goes on where this one has ended. HF_ENDPOINT names a mirror, HF_HUB_DOWNLOAD_TIMEOUT how many "
    "seconds may pass without a byte."
)
_ADVICE = {
    **dict.fromkeys(
        (401, 403), "It is private, gated or not there: set HF_TOKEN to a token that may read it, or check its name."
    ),
    404: "Check its name and revision.",
    429: "It has had too many requests: try again later. With HF_TOKEN it allows more; HF_ENDPOINT names a mirror.",
}


def shown(text: str) -> str:
    """Returns what may be shown of a text that may have addresses in it: no password, signature or token."""
    from huggingface_hub import get_token

    text = re.sub(r"(https?://[^\s?]*)\?[^\s'\">]*", r"\1", re.sub(r"://[^/\s@]*@", "://", text))
    token = get_token()
    return text.replace(token, "***") if token else text


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
