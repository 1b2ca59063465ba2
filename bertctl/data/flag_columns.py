"""Labels as columns: one for each label, with 1 where it holds and 0 where not, as in the toxic comments of Jigsaw."""

from collections.abc import Sequence
from dataclasses import replace

from bertctl.data.columns import absent_column
from bertctl.data.names import ID_NAMES, LABEL_NAMES, folded
from bertctl.data.reading import ReadOptions
from bertctl.data.table import Table
from bertctl.errors import DataError

_FLAGS = {"0": 0, "0.0": 0, "False": 0, "1": 1, "1.0": 1, "True": 1}


def flag_columns(table: Table, options: ReadOptions) -> list[str]:
    """Returns the columns with a flag for each label, as they were named or guessed, which is told; else nothing.

    Raises:
        DataError: one that was named is not there.
    """
    settings = options.settings
    named = settings.label_columns or []
    missing = [name for name in named if name not in table.columns]
    if missing and options.label_needed and "label_columns" not in options.hints:
        raise absent_column(missing[0], table)
    if named or not options.label_needed or settings.label_column or not table.header:
        return [] if missing else named
    if any(folded(name) in LABEL_NAMES for name in table.columns):
        return []
    free = {name: values for name, values in table.columns.items() if folded(name) not in ID_NAMES}
    flags = [name for name, values in free.items() if {str(value) for value in values} <= {"0", "1"}]
    if len(flags) < 2:
        return []
    options.listener.say(f"{table.source}: labels from {', '.join(flags)}, 0 or 1 in each (guessed)")
    return flags


def with_label_lists(table: Table, names: Sequence[str]) -> Table:
    """Returns a table with a list of labels in place of a column for each.

    Raises:
        DataError: something that is neither 0 nor 1, with file and line.
    """
    lists: list[list[str]] = [[] for _ in range(len(table))]
    for name in names:
        for index, value in enumerate(map(str, table.columns[name])):
            if value not in _FLAGS:
                raise DataError(
                    f"{table.where(index)}: column '{name}' holds '{value:.40}' where 0 or 1 is needed",
                    remedy="Each column of data.label_columns says whether its label holds. Correct it or name others.",
                )
            lists[index] += [name] * _FLAGS[value]
    rest = {name: values for name, values in table.columns.items() if name not in names}
    return replace(table, columns={**rest, ", ".join(names): lists})
