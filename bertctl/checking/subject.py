"""`Subject`: the splits that are checked, as every check sees them, with what several checks need computed once."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from tokenizers import Tokenizer

from bertctl.config.schema import Recipe
from bertctl.data.groups import normalised
from bertctl.data.rows import Rows
from bertctl.tasks.registry import answer_type

_T = TypeVar("_T")
BETWEEN_FIELDS = "\x1f"  # a control character, so that no text of one field can end as another begins


@dataclass(frozen=True, eq=False)
class Subject:
    """What is checked.

    Attributes:
        recipe: for the task, the label settings and `model.max_length`.
        splits: split name -> rows, in the order train, validation, test.
        validation_splits: the splits that pick the best weights.
        official_labels: label names in the data set's official order, where it has one.
        tokenizer: the model's; None where it can't be had.
    """

    recipe: Recipe
    splits: dict[str, Rows]
    validation_splits: tuple[str, ...] = ("validation",)
    official_labels: tuple[str, ...] | None = None
    tokenizer: Tokenizer | None = None
    _cache: dict[Hashable, Any] = field(default_factory=dict)

    @property
    def checks(self) -> frozenset[str]:
        """Are the families of checks that are for this task, besides those for all."""
        return answer_type(self.recipe.task).checks

    @property
    def train(self) -> Rows | None:
        """Are the training rows, where they could be read."""
        return self.splits.get("train")

    @property
    def labels(self) -> tuple[str, ...] | None:
        """Are the label names that were said (recipe, then data set); None where training rows are to say them."""
        named = self.recipe.text_classification.labels
        return tuple(named) if named else self.official_labels

    @cached_property
    def several_labels(self) -> bool:
        """Whether a row can have several labels: as the recipe says, or where some field is a list."""
        section, rows = self.recipe.text_classification, self.splits.values()
        lists = (isinstance(label, list | tuple) for one in rows if one.has("label") for label in one.columns["label"])
        return bool(section.multi_label or section.label_separator) or any(lists)

    def texts(self, split: str) -> dict[str, Sequence[str]]:
        """Returns what the model reads of a split: field name -> one string per row."""
        columns = answer_type(self.recipe.task).texts
        return self._once(("texts", split), lambda: texts_of(self.splits[split], columns))

    def keys(self, split: str) -> list[str]:
        """Returns one string per row, the same for rows which say the same to the model but for case and spacing."""
        return self._once(("keys", split), lambda: keys_of(self.texts(split)))

    def label_sets(self, split: str) -> list[tuple[str, ...]] | None:
        """Returns each row's label names (one, or several); None where the task or the split has no labels."""
        return self._once(("labels", split), lambda: self._label_sets(self.splits[split]))

    def _label_sets(self, rows: Rows) -> list[tuple[str, ...]] | None:
        if not rows.has("label") or "labels" not in self.checks:
            return None
        separator = self.recipe.text_classification.label_separator
        return [label_names(value, separator) for value in rows.columns["label"]]

    def _once(self, key: Hashable, compute: Callable[[], _T]) -> _T:
        if key not in self._cache:
            self._cache[key] = compute()
        found: _T = self._cache[key]
        return found


def texts_of(rows: Rows, columns: Sequence[str]) -> dict[str, Sequence[str]]:
    """Returns columns as one string per row: words are joined by a space, other lists by U+001F."""
    return {
        name: [_joined(value, " " if name == "words" else BETWEEN_FIELDS) for value in rows.columns[name]]
        for name in columns
        if rows.has(name)
    }


def _joined(value: Any, between: str) -> str:
    if isinstance(value, list | tuple):
        return between.join(map(str, value))
    return "" if value is None else str(value)


def keys_of(texts: dict[str, Sequence[str]]) -> list[str]:
    """Returns the keys of `Subject.keys`."""
    columns = [[normalised(text) for text in column] for column in texts.values()]
    return [BETWEEN_FIELDS.join(fields) for fields in zip(*columns, strict=True)]


def label_names(value: Any, separator: str | None) -> tuple[str, ...]:
    """Returns the label names in one field, as the task reads them; nothing where it is blank."""
    if isinstance(value, list | tuple):
        return tuple(str(name) for name in value)
    if value is None or value == "" or value != value:  # NaN, as Parquet files have it
        return ()
    if separator:
        return tuple(part.strip() for part in str(value).split(separator) if part.strip())
    return (str(value),)
