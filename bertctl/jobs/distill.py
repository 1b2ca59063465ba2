"""A student beside its teacher: the recipe that it is trained by, and how the two compare."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bertctl.baselines.run_baselines import paired_comparison
from bertctl.config.load import load_recipe
from bertctl.config.recipe_sections import LoraSection
from bertctl.data.rows import Rows
from bertctl.errors import UnavailableError, UsageError
from bertctl.inference.engine import Engine
from bertctl.inference.evaluate import SplitResult, evaluate_split
from bertctl.inference.speed import rows_per_second
from bertctl.inference.trained import NetworkRun, open_run
from bertctl.modeling.layers import layer_count
from bertctl.modeling.linear_head import is_probe
from bertctl.modeling.stored_weights import stored_weights
from bertctl.progress import Listener
from bertctl.run_folder import RunFolder

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
    """Returns what a student's recipe says in place of its teacher's, by dotted field.

    Args:
        teacher: The teacher's run folder.
        layers: How many of the teacher's layers the student begins with; None with `model`.
        model: Smaller model that it begins with, or None.

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
    if recipe.lora != LoraSection():  # of the teacher; a student is trained whole
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
class ModelFigures:
    """What a model answers, how fast, and how large it is.

    Attributes:
        score: Primary metric on the validation rows.
        rows_per_second: Rows that it answers in a second, on this machine.
        parameters: Numbers in its weights.
        n_bytes: Size of its weights on disk.
    """

    score: float
    rows_per_second: float
    parameters: int
    n_bytes: int


@dataclass(frozen=True)
class Comparison:
    """A student beside its teacher, on the same rows.

    Attributes:
        metric: Name of the primary metric.
        split: The split, by name.
        teacher: Figures of the teacher.
        student: Figures of the student.
        difference: The student's metric minus the teacher's, with its interval, as metrics.json has
            such; None where the lines do not give the metric.
    """

    metric: str
    split: str
    teacher: ModelFigures
    student: ModelFigures
    difference: Mapping[str, Any] | None

    def as_json(self) -> dict[str, Any]:
        """Returns the comparison for the answer of the verb."""
        return asdict(self)

    @property
    def sentence(self) -> str:
        """How much of the teacher is kept, for people."""
        share = self.student.score / self.teacher.score if self.teacher.score else float("nan")
        speed = self.student.rows_per_second / self.teacher.rows_per_second
        size = self.student.parameters / self.teacher.parameters
        return (
            f"{self.split}: the student has {100 * share:.1f} % of its teacher's {self.metric}, "
            f"at {speed:.1f} times its rows per second, with {100 * size:.0f} % of its parameters"
        )


def compare_with_teacher(
    student: Path, teacher: Path, *, options: Mapping[str, Any], listener: Listener
) -> Comparison:
    """Scores a student and its teacher on the validation rows of the student's recipe.

    Args:
        student: Run folder of the student, finished.
        teacher: Run folder of the teacher.
        options: Where they compute: `runtime.device`, `runtime.threads`.
        listener: Receives messages.
    """
    runs = [open_run(path, options=options) for path in (student, teacher)]
    metrics = RunFolder(student).read_metrics()
    split = metrics.primary.split
    rows = runs[0].load_data(listener=listener).splits[split]
    engines = [run.load() for run in runs]
    results = [_scored(run, engine, rows) for run, engine in zip(runs, engines, strict=True)]
    speeds = _speeds(runs, engines, rows)
    name = metrics.primary.name
    of_student, of_teacher = (
        _figures(run, result.metrics[name].value, speed)
        for run, result, speed in zip(runs, results, speeds, strict=True)
    )
    difference = paired_comparison(
        runs[0].task.answers,
        results[0].lines,
        results[1].lines,
        name,
        compared=1,
    )
    return Comparison(name, split, of_teacher, of_student, difference)


def _scored(run: NetworkRun, engine: Engine, rows: Rows) -> SplitResult:
    features = run.task.encode(rows, engine.tokenizer, max_length=run.recipe.model.max_length)
    return evaluate_split(engine, run.task, rows, features, recipe=run.recipe)


def _speeds(runs: Sequence[NetworkRun], engines: Sequence[Engine], rows: Rows) -> list[float]:
    """Returns how many rows each model answers in a second."""
    some = rows.select(range(min(len(rows), _TIMED_ROWS)))
    features = [
        run.task.encode(some, engine.tokenizer, max_length=run.recipe.model.max_length)
        for run, engine in zip(runs, engines, strict=True)
    ]
    passes = {
        number: partial(
            engine.forward,
            run.task,
            features[number],
            batch_size=run.recipe.evaluation.batch_size,
        )
        for number, (run, engine) in enumerate(zip(runs, engines, strict=True))
    }
    return list(rows_per_second(passes, n_rows=len(some)).values())


def _figures(run: NetworkRun, score: float, rows_per_second: float) -> ModelFigures:
    tensors = stored_weights(run.source.folder).values()
    return ModelFigures(
        score=score,
        rows_per_second=rows_per_second,
        parameters=sum(int(np.prod(tensor.shape)) for tensor in tensors),
        n_bytes=sum(tensor.bytes for tensor in tensors),
    )
