"""A student beside its teacher: the recipe that it is trained by, and how the two compare."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bertctl.baselines.run_baselines import paired_comparison
from bertctl.config.load import load_recipe
from bertctl.config.recipe_sections import DistillationSection, LoraSection
from bertctl.config.schema import Recipe
from bertctl.data.rows import Rows
from bertctl.errors import UnavailableError, UsageError
from bertctl.inference.engine import Engine
from bertctl.inference.evaluate import SplitResult, evaluate_split
from bertctl.inference.speed import rows_per_second
from bertctl.inference.trained import NetworkRun, open_run
from bertctl.metrics.value import MetricValue
from bertctl.modeling.layers import layer_count
from bertctl.modeling.linear_head import is_probe
from bertctl.modeling.stored_weights import stored_weights
from bertctl.progress import Listener
from bertctl.run_documents.distillation_document import DistillationDocument, ModelFigures
from bertctl.run_documents.metrics_document import BaselineDifference
from bertctl.run_folder import SCHEMA, RunFolder
from bertctl.writing import write_json

if TYPE_CHECKING:
    from bertctl.training.start import Resume

_TIMED_ROWS = 512
"""Rows whose answers are timed."""


def evenly_spaced(n_layers: int, n_kept: int) -> list[int]:
    """Returns the layers that a student keeps, counted from 1: every second of 6 are 1, 3 and 5.

    Args:
        n_layers: Layers of the teacher.
        n_kept: Layers of the student, at most as many.
    """
    return [position * n_layers // n_kept + 1 for position in range(n_kept)]


def student_options(teacher: Path, *, layers: int | None, model: str | None) -> dict[str, Any]:
    """Returns what a student's recipe has in place of its teacher's values, by dotted field.

    For 3 of 6 layers: {"model.name": "runs/teacher/model", "model.keep_layers": [1, 3, 5], ...}.

    Args:
        teacher: The teacher's run folder.
        layers: How many of the teacher's layers the student begins with; None with `model`.
        model: Smaller model that the student begins with, or None. Its name is in the recipe
            already, so the result does not have it.

    Raises:
        UsageError: Both or none of `layers` and `model`, more layers than there are, or a teacher
            that was not fine-tuned.
        UnavailableError: No run.
    """
    if (layers is None) == (model is None):
        raise UsageError(
            "a student begins with some layers of its teacher, or with a smaller model",
            remedy="Give one of them: `layers=3` or `model=SMALLER`.",
        )
    if not teacher.is_dir():
        raise UnavailableError(
            f"the run {teacher} does not exist",
            remedy="Name the folder of a finished run: `bertctl runs ls` lists them.",
            file=teacher,
        )
    folder = RunFolder.open(teacher)
    if is_probe(teacher):
        raise UsageError(
            f"{teacher} is a probe: its recipe trains a head on a frozen encoder, and no student",
            remedy="Name it as distillation.teacher of a recipe of `finetune`.",
        )
    options: dict[str, Any] = {"distillation.teacher": str(teacher), "model.keep_layers": None}
    recipe = load_recipe(str(folder.recipe))
    # A student is trained whole, also if its teacher was trained with LoRA.
    if recipe.lora != LoraSection():
        changed = recipe.lora.model_dump(exclude_defaults=True)
        options |= {f"lora.{name}": getattr(LoraSection(), name) for name in changed}
    if layers is None:
        return options
    run = open_run(teacher)
    n_layers = layer_count(run.source.config)
    if not 1 <= layers <= n_layers:
        raise UsageError(
            f"a student of {layers} layers: {teacher} has {n_layers}",
            remedy=f"1 to {n_layers} fit.",
        )
    return options | {
        "model.name": str(folder.model),
        "model.keep_layers": evenly_spaced(n_layers, layers),
    }


@dataclass(frozen=True)
class StudentRun:
    """A student to be compared with its teacher.

    Attributes:
        path: Its run folder, finished.
        plain: Run folder of the same student without a teacher, or None.
    """

    path: Path
    plain: Path | None = None

    @property
    def paths(self) -> list[Path]:
        """The runs of this student."""
        return [path for path in (self.path, self.plain) if path is not None]


def train_student(
    recipe: Recipe,
    output: Path | None,
    *,
    resume: "Resume" = "if any",
    overwrite: bool = False,
    listener: Listener,
) -> Path:
    """Trains a run in this process, and returns its folder. A finished run is kept.

    Args:
        recipe: What to run.
        output: The run folder.
        resume: Whether to continue the run in the folder.
        overwrite: Whether to replace the run in the folder.
        listener: Receives messages.
    """
    from bertctl.baselines.run_baselines import make_baselines
    from bertctl.jobs.prepare import prepare
    from bertctl.reporting.card import write_card
    from bertctl.training.announce import announce
    from bertctl.training.finetune import RunOptions
    from bertctl.training.start import start

    job = prepare(recipe, listener=listener)
    announce(job, listener=listener)
    result = start(
        job,
        output,
        resume=False if overwrite else resume,
        overwrite=overwrite,
        options=RunOptions(make_baselines=make_baselines, on_finish=write_card),
        listener=listener,
    )
    return result.folder.path


def without_teacher(recipe: Recipe) -> Recipe:
    """Returns the recipe of the same student that learns the labels alone."""
    return recipe.model_copy(update={"distillation": DistillationSection()})


def compare_with_teacher(
    student: Path,
    teacher: Path,
    *,
    plain: Path | None = None,
    options: Mapping[str, Any],
    listener: Listener,
) -> DistillationDocument:
    """Compares one student; see `compare_students`."""
    runs = [StudentRun(student, plain)]
    return compare_students(runs, teacher, options=options, listener=listener)[0]


def compare_students(
    students: Sequence[StudentRun],
    teacher: Path,
    *,
    options: Mapping[str, Any],
    listener: Listener,
) -> list[DistillationDocument]:
    """Scores students and their teacher on the same validation rows, and compares them.

    The rows are those of the first student's recipe. A distillation.json is written into the run
    folder of each student.

    Args:
        students: The students, which all learned from the same teacher. With a student may come its
            `plain` run: the same student, trained without a teacher.
        teacher: Run folder of the teacher.
        options: Where they compute: `runtime.device`, `runtime.threads`.
        listener: Receives messages.

    Returns:
        The content of each student's distillation.json.
    """
    paths = [teacher, *chain.from_iterable(student.paths for student in students)]
    runs = {path: open_run(path, options=options) for path in paths}
    metrics = RunFolder(students[0].path).read_metrics()
    split = metrics.primary.split
    metric_name = metrics.primary.name
    first_run = runs[students[0].path]
    rows = first_run.load_data(listener=listener).splits[split]
    engines = {path: run.load() for path, run in runs.items()}
    results = {path: _scored(run, engines[path], rows) for path, run in runs.items()}
    speeds = _speeds(runs, engines, rows)
    figures = {
        path: _figures(run, results[path].metrics[metric_name], speeds[path])
        for path, run in runs.items()
    }

    def difference(path: Path, reference: Path) -> BaselineDifference | None:
        """Returns a run's metric minus a reference's; None if predictions don't give the metric."""
        document = paired_comparison(
            first_run.task.answers,
            results[path].lines,
            results[reference].lines,
            metric_name,
            compared=1,
        )
        if document is None:
            return None
        return BaselineDifference.model_validate(document)

    documents = []
    for student in students:
        document = DistillationDocument(
            schema_number=SCHEMA,
            metric=metric_name,
            split=split,
            teacher=figures[teacher],
            student=figures[student.path],
            difference=difference(student.path, teacher),
        )
        if student.plain is not None:
            compared = {
                "plain": figures[student.plain],
                "plain_difference": difference(student.path, student.plain),
            }
            document = document.model_copy(update=compared)
        write_json(RunFolder(student.path).distillation, document.as_json())
        documents.append(document)
    return documents


def _scored(run: NetworkRun, engine: Engine, rows: Rows) -> SplitResult:
    """Returns the predictions of a run for some rows, with metrics and their intervals."""
    features = run.task.encode(rows, engine.tokenizer, max_length=run.recipe.model.max_length)
    result = evaluate_split(engine, run.task, rows, features, recipe=run.recipe)
    return result.thorough(run.recipe)


def _speeds(
    runs: Mapping[Path, NetworkRun], engines: Mapping[Path, Engine], rows: Rows
) -> dict[Path, float]:
    """Returns how many rows each model answers in a second."""
    timed = rows.select(range(min(len(rows), _TIMED_ROWS)))
    passes = {}
    for path, run in runs.items():
        length = run.recipe.model.max_length
        features = run.task.encode(timed, engines[path].tokenizer, max_length=length)
        passes[path] = partial(
            engines[path].forward,
            run.task,
            features,
            batch_size=run.recipe.evaluation.batch_size,
        )
    return rows_per_second(passes, n_rows=len(timed))


def _figures(run: NetworkRun, score: MetricValue, rows_per_second: float) -> ModelFigures:
    """Returns the score, speed and size of a model."""
    tensors = stored_weights(run.source.folder).values()
    return ModelFigures(
        score=score.value,
        low=score.low,
        high=score.high,
        rows_per_second=rows_per_second,
        parameters=sum(int(np.prod(tensor.shape)) for tensor in tensors),
        n_bytes=sum(tensor.bytes for tensor in tensors),
    )
