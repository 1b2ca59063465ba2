"""Data sets by name: the built-in rows, and those of a person's own `datasets.yaml`.

Plain tables and a look-up. Nothing here imports a library.
"""

from pathlib import Path

from bertctl.catalog.choice_rows import CHOICE_ROWS
from bertctl.catalog.dataset_row import Columns, DatasetRow, files
from bertctl.catalog.glue_rows import GLUE_ROWS
from bertctl.catalog.question_rows import QUESTION_ROWS
from bertctl.catalog.tagging_rows import TAGGING_ROWS
from bertctl.errors import UsageError
from bertctl.words import did_you_mean

_DEMO = DatasetRow(
    name="demo",
    task="text-classification",
    description="900 short opinions, positive or negative, written for bertctl; inside the package",
    columns=Columns("text", label="label"),
    labels=("negative", "positive"),
    splits=files(train="train.csv", validation="validation.csv", test="test.csv"),
    metrics=("accuracy",),
    bundled=True,
)

DATASETS: dict[str, DatasetRow] = {
    row.name: row for row in (_DEMO, *GLUE_ROWS, *TAGGING_ROWS, *QUESTION_ROWS, *CHOICE_ROWS)
}
"""The built-in catalog, by name."""


def find_dataset(name: str, datasets_file: str | None = None) -> DatasetRow:
    """Returns a data set by its name; of the built-in ones, `SST-2` and `sst2` are the same.

    Args:
        name: what a recipe's `data.name` says.
        datasets_file: the recipe's `data.datasets_file`, with data sets of a person's own.

    Raises:
        UsageError: there is none of this name (the nearest names are shown), or the file is not what it should be.
        UnavailableError: the file can't be read.
    """
    spellings = {_plain(spelling): row for row in DATASETS.values() for spelling in row.folders}
    builtin = DATASETS.get(name) or spellings.get(_plain(name))
    if builtin is not None:
        return builtin
    own: dict[str, DatasetRow] = {}
    if datasets_file is not None:
        from bertctl.catalog.own_datasets import read_datasets

        own = read_datasets(Path(datasets_file), taken=DATASETS)
    if name in own:
        return own[name]
    known = {**own, **DATASETS}
    hint = did_you_mean(_plain(name), known)
    raise UsageError(
        f"there is no data set '{name}'" + (f": {hint}" if hint else ""),
        remedy=f"Names: {', '.join(known)}. Files of your own: "
        "`bertctl finetune text-classification --train-file FILE`, or a datasets.yaml beside the recipe.",
    )


def bundled_folder(row: DatasetRow) -> Path:
    """Returns where a bundled data set's files are in the installed package."""
    return Path(__file__).parent / row.folders[0]


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")
