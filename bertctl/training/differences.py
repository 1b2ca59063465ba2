"""Checks that a run may be resumed: refuses changed data, another model and other settings."""

from bertctl.config.dump import differing
from bertctl.config.load import load_recipe
from bertctl.documents import loading
from bertctl.errors import DataError, UnavailableError, UsageError
from bertctl.run_folder import DAMAGED, RunFolder
from bertctl.training.job import Job


def refuse_other_run(job: Job, folder: RunFolder) -> None:
    """Compares the job with the one that the folder was made by.

    Raises:
        DataError: a data file has changed since.
        UnavailableError: the model's files have.
        UsageError: the settings are others; each is shown with both values.
    """
    was = folder.read(folder.environment)
    with loading(folder.environment, remedy=DAMAGED):
        recipe_hash, data_hashes, model_hash = was["recipe_hash"], was["data_hashes"], was["model_hash"]
    if recipe_hash == job.hash:
        return
    again = f"Start a new run with -o ANOTHER_FOLDER, or replace this one: -o {folder.path} --overwrite."
    hashes: dict[str, str] = job.environment["data_hashes"]
    changed = [split for split, digest in hashes.items() if data_hashes.get(split) != digest]
    if changed:
        raise DataError(
            f"the rows of {', '.join(changed)} are not those that the run in {folder.path} was started with",
            remedy=f"Give the same files again. {again}",
        )
    if model_hash != job.environment["model_hash"]:
        raise UnavailableError(
            f"the files of the model '{job.recipe.model.name}' are not those that the run in {folder.path} was started "
            "with",
            remedy=again,
        )
    before = load_recipe(str(folder.recipe))
    shown = "".join(f"\n  {name}: {then} then, {now} now" for name, then, now in differing(before, job.recipe))
    raise UsageError(
        f"the run in {folder.path} was started with other settings:{shown or ' see its recipe.yaml'}",
        remedy=f"Go on with its own: `bertctl {job.verb} {folder.recipe} -o {folder.path} --resume`. {again}",
    )
