"""What a row of the catalog of data sets is."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from bertctl.errors import UsageError
from bertctl.words import did_you_mean

if TYPE_CHECKING:
    pass

GLUE_REPO = "nyu-mll/glue"
GLUE_REVISION = "bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c"
PAPER = "Devlin et al. 2019, table 1, BERT-base, GLUE server"


@dataclass(frozen=True)
class Columns:
    """What the columns are called in one place.

    Attributes:
        text: the text, or the first sentence of a pair; the words of a sentence; the question; what the choices are
            about.
        pair: the second sentence of a pair; the text that a question is about; the words that every choice continues.
        label: the label or the score; the tags; the answers; the right choice.
        choices: the choices.
    """

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

    split: str
    metric: str
    value: float
    source: str = PAPER


@dataclass(frozen=True)
class SplitRow:
    """One split of a data set.

    Attributes:
        name: what it is called here, which is also what the hub calls it.
        hub_file: Parquet file in the hub repository; empty for bundled data.
        files: its official file names; the first that is there is read.
        labelled: whether it has labels that may be used. GLUE's test labels are the server's secret: the column is
            left out, also where the hub has one (MRPC), so that hub and files give the same rows.
        header: whether the official file begins with column names.
        columns: the official file's columns; where there is no header by position (GLUE: `0`, `1`, ...) or by the
            name that they get without one (`column1`, `column2`, ...).
        glue_file: file name that the GLUE server takes for predictions on it.
    """

    name: str
    hub_file: str
    files: tuple[str, ...]
    columns: Columns
    labelled: bool = True
    header: bool = True
    glue_file: str = ""


@dataclass(frozen=True)
class DatasetRow:
    """One data set of the catalog.

    Attributes:
        name: what is typed.
        task: the task it is for.
        description: one line.
        columns: names of its columns on the hub.
        labels: label names in the official order; empty where there are none (regression, multiple choice).
        splits: in the order train, validation, test.
        validation_splits: the first one picks the best weights.
        metrics: the official ones.
        primary_metric: the one that decides.
        folder: name of the folder in the official layout.
        positive_label: the label whose F1 is meant, where F1 is official.
        published: BERT-base's scores.
        hub_repo: repository on the hub; empty for bundled data.
        hub_revision: the commit that is read.
        hub_labels: names of the hub's class numbers, where its file has the numbers alone.
        official: what its official files are: `glue` (tab-separated, no quoting), or `own`: what a person's own files
            for this task can be.
        note: what to know before using it.
    """

    name: str
    task: str
    description: str
    columns: Columns
    labels: tuple[str, ...]
    splits: tuple[SplitRow, ...]
    validation_splits: tuple[str, ...]
    metrics: tuple[str, ...]
    primary_metric: str
    folder: str
    positive_label: str | None = None
    published: tuple[PublishedScore, ...] = ()
    hub_repo: str = GLUE_REPO
    hub_revision: str = GLUE_REVISION
    hub_labels: tuple[str, ...] = ()
    official: Literal["glue", "own"] = "glue"
    note: str = ""

    @property
    def bundled(self) -> bool:
        """Whether it ships inside the package."""
        return not self.hub_repo

    @property
    def split_names(self) -> tuple[str, ...]:
        """The splits it has."""
        return tuple(split.name for split in self.splits)

    @property
    def official_files(self) -> tuple[str, ...]:
        """Its official files below a data folder, such as `SST-2/train.tsv`."""
        return tuple(f"{self.folder}/{split.files[0]}" for split in self.splits)

    def published_for(self, split: str, metric: str) -> PublishedScore | None:
        """The published score to show beside a split's: its own, or that of its test counterpart."""
        counterparts = (split, split.replace("validation", "test"))
        return next((p for p in self.published if p.split in counterparts and p.metric == metric), None)

    def split(self, name: str) -> SplitRow:
        """A split by name.

        Raises:
            UsageError: it has no such split (those it has are shown).
        """
        for split in self.splits:
            if split.name == name:
                return split
        hint = did_you_mean(name, self.split_names)
        raise UsageError(
            f"the data set '{self.name}' has no split '{name}'" + (f": {hint}" if hint else ""),
            remedy=f"Splits: {', '.join(self.split_names)}.",
        )
