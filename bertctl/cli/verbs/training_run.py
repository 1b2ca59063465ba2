"""What the verbs that train have in common: they prepare, announce and train a run, and answer."""

import os
import shlex
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertctl.cli.framework.folding import folds, option, parameter
from bertctl.cli.framework.help import RARE
from bertctl.cli.framework.next_command import say_next, use_of_run
from bertctl.cli.framework.output import Output, Shown, plain_table
from bertctl.cli.framework.processes import NumProcessesOption, in_processes, this_worker
from bertctl.cli.framework.recipe_options import OutputOption, OverwriteOption

if TYPE_CHECKING:
    from collections.abc import Callable

    from bertctl.config.load import TracedRecipe
    from bertctl.config.schema import Recipe
    from bertctl.progress import Listener
    from bertctl.run_documents.metrics_document import MetricsDocument
    from bertctl.training.job import Job


@dataclass(frozen=True)
class RunFlags:
    """How a run was asked for; see the options of `finetune`."""

    output: Path | None
    overwrite: bool
    resume: bool
    resume_if_any: bool
    num_processes: int
    accelerate_config: Path | None
    dry_run: bool


_option = partial(
    option,
    kind=bool,
    default=False,
    rich_help_panel="Run",
)
_IF_ANY = "Continue from the last checkpoint if there is one, else start the run."
_THROUGH = "Start through `accelerate launch` with this configuration: several GPUs or machines."
_OPTIONS = [
    parameter("output", OutputOption, None),
    parameter("overwrite", OverwriteOption, False),
    _option(
        "resume", "--resume", "Continue from the last checkpoint of the run; there must be one."
    ),
    _option("resume_if_any", "--resume-if-any", _IF_ANY),
    parameter("num_processes", NumProcessesOption, 1),
    option(
        "accelerate_config",
        "--accelerate-config",
        _THROUGH,
        Path,
        metavar="FILE",
        rich_help_panel=RARE,
    ),
    _option(
        "dry_run",
        "--dry-run",
        "Do everything but the training: read, check, count steps, estimate memory.",
    ),
]
takes_flags = folds(
    _OPTIONS,
    [],
    lambda arguments: RunFlags(**{row.name: arguments.pop(row.name) for row in _OPTIONS}),
)
"""Gives a verb that trains the options of `RunFlags`."""


def carry_out(
    out: Output,
    traced: "TracedRecipe",
    flags: RunFlags,
    *,
    strict: bool = False,
    beside: "Callable[[Path, Listener], tuple[dict[str, Any], list[Shown]]] | None" = None,
) -> None:
    """Trains a run and answers with its metrics; with `dry_run`, answers with its plan.

    Args:
        out: Prints the answer and messages.
        traced: The complete recipe, and where the value of each field comes from.
        flags: The options of the run: its folder, whether it is resumed, its processes.
        strict: Whether a model that predicts one label for every example ends the command with an
            error.
        beside: Called with the finished run's folder and a listener. It returns additions to the
            answer: keys of the JSON document, and parts to print below the tables.
    """
    started = time.perf_counter()
    recipe, _ = traced
    from bertctl.run_folder import default_folder
    from bertctl.training.start import Resume, check_place

    output = flags.output
    # With both flags `--resume` counts, which needs a run in the folder.
    if flags.resume_if_any and not flags.resume:
        resume: Resume = "if any"
    else:
        resume = flags.resume
    check_place(output, resume=resume, overwrite=flags.overwrite)
    from bertctl.runtime.accelerate_config import check_environment, read_accelerate_config

    if flags.accelerate_config is not None:
        # Only to refuse a faulty file before anything else is read.
        read_accelerate_config(flags.accelerate_config)
    # A dry run trains nothing, so it needs no further processes.
    if not flags.dry_run:
        in_processes(flags.num_processes, out, config=flags.accelerate_config)
    check_environment()

    from bertctl.baselines.run_baselines import make_baselines
    from bertctl.jobs.prepare import prepare
    from bertctl.reporting.card import write_card
    from bertctl.reporting.outcomes import closing_tables
    from bertctl.reporting.summary import time_line
    from bertctl.runtime.command_clock import seconds_of_command
    from bertctl.training.announce import announce
    from bertctl.training.finetune import RunOptions
    from bertctl.training.start import start

    workers, listener = this_worker(out)
    with out.third_party_kept() as log:
        job = prepare(recipe, listener=listener)
        announce(job, listener=listener)
        if flags.dry_run:
            run_folder = output or default_folder(job.recipe.name, job.hash)
            _answer_dry_run(out, job, traced, run_folder)
            return
        options = RunOptions(
            strict=strict,
            workers=workers,
            make_baselines=make_baselines,
            used_seconds=seconds_of_command,
            on_start=lambda folder: log.write_to(folder.log),
            on_finish=write_card,
        )
        result = start(
            job,
            output,
            resume=resume,
            overwrite=flags.overwrite,
            options=options,
            listener=listener,
        )
        further: dict[str, Any] = {}
        further_tables: list[Shown] = []
        if beside is not None and workers.is_first:
            further, further_tables = beside(result.folder.path, listener)
    if not workers.is_first:
        return
    folder = result.folder
    tables, _ = closing_tables(
        folder.path,
        result.metrics,
        dataset=job.recipe.data.name,
        by_label=out.verbose,
    )
    document = {"run": str(folder.path), **result.metrics.as_json(), **further}
    out.answer(document, *tables, *further_tables)
    say_unscored_test(out, recipe, result.metrics, folder.path)
    if result.trained:
        out.say(time_line(result.performance, total=time.perf_counter() - started))
    out.say(f"run folder: {folder.path}")
    say_next(out, _next_command(folder.path, job, result.metrics))


def _answer_dry_run(out: Output, job: "Job", traced: "TracedRecipe", run_folder: Path) -> None:
    """Answers with the plan of a run, and with its recipe as a file to keep.

    A terminal shows a table instead of the recipe, or both with `--verbose`.

    Args:
        out: Prints the answer and messages.
        job: Everything that the run needs, read and checked.
        traced: The recipe before the job was prepared, and where its values come from.
        run_folder: The folder that the run would be in.
    """
    from bertctl.tokenization.long_texts import kept_words
    from bertctl.training.announce import lengths_of

    recipe, origins = traced
    out.say(f"dry run: nothing was trained; the run would be in {run_folder}")
    lengths = lengths_of(job)
    if lengths:
        out.say(f"{kept_words(lengths)}; advised: --long-text {lengths['advised']}")
    plan = _plan(job, str(run_folder)) | {"long_texts": lengths}
    if job.recipe.training.time_limit is not None:
        plan["time_limit"] = _say_what_fits(job, out)

    # Whether the model's name is a folder in the current directory is known only after preparing.
    recipe = recipe.with_fields("model", name=job.recipe.model.name)
    if job.chosen:
        # What the preset `auto` chose for these rows is written out, to run again without it.
        sections = {"training": job.recipe.training, "optimizer": job.recipe.optimizer}
        recipe = recipe.model_copy(update=sections)

    parts: list[Shown] = []
    is_terminal = out.answers.is_terminal
    if out.verbose or not is_terminal:
        parts.append(_recipe_to_keep((recipe, origins), job.verb, out.verbose))
    if is_terminal:
        parts.append(_plan_table(job))
    out.answer(plan, *parts)


def _next_command(run: Path, job: "Job", metrics: "MetricsDocument") -> str:
    """Returns the command to type after a run.

    It uses the run; or it trains a probe, if the probe that was trained as a baseline is as good.
    """
    from bertctl.baselines.kinds import FROZEN
    from bertctl.baselines.run_baselines import can_be_probed, not_beaten
    from bertctl.words import command

    # A run that a time limit has cut short could beat the baseline with more time.
    is_cut = metrics.time_limit is not None
    is_probe_as_good = FROZEN in not_beaten(metrics, job) and can_be_probed(job)
    if is_probe_as_good and not is_cut:
        return command("probe", run / "recipe.yaml")
    return use_of_run(run, job.recipe.task)


def say_unscored_test(
    out: Output, recipe: "Recipe", metrics: "MetricsDocument", folder: Path
) -> None:
    """Reports how to score a test file that was named and not read."""
    if recipe.data.test_file and "test" not in metrics.metrics:
        out.say(
            f"the test file was not scored; once all choices are made: bertctl evaluate {folder} "
            "--split test"
        )


def _recipe_to_keep(traced: "TracedRecipe", verb: str, every_field: bool) -> str:
    """Returns the text of a recipe file with the fields that were set.

    Paths in it are relative to the folder of the file that stdout is redirected to, else to the
    working folder.

    Args:
        traced: The recipe, and where the value of each field came from.
        verb: Verb of the command in the file's first line, a comment.
        every_field: Whether fields with their default value are written, too.
    """
    from bertctl.cli.framework.streams import stdout_file
    from bertctl.config.dump import dump_recipe
    from bertctl.config.portable_recipes import chosen_fields, portable

    run_recipe, origins = traced
    file = stdout_file()
    folder = file.parent if file else Path.cwd()
    recipe = portable(run_recipe, origins, folder)
    if file:
        file_name = os.path.relpath(file)
    else:
        file_name = f"{recipe.name}.yaml"
    if every_field:
        fields = None
    else:
        fields = chosen_fields(recipe, origins)
    return dump_recipe(recipe, command=f"bertctl {verb} {shlex.quote(file_name)}", only=fields)


def _plan(job: "Job", path: str) -> dict[str, Any]:
    """Returns the JSON answer of a dry run.

    Args:
        job: Everything that the run needs, read and checked.
        path: Folder that the run would be in.
    """
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
        "memory_bytes": job.memory,
    }


def _say_what_fits(job: "Job", out: Output) -> dict[str, Any]:
    """Times a few steps, and prints how much of a run fits into its time limit.

    Returns:
        The same as numbers, for the JSON answer.
    """
    from bertctl.reporting.summary import fit_sentence
    from bertctl.runtime.command_clock import seconds_of_command
    from bertctl.training.estimate import rehearse_time_limit
    from bertctl.words import human_seconds

    fit = rehearse_time_limit(job, used_seconds=seconds_of_command(), listener=out)
    fitting = fit_sentence(fit, whole_steps=job.steps, whole_epochs=job.epochs)
    whole_time = human_seconds(fit["whole_seconds"], brief=True)
    out.say(f"time limit: {fitting}; the whole run takes about {whole_time}")
    return fit


def _plan_table(job: "Job") -> Shown:
    """Returns the plan of a run as a short table for a terminal: rows, steps and memory."""
    from bertctl.words import count, human_bytes

    table = plain_table("plan", "")
    table.add_row(
        "rows", ", ".join(f"{len(features):,} {split}" for split, features in job.features.items())
    )
    table.add_row("steps", f"{job.steps:,} ({count(job.epochs, 'epoch')})")
    if job.recipe.evaluation.baselines and job.task.baselines:
        table.add_row(
            "baselines", f"{', '.join(job.task.baselines)}: up to a tenth of the training's time"
        )
    table.add_row("memory", f"about {human_bytes(job.memory)}")
    table.add_row("recipe", "to keep it: --dry-run > FILE.yaml; -v prints every field")
    return table
