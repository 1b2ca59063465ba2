"""Training from Python: recipes, and rows that are files, data sets or in memory."""

import hashlib
import itertools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from bertctl.addresses import refuse_address
from bertctl.api.fields import Fields, as_options
from bertctl.api.run import Run
from bertctl.baselines.run_baselines import make_baselines
from bertctl.config.load import load_recipe as load_recipe_with
from bertctl.config.schema import Recipe
from bertctl.data.guessing import guess_task
from bertctl.data.memory_rows import RowsInMemory, kept_file
from bertctl.data.sources import MemoryFile, kept_rows
from bertctl.errors import BertctlError, ExitCode, UsageError
from bertctl.inference.run_inputs import write_rows
from bertctl.jobs.run_probe import run_probe
from bertctl.jobs.run_recipe import protect_inputs, run_recipe
from bertctl.progress import SILENT, Listener
from bertctl.reporting.card import write_card
from bertctl.reporting.notebook import NotebookListener, in_notebook
from bertctl.runtime.seeding import generators_kept
from bertctl.session import opened
from bertctl.training.finetune import RunOptions
from bertctl.training.start import Resume
from bertctl.writing import failures_of


def load_recipe(name: str | Path, fields: Fields | None = None) -> Recipe:
    """Returns a recipe, complete and checked.

    Args:
        name: A built-in recipe (`bertctl recipes ls`) or a YAML file.
        fields: Fields to set.

    Raises:
        UsageError: Unknown fields, impossible values: all of them at once.
    """
    return load_recipe_with(str(name), options=as_options(fields))


def finetune(
    recipe: Recipe | str | Path | None = None,
    fields: Fields | None = None,
    *,
    train: RowsInMemory | None = None,
    validation: RowsInMemory | None = None,
    test: RowsInMemory | None = None,
    output: Path | str | None = None,
    resume: Resume = False,
    overwrite: bool = False,
    strict: bool = False,
    listener: Listener | None = None,
) -> Run:
    """Trains a model by a recipe, and returns the finished run.

    The recipe may be for fine-tuning, few-shot training or pretraining.

    Rows can be given in memory: mappings, or a data frame of pandas, Polars, pyarrow or `datasets`.
    Their columns are guessed, as for a file. The run folder keeps the rows, so that a split can be
    scored later, unless `evaluation.keep_text` is false.

    Args:
        recipe: A recipe, or the name or file of one. None is the task that the rows are for.
        fields: Fields to set, where `recipe` is a name or a file.
        train: Training rows.
        validation: Rows to score. Default: a share of the training rows.
        test: Test rows, which are scored if `evaluation.splits` or `Run.evaluate` names them.
        output: The run folder; `runs/<recipe>-<hash>` by default.
        resume: Whether to go on with the run in the folder: True where there must be one, "if any"
            where there may be.
        overwrite: Whether to replace the run in the folder.
        strict: Whether a model that gives every example the same answer is an error.
        listener: Receives progress messages. None is silent in a script; a notebook shows how far
            the training is.

    Raises:
        BertctlError: See `bertctl.errors`; each has a message, a remedy and an exit code.
    """
    refuse_address(output, "output", is_output=True)
    rows = _rows_of(train, validation, test)
    resolved = _resolved(recipe, fields, rows)
    options = RunOptions(strict=strict, make_baselines=make_baselines, on_finish=write_card)
    # Trainings in several threads take turns: torch has one generator for all threads, and two
    # would draw from it alternately.
    with opened(), generators_kept():
        result = run_recipe(
            resolved,
            rows_in_memory=rows,
            output=None if output is None else Path(output),
            resume=resume,
            overwrite=overwrite,
            options=options,
            listener=_listening(listener),
        )
    return Run(result.folder.path)


def probe(
    recipe: Recipe | str | Path | None = None,
    fields: Fields | None = None,
    *,
    train: RowsInMemory | None = None,
    validation: RowsInMemory | None = None,
    test: RowsInMemory | None = None,
    output: Path | str | None = None,
    overwrite: bool = False,
    listener: Listener | None = None,
) -> Run:
    """Trains a linear classifier on a frozen encoder, and returns the finished run.

    Args:
        recipe: A recipe, or the name or file of one. None is the task that the rows are for.
        fields: Fields to set, such as `probe.layers`, where `recipe` is a name or a file.
        train: Training rows, as in `finetune`.
        validation: Rows to score.
        test: Test rows.
        output: The run folder; `runs/probe-<recipe>-<hash>` by default.
        overwrite: Whether to replace the run in the folder.
        listener: Receives progress messages, as in `finetune`.

    Raises:
        BertctlError: Any refusal of recipe, rows, model or folder.
    """
    refuse_address(output, "output", is_output=True)
    rows = _rows_of(train, validation, test)
    resolved = _resolved(recipe, fields, rows)
    protect_inputs(resolved, rows)
    with opened(), generators_kept():
        result = run_probe(
            resolved,
            rows_in_memory=rows,
            output=None if output is None else Path(output),
            overwrite=overwrite,
            listener=_listening(listener),
        )
    return Run(result.folder.path)


def sweep(
    recipe: Recipe | str | Path | None = None,
    fields: Fields | None = None,
    *,
    grid: str | Mapping[str, Sequence[Any]] | None = None,
    seeds: int | str = 1,
    folds: int | None = None,
    random: int | None = None,
    halving: bool = False,
    jobs: int | None = None,
    keep: Literal["best", "all", "none"] = "best",
    choose: Literal["mean", "best-run"] = "mean",
    train: RowsInMemory | None = None,
    validation: RowsInMemory | None = None,
    test: RowsInMemory | None = None,
    score_test: bool = False,
    output: Path | str | None = None,
    listener: Listener | None = None,
) -> dict[str, Any]:
    """Runs a recipe with every setting of a grid and several seeds, and returns the result.

    Run folders are in OUTPUT/cells. The same call runs what is missing. Runs work in processes of
    their own: in a script, call it under `if __name__ == "__main__":`.

    Args:
        recipe: A recipe, or the name or file of one. None is the task that the rows are for.
        fields: Fields to set, where `recipe` is a name or a file.
        grid: Settings to try: `auto`, `paper`, `glue`, fields with their values as `bertctl sweep`
            reads them, or field -> values.
        seeds: Number of seeds per setting, or "init=N,order=M".
        folds: Number of folds for cross-validation.
        random: Number of settings to sample.
        halving: Whether to stop the worse two thirds after a sixth of the steps, and after half.
        jobs: Number of parallel runs.
        keep: Which models stay on the disk.
        choose: Whether the setting is chosen by its mean, or by the best single run.
        train: Training rows, as in `finetune`. The sweep folder keeps them.
        validation: Rows to score.
        test: Test rows.
        score_test: Whether the chosen model is scored on the test rows, once.
        output: The sweep folder; `runs/sweep-<recipe>-<hash>` by default.
        listener: Receives progress messages, as in `finetune`.

    Returns:
        The content of sweep.json.

    Raises:
        BertctlError: Any refusal of recipe, settings, rows or model; or that of the first run that
            failed.
    """
    # Processes of runs are forked from this one, unless torch is loaded: its threads would be
    # missing in a fork.
    forks = "torch" not in sys.modules
    from bertctl.sweeps.conclude import conclude
    from bertctl.sweeps.grid import read_seeds
    from bertctl.sweeps.prepare import SweepRequest, make_sweep
    from bertctl.sweeps.run import run_sweep

    refuse_address(output, "output", is_output=True)
    rows = _rows_of(train, validation, test)
    base = _resolved(recipe, fields, rows)
    protect_inputs(base, rows)
    chosen_seeds = read_seeds(str(seeds), first=base.training.seed)
    varies_seeds_or_folds = folds is not None or len(chosen_seeds) > 1
    settings = _settings_of(grid, base, varies_more=varies_seeds_or_folds)
    if score_test and keep == "none":
        raise UsageError("score_test needs the chosen model", remedy='Give keep="best".')

    folder = None if output is None else Path(output)
    if rows:
        # The runs work in other processes, so they read the rows from the sweep folder.
        arguments = (base.model_dump_json(), settings, chosen_seeds, folds, random, halving, choose)
        folder = folder or _sweep_folder(base.name, rows, repr(arguments))
        base = _with_kept_rows(folder.absolute(), base, rows)
    progress = _listening(listener)
    request = SweepRequest(
        recipe=base,
        settings=settings,
        seeds=chosen_seeds,
        folds=folds,
        jobs=jobs,
        keep=keep,
        choose=choose,
        test=score_test,
        random=random,
        halving=halving,
        forks=forks,
    )
    with opened(), generators_kept():
        prepared = make_sweep(request, folder, listener=progress)
        with failures_of(prepared.folder):
            prepared.folder.mkdir(parents=True, exist_ok=True)
        code = run_sweep(prepared, listener=progress)
        document = conclude(prepared.folder, test_split=score_test, listener=progress)
    if code:
        error = BertctlError(
            f"runs of the sweep in {prepared.folder} have failed",
            remedy="Its sweep.html lists them with the reasons. The same call runs them again.",
        )
        error.exit_code = ExitCode(code)
        raise error
    return document.as_json()


def _settings_of(
    grid: str | Mapping[str, Sequence[Any]] | None, recipe: Recipe, *, varies_more: bool
) -> Sequence[dict[str, Any]] | None:
    """Returns the settings of a grid, each as field -> value; None for the grid `auto`.

    The grid `auto` varies what `training.preset=auto` chooses for the recipe. It is also taken if
    nothing else is varied.

    Args:
        grid: The grid as it was given to `sweep`.
        recipe: The recipe of the sweep.
        varies_more: Whether seeds or folds are varied.

    Raises:
        UsageError: The grid is `auto`, and the preset chooses nothing for this recipe.
    """
    from bertctl.sweeps.grid import AUTO_GRID, axes_around, read_grid

    if isinstance(grid, Mapping):
        combinations = itertools.product(*grid.values())
        return [dict(zip(grid, values, strict=True)) for values in combinations]
    if grid is not None and grid.strip() != AUTO_GRID:
        return read_grid(grid)
    if grid is None and varies_more:
        return [{}]  # one setting, which changes no field
    if not axes_around(recipe):
        raise UsageError(
            "there is nothing to vary: one setting, one seed",
            remedy='Give grid="paper", seeds=5 or folds=5; a single run is `finetune`.',
        )
    return None


def _rows_of(
    train: RowsInMemory | None, validation: RowsInMemory | None, test: RowsInMemory | None
) -> dict[str, MemoryFile]:
    """Returns split name -> rows, of the splits that are given."""
    splits = {"train": train, "validation": validation, "test": test}
    return {split: kept_file(rows, split) for split, rows in splits.items() if rows is not None}


def _resolved(
    recipe: Recipe | str | Path | None, fields: Fields | None, rows: Mapping[str, MemoryFile]
) -> Recipe:
    """Returns the recipe to run, complete; its data files are those that will keep rows in memory.

    Args:
        recipe: A recipe, its name or its file; None guesses the task from the training rows.
        fields: Fields to set.
        rows: Split name -> rows in memory. The run folder will keep them in files.

    Raises:
        UsageError: Fields beside a recipe that is made already; a data set beside rows; neither a
            recipe nor training rows.
    """
    # Such as {"train_file": "rows/train.jsonl"}.
    paths = {f"{split}_file": path for split, path in kept_rows(rows).items()}
    if isinstance(recipe, Recipe):
        if fields:
            raise UsageError(
                "fields go with the name of a recipe",
                remedy="Give them to load_recipe(name, fields).",
            )
        if rows and recipe.data.name:
            raise UsageError(
                f"the recipe names the data set '{recipe.data.name}', and rows are given as well",
                remedy="Leave one of them out.",
            )
        return recipe.with_fields("data", **paths)

    row_fields: dict[str, Any] = {f"data.{name}": path for name, path in paths.items()}
    doubled = [name for name in row_fields if name in (fields or {})]
    if doubled:
        raise UsageError(
            f"{doubled[0]} is given, and rows in its place as well", remedy="Leave one of them out."
        )
    if recipe is None:
        if "train" not in rows:
            raise UsageError(
                "there is nothing to train: no recipe, and no training rows",
                remedy='Give a recipe, such as "sst2", or train=ROWS.',
            )
        # Which task's recipe this is does not matter: only its section `data` is used.
        data_fields = {
            name: value for name, value in (fields or {}).items() if name.startswith("data.")
        }
        settings = load_recipe("text-classification", data_fields).data
        # The recipe of a task has the name of the task.
        recipe, guessed_fields, _ = guess_task(rows["train"], settings)
        row_fields |= guessed_fields
    resolved = load_recipe(recipe, {**row_fields, **(fields or {})})
    return resolved.with_fields("data", **paths)


def _listening(listener: Listener | None) -> Listener:
    """Returns who receives progress messages: nobody in a script, the cell in a notebook."""
    if listener is not None:
        return listener
    return NotebookListener() if in_notebook() else SILENT


def _sweep_folder(name: str, rows: Mapping[str, MemoryFile], arguments: str) -> Path:
    """Returns the folder of a sweep over rows in memory: the same one for the same call."""
    digest = hashlib.sha256(arguments.encode())
    for split, file in rows.items():
        digest.update(split.encode())
        digest.update(b"".join(file.pieces()))
    return Path("runs") / f"sweep-{name}-{digest.hexdigest()[:8]}"


def _with_kept_rows(folder: Path, recipe: Recipe, rows: Mapping[str, MemoryFile]) -> Recipe:
    """Writes the rows into the folder of a sweep, and returns the recipe that reads them there.

    Raises:
        UsageError: The folder has other rows, or something else than a sweep.
    """
    from bertctl.sweeps.plan import find_plan

    find_plan(folder)  # refuses a folder that has something else
    for split, path in kept_rows(rows).items():
        target = folder / path
        if target.exists() and target.read_bytes() != b"".join(rows[split].pieces()):
            raise UsageError(
                f"{folder} has other {split} rows",
                remedy="Give the same rows again, or choose another output.",
            )
    with failures_of(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_rows(
        folder,
        recipe,
        rows,
        keep_text=True,  # its runs read them in processes of their own
    )
    paths = {f"{split}_file": str(folder / path) for split, path in kept_rows(rows).items()}
    return recipe.with_fields("data", **paths)
