"""The frozen encoder's classifier.

`bertctl probe` makes it by default, on a sample of the training rows.

The encoder is read from the model's files, so it is as it was before the fine-tuning, whenever this
is called.

Letters: N rows or words, D size of a vector, C outputs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np

from bertctl.arrays import Array, Floats32, Ints
from bertctl.baselines.sampling import TOO_SHORT, affordable_tokens, frozen_sample, row_labels
from bertctl.data.rows import Rows
from bertctl.features.encoded_windows import EncodedWindows
from bertctl.features.encoder import Encoder, VectorSpec
from bertctl.modeling.classifiers import (
    LOGISTIC,
    RIDGE,
    ClassifierSettings,
    LinearFunction,
    choose_strength,
    fit,
)
from bertctl.modeling.layers import choose_layers, join_states, layer_count
from bertctl.modeling.linear_head import FIRST_OF_WORD
from bertctl.progress import SILENT, Listener
from bertctl.tasks.base import Features, Task
from bertctl.tasks.batches import present
from bertctl.tasks.probabilities import softmax
from bertctl.tasks.sequences import SequenceFeatures
from bertctl.tasks.tagging.word_windows import WordFeatures
from bertctl.tokenization.long_texts import LongText
from bertctl.training.job import Job
from bertctl.training.time_shares import FEWEST_ROWS as FEWEST_IN_TIME
from bertctl.training.time_shares import (
    FROZEN_SHARE,
    NoTimeError,
    ReadingPace,
    seconds_for,
    time_reading,
)
from bertctl.words import count

_STRENGTHS = (1e-3, 1e-2, 1e-1, 1.0)
_USUAL_STRENGTH = 1e-2
"""Of so few rows that there is nothing to choose by."""

_FOLDS = 3
_CHOICE_OUTPUTS = 60_000
"""Rows times labels that the strength, a tenfold step, is chosen on."""

_CHOICE_ROWS = (500, 3_000)
_SHORT_SPLIT = 1_000
"""Rows of a split that is read however short the run is."""

_ROWS_AT_ONCE = 4_096
_PHASE = "baselines: the frozen encoder"


@dataclass(frozen=True)
class Answered:
    """What a baseline answers.

    Attributes:
        logits: Split -> (N, C), as a network's head would give them for its rows or words.
        details: How it was fitted, for metrics.json.
    """

    logits: Mapping[str, Array]
    details: Mapping[str, Any]


def frozen_answers(job: Job, splits: Sequence[str], listener: Listener) -> Answered:
    """Fits a linear classifier to the frozen encoder's vectors and answers splits with it.

    Args:
        job: The fine-tuning run, with its data and model loaded.
        splits: Splits to answer, the selection split first. Splits that can't be read in time are
            left out, but not the first.
        listener: Receives progress.

    Raises:
        NoTimeError: A time limit leaves time for too few rows.
    """
    _check_opening(job)  # raises NoTimeError before the encoder is loaded
    reader = _VectorReader(job, SILENT)
    settings = classifier_settings(job.task, seed=job.recipe.training.seed)
    train = job.data.splits["train"]
    # The rows that are read to measure the pace are not reported as progress.
    pace, seconds = _pace_in_limit(job, reader)
    reader.report_to(listener)
    readable, tokens = _readable(job, splits)
    if pace is not None:
        readable, seconds = _readable_in_limit(job, readable, pace, seconds)
    for split in splits:
        if split not in readable:
            rows = count(len(job.data.splits[split]), "row")
            listener.say(
                f"the frozen encoder is not scored on {split}: {rows} would take over a tenth of "
                "the run's time"
            )
    labels = present(job.features["train"].labels)  # type: ignore[attr-defined]
    draw = partial(
        frozen_sample,
        job,
        row_labels(train, labels),
        tokens=tokens,
        n_outputs=settings.n_outputs,
        by_word=reader.by_word,
    )
    sampled = draw()
    if pace is not None:
        n_in_time = _training_rows_in_time(
            job, pace, seconds, settings.n_outputs, by_word=reader.by_word
        )
        if n_in_time < min(len(sampled), FEWEST_IN_TIME):
            raise NoTimeError(TOO_SHORT)
        sampled = draw(at_most=n_in_time)
    reader.total_rows = len(sampled) + sum(len(job.data.splits[split]) for split in readable)
    try:
        vectors, sample_labels = reader.training_rows(train, sampled)
        fitted = fit_classifier(vectors, sample_labels, settings)
        logits = {split: reader.logits(job.data.splits[split], fitted) for split in readable}
    finally:
        listener.finish(_PHASE)
    return Answered(
        logits,
        {"rows": len(sampled), "classifier": settings.classifier, "strength": fitted.strength},
    )


def _training_rows_in_time(
    job: Job, pace: ReadingPace, seconds: float, n_outputs: int, *, by_word: bool
) -> int:
    """Returns how many training rows can be read, and the classifier fitted to, in some seconds.

    Args:
        job: The fine-tuning run, with its data and model loaded.
        pace: How fast the encoder reads.
        seconds: Seconds that are left for reading and fitting.
        n_outputs: Number of labels.
        by_word: Whether each word has a label.
    """
    features = job.features["train"]
    n_rows = len(job.data.splits["train"])
    # The classifier has an example for each word, so a row takes as long as its words.
    if by_word:
        words_of_row = max(1.0, features.num_predictions / n_rows)
    else:
        words_of_row = 1.0
    return pace.affordable_rows(
        seconds,
        tokens_of_row=features.lengths.sum() / n_rows,
        n_outputs=round(n_outputs * words_of_row),
    )


def classifier_settings(task: Task, *, seed: int) -> ClassifierSettings:
    """Returns how the classifier of a task is trained."""
    head = task.head()
    is_regression = head["problem_type"] == "regression"
    return ClassifierSettings(
        classifier=RIDGE if is_regression else LOGISTIC,
        multi_label=head["problem_type"] == "multi_label_classification",
        n_outputs=int(head["num_labels"]),
        balanced=False,
        strengths=_STRENGTHS,
        folds=_FOLDS,
        seed=seed,
        labels=tuple(head.get("id2label", {}).values()),
    )


def fit_classifier(
    vectors: Floats32, labels: Array, settings: ClassifierSettings
) -> LinearFunction:
    """Returns the classifier on all vectors.

    The strength of its regularization is chosen by cross-validation on a part of them.

    Args:
        vectors: (N, D).
        labels: (N,), or (N, C) for several labels.
        settings: Settings of the classifier.
    """
    fewest, most = _CHOICE_ROWS
    size = min(most, max(fewest, _CHOICE_OUTPUTS // settings.n_outputs))
    part = np.random.default_rng(settings.seed).permutation(len(labels))[:size]
    targets = labels[part]
    has_classes = not settings.multi_label and not settings.is_regression
    has_one_class = has_classes and len(np.unique(targets)) < 2
    if len(part) < 2 * settings.folds or has_one_class:
        return fit(vectors, labels, _USUAL_STRENGTH, settings)

    score = partial(_score, labels=targets, settings=settings)
    strength, _ = choose_strength(vectors[part], targets, settings, score)
    return fit(vectors, labels, strength, settings)


def _score(logits: Floats32, labels: Array, settings: ClassifierSettings) -> float:
    """Returns how well logits fit the gold labels, the higher the better.

    It is the mean log-likelihood of the labels; for scores, the negative mean squared error.

    Args:
        logits: (N, C) logits of the classifier.
        labels: (N,) numbers of labels or scores, or (N, C) 0 or 1.
        settings: Settings of the classifier.
    """
    if settings.is_regression:
        return -float(np.square(logits[:, 0] - labels).mean())
    if settings.multi_label:
        return -float((np.logaddexp(0.0, logits) - labels * logits).mean())
    likelihood = softmax(logits)[np.arange(len(labels)), labels.astype(np.int64)]
    return float(np.log(np.maximum(likelihood, 1e-12)).mean())


def _readable(job: Job, splits: Sequence[str]) -> tuple[list[str], int]:
    """Returns the splits that the encoder may read, and the tokens left for training rows.

    It reads the first split and short ones in any case, and others that leave half of the tokens.
    The tokens that are left may be negative.
    """
    tokens = affordable_tokens(job)
    readable: list[str] = []
    for split in splits:
        n_tokens = int(job.features[split].lengths.sum())
        is_short = len(job.data.splits[split]) <= _SHORT_SPLIT
        if not readable or is_short or n_tokens <= tokens / 2:
            readable.append(split)
            tokens -= n_tokens
    return readable, tokens


def _check_opening(job: Job) -> None:
    """Refuses to open the encoder again where a time limit leaves no time for that.

    Raises:
        NoTimeError: Loading the model took longer than the baseline may.
    """
    seconds = seconds_for(job, FROZEN_SHARE)
    if seconds is not None and job.seconds.get("load", 0.0) > seconds:
        raise NoTimeError(TOO_SHORT)


def _pace_in_limit(job: Job, reader: "_VectorReader") -> tuple[ReadingPace | None, float]:
    """Returns how fast the frozen encoder reads, and the seconds that it may read.

    They are None and 0 without a time limit. The pace is measured by reading some training rows.
    """
    seconds = seconds_for(job, FROZEN_SHARE)
    if seconds is None:
        return None, 0.0

    train = job.data.splits["train"]
    n_rows = len(train)
    order = np.random.default_rng(job.recipe.data.split_seed).permutation(n_rows)
    # Lengths are known by window, and a row can be several windows: each row counts as an average
    # one.
    tokens_of_row = job.features["train"].lengths.sum() / n_rows
    lengths = np.full(n_rows, max(1, round(tokens_of_row)))

    def read(indices: Ints) -> None:
        """Reads training rows in file order, to be timed."""
        reader.training_rows(train, np.sort(indices))

    return time_reading(read, order, lengths, seconds=seconds), seconds


def _readable_in_limit(
    job: Job, splits: Sequence[str], pace: ReadingPace, seconds: float
) -> tuple[list[str], float]:
    """Returns the splits that can be read within a time limit, and the seconds left for training.

    Args:
        job: The fine-tuning run, with its data and model loaded.
        splits: Splits in the order in which they are read. Each may take half of the seconds that
            are left when it comes.
        pace: How fast the encoder reads.
        seconds: Seconds that it may read.

    Raises:
        NoTimeError: Not even the first one can be read.
    """
    readable: list[str] = []
    for split in splits:
        n_tokens = int(job.features[split].lengths.sum())
        seconds_needed = pace.seconds_of(n_tokens)
        if seconds_needed <= seconds / 2:
            readable.append(split)
            seconds -= seconds_needed
        elif not readable:
            raise NoTimeError(TOO_SHORT)
    return readable, seconds


class _VectorReader:
    """Reads rows with the frozen encoder, some thousand at a time.

    Their vectors then fit in memory.

    Args:
        job: The fine-tuning run, with its data and model loaded.
        listener: Receives progress.

    Attributes:
        by_word: Whether each word has a vector.
        total_rows: Rows that will be read, for the progress.
    """

    def __init__(self, job: Job, listener: Listener) -> None:
        self._job = job
        self._listener = listener
        self._rows_read = 0
        self.by_word = "words" in job.task.columns
        self.total_rows = 0  # set by the caller when it knows what will be read
        layers = choose_layers(["last"], layer_count(job.source.config))
        if self.by_word:
            words = FIRST_OF_WORD
        else:
            words = None
        spec = VectorSpec(layers, words=words, windows=LongText.of(job.recipe.model).pooling)
        self._layer = layers[0]
        self._encoder = Encoder.open(job.source, spec, job.compute)

    def report_to(self, listener: Listener) -> None:
        """Reports the progress from now on, counted from zero."""
        self._listener = listener
        self._rows_read = 0

    def training_rows(self, rows: Rows, indices: Ints) -> tuple[Floats32, Array]:
        """Returns vectors (N, D) and labels of some rows, or of their words."""
        vectors: list[Floats32] = []
        labels: list[Array] = []
        for features in self._parts(rows.select(indices.tolist())):
            vectors.append(self._vectors(features))
            labels.append(present(features.labels))  # type: ignore[attr-defined]
        return np.concatenate(vectors), np.concatenate(labels)

    def logits(self, rows: Rows, fitted: LinearFunction) -> Floats32:
        """Returns (N, C) what a classifier answers."""
        return np.concatenate(
            [fitted.logits(self._vectors(features)) for features in self._parts(rows)]
        )

    def _parts(self, rows: Rows) -> Iterator[Features]:
        """Yields the features of some thousand rows at a time, and reports the progress."""
        length = self._job.recipe.model.max_length
        for part in rows.parts(_ROWS_AT_ONCE):
            yield self._job.task.encode(part, self._encoder.engine.tokenizer, max_length=length)
            self._rows_read += len(part)
            self._listener.advance(_PHASE, self._rows_read, self.total_rows)

    def _vectors(self, features: Features) -> Floats32:
        """Returns (N, D) vectors of rows, or of the words in them (of each word's first token)."""
        if not self.by_word:
            (vectors,) = self._encoder.texts(EncodedWindows.of(cast(SequenceFeatures, features)))
            return vectors

        import torch

        words = cast(WordFeatures, features)
        # Hidden states by the number of the layer, which the encoder fills in.
        states = {
            layer: np.empty((words.num_predictions, width), dtype=np.float32)
            for layer, width in self._encoder.widths.items()
        }
        self._encoder.first_tokens(words, states)
        tensors = {layer: torch.from_numpy(values) for layer, values in states.items()}
        return cast(Floats32, join_states(self._layer, tensors).numpy())
