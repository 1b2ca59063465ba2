"""plan.json: what a sweep is, fixed by the first call; a second call with something else is refused."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bertctl.config.schema import Recipe
from bertctl.data.load import load_data
from bertctl.errors import DataError, UnavailableError, UsageError
from bertctl.progress import SILENT, Listener
from bertctl.run_folder import SCHEMA, write_json
from bertctl.runtime.device import available_cores, choose_compute
from bertctl.sweeps.cells import Cell, identity, plan_cells, read_all
from bertctl.sweeps.grid import Setting
from bertctl.sweeps.results import PLAN
from bertctl.tasks.registry import higher_is_better
from bertctl.training.differences import differing
from bertctl.training.job import Encoded, check, resolved_for


@dataclass(frozen=True)
class Wish:
    """What is asked for.

    Attributes:
        recipe: the base.
        settings: dotted field -> value, each.
        seeds: `init` and `order`, each.
        folds: parts of the training rows, each held out once; None for the validation rows as they are.
        jobs: runs side by side; None for one a GPU, and one on a CPU.
        shard: which part of how many to run.
        keep: whose model stays: `best`, `all` or `none`.
        choose: by `mean` over the seeds, or by `best-run`.
        test: whether the chosen model is to be scored on the test split.
    """

    recipe: Recipe
    settings: Sequence[Setting]
    seeds: Sequence[Mapping[str, int]]
    folds: int | None = None
    jobs: int | None = None
    shard: tuple[int, int] | None = None
    keep: str = "best"
    choose: str = "mean"
    test: bool = False


@dataclass(frozen=True)
class Sweep:
    """A sweep made ready: everything read, checked and tokenized, nothing trained.

    Attributes:
        document: content of plan.json.
        cells: all of them, of all shards.
        encoded: what they read, by key.
        folder: SWEEP.
    """

    document: dict[str, Any]
    cells: list[Cell]
    encoded: dict[str, Encoded]
    folder: Path


def make_sweep(wish: Wish, folder: Path | None, *, listener: Listener = SILENT) -> Sweep:
    """Read, check and tokenize everything that the sweep's runs need.

    Args:
        wish: what is asked for.
        folder: SWEEP; runs/sweep-NAME-HASH when None. The threads of the sweep in it, if there is one, stand in every
            run's recipe, so they are taken where the recipe names none.
        listener: hears what was read, and how.

    Raises:
        BertctlError: any refusal: settings, files, labels, model, device.
    """
    base = _without_test(wish.recipe, listener)
    if wish.folds is not None and wish.folds < 2:
        raise UsageError(f"--folds {wish.folds}: it must be at least 2")
    if wish.jobs is not None and wish.jobs < 1:
        raise UsageError(f"--jobs {wish.jobs}: it must be at least 1")
    plan_cells(base, wish.settings, wish.seeds, wish.folds)  # what does not go together is said before torch is loaded
    if wish.test:
        _check_test(base)
    compute = choose_compute(base.runtime)
    jobs = wish.jobs or default_jobs(compute.device)
    threads = base.runtime.threads or max(1, available_cores() // jobs)
    base = resolved_for(base, replace(compute, threads=threads))
    encoded: dict[str, Encoded] = {}
    sweep = _made(wish, base, jobs, encoded, folder, listener)
    before = read_plan(sweep.folder)
    if wish.recipe.runtime.threads is None and before is not None and before["threads"] != threads:
        base = resolved_for(base, replace(compute, threads=before["threads"]))
        sweep = _made(wish, base, jobs, encoded, sweep.folder, SILENT)
    return sweep


def _made(
    wish: Wish, base: Recipe, jobs: int, encoded: dict[str, Encoded], folder: Path | None, listener: Listener
) -> Sweep:
    """The sweep with this base; what has not been read yet is added to `encoded`."""
    cells, labels = read_all(plan_cells(base, wish.settings, wish.seeds, wish.folds), encoded, listener=listener)
    document = _document(wish, base, cells, encoded, labels)
    document |= {"jobs": jobs, "threads": base.runtime.threads}
    document["cells"] = document.pop("cells")  # last, being long
    name = f"sweep-{base.name}-{identity(base, document)[:8]}"
    return Sweep(document, cells, encoded, folder or Path("runs") / name)


def default_jobs(device: str) -> int:
    """One a GPU; on a CPU one, with all its cores."""
    if device != "cuda":
        return 1
    import torch

    return max(1, torch.cuda.device_count())


def _document(
    wish: Wish, base: Recipe, cells: Sequence[Cell], encoded: Mapping[str, Encoded], labels: Mapping[str, str]
) -> dict[str, Any]:
    firsts = [encoded[key] for key in labels]
    found = [check(next(cell.recipe for cell in cells if cell.key == key), encoded[key]) for key in labels]
    primary = found[0].primary
    baselines = [one.baseline for one in found if one.primary == primary]
    return {
        "schema": SCHEMA,
        "name": base.name,
        "recipe": base.model_dump(),
        "primary": {
            "split": firsts[0].data.validation_splits[0],
            "name": primary,
            "higher_is_better": higher_is_better(primary),
        },
        "settings": [dict(setting) for setting in wish.settings],
        "seeds": [dict(seed) for seed in wish.seeds],
        "folds": wish.folds,
        "baseline": {
            name: math.fsum(values[name] for values in baselines) / len(baselines)
            for name in baselines[0]
            if all(name in values for values in baselines)
        },
        "choose": wish.choose,
        "keep": wish.keep,
        "shard": list(wish.shard) if wish.shard else None,
        "data_hashes": {
            f"{label}: {split}" if label else split: digest
            for key, label in labels.items()
            for split, digest in encoded[key].data.hashes.items()
        },
        "model_hash": ", ".join(dict.fromkeys(one.model_hash for one in firsts)),
        "cells": [{"name": cell.name, "setting": cell.setting, "seed": cell.seed, "fold": cell.fold} for cell in cells],
    }


def _without_test(recipe: Recipe, listener: Listener) -> Recipe:
    """The cells are not scored on test: whoever sees 36 test scores will choose by them."""
    splits = recipe.evaluation.splits
    kept = [split for split in splits if not split.startswith("test")]
    if kept == splits:
        return recipe
    listener.say("evaluation.splits names test: a sweep's runs are not scored on it; --test scores the chosen one once")
    return recipe.model_copy(update={"evaluation": recipe.evaluation.model_copy(update={"splits": kept})})


def _check_test(recipe: Recipe) -> None:
    """Refuse now what could not be scored at the end."""
    rows = load_data(recipe, splits=["test"]).splits["test"]
    if not rows.has("label"):
        raise DataError(
            "--test: the test split has no labels, so it can't be scored",
            remedy="Leave --test out; `bertctl predict RUN --split test` writes the answers to hand in.",
        )


def read_plan(folder: Path) -> dict[str, Any] | None:
    """The plan of an earlier call; None where there was none.

    Raises:
        DataError: it is damaged.
    """
    path = folder / PLAN
    if not path.exists():
        return None
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        Recipe.model_validate(document["recipe"])
    except (OSError, ValueError, KeyError, ValidationError) as error:
        raise DataError(
            f"{path} is no plan of a sweep: {str(error).splitlines()[0]}",
            remedy="Choose another folder with -o.",
        ) from error
    return document


def plan_at(folder: Path) -> dict[str, Any] | None:
    """The plan of the sweep that is to be gone on with in a folder; None in one that is empty or not there.

    Raises:
        UsageError: it holds something else.
        DataError: the plan is damaged.
    """
    plan = read_plan(folder)
    if plan is None and folder.is_dir() and any(not path.name.startswith(".") for path in folder.iterdir()):
        raise UsageError(f"the folder {folder} is not empty and holds no sweep", remedy="Choose another with -o.")
    return plan


def fix_plan(sweep: Sweep, folder: Path) -> dict[str, Any]:
    """Write the plan at the first call, compare with it at a later one.

    A folder that several shards share is planned as a whole.

    Returns:
        The plan that holds now.

    Raises:
        DataError: the data is not what it was.
        UnavailableError: the model's files are not.
        UsageError: other settings; each is shown with both values. Or the folder holds something else.
    """
    before = plan_at(folder)
    document = sweep.document
    if before is not None:
        again = f"Start a new sweep with -o ANOTHER_FOLDER, or go on with {folder} as it was started."
        refuse_other_plan(before, document, f"the sweep in {folder} was started", again)
        if before["shard"] != document["shard"]:
            document["shard"] = None
    folder.mkdir(parents=True, exist_ok=True)
    if document != before:
        write_json(folder / PLAN, document)
    return document


def refuse_other_plan(before: Mapping[str, Any], now: Mapping[str, Any], what: str, remedy: str) -> None:
    """Compare two plans in all that decides numbers.

    Args:
        before: a plan.
        now: the other.
        what: begins the message, such as `the sweep in DIR was started`.
        remedy: ends it.

    Raises:
        DataError: other data.
        UnavailableError: other model files.
        UsageError: other settings, seeds or folds.
    """
    hashes, then = now["data_hashes"], before["data_hashes"]
    changed = [split for split in hashes if split in then and then[split] != hashes[split]]
    recipes = [Recipe.model_validate(plan["recipe"]) for plan in (before, now)]
    shown = [f"{name}: {old} then, {new} now" for name, old, new in differing(*recipes)]
    shown += [
        f"{name}: {_shown(before[name])} then, {_shown(now[name])} now"
        for name in ("primary", "settings", "seeds", "folds")
        if before[name] != now[name]
    ]
    if not shown and changed:
        raise DataError(f"{what} with other data: the rows of {', '.join(changed)} have changed", remedy=remedy)
    if not shown and before["model_hash"] != now["model_hash"]:
        name = recipes[1].model.name
        raise UnavailableError(f"{what} with other files of the model '{name}'", remedy=remedy)
    if shown or before["cells"] != now["cells"]:
        lines = "".join(f"\n  {line}" for line in shown) or " see its plan.json"
        raise UsageError(f"{what} with other settings:{lines}", remedy=remedy)


def _shown(value: Any) -> str:
    """A value of the plan, cut to a line."""
    if isinstance(value, list) and len(value) > 3:
        return f"{len(value)} of them"
    text = json.dumps(value)
    return text if len(text) <= 120 else f"{text[:117]}..."
