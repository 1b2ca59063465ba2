"""The four kinds of rows that embeddings of texts are learned from, and what each kind means.

scores    pairs with a number that says how alike they are
classes   pairs with a label
matches   pairs that belong together
texts     single texts with a label
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bertctl.arrays import Floats, Floats32, Ints
from bertctl.data.rows import Rows
from bertctl.data.sentence_files import MATCH
from bertctl.errors import DataError, UsageError
from bertctl.tasks.classification.positive_label import positive_label
from bertctl.tasks.sentences.sentence_features import SentenceFeatures
from bertctl.tasks.sentences.sentence_search import (
    SearchPlan,
    plan_of_labelled_texts,
    plan_of_pairs,
    random_search,
)
from bertctl.words import as_number, count, listing

_NO_NUMBERS = ("nan", "inf", "infinity", "none", "null", "na", "n/a")


@dataclass(frozen=True)
class LearnedLabels:
    """What a model has learned from its training rows.

    Attributes:
        kind: Name of the kind of rows; None for a model that was not trained here.
        labels: Names of the classes, in their order.
        positive: Label of pairs that belong together.
        low: Score that stands for the cosine 0.
        high: Score that stands for the cosine 1.
    """

    kind: str | None
    labels: tuple[str, ...]
    positive: str | None
    low: float
    high: float

    def positive_among(self, labels: Sequence[str]) -> str | None:
        """Returns which of these labels says that two texts belong together.

        It is the learned one, if the labels are those of training. Otherwise it is guessed from two
        names.

        Args:
            labels: Labels of pairs that are scored.

        Raises:
            UsageError: There are three or more labels, and the learned one is none of them.
        """
        names = sorted({*labels})
        are_learned = {*names} <= {*self.labels}
        if self.positive is not None and (self.positive in names or are_learned):
            return self.positive
        if len(names) > 2:
            raise unknown_positive(names)
        if len(names) == 2:
            return positive_label(names, multi_label=False, requested=None)
        return "1"  # of a single label the name tells nothing: 1 means so in most data sets


class RowKind(ABC):
    """One kind of rows.

    Class attributes:
        name: Name of the kind in features, and in the config of a trained model.
        noun: What people call them.
        primary_metric: What the best weights are chosen by.
        has_classes: Whether labels are names.
        says_matches: Whether labels say of each pair if it belongs together.
    """

    name: ClassVar[str]
    noun: ClassVar[str]
    primary_metric: ClassVar[str]
    has_classes: ClassVar[bool] = False
    says_matches: ClassVar[bool] = False

    @abstractmethod
    def targets(self, rows: Rows, learned: LearnedLabels) -> tuple[Floats32, Ints]:
        """Returns (N,) how near each row's texts are, 0 to 1, and (N,) the numbers of its class."""

    def search_plan(self, features: SentenceFeatures) -> SearchPlan | None:
        """Returns which texts look for which; None where a row answers for itself."""
        return None

    def random_lines(self, rows: Rows) -> list[dict[str, Any]]:
        """Returns prediction lines of a search that ranks texts at random, as a baseline.

        Raises:
            ValueError: Rows of this kind answer for themselves, and nothing is searched.
        """
        raise ValueError(f"{self.noun} are not searched")

    def describe(self, rows: Rows) -> str:
        """Returns what the labels are, and how often each is there."""
        counts = Counter(map(str, rows.columns["label"])).most_common(10)
        return f"{self.noun}; " + ", ".join(f"{name}: {number}" for name, number in counts)


class ScoredPairs(RowKind):
    """Pairs with a number that says how alike they are."""

    name = "scores"
    noun = "scored pairs"
    primary_metric = "spearman"

    def targets(self, rows: Rows, learned: LearnedLabels) -> tuple[Floats32, Ints]:
        """Returns (N,) scores scaled to 0 to 1, and (N,) zeros, as scored pairs have no classes.

        The range is the learned one, or that of these rows if training had no scores.
        """
        scores = scores_of(rows)
        low = learned.low
        high = learned.high
        if learned.kind != self.name:
            low = float(scores.min())
            high = float(scores.max())
        similarities = (scores - low) / max(high - low, 1e-9)
        return similarities.astype(np.float32), np.zeros(len(rows), dtype=np.int64)

    def describe(self, rows: Rows) -> str:
        """Returns the range of the scores and their mean."""
        scores = scores_of(rows)
        return f"scores {scores.min():g} to {scores.max():g}, mean {scores.mean():.3g}"


class LabelledPairs(RowKind):
    """Pairs with a label, one of which says that they belong together."""

    name = "classes"
    noun = "labelled pairs"
    primary_metric = "average_precision"
    has_classes = True
    says_matches = True

    def targets(self, rows: Rows, learned: LearnedLabels) -> tuple[Floats32, Ints]:
        """Returns 1 for pairs of the positive label, and the numbers of the labels."""
        labels = [str(label) for label in rows.columns["label"]]
        is_match = (np.array(labels) == learned.positive_among(labels)).astype(np.float32)
        return is_match, _class_numbers(labels, self.name, learned)


class BarePairs(RowKind):
    """Pairs that belong together; other pairs of the batch do not."""

    name = "matches"
    noun = "bare pairs"
    primary_metric = "mrr_at_10"

    def targets(self, rows: Rows, learned: LearnedLabels) -> tuple[Floats32, Ints]:
        """Returns ones, and one class for all."""
        return np.ones(len(rows), dtype=np.float32), np.zeros(len(rows), dtype=np.int64)

    def search_plan(self, features: SentenceFeatures) -> SearchPlan:
        """Returns a plan in which first texts look for their second ones."""
        return plan_of_pairs(features)

    def random_lines(self, rows: Rows) -> list[dict[str, Any]]:
        """Returns a prediction line for each first text: its partners have random ranks."""
        texts = rows.columns["text"]
        partners = rows.columns["pair"]
        # A text can have several partners, and the same pair can be there twice.
        different_pairs = {*zip(texts, partners, strict=True)}
        n_partners = Counter(text for text, _ in different_pairs)
        n_relevant_of = {text: n_partners[text] for text in texts}
        return random_search(n_relevant_of, n_candidates=len({*partners}))

    def describe(self, rows: Rows) -> str:
        """Returns whether there are third texts."""
        return "triplets" if rows.has("negative") else self.noun


class LabelledTexts(RowKind):
    """Single texts with a label; texts of one label belong together."""

    name = "texts"
    noun = "labelled texts"
    primary_metric = "mrr_at_10"
    has_classes = True

    def targets(self, rows: Rows, learned: LearnedLabels) -> tuple[Floats32, Ints]:
        """Returns ones, and the numbers of the labels."""
        labels = [str(label) for label in rows.columns["label"]]
        ones = np.ones(len(rows), dtype=np.float32)
        return ones, _class_numbers(labels, self.name, learned)

    def search_plan(self, features: SentenceFeatures) -> SearchPlan:
        """Returns a plan in which texts look for the others of their label."""
        return plan_of_labelled_texts(features)

    def random_lines(self, rows: Rows) -> list[dict[str, Any]]:
        """Returns a prediction line for each text: the texts of the same label have random ranks.

        A text that occurs with several labels belongs to the texts of all these labels.
        """
        texts_of_label: dict[str, set[str]] = {}
        for text, label in zip(rows.columns["text"], rows.columns["label"], strict=True):
            texts_of_label.setdefault(str(label), set()).add(text)
        texts_of_same_label: dict[str, set[str]] = {}
        for texts in texts_of_label.values():
            for text in texts:
                texts_of_same_label.setdefault(text, set()).update(texts)
        # A text is no candidate of its own search, so 1 is taken off.
        n_relevant_of = {text: len(texts_of_same_label[text]) - 1 for text in rows.columns["text"]}
        return random_search(n_relevant_of, n_candidates=len(texts_of_same_label) - 1)


SCORES = ScoredPairs()
CLASSES = LabelledPairs()
MATCHES = BarePairs()
TEXTS = LabelledTexts()
ROW_KINDS: Mapping[str, RowKind] = {kind.name: kind for kind in (SCORES, CLASSES, MATCHES, TEXTS)}
"""The kinds of rows, by their names."""


def kind_of_rows(rows: Rows, known_labels: Sequence[str]) -> RowKind:
    """Returns the kind of rows, by their columns and labels.

    Args:
        rows: Rows with or without labels.
        known_labels: Names of classes that were learned or that the data set names.

    Raises:
        DataError: The labels are scores, and a few of them are no numbers.
    """
    labels = rows.columns.get("label", ())
    if not rows.has("pair"):
        return TEXTS
    if all(label == MATCH for label in labels):
        return MATCHES
    different = {str(label) for label in labels}
    if different <= {*known_labels}:
        return CLASSES
    # Whole numbers can be scores or names. One or two of them are taken for names: 0 and 1.
    if len(different) <= 2 and all(map(_is_whole, different)):
        return CLASSES
    words = {label for label in different if not is_number(label)}
    _refuse_bad_scores(rows, different, words)
    return CLASSES if words else SCORES


def scores_of(rows: Rows) -> Floats:
    """Returns (N,) the labels as numbers."""
    return np.array([float(str(label)) for label in rows.columns["label"]], dtype=np.float64)


def _class_numbers(labels: Sequence[str], kind: str, learned: LearnedLabels) -> Ints:
    """Returns (N,) numbers of classes: those that were learned, or sorted ones of these rows."""
    names = learned.labels if kind == learned.kind else sorted({*labels})
    number = {name: i for i, name in enumerate(names)}
    return np.array([number.get(name, 0) for name in labels], dtype=np.int64)


def is_number(text: str) -> bool:
    """Returns whether a label is a number that float32 can hold."""
    return abs(as_number(text)) < 3.4e38


def _is_whole(text: str) -> bool:
    """Returns whether a label is a whole number, such as 3 or -1."""
    return text.removeprefix("-").isdecimal()


def _refuse_bad_scores(rows: Rows, different: set[str], words: set[str]) -> None:
    """Refuses scores of which a few are no numbers, such as an empty one or `nan`.

    Labels are scores for sure if some are decimal numbers, as no class is called 4.34, or if all
    words among the numbers stand for a missing score.

    Args:
        rows: Pairs with labels.
        different: All different labels.
        words: Labels that are no numbers.

    Raises:
        DataError: There is such a label; the message has the first row with it.
    """
    numbers = different - words
    words_are_missing_scores = all(word.lower().lstrip("+-") in _NO_NUMBERS for word in words)
    has_decimal_numbers = not all(map(_is_whole, numbers))
    are_scores = words_are_missing_scores or has_decimal_numbers
    if words and numbers and are_scores:
        labels = rows.columns["label"]
        bad_row = next(i for i, label in enumerate(labels) if str(label) in words)
        scores_text = count(len(numbers), "other one is", "others are")
        message = (
            f"{rows.where(bad_row)}: the label {labels[bad_row]!r} is not a score, and "
            f"{scores_text}"
        )
        raise DataError(
            message,
            remedy="Correct it or leave the row out; or name another column: "
            "`data.label_column=NAME`.",
        )


def unknown_positive(names: Sequence[str]) -> UsageError:
    """Returns the refusal of labels of which none is known to mean that texts belong together."""
    message = (
        f"which of the labels {listing(names)} says that two texts belong together is not known"
    )
    return UsageError(message, remedy="Name it in training: `evaluation.positive_label=LABEL`.")
