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
    known = builtin_datasets()
    spellings = {_plain(spelling): row for row in known.values() for spelling in row.folders}
    builtin = known.get(name) or spellings.get(_plain(name))
    if builtin is not None:
        return builtin
    if datasets_file is not None:
        from bertctl.catalog.datasets_file import read_datasets

        path = Path(datasets_file)
        known = {**read_datasets(path, reserved=known, home=path.parent), **known}
    if name in known:
        return known[name]
    raise UsageError(
        hinted(f"unknown data set '{name}'", _plain(name), known),
        remedy=f"Names: {', '.join(known)}. Files of your own: "
        f"`{command('finetune text-classification', train_file='FILE')}`, or a datasets.yaml "
        "beside the recipe.",
    )


def bundled_folder(row: DatasetRow) -> Path:
    """Returns where a bundled data set's files are in the installed package."""
    return Path(__file__).parent / row.folders[0]


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")
