"""`bertctl doctor`."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from bertctl.cli.framework.completion import recipe_names
from bertctl.cli.framework.next_command import say_next, training_command
from bertctl.cli.framework.option_names import all_as_options
from bertctl.cli.framework.output import Output, Shown, plain_table
from bertctl.cli.framework.recipe_options import takes_recipe
from bertctl.cli.framework.recipe_requests import RecipeRequest
from bertctl.errors import UsageError, all_of

_MAIN_PACKAGES = (
    "torch",
    "transformers",
    "tokenizers",
    "accelerate",
    "datasets",
    "huggingface-hub",
    "numpy",
)


@takes_recipe(
    "model",
    "--data-dir",
    "--train-file",
    "--validation-file",
    "compute",
    has_recipe_argument=False,
)
def doctor(
    out: Output,
    settings: RecipeRequest,
    recipe: Annotated[
        str | None, typer.Argument(metavar="[RECIPE]", autocompletion=recipe_names)
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR")] = Path("runs"),
) -> None:
    """Check whether this machine is ready, and has what a recipe needs.

    It checks versions, devices, memory, folders and the hub. Nothing is downloaded, and with
    --offline nothing is contacted. If everything that the recipe needs is here, its run is
    prepared, as with `finetune --dry-run`.

    Exit code 0: a run could start. 4: something that it needs is not available. 5: its device is
    missing. 3 or 2: its data or settings are wrong.

    Args:
        out: Prints the answer and messages.
        settings: Options of recipe fields, as they were typed.
        recipe: Recipe to check as well: its name, or a YAML file.
        output: Folder that runs go to.

    Examples:
        bertctl doctor
        bertctl doctor sst2 --model minilm --data-dir glue --offline
    """
    about_recipe = [name for name in settings.options if not name.startswith("runtime.")]
    if recipe is None and (about_recipe or settings.sets):
        message = (
            f"{', '.join(about_recipe) or '--set'}: no recipe was named that this could change"
        )
        raise UsageError(message, remedy="Name one: bertctl doctor sst2 --model minilm")
    # The bundled recipe stands in where none is named: it checks the options of device and
    # precision.
    resolved = settings.load(recipe or "demo", listener=out)

    from bertctl.jobs.doctor import examine

    with out.third_party_kept():
        examination = examine(resolved if recipe else None, resolved.runtime, place=output)
    problems = [str(problem) for problem in examination.problems]
    document = all_as_options(
        {**examination.document, "problems": problems, "warnings": examination.warnings}
    )
    out.answer(document, *_tables(document))
    for warning in examination.warnings:
        out.warn(warning)
    if examination.problems:
        raise all_of(
            examination.problems, f"{len(examination.problems)} things are not as they should be"
        )
    out.say("ready")
    if recipe:
        say_next(out, training_command(settings, recipe, resolved.task))


def _tables(document: Mapping[str, Any]) -> Iterator[Shown]:
    """Yields the table of the machine and, if a recipe was named, a table of what it needs."""
    yield plain_table("this machine", "", rows=_machine_lines(document))
    if document.get("needs"):
        yield ""
        words = {"here": "on this disk", "hub": "to be fetched", "refused": "missing"}
        needs = ((need["what"], words[need["state"]], need["found"]) for need in document["needs"])
        yield plain_table(f"{document['recipe']} needs", "", "where", rows=needs)


def _machine_lines(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields the rows of the machine's table, such as `("hub", "https://…: reachable; no token")`.

    Where torch can't be imported, the document has no processor, and only versions are told.

    Args:
        document: The answer with `--json`.
    """
    from bertctl.words import human_bytes

    versions = {package["name"]: package["version"] for package in document["packages"]}
    yield "bertctl", f"{document['bertctl']}, Python {document['python']}, {document['platform']}"
    yield (
        "packages",
        ", ".join(f"{name} {versions[name]}" for name in _MAIN_PACKAGES if versions.get(name)),
    )
    if "processor" not in document:
        return
    cpu = document["processor"]
    memory = document["memory"]
    hub = document["hub"]
    cores = f"{cpu['usable']} of {cpu['cores']} cores"
    # A container's quota is processor time: it may be less than the cores that are visible.
    cores += f", the time of {cpu['quota']:g}" if cpu["quota"] is not None else ""
    yield (
        "processor",
        f"{cpu['name']}, {cores}; {', '.join(cpu['features']) or 'no vector units known'}",
    )
    if memory["limit"]:
        limit = f", limited to {human_bytes(memory['limit'])}"
    else:
        limit = ""
    yield (
        "memory",
        f"{human_bytes(memory['available'])} free of {human_bytes(memory['total'])}{limit}",
    )
    for device in document["devices"]:
        if device["bf16"]:
            bf16 = "fast bf16"
        else:
            bf16 = "no fast bf16"
        if device["memory"]:
            size = f", {human_bytes(device['free'])} free of {human_bytes(device['memory'])}"
        else:
            size = ""
        yield device["kind"], f"{device['name']}: {bf16}{size}"
    if document["compute"]:
        yield "runs would use", document["compute"]
    for folder in document["folders"]:
        if folder["writable"]:
            writable = ""
        else:
            writable = ", can't be written"
        yield (
            folder["what"],
            f"{folder['path']}, {human_bytes(folder['free_bytes'])} free{writable}",
        )
    token = "with a token" if hub["token"] else "no token"
    if hub["offline"]:
        state = "not asked, offline"
    else:
        state = hub["unreachable"] or "reachable"
    yield "hub", f"{hub['endpoint']}: {state}; {token}"
