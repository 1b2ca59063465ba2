"""`bertctl estimate`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from bertctl.cli.framework.next_command import say_next, training_command
from bertctl.cli.framework.output import Output, Shown, plain_table
from bertctl.cli.framework.recipe_options import takes_recipe, without
from bertctl.cli.framework.recipe_requests import RecipeRequest


@takes_recipe(
    "model", *without("data", "--test-file"), *without("training", "--learning-rate"), "compute"
)
def estimate(
    out: Output,
    recipe: RecipeRequest,
    place: Annotated[Path, typer.Option("--output", "-o", metavar="DIR")] = Path("runs"),
    steps: Annotated[int, typer.Option("--steps", metavar="N")] = 10,
    cells: Annotated[int, typer.Option("--cells", metavar="N")] = 1,
) -> None:
    """Time a few steps, then estimate time, memory and disk of the whole run. Nothing is kept.

    A sweep of the BERT paper's grid is 18 runs per seed: --cells 18.

    Args:
        out: Prints the answer and messages.
        recipe: The recipe and the options of its fields, as they were typed.
        place: Folder that the run would go to. Its disk is measured.
        steps: Batches to time, each twice.
        cells: Number of runs of a sweep, to multiply the estimates by.

    Examples:
        bertctl estimate sst2 --model minilm --data-dir glue
        bertctl estimate my-recipe.yaml --cells 90
    """
    resolved = recipe.load(listener=out)
    from bertctl.training.estimate import estimate_run

    with out.third_party_kept():
        document = estimate_run(
            resolved,
            place=place,
            steps=steps,
            cells=cells,
            listener=out,
        )
    out.answer(document, estimate_table(document))
    say_next(out, training_command(recipe, recipe.name, resolved.task))


def lora_speed(speedup: float) -> tuple[str, str]:
    """Returns how a step of LoRA compares with one that trains all weights, in two cells."""
    if speedup >= 1.05:
        return f"{speedup:.1f} times", "as fast as one that trains all weights"
    if speedup > 0.95:
        return "as fast", "as one that trains all weights"
    return f"{1 / speedup:.1f} times", "the time of one that trains all weights: slower"


def estimate_table(document: Mapping[str, Any]) -> Shown:
    """Returns a table with a line per phase, and the whole, the sweep, memory and disk."""
    from bertctl.reporting.summary import fit_sentence
    from bertctl.words import human_bytes, human_seconds

    table = plain_table(document["recipe"], "about", "between", right=("about",))
    count = document["evaluations"]
    names = {
        "start": "read, encode, load",
        "head_start": "start the head",
        "train": f"train {document['steps']:,} steps",
        "evaluate": f"score {count} time{'s' if count > 1 else ''}",
        "save": f"save weights, {document['checkpoints']} checkpoints",
        "baselines": "baselines beside it, at most",
        "total": "the whole run",
    }
    if document["seconds"]["head_start"]["estimate"] == 0:
        del names["head_start"]
    rows = [
        (name, document["seconds"][phase])
        for phase, name in names.items()
        if phase in document["seconds"]
    ]
    cells = document["sweep"]["cells"]
    if cells > 1:
        rows.append((f"{cells} such runs", document["sweep"]["seconds"]))
    for name, seconds in rows:
        between = f"{human_seconds(seconds['low'])} and {human_seconds(seconds['high'])}"
        table.add_row(name, human_seconds(seconds["estimate"]), between)
    lora = document.get("lora")
    if lora:
        table.add_row("a step of LoRA", *lora_speed(lora["speedup"]))
    fit = document.get("time_limit")
    if fit:
        fitting = fit_sentence(fit, whole_steps=document["steps"], whole_epochs=document["epochs"])
        table.add_row("time limit", fit["limit"], fitting)
    memory = document["peak_memory_bytes"]
    disk = document["disk_bytes"]
    table.add_row("memory", human_bytes(memory["process"]), "")
    if memory["device"] is not None:
        table.add_row(
            f"memory of the {document['device']} device", human_bytes(memory["device"]), ""
        )
    free = f"{human_bytes(disk['free'])} free"
    table.add_row(
        "disk",
        human_bytes(disk["run"]),
        f"{human_bytes(disk['while_running'])} while it runs; {free}",
    )
    if cells > 1:
        table.add_row(
            f"disk of {cells} such runs", human_bytes(document["sweep"]["disk_bytes"]), ""
        )
    for split, apart in document["detectable"].items():
        table.add_row(
            f"{document['examples'][split]:,} {split} rows tell apart",
            f"{100 * apart['runs']:.1f} points",
            f"of accuracy between two runs, 4 times out of 5; {100 * apart['limit']:.1f} points "
            "from a gate's limit",
        )
    return table
