"""`bertctl lr-find`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from bertctl.cli.framework.help import RARE
from bertctl.cli.framework.next_command import say_next, training_command
from bertctl.cli.framework.output import Output, Shown, plain_table
from bertctl.cli.framework.recipe_options import takes_recipe, without
from bertctl.cli.framework.recipe_requests import RecipeRequest
from bertctl.errors import UsageError


@takes_recipe(
    "model",
    *without("data", "--test-file", "--max-eval-rows"),
    "--batch-size",
    "--seed",
    "compute",
)
def lr_find(
    out: Output,
    recipe: RecipeRequest,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE.json")] = None,
    low: Annotated[float, typer.Option("--from", metavar="X")] = 1e-7,
    high: Annotated[float, typer.Option("--to", metavar="X")] = 1.0,
    steps: Annotated[int, typer.Option("--steps", metavar="N")] = 100,
    overwrite: Annotated[  # noqa: ARG001 - typed in scripts of earlier versions
        bool, typer.Option("--overwrite", rich_help_panel=RARE)
    ] = False,
) -> None:
    """Find a learning rate: train while it rises, until the loss explodes (range test, Smith 2017).

    The model is discarded, and no run folder is written. Train with the suggested rate, or sweep
    around it. With many labels, few steps or a small model it is often well above the BERT paper's
    2e-5 to 5e-5, and the better choice.

    Args:
        out: Prints the answer and messages.
        recipe: The recipe and the options of its fields, as they were typed.
        output: Write the losses here, and a picture beside it as .png and .svg. An existing file is
            replaced.
        low: Learning rate of the first step.
        high: Learning rate of the last step.
        steps: Steps over which the learning rate rises.
        overwrite: No longer needed: existing files are replaced.

    Examples:
        bertctl lr-find sst2 --model minilm --data-dir glue -o rates.json
        bertctl lr-find text-classification --train-file a.csv --to 1e-2 --steps 200
    """
    resolved = recipe.load(listener=out)
    if output is not None:
        check_file(output)
    from bertctl.training.lr_find import find_rate

    with out.third_party_kept():
        document = find_rate(
            resolved,
            low=low,
            high=high,
            steps=steps,
            listener=out,
        )
        if output is not None:
            from bertctl.reporting.charts import draw_learning_rates
            from bertctl.writing import write_json

            write_json(output, document)
            draw_learning_rates(document, pictures(output))
            out.say(f"written: {', '.join(str(path) for path in (output, *pictures(output)))}")
    if document["suggestion"] is None:
        out.warn(
            "the loss never fell, so there is nothing to suggest; try more --steps, or a higher "
            "--to"
        )
    elif document["fall"] < document["noise"]:
        out.warn(
            f"the loss falls by {document['fall']:.4f}, and as much as {document['noise']:.4f} can "
            "be chance: the "
            "suggestion is a guess, and training may collapse at it; try more --steps, or 2e-5 to "
            "5e-5"
        )
    out.answer(document, rates_table(document))
    if document["suggestion"] is not None:
        rate = f"{document['suggestion']:.2g}"
        say_next(out, training_command(recipe, recipe.name, resolved.task, learning_rate=rate))


def check_file(path: Path) -> None:
    """Refuses an output that can't be a .json file, before anything is trained.

    Raises:
        UsageError: The name does not end in .json, or it is a folder.
    """
    if path.suffix != ".json" or path.is_dir():
        raise UsageError(f"-o {path}: the file must end in .json", remedy="Such as -o rates.json.")


def pictures(path: Path) -> list[Path]:
    """Returns the pictures beside the figures."""
    return [path.with_suffix(".png"), path.with_suffix(".svg")]


def rates_table(document: Mapping[str, Any]) -> Shown:
    """Returns a table of the learning rates that were found."""
    table = plain_table(
        f"{document['recipe']}, {document['model']}", "learning rate", right=("learning rate",)
    )
    names = {
        "steepest": "the loss falls fastest",
        "minimum": "the loss is lowest",
        "minimum_tenth": "a tenth of that",
        "suggestion": "suggested: the lower of the first and the third",
    }
    for name, words in names.items():
        rate = document[name]
        table.add_row(
            words,
            "none" if rate is None else f"{rate:.2e}",
            style="bold" if name == "suggestion" else None,
        )
    if document["exploded"]:
        end = "where the loss exploded"
    else:
        end = "the highest that was asked for"
    steps = f"{document['steps']} steps with batch size {document['batch_size']}"
    table.caption = f"{steps}, up to {document['rates'][-1]:.2e}, {end}"
    table.caption_justify = "left"
    return table
