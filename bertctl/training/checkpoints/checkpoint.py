"""Checkpoints: everything a run needs to continue at the exact step.

They are safetensors and JSON, and are found damaged or whole.

    RUN/checkpoints/step-00000120/
        model.safetensors       weights
        optimizer.safetensors   AdamW's moments and step counts, `parameter|key`
        random.safetensors      states of the random generators, `device.process`
        history.jsonl           as it was
        best/                   RUN/model as it was
        average/                weights of the best evaluations, if they will be averaged
        state.json              where the loop is
        manifest.json           sizes and SHA-256 of all of these, and the recipe's hash

A checkpoint is written aside, synced and renamed; the last two are kept.
"""

import json
import os
import shutil
import sys
import threading
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertctl.documents import read_json, sha256_of
from bertctl.errors import BertctlError
from bertctl.progress import SILENT, Listener
from bertctl.run_folder import SCHEMA, RunFolder
from bertctl.session import carried
from bertctl.writing import copy_file, link_file, replacing, write_json, write_text

if TYPE_CHECKING:
    from torch import Tensor

KEPT = 2
"""Checkpoints that stay; the older one is what a damaged newer one falls back to."""

_STATE = "state.json"
_MANIFEST = "manifest.json"
_BEST = "best"
_AVERAGE = "average"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose files are all there and unchanged.

    Attributes:
        path: Its folder.
        step: Optimizer steps that were taken before it.
        state: Content of state.json.
    """

    path: Path
    step: int
    state: dict[str, Any]


@dataclass(frozen=True)
class Snapshot:
    """Content of a checkpoint, copied at one moment; training may go on while it is written.

    Attributes:
        model: Weights by name, as `Model.copy_weights` returns them.
        optimizer: AdamW's state by `parameter|key`.
        random: States of the random generators by `device.process`.
        state: Content of state.json.
    """

    model: dict[str, Any]
    optimizer: "dict[str, Tensor]"
    random: "dict[str, Tensor]"
    state: dict[str, Any]


class Checkpoints:
    """The checkpoints of one run.

    One checkpoint at a time is written by a thread, while training goes on. `save` and `wait` raise
    the error of that thread.

    Args:
        folder: Of the run.
        recipe_hash: Hash of what decides its numbers; a checkpoint with another one is not used.
        listener: Receives warnings about damaged checkpoints.
    """

    def __init__(self, folder: RunFolder, recipe_hash: str, *, listener: Listener = SILENT) -> None:
        self._folder = folder
        self._hash = recipe_hash
        self._listener = listener
        self._writer: threading.Thread | None = None  # which writes a checkpoint at the moment
        self._failure: BaseException | None = None  # of the writer, until `wait` raises it
        # File and step of its weights -> SHA-256, of files that many checkpoints have in common.
        self._known: dict[tuple[str, int], str] = {}

    def save(self, snapshot: Snapshot, *, behind: bool) -> None:
        """Writes a checkpoint, while training goes on (`behind`) or before this returns.

        Raises:
            UnavailableError: this one or the one before could not be written; older ones stay.
        """
        self.wait()
        # The run's files can change while a writer works: they are linked, or copied, now.
        begun = self._begin(snapshot)
        if behind:
            # The writer's thread works in the session of this command.
            write_in_session = carried(self._write_quietly)
            writer = threading.Thread(target=write_in_session, args=(snapshot, *begun), daemon=True)
            # `start` raises if the system allows no more threads. Then the present thread writes.
            with suppress(RuntimeError):
                writer.start()
                self._writer = writer
                return
        self._write(snapshot, *begun)

    def wait(self) -> None:
        """Waits until nothing is being written any more.

        Raises:
            UnavailableError: The checkpoint that was being written could not be.
        """
        if self._writer is not None:
            # Somebody waits for the writer now, so it gets the usual priority.
            with suppress(OSError):  # the thread has ended, or the user may not raise a priority
                _set_niceness(self._writer, os.getpriority(os.PRIO_PROCESS, 0))
            self._writer.join()
            self._writer = None
        failure = self._failure
        self._failure = None
        if failure is not None:
            raise failure

    def latest(self) -> Checkpoint | None:
        """Returns the newest whole checkpoint of this recipe.

        Damaged ones are reported and left aside.
        """
        for path in sorted(self._folder.checkpoints.glob("step-*"), reverse=True):
            trouble = self._trouble(path)
            if trouble is None:
                state = json.loads((path / _STATE).read_text(encoding="utf-8"))
                self._compare_history(path / self._folder.history.name)
                return Checkpoint(path, int(state["outcome"]["step"]), state)
            self._listener.warn(f"the checkpoint {path} is not used: {trouble}")
        return None

    def _compare_history(self, saved_history: Path) -> None:
        """Warns if history.jsonl no longer begins with the checkpoint's copy of it."""
        history = self._folder.history
        if saved_history.exists():
            saved_bytes = saved_history.read_bytes()
        else:
            saved_bytes = b""
        if history.is_file():
            present_bytes = history.read_bytes()
        else:
            present_bytes = b""
        # Lines after the checkpoint are as they should be: the run went on.
        if not present_bytes.startswith(saved_bytes):
            self._listener.warn(
                f"{history} has been changed: it is restored to its content at "
                f"{saved_history.parent}"
            )

    def any(self) -> bool:
        """Returns whether there is anything that looks like a checkpoint."""
        return any(self._folder.checkpoints.glob("step-*"))

    def clear(self) -> None:
        """Deletes all checkpoints, once the run is finished."""
        self.wait()
        shutil.rmtree(self._folder.checkpoints, ignore_errors=True)

    def _begin(self, snapshot: Snapshot) -> tuple[Path, ExitStack]:
        """Makes the folder of a new checkpoint, with the files that the run has already.

        Args:
            snapshot: Content of the checkpoint; its other files are written by `_write`.

        Returns:
            The folder under a temporary name, and a context that renames it at its end, or deletes
            it after an error.
        """
        outcome = snapshot.state["outcome"]
        final = self._folder.checkpoints / f"step-{outcome['step']:08d}"
        with ExitStack() as stack:
            part = stack.enter_context(replacing(final))
            part.mkdir()
            if self._folder.history.exists():
                shutil.copyfile(self._folder.history, part / self._folder.history.name)
            has_best = outcome["best_step"] or outcome["scored_start"]
            if has_best:
                for path in _files(self._folder.model):
                    target = part / _BEST / path.relative_to(self._folder.model)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    link_file(path, target)
            for _, step in outcome["ranked"]:
                path = average_file(self._folder, step)
                (part / _AVERAGE).mkdir(exist_ok=True)
                link_file(path, part / _AVERAGE / path.name)
            # The caller leaves the context, once the checkpoint is written.
            return part, stack.pop_all()
        # For the type checker: an `ExitStack` may swallow an error, and this one never does.
        raise AssertionError

    def _write_quietly(self, snapshot: Snapshot, part: Path, begun: ExitStack) -> None:
        """Writes a checkpoint at low priority, in a thread; `wait` raises what went wrong."""
        # At low priority, the thread uses only what the training leaves. With MiniLM on 2 cores and
        # a checkpoint every 50 steps, that is 5 % of the time instead of 14 %. `wait` raises the
        # priority again.
        _set_niceness(threading.current_thread(), 19)
        try:
            self._write(snapshot, part, begun)
        except BaseException as error:  # noqa: BLE001 - `wait` raises it in the thread that cares
            self._failure = error

    def _write(self, snapshot: Snapshot, part: Path, begun: ExitStack) -> None:
        """Writes a checkpoint, its manifest last, and deletes all but the `KEPT` newest ones.

        Args:
            snapshot: Weights, optimizer and random states.
            part: Folder under a temporary name, which `_begin` made.
            begun: Context that `_begin` opened. At its end it renames the folder to its final name,
                or deletes the folder after an error.
        """
        from safetensors.torch import save_file

        from bertctl.modeling.fast.used_tokens import save_with_tables

        final = self._folder.checkpoints / part.name
        with begun:
            file = part / "model.safetensors"
            save_with_tables(lambda tensors: save_file(tensors, file), snapshot.model, file)
            save_file(snapshot.optimizer, part / "optimizer.safetensors")
            save_file(snapshot.random, part / "random.safetensors")
            write_text(part / _STATE, json.dumps(snapshot.state, indent=2) + "\n")
            best_step = snapshot.state["outcome"]["best_step"]
            names = [path.relative_to(part) for path in _files(part)]
            files = {str(name): self._entry(part, name, best_step) for name in names}
            write_json(
                part / _MANIFEST, {"schema": SCHEMA, "recipe_hash": self._hash, "files": files}
            )
            # A resumed run may save a checkpoint of the same step again; this one replaces it.
            shutil.rmtree(final, ignore_errors=True)
        for outdated in sorted(final.parent.glob("step-*"))[:-KEPT]:
            shutil.rmtree(outdated, ignore_errors=True)

    def _entry(self, part: Path, name: Path, best_step: int) -> dict[str, Any]:
        """Returns size and hash of a checkpoint's file, for its manifest.

        Weights that were copied to an earlier checkpoint as well are not hashed again.

        Args:
            part: Folder of the checkpoint while it is written.
            name: The file, relative to the folder.
            best_step: Step of the best weights so far.
        """
        path = part / name
        folder = name.parts[0]
        if folder not in (_BEST, _AVERAGE):
            return {"bytes": path.stat().st_size, "sha256": sha256_of(path)}

        # Files in best/ have the same names for the weights of any step, so the step is needed to
        # tell them apart. Files in average/ have the step in their names.
        step = best_step if folder == _BEST else 0
        content = (str(name), step)
        if content not in self._known:
            self._known[content] = sha256_of(path)

        # The file may share its bytes with the run's (a hard link). Copied onto itself, it is a
        # file of its own: damage to one copy leaves the others whole.
        copy_file(path, path)
        return {"bytes": path.stat().st_size, "sha256": self._known[content]}

    def _trouble(self, path: Path) -> str | None:
        """Returns what is wrong with a checkpoint, or None."""
        try:
            manifest = read_json(path / _MANIFEST)
            files: dict[str, dict[str, Any]] = manifest["files"]
            if manifest["recipe_hash"] != self._hash:
                return "it belongs to another recipe, other data or another model"
            for name, entry in files.items():
                file = path / name
                if not file.is_file():
                    return f"{name} is missing"
                if file.stat().st_size != entry["bytes"]:
                    return (
                        f"{name} has {file.stat().st_size} bytes where {entry['bytes']} were "
                        "written"
                    )
                if sha256_of(file) != entry["sha256"]:
                    return f"{name} has changed since it was written"
            if not {
                _STATE,
                "model.safetensors",
                "optimizer.safetensors",
                "random.safetensors",
            } <= set(files):
                return f"{_MANIFEST} does not name all files"
        except BertctlError as error:
            return error.message
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            return f"{_MANIFEST} can't be read ({type(error).__name__}: {error})"
        return None


def average_file(folder: RunFolder, step: int) -> Path:
    """Returns the file with the weights of an evaluation that may be averaged at the end."""
    return folder.checkpoints / _AVERAGE / f"step-{step:08d}.safetensors"


def restore_files(checkpoint: Checkpoint, folder: RunFolder) -> None:
    """Restores the files of a run to what they were at the checkpoint.

    These are history.jsonl, the weights of the evaluations that will be averaged, and model/ with
    the weights that were the best then. Where no weights were the best yet, model/ is removed.
    """
    for _, step in checkpoint.state["outcome"]["ranked"]:
        path = average_file(folder, step)
        copy_file(checkpoint.path / _AVERAGE / path.name, path)

    history = checkpoint.path / folder.history.name
    if history.exists():
        copy_file(history, folder.history)
    elif folder.history.exists():  # nothing had been logged at the checkpoint
        write_text(folder.history, "")

    best = checkpoint.path / _BEST
    if not best.is_dir():
        shutil.rmtree(folder.model, ignore_errors=True)
        return
    for path in _files(best):
        copy_file(path, folder.model / path.relative_to(best))


def _files(folder: Path) -> list[Path]:
    """Returns all files in a folder and its subfolders, except hidden ones."""
    return [path for path in sorted(folder.rglob("[!.]*")) if path.is_file()]


def _set_niceness(thread: threading.Thread, niceness: int) -> None:
    """Sets the scheduling priority of a thread, on Linux, where each thread has its own.

    Args:
        thread: The thread.
        niceness: As for the command `nice`: 19 is the lowest priority.
    """
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, thread.native_id or 0, niceness)
