"""Texts of the data, made harmless for where they are shown: a terminal, Markdown, XML, a pipeline's commands.

A text is data. Whatever it holds, it must not end a table cell, open a tag, start a workflow command or turn the
reading direction of what follows.
"""

import re

_CUT = 200

_INVISIBLE = re.compile(
    # C0 and C1 controls, line separators, direction marks and overrides, what XML 1.0 forbids, byte-order marks
    "[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufffe\uffff]"
)
_MARKDOWN = re.compile(r"[\\`*_\[\]|~$!]")
_BLOCK_START = re.compile(r"^(?:[#+=-]|\d+(?=[.)]))")


def visible(text: str, *, keep: str = "") -> str:
    """Returns a text with invisible or moving characters as hexadecimal codes, but for those in `keep`."""

    def escaped(match: re.Match[str]) -> str:
        code = ord(match[0])
        if match[0] in keep:
            return match[0]
        return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"

    return _INVISIBLE.sub(escaped, text)


def one_line(text: str, *, limit: int = _CUT) -> str:
    """Returns a text on one line: single blanks, invisible characters shown, cut at `limit` characters.

    It starts no workflow command in a log either: neither `::` at its start nor `##[` within.
    """
    shown = visible(" ".join(text[: 4 * limit].split())).replace("##[", "# #[")
    shown = ": :" + shown[2:] if shown.startswith("::") else shown
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def markdown(text: str, *, limit: int = _CUT) -> str:
    """Returns a text as one line of Markdown that means nothing but itself, in a table cell and a list too."""
    shown = one_line(text, limit=limit).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    shown = _MARKDOWN.sub(r"\\\g<0>", shown)
    return _BLOCK_START.sub(lambda start: start[0] + "\\" if start[0].isdigit() else "\\" + start[0], shown)


def xml(text: str) -> str:
    """Returns a text without what XML 1.0 can't hold; quoting and entities are the XML writer's."""
    return visible(text.replace("\r\n", "\n"), keep="\n\t")


def command_message(text: str) -> str:
    """Returns the message of a GitHub workflow command (`%`, line ends)."""
    return visible(text, keep="\n").replace("%", "%25").replace("\n", "%0A")


def command_property(text: str) -> str:
    """Returns a property of a GitHub workflow command, such as its title or file."""
    return command_message(text).replace(":", "%3A").replace(",", "%2C")
