"""A report as Markdown for a pull request or a step summary.

It has the tables and the first errors, but no charts.

Text of the data stands in code spans, where a platform reads neither markup nor `@names` nor
`#numbers`.
"""

import re

from bertctl.reporting.document import (
    Block,
    Cell,
    Column,
    Note,
    Passage,
    Report,
    Section,
    TableBlock,
)
from bertctl.reporting.escape import markdown, one_line

MOST_BYTES = 65_000
"""A comment on GitHub holds 65,536 characters."""

_LONGEST = 10_000  # a paragraph of ours is not cut

_HARMLESS = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9 .,:;%/()–·'+-]|(?<=[a-z0-9])_(?=[a-z0-9]))*)?")


def render_markdown(report: Report) -> str:
    """Returns the short form of a report.

    It has the sections marked brief, and the first rows of long tables.
    """
    if report.tiles:
        main_tile = report.tiles[0]
    else:
        main_tile = None
    lines = [f"## {escaped(report.title)}", "", escaped(report.subtitle), ""]
    if main_tile is not None:
        if main_tile.note:
            tile_note = f" ({escaped(main_tile.note)})"
        else:
            tile_note = ""
        lines += [f"**{escaped(main_tile.label)}: {escaped(main_tile.value)}**{tile_note}", "", ""]
    sections = [
        text for section in report.sections if section.brief and (text := _section(section))
    ]
    page = "\n".join(lines)
    for text in sections:
        if len((page + text).encode()) > MOST_BYTES:
            return page + "\nThe rest does not fit here.\n"
        page += text
    return page


def escaped(text: str) -> str:
    """Returns text as part of a line or a cell; figures and plain words stay as they are."""
    if _HARMLESS.fullmatch(text):
        return text
    return markdown(text, limit=_LONGEST)


def code_span(text: str) -> str:
    """Returns text of the data as a code span of one line, also for a cell of a table.

    It has one backtick more around it than any run of backticks in the text.
    """
    line = one_line(text)
    if not line:
        return ""
    backtick_runs = re.findall(r"`+", line)
    longest_run = max(map(len, backtick_runs), default=0)
    fence = "`" * (longest_run + 1)
    if line.startswith("`") or line.endswith("`"):
        pad = " "
    else:
        pad = ""
    return f"{fence}{pad}{line}{pad}{fence}".replace("|", "\\|")


def _section(section: Section) -> str:
    """Returns a section as Markdown; empty if none of its blocks is shown here."""
    blocks = [text for block in section.blocks if (text := _block(block))]
    if blocks:
        return "\n".join([f"### {escaped(section.title)}", "", *blocks, ""])
    return ""


def _block(block: Block) -> str:
    """Returns a block as Markdown; charts and listings are left out."""
    if isinstance(block, Note):
        # Every other part stood between backticks, so it is a command.
        pieces = block.text.split("`")
        texts = [code_span(piece) if i % 2 else _note(piece) for i, piece in enumerate(pieces)]
        return "".join(texts) + "\n"
    if isinstance(block, Passage):
        return f"- {code_span(block.title)}: {code_span(block.note)}\n"
    if isinstance(block, TableBlock):
        return table_lines(block)
    return ""


def _note(text: str) -> str:
    """Returns a part of a paragraph: escaped, its outer blanks kept."""
    middle = escaped(text.strip())
    before = " " if text[:1].isspace() else ""
    after = " " if text[-1:].isspace() and middle else ""
    return f"{before}{middle}{after}"


def table_lines(table: TableBlock) -> str:
    """Returns a table in GitHub's Markdown, with the caption below it.

    Markdown is a short format: the table has the first `table.brief` rows only. It is empty if that
    leaves no row.
    """
    rows = table.cells()[: table.brief]
    if not rows:
        return ""
    # Names that come from the data set (`column.data`) are code spans, so that nothing in them is
    # taken for Markdown.
    headings = [
        code_span(column.name) if column.data else escaped(column.name) for column in table.columns
    ]
    lines = [_row(headings)]
    lines.append(_row(["---:" if column.number else "---" for column in table.columns]))
    for row in rows:
        cells = [_cell(cell, column) for cell, column in zip(row, table.columns, strict=True)]
        lines.append(_row(cells))
    if table.caption:
        lines += ["", escaped(table.caption)]
    return "\n".join([*lines, ""])


def _row(cells: list[str]) -> str:
    """Returns cells as a row of a table."""
    return "| " + " | ".join(cells) + " |"


def _cell(cell: Cell, column: Column) -> str:
    """Returns a cell as Markdown: text of the data and commands as code spans.

    A strong cell is bold, but not in a column whose heading is text of the data (`column.data`).
    """
    if cell.data or cell.code:
        text = code_span(cell.text)
    else:
        text = escaped(cell.text)
    if cell.strong and text and not column.data:
        return f"**{text}**"
    return text
