"""`DatasetRow`: one data set of the catalog, where its rows are and what its columns are called."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from bertctl.addresses import address_problem, address_remedy, is_address
from bertctl.config.task_names import task_names
from bertctl.errors import UsageError
from bertctl.words import listing, unknown

PAPER = "Devlin et al. 2019, table 1, BERT-base, GLUE server"
_STRICT = {"extra": "forbid"}  # of pydantic, which reads rows from files


@dataclass(frozen=True)
class Columns:
    """Names of a data set's columns, in its files or on the hub.

    Attributes:
        text: the text, or the first sentence of a pair; the words of a sentence; the question; what
            the choices are about.
        pair: the second sentence of a pair; the text that a question is about; the words that every
            choice continues.
        label: the label or the score; the tags; the answers; the right choice.
        choices: the choices.
    """

    __pydantic_config__ = _STRICT
    text: str
    pair: str | None = None
    label: str | None = None
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class PublishedScore:
    """A score that somebody reported.

    Attributes:
        split: the split it was measured on.
        metric: as in metrics.json.
        value: as a fraction.
        source: who reported it.
    """

    __pydantic_config__ = _STRICT
    split: str
    metric: str
    value: float
    source: str = PAPER


@dataclass(frozen=True)
class Hub:
    """Where the hub has a data set, as Parquet files.

    Attributes:
        repo: `org/name`.
        revision: the commit that is read.
        file: path of a split's file, with `{split}` for the split's name.
        columns: their names there, where they are not those of the data set.
        labels: names of the class numbers, where the files have the numbers alone.
    """

    __pydantic_config__ = _STRICT
    repo: str
    revision: str
    file: str = "data/{split}-00000-of-00001.parquet"
    columns: Columns | None = None
    labels: tuple[str, ...] = ()

    def file_of(self, split: str) -> str:
        """Returns the path of a split's file in the repository."""
        return self.file.replace("{split}", split)


@dataclass(frozen=True)
class SplitRow:
    """One split of a data set.

    Attributes:
        name: what it is called here, which is also what the hub calls it.
        files: its file names; the first that exists is read.
        columns: the file's columns, where they are not those of the data set; where it has no
            header by position (GLUE: `0`, `1`, ...) or by the name that they get without one
            (`column1`, `column2`, ...).
        labelled: whether it has labels that may be used. GLUE's test labels are the server's
            secret: the column is left out, also where the hub has one (MRPC), so that hub and files
                give the same rows.
        header: whether the file begins with column names; detected where None (GLUE's files have
            them).
        glue_file: file name that the GLUE server takes for predictions on it.
    """

    __pydantic_config__ = _STRICT
    name: str
    files: tuple[str, ...] = ()
    columns: Columns | None = None
    labelled: bool = True
    header: bool | None = None
    glue_file: str = ""


@dataclass(frozen=True)
class DatasetRow:
    """One data set of the catalog.

    Attributes:
        name: what is typed.
        task: the task it is for.
        columns: names of its columns.
        splits: in the order train, validation, test. Those called `validation...` are its
            validation splits; where it has none, training rows are held out.
        description: one line.
        labels: label names in the official order (F1 of two is that of the second); empty where
            there are none, or where training finds them.
        hub: where the hub has it; None where it has not.
        metrics: the official ones, the one that decides first; empty for those of the task.
        folder: name of its folder below a data folder, besides its own name.
        published: BERT-base's scores.
        layout: what its files are: `glue` (tab-separated, no quoting), or `own`: whatever a
            person's own files for this task can be.
        bundled: whether it ships inside the package.
        home: the folder that is searched where no data folder is given: that of a person's
            `datasets.yaml`.
        note: what to know before using it.
    """

    __pydantic_config__ = _STRICT
    name: str
    task: str
    columns: Columns
    splits: tuple[SplitRow, ...]
    description: str = ""
    labels: tuple[str, ...] = ()
    hub: Hub | None = None
    metrics: tuple[str, ...] = ()
    folder: str = ""
    published: tuple[PublishedScore, ...] = ()
    layout: Literal["glue", "own"] = "own"
    bundled: bool = False
    home: Path | None = None
    note: str = ""

    @property
    def split_names(self) -> tuple[str, ...]:
        """Names of its splits."""
        return tuple(split.name for split in self.splits)

    @property
    def validation_splits(self) -> tuple[str, ...]:
        """Splits for validation; the first one picks the best weights."""
        return tuple(name for name in self.split_names if name.startswith("validation"))

    @property
    def primary_metric(self) -> str | None:
        """Metric that chooses the best epoch; None if the data set leaves it to the task."""
        if self.metrics:
            return self.metrics[0]
        return None

    @property
    def folders(self) -> tuple[str, ...]:
        """Names that the data set's own folder may have inside a data folder."""
        return tuple(dict.fromkeys(filter(None, (self.folder, self.name))))

    @property
    def official_files(self) -> tuple[str, ...]:
        """Files below a data folder, such as `SST-2/train.tsv`.

        These are the hub's files if the set has none of its own.
        """
        official_names = tuple(
            f"{self.folders[0]}/{split.files[0]}" for split in self.splits if split.files
        )
        return official_names or tuple(
            self.hub.file_of(name) for name in self.split_names if self.hub
        )

    def columns_in_file(self, split: SplitRow) -> Columns:
        """Returns what the columns are called in the file of a split."""
        return _labelled(split.columns or self.columns, split)

    def columns_on_hub(self, split: SplitRow) -> Columns:
        """Returns what the columns are called in the hub's file of a split."""
        if self.hub is not None and self.hub.columns is not None:
            return _labelled(self.hub.columns, split)
        return _labelled(self.columns, split)

    def published_for(self, split: str, metric: str) -> PublishedScore | None:
        """Returns the published score to show beside the score of a split; None if there is none.

        It may be of the test split that corresponds: `test_matched` for `validation_matched`.
        """
        counterparts = (split, split.replace("validation", "test"))
        for score in self.published:
            if score.split in counterparts and score.metric == metric:
                return score
        return None

    def split(self, name: str) -> SplitRow:
        """Returns a split by name.

        Raises:
            UsageError: it has no such split (those it has are shown).
        """
        for split in self.splits:
            if split.name == name:
                return split
        message = f"in the data set '{self.name}' {unknown('split', name, self.split_names)}"
        raise UsageError(message, remedy=f"Splits: {', '.join(self.split_names)}.")

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yields (attribute, sentence) for everything in the row that can't be right."""
        if self.task not in task_names():
            yield (
                "task",
                f"{unknown('task', self.task, task_names())}; tasks: {', '.join(task_names())}",
            )
        if not self.splits:
            yield "splits", "it has no split; give files by split, such as train: train.csv"
        for split in self.splits:
            if not split.files and self.hub is None:
                yield "splits", f"the split {split.name} has neither a file nor a place on the hub"
            for file in filter(is_address, split.files):
                yield "splits", f"{split.name}: {address_problem(file)}. {address_remedy(file)}"
        unique_names = {
            "splits": self.split_names,
            "labels": self.labels,
            "metrics": self.metrics,
        }
        for attribute, names in unique_names.items():
            repeated = [name for name in dict.fromkeys(names) if names.count(name) > 1]
            if repeated:
                yield attribute, f"given twice: {listing(repeated)}"
        if len(self.labels) == 1:
            yield (
                "labels",
                "one label leaves nothing to learn; give all of them, or none to find them in "
                "training",
            )
        has_several_splits = len(self.splits) > 1
        # Without `{split}` in it, the file's path is the same for each split.
        if self.hub is not None and has_several_splits and self.hub.file == self.hub.file_of(""):
            yield (
                "hub",
                f"the file {self.hub.file} is the same for every split; write {{split}} where its "
                "name stands",
            )


def _labelled(columns: Columns, split: SplitRow) -> Columns:
    """Returns the columns of a split, without the label column if its labels may not be used."""
    if split.labelled:
        return columns
    return replace(columns, label=None)
