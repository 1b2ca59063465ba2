"""The options of each verb are a promise.

They are those of `surface.txt`, and the help of each can be read.

After a change that is meant: python -m tests.cli.test_surface > tests/cli/surface.txt
"""

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.core import TyperArgument, TyperGroup, TyperOption

from bertctl.cli.app import VERBS, build
from bertctl.cli.framework.help import RARE, SHARED, described, group_help, verb_help
from bertctl.cli.main import main
from bertctl.errors import ExitCode

SURFACE = Path(__file__).with_name("surface.txt")


def commands() -> Iterator[tuple[str, typer.Context]]:
    """Name and context of each verb, those of a group one by one."""
    top = build()
    above = typer.Context(top, info_name="bertctl", **top.context_settings)
    for verb in VERBS:
        _, command, _ = top.resolve_command(above, [verb.name])
        context = typer.Context(command, info_name=verb.name, parent=above)
        if not isinstance(command, TyperGroup):
            yield verb.name, context
            continue
        for name in command.list_commands(context):
            yield (
                f"{verb.name} {name}",
                typer.Context(command.get_command(context, name), context, info_name=name),
            )


COMMANDS = dict(commands())


def options(context: typer.Context) -> list[TyperOption]:
    return [one for one in context.command.get_params(context) if isinstance(one, TyperOption)]


def is_shared(option: TyperOption) -> bool:
    return option.rich_help_panel == SHARED or option.name == "help"


def flags(option: TyperOption) -> str:
    return " ".join([*sorted(option.opts, key=len, reverse=True), *option.secondary_opts])


def surface() -> str:
    """Each verb with its arguments, under it its options in the order of the alphabet."""
    shared = sorted(
        {flags(one) for context in COMMANDS.values() for one in options(context) if is_shared(one)}
    )
    parts = ["every verb", *(f"  {one}" for one in shared)]
    for name, context in COMMANDS.items():
        arguments = [
            one.metavar
            for one in context.command.get_params(context)
            if isinstance(one, TyperArgument)
        ]
        parts += ["", " ".join([name, *map(str, arguments)])]
        parts += sorted(f"  {flags(one)}" for one in options(context) if not is_shared(one))
    return "\n".join(parts) + "\n"


def test_the_options_of_each_verb_are_those_that_were_promised():
    assert surface() == SURFACE.read_text(encoding="utf-8")


def test_all_verbs_and_options_were_looked_at():
    lines = SURFACE.read_text(encoding="utf-8").splitlines()
    assert len(VERBS) == 35
    assert len(COMMANDS) == sum(bool(line) and not line.startswith(" ") for line in lines) - 1 == 51
    assert sum(line.startswith("  -") for line in lines) == 789


@pytest.mark.parametrize("name", COMMANDS)
def test_help_can_be_read_in_80_columns(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = verb_help(COMMANDS[name]).splitlines()
    assert len(lines) <= 112
    assert [line for line in lines if len(line) > 80] == []
    assert all(line == line.rstrip() for line in lines)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_says_what_it_does_and_only_rare_ones_wait_for_help_all(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    context = COMMANDS[name]
    usual = verb_help(context)
    everything = verb_help(context, everything=True)
    for parameter in context.command.get_params(context):
        assert len(parameter.help or "") > 10, parameter.name
        if isinstance(parameter, TyperOption):
            shown = re.compile(rf"^  .*{re.escape(parameter.opts[0])}\b", re.MULTILINE)
            assert shown.search(everything), parameter.opts
            assert bool(shown.search(usual)) == (parameter.rich_help_panel != RARE), parameter.opts


def test_an_option_that_ends_the_line_wants_its_value(capsys):
    looked_at = 0
    for name, context in COMMANDS.items():
        for option in [one.opts[0] for one in options(context) if not one.is_flag][:1]:
            assert main([*name.split(), option]) == ExitCode.USAGE
            assert f"error: Option '{option}' requires an argument." in capsys.readouterr().err
            looked_at += 1
    assert looked_at == 41


@pytest.mark.parametrize("name", COMMANDS)
def test_the_docstring_of_a_verb_describes_options_that_it_has(name):
    command = COMMANDS[name].command
    verb = inspect.unwrap(command.callback)
    options = {parameter.name for parameter in command.params}
    text, texts = described(verb.__doc__)
    assert texts.keys() <= options | inspect.signature(verb).parameters.keys()
    assert text == command.help


@pytest.mark.in_process
def test_help_all_says_more_than_help(bertctl):
    usual = bertctl("finetune", "--help")
    everything = bertctl("finetune", "--help-all")
    assert everything.returncode == 0
    assert everything.stderr == ""
    assert "--gradient-checkpointing" in everything.stdout
    assert "--gradient-checkpointing" not in usual.stdout
    assert "Recipe field: training.epochs." in " ".join(everything.stdout.split())
    assert "Recipe field" not in usual.stdout


@pytest.mark.parametrize("width", [40, 80, 120, 300])
def test_the_table_of_verbs_fits_any_width(width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    top = build()
    lines = group_help(typer.Context(top, info_name="bertctl")).splitlines()
    assert max(map(len, lines)) <= min(width, 100)
    for verb in VERBS:
        assert any(line.startswith(f"  {verb.name} ") for line in lines)


@pytest.mark.parametrize("words", [("--help",), ("predict", "--help"), ("vocab", "--help")])
@pytest.mark.parametrize("columns", ["1", "20"])
def test_help_is_shown_however_narrow_it_is(bertctl, words, columns):
    done = bertctl(*words, env={"COLUMNS": columns})
    assert done.returncode == 0
    assert done.stderr == ""


if __name__ == "__main__":
    sys.stdout.write(surface())


def test_no_summary_begins_with_say():
    summaries = [verb.summary for verb in VERBS]
    summaries += [context.command.help or "" for context in COMMANDS.values()]
    assert [text for text in summaries if text.split()[0] in ("Say", "Bring", "Put")] == []
