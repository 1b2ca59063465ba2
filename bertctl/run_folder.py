"""What a run leaves behind: the names and schemas of its files, each replaced atomically.

RUN/status.json              running, done, failed, interrupted; pid, host, last step
RUN/recipe.yaml              what ran, fully resolved
RUN/environment.json         versions, device, threads, precision, seeds, data hashes, command line
RUN/metrics.json             values, intervals, n; the same bytes from one equal run to the next
RUN/performance.json         timings, throughput, padding share, peak memory
RUN/distillation.json        a student beside its teacher: scores, speed, size
RUN/predictions/SPLIT.jsonl  one line per example
RUN/baselines/               NAME.SPLIT.jsonl, scores.json: the simple models beside the run
RUN/rows/SPLIT.parquet       rows that were given in memory, as a file (or SPLIT.jsonl)
RUN/history.jsonl            one line a logging step
RUN/log.txt                  third-party warnings that were kept off the screen
RUN/model/                   weights, config and tokenizer, for the Auto classes of transformers
RUN/adapter/                 LoRA's updates and the head, as peft reads them; model/ has them merged
RUN/decision.json            thresholds and temperature, if any were chosen on validation rows
RUN/checkpoints/             only what a resume needs
RUN/.lock                    held by the process that writes the run
"""

import fcntl
import itertools
import os
import shutil
import socket
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from bertctl.documents import read_json, read_json_document
from bertctl.errors import BertctlError, UnavailableError, UsageError
from bertctl.words import command, count
from bertctl.writing import (
    PARTS,
    failures_of,
    is_stream,
    open_in_place,
    refuse_input,
    refuse_links,
    sweep,
    write_json,
)

if TYPE_CHECKING:
    from bertctl.run_documents.distillation_document import DistillationDocument
    from bertctl.run_documents.document_base import Document
    from bertctl.run_documents.environment_document import EnvironmentDocument
    from bertctl.run_documents.metrics_document import MetricsDocument
    from bertctl.run_documents.performance_document import PerformanceDocument
    from bertctl.run_documents.status_document import State, StatusDocument

OneDocument = TypeVar("OneDocument", bound="Document")

CONFIRM = "confirm"
"""The split of validation rows that chose nothing, with `data.confirm_fraction`."""

SCHEMA: Final = 1
"""Version of the JSON layouts below."""

DAMAGED = (
    "The run is damaged. Copy it again from where it came from, or run it again with "
    "`overwrite=True`."
)
"""What to do about a file of a run that is not as it was written."""

UNFINISHED = (
    "Wait for it, continue it (the command that started it, and `resume=True`), or train "
    "again with "
    "`overwrite=True`."
)
"""What to do about a run that has not finished, and may be interrupted, killed or under way."""


@contextmanager
def hold(lock: Path, *, shared: bool = False, patient: bool = False) -> Iterator[int]:
    """Locks a file until the context ends, and yields its descriptor.

    The process that holds the lock writes its number into the file, for the messages of others. If
    it dies, the system releases the lock.

    Args:
        lock: The file. It is created, and so is its folder.
        shared: Whether other processes that share it may hold it at the same time.
        patient: Whether to wait for a process that holds it.

    Raises:
        UsageError: Another process holds it, which the message names; or one of the folders that a
            run or a sweep has beside it is a link.
        UnavailableError: The folder can't be written.
    """
    operation = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    if not patient:
        operation |= fcntl.LOCK_NB

    # Nothing may be written through a link that stands for a folder of a run or of a sweep.
    # The empty name in `_CONTENT` stands for the run's folder itself.
    folder_names = [name for name in (*_CONTENT, "cells") if name]
    refuse_links(*(lock.parent / name for name in folder_names))
    with failures_of(lock):
        lock.parent.mkdir(parents=True, exist_ok=True)
        file = os.fdopen(open_in_place(lock, os.O_RDWR | os.O_APPEND), "a+", encoding="utf-8")
    with file:
        try:
            fcntl.flock(file, operation)
        except BlockingIOError as error:
            file.seek(0)
            message = f"{lock.parent} is in use by {file.read(200).strip() or 'another process'}"
            raise UsageError(
                message,
                remedy="Wait for it to end, stop it, or choose another folder with `output=`.",
            ) from error
        except OSError:
            pass  # The disk has no locks, so the folder is used without one.
        with suppress(OSError):
            file.truncate(0)
            # `file.write` would keep the text in a buffer, and fail on a full disk when the file is
            # closed.
            os.write(file.fileno(), f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        yield file.fileno()


class RunFolder:
    """Folder of one run. Creating the object touches nothing; `create` and `open` do."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.status = path / "status.json"
        self.recipe = path / "recipe.yaml"
        self.environment = path / "environment.json"
        self.metrics = path / "metrics.json"
        self.performance = path / "performance.json"
        self.distillation = path / "distillation.json"
        self.history = path / "history.jsonl"
        self.decision = path / "decision.json"
        self.log = path / "log.txt"
        self.model = path / "model"
        self.adapter = path / "adapter"
        self.encoder = path / "encoder"
        self.checkpoints = path / "checkpoints"
        self.baseline_scores = path / "baselines" / "scores.json"

    def predictions(self, split: str) -> Path:
        """Returns the prediction file of a split."""
        return self.path / "predictions" / f"{split}.jsonl"

    def baseline_predictions(self, name: str, split: str) -> Path:
        """Returns the prediction file of a baseline, such as `frozen`, for a split."""
        return self.path / "baselines" / f"{name}.{split}.jsonl"

    def command(self, verb: str, **options: object) -> str:
        """Returns the command that does this run again, as a shell takes it."""
        return command(verb, self.recipe, output=self.path, **options)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Locks the run against other processes until the context ends, and tidies it first.

        What killed processes have left in the folder is deleted.

        Raises:
            UsageError: Another process holds the lock (see `hold`); or a pipe or a device has the
                name of a file of the run.
            UnavailableError: The folder can't be written.
        """
        with hold(self.path / ".lock"):
            sweep(self.path, deep=True)
            for path in self._files():
                # Writing into a pipe would wait for its reader.
                if is_stream(path):
                    raise UsageError(
                        f"{path} is a pipe or a device where a file belongs", remedy="Delete it."
                    )
            if self.checkpoints.is_dir() and self.read_status().state == "done":
                # The run had ended, and was killed before it deleted its checkpoints.
                shutil.rmtree(self.checkpoints)
            yield

    @classmethod
    def check_free(cls, path: Path, *, overwrite: bool) -> None:
        """Refuses a folder that a new run can't go to, before anything expensive is done.

        An empty folder, or one that does not exist, is free.

        Args:
            path: The folder.
            overwrite: Whether a run in it may be replaced.

        Raises:
            UsageError: The path is a file. Or the folder is not empty, and `overwrite` is False; or
                what would be overwritten is no run, or has an input of this command in it.
        """
        if path.is_file():
            raise UsageError(f"{path} is a file", remedy="Name a folder with `output=`.")
        if not path.is_dir() or not _content(path):
            return
        if not overwrite:
            message = f"the folder {path} exists and is not empty"
            raise UsageError(
                message,
                remedy="Choose another with `output=`, or add `overwrite=True` to replace "
                "the run in it.",
            )
        if not cls(path).own_status():
            raise UsageError(
                f"{path} is not empty and does not hold a run, so `overwrite=True` will not "
                "delete it: its status.json is missing, damaged or another program's",
                remedy="Empty it yourself, or choose another folder with `output=`.",
            )
        refuse_input(path, replaces=True)

    def own_status(self) -> "StatusDocument | None":
        """Returns status.json; None if it is missing, damaged, or another program's."""
        try:
            status = self.read_status()
        except BertctlError:
            return None
        if status.is_complete:
            return status
        return None  # another program's file has the same name

    @classmethod
    def create(cls, path: Path, *, overwrite: bool = False) -> "RunFolder":
        """Makes the folder of a new run. Files in it that are not a run's stay.

        Args:
            path: The folder.
            overwrite: Whether a run in it is replaced.

        Raises:
            UsageError: The folder is not free, see `check_free`.
            UnavailableError: The folder can't be written.
        """
        cls.check_free(path, overwrite=overwrite)
        folder = cls(path)
        with failures_of(path):
            path.mkdir(parents=True, exist_ok=True)
            if _content(path):
                with folder.held():
                    # Recipe and status stay until the new run writes its own in their place.
                    folder.clear(but=(folder.recipe.name, folder.status.name))
        folder.set_status("running", step=0)
        return folder

    def clear(self, *, but: Collection[str] = ()) -> None:
        """Deletes the files of the run, status.json last. Other files in the folder stay.

        Args:
            but: Names of files that stay, too.

        Raises:
            OSError: A file can't be deleted.
        """
        # `_files` gives status.json last: a folder that is cleared only in part is still a run.
        for path in self._files():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.name not in but:
                path.unlink()
        for folder in _CONTENT:
            with suppress(OSError):  # a folder with other files is not deleted
                (self.path / folder).rmdir()

    def why_kept(self, *, only_done: bool = False) -> str:
        """Returns why `delete` would not delete this run; empty if it would.

        Whether another process holds the run's lock is not looked at here.

        Args:
            only_done: Whether a run that has not finished is kept.
        """
        path = Path(os.path.abspath(self.path))  # noqa: PTH100  # `resolve` follows links
        status = self.own_status()
        if path.is_symlink():
            return f"{self.path} is a link; name its target"
        if status is None:
            if path.exists():
                return f"{self.path} is not a run of bertctl"
            return f"{self.path} does not exist"
        reason = self.why_of_sweep()
        if reason:
            return reason
        if only_done and status.state != "done":
            return f"{self.path} has not finished: its state is '{status.state}'"
        if status.state == "running" and status.host != socket.gethostname():
            return (
                f"{self.path} is running on {status.host}, as far as can be told here; delete it "
                "there"
            )
        return ""

    def why_of_sweep(self) -> str:
        """Returns a sentence on the sweep that this run is a part of; empty without a sweep."""
        # Links are followed up to the folder of the run, but not if the run itself is a link.
        cells = Path(os.path.abspath(self.path)).parent.resolve()  # noqa: PTH100
        is_cell = cells.name == "cells" and (cells.parent / "plan.json").exists()
        if is_cell:
            return f"{self.path} is a part of the sweep {cells.parent}, whose result counts on it"
        return ""

    def delete(self, *, only_done: bool = False, dry_run: bool = False) -> bool:
        """Deletes the run; other files in its folder stay. Returns whether the folder is gone.

        Args:
            only_done: Whether a run that has not finished is kept.
            dry_run: Whether nothing is deleted.

        Raises:
            UsageError: The run is kept, see `why_kept`; or another process holds it.
            UnavailableError: A file can't be deleted.
        """
        reason = self.why_kept(only_done=only_done)
        if reason:
            raise UsageError(reason, file=self.path)
        if dry_run:
            return False
        with failures_of(self.path), self.held():
            reason = self.why_kept(only_done=only_done)
            if reason:  # the run has been started anew before this process held it
                raise UsageError(reason, file=self.path)
            self.clear()
            (self.path / ".lock").unlink()
            with suppress(OSError):  # a folder with other files is not deleted
                # The working folder can't be deleted by the name `.`.
                Path(os.path.abspath(self.path)).rmdir()  # noqa: PTH100
        return not self.path.exists()

    def refuse_output(self, output: Path) -> None:
        """Refuses an output that would overwrite a file of this run or model, except report.html.

        Raises:
            UsageError: The output is such a file.
        """
        own_files = [path for path in self._files() if path.name != "report.html"]
        is_model_folder = (self.path / "config.json").exists()
        if is_model_folder:
            own_files.extend(chain.from_iterable(map(self.path.glob, _CONTENT["model"])))
        # `Path.resolve` fails for a link to itself, `realpath` does not.
        if os.path.realpath(output) in map(os.path.realpath, own_files):
            message = f"{output} is an input of this command: it belongs to {self.path}"
            raise UsageError(
                message, remedy="Nothing was written. Choose another place for the output."
            )

    def _files(self) -> list[Path]:
        """Returns what belongs to a run, in the order in which it is deleted."""
        paths: list[Path] = []
        for folder, patterns in _CONTENT.items():
            for pattern in patterns:
                paths.extend((self.path / folder).glob(pattern))
        return paths

    @classmethod
    def open(cls, path: Path, *, or_export: bool = False) -> "RunFolder":
        """Opens an existing run.

        Args:
            path: The run's folder.
            or_export: Whether an export is accepted, too. It has a recipe and scores.

        Raises:
            UnavailableError: The folder does not exist, or has no run in it.
        """
        if or_export and is_export(path):
            return cls(path)
        if not (path / "status.json").is_file():
            refuse_export(path)
            if (path / "cells").is_dir():
                remedy = (
                    f"Name one of them, in {path / 'cells'}; {path / 'sweep.html'} is the report "
                    "of all."
                )
                raise UnavailableError(f"{path} holds a sweep, which is many runs", remedy=remedy)
            if path.exists():
                message = "is not a run folder (no status.json)"
            else:
                message = "does not exist"
            remedy = (
                "Give the folder that `bertctl finetune` named in its last lines, such as "
                "runs/sst2-1a2b3c4d."
            )
            models = models_inside(path)
            if models:
                message += f", and holds {count(len(models), 'model')}"
                remedy = f"Name the one that you mean: {' or '.join(map(str, models[:3]))}."
            raise UnavailableError(f"{path} {message}", remedy=remedy, file=path)
        return cls(path)

    def set_status(self, state: "State", *, step: int, message: str = "", reason: str = "") -> None:
        """Writes status.json.

        Args:
            state: running, done, failed or interrupted.
            step: The last step.
            message: A sentence about the state.
            reason: A word for a run that failed (`diverged`, `error`), or that ended with a useless
                model (`collapsed`: one answer to everything).
        """
        from bertctl.run_documents.status_document import StatusDocument

        texts = {"message": message, "reason": reason}
        document = StatusDocument(
            schema_number=SCHEMA,
            state=state,
            step=step,
            pid=os.getpid(),
            host=socket.gethostname(),
            **{name: text for name, text in texts.items() if text},
        )
        write_json(self.status, document.as_json())

    # Each imports its model when it is called: pydantic takes a while, and not every command that
    # knows run folders reads one.

    def read_status(self) -> "StatusDocument":
        """Returns status.json.

        Raises:
            UnavailableError: It is missing, can't be read, or is no JSON object.
            DataError: It is not as its model says.
        """
        from bertctl.run_documents.status_document import StatusDocument

        return read_json_document(self.status, StatusDocument, remedy=DAMAGED)

    def read_metrics(self) -> "MetricsDocument":
        """Returns metrics.json; see `read_status` for what is raised."""
        from bertctl.run_documents.metrics_document import MetricsDocument

        return self._read_document(self.metrics, MetricsDocument)

    def read_performance(self) -> "PerformanceDocument":
        """Returns performance.json; see `read_status` for what is raised."""
        from bertctl.run_documents.performance_document import PerformanceDocument

        return self._read_document(self.performance, PerformanceDocument)

    def read_distillation(self) -> "DistillationDocument":
        """Returns distillation.json; see `read_status` for what is raised."""
        from bertctl.run_documents.distillation_document import DistillationDocument

        return self._read_document(self.distillation, DistillationDocument)

    def read_environment(self) -> "EnvironmentDocument":
        """Returns environment.json; see `read_status` for what is raised."""
        from bertctl.run_documents.environment_document import EnvironmentDocument

        return self._read_document(self.environment, EnvironmentDocument)

    def _read_document(self, path: Path, model: type[OneDocument]) -> OneDocument:
        """Returns a JSON file of this run as an instance of its model."""
        self._refuse_missing(path)
        return read_json_document(path, model, remedy=DAMAGED)

    def read(self, path: Path) -> dict[str, Any]:
        """Returns a JSON file of this run that has no model, such as config.json.

        Raises:
            UnavailableError: It is missing, can't be read, or is no JSON object.
        """
        self._refuse_missing(path)
        return read_json(path, remedy=DAMAGED)

    def _refuse_missing(self, path: Path) -> None:
        """Refuses to read a file that this run has not written, and names the run's state."""
        if not path.exists():
            message = f"{path} is missing: the run's state is '{self.read_status().state}'"
            raise UnavailableError(message, remedy=UNFINISHED)


_CONTENT = {
    "model": ("*.json", "*.safetensors", "*.txt", "*.model", "README.md", "adapter"),
    "adapter": ("*.json", "*.safetensors"),
    "predictions": ("*.jsonl",),
    "baselines": ("*.jsonl", "scores.json"),
    "encoder": ("[0-9]_*", "*.json", "*.safetensors", "*.txt", "*.model"),
    "checkpoints": ("step-*", "draw-*", "average"),
    "trackers": ("*",),
    "rows": ("*.jsonl", "*.parquet"),
    "": (
        *(
            f"{name}.json"
            for name in (
                "environment",
                "metrics",
                "performance",
                "distillation",
                "decision",
                "probe",
            )
        ),
        *(
            "recipe.yaml",
            "history.jsonl",
            "log.txt",
            "report.html",
            "probe.safetensors",
            "probe.png",
            "probe.svg",
        ),
        "predictions.skipped.jsonl",
        "status.json",
    ),
}
"""What belongs to a run: folder -> patterns of names, in the order in which they are deleted."""


def _content(path: Path) -> list[Path]:
    """Returns the content of a folder, without its lock and what killed processes left in it."""
    return [entry for entry in path.iterdir() if entry.name != ".lock" and not entry.match(PARTS)]


def default_folder(name: str, digest: str) -> Path:
    """Returns a folder that does not exist: runs/<recipe>-<first 8 of the hash>, perhaps with -2.

    Args:
        name: Name of the recipe.
        digest: Hash of the recipe, in hexadecimal.
    """
    return next(path for path in _folder_names(name, digest) if not path.exists())


def is_export(folder: Path) -> bool:
    """Returns whether a folder was made by `bertctl export`."""
    return (folder / "export.json").is_file()


def refuse_export(folder: Path) -> None:
    """Refuses an export where the network of a run or a model is needed.

    Raises:
        UnavailableError: The folder is an export.
    """
    if is_export(folder):
        raise UnavailableError(
            f"{folder} is an export, and this needs the network that it was made from",
            remedy="Give the run or the model that was exported: `source` in export.json names it.",
            file=folder,
        )


def latest_folder(name: str, digest: str) -> Path | None:
    """Returns the newest folder that `default_folder` has named for a recipe; None if none exists.

    Args:
        name: Name of the recipe.
        digest: Hash of the recipe, in hexadecimal.
    """
    existing = list(itertools.takewhile(Path.exists, _folder_names(name, digest)))
    return existing[-1] if existing else None


def _folder_names(name: str, digest: str) -> Iterator[Path]:
    """Yields runs/NAME-HASH, runs/NAME-HASH-2, runs/NAME-HASH-3, ... without end."""
    base = Path("runs") / f"{name}-{digest[:8]}"
    yield base
    yield from (base.with_name(f"{base.name}-{number}") for number in itertools.count(2))


def models_inside(path: Path) -> list[Path]:
    """Returns the folders in a folder that have a model of transformers.

    The checkpoints of a Trainer come first, the newest one before the others.
    """
    if path.is_dir():
        models = [file.parent for file in path.glob("*/config.json")]
    else:
        models = []

    def order(folder: Path) -> tuple[int, str]:
        """Returns a sort key: the negative step of a folder such as `checkpoint-500`, else 0."""
        step = folder.name.removeprefix("checkpoint-")
        if step.isdecimal():
            return -int(step), folder.name
        return 0, folder.name

    return sorted(models, key=order)
