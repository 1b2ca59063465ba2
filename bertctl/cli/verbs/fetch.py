"""`bertctl fetch`."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bertctl.cli.framework.completion import recipe_names
from bertctl.cli.framework.output import Output, plain_table
from bertctl.cli.framework.recipe_options import SetOption
from bertctl.cli.framework.recipe_requests import RecipeRequest
from bertctl.config.recipe_files import is_data_file, is_recipe
from bertctl.errors import UsageError, all_of
from bertctl.session import current
from bertctl.words import count, human_bytes

if TYPE_CHECKING:
    from rich.table import Table

    from bertctl.catalog.downloads import RemoteFile
    from bertctl.catalog.lock import Lock
    from bertctl.fetching.fetch import Need


def fetch(
    out: Output,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", autocompletion=recipe_names)
    ] = None,
    to: Annotated[Path | None, typer.Option("--to", metavar="DIR")] = None,
    split: Annotated[list[str] | None, typer.Option("--split", metavar="NAME")] = None,
    listed: Annotated[bool, typer.Option("--list")] = False,
    check: Annotated[bool, typer.Option("--check")] = False,
    cache_key: Annotated[bool, typer.Option("--cache-key")] = False,
    model: Annotated[str | None, typer.Option("--model", metavar="NAME|PATH|HUB-ID")] = None,
    sets: SetOption = None,
) -> None:
    """Download what recipes, models and data sets need from the hub, and write bertctl.lock.

    The lock has the commit, hash, size and licence of every file that a run reads. With --locked,
    commands such as finetune, evaluate and predict read nothing else. Without names, fetch
    downloads what the lock in this folder lists. Interrupted downloads resume.

    Args:
        out: Prints the answer and messages.
        names: Recipes (names or YAML files), models, and data sets with all their splits. Recipes
            come first.
        to: Folder for the files and the lock. Copy it to a machine without a network, and type
            commands with --locked in it.
        split: Download this split of the recipes' data too, such as test; repeatable.
        listed: List what would be downloaded, and its size; download nothing.
        check: List files of the lock that are missing on this disk or differ. If there are any, the
            exit code is 4.
        cache_key: Print one line that changes when the fetched files change, as the cache key of a
            pipeline.
        model: Model of the recipes, as --model of finetune. Default for a file of rows: a model
            among the names.
        sets: Values of recipe fields, as NAME=VALUE.

    Examples:
        bertctl fetch sst2 minilm --split test
        bertctl fetch demo sst2 --to carried
        bertctl fetch --check
    """
    if sum((listed, check, cache_key)) > 1:
        raise UsageError(
            "--list, --check and --cache-key exclude each other", remedy="Give one of them."
        )
    recipes = RecipeRequest("", sets or (), {"model.name": model} if model else {}, "fetch")
    if not names and (model or sets or split):
        raise UsageError(
            "no recipe was named that the options could change",
            remedy="Name one: bertctl fetch sst2 ...",
        )
    from bertctl.catalog.lock import LOCKED

    lock = _starting_lock(names, to, check=check)
    _use_cache_beside(lock)
    # If this command itself runs under a lock, it may still read what that lock does not have.
    current().set_variable(LOCKED, None)
    from bertctl.fetching import fetch as fetching

    needs = _needs_of(names or (), recipes, split or (), out)
    with out.third_party_kept():
        if check:
            return _check(out, lock, needs)
        if names:
            requested = fetching.files_needed_by(needs)
        else:
            requested = fetching.files_of_lock(lock)
        if cache_key:
            key = f"bertctl-{hashlib.sha256(repr(requested).encode()).hexdigest()[:16]}"
            return out.answer({"cache_key": key}, key)
        if listed:
            remote_files = chain.from_iterable(fetching.look_up_all(requested, out))
            return _list_files(out, list(remote_files))
        lock = fetching.fetch(requested, needs, lock, out)
    out.answer({"lock": str(lock.path), "parts": lock.parts}, _lock_table(lock))
    return out.say(f"locked in {lock.path}")


def _starting_lock(names: Sequence[str] | None, to: Path | None, *, check: bool) -> "Lock":
    """Returns the lock that is checked or fetched again, or one without files for a new one.

    Args:
        names: What to fetch. Without names, the files of the existing lock are fetched again.
        to: Folder of `--to`, for the new lock and a copy of the hub's cache beside it.
        check: Whether the lock is checked.
    """
    from bertctl.catalog.lock import LOCK_NAME, Lock, lock_file, read_lock

    if to is None:
        path = lock_file()
    else:
        path = to.absolute() / LOCK_NAME

    if check:
        lock = read_lock(path)
    elif not names:
        # Read from here even with `--to`, which copies the files of this lock to its folder.
        lock = read_lock(lock_file())
    else:
        lock = Lock(path)
    # With `--to`, the cache of the hub is the folder `hub` beside the lock.
    if to:
        cache_folder = "hub"
    else:
        cache_folder = lock.folder
    return replace(lock, path=path, folder=cache_folder)


def _use_cache_beside(lock: "Lock") -> None:
    """Sets the hub's cache to the folder beside a lock that has one, for this command.

    The cache has no symbolic links then, so that the folder can be copied to another machine.
    """
    from bertctl.catalog.huggingface_internals import set_hub_variable

    if lock.folder:
        set_hub_variable("HF_HUB_CACHE", str(lock.path.parent / lock.folder))
        set_hub_variable("HF_HUB_DISABLE_SYMLINKS", "1")


def _needs_of(
    names: Sequence[str], recipes: RecipeRequest, splits: Sequence[str], out: Output
) -> "list[Need]":
    """Returns functions that read the files which the named recipes, models and data sets need.

    Args:
        names: What was typed.
        recipes: The options that change all recipes.
        splits: Splits of the recipes' data that are read beside those of their runs.
        out: Receives messages about the recipes.
    """
    from bertctl.fetching.fetch import is_model, needs_of_name, needs_of_recipe

    models = [name for name in names if is_model(name)]
    has_model_option = "model.name" in recipes.options
    needs: list[Need] = []
    for name in names:
        if not is_recipe(name) and not is_data_file(name):
            needs += needs_of_name(name)
            continue
        options: dict[str, str] = {}
        if is_data_file(name) and models and not has_model_option:
            # A file of rows names no model, so it is read for the first model among the names.
            options["model.name"] = models[0]
        needs += needs_of_recipe(recipes.load(name, options, listener=out), splits)
    return needs


def _check(out: Output, lock: "Lock", needs: "Sequence[Need]") -> None:
    """Prints which files of a lock are missing or differ.

    Args:
        out: Prints the answer.
        lock: The lock.
        needs: Functions that read the files of a recipe, a model or a data set. Calling them checks
            local files, too, which the lock alone does not find.

    Raises:
        BertctlError: A file is missing or differs.
    """
    from bertctl.catalog.lock import LOCKED
    from bertctl.fetching import fetch as fetching

    # From here on, only what this lock lists may be read.
    current().set_variable(LOCKED, str(lock.path))
    problems = fetching.check(lock, needs)
    out.answer({"lock": str(lock.path), "problems": [problem.message for problem in problems]})
    if problems:
        raise all_of(problems, f"{count(len(problems), 'thing')} missing or different")
    out.say(f"everything in {lock.path} is here")


def _list_files(out: Output, files: "Sequence[RemoteFile]") -> None:
    """Prints files of the hub that would be downloaded, and their size."""
    records = [
        {"name": file.hub_files.repo, "file": file.path, "bytes": file.size} for file in files
    ]
    table_rows = ((file.hub_files.repo, file.path, human_bytes(file.size or 0)) for file in files)
    total = sum(file.size or 0 for file in files)
    table = plain_table(
        "",
        "file",
        "size",
        right=("size",),
        rows=table_rows,
    )
    out.answer({"bytes": total, "files": records}, table)
    out.say(f"{human_bytes(total)} on the hub; bundled and local files are not fetched")


def _lock_table(lock: "Lock") -> "Table":
    """Returns a row for each repository or folder of a lock: revision, licence, number and size."""
    table = plain_table(
        "",
        "what",
        "revision",
        "licence",
        "files",
        "size",
        right=("files", "size"),
    )
    for part in lock.parts:
        size = sum(file["bytes"] for file in part["files"].values())
        facts = (
            part["kind"],
            part["name"],
            part["revision"][:8] or "on this disk",
            part["licence"],
        )
        table.add_row(*facts, f"{len(part['files'])}", human_bytes(size))
    return table
