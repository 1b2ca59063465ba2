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
    """Returns the head of a refusal: there is no such verb, and what to type for it."""
    word = typed.lower().replace("_", "-")
    suggestion = str(other_names("verbs").get(word, ""))
    if not suggestion:
        return unknown("verb", typed, [verb.name for verb in VERBS])
    message = f"unknown verb '{typed}'"
    if suggestion.startswith("bertctl "):
        return f"{message}: use {suggestion}"
    return f"{message}, and {suggestion}"


def unknown_group_verb(group: str, typed: str, known: Collection[str]) -> str:
    """Returns the head of a refusal of `bertctl GROUP WORD`."""
    suggestion = other_names("group_verbs").get(group, {}).get(typed.lower())
    if suggestion is None:
        return unknown("verb", f"{group} {typed}", [f"{group} {name}" for name in known])
    return f"unknown verb '{group} {typed}': use bertctl {group} {suggestion}"


def option_hint(option: str, following: str, command: str, options: Sequence[str]) -> str:
    """Returns what to type in place of an unknown option; an empty text if nothing comes near.

    Args:
        option: As it was typed, perhaps with `=VALUE`.
        following: The word behind it, if there is one.
        command: The verb, such as `data check`.
        options: Those that the verb has.
    """
    flag, _, value = option.partition("=")
    if not value and following and not following.startswith("-"):
        value = following
    word = flag.lstrip("-").replace("-", "_").lower()
    # Something to type, such as `--output`, or a sentence of its own.
    known_answer = other_names("options").get(command, {}).get(word)
    if known_answer is not None:
        if known_answer.startswith(("bertctl ", "--")):
            return f"use {known_answer}"
        return str(known_answer)

    by_other_name = _by_other_name(word, value, options)
    if by_other_name:
        return by_other_name

    verbs = [name for name in _verbs_with(flag) if name != command]
    if verbs:
        if len(verbs) > _SHOWN:
            others = f" and {len(verbs) - _SHOWN} more"
        else:
            others = ""
        nearest = did_you_mean(
            flag,
            _long(options),
            mark="--",
            cutoff=_NEARER,
        )
        if len(verbs) == 1:
            have = "has it"
        else:
            have = "have it"
        return ", ".join(filter(None, [nearest, f"{', '.join(verbs[:_SHOWN])}{others} {have}"]))
    return did_you_mean(
        flag,
        _long(options),
        mark="--",
        cutoff=_NEAR,
    )


def argument_hint(command: str, words: str) -> str:
    """Returns what to type in place of arguments that a verb has no place for.

    Args:
        command: The verb.
        words: What was typed, the words parted by blanks.
    """
    suggestion = other_names("arguments").get(command)
    if suggestion:
        return f"use {suggestion.format(shlex.quote(words.split(' ')[0]))}"
    return ""


def extra_arguments(message: str) -> str:
    """Returns the arguments that are too many, by a message of Typer; empty for other messages."""
    match = re.search(
        r"unexpected extra arguments? \((.*)\)", message.replace("argument(s)", "arguments")
    )
    return match[1] if match else ""


def _by_other_name(word: str, value: str, options: Sequence[str]) -> str:
    """Returns what to type for a field of a recipe, or for what other programs call it."""
    from bertctl.cli.framework.recipe_options import FLAGS
    from bertctl.config.problems import meant

    hint = ""
    for target in reversed(meant(word)):
        name, _, fixed = target.partition("=")
        flag = FLAGS.get(name, name)
        if flag in options or name.startswith("bertctl "):
            hint = f"use {flag} {fixed}".rstrip()
        elif "." in name and "--set" in options:
            hint = f"use --set {name}={fixed or shlex.quote(value or 'VALUE')}"
    return hint


def _long(options: Sequence[str]) -> list[str]:
    return [flag for flag in options if flag.startswith("--")]


def _verbs_with(flag: str) -> list[str]:
    """Returns the verbs that have an option of exactly this name."""
    if not flag.startswith("--"):
        return []
    verbs = []
    for verb in VERBS:
        for name, function in verb_functions(verb).items():
            if flag in _flags(function):
                verbs.append(name if name == verb.name else f"{verb.name} {name}")
    return verbs


def _flags(function: Any) -> set[str]:
    """Returns the options of a verb's function, by its annotations."""
    flags: set[str] = set()
    for parameter in inspect.signature(function).parameters.values():
        for option in getattr(parameter.annotation, "__metadata__", ()):
            # Inside of Annotated, Typer takes the first name of an option for its default.
            declared = (option.default, *(option.param_decls or ()))
            names = [name for name in declared if isinstance(name, str) and name.startswith("-")]
            for name in names:
                flags.update(name.split("/"))
    return flags
