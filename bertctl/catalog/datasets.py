"""Data sets by name: the built-in ones, and those of a person's own `datasets.yaml`."""

import functools
import re
from pathlib import Path

from bertctl.catalog.dataset_row import DatasetRow
from bertctl.errors import UsageError
from bertctl.words import command, hinted

BUNDLED_CORPORA = {"demo-corpus": Path(__file__).with_name("demo_corpus")}
"""Folders of text inside the package, to pretrain on, by name."""

_BUILTIN = Path(__file__).with_name("datasets.yaml")


@functools.cache
def builtin_datasets() -> dict[str, DatasetRow]:
    """Returns the built-in data sets by name."""
    from bertctl.catalog.datasets_file import read_datasets

    return read_datasets(_BUILTIN)


def dataset_names() -> list[str]:
    """Returns the names of the built-in data sets, fast enough for shell completion."""
    return re.findall(r"^([\w-]+):$", _BUILTIN.read_text(encoding="utf-8"), flags=re.MULTILINE)


def find_dataset(name: str, datasets_file: str | None = None) -> DatasetRow:
    """Returns a data set by its name; of the built-in ones, `SST-2` and `sst2` are the same.

    Args:
        name: what a recipe's `data.name` says.
        datasets_file: the recipe's `data.datasets_file`, with data sets of a person's own.

    Raises:
        UsageError: there is none of this name (the nearest names are shown), or the file is not
            what it should be.
        UnavailableError: the file can't be read.
    """
    datasets = builtin_datasets()
    # The folders that a data set's files may be in are other spellings of its name.
    spellings: dict[str, DatasetRow] = {}
    for row in datasets.values():
        spellings.update((_plain(spelling), row) for spelling in row.folders)
    builtin = datasets.get(name) or spellings.get(_plain(name))
    if builtin is not None:
        return builtin
    if datasets_file is not None:
        from bertctl.catalog.datasets_file import read_datasets

        path = Path(datasets_file)
        datasets = {**read_datasets(path, reserved=datasets, home=path.parent), **datasets}
    if name in datasets:
        return datasets[name]
    raise UsageError(
        hinted(f"unknown data set '{name}'", _plain(name), datasets),
        remedy=f"Names: {', '.join(datasets)}. Files of your own: "
        f"`{command('finetune text-classification', train_file='FILE')}`, or a datasets.yaml "
        "beside the recipe.",
    )


def bundled_folder(row: DatasetRow) -> Path:
    """Returns where a bundled data set's files are in the installed package."""
    return Path(__file__).parent / row.folders[0]


def _plain(name: str) -> str:
    """Returns a name as it is compared: `SST-2` -> `sst2`."""
    return name.lower().replace("-", "").replace("_", "")
