"""`bertctl docs`: the pages of documentation that ship with the package."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from bertctl.cli.completion import one_of
from bertctl.cli.output import Output, plain_table
from bertctl.errors import UsageError
from bertctl.words import shorten, unknown

if TYPE_CHECKING:
    from rich.markdown import Markdown

FOLDER = Path(__file__).resolve().parents[1] / "docs"
TOPICS = (
    "tutorial", "read-my-file", "better-score", "choose-a-model", "write-a-gate", "pipelines", "sweeps", "fetch",
    "long-texts", "few-labels", "python", "label-tools", "sentences", "features", "pretraining", "adapt",
    "vocabularies", "score-texts", "inside", "attention", "prompt-guard", "router", "pii-tags", "quality-filter",
    "coming-from", "troubleshooting", "tasks", "models", "recipes", "recipe-fields", "many-devices", "run-folder",
    "training", "security", "benchmarks", "changes",
)  # fmt: skip
"""The pages in the order in which they are listed."""

_MOST_SECTIONS = 15
"""Sections that a search shows."""


TopicArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[TOPIC|WORD...]", autocompletion=one_of(*TOPICS))
]


def docs(out: Output, topic: TopicArgument = None) -> None:
    """Show a page of the documentation, or list the pages; any other words are searched in all
    pages.

    Args:
        topic: Page to show, or words to search for.

    Examples:
        bertctl docs tutorial
        bertctl docs learning rate
    """
    words = " ".join(topic or ())
    if not words:
        _list(out)
    elif words in TOPICS:
        _show(out, words)
    else:
        _search(out, words)


def _list(out: Output) -> None:
    titles = {name: _read(name).split("\n", 1)[0].removeprefix("# ") for name in TOPICS}
    table = plain_table("topic", "page", rows=titles.items())
    out.answer(
        {"topics": [{"topic": name, "title": title} for name, title in titles.items()]}, table
    )
    out.say("Show one with: bertctl docs TOPIC; search all of them with: bertctl docs WORD")


def _search(out: Output, words: str) -> None:
    matches = find_sections(words)
    if not matches:
        remedy = f"No page has it as a word, either. Pages: {', '.join(TOPICS)}."
        raise UsageError(unknown("page", words, TOPICS), remedy=remedy)
    table = plain_table("topic", "section", "line")
    for match in matches[:_MOST_SECTIONS]:
        table.add_row(match["topic"], match["section"], shorten(match["line"].strip("| "), 100))
    out.answer({"words": words, "sections": matches}, table)
    more = len(matches) - _MOST_SECTIONS
    if more > 0:
        rest = f"; {more} more sections have it"
    else:
        rest = ""
    out.say(f"show a page with: bertctl docs {matches[0]['topic']}{rest}")


def find_sections(words: str) -> list[dict[str, str]]:
    """Finds the sections of all pages that have the words, also as the beginning of longer ones.

    Returns:
        `topic`, `section` and the first `line` of each match. Sections with the words in their
        heading come first, then those that have them most often. What is new comes last.
    """
    pattern = re.compile(rf"(?<!\w){re.escape(words)}", re.IGNORECASE)
    ranked = []
    for place, topic in enumerate(TOPICS):
        for section, lines in _sections(_read(topic)):
            matching = [line for line in (section, *lines) if pattern.search(line)]
            if matching:
                is_heading = matching[0] == section
                if is_heading and len(matching) == 1:
                    line = ""
                else:
                    line = matching[is_heading]
                rank = (topic == "changes", not is_heading, -len(matching), place)
                ranked.append((rank, {"topic": topic, "section": section, "line": line.strip()}))
    ranked.sort(key=lambda match: match[0])
    return [match for _, match in ranked]


def _sections(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yields the heading and the lines of each section of a page."""
    for part in re.split(r"^#+ ", text, flags=re.MULTILINE)[1:]:
        heading, *lines = part.split("\n")
        yield heading, lines


def _show(out: Output, topic: str) -> None:
    text = _read(topic)
    document = {"topic": topic, "path": str(FOLDER / f"{topic}.md"), "text": text}
    if out.answers.is_terminal and not out.as_json:
        out.answer(document, markdown(text))
    else:
        out.answer(document, text.rstrip("\n"))


def markdown(text: str) -> "Markdown":
    """Returns a page for a terminal. In a table that is too wide the first column stays whole, and
    the others fold.
    """
    from rich.cells import cell_len
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.markdown import Markdown, TableElement
    from rich.table import Table

    class WholeTable(TableElement):
        def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
            for table in super().__rich_console__(console, options):
                if isinstance(table, Table):
                    for column in table.columns:
                        column.overflow = "fold"
                    widest = max(cell_len(str(cell)) for cell in table.columns[0].cells)
                    table.columns[0].no_wrap = widest <= options.max_width // 3
                yield table

    class Page(Markdown):
        elements: ClassVar[dict[str, Any]] = {**Markdown.elements, "table_open": WholeTable}

    return Page(text)


def _read(topic: str) -> str:
    """Returns a page without the marks that are for the tests."""
    return re.sub(r"<!--.*?-->\n", "", (FOLDER / f"{topic}.md").read_text(encoding="utf-8"))
