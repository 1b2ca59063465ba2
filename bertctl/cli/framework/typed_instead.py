"""What to type in place of a verb, an option or an argument that there is none of."""

import inspect
import re
import shlex
from collections.abc import Collection, Sequence
from typing import Any

from bertctl.cli.app import VERBS, verb_functions
from bertctl.config.other_names import other_names
from bertctl.words import did_you_mean, unknown

_NEAR = 0.7
"""How alike an option has to be that is offered: `--threshold` is not `--threads`."""
_NEARER = 0.85
"""The same for an option that other verbs have, as it was probably typed as meant."""
_SHOWN = 4


def unknown_verb(typed: str) -> str:
    """Returns the message about an unknown verb: its name, and what to type instead."""
    word = typed.lower().replace("_", "-")
    # What bertctl has for verbs of other programs: a command, or a sentence.
    suggestion = str(other_names("verbs").get(word, ""))
    if not suggestion:
        return unknown("verb", typed, [verb.name for verb in VERBS])
    message = f"unknown verb '{typed}'"
    if suggestion.startswith("bertctl "):
        return f"{message}: use {suggestion}"
    return f"{message}, and {suggestion}"


def unknown_group_verb(group: str, typed: str, known: Collection[str]) -> str:
    """Returns the message about an unknown verb of a group, with what to type instead.

    Args:
        group: The group, such as `vocab`.
        typed: The verb as it was typed.
        known: The verbs of the group.
    """
    suggestion = other_names("group_verbs").get(group, {}).get(typed.lower())
    if suggestion is None:
        return unknown("verb", f"{group} {typed}", [f"{group} {name}" for name in known])
    return f"unknown verb '{group} {typed}': use bertctl {group} {suggestion}"


def option_hint(option: str, following: str, command: str, options: Sequence[str]) -> str:
    """Returns what to type in place of an unknown option; an empty text if nothing comes near.

    Args:
        option: The option as it was typed, perhaps with `=VALUE`.
        following: The word behind it on the command line; empty if there is none.
        command: The verb, such as `data check`.
        options: The options that the verb has.
    """
    flag, _, value = option.partition("=")
    if not value and following and not following.startswith("-"):
        value = following
    word = flag.lstrip("-").replace("-", "_").lower()

    # 1. bertctl has an answer for this word with this verb: something to type, or a sentence.
    known_answer = other_names("options").get(command, {}).get(word)
    if known_answer is not None:
        if known_answer.startswith(("bertctl ", "--")):
            return f"use {known_answer}"
        return str(known_answer)

    # 2. The word is a field of recipes, or a name that other programs have for one.
    by_other_name = _by_other_name(word, value, options)
    if by_other_name:
        return by_other_name

    # 3. Other verbs have this option. It was probably meant as typed, so an option of this verb is
    # suggested as well only if it is very near.
    verbs = [name for name in _verbs_with(flag) if name != command]
    if verbs:
        nearest = did_you_mean(flag, _long(options), mark="--", cutoff=_NEARER)
        owners = _who_has_it(verbs)
        return f"{nearest}, {owners}" if nearest else owners

    # 4. An option of this verb is near.
    return did_you_mean(flag, _long(options), mark="--", cutoff=_NEAR)


def _who_has_it(verbs: Sequence[str]) -> str:
    """Returns which verbs have an option: `probe has it`, or the first verbs and how many more."""
    if len(verbs) > _SHOWN:
        others = f" and {len(verbs) - _SHOWN} more"
    else:
        others = ""
    if len(verbs) == 1:
        have = "has it"
    else:
        have = "have it"
    return f"{', '.join(verbs[:_SHOWN])}{others} {have}"


def argument_hint(command: str, words: str) -> str:
    """Returns what to type instead of further arguments, which a verb does not take.

    Args:
        command: The verb.
        words: The further arguments, separated by blanks.
    """
    suggestion = other_names("arguments").get(command)
    if suggestion:
        first_word = words.split(" ")[0]
        return f"use {suggestion.format(shlex.quote(first_word))}"  # it stands for `{}`
    return ""


def extra_arguments(message: str) -> str:
    """Returns the arguments that are too many, by a message of Typer; empty for other messages."""
    match = re.search(
        r"unexpected extra arguments? \((.*)\)", message.replace("argument(s)", "arguments")
    )
    return match[1] if match else ""


def _by_other_name(word: str, value: str, options: Sequence[str]) -> str:
    """Returns what to type for a field of a recipe, or for another program's name; else nothing.

    Args:
        word: The name without dashes, such as `epochs` or `num_train_epochs`.
        value: What was typed as its value; empty if nothing was.
        options: The options that the verb has.
    """
    from bertctl.cli.framework.recipe_options import FLAGS
    from bertctl.config.problems import meant

    for target in meant(word):
        # A target is a field, a field with a value, an option or a command.
        name, _, value_of_target = target.partition("=")
        flag = FLAGS.get(name, name)
        if flag in options or name.startswith("bertctl "):
            return f"use {flag} {value_of_target}".rstrip()
        if "." in name and "--set" in options:
            return f"use --set {name}={value_of_target or shlex.quote(value or 'VALUE')}"
    return ""


def _long(options: Sequence[str]) -> list[str]:
    """Returns the options that are words, such as `--epochs`, and no letters."""
    return [flag for flag in options if flag.startswith("--")]


def _verbs_with(flag: str) -> list[str]:
    """Returns the verbs that have an option of exactly this name, such as `--epochs`.

    For short flags, such as `-k`, it returns none: a letter means something else to each verb.
    """
    if not flag.startswith("--"):
        return []
    verbs = []
    for verb in VERBS:
        for name, function in verb_functions(verb).items():
            if flag in _flags(function):
                verbs.append(name if name == verb.name else f"{verb.name} {name}")
    return verbs


def _flags(function: Any) -> set[str]:
    """Returns the options that a verb's function has, such as `--epochs`, by its annotations."""
    flags: set[str] = set()
    for parameter in inspect.signature(function).parameters.values():
        for option in getattr(parameter.annotation, "__metadata__", ()):
            # Typer stores the first name of `typer.Option("--output", "-o")` as `default`.
            declared = (option.default, *(option.param_decls or ()))
            names = [name for name in declared if isinstance(name, str) and name.startswith("-")]
            for name in names:
                flags.update(name.split("/"))  # such as `--lowercase/--cased`
    return flags
