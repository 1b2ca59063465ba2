"""Prodigy's choices (prodi.gy/docs/api-interfaces#choice).

Options of a text, and the ids of those that were taken.

{"text": "...", "options": [{"id": "GOOD", "text": "good"}, ...], "accept": ["GOOD"], "answer":
"accept"}
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bertctl.data.table import Table
from bertctl.data.unlabelled import NoLabel

_MULTIPLE_CHOICE = "multiple"
"""Value of `choice_style` where several options of a text can be taken."""


def with_chosen_options(table: Table, label_column: str | None) -> Table:
    """Returns a table of Prodigy with the option that an annotator chose as the label of each row.

    If several options can be chosen, a label is a list. Other tables are returned as they are.

    Args:
        table: A file, or a chunk of it.
        label_column: The column that the user named as the label, or None. The new column is called
            `accept` if the user named this column of Prodigy; otherwise it is called `label`.
    """
    has_choices = {"options", "accept"} <= table.columns.keys() and "label" not in table.columns
    if not has_choices or label_column not in (None, "accept", "label"):
        return table
    cells = table.columns["accept"]
    if not all(cell is None or isinstance(cell, list | tuple) for cell in cells):
        return table

    several = _takes_several(table, cells)
    labels = [_chosen(cell or (), several) for cell in cells]
    columns = {name: values for name, values in table.columns.items() if name != "accept"}
    return replace(table, columns={**columns, label_column or "label": labels})


def _takes_several(table: Table, cells: Sequence[Any]) -> bool:
    """Returns whether several options of a text can be taken: `config` says it, or it occurs."""
    configs = table.columns.get("config", ())
    styles = {config.get("choice_style") for config in configs if isinstance(config, Mapping)}
    return _MULTIPLE_CHOICE in styles or any(cell is not None and len(cell) > 1 for cell in cells)


def _chosen(accepted: Sequence[Any], several: bool) -> Any:
    """Returns the ids of accepted options as labels: a list if `several` can be taken, else one."""
    if several:
        return [str(option) for option in accepted]
    if accepted:
        return str(accepted[0])
    return NoLabel("no option taken")
