"""The runs in a folder as a list.

It has what each has reached, its size and age, and which are not among the best.
"""

import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any

import psutil

from bertctl.config.strict_yaml import read_document
from bertctl.config.task_names import PRETRAINING
from bertctl.documents import loading, read_text
from bertctl.errors import BertctlError
from bertctl.metrics.value import MetricValue
from bertctl.reporting.runs import FinishedRun
from bertctl.run_documents.status_document import StatusDocument
from bertctl.run_folder import RunFolder
from bertctl.words import natural_order


@dataclass(frozen=True)
class ListedRun:
    """Run of a list.

    Attributes:
        run: Path of its folder.
        recipe: Name of its recipe. It is empty if a file of the run can't be read, and so may be
            the fields below that come from these files.
        split: Split of `score`, see `FinishedRun.split`.
        metric: Name of the primary metric.
        score: Primary metric of the split; None if the run has none.
        state: State from status.json, but `killed` if a running run has no process any more.
        bytes: Bytes of all files in the folder.
        age_seconds: Seconds since the state was written.
        scored_on: Hash of the rows of the split.
        model: Name of its model in the recipe.
        kind: `fine-tuning`, `pretraining`, `probe`, or `scores` of a file; empty where the recipe
            can't be read.
    """

    run: str
    state: str
    bytes: int
    age_seconds: int
    recipe: str = ""
    split: str = ""
    metric: str = ""
    score: MetricValue | None = None
    scored_on: str = ""
    model: str = ""
    kind: str = ""

    @property
    def badness(self) -> float:
        """Number that is lower for a better score; infinite without a score."""
        score = self.score
        if score is None:
            return float("inf")
        if score.higher_is_better:
            return -score.value
        return score.value


def list_runs(folder: Path, *, order: str = "name") -> list[ListedRun]:
    """Returns the runs that lie in a folder, or the one that it is. Links are not followed.

    Args:
        folder: such as `runs`.
        order: what they are sorted by: name, age, size, state, or score (of each recipe the best
            first).

    Raises:
        OSError: there is no such folder.
    """
    if RunFolder(folder).own_status():
        paths = [folder]
    else:
        paths = sorted(folder.iterdir(), key=_by_name)
    folders = [RunFolder(path) for path in paths if not path.is_symlink()]
    with_status = ((folder, folder.own_status()) for folder in folders)
    # All ages are counted to the same moment. Otherwise a run that is read a second later would be
    # a second older.
    now = time.time()
    runs = [_listed(run, status, now) for run, status in with_status if status is not None]
    if order == "name":
        return sorted(runs, key=lambda run: natural_order(run.run))
    if order == "score":
        # The lowest badness is the best score.
        return sorted(runs, key=lambda run: (run.recipe, run.badness))
    attribute = {"age": "age_seconds", "size": "bytes"}.get(order, order)
    return sorted(runs, key=attrgetter(attribute))


def _by_name(path: Path) -> tuple[object, str]:
    """Returns the key by which a folder is sorted: run-2 comes before run-10."""
    return natural_order(path.name)


def beyond_best(runs: Iterable[ListedRun], keep: int) -> list[ListedRun]:
    """Returns the finished runs that are not among the best runs of their kind.

    Runs are of one kind if their scores can be compared: they have the same recipe name and are
    scored by the same metric on the same rows. A run that does not tell its rows is never returned.

    Args:
        runs: The runs, in any order.
        keep: Number of the best runs of each kind that are left out. Of equal runs the younger one
            is better.
    """
    kinds: dict[tuple[str, ...], list[ListedRun]] = {}
    for run in sorted(runs, key=lambda run: (run.badness, run.age_seconds)):
        if run.state == "done" and run.score is not None and run.scored_on:
            kinds.setdefault((run.recipe, run.split, run.metric, run.scored_on), []).append(run)
    return list(chain.from_iterable(kind[keep:] for kind in kinds.values()))


def _kind(folder: RunFolder, task: str, state: str) -> str:
    """Returns what made a run folder: `probe`, `scores`, `pretraining` or `fine-tuning`."""
    if (folder.path / "probe.safetensors").exists():
        return "probe"
    if not folder.environment.exists() and state == "done":  # `evaluate RUN FILE` trains nothing
        return "scores"
    if task == PRETRAINING:
        return "pretraining"
    return "fine-tuning"


def _listed(folder: RunFolder, status: StatusDocument, now: float) -> ListedRun:
    """Returns a run as it is listed, as far as its files can be read.

    Args:
        folder: The run.
        status: Content of its status.json.
        now: The time from which its age is counted.
    """
    facts: dict[str, Any] = {}
    size = 0
    age = 0.0
    state: str = status.state
    for file in folder.path.rglob("*"):
        with suppress(OSError):  # gone meanwhile
            size += file.lstat().st_size * file.is_file()
    # If a file can't be read, the run is listed with what was read before.
    with suppress(BertctlError), loading(folder.path):
        age = now - folder.status.stat().st_mtime
        is_here = status.host == socket.gethostname()
        if state == "running" and is_here and not psutil.pid_exists(status.pid):
            state = "killed"
        recipe = read_document(read_text(folder.recipe)).values
        facts["recipe"] = str(recipe["name"])
        facts["model"] = str((recipe.get("model") or {}).get("name", ""))
        facts["kind"] = _kind(folder, str(recipe.get("task", "")), state)
        run = FinishedRun(folder.path, folder, folder.read_metrics(), {})
        split = run.split(None)
        metric = run.primary
        facts |= {"split": split, "metric": metric, "score": run.metric(split, metric)}
        counts = run.metrics.data.get(split)
        # metrics.json has the hash of the rows that were scored. Without one, training recorded it.
        digest_scored = counts.sha256 if counts is not None else None
        facts["scored_on"] = digest_scored or run.environment().data_hashes.get(split, "")
    return ListedRun(
        str(folder.path),
        state,
        size,
        max(0, int(age)),
        **facts,
    )
