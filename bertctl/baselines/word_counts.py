"""Baselines without an encoder.

They are TF-IDF with a linear model for texts, and the most frequent tag of each word for words.

Letters: N rows or words, V features, C outputs.
"""

import itertools
import warnings
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from bertctl.arrays import Array, Floats32
from bertctl.baselines.frozen import Answered
from bertctl.baselines.sampling import row_labels, text_sample
from bertctl.data.rows import Rows
from bertctl.metrics.squad import counts_characters
from bertctl.tasks.batches import present
from bertctl.training.job import Job

_STRENGTH = 10.0
"""C of the logistic regression: 1 and 10 differ by 0.2 points on 6,920 sentences (SST-2)."""

_RIDGE_ALPHA = 1.0
_MAX_ITERATIONS = 100
_TOLERANCE = 1e-3
_MOST_FEATURES = 50_000
_MANY_ROWS = 1_000
"""Rows from which a word that one row alone has is left out."""

_SAMPLED_TEXTS = 200
_NEVER = -100.0
"""Logit of a label that no training row has."""

_WEIGHT_OF_ALL_WORDS = 1e-3
"""Weight of the tags of all training words beside the tags of the word itself: it decides for a new
word, and in a tie."""


def tfidf_answers(job: Job, splits: Sequence[str]) -> Answered:
    """Fits a linear model to TF-IDF of words and pairs of words, and answers splits with it.

    A sample of the training rows is enough where all rows would take more than a few seconds, or
    more than the baseline's share of a time limit.

    Texts of a script without spaces are counted by one to three characters. For pairs of texts
    there are features of each text, and of what both texts share.

    Args:
        job: The fine-tuning run, with its data and model loaded.
        splits: Splits to answer.
    """
    train = job.data.splits["train"]
    labels = present(job.features["train"].labels)  # type: ignore[attr-defined]
    n_outputs = int(job.task.head()["num_labels"])
    sample = text_sample(job, row_labels(train, labels), train.columns["text"], n_outputs=n_outputs)
    rows = train.select(sample.tolist())
    features = TextFeatures(rows)
    model = LinearModel(
        features.of(rows), labels[sample], n_outputs, str(job.task.head()["problem_type"])
    )
    logits = {split: model.logits(features.of(job.data.splits[split])) for split in splits}
    return Answered(
        logits, {"rows": len(sample), "features": features.size, "strength": model.strength}
    )


class TextFeatures:
    """TF-IDF of texts, or of pairs of texts.

    Args:
        rows: The training rows, on which words are counted.

    Attributes:
        size: Number of features, V.
    """

    def __init__(self, rows: Rows) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer

        self._columns = [column for column in ("text", "pair") if rows.has(column)]
        texts: list[str] = []
        for column in self._columns:
            texts += _texts(rows, column)
        if counts_characters([texts[:_SAMPLED_TEXTS]]):  # a script without spaces between words
            units: dict[str, Any] = {
                "analyzer": "char",
                "ngram_range": (1, 3),
                "token_pattern": None,
            }
        else:
            units = {"analyzer": "word", "ngram_range": (1, 2), "token_pattern": r"(?u)\b\w+\b"}
        self._vectorizer = TfidfVectorizer(
            **units,
            sublinear_tf=True,
            min_df=2 if len(rows) >= _MANY_ROWS else 1,
            max_features=_MOST_FEATURES,
            dtype=np.float32,
        ).fit(texts)
        n_parts = 1 if len(self._columns) == 1 else 3  # first text, second text, what both share
        self.size = n_parts * len(self._vectorizer.vocabulary_)

    def of(self, rows: Rows) -> Any:
        """Returns (N, V) features as a sparse matrix.

        Those of a pair are TF-IDF of both texts, and the products of the two.
        """
        from scipy.sparse import hstack

        parts = [self._vectorizer.transform(_texts(rows, column)) for column in self._columns]
        if len(parts) == 1:
            return parts[0]
        first, second = parts
        return hstack([first, second, first.multiply(second)], format="csr")


def _texts(rows: Rows, column: str) -> list[str]:
    """Returns the cells of a column as texts."""
    return [str(text) for text in rows.columns[column]]


class LinearModel:
    """Logistic regression on sparse features, or ridge regression for scores.

    With several labels per row there is one regression for each label.

    Args:
        features: (N, V) features as a sparse matrix.
        labels: (N,) numbers of labels or scores, or (N, C) 0 or 1.
        n_outputs: Number of labels, C.
        problem_type: As in a model's config.

    Attributes:
        strength: C of scikit-learn; of a ridge 1 / alpha.
    """

    def __init__(self, features: Any, labels: Array, n_outputs: int, problem_type: str) -> None:
        from sklearn.linear_model import Ridge

        self._n_outputs = n_outputs
        self._is_regression = problem_type == "regression"
        self._has_label_sets = problem_type == "multi_label_classification"
        if self._is_regression:
            self.strength = 1 / _RIDGE_ALPHA
            self._models = [Ridge(alpha=_RIDGE_ALPHA).fit(features, labels)]
            return
        self.strength = _STRENGTH
        if self._has_label_sets:
            self._models = [_fitted(features, decisions) for decisions in labels.T]
        else:
            self._models = [_fitted(features, labels)]

    def logits(self, features: Any) -> Floats32:
        """Returns (N, C) numbers that the task decodes as those of a network's head."""
        if self._is_regression:
            return np.asarray(self._models[0].predict(features), dtype=np.float32)[:, None]
        if self._has_label_sets:  # one model for each of the C labels
            columns = [_odds(model, features) for model in self._models]
            return np.stack(columns, axis=1).astype(np.float32)

        model = self._models[0]
        logits = np.full((features.shape[0], self._n_outputs), _NEVER, dtype=np.float32)
        # Labels that no training row has are not among the model's classes.
        logits[:, model.classes_.astype(np.int64)] = model.predict_log_proba(features)
        return logits


def _fitted(features: Any, labels: Array) -> Any:
    """Returns a logistic regression; a constant where all rows have one label."""
    from sklearn.dummy import DummyClassifier
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    if len(np.unique(labels)) < 2:
        return DummyClassifier().fit(features, labels)
    model = LogisticRegression(C=_STRENGTH, max_iter=_MAX_ITERATIONS, tol=_TOLERANCE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a weak fit shows in its score
        return model.fit(features, labels)


def _odds(model: Any, features: Any) -> Array:
    """Returns (N,) log odds of a label that holds or does not."""
    if len(model.classes_) == 1:  # all training rows have the label, or none has it
        odds = _NEVER if model.classes_[0] == 0 else -_NEVER
        return np.full(features.shape[0], odds)
    return np.asarray(model.decision_function(features))


def word_tag_answers(job: Job, splits: Sequence[str]) -> Answered:
    """Answers each word with the tag that it has most often in training.

    A new word gets the most frequent tag.

    Args:
        job: The fine-tuning run, with its data and model loaded.
        splits: Splits to answer.
    """
    train = job.data.splits["train"]
    labels = present(job.features["train"].labels)  # type: ignore[attr-defined]
    n_outputs = int(job.task.head()["num_labels"])
    model = WordTags(_words(train), labels, n_outputs)
    logits = {split: model.logits(_words(job.data.splits[split])) for split in splits}
    return Answered(logits, {"rows": len(train), "words": model.size})


class WordTags:
    """How often each word has each tag.

    Args:
        words: (N,) words of the training rows.
        labels: (N,) number of each word's tag; negative for none.
        n_outputs: Number of labels, C.

    Attributes:
        size: Number of different words.
        _tag_counts_of_word: Word -> number of a tag -> how often the word has it.
        _added_to_counts: (C,) share of each tag in all words, times `_WEIGHT_OF_ALL_WORDS`.
    """

    def __init__(self, words: Sequence[str], labels: Array, n_outputs: int) -> None:
        tag_counts_of_word: defaultdict[str, Counter[int]] = defaultdict(Counter)
        tag_counts = np.zeros(n_outputs)
        for word, label in zip(words, labels.tolist(), strict=True):
            if label >= 0:  # a negative number stands for a word without a tag
                tag_counts_of_word[word][label] += 1
                tag_counts[label] += 1
        self._tag_counts_of_word = tag_counts_of_word
        tag_shares = tag_counts / max(1.0, tag_counts.sum())
        # Added to the counts of each word. The weight is so small that it matters only for new
        # words, which have no counts, and for ties.
        self._added_to_counts = _WEIGHT_OF_ALL_WORDS * tag_shares
        self.size = len(tag_counts_of_word)

    def logits(self, words: Sequence[str]) -> Floats32:
        """Returns (N, C) logarithms of how often each word has each tag in training.

        The shares of the tags in all words are added with a small weight: a new word gets these.
        """
        frequencies = np.tile(self._added_to_counts, (len(words), 1))
        for row, word in zip(frequencies, words, strict=True):
            for label, number in self._tag_counts_of_word.get(word, {}).items():
                row[label] += number
        logits: Floats32 = np.log(np.maximum(frequencies, 1e-30)).astype(np.float32)
        return logits


def _words(rows: Rows) -> list[str]:
    """Returns the words of all rows, one row after the other."""
    return [str(word) for word in itertools.chain.from_iterable(rows.columns["words"])]
