"""Rows without labels beside the training rows: a student learns its teacher's answers to them."""

from bertctl.config.recipe_files import expanded_path
from bertctl.config.schema import Recipe
from bertctl.data.packed_columns import ColumnBuilder, numbered_ids
from bertctl.data.read_options import COLUMN_FIELDS, FORM_FIELDS, ReaderOptions
from bertctl.data.readers import READERS
from bertctl.data.rows import Rows
from bertctl.data.splits import content_hash
from bertctl.errors import DataError, UnavailableError, UsageError
from bertctl.progress import SILENT, Listener

UNLABELLED = "unlabelled"
"""Name of the split."""
TRAINING_SPLITS = ("train", UNLABELLED)
"""Splits that are trained on and never scored."""


def check_unlabelled(recipe: Recipe) -> None:
    """Refuses a recipe whose file of `distillation.unlabelled` does not exist.

    Raises:
        UnavailableError: No such file.
    """
    file = recipe.distillation.unlabelled
    if file is not None and not expanded_path(file).is_file():
        raise UnavailableError(
            f"distillation.unlabelled: {file} does not exist",
            remedy="Name a file of rows, such as CSV, JSONL or a text in each line.",
            file=file,
        )


def read_unlabelled(recipe: Recipe, train: Rows, *, listener: Listener = SILENT) -> Rows:
    """Returns the rows of `distillation.unlabelled`. Labels in the file are not read.

    Args:
        recipe: Names the file, and says how the training rows are read.
        train: The training rows.
        listener: Receives what was guessed.

    Raises:
        UsageError: Pairs of texts where the training rows are single texts, or the other way round.
        DataError: No rows, or rows that can't be read, with file and line.
    """
    file = recipe.distillation.unlabelled or ""
    # The recipe describes the training file. For the unlabelled file, encoding, delimiter and
    # header are detected. The training file's column names count only if the unlabelled file has
    # such columns (`hints`).
    settings = recipe.data.model_copy(update=dict.fromkeys(FORM_FIELDS))
    chunks = READERS[recipe.task].stream(
        expanded_path(file),
        settings,
        **ReaderOptions(listener=listener, hints=frozenset(COLUMN_FIELDS)),
    )
    builders: dict[str, ColumnBuilder] = {}
    n_rows = 0
    for chunk in chunks:
        n_rows += len(chunk)
        for name, values in chunk.columns.items():
            if name != "label":
                builders.setdefault(name, ColumnBuilder()).extend(list(values))
    if not n_rows:
        raise DataError(f"distillation.unlabelled: {file} has no rows", remedy="Give some rows.")
    columns = {name: builder.finish() for name, builder in builders.items()}
    rows = Rows(UNLABELLED, columns, numbered_ids(n_rows), file)
    if rows.has("pair") != train.has("pair"):
        kinds = {True: "pairs of texts", False: "single texts"}
        raise UsageError(
            f"distillation.unlabelled: {file} was read as {kinds[rows.has('pair')]}, and the "
            f"training rows are {kinds[train.has('pair')]}",
            remedy="Give its columns the names that the training file has.",
        )
    return rows


def unlabelled_hash(recipe: Recipe, rows: Rows) -> str:
    """Returns the SHA-256 of what a model reads of rows without labels."""
    return content_hash(rows, [name for name in READERS[recipe.task].columns if name != "label"])
