"""The one way to run a recipe in this process: made ready by its kind, then started.

`bertctl.finetune` is this.
"""

from collections.abc import Mapping
from pathlib import Path

from bertctl.config.recipe_paths import named_files
from bertctl.config.schema import Recipe
from bertctl.data.recipe_data import NO_ROWS
from bertctl.data.sources import MemoryFile, kept_rows
from bertctl.jobs.prepare import prepare
from bertctl.progress import SILENT, Listener
from bertctl.training.announce import announce
from bertctl.training.finetune import DEFAULT_OPTIONS, Result, RunOptions
from bertctl.training.start import Resume, check_place, start
from bertctl.writing import protect


def run_recipe(
    recipe: Recipe,
    *,
    rows_in_memory: Mapping[str, MemoryFile] = NO_ROWS,
    output: Path | None = None,
    resume: Resume = False,
    overwrite: bool = False,
    options: RunOptions = DEFAULT_OPTIONS,
    listener: Listener = SILENT,
) -> Result:
    """Trains a model as a recipe says, and returns the finished run.

    Args:
        recipe: What to run: fine-tuning, few-shot training or pretraining.
        rows_in_memory: Split name -> rows in place of those in the recipe's files. The run folder
            keeps them.
        output: The run folder; `runs/<recipe>-<hash>` by default.
        resume: Whether to continue the run in the folder.
        overwrite: Whether to replace the run in the folder.
        options: How the run is carried out.
        listener: Receives progress messages.

    Raises:
        BertctlError: Any refusal of recipe, files, labels, model, device or folder, and what the
            run raises.
    """
    protect_inputs(recipe, rows_in_memory)
    check_place(output, resume=resume, overwrite=overwrite)
    job = prepare(recipe, rows_in_memory=rows_in_memory, listener=listener)
    announce(job, listener=listener)
    return start(
        job,
        output,
        resume=resume,
        overwrite=overwrite,
        options=options,
        listener=listener,
    )


def protect_inputs(recipe: Recipe, rows_in_memory: Mapping[str, MemoryFile] = NO_ROWS) -> None:
    """Protects the files that a recipe names from being overwritten, and no others any more."""
    row_paths = {Path(path) for path in kept_rows(rows_in_memory).values()}
    protect(*(path for path in named_files(recipe) if path not in row_paths), anew=True)
