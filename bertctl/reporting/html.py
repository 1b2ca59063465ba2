"""A report as one HTML file: no network, no script, light and dark by the reader's setting, and fit for paper.

The page is `templates/report.html.j2`, rendered with autoescape on. Text of the data stands in `<bdi dir="auto">`, so
that its direction of writing (and any control character for it) ends where it ends; control characters become visible.
A Content-Security-Policy forbids scripts and requests, should anything ever slip through.
"""

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from bertctl.reporting.document import Block, Chart, Listing, Report, TableBlock
from bertctl.words import harmless

# Marks of direction do their work inside an isolating element, and none outside of it.
_KEPT = "\n\t\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"

# Shades stand under ordinary text in both schemes, so they are never strong.
_SHADES = {"right": "31,111,235", "wrong": "207,34,46", "strongest": 0.45}


def render_html(report: Report) -> str:
    """Returns the whole page; the SVG of its charts is taken as it is, everything else is escaped."""
    pages = Environment(
        loader=PackageLoader("bertctl.reporting"),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    pages.filters["grouped"] = _grouped
    for name, kind in (("chart", Chart), ("table", TableBlock), ("listing", Listing)):
        pages.tests[name] = lambda block, kind=kind: isinstance(block, kind)
    return pages.get_template("report.html.j2").render(report=report, **_SHADES)


def _shown(value: Any) -> Any:
    """Returns a text with its control characters made visible; what is markup already stays as it is."""
    return harmless(value, keep=_KEPT) if type(value) is str else value


def _grouped(blocks: Sequence[Block]) -> Iterator[tuple[str, Sequence[Block]]]:
    """Yields the blocks that stand together, with the CSS class of their layout (empty for a block by itself).

    A chart and the table of its numbers stand side by side where there is room, several charts in a grid.
    """
    while blocks:
        charts = list(takewhile(lambda block: isinstance(block, Chart), blocks))
        several = (
            len(charts) > 1
            or len(blocks) == len(charts)
            or any(isinstance(chart, Chart) and chart.wide for chart in charts)
        )
        taken = len(charts) if several else len(charts) + 1
        yield ("charts" if several else "beside") if charts else "", blocks[:taken]
        blocks = blocks[taken:]
