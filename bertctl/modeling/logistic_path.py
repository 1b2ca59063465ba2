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

from bertctl.arrays import Floats, Floats32, Ints

_MAX_STEPS = 300
_TOLERANCE = 1e-3
_MOST_NUMBERS = 1 << 25  # of logits held at once (128 MB)


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
        row_weights: (N,).
        exclusive: whether a row has one of the C labels (softmax), or decisions of their own
            (sigmoid).
        on_step: Called before each step of the solver, of which there are at most 300.
    """
    centred = vectors - np.average(vectors, axis=0, weights=row_weights).astype(np.float32)
    gram = (centred * row_weights[:, None].astype(np.float32)).T @ centred
    spectrum, basis = np.linalg.eigh(gram.astype(np.float64))
    rotated = np.ascontiguousarray(centred @ basis.astype(np.float32))
    folds = int(fold_of_row.max()) + 1
    fold_weights = (fold_of_row[:, None] != np.arange(folds)) * row_weights[:, None]  # (N, F)
    at_once = max(1, _MOST_NUMBERS // (len(vectors) * folds * targets.shape[1]))
    curve = np.maximum(spectrum, 0.0)
    row_indices = np.arange(len(vectors))
    logits_by_block = []
    for i in range(0, len(strengths), at_once):
        chosen = np.array(strengths[i : i + at_once])
        logits = _solve(
            rotated,
            targets,
            fold_weights,
            spectrum=curve,
            strengths=chosen,
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
    spectrum: Floats,
    strengths: Floats,
    exclusive: bool,
    on_step: Callable[[], None] | None,
) -> Floats32:
    """Returns (N, F, S, C) logits of all rows by every fit."""
    from scipy.special import expit, softmax

    n, size = rotated.shape
    folds = fold_weights.shape[1]
    count = len(strengths)
    outputs = targets.shape[1]
    bound = 0.5 if exclusive else 0.25
    curvature = (1.0 + bound * strengths[None, :] * spectrum[:, None]).astype(np.float32)[
        :, None, :, None
    ]
    flat = (bound * strengths * fold_weights.sum(axis=1).sum() / max(1, folds - 1)).astype(
        np.float32
    )[None, :, None]
    mask = fold_weights.astype(np.float32)[:, :, None, None]
    scale = strengths.astype(np.float32)[:, None]
    weight = np.zeros((size, folds, count, outputs), dtype=np.float32)
    bias = np.zeros((folds, count, outputs), dtype=np.float32)
    ahead = weight
    ahead_bias = bias
    momentum = np.ones((folds, count), dtype=np.float32)
    first_size = None
    for _ in range(_MAX_STEPS):
        if on_step is not None:
            on_step()
        logits = (rotated @ ahead.reshape(size, -1)).reshape(n, folds, count, outputs) + ahead_bias
        if exclusive:
            slope = softmax(logits, axis=3)
        else:
            slope = expit(logits)
        slope -= targets[:, None, None, :]
        slope *= mask
        gradient = (rotated.T @ slope.reshape(n, -1)).reshape(weight.shape) * scale + ahead
        of_bias = slope.sum(axis=0) * scale
        step = gradient / curvature
        step_bias = of_bias / flat
        size_now = (gradient * step).sum(axis=(0, 3)) + (of_bias * step_bias).sum(axis=2)  # (F, S)
        first_size = size_now if first_size is None else first_size
        if bool((size_now <= _TOLERANCE**2 * first_size).all()):
            break
        # Nesterov's momentum, which starts anew where the step would go uphill.
        new_weight = ahead - step
        new_bias = ahead_bias - step_bias
        uphill = (gradient * (new_weight - weight)).sum(axis=(0, 3)) > 0
        momentum = np.where(uphill, np.float32(1.0), momentum).astype(np.float32)
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        push = np.where(uphill, 0.0, (momentum - 1) / following).astype(np.float32)[:, :, None]
        ahead = new_weight + push * (new_weight - weight)
        ahead_bias = new_bias + push * (new_bias - bias)
        weight = new_weight
        bias = new_bias
        momentum = following.astype(np.float32)
    return np.asarray(
        (rotated @ weight.reshape(size, -1)).reshape(n, folds, count, outputs) + bias,
        dtype=np.float32,
    )
