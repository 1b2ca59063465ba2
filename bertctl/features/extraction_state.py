"""What an extraction has done so far, in a file from which the next attempt continues."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bertctl.data.rows import Rows
from bertctl.documents import read_json
from bertctl.errors import DataError, UsageError
from bertctl.features.chunks import chunks
from bertctl.features.extract_job import ExtractJob
from bertctl.runtime.launch import Workers
from bertctl.writing import write_json

MUST_AGREE = (
    "model_hash",
    "layers",
    "pooling",
    "special_tokens",
    "normalize",
    "prompt",
    "max_length",
    "stride",
    "long_text",
    "precision",
    "backend",
    "dtype",
    "keep_text",
    "processes",
)
"""Settings that an attempt shares with the one it continues, and a shard with the other shards."""


@dataclass
class Progress:
    """Counts of what is done, as the state file has them.

    `store` is the state of the stored arrays, which `VectorStore` continues from.
    """

    rows: int = 0
    # Process, rows and vectors of each chunk, if there are several processes.
    chunks: list[list[int]] = field(default_factory=list)
    truncated: int = 0
    lost_tokens: int = 0
    unknown_tokens: int = 0
    tokens: int = 0
    store: dict[str, int] = field(default_factory=dict)


class ExtractionState:
    """Keeps what an attempt has done, in a file from which the next one continues.

    Args:
        path: OUT.json, or a file per process.
        settings: What is computed; an attempt that continues must have the same.
        earlier: Content of the file of an earlier attempt, which this one continues; None without.
    """

    def __init__(
        self, path: Path, settings: Mapping[str, Any], earlier: Mapping[str, Any] | None
    ) -> None:
        self._path = path
        self._settings = settings
        self._hash = hashlib.sha256()  # of the input so far
        self._expected = None  # what it was when the earlier attempt ended
        self.progress = Progress()
        if earlier:
            self._expected = earlier["texts_sha256"]
            self.progress = Progress(**earlier.get("progress", {}))
        self.saved_rows = self.progress.rows

    def add(self, rows: Rows) -> None:
        """Counts rows in the hash over the input, so that a changed input is noticed."""
        for name in ("text", "pair", "label"):
            if rows.has(name):
                self._hash.update("\x00".join(map(str, rows.columns[name])).encode() + b"\x01")

    def check(self) -> None:
        """Refuses an input whose rows so far are not those that were extracted."""
        if self._hash.hexdigest() != self._expected:
            message = "the input's rows are not those that were extracted before: it has changed"
            raise DataError(message, remedy="Start again with `overwrite=True`.")

    def document(self, *, complete: bool) -> dict[str, Any]:
        """Returns the content of the file: settings, counts, hash of the input, and progress.

        A complete extraction has no progress: nothing is continued from it.
        """
        counts = asdict(self.progress)
        names = ("rows", "tokens", "truncated", "lost_tokens", "unknown_tokens")
        document = {**self._settings, **{name: counts[name] for name in names}}
        document |= {"texts_sha256": self._hash.hexdigest(), "complete": complete}
        if complete:
            return document
        return document | {"progress": counts}

    def save(self, store: dict[str, int]) -> None:
        """Writes the state so far, with what the store has committed."""
        self.progress.store = store
        write_json(self._path, self.document(complete=False))
        self.saved_rows = self.progress.rows


def state_and_store(job: ExtractJob, workers: Workers) -> tuple[Path, Path]:
    """Returns the paths of this process's state file and of its folder of vectors.

    A single process has OUT.json and OUT.parts/0. One process of several has OUT.parts/RANK.json
    and OUT.parts/RANK. A shard that will be merged has OUT.parts/K-of-N.json and OUT.parts/K-of-N.
    """
    if job.sharing.needs_merge:
        [record] = job.sharing.paths  # a shard knows only the path of its own record
        return record, record.with_suffix("")

    folder = job.folder / str(workers.rank)
    if workers.count == 1:
        return job.sidecar, folder
    return job.folder / f"{workers.rank}.json", folder


def earlier_state_path(job: ExtractJob, workers: Workers, state_path: Path) -> Path:
    """Returns the state file that an earlier attempt has left, or `state_path` if there is none.

    The earlier attempt may have had more or fewer processes. Its state is found all the same, and
    is then refused, as its settings name another number of processes.

    Args:
        job: The extraction.
        workers: The processes of this attempt.
        state_path: Where this process writes its own state.
    """
    if job.sharing.shard:
        candidates = [state_path]
    elif workers.count > 1:
        candidates = [job.sidecar, state_path]
    else:
        # A process writes RANK.json. Names such as 1-of-3.json belong to shards.
        numbered_files = job.folder.glob("[0-9]*.json")
        states_by_rank = [file for file in numbered_files if file.stem.isdecimal()]
        candidates = [job.sidecar, *states_by_rank]

    for candidate in candidates:
        if candidate.exists():
            return candidate
    return state_path


def left_by_an_earlier_attempt(
    job: ExtractJob, state_path: Path, settings: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Returns the state of an earlier attempt that this one continues; None for a new start.

    Without `resume`, a finished file is replaced, like every file that a command writes. An
    unfinished attempt is hours of work, so only `overwrite` lets it be replaced.

    Args:
        job: The extraction, with its options `resume` and `overwrite`.
        state_path: The state file that the earlier attempt wrote, if there was one.
        settings: Settings of this attempt, as the state file has them.

    Raises:
        UsageError: An unfinished attempt and neither `resume` nor `overwrite`; one with other
            settings; a file of somebody else in place of OUT.json.
    """
    output = job.output
    if job.overwrite:
        return None
    if not state_path.exists():
        if job.resume and output.exists():
            message = f"{output} has no {state_path.name} beside it that tells where to continue"
            raise UsageError(message, remedy="Leave `resume=True` out to replace the file.")
        return None

    state = read_json(state_path, kind=DataError, remedy="Start again with `overwrite=True`.")
    if "complete" not in state:
        raise UsageError(
            f"{state_path} does not describe vectors, so it is not replaced",
            remedy="Choose another file with `output=`.",
        )
    is_finished = state["complete"]
    is_deleted = not output.exists()
    # A finished file is made anew if it has been deleted, or if nobody asked to resume.
    if is_finished and (is_deleted or not job.resume):
        return None
    if not job.resume:
        raise UsageError(
            f"{output} is unfinished, {state['rows']} rows are whole",
            remedy="Continue with `resume=True`, or start again with `overwrite=True`.",
        )
    for name in MUST_AGREE:
        if state.get(name) != settings.get(name):
            message = (
                f"{output} was begun with {name} {state.get(name)!r}, and now it is "
                f"{settings.get(name)!r}"
            )
            raise UsageError(
                message,
                remedy="Give the same settings as before, or start again with `overwrite=True`.",
            )
    return state


def check_unchanged(stream: Iterable[Rows], state: ExtractionState) -> None:
    """Reads the input of a finished extraction again, and compares its hash.

    Args:
        stream: The rows in order.
        state: State of the finished extraction; its hash is computed here.

    Raises:
        DataError: The input has changed.
    """
    for chunk in chunks(stream):
        state.add(chunk)
    state.check()
