"""`Reading`: what the readers of all tasks give back."""

from collections.abc import Mapping
from dataclasses import dataclass

from bertctl.config.schema import DataSection
from bertctl.data.rows import Rows


@dataclass(frozen=True)
class Reading:
    """What a reader made of a file.

    Attributes:
        rows: the split.
        columns: canonical name -> name in the file, as given or guessed.
        settings: the person's settings with the guesses written in, so that the next file is read as this one was.
    """

    rows: Rows
    columns: Mapping[str, str]
    settings: DataSection
