"""Looks whether a recipe's needs can be met: rows, model, device, room on the disk.

Nothing is downloaded.
"""

import platform
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from bertctl.catalog import hub
from bertctl.catalog.datasets import find_dataset
from bertctl.catalog.hub_files import cache_folder, endpoint
from bertctl.config.recipe_sections import RuntimeSection
from bertctl.config.schema import Recipe
from bertctl.data.recipe_data import load_data
from bertctl.data.rows import Rows
from bertctl.errors import BertctlError, UnavailableError
from bertctl.memory import memory
from bertctl.metrics.scripts import find_script
from bertctl.modeling.build import build_tokenizer
from bertctl.modeling.families import require_head
from bertctl.modeling.source import ModelSource, inspect_model
from bertctl.run_folder import SCHEMA
from bertctl.runtime import machine
from bertctl.runtime.device import choose_compute
from bertctl.runtime.machine import free_bytes, is_writable
from bertctl.tasks.registry import task_type
from bertctl.training.checkpoints.checkpoint import KEPT
from bertctl.training.job import prepare
from bertctl.training.trackers import check_trackers
from bertctl.version import __version__
from bertctl.words import human_bytes

State = Literal["here", "hub", "refused"]


@dataclass(frozen=True)
class Need:
    """Thing that a run needs.

    Attributes:
        what: in a few words.
        state: `here`; `hub` (not on this disk, but the hub has it); `refused`.
        found: where it is, or what is wrong.
        size: bytes, where known.
        error: why it is refused; None for the other states.
    """

    what: str
    state: State
    found: str
    size: int | None = None
    error: BertctlError | None = None

    def as_json(self) -> dict[str, Any]:
        """Returns the need as an entry of the answer."""
        return {
            "what": self.what,
            "state": self.state,
            "found": self.found,
            "bytes": self.size,
            "remedy": self.error.remedy if self.error else "",
            "exit_code": int(self.error.exit_code) if self.error else 0,
        }


@dataclass(frozen=True)
class Diagnosis:
    """Diagnosis of whether a run could start here.

    Attributes:
        document: Everything that was found, as `--json` prints it.
        problems: Errors with which a run would be refused; empty if the machine is ready.
        warnings: Sentences on what may be slow or missing, though a run can start.
    """

    document: dict[str, Any]
    problems: list[BertctlError]
    warnings: list[str]


def examine(recipe: Recipe | None, runtime: RuntimeSection, *, place: Path) -> Diagnosis:
    """Checks whether this machine has what a run needs, and what a recipe's run needs in addition.

    Nothing is downloaded. Offline, no connection is tried.

    Args:
        recipe: Recipe of the run, resolved; None to look at the machine alone.
        runtime: Device and precision to check if there is no recipe.
        place: Folder that runs go to.
    """
    problems: list[BertctlError] = []
    packages = machine.packages()
    unfit = [package for package in packages if not package["fits"]]
    if unfit:
        problems.append(_unfit_packages(unfit))
    devices: list[dict[str, Any]] = []
    compute = ""
    try:
        devices = machine.devices()
        if recipe is None:
            compute = choose_compute(runtime).why
    except BertctlError as error:
        problems.append(error)
    except (ImportError, OSError) as error:  # without torch nothing else can be checked
        problems.append(
            UnavailableError(
                f"torch can't be imported: {error}", remedy="Install it anew: pip install torch"
            )
        )
        return Diagnosis({"schema": SCHEMA, "ready": False, **_versions(packages)}, problems, [])
    processor = machine.processor()
    hub_error = hub.unreachable()
    address = hub.masked(endpoint())
    if recipe:
        needs = recipe_needs(recipe, place=place)
    else:
        needs = []
    problems += [need.error for need in needs if need.error]
    if needs and not needs[0].error:  # the first need is the device
        compute = needs[0].found
    document = {
        "schema": SCHEMA,
        "ready": not problems,
        **_versions(packages),
        "processor": processor,
        "memory": memory(),
        "devices": devices,
        "compute": compute,
        "folders": [_folder("runs", place), _folder("hub cache", cache_folder())],
        "hub": {
            "endpoint": address,
            "offline": hub.is_offline(),
            "unreachable": hub_error,
            "token": hub.has_token(),
        },
        "recipe": recipe.name if recipe else None,
        "needs": [need.as_json() for need in needs],
    }
    return Diagnosis(document, problems, _warnings(processor, hub_error))


def _unfit_packages(unfit: list[dict[str, Any]]) -> UnavailableError:
    """Returns the error about packages that are missing or have versions that don't fit."""
    faults = [
        f"{package['name']} {package['version'] or 'is not installed'}, "
        f"{package['wanted']} is wanted"
        for package in unfit
    ]
    requirements = [f"'{package['name']}{package['wanted']}'" for package in unfit]
    return UnavailableError(
        "; ".join(faults), remedy=f"Install them: pip install {' '.join(requirements)}"
    )


def _versions(packages: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the versions of bertctl, Python and packages, and the operating system."""
    return {
        "bertctl": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": packages,
    }


def _folder(role: str, folder: Path) -> dict[str, Any]:
    """Returns a folder with its role, its free bytes and whether it can be written."""
    return {
        "what": role,
        "path": str(folder.absolute()),
        "free_bytes": free_bytes(folder),
        "writable": is_writable(folder),
    }


def _warnings(processor: dict[str, Any], unreachable: str) -> list[str]:
    """Returns what may slow training down or keep it from downloading.

    Args:
        processor: Cores that are visible (`usable`) and the container's limit (`quota`).
        unreachable: Why the hub can't be reached; empty if it can.
    """
    warnings = []
    usable = processor["usable"]
    quota = processor["quota"]
    if quota is not None and quota < usable:
        warnings.append(
            f"{usable} cores are visible but the container is limited to {quota:g}: more threads "
            f"will slow training down; use `runtime.threads={max(1, round(quota))}`"
        )
    if unreachable and not hub.is_offline():
        reason = f"the hub at {hub.masked(endpoint())} can't be reached ({unreachable})"
        warnings.append(f"{reason}: only files on this disk can be used")
    return warnings


def recipe_needs(recipe: Recipe, *, place: Path) -> list[Need]:
    """Returns everything that `finetune` would look for before it trains, found or not.

    Nothing is downloaded: `_need` calls a function that looks for one thing on this disk. If
    everything is here, the run is also made ready, as `finetune --dry-run` does it.

    Args:
        recipe: Recipe of the run, resolved.
        place: Folder that runs go to.
    """
    # `_model` appends what the model's files say, if there are files. Which devices can be used
    # depends on that; without the files, the device is chosen for any model.
    sources: list[ModelSource] = []
    model = _need(f"model {recipe.model.name}", partial(_model, recipe, sources.append))
    compute = sources[0].compute if sources else choose_compute
    needs = [_need("device", lambda: compute(recipe.runtime).why), *_data(recipe)]
    if model.state == "here":
        model_folder = Path(model.found)
        weight_files = model_folder.glob("model*.safetensors")
        model = replace(model, size=sum(file.stat().st_size for file in weight_files))
    needs.append(model)
    needs += [
        _need(f"metric {name}", partial(find_script, name))
        for name in recipe.evaluation.metric_scripts
    ]
    needs += [_need(f"tracker {name}", partial(_tracker, name)) for name in recipe.runtime.log_to]
    downloads = sum(need.size or 0 for need in needs if need.state == "hub")
    needs.append(_room("disk for the run", place, _copies(recipe) * (model.size or 0)))
    if downloads:
        needs.append(_room("disk for the downloads", cache_folder(), downloads))
    if all(need.state == "here" for need in needs):  # what only shows when model and rows meet
        needs.append(_need("run", lambda: f"{prepare(recipe).steps:,} optimizer steps"))
    return needs


def _model(recipe: Recipe, tell: Callable[[ModelSource], None]) -> Path:
    """Returns the folder of a model whose network and tokenizer fit the task of a recipe.

    Args:
        recipe: Names the model and the task.
        tell: Receives the model's source before the checks, so that the caller has it even if they
            fail.

    Raises:
        BertctlError: The files are not there, or don't fit.
    """
    source = inspect_model(recipe.model)
    tell(source)
    task = task_type(recipe.task)
    require_head(source.config, task.auto_class, source.name)
    build_tokenizer(source, task.auto_class, None)
    return source.folder


def _data(recipe: Recipe) -> list[Need]:
    """Returns the needs for data: each split that training and evaluation read.

    If some files are not on this disk, each split is looked for by itself.
    """
    try:
        with hub.cache_only():
            read = load_data(recipe)
    except hub.NotCachedError:
        validation = find_dataset(
            recipe.data.name or "", recipe.data.datasets_file
        ).validation_splits
        names = dict.fromkeys(["train", *validation, *recipe.evaluation.splits])
        return [_need(f"{name} rows", partial(_split, recipe, name)) for name in names]
    except BertctlError as error:
        return [Need("data", "refused", error.message, error=error)]
    return [Need(f"{name} rows", "here", _counted(rows)) for name, rows in read.splits.items()]


def _split(recipe: Recipe, name: str) -> str:
    """Returns how many rows a split has, and where they are from."""
    return _counted(load_data(recipe, splits=(name,)).splits[name])


def _counted(rows: Rows) -> str:
    """Returns rows as a phrase: "872 from validation.csv"."""
    return f"{len(rows):,} from {rows.source}"


def _tracker(name: str) -> str:
    """Returns "installed", or raises if a tracker can't be used."""
    check_trackers((name,))
    return "installed"


def _copies(recipe: Recipe) -> int:
    """Returns how many times the size of the weights a run needs on its disk at the worst moment.

    New weights are written beside the old ones (2). A checkpoint has 4: weights, two moments of the
    optimizer and the best weights. A new one is written beside those that are kept. Without
    checkpoints one is saved all the same when the run is interrupted.
    """
    if recipe.training.checkpoint_every == "off":
        saved = 1
    else:
        saved = min(KEPT + 1, recipe.training.epochs)
    return 2 + 4 * saved


def _need(subject: str, find: Callable[[], object]) -> Need:
    """Returns whether a need is on this disk, on the hub, or refused.

    Args:
        subject: Name of the need, for people.
        find: Returns where it is, from files on this disk alone, or raises.
    """
    try:
        with hub.cache_only():
            return Need(subject, "here", str(find()))
    except hub.NotCachedError as missing:
        return _from_hub(subject, missing)
    except BertctlError as error:
        return Need(subject, "refused", error.message, error=error)


def _from_hub(subject: str, missing: hub.NotCachedError) -> Need:
    """Returns a need that is not on this disk: on the hub with its size, or refused."""
    try:
        size = hub.remote_size(missing.hub_files)
    except UnavailableError as error:
        combined = UnavailableError(f"{missing.message}; {error.message}", remedy=missing.remedy)
        return Need(subject, "refused", combined.message, error=combined)
    # The first file, for people. If files are needed by name patterns, there may be none.
    if missing.hub_files.files:
        file = missing.hub_files.files[0]
    else:
        file = ""
    message = f"not on this disk; the hub has {missing.hub_files.repo}/{file}"
    return Need(subject, "hub", message, size)


def _room(subject: str, place: Path, needed_bytes: int) -> Need:
    """Returns whether a disk has room for so many bytes, and whether its folder can be written."""
    free = free_bytes(place)
    space_note = f"{human_bytes(free)} free in {place}"
    if needed_bytes:
        space_note += f", about {human_bytes(needed_bytes)} needed"
    if not is_writable(place):
        message = f"{place} can't be written"
        error = UnavailableError(
            message, remedy="Work in a folder of your own, or name one with `output=`."
        )
        return Need(subject, "refused", error.message, error=error)
    if free < needed_bytes:
        error = UnavailableError(
            f"{subject}: {space_note}", remedy="Free some space, or choose another disk."
        )
        return Need(
            subject,
            state="refused",
            found=space_note,
            size=needed_bytes,
            error=error,
        )
    return Need(subject, "here", space_note, needed_bytes)
