"""Inputs of several files: several arguments, or a pattern such as 'part-*.parquet'."""

import glob
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bertctl.data.file_names import is_pattern
from bertctl.data.sources import source_of
from bertctl.data.text_files import names_in_folder
from bertctl.errors import UnavailableError, UsageError
from bertctl.words import count, natural_order
from bertctl.writing import protect


@dataclass(frozen=True)
class FileList:
    """Files that are read as one.

    Attributes:
        paths: At least two, in the order in which they are read.
    """

    paths: tuple[Path, ...]

    def __str__(self) -> str:
        return f"{self.paths[0]} and {count(len(self.paths) - 1, 'more file')}"


def files_of(typed: Sequence[str]) -> Path | Literal["-"] | FileList:
    """Returns what the arguments of a command line name as its input.

    Args:
        typed: Paths and patterns, or `-` for stdin alone.

    Raises:
        UsageError: Stdin is among other inputs.
        UnavailableError: No file matches a pattern.
    """
    names = expand_patterns(typed)
    if len(names) == 1:
        return source_of(names[0])
    if "-" in typed:
        raise UsageError(
            "- is stdin, and it is read alone", remedy="Leave the other inputs out, or name files."
        )
    paths = tuple(Path(name) for name in names)
    protect(*paths)
    return FileList(paths)


def expand_patterns(typed: Sequence[str]) -> list[str]:
    """Returns the names of files that were typed, with those that match a pattern in its place.

    Raises:
        UnavailableError: No file matches a pattern.
    """
    names: list[str] = []
    for name in typed:
        names += _matches(name) if is_pattern(name) else [name]
    return names


def _matches(pattern: str) -> list[str]:
    """Returns the files that match a pattern, `part-9` before `part-10`.

    Raises:
        UnavailableError: There are none.
    """
    # `glob`, as `Path` would drop a leading `./` of what was typed.
    names = [name for name in glob.glob(pattern) if not os.path.isdir(name)]  # noqa: PTH112, PTH207
    if names:
        return sorted(names, key=natural_order)
    folder = Path(pattern).parent
    if folder.is_dir():
        remedy = names_in_folder(folder)
    else:
        remedy = ""
    raise UnavailableError(f"no file matches {pattern}", remedy=remedy)
