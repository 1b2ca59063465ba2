"""`bertctl finetune`."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertctl.cli.output import Output, plain_table
from bertctl.cli.processes import AccelerateConfigOption, NumProcessesOption, in_processes, this_worker
from bertctl.cli.recipe_options import (
    COMPUTE,
    CONFIRMING,
    DATA,
    DETERMINISTIC,
    EVALUATION,
    LONG_RUNS,
    LONG_TEXTS,
    MODEL,
    TRAINING,
    OutputOption,
    OverwriteOption,
    RecipeRequest,
    takes_recipe,
)

if TYPE_CHECKING:
    from rich.table import Table


@takes_recipe(MODEL, LONG_TEXTS, DATA, CONFIRMING, TRAINING, COMPUTE, EVALUATION, LONG_RUNS, DETERMINISTIC)
def finetune(
    out: Output,
    recipe: RecipeRequest,
    output: OutputOption = None,
    overwrite: OverwriteOption = False,
    resume: Annotated[bool, typer.Option("--resume", rich_help_panel="Run")] = False,
    resume_if_any: Annotated[bool, typer.Option("--resume-if-any", rich_help_panel="Run")] = False,
    strict: Annotated[bool, typer.Option("--strict", rich_help_panel="Run")] = False,
    num_processes: NumProcessesOption = 1,
    accelerate_config: AccelerateConfigOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", rich_help_panel="Run")] = False,
) -> None:
    """Fine-tune an encoder on a data set or on your own files.

    The weights with the best primary metric on the validation rows are kept. The run folder holds the model, every
    prediction, the metrics and the complete recipe. What is not given as an option is as the recipe says.

    Args:
        resume: Continue from the last checkpoint of the run; there must be one.
        resume_if_any: Continue from the last checkpoint if there is one, else start the run.
        strict: Exit with code 6 where the model predicts one label for every example.
        dry_run: Do everything but the training: read, check, count steps, estimate memory.

    Examples:
        bertctl finetune sst2 --data-dir glue --model minilm
        bertctl finetune reviews.csv --epochs 2
    """
    started = time.perf_counter()
    resolved = recipe.load(listener=out)
    from bertctl.run_folder import default_folder
    from bertctl.training.start import Resume, check_place

    going_on: Resume = "if any" if resume_if_any and not resume else resume
    check_place(output, resume=going_on, overwrite=overwrite)
    from bertctl.runtime.accelerate_config import check_environment, read_accelerate_config

    if accelerate_config is not None:
        read_accelerate_config(accelerate_config)
    if not dry_run:
        in_processes(num_processes, out, config=accelerate_config)
    check_environment(listener=out)

    from bertctl.reporting.card import write_card
    from bertctl.reporting.outcomes import closing_tables
    from bertctl.reporting.summary import time_line
    from bertctl.tokenization.long_texts import kept_words
    from bertctl.training.announce import announce, lengths_of
    from bertctl.training.finetune import RunOptions
    from bertctl.training.job import prepare
    from bertctl.training.start import start

    workers, listener = this_worker(out)
    with out.third_party_kept() as log:
        job = prepare(resolved, listener=listener)
        announce(job, listener=listener)
        if dry_run:
            path = output or default_folder(job.recipe.name, job.hash)
            out.say(f"dry run: nothing was trained; the run would be in {path}")
            if kept := lengths_of(job):
                out.say(f"{kept_words(kept)}; advised: --long-text {kept['advised']}")
            watched = out.answers.is_terminal
            text = [] if watched and not out.verbose else [_plan_text(job)]
            out.answer(_plan(job, str(path)) | {"long_texts": kept}, *text, *([_plan_table(job)] if watched else []))
            return
        options = RunOptions(
            strict=strict, workers=workers, on_start=lambda folder: log.write_to(folder.log), on_finish=write_card
        )
        result = start(job, output, resume=going_on, overwrite=overwrite, options=options, listener=listener)
    if not workers.is_first:
        return
    folder = result.folder
    tables = closing_tables(folder.path, result.metrics, dataset=job.recipe.data.name, by_label=out.verbose)
    out.answer({"run": str(folder.path), **result.metrics}, *tables)
    if result.trained:
        out.say(time_line(result.performance, total=time.perf_counter() - started))
    out.say(f"run folder: {folder.path}")


def _plan(job: Any, path: str) -> dict[str, Any]:
    """Returns the answer of a dry run."""
    return {
        "run": path,
        "recipe": job.recipe.model_dump(),
        "compute": {"device": job.compute.device, "precision": job.compute.precision, "threads": job.compute.threads},
        "examples": {split: len(features) for split, features in job.features.items()},
        "steps": job.steps,
        "memory_bytes": job.memory,
    }


def _plan_table(job: Any) -> "Table":
    """Returns what a person at a terminal looks for; the complete recipe would push it off the screen."""
    from bertctl.words import count, human_bytes

    table = plain_table("plan", "")
    table.add_row("rows", ", ".join(f"{len(features):,} {split}" for split, features in job.features.items()))
    table.add_row("steps", f"{job.steps:,} ({count(job.epochs, 'epoch')})")
    table.add_row("memory", f"about {human_bytes(job.memory)}")
    table.add_row("recipe", "complete, with -v; or to keep: --dry-run > FILE.yaml")
    return table


def _plan_text(job: Any) -> str:
    """Returns the complete recipe as `recipes show` prints it."""
    from bertctl.config.dump import dump_recipe

    text: str = dump_recipe(job.recipe, command=f"bertctl finetune {job.recipe.name}.yaml")
    return text
