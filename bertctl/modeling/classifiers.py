"""Linear classifiers of scikit-learn on standardised vectors.

Their strength is chosen by stratified cross-validation, and they become one head.

Letters: N rows, D size of a vector, C outputs, K layers of a learned mix.
"""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from bertctl.arrays import Array, Floats, Floats32, Ints
from bertctl.modeling.folds import Folds, make_folds
from bertctl.modeling.logistic_path import cross_validated_logits

LOGISTIC = "logistic-regression"
RIDGE = "ridge"
_TOLERANCE = 1e-4
_MAX_ITERATIONS = 1000
_NEWTON_LIMIT = 2000
_LEAST_DEVIATION = 0.05
_NEVER = -100.0
"""Logit of a label that no training row has."""


@dataclass(frozen=True)
class ClassifierSettings:
    """Settings of a classifier's training.

    Attributes:
        classifier: logistic-regression or ridge.
        multi_label: Whether a row can have several labels; one classifier for each label then.
        n_outputs: C, labels; 1 for a score.
        balanced: Whether rare labels count as much as frequent ones.
        strengths: Strengths to choose from, ascending.
        folds: Number of folds of the cross-validation.
        seed: Seed of its shuffling.
        stratify: Whether each fold has its share of each label.
        labels: Names of the labels.
        has_bias: Whether the linear function has a bias.
        by_feature: Whether each number of the vectors is standardised by itself, or all by one
            deviation, which is then a twentieth of their size at least.
    """

    classifier: str
    multi_label: bool
    n_outputs: int
    balanced: bool
    strengths: tuple[float, ...]
    folds: int
    seed: int
    stratify: bool = False
    labels: tuple[str, ...] = ()
    has_bias: bool = True
    by_feature: bool = True

    @property
    def is_regression(self) -> bool:
        """Returns whether a score is predicted."""
        return self.n_outputs == 1

    def folds_of(self, labels: Array, groups: Ints | None) -> Folds:
        """Returns the folds of rows; see `make_folds`.

        Args:
            labels: (N,), or (N, C) for several labels.
            groups: (N,) number of each row's group, ascending; None if each row is a group.

        Raises:
            DataError: Fewer than two rows (or groups) can be held out.
        """
        return make_folds(
            labels,
            groups,
            requested=self.folds,
            seed=self.seed,
            stratify=self.stratify,
            label_names=self.labels,
        )


@dataclass(frozen=True)
class LinearFunction:
    """Trained linear function of the vectors as they are: the standardising is multiplied in.

    Attributes:
        strength: Strength of the fit, scikit-learn's C.
        weight: (C, D).
        bias: (C,).
        mix: (K,) of a learned mix of layers, in `weight` already.
    """

    strength: float
    weight: Floats32
    bias: Floats32
    mix: Floats32 | None = None

    def logits(self, vectors: Floats32) -> Floats32:
        """Returns (N, C) logits of (N, D) vectors."""
        return np.asarray(vectors @ self.weight.T + self.bias, dtype=np.float32)


@dataclass(frozen=True)
class Scaler:
    """Mean and deviation of each number of the training vectors (sklearn's StandardScaler)."""

    mean: Floats
    scale: Floats

    @classmethod
    def of(cls, vectors: Floats32, *, has_bias: bool = True, by_feature: bool = True) -> "Scaler":
        """Returns the mean and the deviations by which vectors are standardised.

        Args:
            vectors: (N, D).
            has_bias: Whether the linear function that will be fitted has a bias. Without one, it
                can't make up for the mean, so the mean is 0 and stays in the vectors.
            by_feature: Whether each of the D numbers has a deviation of its own, or all have the
                same, `common_deviation`.
        """
        from sklearn.preprocessing import StandardScaler

        fitted = StandardScaler(with_mean=has_bias).fit(vectors)
        if has_bias:
            mean = fitted.mean_
        else:
            mean = np.zeros(vectors.shape[1])
        if by_feature:
            return cls(mean, fitted.scale_)
        return cls(mean, np.full_like(fitted.scale_, common_deviation(vectors)))

    def __call__(self, vectors: Floats32) -> Floats32:
        """Returns the vectors standardised."""
        return ((vectors - self.mean.astype(np.float32)) / self.scale.astype(np.float32)).astype(
            np.float32
        )

    def undo(self, weight: Array, bias: Array) -> tuple[Floats32, Floats32]:
        """Converts weight and bias for standardised vectors to those for vectors as they are."""
        plain = weight / self.scale
        return plain.astype(np.float32), (bias - plain @ self.mean).astype(np.float32)


def common_deviation(vectors: Floats32) -> float:
    """Returns one deviation for all D numbers of (N, D) vectors: the root of their mean variance.

    It is at least a twentieth of the numbers' root mean square. If vectors of all rows are nearly
    the same, their differences are mostly rounding in half precision, and dividing by a smaller
    deviation would make these large.
    """
    values = vectors.astype(np.float64)
    deviation = float(np.sqrt(values.var(axis=0).mean()))
    size = float(np.sqrt((values**2).mean()))
    return max(deviation, _LEAST_DEVIATION * size) or 1.0


def choose_strength(
    vectors: Floats32,
    labels: Array,
    settings: ClassifierSettings,
    score: Callable[[Floats32], float],
    *,
    groups: Ints | None = None,
    on_step: Callable[[], None] | None = None,
) -> tuple[float, float]:
    """Returns the strength whose answers to rows of other folds score best, and that score.

    On a tie it is the smaller strength.

    Args:
        vectors: (N, D) of the training rows.
        labels: (N,), or (N, C) for several labels.
        settings: Settings of the classifier, with the strengths and the number of folds.
        score: Score of (N, C) logits, the higher the better. The logits of a row are those of the
            classifier that was trained without its fold; rows that are never held out
            (`Folds.is_held_out`) were in the training of all.
        groups: (N,) number of each row's group, ascending. The rows of a group are held out
            together, such as the words of a sentence. None if each row is a group.
        on_step: Called before each fit of a ridge, and before each step of the logistic
            regressions.

    Raises:
        DataError: See `ClassifierSettings.folds_of`.
    """
    fold_of_row = settings.folds_of(labels, groups).fold_of_row
    if settings.classifier == LOGISTIC:
        of_fold = _logistic_logits
    else:
        of_fold = _ridge_logits
    scores = [
        score(logits)
        for logits in of_fold(
            vectors,
            labels,
            settings,
            fold_of_row,
            on_step,
        )
    ]
    best = int(np.argmax(scores))  # the first of equals
    return settings.strengths[best], scores[best]


def _ridge_logits(
    vectors: Floats32,
    labels: Array,
    settings: ClassifierSettings,
    fold_of_row: Ints,
    on_step: Callable[[], None] | None,
) -> Iterator[Floats32]:
    """Yields (N, C) logits of the held-out rows, for each strength."""
    for strength in settings.strengths:
        logits = np.zeros((len(labels), settings.n_outputs), dtype=np.float32)
        for fold in range(int(fold_of_row.max()) + 1):
            if on_step is not None:
                on_step()
            is_held_out = fold_of_row == fold
            function = fit(vectors[~is_held_out], labels[~is_held_out], strength, settings)
            logits[is_held_out] = function.logits(vectors[is_held_out])
        yield logits


def _logistic_logits(
    vectors: Floats32,
    labels: Array,
    settings: ClassifierSettings,
    fold_of_row: Ints,
    on_step: Callable[[], None] | None,
) -> Iterator[Floats32]:
    """Yields (N, C) logits for each strength of a logistic regression.

    The logits of a row are those of the regression that was fitted without the row's fold.

    The vectors are standardised by the mean and deviation of all rows, so that all folds can be
    computed at once. The rows of the held-out fold are among them, but not their labels.

    Args:
        vectors: (N, D).
        labels: (N,) numbers of labels; (N, C) 0 or 1 with `multi_label`.
        settings: Settings of the classifier, with the strengths.
        fold_of_row: (N,) the fold in which a row is held out.
        on_step: Called before each step of the solver.
    """
    exclusive = not settings.multi_label and settings.n_outputs > 2
    if exclusive:
        targets = np.eye(settings.n_outputs, dtype=np.float32)[labels]
    else:
        # Several labels have a column each.
        targets = labels.astype(np.float32).reshape(len(labels), -1)
    scaled = Scaler.of(vectors)(vectors)
    strengths = settings.strengths
    # Regressions that are fitted on their own: their targets, and the weights of the rows.
    problems = [(targets, _row_weights(labels, settings))]
    # With balanced weights, the rows weigh differently for each label, as in the final fit.
    if settings.multi_label and settings.balanced:
        problems = [(targets[:, [c]], _balanced(labels[:, c], 2)) for c in range(targets.shape[1])]
    logits_by_problem = [
        cross_validated_logits(
            scaled,
            columns,
            fold_of_row,
            strengths,
            row_weights=weights,
            exclusive=exclusive,
            on_step=on_step,
        )
        for columns, weights in problems
    ]
    for logits in np.concatenate(logits_by_problem, axis=2):
        if settings.n_outputs == 2 and logits.shape[1] == 1:
            # One number for the second of two classes: the first one's is 0.
            yield np.hstack([np.zeros_like(logits), logits])
        else:
            yield logits


def fit(
    vectors: Floats32,
    labels: Array,
    strength: float,
    settings: ClassifierSettings,
    *,
    row_weights: Array | None = None,
) -> LinearFunction:
    """Trains a classifier on all rows, and returns it as a linear function of plain vectors.

    Args:
        vectors: (N, D).
        labels: (N,), or (N, C) for several labels.
        strength: Strength of the fit: scikit-learn's parameter C.
        settings: Settings of the classifier.
        row_weights: (N,) how much each row counts, or (N, C) in each of several labels; all alike
            by default.
    """
    scaler = Scaler.of(vectors, has_bias=settings.has_bias, by_feature=settings.by_feature)
    scaled = scaler(vectors)
    if settings.multi_label:
        if row_weights is None:
            of_labels = [None] * settings.n_outputs
        else:
            of_labels = [*row_weights.T]
        fitted = [
            _decision(
                scaled,
                labels=decision,
                strength=strength,
                settings=settings,
                row_weights=weights,
            )
            for decision, weights in zip(labels.T, of_labels, strict=True)
        ]
        weight, bias = (np.concatenate(parts) for parts in zip(*fitted, strict=True))
    else:
        model = _fit(
            scaled,
            labels,
            strength,
            settings,
            row_weights,
        )
        weight, bias = _coefficients(model)
        if not settings.is_regression:
            weight, bias = _for_all_labels(weight, bias, model.classes_, settings.n_outputs)
    return LinearFunction(strength, *scaler.undo(weight, bias))


def fit_mix(
    vectors: Floats32,
    labels: Array,
    strength: float,
    settings: ClassifierSettings,
    *,
    layers: int,
    few: Ints | slice,
) -> LinearFunction:
    """Trains a classifier on a weighted mean of K layers.

    The weights are learned first, with a logistic regression (ELMo's scalar mix, Peters et al.
    2018, equation 1; its gamma is part of the classifier).

    Args:
        vectors: (N, K D), the layers one behind the other.
        labels: (N,) numbers of labels, 0 to C - 1; (N,) scores for regression.
        strength: Strength of the fit: scikit-learn's parameter C.
        settings: Settings of the classifier.
        layers: K.
        few: Numbers of the rows that the weights are learned on; the classifier is trained on all.
    """
    scaler = Scaler.of(vectors)
    size = vectors.shape[1] // layers
    mix = _learn_mix(
        vectors=scaler(vectors[few]),
        labels=labels[few],
        strength=strength,
        settings=settings,
        layers=layers,
    )
    mixed = np.zeros((len(vectors), size), dtype=np.float32)
    for number, share in enumerate(mix):
        columns = slice(number * size, (number + 1) * size)
        layer_scaler = Scaler(scaler.mean[columns], scaler.scale[columns])
        mixed += np.float32(share) * layer_scaler(vectors[:, columns])
    fitted = fit(mixed, labels, strength, settings)
    # As one function of the vectors of all layers as they are: the weights of a layer are those for
    # the mixed vectors times the layer's share, and the standardising is multiplied in.
    weight_of_layers = np.hstack([share * fitted.weight.astype(np.float64) for share in mix])
    weight, bias = scaler.undo(weight_of_layers, fitted.bias.astype(np.float64))
    return LinearFunction(strength, weight, bias, mix.astype(np.float32))


def _learn_mix(
    vectors: Floats32, labels: Array, strength: float, settings: ClassifierSettings, layers: int
) -> Floats:
    """Returns (K,) weights of standardised layers.

    They are learned together with a logistic (or linear) regression on the weighted mean.
    """
    from scipy.optimize import minimize
    from scipy.special import log_softmax, softmax

    n = len(vectors)
    outputs = settings.n_outputs
    size = vectors.shape[1] // layers
    # Layer by layer, so that mixing is one product with a vector: it reads the vectors once, at the
    # memory's speed.
    cube = np.ascontiguousarray(vectors.reshape(n, layers, size).swapaxes(0, 1)).reshape(
        layers, n * size
    )
    if settings.is_regression:
        gold = labels.astype(np.float64)[:, None]
    else:
        gold = np.eye(outputs)[labels]
    weights = _row_weights(labels, settings)[:, None]

    def loss(flat: Floats) -> tuple[float, Floats]:
        """Returns the loss and its gradient.

        `cube` has the (K, N D) vectors, `gold` the (N, C) targets, `weights` the (N, 1) weights of
        the rows.

        Args:
            flat: (K,) mix before the softmax, (C, D) weight and (C,) bias, in one array.
        """
        mix = softmax(flat[:layers])
        weight = flat[layers:-outputs].reshape(outputs, size)
        mixed = (mix.astype(np.float32) @ cube).reshape(n, size)
        logits = (mixed @ weight.T.astype(np.float32)).astype(np.float64) + flat[-outputs:]
        if settings.is_regression:
            error = weights * (logits - gold)
            value = 0.5 * float((error * (logits - gold)).sum())
            slope = error
        else:
            value = -float((weights * gold * log_softmax(logits, axis=1)).sum())
            slope = weights * (softmax(logits, axis=1) - gold)
        # The products with all vectors are computed in fp32.
        slope_fp32 = slope.astype(np.float32)
        slope_of_mixed = slope_fp32 @ weight.astype(np.float32)
        slope_of_mix = (cube @ slope_of_mixed.ravel()).astype(np.float64)
        gradient = [
            strength * mix * (slope_of_mix - mix @ slope_of_mix),  # back through the softmax
            (strength * (slope_fp32.T @ mixed).astype(np.float64) + weight).ravel(),
            strength * slope.sum(axis=0),
        ]
        return strength * value + 0.5 * float((weight**2).sum()), np.concatenate(gradient)

    start = np.zeros(layers + outputs * size + outputs)
    solution = minimize(
        loss,
        start,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 200, "ftol": 1e-7},
    )
    return np.asarray(softmax(solution.x[:layers]), dtype=np.float64)


def layer_mean(vectors: Floats32, layers: int) -> Floats32:
    """Returns the (N, D) plain mean of standardised layers.

    The strength for a learned mix is chosen on it.
    """
    return np.asarray(
        Scaler.of(vectors)(vectors).reshape(len(vectors), layers, -1).mean(axis=1), dtype=np.float32
    )


def _fit(
    vectors: Floats32,
    labels: Array,
    strength: float,
    settings: ClassifierSettings,
    row_weights: Array | None = None,
) -> Any:
    """Returns a model of scikit-learn, trained."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier

    if settings.balanced:
        weight = "balanced"
    else:
        weight = None
    model: Any
    if settings.is_regression:
        model = Ridge(alpha=1.0 / strength, fit_intercept=settings.has_bias)
    elif settings.classifier == RIDGE:
        model = RidgeClassifier(alpha=1.0 / strength, class_weight=weight)
    else:
        # Newton's method reaches the very optimum within a few steps. But its matrix has as many
        # rows and columns as a fit has weights, so it is taken only for few weights.
        has_one_output_per_fit = settings.multi_label or settings.n_outputs == 2
        n_weights = vectors.shape[1]
        if not has_one_output_per_fit:
            n_weights *= settings.n_outputs
        if n_weights <= _NEWTON_LIMIT and len(vectors) > vectors.shape[1]:
            solver = "newton-cholesky"
        else:
            solver = "lbfgs"
        model = LogisticRegression(
            C=strength,
            solver=solver,
            class_weight=weight,
            fit_intercept=settings.has_bias,
            max_iter=_MAX_ITERATIONS,
            tol=_TOLERANCE,
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a weak fit shows in its score
        return model.fit(vectors, labels, sample_weight=row_weights)


def _decision(
    vectors: Floats32,
    labels: Array,
    strength: float,
    settings: ClassifierSettings,
    row_weights: Array | None = None,
) -> tuple[Floats, Floats]:
    """Returns weights (1, D) and bias (1,) of one of several labels.

    A label that all rows have, or no row has, can't be fitted: its weights are zero, and its bias
    alone answers always or never.
    """
    if (labels == labels[0]).all():
        never = _NEVER
        always = -_NEVER
        bias = always if labels[0] else never
        return np.zeros((1, vectors.shape[1])), np.array([bias])
    return _coefficients(_fit(vectors, labels, strength, settings, row_weights))


def _coefficients(model: Any) -> tuple[Floats, Floats]:
    weight = np.atleast_2d(np.asarray(model.coef_, dtype=np.float64))
    return weight, np.atleast_1d(np.asarray(model.intercept_, dtype=np.float64))


def _for_all_labels(
    weight: Floats, bias: Floats, trained_labels: Ints, n_labels: int
) -> tuple[Floats, Floats]:
    """Returns (C, D) weights and (C,) biases for all labels, made of those of scikit-learn's model.

    Args:
        weight: Weights of the model, for the labels that training rows have.
        bias: Biases of the model. With two labels, the model has those of the second one only.
        trained_labels: Numbers of the labels that training rows have.
        n_labels: C.
    """
    # The logit of the first of two labels is 0.
    if len(bias) == 1:
        weight = np.vstack([np.zeros_like(weight), weight])
        bias = np.array([0.0, bias[0]])
    if len(trained_labels) == n_labels:
        return weight, bias
    all_weights = np.zeros((n_labels, weight.shape[1]))
    all_biases = np.full(n_labels, _NEVER)
    all_weights[trained_labels] = weight
    all_biases[trained_labels] = bias
    return all_weights, all_biases


def _row_weights(labels: Array, settings: ClassifierSettings) -> Floats:
    """Returns (N,) weights of the rows: all 1, unless rare labels count as much as frequent ones.

    With several labels per row the weights are all 1 as well: they differ for each label.
    """
    if not settings.balanced or settings.is_regression or settings.multi_label:
        return np.ones(len(labels))
    return _balanced(labels, settings.n_outputs)


def _balanced(labels: Ints, n_labels: int) -> Floats:
    """Returns (N,) weights with which all labels weigh alike."""
    labels = labels.astype(np.int64)
    return np.asarray(
        len(labels) / (n_labels * np.bincount(labels, minlength=n_labels)[labels]), dtype=np.float64
    )
