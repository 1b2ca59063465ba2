"""Which task a file is for: the one whose reader makes sense of its first rows."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertctl.config.recipe_sections import DataSection
from bertctl.data.columns import beside_canonical
from bertctl.data.files import KnownFormatError, NoTableError
from bertctl.data.names import ID_NAMES
from bertctl.data.read_options import Reading, ReadOptions, SkippedRows
from bertctl.data.readers import READERS
from bertctl.data.reading import Reader
from bertctl.data.sources import MemoryFile
from bertctl.data.text_files import require_file
from bertctl.errors import BertctlError, DataError, UsageError
from bertctl.words import shorten

_SEEN = 2048  # rows that are looked at


Guess = tuple[str, Mapping[str, Any], str]
"""A task, values of recipe fields that were guessed, by dotted name, and a sentence for a
person."""


def guess_task(path: Path | MemoryFile, settings: DataSection) -> Guess:
    """Returns the task that a file is for, tried from the one with the most particular rows on.

    Args:
        path: the file, whose rows have labels.
        settings: what is said of it.

    Raises:
        UnavailableError: it is not there.
        UsageError: it can't be told, with what could be meant.
        DataError: its rows are not what they should be.
    """
    require_file(path)
    tasks: dict[Reader, str] = {}
    for task, reader in READERS.items():  # of several tasks with one reader the first
        tasks.setdefault(reader, task)
    refusals: list[BertctlError] = []
    for reader, task in reversed(tasks.items()):
        options = ReadOptions(
            settings,
            "train",
            label_needed=True,
            chunk_rows=_SEEN,
            form=reader.form,
        )
        try:
            reading = reader.guess(path, options)
            if reading is not None:
                return _guess(path, task, reading, settings)
        except (UsageError, DataError) as error:
            is_for_task = isinstance(error, KnownFormatError)
            if isinstance(error, DataError) and not is_for_task:
                # Else it isn't JSON at all, or has no rows in the form of this task.
                is_of_rows = not isinstance(error, NoTableError) and error.remedy != reader.form
                is_for_task = (reader.is_sure and is_of_rows) or _is_mostly_for(
                    reader, path, options
                )
            error.task = task if is_for_task else ""
            if is_for_task:
                raise
            refusals.append(error)
    raise next(
        (error for error in reversed(refusals) if isinstance(error, DataError)), refusals[-1]
    )


def _is_mostly_for(reader: Reader, path: Path | MemoryFile, options: ReadOptions) -> bool:
    """Whether a file is for a reader's task but for some of its rows, fewer than the others."""
    skipped = SkippedRows()
    try:
        reading = reader.guess(path, options.skipping(skipped))
    except (UsageError, DataError):
        return False
    return reading is not None and len(skipped.errors) < len(reading.rows)


def _guess(path: Path | MemoryFile, task: str, reading: Reading, settings: DataSection) -> Guess:
    from_settings = settings.model_dump()
    guessed = {
        name: value
        for name, value in reading.settings.model_dump().items()
        if value != from_settings[name]
    }
    no_header = reading.settings.header is False
    if no_header and settings.header is None:
        parts = ["it has no header"]
    else:
        parts = []
    for role, name in reading.columns.items():
        if no_header and reading.rows.has(role):
            value = reading.rows.columns[role][0]
        else:
            value = None
        parts.append(
            f"{role} from '{name}'" + (f" ({shorten(value, 30)})" if value is not None else "")
        )
    sentence = f"{path} looks like {task}" + (f": {', '.join(parts)}" if parts else "")
    if "text" in reading.columns:
        made = (*reading.columns, *ID_NAMES, *READERS[task].columns, "offsets")
        left_out = [name for name in reading.rows.columns if name not in made]
        names_in_file = [name.removeprefix(beside_canonical("")) for name in left_out]
        sentence += (
            f" (not read: {shorten(', '.join(names_in_file), 200)})" if names_in_file else ""
        )
    return task, {f"data.{name}": value for name, value in guessed.items()}, sentence
