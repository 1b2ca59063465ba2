"""Why a run can't be gone on with: what is not as it was when it was started."""

from typing import Any

from bertctl.config.dump import recipe_hash
from bertctl.config.load import load_recipe
from bertctl.config.schema import Recipe, fields
from bertctl.errors import DataError, UnavailableError, UsageError
from bertctl.run_folder import RunFolder
from bertctl.training.job import Job


def refuse_other_run(job: Job, folder: RunFolder) -> None:
    """Compare the job with the one that the folder was made by.

    Raises:
        DataError: a data file has changed since.
        UnavailableError: the model's files have.
        UsageError: the settings are others; each is shown with both values.
    """
    was = folder.read(folder.environment)
    if was["recipe_hash"] == job.hash:
        return
    again = f"Start a new run with -o ANOTHER_FOLDER, or replace this one: -o {folder.path} --overwrite."
    hashes: dict[str, str] = job.environment["data_hashes"]
    changed = [split for split, digest in hashes.items() if was["data_hashes"].get(split) != digest]
    if changed:
        raise DataError(
            f"the rows of {', '.join(changed)} are not those that the run in {folder.path} was started with",
            remedy=f"Give the same files again. {again}",
        )
    if was["model_hash"] != job.environment["model_hash"]:
        raise UnavailableError(
            f"the files of the model '{job.recipe.model.name}' are not those that the run in {folder.path} was started "
            "with",
            remedy=again,
        )
    before = load_recipe(str(folder.recipe))
    shown = "".join(f"\n  {name}: {then} then, {now} now" for name, then, now in differing(before, job.recipe))
    raise UsageError(
        f"the run in {folder.path} was started with other settings:{shown or ' see its recipe.yaml'}",
        remedy=f"Go on with its own: `bertctl finetune {folder.recipe} -o {folder.path} --resume`. {again}",
    )


def differing(before: Recipe, now: Recipe) -> list[tuple[str, Any, Any]]:
    """The fields that decide numbers and are not the same: name, value then, value now."""
    then, today = _values(before), _values(now)
    # Only what decides the numbers can be at fault: a field alone in the old recipe must change the hash.
    names = [name for name in fields() if then[name] != today[name] and _decides(now, name, then[name])]
    return [(name, then[name], today[name]) for name in names]


def _values(recipe: Recipe) -> dict[str, Any]:
    document = recipe.model_dump()
    return {
        name: document[name.partition(".")[0]][name.partition(".")[2]] if "." in name else document[name]
        for name in fields()
    }


def _decides(recipe: Recipe, name: str, value: Any) -> bool:
    section, _, key = name.rpartition(".")
    if section:
        part = getattr(recipe, section).model_copy(update={key: value})
        other = recipe.model_copy(update={section: part})
    else:
        other = recipe.model_copy(update={name: value})
    return recipe_hash(other, data_hashes={}, model_hash="") != recipe_hash(recipe, data_hashes={}, model_hash="")
