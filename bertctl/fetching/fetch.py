"""`bertctl fetch`: what runs need from the hub, brought onto this disk and locked.

It is what recipes, models and data sets need.

The very functions that find a run's files (`locate_model`, `load_data`) are asked twice: to learn
what they would fetch, and, when that is here, to write down what they find.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

from bertctl.catalog.datasets import builtin_datasets, find_dataset
from bertctl.catalog.downloads import RemoteFile, download_files, look_up
from bertctl.catalog.hub import NotCachedError, cache_only, hub_access, is_offline
from bertctl.catalog.hub_files import HubFiles, cached_files
from bertctl.catalog.lock import FilesToRead, Lock, file_sha256, forget_hashes, recording
from bertctl.catalog.models import MODELS, locate_model
from bertctl.config.recipe_files import builtin_recipes, expanded_path, is_data_file, is_recipe
from bertctl.config.schema import Recipe
from bertctl.config.task_names import PRETRAINING
from bertctl.data.corpora import corpora_of
from bertctl.data.recipe_data import load_data
from bertctl.documents import read_json
from bertctl.errors import BertctlError, UsageError, all_of
from bertctl.progress import SILENT, Listener
from bertctl.words import unknown
from bertctl.writing import write_json

Need = Callable[[], object]
"""Finds the files of one model or split, as a run does it."""


def needs_of_recipe(recipe: Recipe, splits: Sequence[str] = ()) -> Iterator[Need]:
    """Yields functions that read the model of a recipe and its splits.

    Args:
        recipe: The recipe.
        splits: Further splits to read, besides those that the recipe's runs read.
    """
    is_from_scratch = recipe.task == PRETRAINING and recipe.pretraining.from_scratch
    if not is_from_scratch:
        yield partial(locate_model, recipe.model.name, revision=recipe.model.revision)
    if recipe.task == PRETRAINING:
        yield partial(corpora_of, recipe)
        return
    validation: tuple[str, ...] = ("validation",)
    if recipe.data.name:
        validation = find_dataset(recipe.data.name, recipe.data.datasets_file).validation_splits
    for split in dict.fromkeys(("train", *validation, *recipe.evaluation.splits, *splits)):
        yield partial(load_data, recipe, splits=(split,))


def is_model(name: str) -> bool:
    """Returns whether a name is that of a model, and not of a recipe or a file of rows."""
    if is_recipe(name) or is_data_file(name):
        return False
    return name in MODELS or name.count("/") == 1 or expanded_path(name).is_dir()


def needs_of_name(name: str) -> Iterator[Need]:
    """Yields functions that read a model, or each split of a data set.

    Raises:
        UsageError: No model or data set has this name.
    """
    if is_model(name):
        yield partial(locate_model, name)
    elif name in builtin_datasets():
        row = builtin_datasets()[name]
        recipe = Recipe.model_validate({"task": row.task, "data": {"name": row.name}})
        for split in row.split_names:
            yield partial(load_data, recipe, splits=(split,))
    else:
        message = unknown(
            "recipe, model or data set", name, (*builtin_recipes(), *MODELS, *builtin_datasets())
        )
        raise UsageError(
            message,
            remedy="`bertctl recipes ls` (`models=True`, `data=`) lists them; also a YAML file, a "
            "hub id.",
        )


def files_needed_by(needs: Sequence[Need]) -> list[HubFiles]:
    """Returns the files of the hub that are needed, on this disk or not, each once.

    Nothing is fetched, and the hub is not asked: each need is tried as if nothing were on this
    disk, and says what it lacks.

    Raises:
        BertctlError: Whatever a run would be refused for: names, folders, files.
    """
    needed_files: dict[HubFiles, None] = {}  # in order, unlike a set
    for need in needs:
        try:
            with cache_only(as_if_empty=True):
                need()
        except NotCachedError as error:  # it says which files are needed
            needed_files[error.hub_files] = None
    return list(needed_files)


def files_of_lock(lock: Lock) -> list[HubFiles]:
    """Returns the files of the hub that a lock names, with their commits."""
    parts = [part for part in lock.parts if part["revision"]]  # others are files of this disk
    return [
        HubFiles(part["name"], part["kind"], part["revision"], tuple(part["files"]))
        for part in parts
    ]


def look_up_all(
    all_hub_files: Sequence[HubFiles], listener: Listener = SILENT
) -> list[list[RemoteFile]]:
    """Returns the files of each repository as the hub describes them; none is downloaded.

    Raises:
        UnavailableError: offline, no answer, or the hub does not have it.
    """
    remotes = []
    for hub_files in all_hub_files:
        with hub_access(
            hub_files, f"the {hub_files.repo_type} {hub_files.repo}", listener=listener
        ):
            remotes.append(look_up(hub_files, licence=True))
    return remotes


def fetch(
    all_hub_files: Sequence[HubFiles],
    needs: Sequence[Need],
    lock: Lock,
    listener: Listener = SILENT,
) -> Lock:
    """Downloads all files that are needed, writes the lock, and returns it.

    Args:
        all_hub_files: Files to download: those of `files_needed_by` for a new lock, those of
            `files_of_lock` for an existing one.
        needs: Functions that read the files of a new lock, as a run would. Empty for an existing
            lock, which is checked and stays as it is.
        lock: The existing lock, or a new one that has a path and no files yet.
        listener: Receives progress, and messages of the hub that it makes wait.

    Raises:
        UnavailableError: Something can't be had, or is not what it should be. What has been
            downloaded stays, and the next call continues.
    """
    remotes: list[list[RemoteFile]] = []  # the files of each repository
    # A lock whose files are all here needs no connection.
    has_downloads = not is_offline() and (needs or check(lock))
    if has_downloads:
        remotes = look_up_all(all_hub_files, listener)
    forget_hashes()  # those of damaged files, which are replaced now
    if has_downloads:
        for hub_files, files in zip(all_hub_files, remotes, strict=True):
            title = f"the {hub_files.repo_type} {hub_files.repo}"
            with hub_access(hub_files, title, listener=listener):
                download_files(files, listener)
    if needs:
        # Read as a run would, and write down which files that are.
        with recording() as snapshots, cache_only():
            for need in needs:
                need()
        all_files = chain.from_iterable(remotes)
        licences = {file.hub_files.repo: file.licence for file in all_files}
        lock = replace(lock, parts=_parts_of(snapshots, licences))
    elif problems := check(lock):
        raise all_of(problems, f"{len(problems)} things are not as they are locked")
    document = {"schema": 1, "folder": lock.folder, "parts": lock.parts}
    # A lock that stays as it is may be read-only.
    if needs or not lock.path.is_file() or read_json(lock.path) != document:
        write_json(lock.path, document)
    return lock


def check(lock: Lock, needs: Sequence[Need] = ()) -> list[BertctlError]:
    """Returns an error for each file of a lock that is missing on this disk or has changed.

    Args:
        lock: All its files of the hub are checked. For a local file it does not know the folder.
        needs: Functions that read what a recipe needs, and so check its local files, too.
    """
    checks: list[Need] = []
    for hub_files in files_of_lock(lock):
        commit = hub_files.revision or ""
        snapshot = FilesToRead(
            hub_files.repo_type,
            name=hub_files.repo,
            files=cached_files(hub_files),
            asked=commit,
            revision=commit,
            whole=True,
        )
        checks.append(partial(lock.check, snapshot))
    problems: dict[str, BertctlError] = {}  # by message: a file may be needed several times
    for need in (*checks, *needs):
        try:
            with cache_only():
                need()
        except BertctlError as error:
            problems[error.message] = error
    return list(problems.values())


def _parts_of(snapshots: Sequence[FilesToRead], licences: dict[str, str]) -> list[dict[str, Any]]:
    """Returns the parts of a lock, one for each repository or folder that was read.

    Files of one path and different contents, such as two `train.csv`, are in two parts.

    Args:
        snapshots: Files that were read.
        licences: Repository -> licence.
    """
    parts: list[dict[str, Any]] = []
    in_order = sorted(
        snapshots, key=lambda entry: (entry.kind, entry.name, entry.revision, sorted(entry.files))
    )
    for snapshot in in_order:
        files = {
            name: {"sha256": file_sha256(path), "bytes": path.stat().st_size}
            for name, path in snapshot.files.items()
        }
        facts = {
            "kind": snapshot.kind,
            "name": snapshot.name,
            "asked": snapshot.asked,
            "revision": snapshot.revision,
        }
        fitting = next((part for part in parts if _can_take(part, facts, files)), None)
        if fitting is not None:
            fitting["files"].update(files)
        else:
            parts.append({**facts, "licence": licences.get(snapshot.name, ""), "files": files})
    return parts


def _can_take(part: dict[str, Any], facts: dict[str, Any], files: dict[str, Any]) -> bool:
    """Returns whether files belong to a part of a lock, and contradict none of its files.

    Args:
        part: Entry of a lock: facts of a repository or folder, and its files.
        facts: Kind, name and revision of the repository or folder that the files are from.
        files: The files: path -> hash and size.
    """
    if not facts.items() <= part.items():
        return False
    return all(part["files"].get(name, entry) == entry for name, entry in files.items())
