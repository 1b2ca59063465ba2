"""`bertctl docs`: the pages of documentation that ship with the package."""

import re
from pathlib import Path
from typing import Annotated

import typer

from bertctl.cli.completion import one_of
from bertctl.cli.output import Output, plain_table
from bertctl.errors import UsageError
from bertctl.words import unknown

FOLDER = Path(__file__).resolve().parents[1] / "docs"
TOPICS = (
    "tutorial", "tasks", "pretraining", "sentences", "models", "long-texts", "features", "inside", "attention",
    "sweeps", "recipes", "recipe-fields", "pipelines", "fetch", "many-devices", "python", "run-folder", "training",
    "security", "benchmarks", "changes",
)  # fmt: skip
"""The pages in the order in which they are listed."""


def docs(
    out: Output, topic: Annotated[str | None, typer.Argument(metavar="[TOPIC]", autocompletion=one_of(*TOPICS))] = None
) -> None:
    """Show a page of the documentation; without a topic, list the pages.

    Args:
        topic: Page to show.

    Examples:
        bertctl docs tutorial
    """
    if topic is None:
        titles = {name: _read(name).split("\n", 1)[0].removeprefix("# ") for name in TOPICS}
        table = plain_table("topic", "page", rows=titles.items())
        out.answer({"topics": [{"topic": name, "title": title} for name, title in titles.items()]}, table)
        out.say("Show one with: bertctl docs TOPIC")
        return
    if topic not in TOPICS:
        raise UsageError(unknown("page", topic, TOPICS), remedy=f"Pages: {', '.join(TOPICS)}.")
    text = _read(topic)
    document = {"topic": topic, "path": str(FOLDER / f"{topic}.md"), "text": text}
    if out.answers.is_terminal and not out.as_json:
        from rich.markdown import Markdown

        out.answer(document, Markdown(text))
    else:
        out.answer(document, text.rstrip("\n"))


def _read(topic: str) -> str:
    """Returns a page without the marks that are for the tests."""
    return re.sub(r"<!--.*?-->\n", "", (FOLDER / f"{topic}.md").read_text(encoding="utf-8"))
