"""A report as a page (page.py) without scripts, by `templates/report.html.j2`.

Text of the data stands in `<bdi dir="auto">`, so that its direction of writing (and any control
character for it) ends where it ends.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any

from markupsafe import Markup, escape

from bertctl.reporting.document import Block, Chart, Listing, Passage, Report, TableBlock, Tile
from bertctl.reporting.page import page_templates, render_page, visible_text

_MOST_TILES = 5
"""Tiles beside each other on a wide screen."""

# Shades stand under ordinary text in both schemes, so they are never strong.
_SHADES: dict[str, Any] = {"right": "31,111,235", "wrong": "207,34,46", "strongest": 0.45}


def render_html(report: Report) -> str:
    """Returns the whole page.

    The SVG of its charts is taken as it is, everything else is escaped.
    """
    # `render_page` gets the same environment: there is one per process.
    pages = page_templates()
    pages.filters["grouped"] = _grouped
    pages.filters["breakable"] = _breakable
    pages.filters["columns"] = _columns
    for name, kind in (
        ("chart", Chart),
        ("table", TableBlock),
        ("listing", Listing),
        ("passage", Passage),
    ):
        pages.tests[name] = lambda block, kind=kind: isinstance(block, kind)
    return render_page("report.html.j2", report=report, **_SHADES)


def _breakable(text: str) -> Markup:
    """Returns a text whose long words may break after `_`, `-`, `/` and `.`, and nowhere else."""

    def broken(word: re.Match[str]) -> str:
        """Returns a long word with marks where it may break."""
        return re.sub(r"([_/.-])(?=[^_/.-])", r"\1<wbr>", word[0])

    markup = str(escape(visible_text(text)))
    return Markup(re.sub(r"[^\s&;]{17,}", broken, markup))  # noqa: S704  # escaped before


def _columns(tiles: Sequence[Tile]) -> int:
    """Returns how many tiles stand in a row, as evenly as possible.

    Seven tiles stand as 4 and 3, not as 5 and 2.
    """
    rows = -(-len(tiles) // _MOST_TILES)
    return -(-len(tiles) // rows)


def _grouped(blocks: Sequence[Block]) -> Iterator[tuple[str, Sequence[Block]]]:
    """Yields groups of neighbouring blocks, with the CSS class of their layout.

    A block that is no chart is a group by itself, without a class. One chart that is not wide and
    the block behind it, the table of its numbers, are side by side ("beside") if there is room. Any
    other charts in a row are a grid ("charts").
    """
    while blocks:
        charts = list(takewhile(lambda block: isinstance(block, Chart), blocks))
        has_wide_chart = any(isinstance(chart, Chart) and chart.wide for chart in charts)
        is_followed = len(charts) < len(blocks)
        if not charts:
            n_blocks = 1
            layout = ""
        elif len(charts) == 1 and is_followed and not has_wide_chart:
            n_blocks = 2
            layout = "beside"
        else:
            n_blocks = len(charts)
            layout = "charts"
        yield layout, blocks[:n_blocks]
        blocks = blocks[n_blocks:]
