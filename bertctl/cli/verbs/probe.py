"""`bertctl probe`."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from bertctl.cli.framework.completion import recipe_names
from bertctl.cli.framework.next_command import say_next, use_of_run
from bertctl.cli.framework.output import Output
from bertctl.cli.framework.recipe_options import OutputOption, OverwriteOption, takes_recipe
from bertctl.cli.framework.recipe_requests import RecipeRequest
from bertctl.cli.verbs.training_run import say_unscored_test
from bertctl.config.recipe_files import is_data_file
from bertctl.errors import UsageError

if TYPE_CHECKING:
    from bertctl.jobs.run_probe import ProbeResult


@takes_recipe(
    "long_texts",
    "probe",
    "model",
    "data",
    "--seed",
    "compute",
    "--text/--no-text",
    has_recipe_argument=False,
)
def probe(
    out: Output,
    settings: RecipeRequest,
    input: Annotated[str, typer.Argument(metavar="INPUT|RECIPE", autocompletion=recipe_names)],
    output: OutputOption = None,
    task: Annotated[
        str | None,
        typer.Option("--task", metavar="text-classification|text-regression|token-classification"),
    ] = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Train a linear classifier on a frozen encoder, and find the best layer and pooling.

    Args:
        out: Prints the answer and messages.
        settings: Options of recipe fields, as they were typed.
        input: A file with texts and labels, or a recipe (`bertctl recipes ls`).
        output: Folder of the run that is made.
        task: Task of the file. Default: guessed.
        overwrite: Replace what an earlier command left in the folder.

    Examples:
        bertctl probe reviews.csv --model minilm --layers all --pooling cls,mean,max
        bertctl probe conll2003 --data-dir conll --layers paper
    """
    from bertctl.features.kept_memory import bound_caches

    started = time.perf_counter()
    bound_caches()
    if task and not is_data_file(input):
        raise UsageError(
            f"--task is for a file with rows, and {input} is a recipe", remedy="Leave it out."
        )
    recipe = settings.load(input, listener=out, task=task or "")
    from bertctl.jobs.run_probe import run_probe

    with out.third_party_kept() as log:
        result = run_probe(
            recipe,
            output=output,
            overwrite=overwrite,
            on_start=lambda folder: log.write_to(folder.log),
            listener=out,
        )
    _answer(out, result, total=time.perf_counter() - started)


def _answer(out: Output, result: "ProbeResult", *, total: float) -> None:
    """Prints the scores of each layer and of the best classifier, and where the time went.

    Args:
        out: Prints the answer and messages.
        result: What the probe found.
        total: Seconds since the command began, which include opening the model.
    """
    from bertctl.reporting.probe_results import probe_table
    from bertctl.reporting.summary import results_table

    job = result.job
    folder = result.folder
    metrics = result.metrics
    probe = metrics.probe
    if probe is None:
        raise ValueError("metrics without a probe")
    results = results_table(metrics, dataset=job.recipe.data.name)
    out.answer(
        {"run": str(folder.path), **metrics.as_json()}, probe_table(probe, metrics), "", results
    )
    best = f"layer {probe.best.layer}, {probe.best.pooling} pooling"
    out.say(f"best by cross-validation: {best}; picture: {result.picture}")
    out.say(
        f"{total:.1f} s: features {job.seconds['features']:.1f} s "
        f"({result.rows_per_second:.0f} rows/s), "
        f"classifiers {job.seconds['train']:.1f} s, scoring {job.seconds['evaluate']:.1f} s"
    )
    say_unscored_test(out, job.recipe, metrics, folder.path)
    out.say(f"run folder: {folder.path}")
    say_next(out, use_of_run(folder.path, job.recipe.task))
