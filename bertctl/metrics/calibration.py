"""How far probabilities can be believed.

It has a temperature that makes them believable, and where to cut them.

Letters: N answers, C labels, M bins.
"""

import bisect
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from bertctl.arrays import Bools, Floats, Ints
from bertctl.errors import DataError
from bertctl.metrics.statistics import wilson_interval

BINS = 15
"""Bins of the calibration error, as in Guo et al. 2017 (arXiv 1706.04599)."""

MANY = 20_000
"""Answers above which a bin's count of right ones is drawn as a normal number, not answer by
answer: the same, and as fast for a million."""

TEMPERATURES = (0.05, 20.0)
"""Temperatures that are looked at. One at an end says that the examples set none: they are all
right, or all wrong."""


LEVEL = 0.05
"""How often a threshold may fall below the precision that it was chosen for."""

_DRAWS = 500
"""Simulated outcomes of answers whose probabilities are true."""

_STARTS = 2
"""Sequences of tests for a precision. A single one ends at an early error, and more than two would
have to share the level."""

_HALF_BELIEVED = 50
"""Examples at which a threshold for F1 is halfway between the best one on them and 0.5 (simulated:
the best one itself is worse than 0.5 on new examples at n = 50 to 400 where the model is well
calibrated)."""


@dataclass(frozen=True)
class ReliabilityBin:
    """The answers whose confidence lies in (above, to]; the first bin holds 0 too.

    Attributes:
        above: Lower edge.
        to: Upper edge.
        n: Answers in it.
        confidence: Their mean confidence; None where there are none.
        accuracy: Share of them that is right; None where there are none.
        low: Lower end of the 95 % interval (Wilson) of that share.
        high: Upper end.
    """

    above: float
    to: float
    n: int
    confidence: float | None
    accuracy: float | None
    low: float | None
    high: float | None


def reliability(
    confidence: ArrayLike, correct: ArrayLike, *, bins: int = BINS
) -> list[ReliabilityBin]:
    """Returns the reliability table.

    It has bins of equal width, with the mean confidence and the accuracy in each.

    Args:
        confidence: (N,) probabilities of the answers given, 0 to 1; or of any yes-or-no statements.
        correct: (N,) whether each was right, 0 or 1.
        bins: M.

    Raises:
        ValueError: Lengths that differ, or something that is no probability.
    """
    confidence_N, correct_N = _checked(confidence, correct)
    index_N = _bin_numbers(confidence_N, bins)
    table = []
    for number in range(bins):
        in_bin = index_N == number
        lower_edge = number / bins
        upper_edge = (number + 1) / bins
        n = int(in_bin.sum())
        if not n:
            table.append(ReliabilityBin(lower_edge, upper_edge, 0, None, None, None, None))
            continue

        n_correct = int(correct_N[in_bin].sum())
        low, high = wilson_interval(n_correct, n)
        table.append(
            ReliabilityBin(
                lower_edge,
                upper_edge,
                n,
                confidence=float(confidence_N[in_bin].mean()),
                accuracy=n_correct / n,
                low=low,
                high=high,
            )
        )
    return table


def expected_calibration_error(
    confidence: ArrayLike, correct: ArrayLike, *, bins: int = BINS
) -> float:
    """Returns the expected calibration error (ECE), the mean over bins of |accuracy - confidence|.

    Bins are weighted by their numbers of examples.

    Args:
        confidence: (N,) probabilities, N at least 1.
        correct: (N,) whether each was right.
        bins: M, of equal width.

    Raises:
        ValueError: No answers, lengths that differ, or something that is no probability.
    """
    confidence_N, correct_N = _checked(confidence, correct)
    if not confidence_N.size:
        raise ValueError("no answers, so no calibration error")
    return _error(confidence_N, correct_N, bins)


def classwise_calibration_error(
    probabilities: ArrayLike, gold: ArrayLike, *, bins: int = BINS
) -> float:
    """Returns the mean over the labels of the ECE of each one's probability.

    See Kull et al. 2019, section 2, and Nixon et al. 2019: the ECE of the answers alone does not
    see those of the other labels.

    Args:
        probabilities: (N, C).
        gold: (N, C) whether each label is right.
        bins: M, of equal width.
    """
    pairs = zip(np.asarray(probabilities).T, np.asarray(gold).T, strict=True)
    return float(np.mean([expected_calibration_error(*pair, bins=bins) for pair in pairs]))


def brier_score(probabilities: ArrayLike, gold: ArrayLike, *, multi_label: bool = False) -> float:
    """Returns the Brier score.

    It is the squared distance of the probabilities from what is right, 0 to 2, summed over labels
    that exclude each other (Brier 1950) and averaged over those that don't.

    Args:
        probabilities: (N, C).
        gold: (N, C) whether each label is right.
        multi_label: Whether each label has its own sigmoid.
    """
    differences = np.asarray(probabilities, dtype=np.float64) - np.asarray(gold)
    squares = differences**2
    if multi_label:
        return float(squares.mean())
    return float(squares.sum(axis=1).mean())


def honest_calibration_error(confidence: ArrayLike) -> tuple[float, float]:
    """Returns the mean and 95th percentile of the ECE of true probabilities, by simulation.

    ECE is never negative. Even if each probability is true, it is above 0 by chance, and the more
    so the fewer the examples. A measured ECE above the second number is more than chance.

    Args:
        confidence: (N,) probabilities, N at least 1; the same ones give the same numbers.
    """
    confidence_N = np.asarray(confidence, dtype=np.float64)
    rng = np.random.Generator(np.random.PCG64(0))
    if confidence_N.size > MANY:
        # The sum of many outcomes in a bin is nearly normal, so one number per bin is drawn.
        spread_N = confidence_N * (1 - confidence_N)
        deviation_M = np.sqrt(
            np.bincount(_bin_numbers(confidence_N, BINS), weights=spread_N, minlength=BINS)
        )
        errors = (
            np.abs(rng.normal(size=(_DRAWS, BINS)) * deviation_M).sum(axis=1) / confidence_N.size
        )
    else:
        outcomes = (rng.random(confidence_N.size) < confidence_N for _ in range(_DRAWS))
        errors = np.array([_error(confidence_N, outcome, BINS) for outcome in outcomes])
    return float(errors.mean()), float(np.quantile(errors, 0.95))


def log_odds(probabilities: ArrayLike, *, multi_label: bool = False) -> Floats:
    """Returns numbers that serve as logits where only probabilities were kept.

    Args:
        probabilities: (N, C) of labels that exclude each other; with `multi_label`, each by itself.
        multi_label: Whether each label has its own sigmoid.

    Returns:
        (N, C) log p, or log p - log(1 - p). A probability that was rounded to 0 or 1 becomes 1e-12
        away from it.
    """
    p = np.clip(np.asarray(probabilities, dtype=np.float64), 1e-12, 1.0)
    if multi_label:
        return np.log(p) - np.log1p(-np.minimum(p, 1 - 1e-12))
    return np.log(p)


def scaled_probabilities(
    logits: ArrayLike, temperature: float, *, multi_label: bool = False
) -> Floats:
    """Returns probabilities of logits divided by a temperature; above 1 they are more modest.

    Args:
        logits: (N, C).
        temperature: Above 0.
        multi_label: Sigmoid of each logit in place of the softmax over them.
    """
    from scipy.special import expit, softmax

    divided = np.asarray(logits, dtype=np.float64) / temperature
    scaled: Floats = expit(divided) if multi_label else softmax(divided, axis=1)
    return scaled


def negative_log_likelihood(
    logits: ArrayLike, gold: ArrayLike, temperature: float = 1.0, *, multi_label: bool = False
) -> float:
    """Returns the mean of -log p over examples, with p the probability of the right label.

    With `multi_label`, it is the mean over all decisions, with p the probability of the right one.

    Args:
        logits: (N, C).
        gold: (N,) label numbers; with `multi_label` (N, C) 0 or 1.
        temperature: What the logits are divided by.
        multi_label: Whether each label is a decision of its own (sigmoid).
    """
    from scipy.special import log_softmax

    divided = np.asarray(logits, dtype=np.float64) / temperature
    if multi_label:
        signed = np.where(np.asarray(gold, dtype=bool), divided, -divided)
        return float(np.logaddexp(0.0, -signed).mean())
    gold_N = np.asarray(gold, dtype=np.int64)
    return float(-log_softmax(divided, axis=1)[np.arange(gold_N.size), gold_N].mean())


def fit_temperature(logits: ArrayLike, gold: ArrayLike, *, multi_label: bool = False) -> float:
    """Returns the temperature with the smallest negative log-likelihood.

    See Guo et al. 2017, section 4.2.

    As a function of 1 / temperature the loss is convex, so the minimum that is found is the only
    one.

    Args:
        logits: (N, C) of labelled examples that the model was not trained on. `log_odds` makes some
            of probabilities.
        gold: (N,) label numbers; with `multi_label` (N, C) 0 or 1.
        multi_label: Whether each label is a decision of its own (sigmoid).

    Raises:
        DataError: No examples, or examples that set no temperature (all right or all wrong).
    """
    from scipy.optimize import minimize_scalar

    logits_NC = np.asarray(logits, dtype=np.float64)
    if not logits_NC.size:
        raise DataError("no labelled examples, so no temperature can be fitted")
    coldest, hottest = TEMPERATURES

    def loss(inverse: float) -> float:
        """Returns the negative log-likelihood with the temperature 1 / inverse."""
        return negative_log_likelihood(
            logits_NC,
            gold,
            1 / inverse,
            multi_label=multi_label,
        )

    least_inverse = 1 / hottest
    greatest_inverse = 1 / coldest
    optimum = minimize_scalar(
        loss,
        bounds=(least_inverse, greatest_inverse),
        method="bounded",
        options={"xatol": 1e-8},
    )
    temperature = 1 / float(optimum.x)
    is_at_end = not coldest * 1.01 < temperature < hottest / 1.01
    # If all answers are right, the loss is 0 at many low temperatures, and the search may stop at
    # any of them. The coldest temperature then has the same loss.
    is_flat = loss(greatest_inverse) <= optimum.fun
    if is_at_end or is_flat:
        answers_are = "right" if temperature < 1 else "wrong"
        raise DataError(
            f"the {len(logits_NC)} examples set no temperature: the answers that they are about "
            f"are (nearly) all {answers_are}, so the fit runs to {temperature:.3g}",
            remedy="Calibrate on more examples, among them some that the model gets right and some "
            "that it gets wrong.",
        )
    return temperature


@dataclass(frozen=True)
class Threshold:
    """Where probabilities are cut, and what comes of it on the examples it was chosen on.

    Attributes:
        value: A probability of at least this counts as yes.
        accepted: How many yes answers there are.
        precision: Share of the yes answers that is right; 1 where there are none.
        f1: The harmonic mean of precision and recall.
    """

    value: float
    accepted: int
    precision: float
    f1: float


def best_f1_threshold(probability: ArrayLike, gold: ArrayLike) -> Threshold:
    """Returns the threshold with the highest F1, the nearest to 0.5 if several have it.

    Args:
        probability: (N,) of yes. Several labels: the decisions of all of them in one row, for the
            micro F1.
        gold: (N,) whether yes is right.

    Raises:
        DataError: Yes is never right, so there is no F1.
    """
    choices = _thresholds(probability, gold)
    return max(choices, key=lambda choice: (round(choice.f1, 12), -abs(choice.value - 0.5)))


def modest_f1_threshold(probability: ArrayLike, gold: ArrayLike) -> float:
    """Returns the threshold with the highest F1, moved towards 0.5.

    The best threshold on few examples is partly luck. With n examples the share n / (n + 50) of its
    distance from 0.5 is kept. It is not moved if that would cost more than one standard error of
    F1.

    Args:
        probability: (n,) probabilities of yes.
        gold: (n,) whether yes is right.
    """
    probability_N, gold_N = _checked(probability, gold)
    best = best_f1_threshold(probability_N, gold_N)
    n = gold_N.size
    moved = 0.5 + (best.value - 0.5) * n / (n + _HALF_BELIEVED)

    is_accepted = probability_N >= moved
    n_positive = int(gold_N.sum())
    f1 = 2 * int(gold_N[is_accepted].sum()) / (int(is_accepted.sum()) + n_positive)
    standard_error = math.sqrt(2 * best.f1 * (1 - best.f1) / (best.accepted + n_positive))
    if f1 >= best.f1 - standard_error:
        return moved
    return best.value


def sure_precision_threshold(probability: ArrayLike, gold: ArrayLike, floor: float) -> Threshold:
    """Returns the threshold with the most yes answers at a floor of precision.

    Their precision on new examples reaches the floor, as far as these examples show: it falls below
    the floor in at most `LEVEL` of all samples.

    Learn then Test (Angelopoulos et al. 2021, arXiv 2110.01052, section 3.2, fixed-sequence testing
    with several starts): the strictest cut that can pass is tested with the exact binomial test,
    then looser and looser ones (5 % more yes answers), until one fails. A second sequence starts at
    twice as many yes answers; both share the level. The loosest cut that has passed is taken.

    Args:
        probability: (N,) of yes.
        gold: (N,) whether yes is right.
        floor: The precision that is asked for, above 0, below 1.

    Raises:
        DataError: Yes is never right, or no threshold is sure to reach the floor.
    """
    from scipy.stats import binom

    level = LEVEL / _STARTS
    thresholds = {choice.accepted: choice for choice in _thresholds(probability, gold)}
    counts = sorted(thresholds)  # of yes answers: the strictest threshold has the fewest
    # If all n yes answers are right, p is floor ** n. With fewer than this many no cut can pass. No
    # number of examples shows a precision of 1.
    fewest = math.inf
    if floor < 1:
        fewest = math.ceil(math.log(level) / math.log(floor))

    passed = 0
    for start in range(_STARTS):
        next_count = fewest * 2**start
        while next_count <= counts[-1]:
            accepted = counts[bisect.bisect_left(counts, next_count)]
            n_right = round(thresholds[accepted].precision * accepted)
            p_value = binom.sf(n_right - 1, accepted, floor)
            if p_value > level:
                break
            passed = max(passed, accepted)
            next_count = accepted + max(1, accepted // 20)
    if passed:
        return thresholds[passed]

    testable = [thresholds[accepted] for accepted in counts if accepted >= fewest]
    if testable:
        best = max(testable, key=lambda choice: choice.precision)
        shortfall = f"the highest there is {best.precision:.4f}, at {best.value:.4f}"
    else:  # fewer yes answers than `fewest`, at any threshold
        shortfall = "there are fewer"
    raise DataError(
        f"no threshold is {1 - LEVEL:.0%} sure to reach a precision of {floor:g} on new examples: "
        f"among the {np.size(probability)} examples it takes {fewest} yes answers that are all "
        f"right, or more with a few errors; {shortfall}",
        remedy="Ask for a lower precision, choose on more examples, or train a better model.",
    )


def _thresholds(probability: ArrayLike, gold: ArrayLike) -> list[Threshold]:
    """Returns every threshold between two different probabilities, and one below them all.

    The strictest comes first.
    """
    probability_N, gold_N = _checked(probability, gold)
    n_positive = int(gold_N.sum())
    if not n_positive:
        message = "no example has the label that the threshold is for, so none can be chosen"
        raise DataError(message, remedy="Choose it on examples that include some with the label.")
    order = np.argsort(-probability_N, kind="stable")
    sorted_N = probability_N[order]
    hits_N = np.cumsum(gold_N[order])
    # There is one cut for each different probability, behind the last example that has it, as equal
    # probabilities have one answer.
    cuts = np.append(np.flatnonzero(np.diff(sorted_N)), sorted_N.size - 1)
    choices = []
    for position in cuts:
        accepted = int(position) + 1
        hits = int(hits_N[position])
        above = float(sorted_N[position])
        if accepted < sorted_N.size:
            below = float(sorted_N[position + 1])
        else:
            below = 0.0
        # Halfway between the two, so that no answer depends on the last digit of a probability.
        # Between neighbouring floats there is no number.
        middle = (above + below) / 2
        value = middle if below < middle <= above else above
        choices.append(
            Threshold(value, accepted, hits / accepted, 2 * hits / (accepted + n_positive))
        )
    return choices


def _checked(confidence: ArrayLike, correct: ArrayLike) -> tuple[Floats, Ints]:
    """Returns (N,) probabilities and (N,) whether the answers are right, as arrays.

    Raises:
        ValueError: Lengths that differ, or something that is no probability.
    """
    confidence_N = np.asarray(confidence, dtype=np.float64)
    correct_N = np.asarray(correct, dtype=np.int64)
    if confidence_N.shape != correct_N.shape or confidence_N.ndim != 1:
        raise ValueError(f"{confidence_N.shape} probabilities for {correct_N.shape} answers")
    if confidence_N.size and not (confidence_N.min() >= 0 and confidence_N.max() <= 1 + 1e-6):
        raise ValueError("a probability is below 0, above 1 or not a number")
    return confidence_N, correct_N


def _bin_numbers(confidence_N: Floats, bins: int) -> Ints:
    """Returns (N,) the bin of each probability: with 10 bins, 0.3 is in bin 2, (0.2, 0.3]."""
    numbers = np.ceil(confidence_N * bins).astype(np.int64) - 1
    return np.clip(numbers, 0, bins - 1)


def _error(confidence_N: Floats, correct_N: Ints | Bools, bins: int) -> float:
    """Returns the calibration error of one outcome of the answers."""
    gaps = np.bincount(
        _bin_numbers(confidence_N, bins), weights=correct_N - confidence_N, minlength=bins
    )
    return float(np.abs(gaps).sum() / confidence_N.size)
