"""`bertctl sweep`."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from bertctl.cli.framework.completion import one_of
from bertctl.cli.framework.next_command import say_next, use_of_sweep
from bertctl.cli.framework.option_names import all_as_options
from bertctl.cli.framework.output import Output, Shown, plain_table
from bertctl.cli.framework.recipe_options import takes_recipe, without
from bertctl.cli.framework.recipe_requests import RecipeRequest
from bertctl.errors import UsageError

if TYPE_CHECKING:
    from bertctl.config.schema import Recipe


@takes_recipe(
    "model",
    *without("data", "--annotator"),
    "confirming",
    "training",
    "compute",
    "deterministic",
    "--text/--no-text",
)
def sweep(
    out: Output,
    recipe: RecipeRequest,
    grid: Annotated[
        str | None,
        typer.Option(
            "--grid",
            metavar="NAME|'FIELD=V,V FIELD=V'|FILE.yaml",
            autocompletion=one_of("auto", "paper", "glue"),
        ),
    ] = None,
    halving: Annotated[bool, typer.Option("--halving")] = False,
    random: Annotated[int | None, typer.Option("--random", metavar="N")] = None,
    seeds: Annotated[str, typer.Option("--seeds", metavar="N|init=N,order=N")] = "1",
    folds: Annotated[int | None, typer.Option("--folds", metavar="K")] = None,
    jobs: Annotated[int | None, typer.Option("--jobs", metavar="N")] = None,
    shard: Annotated[str | None, typer.Option("--shard", metavar="K/N")] = None,
    executor: Annotated[Literal["local", "slurm", "ray"], typer.Option("--executor")] = "local",
    keep: Annotated[Literal["best", "all", "none"], typer.Option("--keep")] = "best",
    choose: Annotated[Literal["mean", "best-run"], typer.Option("--choose")] = "mean",
    test: Annotated[bool, typer.Option("--test")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run")] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="DIR")] = None,
) -> None:
    """Run a recipe with every setting of a grid and several seeds, and choose by the mean.

    Run folders are in DIR/cells. The same command runs the missing runs. If runs fail, the others
    continue; the exit code is that of the first failure.

    Args:
        out: Prints the answer and messages.
        recipe: The recipe and the options of its fields, as they were typed.
        grid: Settings to try: `auto`, `paper`, `glue`, or fields with their values.

            auto: around what training.preset=auto chooses; the default, unless --seeds or --folds
            vary something. paper: batch size 16, 32; learning rate 5e-5, 3e-5, 2e-5; epochs
            2, 3, 4. glue: batch size 32, 3 epochs, learning rate 5e-5, 4e-5,
            3e-5, 2e-5.
        halving: Stop the worse two thirds after a sixth of the steps, and after half.
        random: Run a seeded sample of N of the settings.
        seeds: Number of seeds per setting, from the recipe's on.

            Each changes initialisation and data order; init=N,order=M runs each of N
            initialisations with each of M orders.
        folds: Cross-validation: K stratified folds, each held out once.

            It takes the place of validation rows.
        jobs: Number of parallel runs. Default: one per GPU, or 1 on CPU.

            Of jobs elsewhere (--executor) all at once.
        shard: Run shard K of N; `sweep-merge` combines the shards.
        executor: Compute runs here, as jobs of Slurm, or on a Ray cluster.

            All machines have to share DIR, the sweep folder.
        keep: Which models to keep on disk.
        choose: Choose the setting by its mean, or by the best single run.
        test: Score the chosen model on the test split, once.
        dry_run: Time a few steps; estimate the number of runs, time and disk space.
        output: Sweep folder. Default: runs/sweep-RECIPE-HASH.

            The same command continues the sweep in it.

    Examples:
        bertctl sweep mrpc --data-dir glue --model minilm --grid paper --seeds 5
        bertctl sweep my.yaml --grid 'training.epochs=3,10' --folds 5 --jobs 2
    """
    from bertctl.inference.shards import read_shard
    from bertctl.sweeps.executors import check_executor
    from bertctl.sweeps.grid import AUTO_GRID, read_grid, read_seeds

    started = time.perf_counter()
    part = read_shard(shard)
    check_executor(executor)
    if grid is not None and grid.strip() != AUTO_GRID:
        settings = read_grid(grid)
    else:
        settings = [{}]  # one setting, which changes no field
    given_twice = [name for name in settings[0] if name in recipe.typed]
    if given_twice:
        message = f"{', '.join(given_twice)}: in the grid, and given by itself as well"
        raise UsageError(message, remedy="Take it out of the grid, or out of the options.")
    base = recipe.load(listener=out)
    if base.runtime.mlflow_register is not None:
        raise UsageError(
            "runtime.mlflow_register is for one run, and a sweep has many",
            remedy="Leave it out here.",
        )
    if test and keep == "none":
        raise UsageError(
            "--test needs the chosen model, and --keep none keeps none", remedy="Use --keep best."
        )
    if test and part is not None:
        raise UsageError(
            "--test chooses among all runs, and --shard makes some of them",
            remedy="Put the parts together with `bertctl sweep-merge DIR ... -o OUT`, then give "
            "the same command with "
            "-o OUT --test and without --shard.",
        )
    chosen_seeds = read_seeds(seeds, first=base.training.seed)
    varies_seeds_or_folds = folds is not None or len(chosen_seeds) > 1
    is_auto_grid = _takes_auto_grid(grid, base, varies_more=varies_seeds_or_folds)
    if grid is None and not is_auto_grid and random is not None:
        raise UsageError(
            "--random draws from a grid, and there is none",
            remedy="Add --grid, such as --grid paper.",
        )

    # The modules from here on import torch; what was refused so far did not need it.
    from bertctl.sweeps.prepare import SweepRequest, make_sweep

    with out.third_party_kept() as log:
        request = SweepRequest(
            recipe=base,
            settings=None if is_auto_grid else settings,
            seeds=chosen_seeds,
            folds=folds,
            jobs=jobs,
            shard=part,
            keep=keep,
            choose=choose,
            test=test,
            executor=executor,
            random=random,
            halving=halving,
        )
        made = make_sweep(request, output, listener=out)
        folder = made.folder
        if dry_run:
            from bertctl.sweeps.dry_run import dry_run as measure

            document = measure(made, listener=out)
            out.answer(document, _dry_table(document))
            return

        from bertctl.sweeps.conclude import conclude
        from bertctl.sweeps.page import sweep_tables
        from bertctl.sweeps.run import run_sweep
        from bertctl.writing import failures_of

        out.say(f"sweep folder: {folder}")
        with failures_of(folder):
            folder.mkdir(parents=True, exist_ok=True)
        log.write_to(folder / "log.txt")
        code = run_sweep(made, started=started, listener=out)
        result = conclude(folder, test_split=test, listener=out)
    result = result.model_copy(update={"notes": all_as_options(result.notes)})
    out.answer(result.as_json(), sweep_tables(result))
    out.say(f"sweep folder: {folder}")
    if code:
        raise typer.Exit(code)
    if result.chosen is not None:
        say_next(out, use_of_sweep(folder, result.chosen.run, base.task))


def _takes_auto_grid(grid: str | None, recipe: "Recipe", *, varies_more: bool) -> bool:
    """Returns whether the sweep takes the grid `auto`, which varies what the preset `auto` chooses.

    It does with `--grid auto`, and also if no option says what to vary.

    Args:
        grid: The grid as it was typed, or None.
        recipe: The recipe of the sweep.
        varies_more: Whether seeds or folds are varied.

    Raises:
        UsageError: The grid is to be taken, and the preset chooses nothing for this recipe.
    """
    from bertctl.sweeps.grid import AUTO_GRID, axes_around

    is_typed = grid is not None and grid.strip() == AUTO_GRID
    varies_nothing = grid is None and not varies_more
    if not is_typed and not varies_nothing:
        return False
    if axes_around(recipe):
        return True
    if is_typed:
        message = (
            "--grid auto varies what training.preset=auto chooses, and here it chooses none of it"
        )
        remedy = (
            "Add --set training.preset=auto, leave out the values that are given, or take --grid "
            "paper."
        )
        raise UsageError(message, remedy=remedy)
    message = "there is nothing to vary: one setting, one seed"
    raise UsageError(
        message,
        remedy="Add --grid paper, --seeds 5 or --folds 5; a single run is `bertctl finetune`.",
    )


def _dry_table(document: Mapping[str, Any]) -> Shown:
    """Returns a table with the number of runs, time and disk.

    Args:
        document: The plan, as `--json` prints it. With `--halving`, runs pause after some steps (a
            rung), and only the best of them continue; `halving` has their numbers, else None.
    """
    from bertctl.words import human_bytes, human_seconds

    seconds = document["seconds"]
    disk = document["disk_bytes"]
    halving = document["halving"]
    table = plain_table("sweep", "about", "", right=("about",))
    about_runs = []
    if halving is not None:
        promoted = ", then ".join(map(str, halving["promoted"]))
        about_runs.append(
            f"all to the first rung, {promoted} of them on (more where they are near)"
        )
    if document["done"]:
        about_runs.append(f"{document['done']} of {document['runs']} are done")
    table.add_row("runs", str(document["to_run"]), "; ".join(about_runs))
    between = f"between {human_seconds(seconds['low'])} and {human_seconds(seconds['high'])}"
    if halving is not None:
        share = round(100 * halving["most_steps"] / halving["full_steps"])
        between += f"; at most {share} % of the steps of the full grid"
    at_a_time = f"{document['jobs']} at a time, threads each: {document['threads']}"
    table.add_row("time", human_seconds(seconds["estimate"]), f"{between}; {at_a_time}")
    shortest, longest = (
        human_seconds(document["run_seconds"][name]) for name in ("shortest", "longest")
    )
    table.add_row("one run", longest, f"the longest; the shortest {shortest}")
    table.add_row(
        "disk",
        human_bytes(disk["needed"]),
        f"at the worst moment; {human_bytes(disk['free'])} free",
    )
    return table
