"""`bertctl finetune`."""

import contextlib
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from bertctl.cli.output import Output
from bertctl.cli.processes import AccelerateConfigOption, NumProcessesOption, in_processes, this_worker
from bertctl.cli.recipe_options import (
    COMPUTE,
    DATA,
    EVALUATION,
    LONG_RUNS,
    MODEL,
    REPEATABLE,
    TRAINING,
    OutputOption,
    OverwriteOption,
    RecipeRequest,
    takes_recipe,
)
from bertctl.errors import UsageError

DryRunFlag = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Do everything but the training: read, check, count steps, estimate memory.",
        rich_help_panel="Run",
    ),
]
ResumeFlag = Annotated[
    bool,
    typer.Option(
        "--resume", help="Continue from the last checkpoint of the run; there must be one.", rich_help_panel="Run"
    ),
]
ResumeIfAnyFlag = Annotated[
    bool,
    typer.Option(
        "--resume-if-any",
        help="Continue from the last checkpoint if there is one, else start the run.",
        rich_help_panel="Run",
    ),
]
StrictFlag = Annotated[
    bool,
    typer.Option(
        "--strict", help="Exit with code 6 where the model predicts one label for every example.", rich_help_panel="Run"
    ),
]


@takes_recipe(MODEL, DATA, TRAINING, COMPUTE, EVALUATION, LONG_RUNS, REPEATABLE)
def finetune(
    out: Output,
    recipe: RecipeRequest,
    output: OutputOption = None,
    overwrite: OverwriteOption = False,
    resume: ResumeFlag = False,
    resume_if_any: ResumeIfAnyFlag = False,
    strict: StrictFlag = False,
    num_processes: NumProcessesOption = 1,
    accelerate_config: AccelerateConfigOption = None,
    dry_run: DryRunFlag = False,
) -> None:
    """Fine-tune an encoder on a data set or on your own files.

    RECIPE is a built-in name (`bertctl recipes ls`) or a YAML file. The best weights by the primary metric on the
    validation rows are kept; the run folder holds the model, every prediction, the metrics and the resolved recipe.

    bertctl finetune sst2 --data-dir glue --model minilm

    bertctl finetune text-classification --train-file a.csv --validation-file b.csv
    """
    started = time.perf_counter()
    resolved = recipe.load()
    from bertctl.run_folder import RunFolder, default_folder

    going_on = resume or resume_if_any
    if overwrite and going_on:
        raise UsageError("--overwrite and --resume exclude each other", remedy="Leave one out.")
    if output is not None and not going_on:
        RunFolder.check_free(output, overwrite=overwrite)
    from bertctl.runtime.accelerate_config import check_environment, read_accelerate_config

    if accelerate_config is not None:
        read_accelerate_config(accelerate_config)
    if not dry_run:
        in_processes(num_processes, out, config=accelerate_config)
    check_environment(listener=out)

    from bertctl.training.announce import announce
    from bertctl.training.finetune import Result, run
    from bertctl.training.job import prepare
    from bertctl.training.resume import find_run

    shared, talk = this_worker(out)
    with out.third_party_kept() as log:
        job = prepare(resolved, listener=talk)
        announce(job, listener=talk)
        if dry_run:
            path = output or default_folder(job.recipe.name, job.hash)
            out.say(f"dry run: nothing was trained; the run would be in {path}")
            out.answer(_plan(job, str(path)), _plan_text(job))
            return
        found = find_run(job, output, needed=resume, listener=talk) if going_on else None
        path = found.folder.path if found else output or default_folder(job.recipe.name, job.hash)
        folder = RunFolder(Path(shared.share(str(path))))
        if shared.is_first and (found is None or not (found.finished or found.checkpoint)):
            RunFolder.create(folder.path, overwrite=overwrite or found is not None)
        shared.wait()
        talk.say(f"run folder: {folder.path}")
        if found is not None and found.finished:
            talk.say("it is finished already; these are its results")
            result = Result(folder, folder.read(folder.metrics), folder.read(folder.performance))
        else:
            with folder.held() if shared.is_first else contextlib.nullcontext():
                log.write_to(folder.log)
                checkpoint = found.checkpoint if found else None
                result = run(job, folder, resume=checkpoint, strict=strict, workers=shared, listener=talk)
    if not shared.is_first:
        return

    from bertctl.reporting.card import write_card
    from bertctl.reporting.summary import metrics_table, time_line

    write_card(folder)
    out.answer(
        {"run": str(folder.path), **result.metrics},
        metrics_table(result.metrics, dataset=job.recipe.data.name),
    )
    out.say(time_line(result.performance, total=time.perf_counter() - started))
    out.say(f"run folder: {folder.path}")


def _plan(job: Any, path: str) -> dict[str, Any]:
    """The answer of a dry run."""
    return {
        "run": path,
        "recipe": job.recipe.model_dump(),
        "compute": {
            "device": job.compute.device,
            "precision": job.compute.precision,
            "threads": job.compute.threads,
        },
        "examples": {split: len(features) for split, features in job.features.items()},
        "steps": job.steps,
        "memory_bytes": job.memory.total,
    }


def _plan_text(job: Any) -> str:
    """The resolved recipe, as `recipes show` prints it."""
    from bertctl.config.dump import dump_recipe

    text: str = dump_recipe(job.recipe, command=f"bertctl finetune {job.recipe.name}.yaml")
    return text


COMMAND = finetune
