"""A folder of `bertctl export`, opened to be used as a run is: without torch, and proved first."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from bertctl.config.dump import recipe_hash
from bertctl.config.load import load_recipe
from bertctl.config.recipe_sections import RuntimeSection
from bertctl.config.schema import Recipe
from bertctl.documents import loading
from bertctl.errors import UnavailableError, UsageError
from bertctl.inference.engine import Engine
from bertctl.inference.export_folder import AGAIN, ExportFolder
from bertctl.inference.graph_backend import GraphBackend
from bertctl.inference.trained_run import TrainedRun, refuse_learned_fields
from bertctl.inference.window_answers import WindowAnswers
from bertctl.modeling.sentence_folder import read_modules
from bertctl.run_folder import RunFolder
from bertctl.runtime.cpu import available_cores
from bertctl.runtime.device import Compute
from bertctl.runtime.launch import ALONE, Workers
from bertctl.tasks.base import Task
from bertctl.tasks.registry import task_type
from bertctl.tasks.sentences.sentence_embeddings import SENTENCE_MODULES_KEY
from bertctl.version import __version__
from bertctl.words import count


@dataclass(frozen=True, kw_only=True)
class ExportedRun(TrainedRun):
    """An export that answers as a run does.

    Attributes:
        files: The files, as they were written.
    """

    files: ExportFolder

    @property
    def hash(self) -> str:
        """Hash of everything that decides its answers."""
        return recipe_hash(
            self.recipe,
            data_hashes={"bertctl": __version__},
            model_hash=self.files.document.digest,
        )

    def load(self, workers: Workers = ALONE) -> Engine:
        """Returns the graph, ready to compute; see `ExportFolder.session` for what is refused."""
        if workers.group is not None:  # machines may have different numbers of threads
            recipe = self.recipe.with_fields("runtime", threads=None)
            workers.agree(replace(self, recipe=recipe).hash)
        return export_engine(self.files, self.recipe.runtime, workers)


def export_engine(files: ExportFolder, runtime: RuntimeSection, workers: Workers = ALONE) -> Engine:
    """Returns the graph of an export, ready to compute.

    Args:
        files: The export.
        runtime: Threads, and how far its numbers may be from those where it was made.
        workers: The processes that share the work.

    Raises:
        UnavailableError: The runtime is not installed.
        DeviceError: The graph gives other numbers on this machine.
    """
    document = files.document
    threads = runtime.threads or available_cores()
    reason = f"cpu, {document.precision}, {count(threads, 'thread')}, by {document.format}"
    compute = Compute("cpu", document.precision, threads, reason)
    session = files.session(threads, accept_drift=runtime.accept_drift)
    windows = None
    if document.windows is not None:
        windows = WindowAnswers.read(files.path, document.windows)
    backend = GraphBackend(session, windows)
    return Engine(backend, files.tokenizer(), files.padding, compute, workers)


def open_export(path: Path, *, options: Mapping[str, object] | None = None) -> ExportedRun:
    """Opens a folder of `bertctl export`.

    Args:
        path: The folder.
        options: Recipe fields to change, by dotted name.

    Raises:
        UnavailableError: A file is missing, or the runtime is not installed.
        DataError: A file was changed after the export.
        UsageError: Options that don't fit an export.
    """
    fields = dict(options or {})
    refuse_learned_fields(path, fields)
    files = ExportFolder.open(path)
    recipe = load_recipe(str(path / "recipe.yaml"), options=fields)
    if "data.max_eval_rows" not in fields:  # a limit holds for the call that named it
        recipe = recipe.with_fields("data", max_eval_rows=None)
    check_runtime(
        files,
        device=fields.get("runtime.device", "auto"),
        precision=fields.get("runtime.precision", "auto"),
    )
    check_length(files, recipe.model.max_length)
    # The recipe has the device and precision of the training run. The graph computes on the CPU, in
    # the precision that it was exported in.
    recipe = recipe.with_fields("runtime", device="cpu", precision="auto")
    with loading(f"the export {path}", kind=UnavailableError, remedy=AGAIN):
        task = _task(recipe, files)
    return ExportedRun(
        folder=RunFolder(path),
        recipe=recipe,
        task=task,
        pairs=files.document.pairs,
        named=tuple(fields),
        files=files,
    )


def _task(recipe: Recipe, files: ExportFolder) -> Task:
    """Returns the task with the label names and the decision of the export."""
    modules = read_modules(files.path)
    config = {**files.config, SENTENCE_MODULES_KEY: modules}
    task = task_type(recipe.task).from_model(recipe, config)
    if files.document.decision is not None:
        return task.with_decision(files.document.decision)
    return task


def check_runtime(files: ExportFolder, *, device: object, precision: object) -> None:
    """Refuses what an export can't compute.

    Raises:
        UsageError: Another device than the CPU, or another precision than the export's.
    """
    if device not in ("auto", "cpu"):
        raise UsageError(
            f"{files.path} is an export, which computes on the CPU, and `device={device}` was "
            "given",
            remedy="Leave `device=` out, or give the run that it was made from.",
        )
    exported_in = files.document.precision
    if precision not in ("auto", exported_in):
        raise UsageError(
            f"{files.path} was exported in {exported_in}, and `precision={precision}` was given",
            remedy="Leave `precision=` out, or export the model once more in that precision.",
        )


def check_length(files: ExportFolder, max_length: int) -> None:
    """Refuses texts that are longer than those that the export was proved on.

    Raises:
        UsageError: A longer length; the error names the one that was proved.
    """
    proved = files.document.max_length
    if max_length > proved:
        raise UsageError(
            f"{files.path} was proved on texts of up to {proved} tokens, and "
            f"`max_length={max_length}` was given",
            remedy=f"Give at most {proved}, or export the model with that length.",
        )
