"""`model.head_start: probe`: a new head begins as a regression on the frozen encoder.

See Kumar et al. 2022 (LP-FT). Before the first step, the encoder reads a sample of the training
rows once. The regression is fitted to the vectors that the network's last layer reads, and becomes
that layer. So the first evaluation is the frozen encoder's score.

Letters: N predictions (rows, words or choices), D size of a vector, C outputs.
"""

import time
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from bertctl.arrays import Array, Floats32, Ints
from bertctl.modeling.classifiers import LinearFunction, common_deviation
from bertctl.modeling.head_regression import FittedHead, UnfittedError, fit_labels, fit_scores
from bertctl.modeling.trained_heads import has_trained_head, keeps_head, lost_of_head
from bertctl.progress import SILENT, Listener
from bertctl.runtime.launch import Workers
from bertctl.tasks.base import Task
from bertctl.training.auto_settings import FEW_LABELS
from bertctl.training.head_vectors import SampledFeatures, head_vectors, sampled_windows
from bertctl.training.job import Job
from bertctl.training.time_shares import (
    FEWEST_ROWS,
    HEAD_START_SHARE,
    seconds_for,
    time_reading,
)
from bertctl.words import count

_PASSED_DEVIATION = 0.4
"""Largest deviation of what a pooler passes on: there, the hyperbolic tangent is nearly a straight
line."""

_FEW_ROWS_OF_LABEL = 30
"""Rows of an average label up to which more than a few labels count alike in the regression.

A strong regularisation shrinks the weights of a label with few rows most. Where one label has two
rows and another one four, the chance of the draw would decide the answers (`docs/benchmarks.md`,
"Attempts behind auto")."""

_ROUNDING = 0.05
"""How far a number between -1 and 1 may be off that was computed in half precision."""


@dataclass(frozen=True)
class HeadStart:
    """What a new head begins as.

    Attributes:
        regression: Its name; empty where there is none.
        noun: What it was fitted to: row, word or choice.
        fitted_on: How many of them.
        seconds: That it took.
        reason: Why the head begins with random weights, where it does.
        passes_state: Whether the pooler starts by passing the first token's state on.
    """

    regression: str = ""
    noun: str = "row"
    fitted_on: int = 0
    seconds: float = 0.0
    reason: str = ""
    passes_state: bool = False

    def sentence(self, score: str) -> str:
        """Returns a sentence about the start and its score.

        Args:
            score: Of the first evaluation, as half a sentence.
        """
        details = f"{count(self.fitted_on, self.noun)}, {self.seconds:.1f} s"
        if self.passes_state:
            details += "; the pooler starts by passing the first token on"
        begin = f"head: starts as {self.regression} on the frozen encoder ({details})"
        return f"{begin}: {score}"


def has_new_head(job: Job) -> bool:
    """Returns whether the head of a job's network has random weights.

    If not, it was trained before for the same labels, and none of its weights was missing.
    """
    if not has_trained_head(job.source):
        return True
    is_whole = not lost_of_head(job.loaded.network, job.loaded.new_weights)
    return not (is_whole and keeps_head(job.source, job.task.head(), job.task.auto_class))


def starts_head(job: Job) -> bool:
    """Returns whether a job's head will start as a regression on the frozen encoder."""
    return job.recipe.model.head_start == "probe" and has_new_head(job)


def announcement(job: Job) -> str:
    """Returns a sentence about how the head will start; empty without `model.head_start: probe`."""
    if job.recipe.model.head_start != "probe":
        return ""
    if not has_new_head(job):
        return "head: continues from the trained one, so model.head_start changes nothing"
    read = len(sampled_windows(job))
    n_windows = len(job.features["train"])
    if read < n_windows:
        sample = f"{count(read, 'row')} of {n_windows:,}"
    else:
        sample = f"all {count(read, 'row')}"
    if job.recipe.training.time_limit is not None:
        sample = f"{sample}, or fewer in a fifth of the time limit"
    return (
        f"head: will start as {_regression(job.task)} on the frozen encoder, fitted to {sample} "
        "(model.head_start)"
    )


def start_head(job: Job, workers: Workers, listener: Listener) -> HeadStart | None:
    """Fits the new head of a job's network to the frozen encoder, and puts it in place.

    Args:
        job: Made ready; its network is where it computes.
        workers: The processes that share the job: each reads its part, all get the same head.
        listener: Receives progress, and why the head stays random.

    Returns:
        What the head begins as; None where the model has a head that was trained for these labels.
    """
    from bertctl.modeling.heads import last_layer, set_weights

    if not starts_head(job):
        return None
    started = time.perf_counter()
    features = job.features["train"]
    windows = _windows_in_time(job, workers)
    if not len(windows):
        return _no_time(job, started, listener)
    sample = SampledFeatures(features, windows)
    network = job.loaded.network
    # A pooler's dense layer stands between the encoder and the last layer. If the state of the
    # first token predicts better than the pooler's output, it is made to pass that state on.
    dense = _layer_to_pass(job)
    # All processes read their parts. The first one fits the regression and tells the others.
    vectors = head_vectors(
        job,
        sample,
        workers,
        listener,
        dense=dense,
    )
    _, last = last_layer(network)
    start = _Start.empty(last, dense)
    error_text = ""
    if workers.is_first:
        try:
            start = _best_start(job, sample, vectors, dense)
        except UnfittedError as error:
            error_text = str(error)
    error_text = workers.share(error_text)
    start = start.shared(workers)
    seconds = time.perf_counter() - started
    job.seconds["head_start"] = seconds
    if error_text:
        listener.say(f"head: starts with random weights: {error_text}")
        return HeadStart(reason=error_text, seconds=seconds)

    set_weights(last, start.weight, start.bias)
    passes_state = bool(start.dense_weight.any())
    if passes_state:
        set_weights(dense, start.dense_weight, start.dense_bias)
    return HeadStart(
        regression=_regression(job.task),
        noun=features.prediction_noun,
        fitted_on=len(vectors),
        seconds=seconds,
        passes_state=passes_state,
    )


def _no_time(job: Job, started: float, listener: Listener) -> HeadStart:
    """Reports that the time limit leaves no time for a start, and returns the random head."""
    reason = "reading enough rows would take over a fifth of the time limit"
    listener.say(f"head: starts with random weights: {reason}")
    seconds = time.perf_counter() - started
    job.seconds["head_start"] = seconds
    return HeadStart(reason=reason, seconds=seconds)


def _windows_in_time(job: Job, workers: Workers) -> Ints:
    """Returns the numbers of the training windows that are read, ascending.

    A time limit may leave time for a part of the windows only; to know how many, the reading of
    some is timed first. If there is time for fewer than `FEWEST_ROWS`, none are returned.
    """
    from bertctl.modeling.heads import last_layer

    windows = sampled_windows(job)
    seconds = seconds_for(job, HEAD_START_SHARE)
    if seconds is None:
        return windows

    features = job.features["train"]

    def read(timed_windows: Ints) -> None:
        """Reads windows as the head start will read its sample."""
        head_vectors(job, SampledFeatures(features, np.sort(timed_windows)), workers, SILENT)

    rng = np.random.default_rng(job.recipe.training.seed_of_init)
    pace = time_reading(read, rng.permutation(windows), features.lengths, seconds=seconds)
    _, last = last_layer(job.loaded.network)
    predictions_per_window = max(1.0, features.num_predictions / max(1, len(features)))
    n_affordable = pace.affordable_rows(
        seconds,
        tokens_of_row=float(features.lengths[windows].mean()),
        n_outputs=round(len(last.weight) * predictions_per_window),
    )
    # Each process measured its own pace; all of them must read parts of the same sample.
    n_affordable = int(workers.share(str(n_affordable)))
    if n_affordable >= len(windows):
        return windows
    if n_affordable < FEWEST_ROWS:
        return windows[:0]
    return sampled_windows(job, at_most=n_affordable)


def _layer_to_pass(job: Job) -> Any:
    """Returns the pooler's dense layer, between the first token's state and the last layer.

    It is None if there is no such layer, or if its weights should not be chosen by a regression:
    layers are initialised anew, texts are read in several windows, or the task is not about texts.
    """
    from bertctl.modeling.heads import dense_layer

    is_anew = job.recipe.training.reinit_layers is not None
    in_windows = job.features["train"].splits_long_texts
    if is_anew or in_windows or not job.recipe.answers_texts:
        return None
    return dense_layer(job.loaded.network)


@dataclass(frozen=True)
class _Start:
    """Weights that a head begins with.

    Attributes:
        weight: (C, D) of the last layer.
        bias: (C,) of the last layer.
        dense_weight: (D, D) of the layer before it; zeros if that layer stays as it is.
        dense_bias: (D,) of the layer before it.
    """

    weight: Floats32
    bias: Floats32
    dense_weight: Floats32
    dense_bias: Floats32

    @classmethod
    def empty(cls, last: Any, dense: Any) -> "_Start":
        """Returns zeros of the layers' shapes.

        Args:
            last: The network's last layer.
            dense: The layer before it; None if it stays as it is.
        """
        n_labels, size = last.weight.shape
        n_dense = 0 if dense is None else size
        return cls(
            weight=np.zeros((n_labels, size), dtype=np.float32),
            bias=np.zeros(n_labels, dtype=np.float32),
            dense_weight=np.zeros((n_dense, n_dense), dtype=np.float32),
            dense_bias=np.zeros(n_dense, dtype=np.float32),
        )

    def shared(self, workers: Workers) -> "_Start":
        """Returns the first process's weights in all processes.

        The other processes have zeros, so the sum over all processes is what the first one has.
        """
        return _Start(
            weight=workers.sum(self.weight),
            bias=workers.sum(self.bias),
            dense_weight=workers.sum(self.dense_weight),
            dense_bias=workers.sum(self.dense_bias),
        )


def _best_start(job: Job, sample: SampledFeatures, vectors: Floats32, dense: Any) -> _Start:
    """Returns the weights that the head begins with, and new weights of the pooler if it changes.

    The pooler stays as it is, or is made to pass the first token's state on. A pooler that was
    trained for something else, or never, keeps less of a text than the state of its first token.
    A regression is fitted for each of the two, and the lower loss on held-out rows decides.

    Args:
        job: Made ready.
        sample: The windows that were read; it has their labels.
        vectors: (N, D) inputs of the last layer, one for each prediction. If `dense` is given,
            (N, 2 D): the inputs of `dense` stand in the second half.
        dense: The pooler's dense layer; None if the pooler is left as it is.

    Raises:
        UnfittedError: No regression can be fitted.
    """
    from bertctl.modeling.heads import last_layer

    _, last = last_layer(job.loaded.network)
    size = last.in_features
    read_by_last = vectors[:, :size]
    read_by_dense = vectors[:, size:]
    start = _Start.empty(last, dense)
    as_it_is = _fit(job, sample, read_by_last, last)
    best = as_it_is
    # Only for a pooler that is `tanh(dense(state))` is it known which weights pass the state on.
    if dense is not None and read_by_dense.size and _is_tanh_of(read_by_last, read_by_dense, dense):
        # The pooler becomes tanh(factor * state + shift), which is nearly a straight line for
        # numbers this small. A power of two is the same number in half precision.
        factor = 2.0 ** np.floor(np.log2(_PASSED_DEVIATION / common_deviation(read_by_dense)))
        shift = -factor * read_by_dense.mean(axis=0)
        state_passed = np.tanh(factor * read_by_dense + shift).astype(np.float32)
        passed = _fit(job, sample, state_passed, last)
        if passed.held_out_loss < as_it_is.held_out_loss:
            best = passed
            weight = (factor * np.eye(size)).astype(np.float32)
            start = replace(start, dense_weight=weight, dense_bias=shift.astype(np.float32))
    weight = best.function.weight.reshape(start.weight.shape)
    return replace(
        start, weight=weight.astype(np.float32), bias=best.function.bias.astype(np.float32)
    )


def _is_tanh_of(outputs: Floats32, inputs: Floats32, dense: Any) -> bool:
    """Returns whether a pooler computes `tanh(dense(inputs))`, so that its weights can be chosen.

    Args:
        outputs: (N, D) of the pooler.
        inputs: (N, D) of its dense layer.
        dense: The dense layer.
    """
    weight = dense.weight.detach().float().cpu().numpy()
    bias = dense.bias.detach().float().cpu().numpy()
    few = slice(0, 64)  # rows are enough to tell
    expected = np.tanh(inputs[few] @ weight.T + bias)
    largest_error = np.abs(expected - outputs[few]).max()
    return bool(largest_error < _ROUNDING)


def _fit(job: Job, sample: SampledFeatures, vectors: Floats32, last: Any) -> FittedHead:
    """Fits a regression that predicts the sample's labels from vectors.

    Args:
        job: Made ready; its loss may have class weights.
        sample: The windows, with the labels of their predictions.
        vectors: (N, D) a vector for each prediction.
        last: The network's last layer, which the regression will replace.

    Raises:
        UnfittedError: No regression can be fitted.
    """
    from threadpoolctl import threadpool_limits

    from bertctl.modeling.heads import ScoreHead

    labels = sample.labels
    has_bias = last.bias is not None
    seed = job.recipe.training.seed_of_init
    with threadpool_limits(1):  # products this small wait for each other on a busy machine
        if isinstance(last, ScoreHead):
            # This layer computes `mean + deviation * z`. The regression is for z.
            mean = float(last.mean) if has_bias else 0.0
            return fit_scores(vectors, (labels - mean) / float(last.deviation), has_bias=has_bias)
        if len(last.weight) == 1:
            # The head of multiple choice has one output, the score of a choice. A regression with
            # two labels is fitted (is this choice the right one or not), and the score is the
            # difference of its two logits.
            is_right = fit_labels(
                vectors,
                labels,
                n_labels=2,
                has_bias=has_bias,
                seed=seed,
            )
            logits = is_right.function
            score = LinearFunction(
                strength=logits.strength,
                weight=logits.weight[1:] - logits.weight[:1],
                bias=logits.bias[1:] - logits.bias[:1],
            )
            return replace(is_right, function=score)
        weights = _row_weights(job, labels)
        return fit_labels(
            vectors,
            labels,
            n_labels=len(last.weight),
            row_weights=weights,
            is_balanced=weights is None and _has_few_rows_of_labels(job.task, labels),
            has_bias=has_bias,
            seed=seed,
        )


def _has_few_rows_of_labels(task: Task, labels: Array) -> bool:
    """Returns whether each text has one of many labels, and the average label has few rows.

    Only then do labels count alike in the regression. With two labels, a label that is rare here is
    rare in new texts, too, and should stay so.
    """
    if task.name != "text-classification" or labels.ndim == 2:
        return False
    n_labels = len(np.unique(labels))
    return n_labels > FEW_LABELS and len(labels) <= _FEW_ROWS_OF_LABEL * n_labels


def _row_weights(job: Job, labels: Array) -> Array | None:
    """Returns how much each row counts in the training loss; None if all count alike.

    Args:
        job: Made ready; its loss may have class weights.
        labels: (N,) label numbers, or (N, C) 0 and 1 with several labels per row.

    Returns:
        (N,) weights, or (N, C): with several labels, a class weight counts where the row has the
        label.
    """
    of_classes = getattr(job.objective, "class_weights", None)
    if of_classes is None:
        return None
    weights = np.asarray(of_classes, dtype=np.float64)
    if labels.ndim == 2:
        return cast(Array, 1.0 + (weights - 1.0) * labels)
    return cast(Array, weights[labels])


def _regression(task: Task) -> str:
    """Returns the name of the regression that a task's head starts as."""
    if task.name == "text-regression":
        return "ridge regression"
    return "logistic regression"
