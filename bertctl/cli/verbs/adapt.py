"""`bertctl adapt`."""

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from bertctl.cli.framework.completion import recipe_names
from bertctl.cli.framework.next_command import say_next
from bertctl.cli.framework.output import Output, Shown, plain_table
from bertctl.cli.framework.recipe_options import takes_recipe
from bertctl.cli.framework.recipe_requests import RecipeRequest
from bertctl.cli.verbs.pretrain import corpus_recipe
from bertctl.words import command


@takes_recipe(
    "model",
    "corpus",
    "training",
    "compute",
    "deterministic",
    has_recipe_argument=False,
)
def adapt(
    out: Output,
    recipe: RecipeRequest,
    given: Annotated[
        list[str], typer.Argument(metavar="[RECIPE] CORPUS...", autocompletion=recipe_names)
    ],
    then: Annotated[
        str, typer.Option("--then", metavar="RECIPE|FILE", autocompletion=recipe_names)
    ],
    then_set: Annotated[
        list[str] | None, typer.Option("--then-set", metavar="SECTION.FIELD=VALUE")
    ] = None,
    seeds: Annotated[str, typer.Option("--seeds", metavar="N|init=N,order=N")] = "5",
    jobs: Annotated[int | None, typer.Option("--jobs", metavar="N")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run")] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="DIR")] = None,
) -> None:
    """Pretrain on your domain's unlabelled text, and test whether that improves a task.

    The task is fine-tuned twice, from the original and from the pretrained model, with the same
    seeds. Both are compared example by example. "No gain" is a result, too: the exit code is 0.
    After Ctrl-C or a crash, the same command continues where it stopped.

    Args:
        out: Prints the answer and messages.
        recipe: The recipe and the options of its fields, as they were typed.
        given: Files and folders of text, optionally after a recipe of `pretrain`. Most options of
            `pretrain` work here, too.
        then: The task: a recipe of `finetune`, or a file with labelled rows.

            Its model is the one that the pretraining starts from.
        then_set: Set any field of the task's recipe, such as data.max_train_rows=500; repeatable.
        seeds: Number of seeds of the fine-tuning, from the recipe's on.
        jobs: Number of parallel runs of the fine-tuning. Default: one per GPU, or 1 on CPU.
        dry_run: Check everything; estimate the number of runs, time and disk space.
        output: Folder for all results. The same command continues in it. Default:
            runs/adapt-TASK-HASH.

    Examples:
        bertctl adapt abstracts.txt --model minilm --objective mlm --then labelled.csv
        bertctl adapt adapt-medical abstracts.txt --then mine.yaml --seeds 10
    """
    pretraining, _ = corpus_recipe(recipe, given, {}, listener=out)
    compute = {name: value for name, value in recipe.options.items() if name.startswith("runtime.")}
    task_options = {"model.name": pretraining.model.name, **compute}
    task = RecipeRequest(then, then_set or (), task_options, "finetune").load(listener=out)

    from bertctl.reporting.card import write_card
    from bertctl.sweeps.adaptation import Adaptation, check_adaptation, estimate_adaptation
    from bertctl.sweeps.adaptation import adapt as pretrain_and_compare
    from bertctl.sweeps.grid import read_seeds, with_values
    from bertctl.training.announce import announce
    from bertctl.training.finetune import RunOptions
    from bertctl.training.pretrain import prepare

    chosen = read_seeds(seeds, first=task.training.seed)
    with out.third_party_kept() as log:
        job = prepare(pretraining, listener=out)
        if pretraining.pretraining.from_scratch:
            # The pretrained model is compared with the same network before it was trained.
            task = with_values(task, {"model.name": str(job.source.folder)})
        adaptation = Adaptation(
            job,
            task,
            chosen,
            jobs,
            output,
        )
        sweep_without_pretraining = check_adaptation(adaptation, listener=out)
        announce(job, listener=out)
        if dry_run:
            document = estimate_adaptation(adaptation, sweep_without_pretraining, listener=out)
            out.answer(document, _plan_table(document))
            return
        options = RunOptions(on_start=lambda folder: log.write_to(folder.log), on_finish=write_card)
        document, code = pretrain_and_compare(adaptation, options=options, listener=out)
    out.answer(document, _arms_table(document), document["sentence"])
    out.say(f"folder: {adaptation.folder}")
    if code:
        raise typer.Exit(code)
    if document["verdict"] == "gain":
        say_next(
            out, command(f"finetune {shlex.quote(then)}", model=adaptation.folder / "pretrain")
        )


def _arms_table(document: dict[str, Any]) -> Shown:
    """Returns a table with the scores over the seeds, without and with pretraining.

    Args:
        document: The answer with `--json`. Its `arms` are these two, by name.
    """
    from bertctl.reporting.summary import figure

    names = ("mean", "deviation", "min", "max")
    primary = document["primary"]
    title = f"{primary['name']} on {primary['split']}"
    table = plain_table(
        "pretraining",
        *names,
        "seeds",
        title=title,
        right=(*names, "seeds"),
    )
    for arm, scores in document["arms"].items():
        table.add_row(arm, *(figure(scores[name]) for name in names), str(scores["n"]))
    return table


def _plan_table(document: dict[str, Any]) -> Shown:
    """Returns a table of both trainings with their steps, time and memory, and of the disk space.

    Args:
        document: The plan, as `--json` prints it.
    """
    from bertctl.words import count, human_bytes, human_seconds

    pretraining = document["pretraining"]
    finetuning = document["finetuning"]
    seconds = finetuning["seconds"]
    between = f"between {human_seconds(seconds['low'])} and {human_seconds(seconds['high'])}"
    needed, free = (human_bytes(finetuning["disk_bytes"][name]) for name in ("needed", "free"))
    rows = (
        (
            "pretraining",
            count(pretraining["steps"], "step"),
            f"{human_bytes(pretraining['memory_bytes'])} of memory",
        ),
        (
            "fine-tuning",
            human_seconds(seconds["estimate"]),
            f"{between}; {count(finetuning['runs'], 'run')}",
        ),
        ("disk", needed, f"{free} free"),
    )
    return plain_table("adapt", "about", "", rows=rows)
