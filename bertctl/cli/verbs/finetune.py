"""`bertctl finetune`."""

from typing import Annotated

import typer

from bertctl.cli.framework.output import Output
from bertctl.cli.framework.recipe_options import takes_recipe
from bertctl.cli.framework.recipe_requests import RecipeRequest
from bertctl.cli.verbs.training_run import RunFlags, carry_out, takes_flags


@takes_recipe(
    "model",
    "long_texts",
    "data",
    "confirming",
    "training",
    "compute",
    "evaluation",
    "baselines",
    "long_runs",
    "deterministic",
)
@takes_flags
def finetune(
    out: Output,
    flags: RunFlags,
    recipe: RecipeRequest,
    strict: Annotated[bool, typer.Option("--strict", rich_help_panel="Run")] = False,
) -> None:
    """Fine-tune an encoder on a data set or on your own files.

    The weights with the best primary metric on the validation rows are kept. The run folder has the
    model, every prediction, the metrics and the complete recipe. All settings without an option
    come from the recipe.

    Args:
        out: Prints the answer and messages.
        flags: Options of how a run is started, as they were typed.
        recipe: The recipe and the options of its fields, as they were typed.
        strict: Exit with code 6 if the model predicts one label for every example.

    Examples:
        bertctl finetune reviews.csv --epochs 2
        bertctl finetune sst2 --data-dir glue --model minilm
    """
    carry_out(out, recipe.trace(listener=out), flags, strict=strict)
