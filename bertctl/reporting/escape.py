"""Texts of the data, made harmless for where they are shown.

That is a terminal, Markdown, XML, or a pipeline's commands.

A text is data. Whatever it holds, it must not end a table cell, open a tag, start a workflow
command or turn the reading direction of what follows.
"""

import re

from bertctl.words import harmless

_CUT = 200

_MARKDOWN = re.compile(r"[\\`*_\[\]|~$!]")
_BLOCK_START = re.compile(r"^(?:[#+=-]|\d+(?=[.)]))")


def one_line(text: str, *, limit: int = _CUT) -> str:
    """Returns a text on one line, with single blanks and with invisible characters as codes.

    It starts no workflow command in a log either: neither `::` at its start nor `##[` within.

    Args:
        text: Any text.
        limit: Characters at which it is cut.
    """
    # Only the beginning of a long text is looked at: most of it is cut anyway.
    line = harmless(" ".join(text[: 4 * limit].split())).replace("##[", "# #[")
    if line.startswith("::"):
        line = ": :" + line[2:]
    if len(line) <= limit:
        return line
    return line[: limit - 1] + "…"


def markdown(text: str, *, limit: int = _CUT) -> str:
    """Returns a text as one line of Markdown without markup, also inside a table cell or a list."""
    escaped = (
        one_line(text, limit=limit).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    )
    escaped = _MARKDOWN.sub(r"\\\g<0>", escaped)
    return _BLOCK_START.sub(_escape_block_start, escaped)


def _escape_block_start(start: re.Match[str]) -> str:
    """Returns the start of a Markdown heading or list item, changed so that it is plain text.

    A backslash comes before a mark such as `#`. It comes behind the number of a numbered item, as
    it is the dot or bracket behind the number that makes the item.
    """
    if start[0].isdigit():
        return start[0] + "\\"
    return "\\" + start[0]


def xml(text: str) -> str:
    """Returns a text without what XML 1.0 can't hold; quoting and entities are the XML writer's."""
    return harmless(text.replace("\r\n", "\n"), keep="\n\t")


def command_message(text: str) -> str:
    """Returns the message of a GitHub workflow command (`%`, line ends)."""
    return harmless(text, keep="\n").replace("%", "%25").replace("\n", "%0A")


def command_property(text: str) -> str:
    """Returns a property of a GitHub workflow command, such as its title or file."""
    return command_message(text).replace(":", "%3A").replace(",", "%2C")
