"""A report's tables for a terminal."""

from rich.table import Table
from rich.text import Text

from bertctl.reporting.document import TableBlock


def rich_table(table: TableBlock, *, title: str | None = None) -> Table:
    """Returns a table for a terminal.

    The rows to look at are bold, and marked where there are no colours.
    """
    made = Table(
        title=title,
        box=None,
        header_style="bold",
        pad_edge=False,
        caption=table.caption,
    )
    made.title_justify = made.caption_justify = "left"
    for column in table.columns:
        made.add_column(column.name, justify="right" if column.number else "left", overflow="fold")
    for cells in table.cells():
        texts = [cell.text for cell in cells]
        strong = next((number for number, cell in enumerate(cells) if cell.strong), None)
        if strong is not None:
            texts[strong] += " *"
        made.add_row(*map(Text, texts), style=None if strong is None else "bold")
    return made
