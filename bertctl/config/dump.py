"""Recipes as text: commented YAML that reads back equal.

It also has the hash over what decides the numbers.
"""

import hashlib
import json
import sys
import textwrap
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import yaml

from bertctl.config.agreement import TASK_SECTIONS
from bertctl.config.field_docs import field_docs, section_docs
from bertctl.config.presets import fields_left_to_auto, shown_values
from bertctl.config.recipe_sections import (
    DistillationSection,
    FewShotSection,
    LoraSection,
    Mark,
    ProbeSection,
)
from bertctl.config.removed import REMOVED
from bertctl.config.schema import Recipe, fields, marked
from bertctl.config.strict_yaml import Dumper, Prose
from bertctl.config.task_names import PRETRAINING
from bertctl.words import harmless

_WIDTH = 110

NOT_IN_HASH = marked(Mark.BY_CONTENT) | marked(Mark.NO_NUMBER)
"""Fields that are not in a recipe's hash: they change no number, or only by a file's content."""


def dump_recipe(recipe: Recipe, *, command: str, only: Collection[str] | None = None) -> str:
    """Returns the recipe as YAML, which `load_recipe` reads back equal.

    A comment with a command comes first, then each field under its docstring. The settings of
    other tasks are left out: they have their defaults. A field that the preset `auto` chooses
    later is written as a comment.

    Args:
        recipe: The recipe.
        command: The command that runs the file, such as `bertctl finetune RUN/recipe.yaml`.
        only: Dotted names of the fields to write; None writes all.
    """
    lines = [f"# {harmless(' '.join(command.split()))}"]
    if only is not None:
        lines.append("# Every other field has its default, and paths are relative to this file.")
    open_fields = fields_left_to_auto(recipe)
    current_section = ""
    for dotted, value in own_fields(recipe):
        if only is not None and dotted not in only:
            continue
        section, _, name = dotted.rpartition(".")
        indent = "  " if section else ""
        if section != current_section:
            lines += ["", *_comment(section_docs()[section], ""), f"{section}:"]
            current_section = section
        elif not section:
            # Fields outside of sections, which come first, are parted by blank lines.
            lines.append("")
        lines += _comment(field_docs()[dotted].text, indent)
        if dotted in open_fields:
            lines.append(f"{indent}# {name}: {value}")
            continue
        lines += textwrap.indent(_yaml(name, value), indent).splitlines()
    return "\n".join(lines) + "\n"


def recipe_hash(recipe: Recipe, *, data_hashes: Mapping[str, str], model_hash: str) -> str:
    """Returns the SHA-256 (hexadecimal) of everything that decides a run's numbers.

    That is: the settings, the content of the data, and the model's files. Names, descriptions,
    paths, logging, what is saved of the texts, and settings of other tasks are left out.

    The hash of a recipe must not change from one version of bertctl to the next. So a field that
    came later counts only if it is used, and a removed one counts with its old default.

    Args:
        recipe: The recipe with the device, precision and threads that are really used, not `auto`.
        data_hashes: Split (or metric script) -> hash of its content.
        model_hash: Hash of the encoder's files, in place of `model.name` and `model.revision`.
    """
    values = dict(own_fields(recipe))
    hashed: dict[str, Any] = {}
    for dotted, value in values.items():
        is_unused = dotted in marked(Mark.LATER) and value == fields()[dotted].get_default()
        if dotted not in NOT_IN_HASH and not is_unused:
            hashed[dotted] = value
    own_sections = {dotted.partition(".")[0] for dotted in values}
    hashed |= {
        dotted: old_default
        for dotted, old_default in REMOVED.items()
        if dotted.partition(".")[0] in own_sections
    }

    document = {"recipe": hashed, "data": dict(data_hashes), "model": model_hash}
    canonical = json.dumps(
        document,
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=True,
        allow_nan=False,
    )
    return hashlib.sha256(canonical.encode()).hexdigest()


def differing(
    before: Recipe, now: Recipe, *, but: Collection[str] = NOT_IN_HASH
) -> list[tuple[str, Any, Any]]:
    """Returns the fields in which two recipes differ: (dotted name, old value, new value) each.

    A setting that only one of the recipes has, because their tasks differ, is None in the other.

    Args:
        before: The old recipe.
        now: The new recipe.
        but: Dotted names of fields that are not compared.
    """
    old_values = dict(own_fields(before))
    new_values = dict(own_fields(now))
    names = [name for name in old_values | new_values if name not in but]
    rows = [(name, old_values.get(name), new_values.get(name)) for name in names]
    return [(name, old, new) for name, old, new in rows if old != new]


def own_fields(recipe: Recipe) -> Iterator[tuple[str, Any]]:
    """Yields (dotted name, value) of the fields that can matter for the recipe's task.

    Sections of other tasks are left out, and so are those of a probe, few-shot training, LoRA and
    distillation if the recipe does not change them.

    The value of a field that the preset `auto` chooses later is the text `auto`.
    """
    values = shown_values(recipe)
    left_out = {section for task, section in TASK_SECTIONS.items() if task != recipe.task}
    # Masking belongs to pretraining, beside the task's own section.
    if recipe.task != PRETRAINING:
        left_out.add("masking")
    if recipe.probe == ProbeSection():
        left_out.add("probe")
    if recipe.few_shot == FewShotSection():
        left_out.add("few_shot")
    if recipe.lora == LoraSection():
        left_out.add("lora")
    if recipe.distillation == DistillationSection():
        left_out.add("distillation")
    for dotted in fields():
        section, _, name = dotted.rpartition(".")
        if section in left_out:
            continue
        if section:
            yield dotted, values[section][name]
        else:
            yield dotted, values[name]


def _comment(text: str, indent: str) -> list[str]:
    """Returns the lines of a YAML comment, wrapped: `"Seed."` -> `["  # Seed."]`."""
    mark = f"{indent}# "
    lines = textwrap.wrap(
        " ".join(text.split()),
        _WIDTH - len(mark),
        break_on_hyphens=False,
        break_long_words=False,
    )
    return [mark + line for line in lines]


def _yaml(name: str, value: Any) -> str:
    """Returns `name: value` as YAML on one line; only a long description is folded."""
    if isinstance(value, list):
        return f"{name}: {_dumped(value, flow=True, width=sys.maxsize)}"
    if name == "description" and len(value) > _WIDTH and value.isprintable():
        return _dumped({name: Prose(value)}, flow=False, width=_WIDTH)
    return _dumped({name: value}, flow=False, width=sys.maxsize)


def _dumped(value: Any, *, flow: bool, width: int) -> str:
    """Returns a value as YAML.

    Args:
        value: A plain value, a list or a dictionary.
        flow: Whether a list is on one line (`[1, 2]`). Otherwise each entry has a line.
        width: Characters after which a long text is folded.
    """
    text: str = yaml.dump(
        value,
        Dumper=Dumper,
        default_flow_style=flow,
        allow_unicode=True,
        width=width,
    )
    return text.rstrip("\n")
