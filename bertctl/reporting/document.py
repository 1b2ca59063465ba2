"""A report before it has a format: sections of paragraphs, tables, charts.

Html.py and markdown.py write it.

Everything is plain text here; the writers escape it. `Cell.data` marks text that came from the data
set and may be anything: markup, a script, another direction of writing.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any


@dataclass(frozen=True)
class Cell:
    """Text of one cell of a table.

    Attributes:
        text: plain text.
        data: whether it is text of the data set, to be isolated from its surroundings.
        strong: whether it is to be looked at first (bold).
        shade: background, 0 (none) to 1.
        wrong: whether the shade means an error (else: a right answer).
        code: whether it is a name or a command, as typed.
        link: relative address of the page that it names; empty for none.
    """

    text: str
    data: bool = False
    strong: bool = False
    shade: float = 0.0
    wrong: bool = False
    code: bool = False
    link: str = ""

    def __str__(self) -> str:
        """Returns the text."""
        return self.text


@dataclass(frozen=True)
class Column:
    """Describes one column of a table.

    Attributes:
        name: its heading; may be empty.
        number: whether it is aligned as numbers are.
        data: whether the heading is text of the data set.
        turned: whether the heading stands upright where it can, so that the column is as narrow as
            its numbers.
    """

    name: str
    number: bool = False
    data: bool = False
    turned: bool = False


def filled(columns: int, rows: Sequence[Sequence[object]]) -> list[int]:
    """Returns the numbers of the columns in which some row has something.

    A table without rows keeps all of them.
    """
    if not rows:
        return list(range(columns))
    return [i for i in range(columns) if _has_text(i, rows)]


def _has_text(column: int, rows: Sequence[Sequence[object]]) -> bool:
    """Returns whether some row has something in a column."""
    return any(str(row[column]).strip() for row in rows)


@dataclass(frozen=True)
class TableBlock:
    """Rows under headings; columns in which no row has anything are left out.

    Attributes:
        columns: the headings.
        rows: one cell per column; a str is a plain cell.
        caption: one line on what is shown; may be empty.
        stacked: whether a narrow screen shows each row as a block of its own.
        brief: rows that a short format shows; all when None.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[str | Cell]]
    caption: str = ""
    stacked: bool = False
    brief: int | None = None

    def __post_init__(self) -> None:
        """Leaves out the columns in which no row has anything."""
        # `object.__setattr__` is how a frozen dataclass sets a field of its own.
        filled_columns = filled(len(self.columns), self.rows)
        object.__setattr__(self, "columns", [self.columns[i] for i in filled_columns])
        object.__setattr__(self, "rows", [[row[i] for i in filled_columns] for row in self.rows])

    def cells(self) -> list[list[Cell]]:
        """Returns all rows with every cell as a `Cell`."""
        return [list(map(_as_cell, row)) for row in self.rows]


def _as_cell(cell: str | Cell) -> Cell:
    """Returns a cell of a table as a `Cell`."""
    return Cell(cell) if isinstance(cell, str) else cell


def _is_number_column(name: str, records: Sequence[Mapping[str, Any]]) -> bool:
    """Returns whether a column has nothing but numbers."""
    return all(isinstance(record.get(name, 0), int | float) for record in records)


def record_table(
    records: Sequence[Mapping[str, Any]],
    caption: str = "",
    *,
    shaded: Collection[str] = (),
    data: Collection[str] = (),
) -> TableBlock:
    """Returns a table with a row for each record, and a column for each of their keys.

    Args:
        records: the rows.
        caption: one line on what is shown.
        shaded: columns whose numbers, 0 to 1, are shaded by their size.
        data: columns with text of the data set.
    """
    names = list(dict.fromkeys(chain.from_iterable(records)))
    numbers = {name for name in names if _is_number_column(name, records)}
    rows = []
    for record in records:
        row = []
        for name in names:
            shade = record.get(name, 0.0) if name in shaded else 0.0
            row.append(Cell(_cell_text(record.get(name, "")), name in data, shade=shade))
        rows.append(row)
    return TableBlock(
        [Column(name.replace("_", " "), name in numbers) for name in names], rows, caption
    )


def _cell_text(value: Any) -> str:
    """Returns a value as it is shown in a cell: 0.12345 -> 0.1235, 1234 -> 1,234."""
    if isinstance(value, float):
        if value == 0 or abs(value) >= 0.001:
            return f"{value:.4f}"
        return f"{value:.2g}"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)


@dataclass(frozen=True)
class Chart:
    """Picture, which is drawn when a format asks for it.

    Attributes:
        svg: draws it: one `<svg>` element, safe to stand in a page as it is.
        caption: one line on what it shows.
        wide: whether it needs the width of the page.
    """

    svg: Callable[[], str]
    caption: str
    wide: bool = False


@dataclass(frozen=True)
class Note:
    """Paragraph, in which commands stand in backticks."""

    text: str


@dataclass(frozen=True)
class Listing:
    """Lines as they stand in a file, folded away under a title."""

    title: str
    text: str


@dataclass(frozen=True)
class ShadedWord:
    """Word of the data, or what stands between two.

    Attributes:
        text: plain text.
        share: how strongly it is shaded, -1 to 1; below 0 it speaks against what is said.
        number: what the shade stands for; empty for what is no word.
    """

    text: str
    share: float = 0.0
    number: str = ""


@dataclass(frozen=True)
class Passage:
    """Text whose words are shaded by what they contribute.

    It has a title, and the numbers in a note.
    """

    title: str
    words: Sequence[ShadedWord]
    note: str


Block = TableBlock | Chart | Note | Listing | Passage


@dataclass(frozen=True)
class Tile:
    """Figure to see first.

    Attributes:
        label: its name.
        value: the figure.
        note: what to know beside it; may be empty.
    """

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Section:
    """Section of the report.

    Attributes:
        name: short, for links: `errors`.
        title: its heading.
        blocks: its content, in order; a section without any is left out.
        brief: whether a short format has it.
    """

    name: str
    title: str
    blocks: Sequence[Block]
    brief: bool = True


@dataclass(frozen=True)
class Report:
    """Whole report.

    Attributes:
        title: of the page.
        subtitle: task, model, data.
        tiles: figures to see first; the first one is the result.
        sections: in order.
    """

    title: str
    subtitle: str
    tiles: Sequence[Tile]
    sections: Sequence[Section]
