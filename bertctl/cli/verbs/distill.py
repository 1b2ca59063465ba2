"""`bertctl distill`."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertctl.cli.framework.output import Output, Shown, plain_table
from bertctl.cli.framework.recipe_options import RecipeRequest, takes_recipe
from bertctl.cli.verbs.training_run import RunFlags, carry_out, takes_flags

if TYPE_CHECKING:
    from bertctl.jobs.distill import Comparison
    from bertctl.progress import Listener


@takes_recipe(
    "model",
    "training",
    "compute",
    "baselines",
    "long_runs",
    "deterministic",
    has_recipe_argument=False,
)
@takes_flags
def distill(
    out: Output,
    flags: RunFlags,
    recipe: RecipeRequest,
    teacher: Annotated[Path, typer.Argument(metavar="TEACHER")],
    layers: Annotated[int | None, typer.Option("--layers", metavar="N")] = None,
    unlabelled: Annotated[str | None, typer.Option("--unlabelled", metavar="FILE")] = None,
    alpha: Annotated[float | None, typer.Option("--alpha", metavar="X")] = None,
    temperature: Annotated[float | None, typer.Option("--temperature", metavar="X")] = None,
) -> None:
    """Train a smaller model that learns from a finished run's answers, and compare both.

    The student reads the teacher's training rows, and learns their labels and how sure the teacher
    is of each. It begins with some of the teacher's layers, or with another model. The run is one
    like any other. At the end teacher and student are scored and timed on the same rows.

    Args:
        teacher: Run folder of the teacher.
        layers: Layers of the student: that many of the teacher's, evenly spaced from the first on.
        unlabelled: Rows without labels, of any number, whose answers are learned as well. Labels in
            the file are not read.
        alpha: Weight of the labels, 0 to 1; the teacher's answers have the rest. Default: 0.5.
        temperature: What logits are divided by before they are compared. Default: 2.

    Examples:
        bertctl distill runs/sst2-1a2b3c4d --layers 3 -o runs/small
        bertctl distill runs/sst2-1a2b3c4d --layers 3 --unlabelled reviews.txt
        bertctl distill runs/sst2-1a2b3c4d --model bert-tiny --alpha 0.1
    """
    from bertctl.jobs.distill import compare_with_teacher, student_options

    typed = dict(recipe.options)
    if unlabelled is not None:
        typed["distillation.unlabelled"] = unlabelled
    if alpha is not None:
        typed["distillation.alpha"] = alpha
    if temperature is not None:
        typed["distillation.temperature"] = temperature
    changed = student_options(teacher, layers=layers, model=typed.get("model.name"))
    name = {"name": f"student-{teacher.resolve().name}"[:100]}
    request = replace(
        recipe,
        name=str(teacher / "recipe.yaml"),
        options={**name, **changed, **typed},
        verb="finetune",
    )
    traced = request.trace(listener=out)

    def beside(student: Path, listener: "Listener") -> tuple[dict[str, Any], list[Shown]]:
        runtime = {"runtime.device": traced[0].runtime.device}
        comparison = compare_with_teacher(student, teacher, options=runtime, listener=listener)
        return {"distillation": comparison.as_json()}, [_table(comparison), comparison.sentence]

    carry_out(out, traced, flags, beside=beside)


def _table(comparison: "Comparison") -> Shown:
    """Returns a line for each of the two models."""
    from bertctl.words import human_bytes

    names = (comparison.metric, "rows/s", "parameters", "weights")
    table = plain_table("", *names, title=f"on {comparison.split}", right=names)
    for name, figures in (("teacher", comparison.teacher), ("student", comparison.student)):
        table.add_row(
            name,
            f"{figures.score:.4f}",
            f"{figures.rows_per_second:,.0f}",
            f"{figures.parameters:,}",
            human_bytes(figures.n_bytes),
        )
    return table
