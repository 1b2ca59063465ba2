"""The one way to start a run: a recipe made ready, the folder chosen or found again, locked, trained and scored.

The command line, the workers of a sweep and `bertctl.finetune` in Python all come through here.
"""

import contextlib
from pathlib import Path
from typing import Literal

from bertctl.catalog.mlflow_models import register
from bertctl.config.load import named_files
from bertctl.config.schema import Recipe
from bertctl.errors import DataError, UsageError
from bertctl.progress import SILENT, Listener
from bertctl.run_folder import RunFolder, default_folder
from bertctl.training.announce import announce
from bertctl.training.finetune import DEFAULT_OPTIONS, Result, RunOptions, run
from bertctl.training.job import Job, prepare
from bertctl.training.resume import find_run
from bertctl.writing import protect

Resume = bool | Literal["if any"]
"""Whether a run goes on that was started before: it must be there (True), or need not (`if any`)."""


def finetune(
    recipe: Recipe,
    *,
    output: Path | None = None,
    resume: Resume = False,
    overwrite: bool = False,
    options: RunOptions = DEFAULT_OPTIONS,
    listener: Listener = SILENT,
) -> Result:
    """Fine-tunes a model as a recipe says, and returns the finished run.

    Args:
        recipe: what to run.
        output: the run folder; `runs/<recipe>-<hash>` by default.
        resume: whether to go on with the run in the folder.
        overwrite: whether to replace the run in the folder.
        options: how the run is carried out.
        listener: hears of what happens.

    Raises:
        BertctlError: any refusal of recipe, files, labels, model, device or folder, and what `run` raises.
    """
    protect(*named_files(recipe), anew=True)
    check_place(output, resume=resume, overwrite=overwrite)
    job = prepare(recipe, listener=listener)
    announce(job, listener=listener)
    return start(job, output, resume=resume, overwrite=overwrite, options=options, listener=listener)


def check_place(output: Path | None, *, resume: Resume, overwrite: bool) -> None:
    """Refuses a folder that can't be used, before anything expensive is done.

    Raises:
        UsageError: `resume` and `overwrite` at once, or a folder that holds something else.
    """
    if overwrite and resume:
        raise UsageError("--overwrite and --resume exclude each other", remedy="Leave one out.")
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
    """Runs a job that was made ready; see `finetune`. A run that is finished already is returned as it is.

    Raises:
        BertctlError: see `finetune`.
    """
    workers = options.workers
    found = find_run(job, output, needed=resume is True, listener=listener) if resume else None
    path = found.folder.path if found else output or default_folder(job.recipe.name, job.hash)
    folder = RunFolder(Path(workers.share(str(path))))  # the other processes might find another free name
    if workers.is_first and (found is None or not (found.finished or found.checkpoint)):
        RunFolder.create(folder.path, overwrite=overwrite or found is not None)
    workers.wait()
    listener.say(f"run folder: {folder.path}")
    if found is not None and found.finished:
        if workers.is_first:
            with folder.held():  # which clears away what a kill has left
                pass
        listener.say("it is finished already; these are its results")
        result = Result(folder, folder.read(folder.metrics), folder.read(folder.performance), trained=False)
    else:
        with folder.held() if workers.is_first else contextlib.nullcontext():
            if options.on_start is not None:
                options.on_start(folder)
            checkpoint = found.checkpoint if found else None
            result = run(job, folder, checkpoint=checkpoint, options=options, listener=listener)
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
