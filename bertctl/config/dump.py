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
"""Fields that decide numbers by the content behind them, or decide none."""


def dump_recipe(recipe: Recipe, *, command: str, only: Collection[str] | None = None) -> str:
    """Returns the recipe as YAML.

    It has a comment with the command that runs it, then each field under its docstring.

    `load_recipe` reads it back equal. The settings of other tasks are left out: they can only be
    the defaults. A field that the preset `auto` is to choose is a comment.

    Args:
        recipe: what to write.
        command: such as `bertctl finetune RUN/recipe.yaml`.
        only: Fields to write; the others are left to their defaults. None writes all.
    """
    lines = [f"# {harmless(' '.join(command.split()))}"]
    if only is not None:
        lines.append("# Every other field has its default, and paths are relative to this file.")
    open_fields = fields_left_to_auto(recipe)
    section_before = ""
    for dotted, value in own_fields(recipe):
        if only is not None and dotted not in only:
            continue
        section, _, name = dotted.rpartition(".")
        indent = "  " if section else ""
        if section != section_before:
            lines += ["", *_comment(section_docs()[section], ""), f"{section}:"]
            section_before = section
        elif not section:
            lines.append("")
        lines += _comment(field_docs()[dotted].text, indent)
        if dotted in open_fields:
            lines.append(f"{indent}# {name}: {value}")
            continue
        lines += textwrap.indent(_yaml(name, value), indent).splitlines()
    return "\n".join(lines) + "\n"


def recipe_hash(recipe: Recipe, *, data_hashes: Mapping[str, str], model_hash: str) -> str:
    """Returns the SHA-256 (hexadecimal) of what decides a run's numbers.

    That is the settings, the data by content and the model by its files.

    Names, descriptions, paths, logging and what is kept of the texts are not in it, nor are other
    tasks' settings.

    Args:
        recipe: resolved: with the device, precision and threads that are used in place of `auto`
            and nothing.
        data_hashes: split (or metric script) -> hash of its content.
        model_hash: of the encoder's files, in place of `model.name` and `model.revision`.
    """
    overridden = dict(own_fields(recipe))
    decides = {
        dotted: value
        for dotted, value in overridden.items()
        if dotted not in NOT_IN_HASH
        and not (dotted in marked(Mark.LATER) and value == fields()[dotted].get_default())
    }
    own_sections = {dotted.partition(".")[0] for dotted in overridden}
    decides |= {
        dotted: value
        for dotted, value in REMOVED.items()
        if dotted.partition(".")[0] in own_sections
    }
    document = {"recipe": decides, "data": dict(data_hashes), "model": model_hash}
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
    """Returns the fields that are not the same in two recipes, `but` for some.

    Each has its name, the value then, and the value now.

    A field of the task of one of them alone is None in the other.
    """
    old_values = dict(own_fields(before))
    new_values = dict(own_fields(now))
    names = [name for name in old_values | new_values if name not in but]
    rows = [(name, old_values.get(name), new_values.get(name)) for name in names]
    return [(name, old, new) for name, old, new in rows if old != new]


def own_fields(recipe: Recipe) -> Iterator[tuple[str, Any]]:
    """Yields the fields of the recipe's shared sections and of its task's section.

    It yields those of a probe where it is one.

    The value of a field that the preset `auto` is to choose is `auto`.
    """
    values = shown_values(recipe)
    left_out = {section for task, section in TASK_SECTIONS.items() if task != recipe.task}
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
        if section not in left_out:
            yield dotted, values[section][name] if section else values[name]


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
    """Returns a value as YAML: `[1, 2]` on one line where `flow`, else an entry a line."""
    text: str = yaml.dump(
        value,
        Dumper=Dumper,
        default_flow_style=flow,
        allow_unicode=True,
        width=width,
    )
    return text.rstrip("\n")
