"""A table of a document on a terminal."""

from rich.table import Table
from rich.text import Text

from bertctl.reporting.document import TableBlock


def terminal_table(block: TableBlock, *, title: str = "") -> Table:
    """Returns a table of a report as rich draws it; a row whose cells are all strong is bold."""
    table = Table(title=title or None, title_justify="left", box=None, header_style="bold", pad_edge=False)
    for column in block.columns:
        table.add_column(column.name, justify="right" if column.number else "left")
    for row in block.cells():
        table.add_row(*(Text(cell.text) for cell in row), style="bold" if all(cell.strong for cell in row) else None)
    return table
