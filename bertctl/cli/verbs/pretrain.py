"""`bertctl pretrain`."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertctl.cli.framework.completion import recipe_names
from bertctl.cli.framework.output import Output
from bertctl.cli.framework.recipe_options import takes_recipe
from bertctl.cli.framework.recipe_requests import PRETRAIN, RecipeRequest
from bertctl.cli.verbs.training_run import RunFlags, carry_out, takes_flags
from bertctl.config.recipe_files import is_recipe
from bertctl.errors import UsageError
from bertctl.progress import Listener

if TYPE_CHECKING:
    from bertctl.config.load import TracedRecipe


@takes_recipe(
    "model",
    "corpus",
    "training",
    "compute",
    "long_runs",
    "deterministic",
    has_recipe_argument=False,
)
@takes_flags
def pretrain(
    out: Output,
    flags: RunFlags,
    recipe: RecipeRequest,
    given: Annotated[
        list[str] | None, typer.Argument(metavar="[RECIPE] CORPUS...", autocompletion=recipe_names)
    ] = None,
    no_nsp: Annotated[bool, typer.Option("--no-nsp")] = False,
) -> None:
    """Pretrain a BERT on your own text: from scratch, or from an existing model.

    The model learns masked words and next sentence prediction. You can pass the run folder as
    --model to finetune, extract-features, probe, fill-mask and score.

    Args:
        out: Prints the answer and messages.
        flags: Options of how a run is started, as they were typed.
        recipe: The recipe and the options of its fields, as they were typed.
        given: Files and folders of text: a sentence per line with empty lines between documents, or
            a document per line; JSONL, Parquet, CSV and TSV with a text column; each also as .gz.
            You can put a recipe before them, or give only a recipe that names its corpus.
        no_nsp: Learn only masked words: --objective mlm.

    Examples:
        bertctl pretrain pretrain-demo
        bertctl pretrain abstracts.txt --model minilm --no-nsp --epochs 2
        bertctl pretrain corpus/ --from-scratch small --vocab-size 8000
    """
    if no_nsp:
        options = {"pretraining.objective": "mlm"}
    else:
        options = {}
    traced = corpus_recipe(recipe, given or [], options, listener=out)
    carry_out(out, traced, flags)


def corpus_recipe(
    recipe: RecipeRequest, names: list[str], options: dict[str, Any], *, listener: Listener
) -> "TracedRecipe":
    """Returns the recipe of a pretraining, and where its values come from.

    Args:
        recipe: The options that were typed.
        names: The arguments that were typed: a recipe, corpora, or a recipe and then its corpora.
        options: Dotted field -> value, which replace the options that were typed.
        listener: Receives messages about the recipe.

    Raises:
        UsageError: No argument was typed; or see `RecipeRequest.trace`.
    """
    if not names:
        raise UsageError(
            "nothing to pretrain on",
            remedy=f"Name a corpus or a recipe: bertctl {recipe.verb} CORPUS...",
        )
    if is_recipe(names[0]):
        name = names[0]
        corpus = names[1:]
    else:
        name = PRETRAIN
        corpus = names
    if corpus:
        options = {**options, "pretraining.corpus": corpus}
    return recipe.trace(name, options, listener=listener)
