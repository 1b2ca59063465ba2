"""Rows with several right or wrong texts, as other tools write them.

Each becomes rows of three texts.

negative_1, negative_2, ...                  n-tuples (sentence-transformers, MS MARCO)
{"query": ..., "pos": [...], "neg": [...]}   FlagEmbedding
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from bertctl.data.names import folded
from bertctl.data.nested_questions import NestedTable
from bertctl.data.rows import is_missing
from bertctl.data.table import Table
from bertctl.errors import DataError

_NUMBERED = re.compile(r"(?:hard_?)?neg(?:ative)?s?_?(\d+)")

_FOREIGN = {
    "positive_passages": ("Tevatron", "negative_passages"),
    "positive_ctxs": ("DPR", "hard_negative_ctxs"),
}
"""Column that shows another tool's format -> the tool, and its column of wrong texts."""


def unfolded(table: Table, *, train: bool) -> Table:
    """Returns a table for pairs or triplets: at most one right and one wrong text in each row.

    For training, a row with several wrong texts becomes one row for each of them. Otherwise nobody
    uses wrong texts: columns with one wrong text in a cell stay, a column with lists is left out.

    Args:
        table: As the file has it.
        train: Whether its rows are learned from.

    Raises:
        DataError: Lists that are not of texts, or a format that can't be read, by its name.
    """
    if isinstance(table, NestedTable):  # SQuAD's questions with their paragraphs, which are pairs
        return table
    for name, (tool, negatives) in _FOREIGN.items():
        if name in table.columns:
            message = (
                f"{table.source} has the form of {tool} (lists of objects under '{name}' and "
                f"'{negatives}')"
            )
            raise DataError(
                message,
                remedy='Write it as JSON lines of texts: {"query": ..., "pos": [...], "neg": '
                "[...]}.",
            )
    has_lists = any(isinstance(cell, list) for cell in table.columns.get("pos", ()))
    if has_lists:  # FlagEmbedding's form
        return _unfold_lists(table, train=train)
    if train:
        return _unfold_negatives(table)
    return table


def _unfold_lists(table: Table, *, train: bool) -> Table:
    """Returns FlagEmbedding's rows with one right and at most one wrong text each.

    `{"query": "q", "pos": ["a"], "neg": ["b", "c"]}` becomes q, a, b and q, a, c. The shorter list
    is repeated, so that each text occurs. Wrong texts are only for training.

    Args:
        table: A file with the columns `pos` and perhaps `neg`.
        train: Whether its rows are learned from.

    Raises:
        DataError: A row without a right text, or something that is no text.
    """
    rows: list[int] = []
    positives: list[str] = []
    negatives: list[str] = []
    for index, cell in enumerate(table.columns["pos"]):
        row_positives = _texts(cell, table, index, "pos")
        if not row_positives:
            raise DataError(
                f"{table.where(index)}: 'pos' has no text", remedy="Give each query a right text."
            )
        if train and "neg" in table.columns:
            row_negatives = _texts(table.columns["neg"][index], table, index, "neg")
        else:
            row_negatives = []
        for number in range(max(len(row_positives), len(row_negatives))):
            rows.append(index)
            positives.append(row_positives[number % len(row_positives)])  # begins again at the end
            if row_negatives:
                negatives.append(row_negatives[number % len(row_negatives)])
            else:
                negatives.append("")
    other_columns = {
        name: values for name, values in table.columns.items() if name not in ("pos", "neg")
    }
    unfolded_table = _with_columns(table, other_columns).select(rows)
    columns = {**unfolded_table.columns, "positive": positives}
    if any(negatives):
        columns["negative"] = negatives
    return _with_columns(unfolded_table, columns)


def _texts(cell: Any, table: Table, index: int, column: str) -> list[str]:
    """Returns the texts of a cell, which has one or a list of them; blank ones are left out.

    Raises:
        DataError: Something else is in it.
    """
    if is_missing(cell):
        return []
    if isinstance(cell, list):
        texts = cell
    else:
        texts = [cell]
    for text in texts:
        if not isinstance(text, str):
            message = f"{table.where(index)}: '{column}' holds {text!r:.60} where a text is needed"
            raise DataError(
                message, remedy='Such as {"query": "...", "pos": ["..."], "neg": ["...", "..."]}'
            )
    return [text for text in texts if text.strip()]


def _unfold_negatives(table: Table) -> Table:
    """Returns a table with one column of wrong texts, and a row for each wrong text of a row.

    `query,negative_1,negative_2` with `q,b,c` becomes `query,negative_1` with `q,b` and `q,c`. A
    table with at most one such column stays as it is.
    """
    numbers: dict[str, int] = {}
    for name in table.columns:
        match = _NUMBERED.fullmatch(folded(name))
        if match:
            numbers[name] = int(match[1])
    numbered = sorted(numbers, key=numbers.__getitem__)
    unnumbered = [
        name for name in table.columns if folded(name) in ("negative", "hard_negative", "neg")
    ]
    names = [*unnumbered[:1], *numbered]
    if len(names) < 2:
        return table
    rows: list[int] = []
    negatives: list[Any] = []
    for index in range(len(table)):
        cells = [table.columns[name][index] for name in names]
        non_empty = [cell for cell in cells if not is_missing(cell) and str(cell).strip()]
        row_negatives = non_empty or [""]  # a row without a wrong text stays
        rows += [index] * len(row_negatives)
        negatives += row_negatives
    other_columns = {
        name: values for name, values in table.columns.items() if name not in names[1:]
    }
    unfolded_table = _with_columns(table, other_columns).select(rows)
    return _with_columns(unfolded_table, {**unfolded_table.columns, names[0]: negatives})


def _with_columns(table: Table, columns: Mapping[str, Sequence[Any]]) -> Table:
    """Returns a table with other columns for the same rows."""
    return Table(
        columns,
        table.source,
        table.lines,
        header=table.header,
        first=table.first,
    )
