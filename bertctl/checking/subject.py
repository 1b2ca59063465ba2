"""`Subject`: the splits that are checked, as every check sees them, with what several checks need computed once."""

import unicodedata
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

from tokenizers import Tokenizer

from bertctl.config.schema import Recipe
from bertctl.data.rows import Rows

_T = TypeVar("_T")
BETWEEN_FIELDS = "\x1f"  # a control character, so that no text of one field can end as another begins

READ: Mapping[str, tuple[str, ...]] = {
    "text-classification": ("text", "pair"),
    "text-regression": ("text", "pair"),
    "token-classification": ("words",),
    "question-answering": ("question", "context"),
    "multiple-choice": ("context", "choices"),
}
"""Task -> the columns that its models read."""


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
    def task(self) -> str:
        """As in the recipe."""
        return self.recipe.task

    @property
    def train(self) -> Rows | None:
        """The training rows, where they could be read."""
        return self.splits.get("train")

    @property
    def labels(self) -> tuple[str, ...] | None:
        """Label names that were said (recipe, then data set); None where they are learned from the training rows."""
        named = self.recipe.text_classification.labels
        return tuple(named) if named else self.official_labels

    def texts(self, split: str) -> dict[str, Sequence[str]]:
        """What the model reads of a split: field name -> one string a row."""
        return self._once(("texts", split), lambda: texts_of(self.splits[split], self.recipe.task))

    def keys(self, split: str) -> list[str]:
        """One string a row that is the same for two rows which say the same to the model, but for case and spacing."""
        return self._once(("keys", split), lambda: keys_of(self.texts(split)))

    def label_sets(self, split: str) -> list[tuple[str, ...]] | None:
        """The label names of each row of a classification split (one, or several); None where it has none."""
        return self._once(("labels", split), lambda: self._label_sets(self.splits[split]))

    def _label_sets(self, rows: Rows) -> list[tuple[str, ...]] | None:
        if not rows.has("label") or self.recipe.task != "text-classification":
            return None
        separator = self.recipe.text_classification.label_separator
        return [label_names(value, separator) for value in rows.columns["label"]]

    def _once(self, key: Hashable, compute: Callable[[], _T]) -> _T:
        if key not in self._cache:
            self._cache[key] = compute()
        found: _T = self._cache[key]
        return found


def texts_of(rows: Rows, task: str) -> dict[str, Sequence[str]]:
    """The columns that a model reads, each as one string a row: words are joined by a space, choices by U+001F.

    The task says which; a file may well have a column of its own that is called `question` or `words`.
    """
    found: dict[str, Sequence[str]] = {}
    for name in READ[task]:
        if not rows.has(name):
            continue
        if name in ("words", "choices"):
            between = " " if name == "words" else BETWEEN_FIELDS
            found[name] = [between.join(map(str, values)) for values in rows.columns[name]]
        else:
            found[name] = ["" if value is None else str(value) for value in rows.columns[name]]
    return found


def keys_of(texts: dict[str, Sequence[str]]) -> list[str]:
    """See `Subject.keys`."""
    normalised = [[_normalised(text) for text in column] for column in texts.values()]
    if len(normalised) == 1:
        return normalised[0]
    return [BETWEEN_FIELDS.join(fields) for fields in zip(*normalised, strict=True)]


@lru_cache(maxsize=4096)  # contexts of question answering stand many times, one after the other
def _normalised(text: str) -> str:
    return normalised(text)


def normalised(text: str) -> str:
    """Unicode's compatibility form, no case, one space where there is any: full-width letters are plain ones."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    return " ".join(text.casefold().split())


def label_names(value: Any, separator: str | None) -> tuple[str, ...]:
    """The label names in one field, read as the task `text-classification` reads them; nothing where it is blank."""
    if isinstance(value, list | tuple):
        return tuple(str(name) for name in value)
    if value is None or value == "" or value != value:  # NaN, as Parquet files have it
        return ()
    if separator:
        return tuple(part.strip() for part in str(value).split(separator) if part.strip())
    return (str(value),)
