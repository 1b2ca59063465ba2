"""The last line of a command that made something: what you would type next."""

import shlex
from pathlib import Path

from bertctl.cli.framework.output import Output
from bertctl.cli.framework.recipe_options import SWITCHES
from bertctl.cli.framework.recipe_requests import RecipeRequest
from bertctl.config.task_names import PRETRAINING, verb_of
from bertctl.words import command


def say_next(out: Output, text: str) -> None:
    """Writes the next command to stderr; nothing with `--quiet`.

    Args:
        out: Prints the message.
        text: The command as it is typed. Words in capitals stand for what the user has to fill in.
    """
    out.say(f"Next: {text}")


def use_of_run(run: Path, task: str) -> str:
    """Returns the command that uses a trained run.

    Args:
        run: The run's folder.
        task: The run's task, as its recipe names it.
    """
    if task == PRETRAINING:
        return command("finetune FILE", model=run)
    if task == "question-answering":
        return command("predict", run, "--question TEXT --context FILE")
    if task == "sentence-embeddings":
        return command("index FILE", model=run, output="INDEX")
    return command("predict", run, "FILE")


def use_of_sweep(folder: Path, chosen: str | None, task: str) -> str:
    """Returns the command that uses the chosen run of a sweep, or that trains its setting again.

    Args:
        folder: The sweep's folder.
        chosen: Name of the recommended run; None if no run was trained to its end.
        task: The task, as the recipe names it.
    """
    from bertctl.run_folder import RunFolder

    if chosen is not None:
        run = RunFolder(folder / "cells" / chosen)
        if run.model.is_dir():
            return use_of_run(run.path, task)
    return command("finetune", folder / "best.yaml")


def training_command(request: RecipeRequest, name: str, task: str, **further: object) -> str:
    """Returns the command that trains a recipe, with the options of the command that looked at it.

    Args:
        request: The recipe and options that were typed, such as for `estimate`.
        name: The recipe, or the file of training rows.
        task: Its task.
        further: Options to add, by their names in Python.
    """
    typed = []
    for field, value in request.options.items():
        if field not in SWITCHES:
            continue
        # A field that is on or off has two options, such as `--header/--no-header`.
        affirmative, _, negative = SWITCHES[field].partition("/")
        if isinstance(value, bool):
            typed.append(affirmative if value else negative)
        else:
            typed += [affirmative, shlex.quote(str(value))]
    for assignment in request.sets:
        typed += ["--set", shlex.quote(assignment)]
    # An option without a negative form has left an empty word.
    words = [shlex.quote(name), *filter(None, typed)]
    return command(f"{verb_of(task)} {' '.join(words)}", **further)
