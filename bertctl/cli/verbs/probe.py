"""`bertctl probe`."""

import contextlib
import time
from typing import TYPE_CHECKING, Annotated

import typer

from bertctl.cli.framework.completion import recipe_names
from bertctl.cli.framework.output import Output
from bertctl.cli.framework.recipe_options import (
    OutputOption,
    OverwriteOption,
    RecipeRequest,
    takes_recipe,
)
from bertctl.cli.verbs.training_run import say_unscored_test
from bertctl.config.recipe_files import is_data_file
from bertctl.errors import UsageError

if TYPE_CHECKING:
    from bertctl.features.selection import ProbeJob
    from bertctl.run_documents.metrics_document import MetricsDocument
    from bertctl.run_folder import RunFolder


@takes_recipe(
    "long_texts",
    "probe",
    "model",
    "data",
    "--seed",
    "compute",
    "--text/--no-text",
    named=False,
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
    """Train a linear classifier on a frozen encoder, and see which layer and pooling suit the task
    best.

    Args:
        input: A file with texts and labels, or a recipe (`bertctl recipes ls`).
        task: What the labels of a file are. Default: guessed.

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
    from bertctl.run_folder import RunFolder, default_folder

    if output is not None:
        RunFolder.check_free(output, overwrite=overwrite)

    from bertctl.features.probe import announce, prepare, run

    with contextlib.ExitStack() as lock:
        with out.third_party_kept() as log:
            job = prepare(recipe, listener=out)
            announce(job, listener=out)
            if job.recipe.name.startswith("probe"):
                named = job.recipe.name
            else:
                named = f"probe-{job.recipe.name}"
            folder = RunFolder.create(
                output or default_folder(named, job.hash), overwrite=overwrite
            )
            lock.enter_context(folder.held())
            log.write_to(folder.log)
            metrics = run(job, folder, listener=out)
        _answer(
            out,
            job,
            folder,
            metrics,
            total=time.perf_counter() - started,
        )


def _answer(
    out: Output, job: "ProbeJob", folder: "RunFolder", metrics: "MetricsDocument", *, total: float
) -> None:
    from bertctl.reporting.probe_results import draw_probe, probe_table
    from bertctl.reporting.summary import results_table
    from bertctl.run_documents.performance_document import PerformanceDocument
    from bertctl.run_folder import SCHEMA
    from bertctl.training.step_memory import peak_memory_bytes
    from bertctl.writing import write_json

    pictures = [folder.path / "probe.png", folder.path / "probe.svg"]
    title = f"{job.recipe.name}: {job.settings.classifier} on {job.recipe.model.name}, frozen"
    probe = metrics.probe
    if probe is None:  # not of a probe
        raise ValueError("metrics without a probe")
    draw_probe(probe, metrics, pictures, title=title)
    rows = sum(len(job.data.splits[split]) for split in ("train", job.selection))
    rate = rows / job.seconds["features"]
    seconds = {phase: round(each, 3) for phase, each in job.seconds.items()}
    performance = PerformanceDocument(
        schema_number=SCHEMA,
        seconds=seconds,
        examples_per_second=round(rate, 2),
        peak_memory_bytes=peak_memory_bytes(),
    )
    write_json(folder.performance, performance.as_json())
    results = results_table(metrics, dataset=job.recipe.data.name)
    out.answer(
        {"run": str(folder.path), **metrics.as_json()}, probe_table(probe, metrics), "", results
    )
    out.say(
        f"best by cross-validation: layer {probe.best.layer}, {probe.best.pooling} pooling; picture: "
        f"{pictures[0]}"
    )
    out.say(
        f"{total:.1f} s: features {job.seconds['features']:.1f} s ({rate:.0f} rows/s), "
        f"classifiers {job.seconds['train']:.1f} s, scoring {job.seconds['evaluate']:.1f} s"
    )
    say_unscored_test(out, job.recipe, metrics, folder.path)
    out.say(f"run folder: {folder.path}")
