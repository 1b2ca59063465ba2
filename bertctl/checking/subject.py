"""`Subject`: the splits that are checked, as every check sees them.

What several checks need is computed once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from tokenizers import Tokenizer

from bertctl.config.schema import Recipe
from bertctl.data.groups import normalised
from bertctl.data.label_cells import label_name
from bertctl.data.packed_columns import PackedTexts, column_of, different_values, mapped_values
from bertctl.data.rows import Rows
from bertctl.tasks.registry import answer_type

BETWEEN_FIELDS = (
    "\x1f"  # a control character, so that no text of one field can end as another begins
)


@dataclass(frozen=True, eq=False)
class Subject:
    """What is checked.

    Attributes:
        recipe: for the task, the label settings and `model.max_length`.
        splits: split name -> rows, in the order train, validation, test.
        official_labels: label names in the data set's official order, where it has one.
        tokenizer: the model's; None where it can't be had.
    """

    recipe: Recipe
    splits: dict[str, Rows]
    official_labels: tuple[str, ...] | None = None
    tokenizer: Tokenizer | None = None

    @property
    def checks(self) -> frozenset[str]:
        """Families of checks that are for this task, besides those for all."""
        return answer_type(self.recipe.task).checks

    @property
    def labels(self) -> tuple[str, ...] | None:
        """Label names from the recipe, else the data set's official ones.

        The result is None if neither has any. Then the labels are taken from the training rows.
        """
        recipe_labels = self.recipe.text_classification.labels
        if recipe_labels:
            return tuple(recipe_labels)
        return self.official_labels

    @cached_property
    def several_labels(self) -> bool:
        """Whether a row can have several labels: the recipe says so, or some label is a list."""
        section = self.recipe.text_classification
        if section.multi_label or section.label_separator:
            return True
        for rows in self.splits.values():
            if not rows.has("label"):
                continue
            if any(isinstance(label, list | tuple) for label in _labels(rows)):
                return True
        return False

    @cached_property
    def texts(self) -> dict[str, dict[str, Sequence[str]]]:
        """Texts that the model reads of each split: field name -> one string per row."""
        columns = answer_type(self.recipe.task).texts
        return {split: texts_of(rows, columns) for split, rows in self.splits.items()}

    @cached_property
    def keys(self) -> dict[str, Sequence[str]]:
        """Texts of each row of each split, as one string to compare: without case and extra spaces.

        The fields of a row are joined by `BETWEEN_FIELDS`.
        """
        return {
            split: column_of(
                BETWEEN_FIELDS.join(map(normalised, fields))
                for fields in zip(*texts.values(), strict=True)
            )
            for split, texts in self.texts.items()
        }

    @cached_property
    def label_sets(self) -> dict[str, Sequence[tuple[str, ...]] | None]:
        """Label names of each row (one, or several), by split; None for splits without labels.

        They are None for all splits if the task has no labels of texts.
        """
        separator = self.recipe.text_classification.label_separator
        names_of = partial(label_names, separator=separator)
        label_sets: dict[str, Any] = {}
        for split, rows in self.splits.items():
            label_sets[split] = None
            if rows.has("label") and "labels" in self.checks:
                label_sets[split] = mapped_values(rows.columns["label"], names_of)
        return label_sets


def texts_of(rows: Rows, columns: Sequence[str]) -> dict[str, Sequence[str]]:
    """Returns columns as one string per row: words are joined by a space, other lists by U+001F."""
    return {name: _as_texts(rows.columns[name], name) for name in columns if rows.has(name)}


def _as_texts(values: Sequence[Any], name: str) -> Sequence[str]:
    """Returns a column as one string per row.

    Args:
        values: The column. Lists are joined: words by a space, others by `BETWEEN_FIELDS` (U+001F).
        name: Name of the column.
    """
    if isinstance(values, PackedTexts) and not values.has_nulls:
        return values  # a string per row already
    if name == "words":
        separator = " "
    else:
        separator = BETWEEN_FIELDS
    return mapped_values(values, lambda value: _joined(value, separator))


def _labels(rows: Rows) -> Sequence[Any]:
    """Returns the different labels of the rows, as the file has them."""
    return different_values(rows.columns["label"])


def _joined(value: Any, separator: str) -> str:
    """Returns a value as text, a list by joining its parts; None is empty."""
    if isinstance(value, list | tuple):
        return separator.join(map(str, value))
    return "" if value is None else str(value)


def label_names(value: Any, separator: str | None) -> tuple[str, ...]:
    """Returns the label names in one field, as the task reads them; none if the field is blank.

    Args:
        value: Content of the field: a list of labels, or one label.
        separator: What separates labels in a string; None if a string is one label.
    """
    if isinstance(value, list | tuple):
        return tuple(dict.fromkeys(label_name(name) for name in value if name is not None))
    if value is None or value == "" or value != value:  # NaN, as Parquet files have it
        return ()
    if separator:
        return tuple(part.strip() for part in str(value).split(separator) if part.strip())
    return (label_name(value),)
