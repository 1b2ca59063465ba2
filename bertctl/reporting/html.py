"""A report as one HTML file: no network, no script, light and dark by the reader's setting, and fit for paper.

Every text is escaped. Text of the data stands in `<bdi dir="auto">`, so that its direction of writing (and any control
character for it) ends where it ends; control characters become visible. A Content-Security-Policy forbids scripts and
requests, should anything ever slip through.
"""

from html import escape
from importlib.resources import files
from itertools import takewhile

from bertctl.reporting.document import Block, Cell, Chart, Column, Listing, Note, Report, Section, Table, Tile
from bertctl.reporting.escape import visible

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<header>
<h1>{heading}</h1>
<p class="subtitle">{subtitle}</p>
{tiles}
<nav>{links}</nav>
</header>
<main>
{sections}
</main>
</body>
</html>
"""

# Marks of direction do their work inside an isolating element, and none outside of it.
_KEPT = "\n\t\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"

# Shades stand under ordinary text in both schemes, so they are never strong.
_RIGHT, _WRONG, _STRONGEST = "31,111,235", "207,34,46", 0.45


def render_html(report: Report) -> str:
    """The whole page.

    Args:
        report: as `build_report` makes it; the SVG of its charts is taken as it is, everything else is escaped.
    """
    first = report.tiles[0] if report.tiles else None
    title = f"{report.title}: {first.label} {first.value}" if first else report.title
    links = " ".join(f'<a href="#{section.name}">{escape(section.title)}</a>' for section in report.sections)
    return _PAGE.format(
        policy=escape(_POLICY),
        title=plain(title),
        style=files("bertctl.reporting").joinpath("report.css").read_text(encoding="utf-8"),
        heading=plain(report.title),
        subtitle=plain(report.subtitle),
        tiles=_tiles(report),
        links=links,
        sections="\n".join(_section(section) for section in report.sections),
    )


def plain(text: str) -> str:
    """Text as HTML: markup escaped, control characters visible."""
    return escape(visible(text, keep=_KEPT))


def isolated(text: str) -> str:
    """Text of the data: escaped, and the direction of writing of each of its lines kept to itself."""
    return "\n".join(f'<bdi dir="auto">{plain(line)}</bdi>' for line in text.splitlines() or [""])


def _tiles(report: Report) -> str:
    if not report.tiles:
        return ""
    return '<div class="tiles">\n' + "\n".join(map(_tile, report.tiles)) + "\n</div>"


def _tile(tile: Tile) -> str:
    note = f'<span class="note">{plain(tile.note)}</span>' if tile.note else ""
    return (
        f'<div class="tile"><span class="label">{plain(tile.label)}</span>'
        f'<span class="value">{plain(tile.value)}</span>{note}</div>'
    )


def _section(section: Section) -> str:
    parts = []
    blocks = list(section.blocks)
    while blocks:
        charts = list(takewhile(lambda block: isinstance(block, Chart), blocks))
        # A chart and the table of its numbers stand side by side where there is room, several charts in a grid.
        several = len(charts) > 1 or len(blocks) == len(charts) or any(_is_wide(chart) for chart in charts)
        taken = len(charts) if several else min(len(charts) + 1, len(blocks))
        written = "\n".join(map(_block, blocks[:taken] or blocks[:1]))
        parts.append(f'<div class="{"charts" if several else "beside"}">\n{written}\n</div>' if charts else written)
        blocks = blocks[max(taken, 1) :]
    body = "\n".join(parts)
    return f'<section id="{section.name}">\n<h2>{escape(section.title)}</h2>\n{body}\n</section>'


def _is_wide(block: Block) -> bool:
    return isinstance(block, Chart) and block.wide


def _block(block: Block) -> str:
    if isinstance(block, Note):
        return f"<p>{_with_code(block.text)}</p>"
    if isinstance(block, Chart):
        kind = ' class="wide"' if block.wide else ""
        return f"<figure{kind}>{block.svg()}<figcaption>{plain(block.caption)}</figcaption></figure>\n"
    if isinstance(block, Listing):
        return f"<details><summary>{plain(block.title)}</summary><pre><code>{plain(block.text)}</code></pre></details>"
    return _table(block)


def _with_code(text: str) -> str:
    """A paragraph in which `a command` stands in backticks."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return plain(text)
    return "".join(f"<code>{plain(part)}</code>" if i % 2 else plain(part) for i, part in enumerate(parts))


def _table(table: Table) -> str:
    caption = f"<caption>{plain(table.caption)}</caption>" if table.caption else ""
    heads = "".join(
        f'<th scope="col"{_class(column)}>{isolated(column.name) if column.data else plain(column.name)}</th>'
        for column in table.columns
    )
    head = f"<thead><tr>{heads}</tr></thead>" if any(column.name for column in table.columns) else ""
    rows = "\n".join(
        "<tr>" + "".join(_cell(cell, column) for cell, column in zip(row, table.columns, strict=True)) + "</tr>"
        for row in table.rows
    )
    kind = ' class="stacked"' if table.stacked else ""
    return f'<div class="scroll"><table{kind}>{caption}{head}\n<tbody>\n{rows}\n</tbody></table></div>'


def _class(column: Column) -> str:
    return ' class="number"' if column.number else ""


def _cell(cell: str | Cell, column: Column) -> str:
    if isinstance(cell, str):
        cell = Cell(cell)
    text = isolated(cell.text) if cell.data else plain(cell.text)
    if cell.code:
        text = f"<code>{text}</code>"
    if cell.strong:
        text = f"<strong>{text}</strong>"
    shade = ""
    if cell.shade > 0:
        shade = f' style="background:rgba({_WRONG if cell.wrong else _RIGHT},{_STRONGEST * cell.shade:.3f})"'
    return f'<td{_class(column)} data-label="{escape(column.name)}"{shade}>{text}</td>'
