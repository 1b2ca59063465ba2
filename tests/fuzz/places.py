"""Contents of a folder that are no bytes.

Nothing, a link, a pipe; and the writing of folders made of them.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Gone:
    """Makes no file."""


@dataclass(frozen=True)
class Link:
    """Makes a symbolic link."""

    to: str


@dataclass(frozen=True)
class Pipe:
    """Makes a named pipe that nobody writes to."""


Place = bytes | Gone | Link | Pipe


def write_tree(here: Path, tree: Mapping[str, Place]) -> None:
    """Makes the files of a folder."""
    for name, content in tree.items():
        path = here / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        elif isinstance(content, Link):
            path.symlink_to(content.to)
        elif isinstance(content, Pipe):
            os.mkfifo(path)
