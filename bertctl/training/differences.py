"""Why a run can't be gone on with: what is not as it was when it was started."""

from typing import Any

from bertctl.config.dump import recipe_hash
from bertctl.config.load import load_recipe
from bertctl.config.schema import fields
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
    before, now = (_values(recipe) for recipe in (load_recipe(str(folder.recipe)), job.recipe))
    # Only what decides the numbers can be at fault: a field alone in the old recipe must change the hash.
    others = [name for name in fields() if before[name] != now[name] and _decides(job, name, before[name])]
    shown = "".join(f"\n  {name}: {before[name]} then, {now[name]} now" for name in others)
    raise UsageError(
        f"the run in {folder.path} was started with other settings:{shown or ' see its recipe.yaml'}",
        remedy=f"Go on with its own: `bertctl finetune {folder.recipe} -o {folder.path} --resume`. {again}",
    )


def _values(recipe: Any) -> dict[str, Any]:
    document = recipe.model_dump()
    return {
        name: document[name.partition(".")[0]][name.partition(".")[2]] if "." in name else document[name]
        for name in fields()
    }


def _decides(job: Job, name: str, value: Any) -> bool:
    section, _, key = name.rpartition(".")
    if section:
        part = getattr(job.recipe, section).model_copy(update={key: value})
        other = job.recipe.model_copy(update={section: part})
    else:
        other = job.recipe.model_copy(update={name: value})
    hashes = {"data_hashes": job.environment["data_hashes"], "model_hash": job.environment["model_hash"]}
    return recipe_hash(other, **hashes) != job.hash
