"""The one way to start a run that was made ready.

Its folder is chosen or found again, locked, and the run is trained and scored.

The command line, the workers of a sweep and `bertctl.finetune` in Python all come through here;
`jobs/prepare.py` makes runs ready.
"""

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bertctl.catalog.mlflow_models import register
from bertctl.config.dump import differing, recipe_hash
from bertctl.config.load import load_recipe
from bertctl.errors import DataError, UnavailableError, UsageError
from bertctl.progress import SILENT, Listener
from bertctl.run_folder import DAMAGED, RunFolder, default_folder, hold, latest_folder
from bertctl.runtime.launch import Workers
from bertctl.training.checkpoints.checkpoint import Checkpoint, Checkpoints
from bertctl.training.finetune import DEFAULT_OPTIONS, Result, RunOptions, run
from bertctl.training.job import Job
from bertctl.words import command

Resume = bool | Literal["if any"]
"""Whether a run goes on that was started before: it must be there (True), or need not
(`if any`)."""


def check_place(output: Path | None, *, resume: Resume, overwrite: bool) -> None:
    """Refuses a folder that can't be used, before anything expensive is done.

    Raises:
        UsageError: `resume` and `overwrite` at once, or a folder that holds something else.
    """
    if overwrite and resume:
        raise UsageError(
            "`overwrite=True` and `resume=True` exclude each other", remedy="Leave one out."
        )
    if output is not None and not resume:
        RunFolder.check_free(output, overwrite=overwrite)


def start(
    job: Job,
    output: Path | None,
    *,
    resume: Resume = False,
    overwrite: bool = False,
    options: RunOptions = DEFAULT_OPTIONS,
    listener: Listener = SILENT,
) -> Result:
    """Runs a job that was made ready, and returns the finished run.

    A finished run is returned as it is.

    Args:
        job: Made ready, in each process the same.
        output: The run folder; `runs/<recipe>-<hash>` by default.
        resume: Whether to continue the run in the folder.
        overwrite: Whether to replace the run in the folder.
        options: How the run is carried out.
        listener: Receives progress messages.

    Raises:
        BertctlError: The folder can't be used, and what the run raises.
    """
    workers = options.workers
    _agree_on_job(job, workers)
    existing_run = None
    if resume:
        existing_run = find_run(
            job,
            output,
            needed=resume is True,
            listener=listener,
        )
    _agree_on_earlier_run(existing_run, workers)
    if existing_run is not None:
        path = existing_run.folder.path
    else:
        path = output or default_folder(job.recipe.name, job.hash)
    # Other processes might find another free name.
    folder = RunFolder(Path(workers.share(str(path))))
    begins_anew = existing_run is None or not existing_run.has_progress
    if workers.is_first and begins_anew:
        RunFolder.create(folder.path, overwrite=overwrite or existing_run is not None)
    workers.wait()
    listener.say(f"run folder: {folder.path}")
    # Holding the folder clears away what a killed run has left.
    with folder.held() if workers.is_first else contextlib.nullcontext():
        if existing_run is not None and existing_run.finished:
            listener.say("it is finished already; these are its results")
            result = Result(folder, folder.read_metrics(), folder.read_performance(), trained=False)
        else:
            if options.on_start is not None:
                options.on_start(folder)
            run_job = job.run or run  # a few-shot job has a function of its own
            result = run_job(
                job,
                folder,
                checkpoint=existing_run.checkpoint if existing_run else None,
                options=options,
                listener=listener,
            )
    if options.on_finish is not None and workers.is_first:
        try:
            options.on_finish(folder)
        except (UsageError, DataError) as error:  # a file of the run was damaged meanwhile
            listener.warn(f"{folder.path} is finished, and has no model card: {error.message}")
    runtime = job.recipe.runtime
    if runtime.mlflow_register is not None and workers.is_first:
        logged = result.trained and "mlflow" in runtime.log_to
        listener.say(register(folder.path, runtime.mlflow_register, logged=logged))
    return result


def _agree_on_job(job: Job, workers: Workers) -> None:
    """Raises an error if the processes have different recipes, data or models.

    Numbers of threads may differ, as the machines of the processes do.
    """
    alike = job.recipe.with_fields("runtime", threads=None)
    hashes = {name: job.environment[name] for name in ("data_hashes", "model_hash")}
    workers.agree(recipe_hash(alike, **hashes))


def _agree_on_earlier_run(earlier: "EarlierRun | None", workers: Workers) -> None:
    """Raises an error if the processes would not continue an earlier run at the same step."""
    if earlier is None:
        workers.agree(None)
        return
    step = earlier.checkpoint.step if earlier.checkpoint else None
    workers.agree((earlier.finished, earlier.has_draws, step))


@dataclass(frozen=True)
class EarlierRun:
    """A run that was started before.

    Attributes:
        folder: Of the run.
        checkpoint: The newest whole one; None if there is none, or if the run is finished.
        finished: Whether nothing is left to do.
        has_draws: Whether a few-shot run has begun any of its draws of rows.
    """

    folder: RunFolder
    checkpoint: Checkpoint | None
    finished: bool
    has_draws: bool = False

    @property
    def has_progress(self) -> bool:
        """Whether the run has anything that a resumed run continues from."""
        return self.finished or self.checkpoint is not None or self.has_draws


def find_run(
    job: Job, output: Path | None, *, needed: bool, listener: Listener = SILENT
) -> EarlierRun | None:
    """Returns the earlier run of this job that is to be resumed, None without one.

    Args:
        job: Made ready.
        output: Folder of the run. Default: the newest folder with the recipe's default name.
        needed: Whether a run with a whole checkpoint must exist (`--resume`), or need not
            (`--resume-if-any`).
        listener: Receives where the run continues, and warnings about damaged checkpoints.

    Raises:
        BertctlError: The run has another recipe, other data or another model; see
            `refuse_other_run`.
        UnavailableError: No run or no whole checkpoint exists, and one is needed.
    """
    path = output or latest_folder(job.recipe.name, job.hash)
    if path is None or not (path / "status.json").exists():
        if needed:
            if path:
                message = f"{path} holds no run (no status.json)"
            else:
                message = f"no run of '{job.recipe.name}' with these settings"
            raise UnavailableError(
                message,
                remedy="Leave `resume=True` out to start one, or name the folder of the run "
                "with `output=`.",
            )
        return None
    folder = RunFolder(path)
    # A run that was killed early has no environment yet that could be compared.
    if folder.environment.exists() or folder.read_status().state == "done":
        refuse_other_run(job, folder)
    if folder.read_status().state == "done":
        return EarlierRun(folder, None, finished=True)
    # A few-shot run trains on several draws of its rows. Each draw leaves a folder or its results
    # here, and is resumed by itself.
    if any(folder.checkpoints.glob("draw-*")):
        listener.say("continuing with the draws that are not finished")
        return EarlierRun(
            folder,
            None,
            finished=False,
            has_draws=True,
        )
    # Raises if another process is training this run now: without a checkpoint yet, the run would be
    # taken for an interrupted one and started again.
    with hold(path / ".lock", shared=True):
        pass
    checkpoints = Checkpoints(folder, job.hash, listener=listener)
    checkpoint = checkpoints.latest()
    if checkpoint is not None:
        listener.say(
            f"continuing after step {checkpoint.step} of {job.steps}, from {checkpoint.path}"
        )
    elif needed:
        if checkpoints.any():
            reason = "none of its checkpoints is whole"
        else:
            reason = "no checkpoint was found"
        message = f"{path}: {reason}, so there is nothing to continue from"
        raise UnavailableError(
            message, remedy=f"Start again with `{folder.command(job.verb, overwrite=True)}`."
        )
    else:
        listener.say(f"{path} has no checkpoint to continue from: the run starts again")
    return EarlierRun(folder, checkpoint, finished=False)


def refuse_other_run(job: Job, folder: RunFolder) -> None:
    """Refuses to resume a run whose recipe, data or model differ from the job's.

    Raises:
        DataError: A data file has changed since the run was started.
        UnavailableError: The model's files have changed.
        UsageError: The settings or the teacher are others; each setting is shown with both values.
    """
    before = folder.read_environment()
    for name in ("recipe_hash", "data_hashes", "model_hash"):
        if name not in before.model_fields_set:
            raise DataError(
                f"{folder.environment}: {name}: field required",
                remedy=DAMAGED,
                file=folder.environment,
            )
    # This hash covers the settings, the data and the model. The parts are compared only to say
    # which of them has changed.
    if before.recipe_hash == job.hash:
        return
    new_run_remedy = (
        "Start a new run with `output=ANOTHER_FOLDER`, or replace this one: "
        f"`output={folder.path}` `overwrite=True`."
    )
    hashes: dict[str, str] = job.environment["data_hashes"]
    changed = [split for split, digest in hashes.items() if before.data_hashes.get(split) != digest]
    if changed == ["teacher"]:
        message = (
            f"the teacher {job.recipe.distillation.teacher} is not the one that the run in "
            f"{folder.path} was started with"
        )
        raise UsageError(message, remedy=f"Name the same teacher again. {new_run_remedy}")
    if changed:
        message = (
            f"the rows of {', '.join(changed)} are not those that the run in {folder.path} was "
            "started with"
        )
        raise DataError(message, remedy=f"Give the same files again. {new_run_remedy}")
    if before.model_hash != job.environment["model_hash"]:
        raise UnavailableError(
            f"the files of the model '{job.recipe.model.name}' are not those that the run in "
            f"{folder.path} was started with",
            remedy=new_run_remedy,
        )
    recorded = load_recipe(str(folder.recipe))
    fields = differing(recorded, job.recipe)
    lines = [f"\n  {name}: {old_value} then, {value} now" for name, old_value, value in fields]
    differences = "".join(lines)
    if (
        recorded.training.epochs != job.recipe.training.epochs
        or recorded.training.max_steps != job.recipe.training.max_steps
    ):
        new_run_remedy += (
            f" To train its model further: "
            f"`{command(job.verb, '...', model=folder.path, output='NEW')}`."
        )
    message = (
        f"the run in {folder.path} was started with other "
        f"settings:{differences or ' see its recipe.yaml'}"
    )
    resume = f"`{folder.command(job.verb, resume=True)}`"
    raise UsageError(message, remedy=f"Continue with its own: {resume}. {new_run_remedy}")
