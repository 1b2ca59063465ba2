"""A trained model, opened to be used, whatever computes with it: its recipe, task and data."""

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from bertctl.catalog.hub import cache_only
from bertctl.config.recipe_sections import DataSection
from bertctl.config.schema import Recipe
from bertctl.data.read_options import COLUMN_FIELDS, FORM_FIELDS, SkippedRows
from bertctl.data.recipe_data import LoadedData, load_data
from bertctl.data.rows import Rows
from bertctl.errors import UnavailableError, UsageError
from bertctl.inference.engine import Engine
from bertctl.inference.own_rows import refuse_changed_rows
from bertctl.progress import SILENT, Listener
from bertctl.run_folder import RunFolder
from bertctl.runtime.launch import ALONE, Workers
from bertctl.tasks.base import Task

_LEARNED = ("model.", "training.", "optimizer.")
"""Begin the fields that a trained model was made with."""


@dataclass(frozen=True, kw_only=True)
class TrainedRun(ABC):
    """A run whose model can answer; nothing is loaded before `load`.

    Attributes:
        folder: The run, or the folder of its export.
        recipe: The recipe as it ran, with what the caller changed since (device, threads).
        task: The task, with the label names that the model has.
        pairs: Whether it was trained on pairs of texts; None where nothing says so.
        named: Fields that the caller named; the other fields of the recipe are the run's.
    """

    folder: RunFolder
    recipe: Recipe
    task: Task
    pairs: bool | None
    named: tuple[str, ...] = ()

    @property
    def file_settings(self) -> DataSection:
        """The recipe's settings for a file that is not the run's own.

        Format, delimiter and the like are detected anew, unless the caller named them.
        """
        form = {field: None for field in FORM_FIELDS if f"data.{field}" not in self.named}
        return self.recipe.data.model_copy(update=form)

    @property
    def column_hints(self) -> frozenset[str]:
        """Columns that only the run's own recipe names: such a file may call them otherwise."""
        return frozenset(field for field in COLUMN_FIELDS if f"data.{field}" not in self.named)

    def require_own_data(self) -> None:
        """Refuses a model that comes without data of its own.

        Raises:
            UsageError: The model comes without splits.
        """
        data = self.recipe.data
        corpus = self.recipe.pretraining.corpus
        if not (data.name or corpus or any(data.own_files.values())):
            raise UsageError(
                f"{self.folder.path} is a model without data of its own",
                remedy="Give a file of rows.",
            )

    def load_data(
        self,
        splits: Sequence[str] | None = None,
        *,
        listener: Listener = SILENT,
        skipped: SkippedRows | None = None,
    ) -> LoadedData:
        """Reads splits of the data that the recipe names; see `bertctl.data.recipe_data.load_data`.

        A run can be a stranger's: what its own `datasets.yaml` names is read from this disk alone.

        Raises:
            DataError: The rows are not those that the run was made with.
        """
        self._require_kept_rows(splits)
        with cache_only() if self.recipe.data.datasets_file else nullcontext():
            data = load_data(
                self.recipe,
                splits=splits,
                listener=listener,
                skipped=skipped,
            )
            if splits:
                used = tuple(splits)
            else:
                used = tuple(name for name in data.splits if name != "train")
            refuse_changed_rows(
                self.folder,
                self.recipe,
                self.named,
                data,
                used=used,
            )
            return data

    def _require_kept_rows(self, splits: Sequence[str] | None) -> None:
        """Refuses splits whose rows were given in memory and are not in the run folder.

        Raises:
            UnavailableError: Rows of a split are missing; the error names the split.
        """
        rows = self.folder.path / "rows"
        folder = Path(os.path.abspath(rows))  # noqa: PTH100 - no link is followed
        for split, file in self.recipe.data.own_files.items():
            is_read = splits is None or split in splits or split == "train"
            if file is None or not is_read:
                continue
            # Rows in memory are written into the run folder. They are left out if the run was made
            # to keep no texts.
            was_in_memory = Path(file).parent == folder
            if not was_in_memory or Path(file).exists():
                continue
            raise UnavailableError(
                f"{self.folder.path} was trained on rows in memory, and does not have those of "
                f"{split}",
                remedy="Give the rows to score: a file, or in Python evaluate(run, rows=ROWS).",
                file=file,
            )

    def check_pairs(self, rows: Rows) -> None:
        """Refuses pairs where single texts were learned, and the other way round.

        Raises:
            UsageError: Other rows than the run learned; the error says how to name the columns.
        """
        if self.pairs is None or rows.has("pair") == self.pairs:
            return
        if self.pairs:
            raise UsageError(
                f"{self.folder.path} was trained on pairs of texts, and {rows.source} has single "
                "texts",
                remedy="Name both columns: `text_column=NAME` `pair_column=NAME` "
                "(lines have one text each: give CSV, TSV or JSONL, for stdin with "
                "`input_format=`).",
            )
        message = (
            f"{self.folder.path} was trained on single texts, and {rows.source} was read as pairs"
        )
        raise UsageError(message, remedy="Name the column with the text: `text_column=NAME`.")

    @property
    @abstractmethod
    def hash(self) -> str:
        """Hash of everything that decides its answers."""

    @abstractmethod
    def load(self, workers: Workers = ALONE) -> Engine:
        """Returns the model, ready to compute.

        Args:
            workers: The processes that share the work.

        Raises:
            UsageError: Processes with other models or settings.
        """


def refuse_learned_fields(path: Path, options: Mapping[str, object]) -> None:
    """Refuses changes of fields that decided what a model has learned.

    These are all fields of model, training and optimizer. But a model can be used with another
    `max_length`, and with another `long_text` that reads one part of a text.

    Raises:
        UsageError: One of the fields is given.
    """
    for name, value in options.items():
        # Reading a text in windows takes a model that was trained to join them.
        can_change = name == "model.max_length" or (name == "model.long_text" and value != "window")
        if name.startswith(_LEARNED) and not can_change:
            message = f"{path} was trained with its own {name}, which can't be changed afterwards"
            raise UsageError(
                message,
                remedy="Leave it out; fields of data, evaluation and runtime can be changed.",
            )
