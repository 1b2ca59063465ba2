"""`bertctl fetch`: what recipes, models and data sets need from the hub, brought onto this disk and locked.

A plan is made of the very functions that find a run's files (`locate_model`, `data_files`): asked once to learn what
they would fetch, and once more, when it is here, to write down what they find.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from bertctl.catalog import hub
from bertctl.catalog.datasets import builtin_datasets, bundled_folder, find_dataset
from bertctl.catalog.downloads import Remote, Tally, bring, look_up, talking
from bertctl.catalog.hub import HubFiles, NotCachedError
from bertctl.catalog.lock import Found, Lock, Part, file_sha256, parts_of, recording, write_lock
from bertctl.catalog.models import MODELS, locate_model
from bertctl.config.recipe_files import builtin_recipes
from bertctl.config.schema import Recipe
from bertctl.data.recipe_data import data_files
from bertctl.errors import BertctlError, UsageError, all_of
from bertctl.progress import SILENT, Listener
from bertctl.words import did_you_mean

HUB_FOLDER = "hub"
"""What the folder with the hub's files is called, beside a lock that was made for another machine."""

Need = Callable[[], object]


@dataclass(frozen=True)
class Plan:
    """What was asked for.

    Attributes:
        needs: each finds the files of one model or split, as a run does it.
        wanted: what they take from the hub.
        here: what they find on this disk: in the package, in folders and files of a person's own.
    """

    needs: tuple[Need, ...]
    wanted: tuple[HubFiles, ...]
    here: tuple[Found, ...]

    def key(self) -> str:
        """Returns a hash of what is asked for, without asking the hub."""
        return hashlib.sha256(repr((self.wanted, parts_of(self.here, {}))).encode()).hexdigest()


@dataclass(frozen=True)
class Fetched:
    """What `fetch` has done: the lock that it has written, and the bytes that came over the network."""

    lock: Lock
    loaded: int


def is_recipe(target: str) -> bool:
    """Returns whether a recipe is meant, which goes before a model or a data set of its name."""
    return target in builtin_recipes() or Path(target).suffix.lower() in (".yaml", ".yml")


def needs_of_recipe(recipe: Recipe, splits: Sequence[str] = ()) -> Iterator[Need]:
    """Yields what a run of the recipe reads from elsewhere, and what `splits` of its data are read from."""
    yield partial(locate_model, recipe.model.name, revision=recipe.model.revision)
    yield from data_files(recipe, splits)


def needs_of_name(name: str) -> Iterator[Need]:
    """Yields what a model, or a data set with all its splits, is read from.

    Raises:
        UsageError: there is neither.
    """
    hub_ids = [row.hub_id for row in MODELS.values()]
    if name in MODELS or name.count("/") == 1 or name in hub_ids or Path(name).expanduser().is_dir():
        yield partial(locate_model, name)
        return
    try:
        row = find_dataset(name)
    except UsageError as error:
        hint = did_you_mean(name, (*builtin_recipes(), *MODELS, *builtin_datasets()))
        raise UsageError(
            f"there is no recipe, model or data set '{name}'" + (f": {hint}" if hint else ""),
            remedy="`bertctl recipes ls`, with --models or --data, lists them; also a YAML file, a folder with a "
            "model, or a hub id (org/name).",
        ) from error
    recipe = Recipe.model_validate({"task": row.task, "data": {"name": row.name}})
    yield from data_files(recipe, row.split_names)


def make_plan(needs: Sequence[Need]) -> Plan:
    """Returns what is needed. Nothing is fetched, and the hub is not asked.

    Raises:
        BertctlError: whatever a run would be refused for: names, folders, files.
    """
    wanted: dict[tuple[object, ...], HubFiles] = {}
    with recording() as here, hub.asking_all():
        for need in needs:
            try:
                need()
            except NotCachedError as missing:
                each = missing.wanted
                before = wanted.get((each.repo, each.repo_type, each.revision), each)
                files = tuple(dict.fromkeys((*before.files, *each.files)))
                wanted[each.repo, each.repo_type, each.revision] = replace(each, files=files)
    return Plan(tuple(needs), tuple(wanted.values()), tuple(here))


def plan_of_lock(lock: Lock) -> Plan:
    """Returns what a lock has of the hub, at its commits."""
    parts = [part for part in lock.parts if part.revision]
    wanted = tuple(HubFiles(part.name, part.kind, part.revision, tuple(part.files)) for part in parts)
    return Plan((), wanted, ())


def look_up_all(plan: Plan, listener: Listener = SILENT) -> list[Remote]:
    """Returns what the hub has of a plan; no file is loaded.

    Raises:
        UnavailableError: offline, no answer, or the hub does not have it.
    """
    found = []
    with talking(listener):
        for wanted in plan.wanted:
            what = f"the {wanted.repo_type} {wanted.repo}"
            hub.require_reachable(wanted, f"{what} is wanted")
            with hub.answering(what):
                found.append(look_up(wanted, licence=True))
    return found


def fetch(plan: Plan, place: Lock, listener: Listener = SILENT) -> Fetched:
    """Brings everything of a plan onto this disk, and writes the lock.

    Args:
        plan: what is needed; what a lock has (`plan_of_lock`) is held against it.
        place: where the lock is written, and the folder beside it for the files; its parts are what a plan of it was
            made of.
        listener: hears of progress, and of what the hub makes wait for.

    Raises:
        UnavailableError: something can't be had, or is not what it should be. What is here stays, and is gone on with.
    """
    remotes = look_up_all(plan, listener) if plan.wanted and not hub.is_offline() else []
    tally = Tally(listener, total=sum(remote.size for remote in remotes))
    with talking(listener):
        for remote in remotes:
            with hub.answering(f"the {remote.wanted.repo_type} {remote.wanted.repo}"):
                bring(remote, place.store, tally)
    listener.finish("fetch")
    file_sha256.cache_clear()  # of what was damaged before
    if not plan.needs:
        if problems := check(place):
            raise all_of(problems, f"{len(problems)} things are not as they are locked")
        write_lock(place)
        return Fetched(place, tally.loaded)
    licences = {remote.wanted.repo: remote.licence for remote in remotes}
    with recording() as found, hub.kept_in(place.store), hub.cache_only():
        for need in plan.needs:
            need()
    lock = replace(place, parts=parts_of(found, licences))
    write_lock(lock)
    return Fetched(lock, tally.loaded)


def check(lock: Lock) -> list[BertctlError]:
    """Returns an error for everything of a lock that is missing on this disk, or is not what it was.

    A person's own files are not looked for: only a recipe says where they are, and `--locked` looks at them.
    """
    problems: list[BertctlError] = []
    for part in lock.parts:
        try:
            if (files := _files_of(part, lock)) is not None:
                lock.check(Found(part.kind, part.name, files, part.asked, part.revision, whole=True))
        except BertctlError as error:
            problems.append(error)
    return problems


def _files_of(part: Part, lock: Lock) -> dict[str, Path] | None:
    """Returns where the files of a part are, those that are there; None where nothing says where they would be."""
    folder: Path | None = None
    if part.revision:
        return hub.cached_files(HubFiles(part.name, part.kind, part.revision, tuple(part.files)), lock.store)
    if part.kind == "model" and part.name in MODELS:
        folder = locate_model(part.name).folder
    elif part.kind == "dataset" and (row := builtin_datasets().get(part.name)) and row.bundled:
        folder = bundled_folder(row)
    return {name: folder / name for name in part.files if (folder / name).is_file()} if folder else None
