"""`bertctl recipes`: list, show, compare, copy and validate recipes.

It also lists models and data sets, all without torch.
"""

import json
import re
import shlex
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertctl.cli.framework.completion import recipe_names
from bertctl.cli.framework.output import Output, Shown, plain_table
from bertctl.cli.framework.recipe_options import takes_recipe
from bertctl.cli.framework.recipe_requests import RecipeRequest
from bertctl.cli.framework.streams import stdout_file
from bertctl.config.recipe_files import builtin_recipes, expanded_path, find_recipe, is_data_file
from bertctl.errors import BertctlError, UsageError, all_of
from bertctl.words import count, unknown

if TYPE_CHECKING:
    from bertctl.config.schema import Recipe


_DATASET_FIELDS = (
    "name",
    "task",
    "description",
    "labels",
    "metrics",
    "primary_metric",
    "official_files",
    "note",
)
_MOVES = {True: "yes", False: "no", None: "perhaps"}
_BELOW = textwrap.TextWrapper(
    79,
    initial_indent="  ",
    subsequent_indent="  ",
    break_on_hyphens=False,
)
"""What stands below an entry of a list."""


def ls(
    out: Output,
    models: Annotated[bool, typer.Option("--models")] = False,
    data: Annotated[bool, typer.Option("--data")] = False,
    long: Annotated[bool, typer.Option("--long")] = False,
) -> None:
    """List the built-in recipes, or the models and data sets of the catalog.

    With -q only their names are printed, one per line.

    Args:
        out: Prints the answer and messages.
        models: List the models by name instead.
        data: List the data sets by name instead.
        long: With --models: layers, tokenizer, pretraining objective and its source too.
    """
    if long and not models:
        raise UsageError(
            "--long says more about models, and --models is not given", remedy="Add --models."
        )
    catalog_parts = []
    if models:
        catalog_parts.append(_models(long=long))
    if data:
        catalog_parts.append(_datasets())
    parts = catalog_parts or [_recipes()]
    document = {name: rows for name, rows, _ in parts}
    if out.quiet:
        rows = chain.from_iterable(document.values())
        out.answer(document, *(row["name"] for row in rows))
        return
    out.answer(document, *(table for _, _, table in parts))
    if not catalog_parts:
        out.say("model, data and settings of one: bertctl recipes show NAME")


@takes_recipe()
def show(
    out: Output, recipe: RecipeRequest, origin: Annotated[bool, typer.Option("--origin")] = False
) -> None:
    """Print a recipe with all its fields, each under a line that explains it.

    Args:
        out: Prints the answer and messages.
        recipe: Name or file of the recipe, and options of its fields.
        origin: Show instead where each value comes from: default, base or file (with line), or
            option.

    Examples:
        bertctl recipes show sst2 --set training.epochs=2 > mine.yaml
        bertctl recipes show mine.yaml --origin
    """
    from bertctl.config.dump import dump_recipe, own_fields
    from bertctl.config.portable_recipes import portable
    from bertctl.config.presets import shown_values
    from bertctl.config.problems import shown

    if origin and is_data_file(recipe.name):
        raise UsageError(
            f"--origin is for recipes, and {recipe.name} is a file of rows",
            remedy="Leave --origin out.",
        )
    loaded, origins = recipe.trace()
    if origin:
        table = plain_table("field", "value", "from")
        rows = {}
        for dotted, value in own_fields(loaded):
            source = origins[dotted]
            rows[dotted] = {
                "value": value,
                "from": source.kind,
                "place": source.shown,
                "via": source.via,
            }
            origin_text = " ".join(
                filter(None, (source.kind, source.shown, source.via and f"({source.via})"))
            )
            table.add_row(
                dotted, shown(value), origin_text, style="dim" if source.kind == "default" else ""
            )
        out.answer({"recipe": recipe.name, "fields": rows}, table)
        return
    sets: list[str] = []
    for assignment in recipe.sets:
        sets += ("--set", assignment)
    command = shlex.join(["bertctl", _verb(loaded), recipe.name, *sets])
    file = stdout_file()
    portable_recipe = portable(loaded, origins, file.parent if file else Path.cwd())
    out.answer(shown_values(loaded), dump_recipe(portable_recipe, command=command).rstrip("\n"))


def diff(
    out: Output,
    one: Annotated[str, typer.Argument(metavar="A", autocompletion=recipe_names)],
    other: Annotated[str, typer.Argument(metavar="B", autocompletion=recipe_names)],
) -> None:
    """Compare two recipes field by field, and name the fields that change results.

    A path or a model changes results only if the files behind it differ; for two runs, bertctl
    compares these files. Values that the machine chooses, such as `auto`, may change results.

    Args:
        out: Prints the answer and messages.
        one: A recipe: built-in name, YAML file or run folder.
        other: The one to compare it with.

    Examples:
        bertctl recipes diff sst2 mine.yaml
        bertctl recipes diff runs/a runs/b
    """
    from bertctl.config.problems import shown
    from bertctl.reporting.recipe_diff import diff_recipes

    comparison = diff_recipes(one, other)
    rows = comparison["differences"]
    table = plain_table("field", one, other, "moves numbers")
    for row in rows:
        table.add_row(row["field"], *map(shown, row["values"]), _MOVES[row["moves_numbers"]])
    surely = sum(row["moves_numbers"] is True for row in rows)
    perhaps = sum(row["moves_numbers"] is None for row in rows)
    if not rows:
        out.answer(comparison, "nothing differs")
        return
    summary_line = f"{count(len(rows), 'difference')}: {surely} move numbers, {perhaps} perhaps"
    out.answer(comparison, table, summary_line)


def cp(
    out: Output,
    recipe: Annotated[str, typer.Argument(metavar="NAME", autocompletion=recipe_names)],
    destination: Annotated[str, typer.Argument(metavar="DEST")],
    overwrite: Annotated[bool, typer.Option("--overwrite")] = False,
) -> None:
    """Copy a built-in recipe to a file of your own, to edit and run.

    Args:
        out: Prints the answer and messages.
        recipe: Name of a built-in recipe.
        destination: File to write, or a folder for NAME.yaml.
        overwrite: Replace DEST.

    Examples:
        bertctl recipes cp sst2 mine.yaml
    """
    path = copy_recipe(recipe, destination, overwrite=overwrite)
    command = f"bertctl {_verb(RecipeRequest(str(path)).load())} {_runnable(path)}"
    out.answer({"recipe": recipe, "path": str(path), "command": command}, command)
    out.say(
        f"{path} is yours to edit; every field and its meaning: bertctl recipes show "
        f"{_runnable(path)}"
    )


def validate(
    out: Output,
    recipes: Annotated[list[str], typer.Argument(metavar="RECIPE...", autocompletion=recipe_names)],
) -> None:
    """Check recipes without running them: keys, values, names of models and data sets.

    Files that a recipe names are not read.

    Args:
        out: Prints the answer and messages.
        recipes: Names of built-in recipes, or files.
    """
    errors_by_recipe = {recipe: check_recipe(recipe) for recipe in dict.fromkeys(recipes)}
    lines = []
    for recipe, error in errors_by_recipe.items():
        verdict = "ok" if error is None else "refused"
        lines.append(f"{recipe}: {verdict}")
    rows = [
        {"recipe": recipe, "ok": error is None, "problems": _sentences(error)}
        for recipe, error in errors_by_recipe.items()
    ]
    # The first error gives the exit code of the command: the lowest one.
    errors = sorted(filter(None, errors_by_recipe.values()), key=lambda error: error.exit_code)
    out.answer({"ok": not errors, "recipes": rows}, "\n".join(lines))
    if errors:
        raise all_of(errors, f"{len(errors)} of {len(errors_by_recipe)} recipes are refused")


def schema(out: Output) -> None:
    """Print the JSON Schema of a recipe, for editors that complete and check YAML."""
    from bertctl.config.schema import recipe_schema

    document = recipe_schema()
    out.answer(document, json.dumps(document, indent=2, ensure_ascii=False))


COMMANDS = {"ls": ls, "show": show, "diff": diff, "cp": cp, "validate": validate, "schema": schema}


def copy_recipe(name: str, destination: str, *, overwrite: bool = False) -> Path:
    """Writes a built-in recipe to a file; the command in its first line names the copy.

    Args:
        name: Name of a built-in recipe.
        destination: A file; or a folder, if it exists or ends in a slash.
        overwrite: Whether an existing file is replaced.

    Returns:
        The file.

    Raises:
        UsageError: No built-in recipe has this name, or the file exists.
        UnavailableError: The file can't be written.
    """
    source = builtin_recipes().get(name)
    if source is None:
        find_recipe(name)  # refuses a name that nothing has
        raise UsageError(
            f"{name} is not a built-in recipe",
            remedy=f"Copy a file with: cp {shlex.quote(name)} DEST",
        )
    path = expanded_path(destination)
    if destination.endswith("/") or path.is_dir():
        path = path / source.name
    if path.exists() and not overwrite:
        raise UsageError(
            f"{path} exists", remedy="Name another file, or add --overwrite to replace it."
        )
    text = source.read_text(encoding="utf-8")
    verb = _verb(RecipeRequest(name).load())
    copied = text.replace(f"bertctl {verb} {name}", f"bertctl {verb} {_runnable(path)}", 1)
    from bertctl.writing import write_text

    write_text(path, copied)
    return path


def check_recipe(name_or_path: str) -> BertctlError | None:
    """Returns an error with all faults of a recipe, or None.

    The names of its model and data set are checked, too. Nothing is downloaded, and the files that
    it names need not exist: the recipe may be for another machine.
    """
    try:
        recipe = RecipeRequest(name_or_path).load()
    except BertctlError as error:
        return error
    problems = [f"{name_or_path}: {problem}" for problem in _unknown_names(recipe)]
    if not problems:
        return None
    from bertctl.config.problems import RecipeError

    remedy = "`bertctl recipes ls --models` and `bertctl recipes ls --data` list the names."
    return RecipeError(name_or_path, problems, remedy=remedy)


def _unknown_names(recipe: "Recipe") -> Iterator[str]:
    """Yields a sentence for a data set of another task, and for each unknown name.

    Each begins with the field, such as `model.name: ...`. Nothing is downloaded.
    """
    from bertctl.catalog.datasets import find_dataset
    from bertctl.catalog.models import MODELS

    if recipe.data.name:
        try:
            task = find_dataset(recipe.data.name, recipe.data.datasets_file).task
            if task != recipe.task:
                yield (
                    f"task: {recipe.task} given, but the data set '{recipe.data.name}' is "
                    f"for {task}"
                )
        except UsageError as error:
            yield f"data.name: {error.message}"
    model = recipe.model.name
    catalog_names = set[str]()
    for row in MODELS.values():
        # Both `bert-base` and the hub id without its owner, `bert-base-uncased`, name a model.
        catalog_names.update((row.name, row.hub_id.split("/")[1]))
    # A hub id or a path may be right on another machine; a bare word is a name of the catalog or a
    # folder here.
    if model not in catalog_names and "/" not in model and not Path(model).is_dir():
        yield f"model.name: {unknown('model', model, MODELS)}"


def _sentences(error: BertctlError | None) -> Sequence[str]:
    """Returns the problems of a recipe, or the message of another error."""
    if error:
        return getattr(error, "problems", (error.message,))
    return ()


def _runnable(path: Path) -> str:
    """Returns a path as a shell word that `finetune` can't mistake for a built-in recipe.

    A bare name gets a `./` in front: `./sst2`.
    """
    text = str(path)
    looks_like_path = "/" in text or path.suffix.lower() in (".yaml", ".yml")
    return shlex.quote(text if looks_like_path else f"./{text}")


def _verb(recipe: "Recipe") -> str:
    """Returns the verb that runs a recipe: one with settings of the probe is for `probe`."""
    from bertctl.config.recipe_sections import ProbeSection
    from bertctl.config.task_names import verb_of

    if recipe.probe != ProbeSection():
        return "probe"
    return verb_of(recipe.task)


def _recipe_row(name: str) -> dict[str, Any]:
    """Returns a built-in recipe's entry in the answer of `recipes ls --json`."""
    recipe = RecipeRequest(name).load()
    return {
        "name": name,
        "task": recipe.task,
        "data": recipe.data.name,
        "model": recipe.model.name,
        "epochs": recipe.training.epochs,
        "batch_size": recipe.training.batch_size,
        "learning_rate": recipe.optimizer.learning_rate,
        "description": recipe.description,
    }


def _recipes() -> tuple[str, list[dict[str, Any]], Shown]:
    """Returns the built-in recipes: their key in the JSON document, their rows, and a table.

    In the table a task's own recipe is a heading, and those for its data sets are below it.
    """
    rows = [_recipe_row(name) for name in builtin_recipes()]
    table = plain_table("recipe", "what")
    # A recipe with the name of a task is for the user's files. `pretrain` has the name of its verb.
    headings = {"pretrain"} | {row["task"] for row in rows}
    # By task, in each the heading first (False is sorted before True), then by name.
    rows_in_order = sorted(
        rows, key=lambda row: (row["task"], row["name"] not in headings, row["name"])
    )
    for row in rows_in_order:
        if row["name"] in headings:
            indent = ""
        else:
            indent = "  "
        first_sentence = re.split(r"(?<=[.?!])\s", row["description"], maxsplit=1)[0]
        table.add_row(indent + row["name"], first_sentence, style="" if indent else "bold")
    return "recipes", rows, table


def _models(*, long: bool) -> tuple[str, list[dict[str, Any]], Shown]:
    """Returns the models of the catalog: their key in the JSON document, rows, and lines to print.

    Args:
        long: Prints layers, tokenizer, objective and source instead of length and hub id.
    """
    from bertctl.catalog.models import MODELS

    lines = [
        f"{'model':22} {'weights':>7} "
        + (f"{'layers':>6}  tokenizer" if long else f"{'longest':>7}  on the hub")
    ]
    for row in MODELS.values():
        weights = f"{row.name:22} {row.parameters:>5g} M "
        if row.lowercase:
            case = "lower-cased"
        else:
            case = "cased"
        if not long:
            lines.append(f"{weights}{row.positions:>7,}  {row.hub_id}")
            continue
        lines.append(
            f"{weights}{row.layers:>6}  {row.tokenizer}, {row.vocabulary:,} tokens, {case}"
        )
        lines += _BELOW.wrap(f"{row.objective} ({row.source})") + _BELOW.wrap(row.note)
    return "models", [asdict(row) for row in MODELS.values()], "\n".join(lines)


def _datasets() -> tuple[str, list[dict[str, Any]], Shown]:
    """Returns the built-in data sets: their key in the JSON document, rows, and lines to print."""
    from bertctl.catalog.datasets import builtin_datasets

    lines = [f"{'data':12} {'task':21} primary metric"]
    rows = []
    for row in builtin_datasets().values():
        scores = [asdict(score) for score in row.published]
        document_row = {name: getattr(row, name) for name in _DATASET_FIELDS}
        rows.append(document_row | {"splits": row.split_names, "published": scores})

        # Without a primary metric in the catalog, it depends on the labels of the rows.
        lines.append(f"{row.name:12} {row.task:21} {row.primary_metric or 'as its rows are'}")
        description = row.description
        if row.labels:
            description += f" ({', '.join(row.labels)})"
        lines += _BELOW.wrap(description)
        if scores:
            published = [
                f"{score['metric']} {score['value']:.3f} ({score['split']})" for score in scores
            ]
            lines += _BELOW.wrap(f"published BERT-base: {', '.join(published)}")
    return "data", rows, "\n".join(lines)
