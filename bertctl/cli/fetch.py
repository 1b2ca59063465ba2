"""`bertctl fetch`."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bertctl.cli.completion import recipe_names
from bertctl.cli.output import Output, plain_table
from bertctl.cli.recipe_options import DATA, MODEL, RecipeRequest, is_data_file, only, takes_recipe
from bertctl.errors import BertctlError, InterruptedRunError, UsageError, all_of
from bertctl.runtime.stopping import Terminated
from bertctl.words import human_bytes

if TYPE_CHECKING:
    from bertctl.catalog.downloads import Remote
    from bertctl.catalog.lock import Lock
    from bertctl.fetching.fetch import Need


@takes_recipe(only(MODEL, "--model"), only(DATA, "--data-dir"), named=False, locked=False)
def fetch(
    out: Output,
    settings: RecipeRequest,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[RECIPE|MODEL|DATASET]...", autocompletion=recipe_names)
    ] = None,
    to: Annotated[Path | None, typer.Option("--to", metavar="DIR")] = None,
    split: Annotated[list[str] | None, typer.Option("--split", metavar="NAME")] = None,
    listed: Annotated[bool, typer.Option("--list")] = False,
    check: Annotated[bool, typer.Option("--check")] = False,
    cache_key: Annotated[bool, typer.Option("--cache-key")] = False,
) -> None:
    """Bring what recipes, models and data sets need from the hub onto this disk, and write bertctl.lock.

    The lock holds the commit, hash, size and licence of all that a run reads; with --locked, finetune, evaluate,
    predict and the others read nothing else. Without names, it is the lock in this folder that is brought. What was
    cut off is gone on with.

    Args:
        names: Recipes, also YAML files; models; data sets, with all their splits. A recipe goes first.
        to: Folder for the files and the lock, which can be carried to a machine without a network: the commands that
            are typed in it, with --locked, read it.
        split: Bring this split of the recipes' data too, such as test; repeatable.
        listed: Say what would be brought, and its size; load nothing.
        check: Say what of the lock is missing on this disk, or differs: exit code 4.
        cache_key: Print one line that changes when what is fetched does, for the cache of a pipeline.

    Examples:
        bertctl fetch sst2 minilm --split test
        bertctl fetch demo sst2 --to carried
        bertctl fetch --check
    """
    if sum((listed, check, cache_key)) > 1:
        raise UsageError("--list, --check and --cache-key exclude each other", remedy="Give one of them.")
    if not names and (settings.options or settings.sets or split):
        raise UsageError("there is no recipe that the options could change", remedy="Name one: bertctl fetch sst2 ...")
    from bertctl.catalog.lock import LOCK_NAME, LOCKED, Lock, lock_file, read_lock
    from bertctl.fetching import fetch as fetching

    here = lock_file(os.environ.pop(LOCKED, ""))  # what is fetched is not bound by a lock in force
    place = Lock(to.absolute() / LOCK_NAME, (), fetching.HUB_FOLDER) if to else Lock(here, ())
    if check or not names:
        found = read_lock(place.path if check else here)
        place = Lock(place.path, found.parts, place.folder or found.folder)
    needs = [need for name in names or () for need in _needs(name, settings, split or (), out)]
    with out.third_party_kept():
        if check:
            _check(out, place, needs)
            return
        plan = fetching.make_plan(needs) if names else fetching.plan_of_lock(place)
        if cache_key:
            key = f"bertctl-{(plan.key() if names else place.digest())[:16]}"
            out.answer({"cache_key": key}, key)
            return
        if listed:
            _list(out, fetching.look_up_all(plan, out))
            return
        try:
            done = fetching.fetch(plan, place, out)
        except KeyboardInterrupt as error:
            stopped = isinstance(error, Terminated)
            raise InterruptedRunError(
                "stopped; what was loaded is kept", remedy="The same command goes on from there.", terminated=stopped
            ) from error
    document = {"lock": str(done.lock.path), "loaded_bytes": done.loaded, **done.lock.document()}
    table = plain_table("", "what", "revision", "licence", "files", "size", right=("files", "size"))
    for part in done.lock.parts:
        at = part.revision[:8] or "on this disk"
        table.add_row(part.kind, part.name, at, part.licence, f"{len(part.files)}", human_bytes(part.size))
    out.answer(document, table)
    out.say(f"{human_bytes(done.loaded)} loaded; locked in {done.lock.path}")


def _needs(name: str, settings: RecipeRequest, splits: Sequence[str], out: Output) -> "Iterator[Need]":
    """Yields what one of the names needs: a recipe before anything else of that name."""
    from bertctl.fetching import fetch as fetching

    if fetching.is_recipe(name) or is_data_file(name):
        yield from fetching.needs_of_recipe(settings.load(name, listener=out), splits)
    else:
        yield from fetching.needs_of_name(name)


def _check(out: Output, lock: "Lock", needs: "Sequence[Need]") -> None:
    """Answers what of a lock is missing or differs; of recipes that are named, what it would refuse them for too.

    Raises:
        UnavailableError: something is, or would be.
    """
    from bertctl.catalog.hub import cache_only
    from bertctl.catalog.lock import held_to
    from bertctl.fetching.fetch import check

    problems = check(lock)
    with held_to(lock), cache_only():
        for need in needs:
            try:
                need()
            except BertctlError as error:
                problems += [error] if error.message not in [one.message for one in problems] else []
    out.answer(
        {"lock": str(lock.path), "complete": not problems, "problems": [problem.message for problem in problems]}
    )
    if problems:
        raise all_of(problems, f"{len(problems)} things of {lock.path} are missing or differ")
    out.say(f"everything in {lock.path} is here: {human_bytes(sum(part.size for part in lock.parts))}")


def _list(out: Output, remotes: "Sequence[Remote]") -> None:
    """Answers what the hub has of what is wanted, file by file."""
    table = plain_table("", "file", "size", right=("size",))
    parts = []
    for remote in remotes:
        for file in remote.files:
            table.add_row(remote.wanted.repo, file.path, "" if file.size is None else human_bytes(file.size))
        files = {file.path: file.size for file in remote.files}
        kind, revision = remote.wanted.repo_type, remote.files[0].commit if remote.files else ""
        parts.append(
            {"kind": kind, "name": remote.wanted.repo, "revision": revision, "licence": remote.licence, "files": files}
        )
    total = sum(remote.size for remote in remotes)
    out.answer({"bytes": total, "parts": parts}, table)
    out.say(f"{human_bytes(total)} on the hub; what stands in the package, or in folders of your own, is not fetched")
