"""A folder of `bertctl export`, opened to be used as a run is: without torch, and proved first."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from bertctl.config.dump import recipe_hash
from bertctl.config.load import load_recipe
from bertctl.config.schema import Recipe
from bertctl.documents import loading, read_json
from bertctl.errors import UnavailableError, UsageError
from bertctl.inference.engine import Engine
from bertctl.inference.export_folder import AGAIN, ExportFolder
from bertctl.inference.graph_backend import GraphBackend
from bertctl.inference.trained_run import TrainedRun, refuse_learned_fields
from bertctl.inference.window_answers import WindowAnswers
from bertctl.modeling.sentence_folder import read_modules
from bertctl.run_documents.export_document import ExportDocument
from bertctl.run_folder import RunFolder
from bertctl.runtime.cpu import available_cores
from bertctl.runtime.device import Compute
from bertctl.runtime.launch import ALONE, Workers
from bertctl.tasks.base import Task
from bertctl.tasks.registry import task_type
from bertctl.tasks.sentences.sentence_embeddings import SAID
from bertctl.version import __version__


@dataclass(frozen=True, kw_only=True)
class ExportedRun(TrainedRun):
    """An export that answers as a run does.

    Attributes:
        files: The files, as they were written.
    """

    files: ExportFolder

    @cached_property
    def _compute(self) -> Compute:
        document = self.files.document
        threads = self.recipe.runtime.threads or available_cores()
        why = f"cpu, {document.precision}, {threads} threads, by {document.format}"
        return Compute("cpu", document.precision, threads, why)

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
        compute = self._compute
        session = self.files.session(compute.threads, accept_drift=self.recipe.runtime.accept_drift)
        windows = None
        if self.files.document.windows is not None:
            windows = WindowAnswers.read(self.folder.path, self.files.document.windows)
        return Engine(
            GraphBackend(session, windows),
            self.files.tokenizer(),
            self.files.padding,
            compute,
            workers,
        )


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
    named = dict(options or {})
    refuse_learned_fields(path, named)
    files = ExportFolder.open(path)
    recipe = load_recipe(str(path / "recipe.yaml"), options=named)
    if "data.max_eval_rows" not in named:  # a limit holds for the call that named it
        recipe = recipe.with_fields("data", max_eval_rows=None)
    recipe = _on_cpu(recipe, files.document, named, path)
    with loading(f"the export {path}", kind=UnavailableError, remedy=AGAIN):
        task = _task(recipe, files)
    return ExportedRun(
        folder=RunFolder(path),
        recipe=recipe,
        task=task,
        pairs=files.document.pairs,
        named=tuple(named),
        files=files,
    )


def _task(recipe: Recipe, files: ExportFolder) -> Task:
    """Returns the task with the label names and the decision of the export."""
    modules = read_modules(files.path)
    config = {**read_json(files.path / "config.json"), SAID: modules}
    task = task_type(recipe.task).from_model(recipe, config)
    if files.document.decision is not None:
        return task.with_decision(files.document.decision)
    return task


def _on_cpu(
    recipe: Recipe, document: ExportDocument, named: Mapping[str, object], path: Path
) -> Recipe:
    """Returns the recipe as an export computes it, and refuses what an export can't do.

    Raises:
        UsageError: Another device or precision, or longer texts than were proved.
    """
    device = named.get("runtime.device", "auto")
    if device not in ("auto", "cpu"):
        raise UsageError(
            f"{path} is an export, which computes on the CPU, and `device={device}` was given",
            remedy="Leave `device=` out, or give the run that it was made from.",
        )
    precision = named.get("runtime.precision", "auto")
    if precision not in ("auto", document.precision):
        raise UsageError(
            f"{path} was exported in {document.precision}, and `precision={precision}` was given",
            remedy="Leave `precision=` out, or export the model once more in that precision.",
        )
    if recipe.model.max_length > document.max_length:
        raise UsageError(
            f"{path} was proved on texts of up to {document.max_length} tokens, and "
            f"`max_length={recipe.model.max_length}` was given",
            remedy=f"Give at most {document.max_length}, or export the model with that length.",
        )
    return recipe.with_fields("runtime", device="cpu", precision="auto")
