"""What a shell completes: names of recipes, models and data sets, run folders, fields.

Nothing here imports torch.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from bertctl.words import natural_order


def recipe_names(incomplete: str) -> list[str]:
    """Returns the built-in recipes; a path is completed by the shell."""
    from bertctl.config.recipe_files import builtin_recipes

    return [name for name in builtin_recipes() if name.startswith(incomplete)]


def bundled_names(incomplete: str) -> list[str]:
    """Returns the data sets and corpora that come inside the package."""
    from bertctl.catalog.datasets import BUNDLED_CORPORA, builtin_datasets

    bundled = [name for name, row in builtin_datasets().items() if row.bundled]
    return [name for name in (*bundled, *BUNDLED_CORPORA) if name.startswith(incomplete)]


def model_names(incomplete: str) -> list[str]:
    """Returns the models of the catalog, and run folders."""
    from bertctl.catalog.models import MODELS

    return [*(name for name in MODELS if name.startswith(incomplete)), *run_folders(incomplete)]


def dataset_names(incomplete: str) -> list[str]:
    """Returns the data sets of the catalog."""
    from bertctl.catalog import datasets

    return [name for name in datasets.dataset_names() if name.startswith(incomplete)]


def recipe_fields(incomplete: str) -> list[str]:
    """Returns the fields of a recipe as `--set` takes them; after the `=`, the words that fit."""
    from bertctl.config.field_docs import field_docs

    dotted, value, _ = incomplete.partition("=")
    fields = field_docs()
    if value:
        if dotted in fields:
            choices = fields[dotted].choices
        else:
            choices = ()
        return [f"{dotted}={word}" for word in choices if f"{dotted}={word}".startswith(incomplete)]
    return [f"{name}=" for name in fields if name.startswith(incomplete)]


def one_of(*words: str) -> Callable[[str], list[str]]:
    """Returns a completion of the given words."""
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]


def run_folders(incomplete: str) -> list[str]:
    """Returns the run folders that complete a path.

    A word without a slash is completed by the runs in the current folder and in `runs/`.
    """
    folder, _, beginning = incomplete.rpartition("/")
    try:
        if folder or incomplete.startswith("/"):
            return [
                f"{folder}/{name}"
                for name in _runs_in(Path(folder or "/"))
                if name.startswith(beginning)
            ]
        names = [*_runs_in(Path()), *(f"runs/{name}" for name in _runs_in(Path("runs")))]
    except OSError:
        return []
    return [name for name in names if name.startswith(incomplete)]


def _runs_in(folder: Path) -> Iterator[str]:
    """Yields the names of the run folders in a folder; none if it does not exist."""
    if folder.is_dir():
        for path in sorted(folder.iterdir(), key=lambda path: natural_order(path.name)):
            if (path / "status.json").is_file() or (path / "metrics.json").is_file():
                yield path.name
