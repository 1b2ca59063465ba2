"""The run, and its checkpoint, that `--resume` goes on from."""

from dataclasses import dataclass
from pathlib import Path

from bertctl.config.dump import differing
from bertctl.config.load import load_recipe
from bertctl.documents import loading
from bertctl.errors import DataError, UnavailableError, UsageError
from bertctl.progress import SILENT, Listener
from bertctl.run_folder import DAMAGED, RunFolder, latest_folder
from bertctl.training.checkpoint import Checkpoint, Checkpoints
from bertctl.training.job import Job


@dataclass(frozen=True)
class EarlierRun:
    """Is a run that was started before.

    Attributes:
        folder: the run.
        checkpoint: the newest whole one; None where there is none, or the run is finished.
        finished: whether there is nothing left to do.
    """

    folder: RunFolder
    checkpoint: Checkpoint | None
    finished: bool


def find_run(job: Job, output: Path | None, *, needed: bool, listener: Listener = SILENT) -> EarlierRun | None:
    """Returns the run that this job was started in before.

    Args:
        job: made ready.
        output: its folder; the newest of the recipe's own names when None.
        needed: whether it must be there, with a checkpoint (`--resume`), or need not (`--resume-if-any`).
        listener: hears of checkpoints that are not whole.

    Raises:
        BertctlError: the run is of another recipe, other data or another model; see `refuse_other_run`.
        UnavailableError: no run or no whole checkpoint, where one is needed.
    """
    path = output or latest_folder(job.recipe.name, job.hash)
    if path is None or not (path / "status.json").exists():
        if needed:
            raise UnavailableError(
                f"{path} holds no run (no status.json)"
                if path
                else f"there is no run of '{job.recipe.name}' with these settings",
                remedy="Leave --resume out to start one, or name the folder of the run with -o.",
            )
        return None
    folder = RunFolder(path)
    if folder.environment.exists():
        refuse_other_run(job, folder)
    if folder.read(folder.status)["state"] == "done":
        return EarlierRun(folder, None, finished=True)
    checkpoints = Checkpoints(folder, job.hash, listener=listener)
    checkpoint = checkpoints.latest()
    if checkpoint is not None:
        listener.say(f"going on after step {checkpoint.step} of {job.steps}, from {checkpoint.path}")
    elif needed:
        what = "none of its checkpoints is whole" if checkpoints.any() else "there is no checkpoint"
        raise UnavailableError(
            f"{path}: {what}, so there is nothing to go on from",
            remedy=f"Start again with `bertctl {job.verb} {folder.recipe} -o {path} --overwrite`.",
        )
    else:
        listener.say(f"{path} has no checkpoint to go on from: the run starts again")
    return EarlierRun(folder, checkpoint, finished=False)


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
