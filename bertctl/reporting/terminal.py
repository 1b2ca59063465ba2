"""A table of a document on a terminal."""

from rich.table import Table as TerminalTable
from rich.text import Text

from bertctl.reporting.document import Table


def terminal_table(table: Table, *, title: str = "") -> TerminalTable:
    """Returns a table of a report as rich draws it; a row whose cells are all strong is bold."""
    drawn = TerminalTable(title=title or None, title_justify="left", box=None, header_style="bold", pad_edge=False)
    for column in table.columns:
        drawn.add_column(column.name, justify="right" if column.number else "left")
    for row in table.cells():
        is_strong = all(cell.strong for cell in row)
        drawn.add_row(*(Text(cell.text) for cell in row), style="bold" if is_strong else None)
    return drawn
