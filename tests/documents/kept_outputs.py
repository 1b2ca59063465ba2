"""Outputs of commands that a generated page shows: they are made by running the page."""

import re

from bertctl.cli.framework.doc_pages import FOLDER


def console_block(page: str, command: str) -> str:
    """Returns a `console` block of a command with the output that the page has for it now."""
    path = FOLDER / f"{page}.md"
    output = ""
    if path.exists():
        pattern = rf"^\$ {re.escape(command)}\n(.*?)^```$"
        match = re.search(pattern, path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
        output = match[1] if match else ""
    return f"```console\n$ {command}\n{output}```"
