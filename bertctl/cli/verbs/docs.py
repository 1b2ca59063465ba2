"""`bertctl docs`: the pages of documentation that ship with the package."""

import itertools
import re
import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from bertctl.cli.framework.doc_pages import (
    FOLDER,
    GROUPS,
    DocPage,
    find_lines,
    find_sections,
    load_pages,
)
from bertctl.cli.framework.output import Output, plain_table
from bertctl.errors import UsageError
from bertctl.words import count, shorten, unknown

if TYPE_CHECKING:
    from rich.markdown import Markdown

_MOST_SECTIONS = 15
"""Sections that a search shows."""


def _page_names(incomplete: str) -> list[str]:
    """Returns the pages whose names complete what is typed."""
    return [name for name in load_pages() if name.startswith(incomplete)]


TopicArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[TOPIC|WORD...]", autocompletion=_page_names)
]
GrepOption = Annotated[str | None, typer.Option("--grep", metavar="REGEX")]


def docs(out: Output, topic: TopicArgument = None, grep: GrepOption = None) -> None:
    """Show a page of the documentation, list the pages, or search them.

    Args:
        out: Prints the answer and messages.
        topic: Page to show, or words to search for in all pages.
        grep: Print every line that this regular expression matches, with its page and line number.

    Examples:
        bertctl docs tutorial
        bertctl docs learning rate
        bertctl docs --grep 'exit code [78]'
    """
    words = " ".join(topic or ())
    pages = load_pages()
    if grep is not None:
        _grep(out, grep, words)
    elif not words:
        _list(out, pages)
    elif words in pages:
        _show(out, pages[words])
    else:
        _search(out, words, pages)


def _list(out: Output, pages: dict[str, DocPage]) -> None:
    """Prints the names and titles of all pages, under the heading of their group."""
    wide = max(len(name) for name in pages)
    lines = []
    for group, members in itertools.groupby(pages.values(), key=lambda page: page.group):
        lines += ["", GROUPS[group]]
        lines += [f"  {page.name:<{wide}}  {page.title}" for page in members]
    topics = [
        {"topic": page.name, "title": page.title, "group": page.group, "summary": page.summary}
        for page in pages.values()
    ]
    # The first line is the empty one above the first heading.
    out.answer({"topics": topics}, "\n".join(lines[1:]))
    out.say("Show a page with: bertctl docs TOPIC. Search all pages with: bertctl docs WORD")


def _grep(out: Output, regex: str, words: str) -> None:
    """Prints the lines of all pages that match, as grep does: `training:12: the line`.

    Args:
        out: Prints the answer.
        regex: The regular expression as it was typed. Upper and lower case are not distinguished.
        words: A topic that was typed as well, which is refused; else empty.
    """
    if words:
        raise UsageError(
            "--grep searches all pages and takes no topic",
            remedy=f"Leave '{words}' out, or type: bertctl docs {words}",
        )
    try:
        pattern = re.compile(regex, re.IGNORECASE)
    except re.error as error:
        raise UsageError(
            f"--grep {regex!r} is not a regular expression: {error}",
            remedy="Put a backslash before characters that mean themselves, for example '\\('.",
        ) from error
    matches = list(find_lines(pattern))
    if not matches:
        raise UsageError(
            f"no line of any page matches {regex!r}", remedy="List the pages with: bertctl docs"
        )
    records = [
        {"topic": page.name, "line_number": number, "line": line} for page, number, line in matches
    ]
    printed = [f"{page.name}:{number}: {line}" for page, number, line in matches]
    out.answer({"regex": regex, "lines": records}, "\n".join(printed))


def _search(out: Output, words: str, pages: dict[str, DocPage]) -> None:
    """Prints the sections that contain the words; only `--json` gives all of them.

    Args:
        out: Prints the answer and messages.
        words: What was typed, which is not the name of a page.
        pages: By name, for the error message.
    """
    matches = find_sections(words)
    if not matches:
        raise UsageError(
            unknown("page", words, tuple(pages)),
            remedy=f"No page contains it as a word either. Pages: {', '.join(pages)}.",
        )
    table = plain_table("topic", "section", "line")
    for match in matches[:_MOST_SECTIONS]:
        table.add_row(match.topic, match.section, shorten(match.line.strip("| "), 100))
    out.answer({"words": words, "sections": [asdict(match) for match in matches]}, table)
    n_hidden = len(matches) - _MOST_SECTIONS
    if n_hidden > 0:
        every_line = shlex.join(["bertctl", "docs", "--grep", words])
        out.say(f"{count(n_hidden, 'more section')}; see every line with: {every_line}")
    out.say(f"Show a page with: bertctl docs {matches[0].topic}")


def _show(out: Output, page: DocPage) -> None:
    """Prints a page: laid out on a terminal, as Markdown to a file or pipe."""
    document = {
        "topic": page.name,
        "group": page.group,
        "path": str(FOLDER / f"{page.name}.md"),
        "text": page.text,
    }
    if out.answers.is_terminal and not out.as_json:
        out.answer(document, markdown(page.text))
    else:
        out.answer(document, page.text.rstrip("\n"))


def markdown(text: str) -> "Markdown":
    """Returns a page for a terminal.

    In a table that is too wide the first column stays whole, and the others fold.
    """
    from rich.cells import cell_len
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.markdown import Markdown, TableElement
    from rich.table import Table

    class WholeTable(TableElement):
        def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
            """Yields the table that rich makes of one in Markdown, with columns that fold."""
            for table in super().__rich_console__(console, options):
                if isinstance(table, Table):
                    for column in table.columns:
                        column.overflow = "fold"
                    # An unbroken first column may take a third of the width, so that the others
                    # have room.
                    widest = max(cell_len(str(cell)) for cell in table.columns[0].cells)
                    table.columns[0].no_wrap = widest <= options.max_width // 3
                yield table

    class Page(Markdown):
        elements: ClassVar[dict[str, Any]] = {**Markdown.elements, "table_open": WholeTable}

    return Page(text)
