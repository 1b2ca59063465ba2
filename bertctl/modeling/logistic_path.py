"""Cross-validated logistic regressions, all folds and strengths at once.

Choosing the strength of one probe takes folds x strengths fits, and a table of layers has dozens of
probes: one at a time, scikit-learn's solvers take 20 times as long as the encoder. Here all fits of
one table row are the columns of one matrix product. The objective is that of scikit-learn's
LogisticRegression; its own fit is still the one that is kept.

The method: in the basis of the vectors' covariance the curvature of the loss has a diagonal bound
(Boehning 1992, "Multinomial logistic regression algorithm": at most 1/4 of it for two labels, 1/2
for more), so each step divides by that bound; with Nesterov's momentum, started again wherever it
points uphill (O'Donoghue and Candes 2015).

Letters: N rows, D size, F folds, S strengths, P = F x S problems, C outputs.
"""

from collections.abc import Callable

import numpy as np

from bertctl.arrays import Bools, Floats, Floats32, Ints

_MAX_STEPS = 300
_TOLERANCE = 1e-3
"""Length of a step, as a share of the first one's, at which a fit has converged."""
_MOST_NUMBERS = 1 << 25
"""Logits held at once (128 MB)."""


def cross_validated_logits(
    vectors: Floats32,
    targets: Floats32,
    fold_of_row: Ints,
    strengths: tuple[float, ...],
    *,
    row_weights: Floats,
    exclusive: bool,
    on_step: Callable[[], None] | None = None,
) -> Floats32:
    """Returns the (S, N, C) logits of each row, from the fit that was made without its fold.

    Args:
        vectors: (N, D) standardised.
        targets: (N, C) 0 or 1; C is 1 for two labels.
        fold_of_row: (N,) the fold in which a row is held out.
        strengths: S values of scikit-learn's C.
        row_weights: (N,) weight of each row's loss.
        exclusive: Whether a row has one of the C labels (softmax), or decisions of their own
            (sigmoid).
        on_step: Called before each step of the solver, of which there are at most 300.
    """
    # In the basis of the eigenvectors, the bounds of the second derivatives are a diagonal matrix,
    # so each weight has a step size of its own.
    centred = vectors - np.average(vectors, axis=0, weights=row_weights).astype(np.float32)
    gram = (centred * row_weights[:, None].astype(np.float32)).T @ centred
    eigenvalues, basis = np.linalg.eigh(gram.astype(np.float64))
    eigenvalues = np.maximum(eigenvalues, 0.0)  # rounding makes some of those near 0 negative
    rotated = np.ascontiguousarray(centred @ basis.astype(np.float32))

    n_folds = int(fold_of_row.max()) + 1
    is_trained_on = fold_of_row[:, None] != np.arange(n_folds)
    fold_weights = is_trained_on * row_weights[:, None]  # (N, F)

    numbers_per_strength = len(vectors) * n_folds * targets.shape[1]
    strengths_at_once = max(1, _MOST_NUMBERS // numbers_per_strength)
    row_indices = np.arange(len(vectors))
    logits_by_block = []
    for first in range(0, len(strengths), strengths_at_once):
        logits = _solve(
            rotated,
            targets,
            fold_weights,
            eigenvalues=eigenvalues,
            strengths=np.array(strengths[first : first + strengths_at_once]),
            exclusive=exclusive,
            on_step=on_step,
        )
        # Of each row the logits of the fit that has not seen it: (N, S, C).
        logits_by_block.append(logits[row_indices, fold_of_row])
    return np.concatenate(logits_by_block, axis=1).swapaxes(0, 1)


def _solve(
    rotated: Floats32,
    targets: Floats32,
    fold_weights: Floats,
    eigenvalues: Floats,
    strengths: Floats,
    exclusive: bool,
    on_step: Callable[[], None] | None,
) -> Floats32:
    """Returns the (N, F, S, C) logits of all rows by the fit of each fold and strength.

    Each fit minimises half the squared length of its weights, plus its strength times the weighted
    cross-entropy of the rows that it is trained on. Nesterov's method takes the gradient not at the
    weights but a little further on, in the direction of the last step: at the lookahead. The fits
    end together, when the last one has converged.

    Args:
        rotated: (N, D) centred vectors in the basis of the eigenvectors of their Gram matrix.
        targets: (N, C) 0 or 1.
        fold_weights: (N, F) weight of a row in the fit of each fold; 0 in that of its own fold.
        eigenvalues: (D,) of the Gram matrix of all rows, at least 0.
        strengths: (S,) scikit-learn's C of each fit.
        exclusive: Whether a row has one of the C labels, or a decision for each.
        on_step: Called before each step.
    """
    n_rows, size = rotated.shape
    n_folds = fold_weights.shape[1]
    n_strengths = len(strengths)
    n_outputs = targets.shape[1]
    curvature, bias_curvature = _curvature_bounds(eigenvalues, fold_weights, strengths, exclusive)
    row_weights = fold_weights.astype(np.float32)[:, :, None, None]
    scale = strengths.astype(np.float32)[:, None]

    def logits_of(weights: Floats32, biases: Floats32) -> Floats32:
        """Returns (N, F, S, C) logits, by one matrix product for all fits."""
        products = rotated @ weights.reshape(size, -1)
        logits: Floats32 = products.reshape(n_rows, n_folds, n_strengths, n_outputs) + biases
        return logits

    weights: Floats32 = np.zeros((size, n_folds, n_strengths, n_outputs), dtype=np.float32)
    biases: Floats32 = np.zeros((n_folds, n_strengths, n_outputs), dtype=np.float32)
    lookahead: Floats32 = weights
    lookahead_biases: Floats32 = biases
    momentum = np.ones((n_folds, n_strengths), dtype=np.float32)
    first_decrease = None
    for _ in range(_MAX_STEPS):
        if on_step is not None:
            on_step()
        # The loss of a row by its logits has the slope: probability minus target.
        slopes = _probabilities(logits_of(lookahead, lookahead_biases), exclusive)
        slopes -= targets[:, None, None, :]
        slopes *= row_weights
        loss_gradient = (rotated.T @ slopes.reshape(n_rows, -1)).reshape(weights.shape)
        gradient = loss_gradient * scale + lookahead
        bias_gradient = slopes.sum(axis=0) * scale
        step = np.divide(gradient, curvature)
        bias_step = np.divide(bias_gradient, bias_curvature)

        # (F, S) The step lowers the objective by at least half of this number. It falls with the
        # square of the step, so the tolerance is squared as well.
        decrease = (gradient * step).sum(axis=(0, 3)) + (bias_gradient * bias_step).sum(axis=2)
        if first_decrease is None:
            first_decrease = decrease
        if bool((decrease <= _TOLERANCE**2 * first_decrease).all()):
            break

        new_weights = lookahead - step
        new_biases = lookahead_biases - bias_step
        is_uphill = (gradient * (new_weights - weights)).sum(axis=(0, 3)) > 0
        push, momentum = _next_momentum(momentum, is_uphill)
        lookahead = new_weights + push * (new_weights - weights)
        lookahead_biases = new_biases + push * (new_biases - biases)
        weights = new_weights
        biases = new_biases
    return np.asarray(logits_of(weights, biases), dtype=np.float32)


def _curvature_bounds(
    eigenvalues: Floats, fold_weights: Floats, strengths: Floats, exclusive: bool
) -> tuple[Floats32, Floats32]:
    """Returns upper bounds of the second derivatives of the objective, by which steps are divided.

    They are computed from all rows. A fit has fewer rows, so its derivatives are below the bounds.

    Args:
        eigenvalues: (D,) of the Gram matrix of all rows.
        fold_weights: (N, F) weight of a row in the fit of each fold; 0 in that of its own fold.
        strengths: (S,) scikit-learn's C of each fit.
        exclusive: Whether a row has one of several labels (softmax).

    Returns:
        (D, 1, S, 1) by weight, and (1, S, 1) by bias.
    """
    # The largest second derivative of a row's cross-entropy by its logits, of softmax or sigmoid.
    bound = 0.5 if exclusive else 0.25
    curvature = 1.0 + bound * strengths[None, :] * eigenvalues[:, None]
    # The weight of all rows. A row is in the fits of all folds but its own, so the sum over rows
    # and fits counts its weight once for each of these.
    n_fits_of_row = max(1, fold_weights.shape[1] - 1)
    weight_in_all_fits = fold_weights.sum(axis=1).sum()
    bias_curvature = bound * strengths * weight_in_all_fits / n_fits_of_row
    return (
        curvature.astype(np.float32)[:, None, :, None],
        bias_curvature.astype(np.float32)[None, :, None],
    )


def _probabilities(logits: Floats32, exclusive: bool) -> Floats32:
    """Returns (N, F, S, C) probabilities: of exclusive labels by softmax, else by sigmoid."""
    from scipy.special import expit, softmax

    if exclusive:
        probabilities: Floats32 = softmax(logits, axis=3)
    else:
        probabilities = expit(logits)
    return probabilities


def _next_momentum(momentum: Floats32, is_uphill: Bools) -> tuple[Floats32, Floats32]:
    """Returns how far to look ahead by Nesterov's rule, and the momentum of the next step.

    Args:
        momentum: (F, S) of each fit, 1 at its start.
        is_uphill: (F, S) whether the objective rises in the direction of the last step. Momentum
            starts anew then.

    Returns:
        (F, S, 1) the part of the last step that the lookahead adds to it, and (F, S) momentum.
    """
    momentum = np.where(is_uphill, np.float32(1.0), momentum).astype(np.float32)
    next_momentum = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
    push = np.where(is_uphill, 0.0, (momentum - 1) / next_momentum)
    return push.astype(np.float32)[:, :, None], next_momentum.astype(np.float32)
