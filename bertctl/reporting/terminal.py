"""A report's tables for a terminal."""

from rich.table import Table
from rich.text import Text

from bertctl.reporting.document import TableBlock


def rich_table(table: TableBlock, *, title: str | None = None) -> Table:
    """Returns a table for a terminal.

    Rows with a strong cell are bold, and have a `*` for terminals without colours.
    """
    terminal_table = Table(
        title=title,
        box=None,
        header_style="bold",
        pad_edge=False,
        caption=table.caption,
    )
    terminal_table.title_justify = "left"
    terminal_table.caption_justify = "left"
    for column in table.columns:
        terminal_table.add_column(
            column.name, justify="right" if column.number else "left", overflow="fold"
        )
    for cells in table.cells():
        texts = [cell.text for cell in cells]
        strong_cell = next((number for number, cell in enumerate(cells) if cell.strong), None)
        if strong_cell is not None:
            texts[strong_cell] += " *"
        terminal_table.add_row(*map(Text, texts), style=None if strong_cell is None else "bold")
    return terminal_table
