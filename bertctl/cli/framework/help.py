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
    """Parts the docstring of a verb into the help of the verb and that of its options.

    Returns:
        The docstring without its section `Args:`; and the entries of that section, by parameter.
    """
    before_args, _, rest = inspect.cleandoc(docstring).partition("\n\nArgs:\n")
    args_section, title, examples = rest.partition("\n\nExamples:\n")
    # The split yields what is before the first name, then each name followed by its text.
    _, *names_and_texts = re.split(r"^(\w+):", textwrap.dedent(args_section), flags=re.MULTILINE)
    names = names_and_texts[::2]
    texts = map(_unwrapped, names_and_texts[1::2])
    return before_args + title + examples, dict(zip(names, texts, strict=True))


def _unwrapped(text: str) -> str:
    """Returns a text with each of its paragraphs on one line."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


class VerbCommand(TyperCommand):
    """Verb whose help is laid out here."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Writes what `--help` shows."""
        formatter.write(verb_help(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads the options and arguments that were typed into the context's `params`.

        For completion they stay strings: Typer converts them with pydantic, whose import would slow
        down each press of Tab. Otherwise addresses (`s3://...`) are refused before Typer reads any
        value.

        Returns:
            The words that belong to no option and no argument.
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
        """Returns the completions of a word, with a line about each option."""
        items = super().shell_complete(ctx, incomplete)
        for item in items:
            item.help = shorten(_first_paragraph(item.help), 70)
        return items


class VerbGroup(TyperGroup):
    """Group of verbs under one name, whose help is laid out here."""

    command_class = VerbCommand

    def get_params(self, ctx: Any) -> list[Any]:
        """Returns the options of the group. All are flags, and their default is False.

        Typer would import pydantic, which is slow, to read the default None.
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
    """Returns the help of one verb: usage, docstring, arguments, options by panel, further reading.

    Args:
        ctx: The verb's context in Typer.
        everything: Whether rarely needed options are shown too, and all paragraphs of each option's
            help instead of the first.
    """
    parameters = ctx.command.get_params(ctx)
    arguments = [parameter for parameter in parameters if isinstance(parameter, TyperArgument)]
    # Title of a panel -> flags and help of each option in it.
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
    # Title of a panel -> name and first paragraph of each verb in it.
    panels: dict[str, list[tuple[str, str]]] = {}
    for name in group.list_commands(ctx):
        verb: Any = group.get_command(ctx, name)
        panels.setdefault(verb.rich_help_panel or "Verbs", []).append(
            (name, _first_paragraph(verb.help))
        )
    # The texts of all panels begin in the same column.
    longest_name = max(len(name) for name, _ in chain.from_iterable(panels.values()))
    options = [option for option in group.get_params(ctx) if isinstance(option, TyperOption)]
    option_rows = [(_flags(option, ctx), _text(option, everything=False)) for option in options]

    parts = [f"Usage: {ctx.command_path} VERB ...", *_paragraphs(group.help or "")]
    parts += [_section(title, rows, column=longest_name) for title, rows in panels.items()]
    parts.append(_section(_OPTIONS, option_rows))
    parts += _paragraphs(f"{ctx.command_path} VERB --help explains a verb and its options.")
    parts += _read_more(ctx)
    return "\n\n".join(parts) + "\n"


def _read_more(ctx: typer.Context) -> list[str]:
    """Returns the last line of a verb's help, which names its pages of documentation.

    It is a list of that line, or an empty list if there are no pages.
    """
    # The path is `bertctl VERB` or `bertctl GROUP VERB`; pages belong to the second word.
    _, *words = ctx.command_path.split()
    pages = pages_of_verb(words[0]) if words else []
    if not pages:
        return []
    return ["Read more: " + ", ".join(f"bertctl docs {page}" for page in pages)]


def _width() -> int:
    """Returns the width of help in characters: that of the terminal, between two limits."""
    return max(2 * _NARROW, min(_WIDEST, shutil.get_terminal_size().columns))


def _bold(text: str) -> str:
    """Returns a text in bold, or unchanged if stdout gets no colours."""
    if wants_colours(sys.stdout):
        return typer.style(text, bold=True)
    return text


def _section(title: str, rows: Sequence[tuple[str, str]], *, column: int = 0) -> str:
    """Returns a heading with rows below it, in two columns or with each text below its flags.

    Two columns are taken if the first one is narrow or all texts fit into a line of the second.

    Args:
        title: The heading.
        rows: Pairs of flags (or a name) and text. There is at least one.
        column: Least width of the first column, so that several sections are aligned.
    """
    flags_width = max(column, *(len(flags) for flags, _ in rows))
    text_width = _width() - flags_width - 4  # two spaces before each column
    texts_fit = all(len(text) <= text_width for _, text in rows)
    if flags_width <= _NARROW or texts_fit:
        lines = [_beside(flags, text, flags_width, text_width) for flags, text in rows]
    else:
        lines = [f"  {_bold(flags)}\n{_indented(text)}" for flags, text in rows]
    return "\n".join([_bold(title), *lines])


def _beside(flags: str, text: str, flags_width: int, text_width: int) -> str:
    """Returns an option's flags with its text in a second column.

    Args:
        flags: The first column. It is padded by hand, as bold text has invisible characters.
        text: The second column, which is wrapped.
        flags_width: Width of the first column in characters.
        text_width: Width of the second column.
    """
    first_line, *further_lines = textwrap.wrap(text, text_width) or [""]
    padding = " " * (flags_width - len(flags))
    indent = " " * (flags_width + 4)
    lines = [f"  {_bold(flags)}{padding}  {first_line}"]
    lines.extend(indent + line for line in further_lines)
    return "\n".join(lines)


def _indented(text: str) -> str:
    """Returns the paragraphs of a text, wrapped and indented to stand below an option's flags."""
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
    """Returns the names of an option, the shortest first, and its metavar: `-o, --output FILE`."""
    words = ", ".join([*sorted(option.opts, key=len), *option.secondary_opts])
    if option.is_flag:
        return words
    return f"{words} {_metavar(option, ctx)}"


def _metavar(parameter: "TyperOption | TyperArgument", ctx: typer.Context) -> str:
    """Returns the word that stands for a value in the help, such as FILE, or N for a number."""
    if parameter.metavar:
        return parameter.metavar
    if isinstance(parameter, TyperArgument):
        return parameter.name.upper()
    kind = parameter.display_type(ctx)
    return _METAVARS.get(kind, kind.strip("<>"))


def _text(parameter: "TyperOption | TyperArgument", *, everything: bool) -> str:
    """Returns the help of a parameter, followed by its default if that tells something.

    Args:
        parameter: An option or argument.
        everything: Whether all paragraphs of the help are returned, or only the first.
    """
    text = parameter.help or ""
    if not everything:
        text = _first_paragraph(text)
    default = parameter.default
    is_number = isinstance(default, (int, float)) and not isinstance(default, bool)
    if not default and not is_number:  # None, False, empty; a default of 0 is printed
        return text
    if default is True:  # an option with two names, such as --lowercase/--cased: the first one
        default = parameter.opts[0]
    elif isinstance(default, float):
        default = f"{default:g}"
    return f"{text} Default: {default}."


def _first_paragraph(text: str | None) -> str:
    """Returns the first paragraph of a text on one line; empty for None."""
    return " ".join((text or "").partition("\n\n")[0].split())
