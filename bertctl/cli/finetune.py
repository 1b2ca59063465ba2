"""`bertctl finetune`."""

from typing import Annotated

import typer

from bertctl.cli.output import Output
from bertctl.cli.processes import AccelerateConfigOption, NumProcessesOption
from bertctl.cli.recipe_options import OutputOption, OverwriteOption, RecipeRequest, takes_recipe
from bertctl.cli.training_run import DryRunOption, ResumeIfAnyOption, ResumeOption, RunFlags, carry_out


@takes_recipe(
    "model", "long_texts", "data", "confirming", "training", "compute", "evaluation", "long_runs", "deterministic"
)
def finetune(
    out: Output,
    recipe: RecipeRequest,
    output: OutputOption = None,
    overwrite: OverwriteOption = False,
    resume: ResumeOption = False,
    resume_if_any: ResumeIfAnyOption = False,
    strict: Annotated[bool, typer.Option("--strict", rich_help_panel="Run")] = False,
    num_processes: NumProcessesOption = 1,
    accelerate_config: AccelerateConfigOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """Fine-tune an encoder on a data set or on your own files.

    The weights with the best primary metric on the validation rows are kept. The run folder holds the model, every
    prediction, the metrics and the complete recipe. What is not given as an option is as the recipe says.

    Args:
        strict: Exit with code 6 where the model predicts one label for every example.

    Examples:
        bertctl finetune sst2 --data-dir glue --model minilm
        bertctl finetune reviews.csv --epochs 2
    """
    resolved = recipe.load(listener=out)
    flags = RunFlags(output, overwrite, resume, resume_if_any, num_processes, accelerate_config, dry_run, strict)
    carry_out(out, resolved, flags)
