"""Help that a person can read in 80 columns: options in groups, each with its text below it.

`--help` shows the usual options and the first paragraph about each; `--help-all` shows everything.
Nothing here needs rich, so help comes at once.
"""

import inspect
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, cast

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from bertctl.cli.framework.doc_pages import pages_of_verb
from bertctl.cli.framework.folding import refuse_typed_addresses
from bertctl.cli.framework.streams import wants_colours
from bertctl.words import shorten

RARE = "Rarely needed"
"""Options under this heading are shown by `--help-all` only."""
SHARED = "Output and connection"
_OPTIONS = "Options"
_WIDEST = 100  # longer lines are hard to read
_NARROW = 20  # flags up to this width have their text beside them
_METAVARS = {"<int>": "N", "<int range>": "N", "<float>": "X", "<str>": "NAME"}


def described(docstring: str) -> tuple[str, dict[str, str]]:
    """Returns the help of a verb and that of its options, by parameter.

    The first is its docstring without `Args:`, the second are the entries below it.
    """
    before, _, rest = inspect.cleandoc(docstring).partition("\n\nArgs:\n")
    section, title, examples = rest.partition("\n\nExamples:\n")
    entries = re.split(r"^(\w+):", textwrap.dedent(section), flags=re.MULTILINE)
    texts = map(_unwrapped, entries[2::2])
    return before + title + examples, dict(zip(entries[1::2], texts, strict=True))


def _unwrapped(text: str) -> str:
    """Returns a text with each of its paragraphs on one line."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


class VerbCommand(TyperCommand):
    """Verb whose help is laid out here."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Writes what `--help` shows."""
        formatter.write(verb_help(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads what was typed.

        For completion it makes no values of it, because Typer does that with pydantic.
        """
        if not ctx.resilient_parsing:
            if any(":/" in word for word in args):
                typed, _, _ = self.make_parser(ctx).parse_args([*args])
                refuse_typed_addresses(self.get_params(ctx), typed)
            return super().parse_args(ctx, args)
        typed, ctx.args, _ = self.make_parser(ctx).parse_args(args)
        for parameter in self.get_params(ctx):
            ctx.params[parameter.name], source = parameter.consume_value(ctx, typed)
            ctx.set_parameter_source(parameter.name, source)
        return cast(list[str], ctx.args)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Returns what completes a word, with a line about each option."""
        items = super().shell_complete(ctx, incomplete)
        for item in items:
            item.help = shorten(_first_paragraph(item.help), 70)
        return items


class VerbGroup(TyperGroup):
    """Group of verbs under one name, whose help is laid out here."""

    command_class = VerbCommand

    def get_params(self, ctx: Any) -> list[Any]:
        """Returns the options of the group, all of them flags that are off.

        Typer needs pydantic to read None.
        """
        parameters = super().get_params(ctx)
        for parameter in parameters:
            parameter.default = parameter.default or False
        return parameters

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Writes what `--help` shows."""
        formatter.write(group_help(ctx))


def show_all(ctx: typer.Context, is_requested: bool) -> None:
    """Prints the whole help of a verb and ends; the callback of `--help-all`."""
    if is_requested and not ctx.resilient_parsing:
        typer.echo(verb_help(ctx, everything=True), nl=False)
        raise typer.Exit


def verb_help(ctx: typer.Context, *, everything: bool = False) -> str:
    """Returns the help of one verb.

    Args:
        ctx: of the verb.
        everything: whether options that are rarely needed, and all that is to be said of each, are
            shown too.
    """
    parameters = ctx.command.get_params(ctx)
    arguments = [parameter for parameter in parameters if isinstance(parameter, TyperArgument)]
    panels: dict[str, list[tuple[str, str]]] = {}
    for option in parameters:
        if not isinstance(option, TyperOption):
            continue
        if option.name == "help":
            panel = SHARED
        else:
            panel = option.rich_help_panel or _OPTIONS
        if everything or panel != RARE:
            panels.setdefault(panel, []).append(
                (_flags(option, ctx), _text(option, everything=everything))
            )
    usage = " ".join(
        [
            "Usage:",
            ctx.command_path,
            *(_metavar(parameter, ctx) for parameter in arguments),
            "[OPTIONS]",
        ]
    )
    parts = [usage, *_paragraphs(ctx.command.help or "")]
    if arguments:
        rows = [
            (_metavar(parameter, ctx), _text(parameter, everything=everything))
            for parameter in arguments
        ]
        parts.append(_section("Arguments", rows))
    parts += [_section(title, rows) for title, rows in panels.items()]
    parts += _read_more(ctx)
    return "\n\n".join(parts) + "\n"


def group_help(ctx: typer.Context) -> str:
    """Returns the help of a group: its verbs by panel, then its options."""
    group = cast(TyperGroup, ctx.command)
    panels: dict[str, list[tuple[str, str]]] = {}
    for name in group.list_commands(ctx):
        verb: Any = group.get_command(ctx, name)
        panels.setdefault(verb.rich_help_panel or "Verbs", []).append(
            (name, _first_paragraph(verb.help))
        )
    column = max(len(name) for name, _ in chain.from_iterable(panels.values()))
    options = [option for option in group.get_params(ctx) if isinstance(option, TyperOption)]
    parts = [f"Usage: {ctx.command_path} VERB ...", *_paragraphs(group.help or "")]
    parts += [_section(title, rows, column=column) for title, rows in panels.items()]
    parts.append(
        _section(
            _OPTIONS, [(_flags(option, ctx), _text(option, everything=False)) for option in options]
        )
    )
    parts += _paragraphs(f"{ctx.command_path} VERB --help explains a verb and its options.")
    parts += _read_more(ctx)
    return "\n\n".join(parts) + "\n"


def _read_more(ctx: typer.Context) -> list[str]:
    """Returns the last line of the help of a verb: its pages of documentation, if it has any."""
    _, *words = ctx.command_path.split()
    pages = pages_of_verb(words[0]) if words else []
    if not pages:
        return []
    return ["Read more: " + ", ".join(f"bertctl docs {page}" for page in pages)]


def _width() -> int:
    return max(2 * _NARROW, min(_WIDEST, shutil.get_terminal_size().columns))


def _bold(text: str) -> str:
    if wants_colours(sys.stdout):
        return typer.style(text, bold=True)
    return text


def _section(title: str, rows: Sequence[tuple[str, str]], *, column: int = 0) -> str:
    """Returns a group of rows, in two columns if there is room, else each text below its flags.

    Args:
        title: the heading.
        rows: flags (or a name) and text of each.
        column: least width of the first of two columns.
    """
    wide = max(column, *(len(flags) for flags, _ in rows))
    room = _width() - wide - 4
    if wide <= _NARROW or all(len(text) <= room for _, text in rows):
        lines = [_beside(flags, text, wide, room) for flags, text in rows]
    else:
        lines = [f"  {_bold(flags)}\n{_indented(text)}" for flags, text in rows]
    return "\n".join([_bold(title), *lines])


def _beside(flags: str, text: str, wide: int, room: int) -> str:
    """Returns an option's flags with its text in a second column.

    The first column is `wide` characters wide, the second `room`.
    """
    first_line, *further_lines = textwrap.wrap(text, room) or [""]
    return "\n".join(
        [
            f"  {_bold(flags)}{' ' * (wide - len(flags))}  {first_line}",
            *(" " * (wide + 4) + line for line in further_lines),
        ]
    )


def _indented(text: str) -> str:
    paragraphs = (
        textwrap.fill(paragraph, _width() - 6, break_on_hyphens=False)
        for paragraph in text.split("\n\n")
    )
    return textwrap.indent("\n".join(paragraphs), " " * 6)


def _paragraphs(docstring: str) -> Iterable[str]:
    """Yields the paragraphs of a docstring, folded to the width; examples stay as they are."""
    for paragraph in docstring.split("\n\n"):
        title, _, examples = paragraph.partition("\n")
        if title == "Examples:":
            yield f"{_bold('Examples')}\n{textwrap.indent(textwrap.dedent(examples), '  ')}"
        else:
            yield textwrap.fill(paragraph, _width())


def _flags(option: TyperOption, ctx: typer.Context) -> str:
    words = ", ".join([*sorted(option.opts, key=len), *option.secondary_opts])
    if option.is_flag:
        return words
    return f"{words} {_metavar(option, ctx)}"


def _metavar(parameter: "TyperOption | TyperArgument", ctx: typer.Context) -> str:
    if parameter.metavar:
        return parameter.metavar
    if isinstance(parameter, TyperArgument):
        return parameter.name.upper()
    kind = parameter.display_type(ctx)
    return _METAVARS.get(kind, kind.strip("<>"))


def _text(parameter: "TyperOption | TyperArgument", *, everything: bool) -> str:
    """Returns the help of a parameter with its default; its first paragraph or everything."""
    text = parameter.help or ""
    if not everything:
        text = _first_paragraph(text)
    default = parameter.default
    is_number = isinstance(default, (int, float)) and not isinstance(default, bool)
    if not default and not is_number:  # nothing to say of None, False and empty values, but of 0
        return text
    if default is True:
        default = parameter.opts[0]
    elif isinstance(default, float):
        default = f"{default:g}"
    return f"{text} Default: {default}."


def _first_paragraph(text: str | None) -> str:
    return " ".join((text or "").partition("\n\n")[0].split())
