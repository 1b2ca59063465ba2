"""Where rows come from: a file or stdin by its format, words that are given as such, or a data set by its name."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bertctl.catalog.datasets import DATASETS, find_dataset
from bertctl.config.schema import DataSection, Recipe
from bertctl.data.load import load_data
from bertctl.data.rows import Rows
from bertctl.data.stream import stream_rows
from bertctl.errors import UnavailableError, UsageError, did_you_mean
from bertctl.features.windows import PORTION, portions_of
from bertctl.progress import SILENT, Listener


@dataclass(frozen=True)
class Input:
    """What a person named.

    Attributes:
        name: a path, `-` for stdin, or a data set of the catalog.
        settings: columns and folder, where they were said.
        kind: format of a file; by its suffix when None.
        split: of a data set.
    """

    name: str
    settings: DataSection
    kind: str | None = None
    split: str | None = None

    def portions(self, *, listener: Listener = SILENT) -> Iterator[Rows]:
        """The rows, in order, the same portions each time.

        Raises:
            UsageError: an unknown format, data set or split; columns that can't be guessed.
            DataError: rows that are not what they should be.
            UnavailableError: not there.
        """
        if self.name == "-" or Path(self.name).exists():
            if self.split:
                raise UsageError("--split is for a data set by its name", remedy="Leave it out for a file.")
            source: Path | str = self.name if self.name == "-" else Path(self.name)
            return stream_rows(source, self.settings, kind=self.kind, chunk_rows=PORTION, listener=listener)  # type: ignore[arg-type]
        return portions_of(self._of_data_set(listener))

    def _of_data_set(self, listener: Listener) -> Rows:
        if self.name not in DATASETS and ("/" in self.name or "." in self.name):
            hint = did_you_mean(self.name, DATASETS)
            raise UnavailableError(
                f"{self.name} does not exist" + (f"; for a data set: {hint}" if hint else ""),
                remedy="Give a file, - for stdin, or a data set's name (`bertctl recipes ls --data`).",
            )
        row = find_dataset(self.name)
        split = self.split or "train"
        recipe = Recipe.model_validate(
            {"task": row.task, "data": self.settings.model_copy(update={"name": row.name}).model_dump()}
        )
        return load_data(recipe, listener=listener, splits=[split]).splits[split]
