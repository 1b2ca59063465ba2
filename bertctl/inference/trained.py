"""A finished run, opened to be used: its recipe, its task, its model."""

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from bertctl.catalog.datasets import find_dataset
from bertctl.catalog.hub import NotCachedError, cache_only
from bertctl.catalog.models import MODELS
from bertctl.config.load import load_recipe
from bertctl.config.recipe_sections import DataSection, ModelSection
from bertctl.config.schema import Recipe
from bertctl.data.readers import READERS
from bertctl.data.rows import Rows
from bertctl.documents import loading
from bertctl.errors import UnavailableError, UsageError
from bertctl.inference.engine import Engine
from bertctl.modeling.families import only_fp32
from bertctl.modeling.linear_head import is_probe, read_probe
from bertctl.modeling.source import ModelSource, inspect_model
from bertctl.run_folder import DAMAGED, RunFolder
from bertctl.runtime.device import choose_compute
from bertctl.runtime.launch import ALONE, Workers
from bertctl.tasks.base import Task
from bertctl.tasks.registry import TASKS

_FORM = ("encoding", "delimiter", "header")
_COLUMNS = ("text_column", "pair_column", "label_column", "choice_columns", "id_column")


@dataclass(frozen=True)
class TrainedRun:
    """A run whose model can answer; nothing is loaded before `load`.

    Attributes:
        folder: the run.
        recipe: as it ran, with what the caller changed since (device, threads).
        source: its model's files.
        task: with the label names the model carries.
        pairs: whether it was trained on pairs of texts; None where the run does not say.
        named: fields that the caller named; what else the recipe names is the run's.
    """

    folder: RunFolder
    recipe: Recipe
    source: ModelSource
    task: Task
    pairs: bool | None
    named: tuple[str, ...] = ()

    @property
    def file_settings(self) -> DataSection:
        """Is how a file is read that is not the run's own: its form is detected anew, unless the caller said it."""
        form = {field: None for field in _FORM if f"data.{field}" not in self.named}
        return self.recipe.data.model_copy(update=form)

    @property
    def column_hints(self) -> frozenset[str]:
        """Are the columns that only the run's own recipe names: such a file may call them otherwise."""
        return frozenset(field for field in _COLUMNS if f"data.{field}" not in self.named)

    def check_pairs(self, rows: Rows) -> None:
        """Refuses pairs where single texts were learned, and the other way round.

        Raises:
            UsageError: with how to name the columns.
        """
        if self.pairs is None or rows.has("pair") == self.pairs:
            return
        if self.pairs:
            raise UsageError(
                f"{self.folder.path} was trained on pairs of texts, and {rows.source} has single texts",
                remedy="Name both columns: --text-column NAME --pair-column NAME "
                "(lines have one text each: give CSV, TSV or JSONL, for stdin with --input-format).",
            )
        raise UsageError(
            f"{self.folder.path} was trained on single texts, and {rows.source} was read as pairs",
            remedy="Name the column with the text: --text-column NAME.",
        )

    def load(self, workers: Workers = ALONE) -> Engine:
        """Returns the model on its device, ready to compute."""
        from bertctl.modeling.build import load_trained

        compute = choose_compute(self.recipe.runtime, only_fp32=only_fp32(self.source.config))
        loaded = load_trained(self.folder.path, self.source, self.task.auto_class, compute)
        return Engine.of(loaded, compute, workers)


def open_run(path: Path, *, options: dict[str, object] | None = None) -> TrainedRun:
    """Opens a run folder.

    Args:
        path: RUN.
        options: recipe fields to change, by dotted name: `runtime.device`, `evaluation.batch_size`, `data.data_dir`.

    Raises:
        UnavailableError: no run, or one without a model.
        UsageError: options that don't fit.
    """
    folder = RunFolder.open(path)
    if not is_probe(path) and not any(folder.model.glob("model*.safetensors")):
        state = folder.read(folder.status)["state"]
        raise UnavailableError(
            f"{path} holds no model: the run's state is '{state}'",
            remedy="Wait for it to finish, or train again with --overwrite.",
        )
    recipe = load_recipe(str(folder.recipe), options=options)
    if "data.max_eval_rows" not in (options or {}):  # a limit holds for the call that named it
        recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update={"max_eval_rows": None})})
    if is_probe(path):  # its encoder is where it was, its head in the run
        model_config = read_probe(path)[1]["head"]
        source = _encoder(recipe.model, path)
    else:
        source = inspect_model(ModelSection(name=str(folder.model), max_length=recipe.model.max_length))
        model_config = source.config
    with loading(f"the run {path}", remedy=DAMAGED):
        task = TASKS[recipe.task].from_model(recipe, model_config)
        if folder.decision.exists():
            task = task.with_decision(folder.read(folder.decision))
    return TrainedRun(folder, recipe, source, task, _pairs(folder, recipe), tuple(options or ()))


def _encoder(settings: ModelSection, run: Path) -> ModelSource:
    """Returns the encoder of a probe; one that is not in the catalog is not fetched because a run names it."""
    try:
        with nullcontext() if settings.name in MODELS else cache_only():
            return inspect_model(settings)
    except NotCachedError as error:
        raise UnavailableError(
            f"{run} is a probe on '{settings.name}', which is not on this disk, and what a run names is not fetched",
            remedy=f"If you trust it, fetch it yourself: hf download {settings.name}",
        ) from error


def _pairs(folder: RunFolder, recipe: Recipe) -> bool | None:
    if "pair" not in READERS[recipe.task].columns:
        return None
    if recipe.data.name:
        return find_dataset(recipe.data.name, recipe.data.datasets_file).columns.pair is not None
    columns = folder.read(folder.environment).get("columns") if folder.environment.exists() else None
    return "pair" in columns if columns else None
