"""A sweep made ready.

Its runs are planned, their data read and tokenized once, and everything refused that can be.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import ValidationError

from bertctl.config.agreement import disagreements_in
from bertctl.config.dump import recipe_hash
from bertctl.config.presets import given_values
from bertctl.config.problems import RecipeError
from bertctl.config.schema import Recipe
from bertctl.data.recipe_data import load_data
from bertctl.data.recipe_splits import groups_of
from bertctl.data.splits import first_rows, most_folds
from bertctl.errors import DataError, UsageError
from bertctl.inference.run_inputs import resolved_for
from bertctl.progress import SILENT, Listener
from bertctl.runtime.cpu import available_cores
from bertctl.runtime.device import choose_compute
from bertctl.sweeps.grid import Setting, axes_around, pick, settings_around, with_values
from bertctl.sweeps.halving import rung_steps
from bertctl.sweeps.plan import Choose, Keep, PlannedCell, PrimaryMetric, SweepPlan, find_plan
from bertctl.sweeps.pool import visible_devices
from bertctl.tasks.registry import higher_is_better
from bertctl.training.auto_settings import TrainingTraits, resolve_auto
from bertctl.training.job import (
    Encoded,
    Inputs,
    check,
    encode,
    encoding_key,
    n_training_windows,
)
from bertctl.training.steps import steps_per_epoch, total_steps
from bertctl.words import command, count

NAME_LENGTH = 16
"""Hexadecimal digits of the hash that name a cell's folder."""


@dataclass(frozen=True)
class SweepRequest:
    """Request for a sweep.

    Attributes:
        recipe: Base recipe.
        settings: dotted field -> value, for each setting; None for those around the values of the
            preset `auto`.
        seeds: `init` and `order`, for each seed.
        folds: number of folds of the training rows, each held out once; None for the validation
            rows as they are.
        jobs: number of parallel runs; None for one per GPU, or 1 on CPU; of jobs elsewhere for all
            at once.
        shard: number and count, to run a part of the sweep alone.
        keep: whose model stays: `best`, `all` or `none`.
        choose: by `mean` over the seeds, or by `best-run`.
        test: whether the chosen model is to be scored on the test split.
        executor: `local` for workers on this machine; else see executors.py.
        random: Number of settings to sample; None for all.
        halving: Whether runs wait at rungs and only the best go on; see halving.py.
        forks: whether workers may be forked; not where this process has computed with torch in
            several threads.
    """

    recipe: Recipe
    settings: Sequence[Setting] | None
    seeds: Sequence[Mapping[str, int]]
    folds: int | None = None
    jobs: int | None = None
    shard: tuple[int, int] | None = None
    keep: Keep = "best"
    choose: Choose = "mean"
    test: bool = False
    executor: str = "local"
    forks: bool = True
    random: int | None = None
    halving: bool = False


@dataclass(frozen=True)
class SweepCell:
    """Describes one run to be made.

    Attributes:
        setting: number of its setting.
        seed: number of its seed.
        fold: number of the fold that is held out, from 1; None without folds.
        recipe: what to run; device, precision and threads are resolved once it has a name.
        key: Key of its encoded rows, see `encoding_key`.
        name: Name of its folder: a hash of all that decides its scores. Empty before its data is
            read.
    """

    setting: int
    seed: int
    fold: int | None
    recipe: Recipe
    key: str
    name: str = ""


@dataclass(frozen=True)
class Sweep:
    """Sweep made ready: everything read, checked and tokenized, nothing trained.

    Attributes:
        plan: content of plan.json.
        cells: all of them, of all shards.
        encoded: Encoded rows of the cells, by key.
        folder: SWEEP.
        request: The request that it was made from.
    """

    plan: SweepPlan
    cells: list[SweepCell]
    encoded: dict[str, Encoded]
    folder: Path
    request: SweepRequest

    def by_cost(self, cells: Sequence[SweepCell]) -> list[SweepCell]:
        """Returns the cells in the order in which they are run: the longest ones first.

        Otherwise a worker could be busy with a long run after all others have ended. Of equally
        long cells, those of a setting stay together.
        """

        def cost(cell: SweepCell) -> tuple[int, int, int]:
            """Returns a smaller key for the longer run, by examples read and then by steps."""
            training = cell.recipe.training
            examples = n_training_windows(self.encoded[cell.key].features)
            if training.max_steps:
                examples_read = training.max_steps * training.batch_size
            else:
                examples_read = training.epochs * examples
            return -examples_read, -total_steps(cell.recipe, examples), cell.setting

        return sorted(cells, key=cost)

    @property
    def mine(self) -> list[SweepCell]:
        """Returns the cells that this call is to run: all of them, or those of its shard.

        Shard k of n has every n-th cell from the k-th on, the longest cells first, so that all
        shards take about as long.
        """
        number, n_shards = self.request.shard or (1, 1)
        return self.by_cost(self.cells)[number - 1 :: n_shards]


def make_sweep(request: SweepRequest, folder: Path | None, *, listener: Listener = SILENT) -> Sweep:
    """Reads, checks and tokenizes everything that the sweep's runs need; torch computes nothing.

    Args:
        request: Recipe, settings, seeds and options of the sweep.
        folder: SWEEP; None for runs/sweep-NAME-HASH. A sweep that is in it already keeps its
            number of threads, unless the recipe names another number.
        listener: Receives messages on what was read and guessed.

    Raises:
        BertctlError: Any refusal: settings, files, labels, model, device.
    """
    # Baselines would be the same for all runs.
    base = _without_test(request.recipe, listener).with_fields("evaluation", baselines=False)
    if request.folds is not None and request.folds < 2:
        raise UsageError(f"`folds={request.folds}`: it must be at least 2")
    if request.jobs is not None and request.jobs < 1:
        raise UsageError(f"`jobs={request.jobs}`: it must be at least 1")
    if request.halving:
        _refuse_what_halving_cannot(request, base)
    request = _with_fitting_folds(request, base, listener)
    # `encoded` has the data that was needed to find the settings; `_read` below adds the rest.
    request, encoded = _with_settings(request, base, listener)
    cells = _cells(base, request)  # refuses settings that contradict, before torch is loaded
    if request.test:
        _refuse_test_without_labels(base)

    # From here on recipes have their device and precision.
    compute = choose_compute(base.runtime)
    base = resolved_for(base, compute)
    settings = request.settings or []
    cells = [
        replace(cell, recipe=_with_base_device(cell.recipe, base, settings[cell.setting]))
        for cell in cells
    ]
    encoded, checked = _read(cells, encoded, listener)
    plan = _plan(
        request,
        base,
        cells,
        encoded,
        checked,
    )
    folder = folder or Path("runs") / f"sweep-{plan.name}-{plan.identity()[:8]}"
    jobs, threads = _jobs_and_threads(
        request, find_plan(folder), device=compute.device, n_cells=len(cells)
    )
    named_cells = [
        _with_name(cell, threads, encoded[cell.key], checked[cell.key]) for cell in cells
    ]
    # Recipes now have what the preset `auto` chose, which changes the keys of their encoded rows.
    encoded = {
        named_cell.key: encoded[cell.key]
        for cell, named_cell in zip(cells, named_cells, strict=True)
    }
    cells = named_cells
    _refuse_twins(cells)
    planned = [
        PlannedCell(
            name=cell.name,
            setting=cell.setting,
            seed=cell.seed,
            fold=cell.fold,
        )
        for cell in cells
    ]
    recipe = given_values(base.with_fields("runtime", threads=threads))
    update = {"recipe": recipe, "jobs": jobs, "threads": threads, "cells": planned}
    if request.halving:
        update["rungs"] = {cell.name: _rungs(cell.recipe, encoded[cell.key]) for cell in cells}
        update["n_examples"] = len(encoded[cells[0].key].data.splits[plan.primary.split])
    return Sweep(
        plan.model_copy(update=update),
        cells,
        encoded,
        folder,
        request,
    )


def _refuse_test_without_labels(base: Recipe) -> None:
    """Refuses `test=True` now, not after all runs, if the test split can't be scored.

    Raises:
        DataError: It has no labels.
    """
    if load_data(base, splits=["test"]).splits["test"].has("label"):
        return
    remedy = (
        f"Leave `test=True` out; `{command('predict RUN', split='test')}` writes the "
        f"answers to hand in."
    )
    raise DataError(
        "`test=True`: the test split has no labels, so it can't be scored", remedy=remedy
    )


def _jobs_and_threads(
    request: SweepRequest, before: SweepPlan | None, *, device: str, n_cells: int
) -> tuple[int, int]:
    """Returns the number of parallel runs, and the number of threads of each.

    Args:
        request: May name both numbers.
        before: Plan of the sweep that is in the folder already; its threads are kept, as they are
            in the names of the runs.
        device: Device of the runs. By default there is one run per GPU, or one on a CPU.
        n_cells: Number of runs. With Slurm or Ray all of them are parallel by default.
    """
    if request.jobs is not None:
        local_jobs = request.jobs
    elif device == "cuda":
        local_jobs = max(1, len(visible_devices()))
    else:
        local_jobs = 1

    if request.recipe.runtime.threads:
        threads = request.recipe.runtime.threads
    elif before is not None:
        threads = before.threads
    else:
        threads = max(1, available_cores() // local_jobs)

    if request.executor == "local":
        return local_jobs, threads
    return request.jobs or n_cells, threads


def _with_fitting_folds(request: SweepRequest, base: Recipe, listener: Listener) -> SweepRequest:
    """Returns the request with at most as many folds as can be made of the training rows.

    That is one fold per row, or per group of rows that stay together. Data with validation rows of
    its own is left to the recipe's checks, which refuse folds there.
    """
    if request.folds is None or base.data.name or base.data.validation_file:
        return request
    data = load_data(base, splits=("train",), unsplit=True)
    rows = data.splits["train"]
    if base.data.first_train_rows is not None:
        rows = first_rows(rows, base.data.first_train_rows)
    possible_folds = most_folds(rows, groups_of(rows, base, data.columns))
    # With fewer than 2 there is no split at all, which is refused later.
    if not 2 <= possible_folds < request.folds:
        return request

    reason = f"{rows.source} has {count(len(rows), 'row')}"
    if possible_folds < len(rows):
        reason += f" in {possible_folds} groups that stay together"
    listener.say(f"`folds={request.folds}`: {possible_folds} folds, as {reason}")
    return replace(request, folds=possible_folds)


def _rungs(recipe: Recipe, encoded: Encoded) -> list[int]:
    """Returns the steps at which a run of successive halving waits, and its last one."""
    n_rows = n_training_windows(encoded.features)
    between = recipe.training.evaluate_every or steps_per_epoch(recipe, n_rows)
    return rung_steps(total_steps(recipe, n_rows), between)


def _refuse_what_halving_cannot(request: SweepRequest, base: Recipe) -> None:
    """Refuses halving beside what it does not go with.

    Raises:
        UsageError: Which, and what to type.
    """
    reasons = {
        "`seeds=`": (len(request.seeds) > 1, "it compares single runs"),
        "`folds=`": (request.folds is not None, "it compares runs on the same validation rows"),
        "`shard=`": (request.shard is not None, "the runs of a rung wait for each other"),
        f"`executor={request.executor}`": (
            request.executor != "local",
            "the runs of a rung wait for each other",
        ),
        "`training.time_limit=`": (
            base.training.time_limit is not None,
            "a rung is a number of steps, which a clock changes",
        ),
    }
    for option, (is_given, reason) in reasons.items():
        if is_given:
            raise UsageError(
                f"successive halving does not go with {option}: {reason}",
                remedy=f"Leave out `halving=True`, or {option}.",
            )


def _with_settings(
    request: SweepRequest, base: Recipe, listener: Listener
) -> tuple[SweepRequest, dict[str, Encoded]]:
    """Returns the request with its settings, and the data that was encoded to find them, by key.

    Settings around the values of the preset `auto` depend on the rows and the model, so these are
    read. For settings of a grid nothing is read.

    Raises:
        BertctlError: Any refusal of the recipe, its files and labels.
    """
    encoded: dict[str, Encoded] = {}
    settings = request.settings
    if settings is None:
        # The recipe as it is, without a change, gives the values that the settings lie around.
        base_cell = _cells(base, replace(request, settings=[{}]))[0]
        encoded[base_cell.key] = encode(base_cell.recipe, listener=listener)
        inputs = check(base_cell.recipe, encoded[base_cell.key])
        listener.say(inputs.chosen)
        settings = settings_around(inputs.recipe, axes_around(base))
    settings = pick(settings, request.random, seed=base.training.seed)
    return replace(request, settings=settings), encoded


def _cells(base: Recipe, request: SweepRequest) -> list[SweepCell]:
    """Returns a cell for every combination of setting, seed and fold; the fold changes fastest.

    Their recipes are checked. They have no names yet.

    Raises:
        RecipeError: Fields of a setting contradict each other or the recipe, or have no effect.
    """
    if request.folds:
        folds: Sequence[int | None] = range(1, request.folds + 1)
    else:
        folds = (None,)
    cells: list[SweepCell] = []
    problems: list[str] = []
    settings = request.settings or []
    combinations = itertools.product(enumerate(settings), enumerate(request.seeds), folds)
    for (i, setting), (j, seed), fold in combinations:
        values = {
            **setting,
            "training.init_seed": seed["init"],
            "training.order_seed": seed["order"],
        }
        # metrics.json has the number of settings: `gate` widens the intervals of the best of many.
        values["evaluation.settings_compared"] = len(settings)
        if fold is not None:
            values |= {"data.folds": request.folds, "data.fold": fold}
        try:
            recipe = with_values(base, values)
        except ValidationError as error:
            disagreements = disagreements_in(error)
            if not disagreements:
                raise
            problems += [f"{item.fields[0]}: {item.message}" for item in disagreements]
        else:
            cells.append(
                SweepCell(
                    i,
                    seed=j,
                    fold=fold,
                    recipe=recipe,
                    key=encoding_key(recipe),
                )
            )
            steps = recipe.training.max_steps
            if "training.epochs" in setting and steps:
                reason = (
                    f"of no effect beside training.max_steps {steps}; leave one out "
                    "(`training.max_steps=null`)"
                )
                problems.append(f"training.epochs: {reason}")
    if problems:
        raise RecipeError("the settings of this sweep", list(dict.fromkeys(problems)))
    return cells


def without_test(recipe: Recipe) -> list[str]:
    """Returns the splits that a recipe scores, without test splits."""
    return [split for split in recipe.evaluation.splits if not split.startswith("test")]


def _without_test(recipe: Recipe, listener: Listener) -> Recipe:
    """Returns the recipe without test splits among the splits that are scored.

    With test scores of all runs, people would choose a setting by them.
    """
    splits = without_test(recipe)
    if splits == recipe.evaluation.splits:
        return recipe
    listener.say(
        "evaluation.splits names test: a sweep's runs are not scored on it; `test=True` scores the "
        "chosen one once"
    )
    return recipe.with_fields("evaluation", splits=splits)


def _with_base_device(recipe: Recipe, base: Recipe, setting: Setting) -> Recipe:
    """Returns a cell's recipe with the device and precision of the base recipe.

    Fields of `runtime` that its setting names are as the setting says.
    """
    varied = {}
    for name, value in setting.items():
        section, _, field = name.partition(".")
        if section == "runtime":
            varied[field] = value
    runtime = base.runtime.model_copy(update=varied)
    return resolved_for(recipe.model_copy(update={"runtime": runtime}), choose_compute(runtime))


def _read(
    cells: Sequence[SweepCell], encoded: dict[str, Encoded], listener: Listener
) -> tuple[dict[str, Encoded], dict[str, Inputs]]:
    """Reads and tokenizes the data of all cells, and checks it.

    Args:
        cells: Cells that share their data if their keys are equal.
        encoded: Data that was read before, by key; the rest is added to it.
        listener: Receives messages on what was read.

    Returns:
        The encoded data, and the checked inputs of a run with it, both by key.
    """
    checked: dict[str, Inputs] = {}
    auto_was_said = bool(encoded)  # `_with_settings` has read data, and reported what `auto` chose
    for cell in cells:
        if cell.key not in encoded:
            encoded[cell.key] = encode(cell.recipe, listener=listener)
        if cell.seed == 0:  # a seed changes nothing that is checked
            checked.setdefault(cell.key, check(cell.recipe, encoded[cell.key]))
    row_counts = dict.fromkeys(_row_counts(encoded_data) for encoded_data in encoded.values())
    listener.say(f"tokenized once: {'; '.join(row_counts)}, for all {len(cells)} runs")
    if auto_was_said:
        return encoded, checked
    for chosen in dict.fromkeys(inputs.chosen for inputs in checked.values() if inputs.chosen):
        listener.say(chosen)
    return encoded, checked


def _row_counts(encoded: Encoded) -> str:
    """Returns the numbers of rows by split, such as `3668 train rows, 408 validation rows`."""
    splits = encoded.data.splits
    return ", ".join(f"{len(rows)} {split} rows" for split, rows in splits.items())


def _plan(
    request: SweepRequest,
    base: Recipe,
    cells: Sequence[SweepCell],
    encoded: Mapping[str, Encoded],
    checked: Mapping[str, Inputs],
) -> SweepPlan:
    """Returns the plan without its cells, whose names depend on the number of threads.

    Args:
        request: Settings, seeds and options of the sweep.
        base: Recipe that the settings change.
        cells: The runs, without their names.
        encoded: Encoded data, by the key that cells with the same data share.
        checked: Checked inputs of a run with the data, by the same keys.
    """
    first_key = next(iter(encoded))
    primary = checked[first_key].primary
    # Rows with other labels may have another primary metric: there is no F1 of three labels.
    baselines = [inputs.baseline for inputs in checked.values() if inputs.primary == primary]
    data_hashes = {}
    for key, label in _data_labels(cells).items():
        for split, digest in encoded[key].data.hashes.items():
            data_hashes[f"{label}: {split}" if label else split] = digest
    return SweepPlan(
        name=base.name,
        recipe=given_values(base),
        primary=PrimaryMetric(
            split=encoded[first_key].data.validation_splits[0],
            name=primary,
            higher_is_better=higher_is_better(primary),
        ),
        settings=[dict(setting) for setting in request.settings or []],
        seeds=[dict(seed) for seed in request.seeds],
        folds=request.folds,
        baseline=_mean_of_common(baselines),
        choose=request.choose,
        keep=request.keep,
        shard=request.shard,
        data_hashes=data_hashes,
        model_hash=", ".join(dict.fromkeys(data.model_hash for data in encoded.values())),
    )


def _mean_of_common(baselines: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Returns the mean of each metric that all baselines have."""
    means = {}
    for name in baselines[0]:
        if all(name in baseline for baseline in baselines):
            means[name] = math.fsum(baseline[name] for baseline in baselines) / len(baselines)
    return means


def _data_labels(cells: Sequence[SweepCell]) -> dict[str, str]:
    """Returns a label for each different data set of a sweep's cells, by the key of its encoding.

    It is `part 2` for fold 2 if the folds alone have different data, and `data 2` for the second
    data set if settings change the data. If all cells read the same data, the label is empty.
    """
    fold_by_key: dict[str, int | None] = {}
    for cell in cells:
        fold_by_key.setdefault(cell.key, cell.fold)
    if len(fold_by_key) == 1:
        return dict.fromkeys(fold_by_key, "")

    n_settings = len({cell.setting for cell in cells})
    n_folds = len({cell.fold for cell in cells})
    only_folds_differ = n_settings == 1 or len(fold_by_key) == n_folds
    if only_folds_differ:
        # "part", as it ever was: the text is hashed into the name of the sweep's folder.
        return {key: f"part {fold}" for key, fold in fold_by_key.items()}
    return {key: f"data {number}" for number, key in enumerate(fold_by_key, 1)}


def _with_name(cell: SweepCell, threads: int, encoded: Encoded, inputs: Inputs) -> SweepCell:
    """Returns the cell with a complete recipe, and with the name that is a hash of it.

    The recipe is complete once it has what the preset `auto` chooses, threads and precision.
    """
    traits = TrainingTraits.of(
        cell.recipe, inputs.data, inputs.task, inputs.source, is_encoded=True
    )
    recipe, _ = resolve_auto(cell.recipe, traits)
    recipe = recipe.with_fields("runtime", threads=threads)
    recipe = recipe.with_fields(
        "runtime", precision=encoded.source.compute(recipe.runtime).precision
    )
    digest = recipe_hash(recipe, data_hashes=encoded.data.hashes, model_hash=encoded.model_hash)
    return replace(
        cell,
        recipe=recipe,
        key=encoding_key(recipe),
        name=digest[:NAME_LENGTH],
    )


def _refuse_twins(cells: Sequence[SweepCell]) -> None:
    """Refuses two settings with the same run: a run's name is a hash of all that decides it.

    Raises:
        UsageError: Naming the two settings.
    """
    by_name: dict[str, SweepCell] = {}
    for cell in cells:
        twin = by_name.setdefault(cell.name, cell)
        if twin is not cell:
            raise UsageError(
                f"settings {twin.setting + 1} and {cell.setting + 1} of the grid give the same "
                "run: what tells them apart decides no number",
                remedy="Take fields out of the grid that decide none (names, logging, paths of "
                "equal files).",
            )
