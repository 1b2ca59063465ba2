"""`bertctl fetch`."""

import hashlib
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from bertctl.cli.framework.completion import recipe_names
from bertctl.cli.framework.output import Output, plain_table
from bertctl.cli.framework.recipe_options import RecipeRequest, SetOption
from bertctl.config.recipe_files import is_data_file, is_recipe
from bertctl.errors import UsageError, all_of
from bertctl.session import current
from bertctl.words import count, human_bytes


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
    from bertctl.catalog.huggingface_internals import set_hub_variable
    from bertctl.catalog.lock import LOCK_NAME, LOCKED, Lock, lock_file, read_lock

    if to:
        path = to.absolute() / LOCK_NAME
    else:
        path = lock_file()
    if check or not names:
        place = read_lock(path if check else lock_file())
    else:
        place = Lock(path)
    place = replace(place, path=path, folder="hub" if to else place.folder)
    if place.folder:
        set_hub_variable("HF_HUB_CACHE", str(path.parent / place.folder))
        set_hub_variable("HF_HUB_DISABLE_SYMLINKS", "1")
    current().set_variable(LOCKED, None)  # what is fetched is not bound by a lock in force
    from bertctl.fetching import fetch as fetching

    needs: list[fetching.Need] = []
    models = [name for name in names or () if fetching.is_model(name)]
    for name in names or ():
        if is_recipe(name) or is_data_file(name):
            # A file of rows names no model, so it goes with the one that stands beside it.
            if is_data_file(name) and models and not model:
                beside = {"model.name": models[0]}
            else:
                beside = {}
            needs += fetching.needs_of_recipe(recipes.load(name, beside, listener=out), split or ())
        else:
            needs += fetching.needs_of_name(name)
    with out.third_party_kept():
        if check:
            current().set_variable(LOCKED, str(place.path))
            problems = fetching.check(place, needs)
            out.answer(
                {"lock": str(place.path), "problems": [problem.message for problem in problems]}
            )
            if problems:
                raise all_of(problems, f"{count(len(problems), 'thing')} missing or different")
            return out.say(f"everything in {place.path} is here")
        if names:
            requested = fetching.files_needed_by(needs)
        else:
            requested = fetching.files_of_lock(place)
        if cache_key:
            key = f"bertctl-{hashlib.sha256(repr(requested).encode()).hexdigest()[:16]}"
            return out.answer({"cache_key": key}, key)
        if listed:
            files = list(chain.from_iterable(fetching.look_up_all(requested, out)))
            table_rows = (
                (file.hub_files.repo, file.path, human_bytes(file.size or 0)) for file in files
            )
            rows = [
                {"name": file.hub_files.repo, "file": file.path, "bytes": file.size}
                for file in files
            ]
            total = sum(file.size or 0 for file in files)
            out.answer(
                {"bytes": total, "files": rows},
                plain_table(
                    "",
                    "file",
                    "size",
                    right=("size",),
                    rows=table_rows,
                ),
            )
            return out.say(
                f"{human_bytes(total)} on the hub; bundled and local files are not fetched"
            )
        lock = fetching.fetch(requested, needs, place, out)
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
    out.answer({"lock": str(lock.path), "parts": lock.parts}, table)
    return out.say(f"locked in {lock.path}")
