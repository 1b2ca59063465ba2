"""The linear function that a new head starts as.

It is a logistic or ridge regression on what the head's last layer reads.

A random head pulls the encoder about while it learns; one that stands where the frozen encoder
allows does not, and the training begins where a probe ends (Kumar et al. 2022, "Fine-tuning can
distort pretrained features and underperform out-of-distribution").

The vectors are centred and divided by one deviation, not each number by its own: a number that
hardly differs between the training rows would get a weight so large that the first step of training
moves the answers at random. Frozen, both are as good (48 labels of 2,000 questions, pooler, [CLS],
mean: within 0.2 points).

Letters: N rows, D size of a vector, C outputs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bertctl.arrays import Array, Floats32
from bertctl.modeling.classifiers import LOGISTIC, ClassifierSettings, LinearFunction, Scaler, fit

STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""Values of scikit-learn's C (of a ridge: of 1 / alpha) that are tried."""

_CHOICE_ROWS = 3_000
"""Rows that the strength is chosen on; a step of it is tenfold, and more rows choose the same."""

_HELD_OUT = 0.2
"""Share of them on which it is chosen."""

_FEWEST_HELD_OUT = 10
"""Rows that can choose; where there are fewer, the lowest strength is taken."""


@dataclass(frozen=True)
class FittedHead:
    """A regression, and how good its like is on rows that it was not fitted to.

    Attributes:
        function: Fitted to all rows.
        held_out_loss: Log loss, or of scores the squared error; not a number where no row could be
            held out.
    """

    function: LinearFunction
    held_out_loss: float


class UnfittedError(ValueError):
    """No regression can be fitted; the message says why."""


def fit_labels(
    vectors: Floats32,
    labels: Array,
    *,
    n_labels: int,
    row_weights: Array | None = None,
    is_balanced: bool = False,
    has_bias: bool = True,
    seed: int = 0,
) -> FittedHead:
    """Returns the logistic regression of labels that a new head starts with.

    Its strength is chosen so that its log loss is as high on the rows that it is fitted to as on
    held-out rows: see `_choose_strength`.

    Args:
        vectors: (N, D).
        labels: (N,) numbers of labels, or (N, C) 0 and 1 where a row can have several.
        n_labels: C.
        row_weights: How much each row counts: (N,), or (N, C) in each of several labels. All alike
            by default.
        is_balanced: Whether the rows of a rare label count as much, together, as those of a
            frequent one.
        has_bias: Whether the head has a bias.
        seed: Draws the rows that are held out.

    Raises:
        UnfittedError: Vectors that are not finite, or one label only.
    """
    multi_label = labels.ndim == 2
    _check(vectors, labels)
    settings = ClassifierSettings(
        classifier=LOGISTIC,
        multi_label=multi_label,
        n_outputs=n_labels,
        balanced=is_balanced,
        strengths=STRENGTHS,
        folds=0,
        seed=seed,
        has_bias=has_bias,
        by_feature=False,
    )
    strength, loss = _choose_strength(vectors, labels, settings, row_weights)
    fitted = fit(
        vectors,
        labels,
        strength,
        settings,
        row_weights=row_weights,
    )
    return FittedHead(_made_trainable(fitted, labels), loss)


def fit_scores(vectors: Floats32, scores: Array, *, has_bias: bool = True) -> FittedHead:
    """Returns the ridge regression of scores.

    Its strength is chosen by leave-one-out cross-validation.

    Args:
        vectors: (N, D).
        scores: (N,) standardised.
        has_bias: Whether the head has a bias.

    Raises:
        UnfittedError: Vectors that are not finite, or one score only.
    """
    from sklearn.linear_model import RidgeCV

    _check(vectors, scores)
    scaler = Scaler.of(vectors, has_bias=has_bias, by_feature=False)
    ridge = RidgeCV(alphas=[1.0 / strength for strength in STRENGTHS], fit_intercept=has_bias)
    ridge.fit(scaler(vectors).astype(np.float64), scores)
    weight, bias = scaler.undo(np.atleast_2d(ridge.coef_), np.atleast_1d(ridge.intercept_))
    strength = 1.0 / float(ridge.alpha_)
    loss = -float(ridge.best_score_)
    return FittedHead(LinearFunction(strength, weight, bias), loss)


def _check(vectors: Floats32, labels: Array) -> None:
    """Refuses vectors and labels that no regression can be fitted to.

    Raises:
        UnfittedError: A vector is not finite, or all rows have the same label.
    """
    if not np.isfinite(vectors).all():
        raise UnfittedError("the encoder's vectors are not all finite numbers")
    if len(labels) < 2 or bool((labels == labels[0]).all()):
        raise UnfittedError("the training rows that were read have one label only")


def _choose_strength(
    vectors: Floats32, labels: Array, settings: ClassifierSettings, row_weights: Array | None
) -> tuple[float, float]:
    """Returns the strength of the regression that a head starts with, and the held-out log loss.

    The larger the strength, the closer a regression follows the rows that it is fitted to. Each is
    tried on one part of the rows, and the other part is held out. The loss that is returned is the
    lowest one of the held-out rows.

    The strength is weaker than the one with that loss. A regression is far surer of the rows that
    it was fitted to than of others, so the encoder, which is trained on the same rows, would have
    nothing left to learn from. With the returned strength, the loss of the fitted rows is as high
    as the lowest one of the held-out rows.

    With too few rows, it is the first strength, and the loss is not a number.

    Args:
        vectors: (N, D).
        labels: (N,) numbers of labels, or (N, C) 0 or 1.
        settings: Settings of the regression, with the strengths to try, ascending.
        row_weights: (N,) weights of the rows; None if all weigh the same.
    """
    rng = np.random.default_rng(settings.seed)
    order = rng.permutation(len(labels))[:_CHOICE_ROWS]
    n_held = round(_HELD_OUT * len(order))
    held_out = order[:n_held]
    fitted_rows = order[n_held:]
    has_one_label = bool((labels[fitted_rows] == labels[fitted_rows[0]]).all())
    if n_held < _FEWEST_HELD_OUT or has_one_label:
        return settings.strengths[0], float("nan")

    losses: list[float] = []
    fitted_losses: list[float] = []
    for strength in settings.strengths:
        if row_weights is None:
            weights = None
        else:
            weights = row_weights[fitted_rows]
        fitted = fit(
            vectors[fitted_rows],
            labels[fitted_rows],
            strength,
            settings,
            row_weights=weights,
        )
        function = _made_trainable(fitted, labels[fitted_rows])
        logits = function.logits(vectors[fitted_rows])
        fitted_losses.append(log_loss(logits, labels[fitted_rows], weights))
        held_out_logits = function.logits(vectors[held_out])
        if row_weights is None:
            held_out_weights = None
        else:
            held_out_weights = row_weights[held_out]
        losses.append(log_loss(held_out_logits, labels[held_out], held_out_weights))
        # Larger strengths would follow the fitted rows even more, and take longest.
        if losses[-1] > min(losses):
            break
    i_best = int(np.argmin(losses))
    lowest_loss = losses[i_best]
    strength = _unsurprised_strength(
        settings.strengths[: i_best + 1], fitted_losses[: i_best + 1], lowest_loss
    )
    return strength, lowest_loss


def _unsurprised_strength(
    strengths: Sequence[float], fitted_losses: Sequence[float], held_out_loss: float
) -> float:
    """Returns the strength at which the fitted rows have the loss of rows that were held out.

    Args:
        strengths: Ascending.
        fitted_losses: Log loss of the fitted rows with each of them, descending.
        held_out_loss: Lowest loss of the held-out rows.
    """
    exponents = np.log10(strengths)
    exponent = np.interp(held_out_loss, fitted_losses[::-1], exponents[::-1])
    return float(10**exponent)


def log_loss(logits: Floats32, labels: Array, row_weights: Array | None = None) -> float:
    """Returns the mean log loss of (N, C) logits: of one label each, or of several."""
    from scipy.special import log_softmax

    if labels.ndim == 2:
        losses: Any = np.logaddexp(0.0, logits) - labels * logits
    else:
        losses = -log_softmax(logits.astype(np.float64), axis=1)[np.arange(len(labels)), labels]
    return float(np.average(losses, weights=row_weights))


def _made_trainable(fitted: LinearFunction, labels: Array) -> LinearFunction:
    """Returns a fitted function with the numbers of a head that is trained further.

    The bias of a label that no row has stands for a probability of 0, which training could hardly
    change. So it gets another bias.

    With one label per row, this bias is a little below those of the other labels. The logits are
    also moved so that their mean over the labels is 0, which changes no answer: the regression of
    two labels has all of the odds in the second logit, and a head has half of them in each.

    With several labels per row, a label that no row or every row has gets the odds that it would
    have with one more row of each kind.

    Args:
        fitted: The regression.
        labels: (N,) numbers of labels, or (N, C) 0 or 1, that it was fitted to.
    """
    weight = fitted.weight.copy()
    bias = fitted.bias.copy()
    if labels.ndim == 2:
        counts = labels.sum(axis=0)
        odds = np.log((counts + 1) / (len(labels) - counts + 1))
        is_constant = (counts == 0) | (counts == len(labels))
        bias[is_constant] = odds[is_constant]
    else:
        has_rows = np.bincount(labels, minlength=len(bias)) > 0
        weight[has_rows] -= weight[has_rows].mean(axis=0)
        bias[has_rows] -= bias[has_rows].mean()
        if bias.any():
            bias[~has_rows] = bias[has_rows].min() - 1.0
        else:
            bias[~has_rows] = 0.0
    return LinearFunction(fitted.strength, weight, bias)
