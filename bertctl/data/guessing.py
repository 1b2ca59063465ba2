"""Which task a file is for: the one whose reader makes sense of its first rows."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertctl.config.recipe_sections import DataSection
from bertctl.data.columns import beside_canonical
from bertctl.data.files import KnownFormatError
from bertctl.data.json_tables import NoTableError
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
    """Returns the task that a file is for: the first whose reader makes sense of its first rows.

    The tasks with the most particular rows are tried first.

    Args:
        path: The file, whose rows have labels.
        settings: How the file is read, as far as the user has said it.

    Raises:
        UnavailableError: The file does not exist.
        UsageError: The columns are clear for no task. The message says what could be meant.
        DataError: The rows are not what they should be.
    """
    require_file(path)
    tasks: dict[Reader, str] = {}
    for task, reader in READERS.items():
        tasks.setdefault(reader, task)  # if several tasks have one reader, the first task counts
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
            if _is_fault_of_rows(error, reader, path, options):
                error.task = task
                raise
            error.task = ""  # the file may be for another task, which is tried next
            refusals.append(error)

    # No task fits. An error about rows says more than one about columns that can't be guessed.
    data_errors = [error for error in refusals if isinstance(error, DataError)]
    if data_errors:
        raise data_errors[-1]
    raise refusals[-1]


def _is_fault_of_rows(
    error: BertctlError, reader: Reader, path: Path | MemoryFile, options: ReadOptions
) -> bool:
    """Returns whether a file is meant for a reader's task, and the error is about some of its rows.

    If it is not, other tasks are tried.

    Args:
        error: The error that the reader has raised.
        reader: The reader of the task.
        path: The file.
        options: How the file was read.
    """
    if isinstance(error, KnownFormatError):
        return True
    if not isinstance(error, DataError):  # columns can't be guessed
        return False
    # A remedy that shows the form of the task's rows means that the file has no such rows at all.
    is_of_whole_file = isinstance(error, NoTableError) or error.remedy == reader.form
    # If a reader is sure, no other task has its columns.
    if reader.is_sure and not is_of_whole_file:
        return True
    return _is_mostly_for(reader, path, options)


def _is_mostly_for(reader: Reader, path: Path | MemoryFile, options: ReadOptions) -> bool:
    """Returns whether most of a file's first rows are what a reader's task needs."""
    skipped = SkippedRows()
    try:
        reading = reader.guess(path, options.skipping(skipped))
    except (UsageError, DataError):
        return False
    return reading is not None and len(skipped.errors) < len(reading.rows)


def _guess(path: Path | MemoryFile, task: str, reading: Reading, settings: DataSection) -> Guess:
    """Returns a task with the fields that were guessed, and with a sentence that says so.

    Args:
        path: The file.
        task: The task that the file is for.
        reading: The first rows of the file, read for this task.
        settings: The settings before anything was guessed.
    """
    from_settings = settings.model_dump()
    guessed = {
        f"data.{name}": value
        for name, value in reading.settings.model_dump().items()
        if value != from_settings[name]
    }
    return task, guessed, _guess_in_words(path, task, reading, settings)


def _guess_in_words(
    path: Path | MemoryFile, task: str, reading: Reading, settings: DataSection
) -> str:
    """Returns the guess for a person: `a.csv looks like text-classification: text from 'review'`.

    Columns without names are shown with their first value. The arguments are those of `_guess`.
    """
    parts: list[str] = []
    has_no_header = reading.settings.header is False
    if has_no_header and settings.header is None:
        parts.append("it has no header")
    for role, name in reading.columns.items():
        part = f"{role} from '{name}'"
        if has_no_header and reading.rows.has(role):
            first_value = reading.rows.columns[role][0]
            if first_value is not None:
                part += f" ({shorten(first_value, 30)})"
        parts.append(part)

    sentence = f"{path} looks like {task}"
    if parts:
        sentence += f": {', '.join(parts)}"
    if "text" in reading.columns:
        unread = _unread_columns(task, reading)
        if unread:
            sentence += f" (not read: {shorten(', '.join(unread), 200)})"
    return sentence


def _unread_columns(task: str, reading: Reading) -> list[str]:
    """Returns the names in the file of columns that a task does not use, without ids."""
    used_names = (*reading.columns, *ID_NAMES, *READERS[task].columns, "offsets")
    # Rows call an unread column `file_label` if the file calls it `label`.
    prefix = beside_canonical("")
    return [name.removeprefix(prefix) for name in reading.rows.columns if name not in used_names]
