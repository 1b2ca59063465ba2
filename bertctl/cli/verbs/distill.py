"""`bertctl distill`."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertctl.cli.framework.next_command import say_next, use_of_run
from bertctl.cli.framework.output import Output, Shown
from bertctl.cli.framework.recipe_options import takes_recipe
from bertctl.cli.framework.recipe_requests import RecipeRequest
from bertctl.cli.verbs.training_run import RunFlags, carry_out, takes_flags
from bertctl.errors import UsageError
from bertctl.words import count

if TYPE_CHECKING:
    from bertctl.config.load import TracedRecipe
    from bertctl.config.schema import Recipe
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
    layers: Annotated[str | None, typer.Option("--layers", metavar="N[,N...]")] = None,
    unlabelled: Annotated[str | None, typer.Option("--unlabelled", metavar="FILE")] = None,
    alpha: Annotated[float | None, typer.Option("--alpha", metavar="X")] = None,
    temperature: Annotated[float | None, typer.Option("--temperature", metavar="X")] = None,
    compare_plain: Annotated[bool, typer.Option("--compare-plain")] = False,
) -> None:
    """Train a smaller model that learns from a finished run's predictions, and compare both.

    The student reads the teacher's training rows. It learns their labels and the probabilities that
    the teacher gives to each label. It starts from some of the teacher's layers, or from another
    model, and its run folder is like that of any run. At the end, teacher and student are scored
    and timed on the same rows.

    Args:
        out: Prints the answer and messages.
        flags: Options of how a run is started, as they were typed.
        recipe: The recipe and the options of its fields, as they were typed.
        teacher: Run folder of the teacher.
        layers: Number of layers that the student takes from the teacher, evenly spaced from the
            first one on. Several numbers train several students, one after another.
        unlabelled: File with unlabelled rows, of any size. The student also learns the teacher's
            predictions for them. Labels in the file are ignored.
        alpha: Weight of the labels, 0 to 1. The teacher's predictions get the rest. Default: 0.5.
        temperature: Divisor of the logits before they are compared. Default: 2.
        compare_plain: Also train the same student without a teacher, into a folder beside the run,
            and compare both.

    Examples:
        bertctl distill runs/sst2-1a2b3c4d --layers 3 -o runs/small
        bertctl distill runs/sst2-1a2b3c4d --layers 3 --unlabelled reviews.txt
        bertctl distill runs/sst2-1a2b3c4d --layers 1,2,3,4 -o students
        bertctl distill runs/sst2-1a2b3c4d --model bert-tiny --alpha 0.1
    """
    numbers = _layer_numbers(layers)
    typed = dict(recipe.options)
    if unlabelled is not None:
        typed["distillation.unlabelled"] = unlabelled
    if alpha is not None:
        typed["distillation.alpha"] = alpha
    if temperature is not None:
        typed["distillation.temperature"] = temperature
    if compare_plain or len(numbers) > 1:
        _refuse_what_trains_one_run(flags)
    # A student is fine-tuned by the teacher's recipe, with the options that were typed.
    request = replace(
        recipe,
        name=str(teacher / "recipe.yaml"),
        options=typed,
        verb="finetune",
    )
    if len(numbers) > 1:
        _train_several(
            out,
            flags,
            request,
            teacher,
            numbers,
            compare_plain=compare_plain,
        )
        return

    from bertctl.jobs.distill import compare_with_teacher
    from bertctl.reporting.distillation_results import students_table

    n_layers = numbers[0] if numbers else None
    traced = _traced(request, teacher, n_layers, out)
    student_recipe, _ = traced
    if compare_plain and flags.output is not None:
        _check_plain(flags)

    def beside(student: Path, listener: "Listener") -> tuple[dict[str, Any], list[Shown]]:
        """Compares the trained student with its teacher; returns that as JSON and to print.

        With `--compare-plain`, it first trains the same student without a teacher, for comparison.
        """
        plain = None
        if compare_plain:
            plain = _train_plain(student_recipe, student, flags, listener)
        document = compare_with_teacher(
            student,
            teacher,
            plain=plain,
            options={"runtime.device": student_recipe.runtime.device},
            listener=listener,
        )
        table = students_table({"student": document})
        return {"distillation": document.as_json()}, [table, document.sentence]

    carry_out(out, traced, flags, beside=beside)


def _layer_numbers(typed: str | None) -> list[int]:
    """Returns how many layers each student has, as they were typed; none without the option.

    Raises:
        UsageError: Something else than numbers, or a number twice.
    """
    if typed is None:
        return []
    words = [word.strip() for word in typed.split(",")]
    if not all(word.isdecimal() for word in words) or len(set(words)) < len(words):
        raise UsageError(
            f"--layers {typed}: whole numbers fit, each once",
            remedy="Type --layers 3 for one student, or --layers 1,2,3 for several.",
        )
    return [int(word) for word in words]


def _refuse_what_trains_one_run(flags: RunFlags) -> None:
    """Refuses flags that only work if a command trains a single run.

    Raises:
        UsageError: Several processes, or a dry run.
    """
    if flags.num_processes > 1 or flags.accelerate_config is not None:
        raise UsageError(
            "several students are trained one after another, in one process",
            remedy="Leave --num-processes and --accelerate-config out, or train each student by "
            "a command of its own: --layers N.",
        )
    if flags.dry_run:
        raise UsageError(
            "--dry-run looks at one training",
            remedy="Type it with --layers N and without --compare-plain.",
        )


def _traced(
    request: RecipeRequest, teacher: Path, layers: int | None, out: Output
) -> "TracedRecipe":
    """Returns the complete recipe of a student, and where its values come from.

    Args:
        request: The teacher's recipe with the options that were typed.
        teacher: The teacher's run folder.
        layers: Number of the teacher's layers that the student takes; None if it was not typed.
        out: Receives messages about the recipe.
    """
    from bertctl.jobs.distill import student_options

    changed = student_options(teacher, layers=layers, model=request.options.get("model.name"))
    name = {"name": f"student-{teacher.resolve().name}"[:100]}
    options = {**name, **changed, **request.options}
    return replace(request, options=options).trace(listener=out)


def _plain_folder(student: Path) -> Path:
    """Returns the run folder of the same student without a teacher."""
    return student.with_name(f"{student.name}-plain")


def _check_plain(flags: RunFlags) -> None:
    """Refuses the folder of the student without a teacher before anything is trained."""
    from bertctl.training.start import check_place

    resume = flags.resume or flags.resume_if_any
    if flags.output is not None:
        check_place(_plain_folder(flags.output), resume=resume, overwrite=flags.overwrite)


def _train_plain(recipe: "Recipe", student: Path, flags: RunFlags, listener: "Listener") -> Path:
    """Trains the same student on the labels alone, and returns its run folder."""
    from bertctl.jobs.distill import train_student, without_teacher

    folder = _plain_folder(student)
    listener.say(f"the same student without a teacher: {folder}")
    return train_student(
        without_teacher(recipe),
        folder,
        overwrite=flags.overwrite,
        listener=listener,
    )


def _train_several(
    out: Output,
    flags: RunFlags,
    request: RecipeRequest,
    teacher: Path,
    layer_counts: list[int],
    *,
    compare_plain: bool,
) -> None:
    """Trains a student for each number of layers, compares all with the teacher, and answers.

    Args:
        out: Prints the table of students; the answer as JSON has their figures and pictures.
        flags: Where the students go, and whether they may resume or overwrite.
        request: The recipe that was typed; the number of layers is added for each student.
        teacher: The teacher's run folder.
        layer_counts: Layers of each student.
        compare_plain: Whether each student is trained without a teacher as well.
    """
    folder = flags.output or Path("runs") / f"students-{teacher.resolve().name}"
    recipes = [_traced(request, teacher, n_layers, out)[0] for n_layers in layer_counts]
    folders = [folder / f"layers-{n_layers}" for n_layers in layer_counts]
    # All folders before the first training: the last one may not fail after hours.
    _check_student_folders(folders, flags, compare_plain=compare_plain)

    from bertctl.jobs.distill import StudentRun, compare_students, train_student
    from bertctl.reporting.distillation_results import draw_students, students_table

    runs = []
    with out.third_party_kept():
        for n_layers, recipe, student_folder in zip(layer_counts, recipes, folders, strict=True):
            out.say(f"student of {count(n_layers, 'layer')}: {student_folder}")
            path = train_student(
                recipe,
                student_folder,
                overwrite=flags.overwrite,
                listener=out,
            )
            plain = None
            if compare_plain:
                plain = _train_plain(recipe, path, flags, out)
            runs.append(StudentRun(path, plain))
        # All recipes have the device that was typed.
        options = {"runtime.device": recipes[0].runtime.device}
        documents = compare_students(runs, teacher, options=options, listener=out)

    names = [count(n_layers, "layer") for n_layers in layer_counts]
    named_documents = dict(zip(names, documents, strict=True))
    pictures = [folder / "students.png", folder / "students.svg"]
    draw_students(named_documents, pictures, title=f"Students of {teacher.resolve().name}")
    students = [
        {"run": str(run.path), "layers": n_layers, **document.as_json()}
        for n_layers, run, document in zip(layer_counts, runs, documents, strict=True)
    ]
    out.answer(
        {"students": students, "pictures": [str(picture) for picture in pictures]},
        students_table(named_documents),
    )
    out.say(f"{pictures[0]} shows the metric over the rows per second")
    say_next(out, use_of_run(folders[-1], recipes[0].task))


def _check_student_folders(folders: list[Path], flags: RunFlags, *, compare_plain: bool) -> None:
    """Refuses run folders that can't be written, before any student is trained.

    Args:
        folders: Run folders of the students.
        flags: Whether a student may resume or overwrite.
        compare_plain: Whether the folders of students without a teacher are needed as well.
    """
    from bertctl.training.start import check_place

    resume = flags.resume or flags.resume_if_any
    for folder in folders:
        check_place(folder, resume=resume, overwrite=flags.overwrite)
        if compare_plain:
            check_place(_plain_folder(folder), resume=resume, overwrite=flags.overwrite)
