"""Intervals: how far a metric of n examples may lie from the true one.

That is the metric of all the examples there could be.

Letters: R resamples, M kinds of examples, N examples, G clusters.

The methods were chosen by simulation: coverage of the 95 % interval in percent, 1,000 resamples,
1,000 to 2,500 trials per figure (500 with heavy tails, 600 with outliers), so a standard error of
0.4 to 1.

    metric              n      percentile  BCa        studentised  taken
    F1, accuracy .8     150    95.9        96.2       94.8         posterior (two labels), BCa
    F1, accuracy .97    150    92.3        96.3 a)    80.1         posterior (two labels), BCa
    Matthews, .97       150    93.7        95.0       79.6         posterior (two labels), BCa
    Matthews, .97       400    94.2        95.3       93.1         posterior (two labels), BCa
    macro F1, 3 labels  150    93.4        95.9       91.8         BCa
    Pearson .5 to .97   150    93.0-95.0   93.5-95.0  -            percentile b)
    Pearson, heavy tail 500    94.2        91.0       -            percentile b)
    Spearman .5 to .97  150    94.7-95.7   94.4-95.3  -            percentile
    mean, calibrated    150    92.3        92.8       94.6         studentised
    mean, log-normal    150    92.6        93.1       94.5         studentised
    mean, 5 % outliers  150    88.9        92.8       96.5         studentised

The functions below, all together, 2,000 trials at n = 150, 400 and 1,000 (`pytest -m slow` runs it
again): F1 94.6 to 95.7, Matthews 94.0 to 95.5, Pearson 93.9 to 95.1, Spearman 94.8 to 96.0, squared
error 94.5 to 95.7, loss 93.1 to 95.2.

a) BCa stays within 93 to 97 while about five errors are to be expected; with fewer it is wide
rather than wrong (98). With two labels a table has four cells, or eight for two models on the same
examples, and quantiles of its posterior distribution (Jeffreys' prior, half an example in each
cell; Agresti and Min 2005) hold where the bootstrap does not: at n = 20 they cover Matthews in
95.8 % where BCa covers 87.8, and a change of F1 or Matthews that lies exactly at its limit passes
in 1.3 to 3.2 % at n = 50, where BCa lets 3.0 to 6.8 % pass. More labels have too many cells: BCa.

Precision, recall and F1 of a label or of entities are growing functions of a share
(`contributions.Proportion`), and get the interval of that share: six rows that are all found are
known to 0.54, whatever else stands beside them. The low end of a share is Clopper and Pearson's
where Wilson's is not safe for a gate (`share_interval`).

Examples that belong together (sentences of a document) are drawn together, as clusters. A share,
and a table of two labels, gets the interval of as many independent examples as would vary as much
(their number divided by the design effect, Kish 1965; Dean and Pagano 2015), with the width of
Student's distribution. All other intervals are stretched by that distribution, too.

Few units (below 40 examples, or clusters of them) are not drawn again. What the metric is without
each of them gives its standard error (the jackknife), which with Student's distribution for G - 2
degrees of freedom makes an interval on the scale's coordinate, the log odds. Of gates 0.001 above
the truth passed wrongly, in percent of 2,000 samples of 60 and of 300 rows in 5 clusters with a
quarter of the variance in common:

    metric               BCa, G - 1    jackknife, G - 1    jackknife, G - 2 (taken)
    area under the ROC   5.5, 7.4      2.7, 4.9            1.8, 3.2
    average precision    4.9, 6.0      3.5, 4.3            2.4, 3.1
    macro F1, 4 labels   3.6, 3.6      1.2, 2.6            0.5, 1.9
    Matthews, posterior  1.7, 3.7      -                   0.3, 2.0

Fewer than five clusters decide nothing (`tests/numeric/test_few_rows.py` has the simulations). Six
values of a loss say little of its large ones: mean squared errors of six rows pass in about 3 %
even with the gamma interval beside them (`_gamma_interval`; 5 without), losses with heavier tails
in about 5.

b) Fisher's formula 1 / sqrt(n - 3) gives 95.2 for normal data, 97 for bounded scores as in STS-B,
80 for heavy tails. No method sees what is not in the sample: where an outlier comes once in 100
examples, 150 examples lack it one time in four, and the interval of the mean then covers 76 %.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Literal

import numpy as np

from bertctl.arrays import Array, Floats, Ints
from bertctl.metrics.resampling import (
    SAME,
    Statistic,
    chunk_sizes,
    defined_resamples,
    left_out,
    with_one_changed,
)

Method = Literal["bca", "percentile", "posterior"]


MAX_KINDS = 2_000
"""Kinds of examples for which the jackknife behind BCa's acceleration is computed; with more, n is
so large that the acceleration, of the order of 1 / (6 sqrt n), no longer matters."""

LARGE = 20_000
"""Examples from which the mean's interval is the normal one: measured the same as the studentised
from 1,000 on."""

FLOOR = 0.2
"""Smallest standard deviation of a resample, as a share of the sample's, that studentised intervals
divide by. Without it a resample that lacks the only outlier stretches the interval tenfold, for the
same coverage (97.0; with it 96.5)."""

DRAWS = 10_000
"""Draws where they cost nothing: of a table of a few cells, 10 ms."""

CHEAP = 5_000_000
"""Counts that are drawn in about 0.1 s: with fewer, an interval stands on up to `DRAWS` draws."""

CONFIDENCE = 0.95
"""Share of intervals that cover the truth."""

FEW_UNITS = 40
"""Examples, or clusters of them, below which resamples say too little of their spread: the
jackknife does better."""

_MANY_TRIALS = 100
"""Examples of a share from which Wilson's low end is safe for gates, if it is not small."""

_SAFE_LOW_END = 0.6
"""Low end of such a share from which it is not small."""

_LARGEST_EXPONENT = 700.0
"""Of e, so that the power is a finite number."""

_LEAST_SHAPE = 0.5
"""Of the gamma distribution of a mean: that of one squared normal number."""


@dataclass(frozen=True)
class Scale:
    """Values that a metric can have, and a coordinate of them without ends.

    Its intervals are stretched on that coordinate.

    Between two ends the coordinate is the log odds (of a correlation Fisher's z, doubled), beside a
    single end the logarithm of the distance, and without ends the value itself.

    Attributes:
        lowest: Least value; -inf where there is none.
        highest: Greatest value; inf where there is none.
    """

    lowest: float = -math.inf
    highest: float = math.inf

    def has_inside(self, value: float) -> bool:
        """Returns whether a value lies between the ends, and is none of them."""
        return self.lowest < value < self.highest

    def coordinate(self, value: float) -> float:
        """Returns the coordinate of a value inside: its logit on a scale with two ends.

        With one end it is the logarithm of the distance from it, and without ends the value itself.
        An interval that is stretched on the coordinate never leaves the scale.
        """
        if not self._has_lowest and not self._has_highest:
            return value
        coordinate = 0.0
        if self._has_lowest:
            coordinate += math.log(value - self.lowest)
        if self._has_highest:
            coordinate -= math.log(self.highest - value)
        return coordinate

    def slope(self, value: float) -> float:
        """Returns the derivative of `coordinate` at a value between the ends."""
        if not self._has_lowest and not self._has_highest:
            return 1.0
        return 1 / (value - self.lowest) + 1 / (self.highest - value)

    def value(self, coordinate: float) -> float:
        """Returns the value of the metric with this coordinate: the inverse of `coordinate`.

        With two ends, a coordinate is the value's logit. With one end it is the logarithm of the
        distance from the end, and without ends the value itself.
        """
        if not self._has_lowest and not self._has_highest:
            return coordinate
        bounded = min(_LARGEST_EXPONENT, max(-_LARGEST_EXPONENT, coordinate))
        if not self._has_highest:
            return self.lowest + math.exp(bounded)
        if not self._has_lowest:
            return self.highest - math.exp(-bounded)
        return self.lowest + (self.highest - self.lowest) / (1 + math.exp(-bounded))

    @property
    def _has_lowest(self) -> bool:
        return math.isfinite(self.lowest)

    @property
    def _has_highest(self) -> bool:
        return math.isfinite(self.highest)


UNBOUNDED = Scale()
"""All numbers: what differences can be."""


def wilson_interval(
    successes: float, n: float, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Returns the score interval of a proportion (Wilson 1927).

    Brown, Cai and DasGupta 2001 recommend it.

    Coverage computed exactly, at 95 %: 94.3 to 96.7 for proportions .5 to .95 and n of 150 to
    1,821; at .99 it is 93.5 (n = 150), 96.4 (n = 1,000), and 97.7 at worst (n = 277), as few counts
    are possible there.

    Args:
        successes: How many of the examples are right; a fraction if they are divided by their
            design effect.
        n: How many examples there are.
        confidence: Share of intervals that are to cover the truth.

    Returns:
        Low and high, fractions; (0, 1) where n is 0.
    """
    if n == 0:
        return 0.0, 1.0
    z = quantile_of_normal(confidence)
    share = successes / n
    spread = z * z / n
    centre = (share + spread / 2) / (1 + spread)
    half = z * math.sqrt(share * (1 - share) / n + spread / (4 * n)) / (1 + spread)
    if share == 0:
        low = 0.0
    else:
        low = max(0.0, centre - half)
    if share == 1:
        high = 1.0
    else:
        high = min(1.0, centre + half)
    return low, high


def share_interval(successes: float, n: float) -> tuple[float, float]:
    """Returns the 95 % interval of a share: Wilson's, with a safe low end.

    A gate may pass by its low end.

    Of few examples, and of small shares, Wilson's low end lies above the truth too often: in 5 % of
    samples of 6, if the truth is 0.6, and in up to 8 % of samples of 60, if it is small. There the
    low end is Clopper and Pearson's (1934) if that is lower: it lies above the truth in at most
    2.5 %. Elsewhere Wilson's does so in at most 3.0 %.

    Args:
        successes: How many examples are right; also a fraction, if they are divided by their design
            effect.
        n: How many examples there are, divided likewise.
    """
    low, high = wilson_interval(successes, n)
    if n >= _MANY_TRIALS and low >= _SAFE_LOW_END:
        return low, high
    return min(low, _clopper_pearson_low(successes, n)), high


def _clopper_pearson_low(successes: float, n: float) -> float:
    """Returns the least share that gives so many successes, or more, in 2.5 % of samples."""
    from scipy.special import betaincinv

    if successes <= 0:
        return 0.0
    return float(betaincinv(successes, n - successes + 1, (1 - CONFIDENCE) / 2))


def bootstrap_interval(
    statistic: Statistic,
    counts: int | Ints,
    *,
    resamples: int,
    seed: int,
    confidence: float = CONFIDENCE,
    method: Method = "bca",
    stretched: bool = True,
    scale: Scale = UNBOUNDED,
) -> tuple[float, float]:
    """Returns the interval of a statistic, from examples drawn again with replacement.

    Examples that are alike are counted, not listed: drawing the cell counts of a confusion table
    from a multinomial distribution is exactly the bootstrap of its examples, and as fast for 40,000
    of them as for 400.

    Where all resamples agree (not one error, or one answer for all), the examples say nothing about
    kinds of examples that they lack. The interval then reaches as far as the statistic would move
    if one such kind had the largest share that n examples without it leave possible (Wilson's),
    whichever kind moves it most.

    A resample in which the statistic is undefined (recall without a gold example) is no zero: it is
    drawn again.

    The interval is stretched as Student's distribution asks. Its degrees of freedom are those of a
    variance that is estimated from these examples, at most n - 1:

        degrees = min(n - 1, 2 n / (kurtosis - 1))

    with the kurtosis of the examples' influence, so six examples that carry all of the variance
    count as few, however many others there are.

    Args:
        statistic: The metric as a function of the counts of each kind of example; vectorised over
            rows (NaN: undefined).
        counts: (M,) how often each kind occurs, 0 for kinds that could; or n for n examples all
            different.
        resamples: How many times to draw.
        seed: Seed of the random generator PCG64; the same seed gives the same interval.
        confidence: Share of intervals that are to cover the truth.
        method: `bca` corrects the percentiles for bias and skewness (Efron 1987), `percentile`
            takes them as they are.
        stretched: Whether few examples widen the interval; False for the plain bootstrap, as scipy
            has it.
        scale: Values that the statistic can have; the interval is stretched on its coordinate,
            which has no end.

    Returns:
        Low and high; the statistic of the sample is always between them.
    """
    if isinstance(counts, int):
        counts_M = np.ones(counts, dtype=np.int64)
    else:
        counts_M = counts
    value = float(np.nan_to_num(statistic(counts_M[None, :].astype(np.float64))[0]))
    rng = np.random.Generator(np.random.PCG64(seed))
    drawn_R = defined_resamples(statistic, counts_M, resamples, rng)
    if drawn_R.size == 0 or float(np.ptp(drawn_R)) <= SAME:
        return _unseen_interval(
            statistic,
            counts_M,
            value,
            confidence,
            scale,
        )

    n = int(counts_M.sum())
    tails = np.array([(1 - confidence) / 2, (1 + confidence) / 2])
    degrees = n - 1.0
    if method == "bca":
        moments = _influence_moments(statistic, counts_M)
        tails = _bca_tails(drawn_R, value, moments.acceleration, confidence)
        degrees = min(degrees, moments.degrees_of_freedom)
    low, high = np.quantile(drawn_R, tails)
    stretch = 1.0
    if stretched:
        # The variance of resamples is that of the sample, which divides by n instead of n - 1.
        stretch = student_stretch(degrees, confidence) * math.sqrt(n / max(1, n - 1))
    low_with_value = min(value, float(low))
    high_with_value = max(value, float(high))
    return (
        _stretched(value, low_with_value, stretch, scale),
        _stretched(value, high_with_value, stretch, scale),
    )


def jackknife_interval(
    statistic: Statistic,
    counts_M: Ints,
    *,
    confidence: float = CONFIDENCE,
    scale: Scale = UNBOUNDED,
) -> tuple[float, float]:
    """Returns the interval of a statistic of few units, from its values without each of them.

    The spread of these values gives the standard error, Student's distribution with
    `degrees_of_freedom` the width, and the scale's coordinate the form: near an end of the scale
    the interval is longer on the side of the other end.

    Args:
        statistic: The metric as a function of the counts of each kind of unit (NaN: undefined).
        counts_M: How often each kind occurs, 0 for kinds that could.
        confidence: Share of intervals that are to cover the truth.
        scale: Values that the statistic can have.
    """
    n = int(counts_M.sum())
    value = float(np.nan_to_num(statistic(counts_M[None, :].astype(np.float64))[0]))
    if n < 2:
        return _unseen_interval(
            statistic,
            counts_M,
            value,
            confidence,
            scale,
        )

    present = np.flatnonzero(counts_M)
    moves = left_out(statistic, counts_M, present) - value
    variance = (n - 1) / n * float((counts_M[present] * moves**2).sum())
    if variance <= SAME**2 or not scale.has_inside(value):
        return _unseen_interval(
            statistic,
            counts_M,
            value,
            confidence,
            scale,
        )

    n_errors = quantile_of_normal(confidence) * student_stretch(degrees_of_freedom(n), confidence)
    half = n_errors * math.sqrt(variance) * scale.slope(value)
    middle = scale.coordinate(value)
    return scale.value(middle - half), scale.value(middle + half)


def statistic_interval(
    statistic: Statistic,
    counts_M: Ints,
    *,
    resamples: int,
    seed: int,
    method: Method,
    scale: Scale = UNBOUNDED,
) -> tuple[float, float]:
    """Returns the 95 % interval of a statistic of examples or clusters.

    Few are resampled by the jackknife, many by the bootstrap.

    Args:
        statistic: The metric as a function of the counts of each kind of unit (NaN: undefined).
        counts_M: How often each kind occurs, 0 for kinds that could.
        resamples: Number of resamples of the bootstrap.
        seed: Seed of the bootstrap.
        method: Method of the bootstrap.
        scale: Values that the statistic can have.
    """
    if int(counts_M.sum()) < FEW_UNITS:
        return jackknife_interval(statistic, counts_M, scale=scale)
    return bootstrap_interval(
        statistic,
        counts_M,
        resamples=resamples,
        seed=seed,
        method=method,
        scale=scale,
    )


def posterior_interval(statistic: Statistic, counts_M: Array, *, seed: int) -> tuple[float, float]:
    """Returns the 95 % interval of a statistic of a small table.

    Its ends are quantiles of the posterior with Jeffreys' prior.

    Args:
        statistic: The metric as a function of (R, M) counts of all kinds there can be.
        counts_M: How often each occurs; of clustered examples divided by their design effect.
        seed: Seed of the random generator PCG64.
    """
    # Jeffreys' prior counts half an example of each kind.
    drawn = statistic(_posterior(tuple((counts_M + 0.5).tolist()), seed))
    low, high = np.quantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


@lru_cache(maxsize=4)
def _posterior(shapes: tuple[float, ...], seed: int) -> Floats:
    """Returns (R, M) tables drawn from the posterior of a table.

    The draws are kept for the next metrics of the same table. They are gamma numbers, which are
    proportional to those of a Dirichlet distribution: a metric does not depend on their sum.

    Args:
        shapes: (M,) counts of the kinds of examples, those of the prior added.
        seed: Seed of the random generator PCG64.
    """
    drawn = np.random.Generator(np.random.PCG64(seed)).standard_gamma(
        np.broadcast_to(shapes, (DRAWS, len(shapes)))
    )
    drawn.setflags(write=False)
    return drawn


def mean_interval(
    values: Floats, *, resamples: int, seed: int, never_negative: bool = False
) -> tuple[float, float]:
    """Returns the studentised 95 % bootstrap interval of a mean.

    It is wider on the side where the values, such as losses, are spread out.

    For few values it is stretched as Student's distribution with `degrees_of_freedom` asks. Among
    few errors or losses there may be no large one by chance. So for these, the interval reaches at
    least as far as that of a gamma distribution.

    Args:
        values: (N,) finite, at least two.
        resamples: How many times to draw; not used from 20,000 values on, where the normal interval
            is the same.
        seed: Seed of the random generator PCG64.
        never_negative: Whether the mean is one of errors or losses.
    """
    n = values.size
    mean = float(values.mean())
    deviation = float(values.std())
    if n >= LARGE or deviation <= SAME * abs(mean):
        half = quantile_of_normal(CONFIDENCE) * deviation / math.sqrt(n)
        return mean - half, mean + half
    rng = np.random.Generator(np.random.PCG64(seed))
    scores: list[Floats] = []
    for rows in chunk_sizes(resamples, n):
        drawn = values[rng.integers(0, n, (rows, n))]
        # A resample without the only outlier has a tiny deviation. It would stretch the interval.
        deviations = np.maximum(drawn.std(axis=1), FLOOR * deviation)
        scores.append((drawn.mean(axis=1) - mean) / deviations)
    lower, upper = np.quantile(np.concatenate(scores), [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    stretch = student_stretch(degrees_of_freedom(n)) * math.sqrt(n / (n - 1))
    # A score is the error of a resample's mean. If means are too high by up to `upper`, the true
    # mean may be that much lower.
    low = mean - max(0.0, float(upper)) * deviation * stretch
    high = mean - min(0.0, float(lower)) * deviation * stretch
    if never_negative and n < FEW_UNITS:
        gamma_low, gamma_high = _gamma_interval(mean, float(values.std(ddof=1)), n)
        return min(low, gamma_low), max(high, gamma_high)
    return low, high


def _gamma_interval(mean: float, deviation: float, n: int) -> tuple[float, float]:
    """Returns the 95 % interval of a mean that has a gamma distribution, as that of squared errors.

    Its shape k follows from the mean and the standard error. In a gamma distribution the mean is
    sqrt(k) standard deviations, so k = (mean / standard error)^2. The true mean then lies between
    mean * k / q(97.5 %) and mean * k / q(2.5 %), where q are quantiles of the gamma distribution
    with shape k and scale 1.

    Args:
        mean: Mean of the values.
        deviation: Standard deviation of the values.
        n: How many values there are.
    """
    from scipy.special import gammaincinv

    stretch = student_stretch(degrees_of_freedom(n))
    shape = max(_LEAST_SHAPE, n * (mean / (deviation * stretch)) ** 2)
    tail = (1 - CONFIDENCE) / 2
    # Few values often lack the large ones. Their deviation is then too small, the shape is too
    # large, and the interval is too short. Shape + 1 makes this quantile larger and so the low end
    # lower: a gate passes by that end, and passes wrongly less often.
    low = mean * shape / float(gammaincinv(shape + 1, 1 - tail))
    high = mean * shape / float(gammaincinv(shape, tail))
    return low, high


def quantile_of_normal(confidence: float = CONFIDENCE) -> float:
    """Returns how many standard deviations around a normal distribution's mean hold this share.

    It is 1.96 for 95 %.
    """
    return NormalDist().inv_cdf((1 + confidence) / 2)


def _stretched(value: float, end: float, stretch: float, scale: Scale) -> float:
    """Returns the end of an interval, `stretch` times as far from the value as it was.

    The distance is on the scale's coordinate.
    """
    if not (scale.has_inside(value) and scale.has_inside(end)):
        return min(scale.highest, max(scale.lowest, value + (end - value) * stretch))
    middle = scale.coordinate(value)
    return scale.value(middle + (scale.coordinate(end) - middle) * stretch)


def degrees_of_freedom(n_units: int) -> float:
    """Returns the degrees of freedom of Student's distribution, for an interval of so many units.

    The mean takes one. Of few units a second one is taken, as Donald and Lang (2007) do for groups:
    units that carry a metric unequally say less of its spread than equal ones, and with one degree
    twice as many gates pass wrongly.
    """
    n_estimated = 2 if n_units < FEW_UNITS else 1
    return max(1.0, float(n_units - n_estimated))


def student_stretch(degrees: float, confidence: float = CONFIDENCE) -> float:
    """Returns how much wider Student's interval is than the normal one.

    For 5 degrees of freedom and 95 % it is 2.57 / 1.96.
    """
    from scipy.special import stdtrit

    return float(stdtrit(max(1.0, degrees), (1 + confidence) / 2)) / quantile_of_normal(confidence)


def mean_ranks(values_N: Floats) -> Floats:
    """Returns the rank of each value, from 1, equal ones at their mean rank.

    The one of scipy takes 0.5 s to import.
    """
    _, place, sizes = np.unique(values_N, return_inverse=True, return_counts=True)
    mean_rank_of_group = np.cumsum(sizes) - (sizes - 1) / 2
    return mean_rank_of_group[place]


@dataclass(frozen=True)
class _Moments:
    """What the distribution of the examples' influence on a statistic says of its interval.

    Attributes:
        acceleration: Acceleration of BCa: a sixth of the skewness (Efron 1987).
        degrees_of_freedom: Degrees of freedom of the variance that these examples give, by its own
            variance (Satterthwaite 1946).
    """

    acceleration: float = 0.0
    degrees_of_freedom: float = math.inf


def _influence_moments(statistic: Statistic, counts_M: Ints) -> _Moments:
    """Returns the moments of the examples' influence that BCa and the degrees of freedom need.

    The influence of an example is how much the statistic changes without it (jackknife).

    Args:
        statistic: Function of (R, M) counts.
        counts_M: How often each kind of example occurs.
    """
    present = np.flatnonzero(counts_M)
    n = int(counts_M.sum())
    if present.size > MAX_KINDS or n < 2:
        return _Moments()

    jackknife = left_out(statistic, counts_M, present)
    weights = counts_M[present]
    influence = np.average(jackknife, weights=weights) - jackknife
    squares = float((weights * influence**2).sum())
    if squares <= SAME**2:
        return _Moments()

    skewness = float((weights * influence**3).sum()) / squares**1.5
    kurtosis = n * float((weights * influence**4).sum()) / squares**2
    return _Moments(
        acceleration=skewness / 6,
        degrees_of_freedom=2 * n / max(SAME, kurtosis - 1),
    )


def _bca_tails(drawn_R: Floats, value: float, acceleration: float, confidence: float) -> Floats:
    """Returns the two quantiles that BCa reads instead of 0.025 and 0.975.

    They are moved by the bias of the resampled values, and by the skewness of the metric.

    Args:
        drawn_R: Values of the metric in R resamples.
        value: The metric of the sample.
        acceleration: A sixth of the skewness of the examples' influence.
        confidence: Share of intervals that are to cover the truth.
    """
    normal = NormalDist()
    R = drawn_R.size
    # Values of a small table are few and often equal: half of the equal ones count as below.
    below = float(np.mean(drawn_R < value - SAME) + np.mean(drawn_R <= value + SAME)) / 2
    bias = normal.inv_cdf(min(max(below, 1 / R), 1 - 1 / R))
    tails = []
    for z in (-quantile_of_normal(confidence), quantile_of_normal(confidence)):
        stretch = max(1 - acceleration * (bias + z), SAME)
        tails.append(normal.cdf(bias + (bias + z) / stretch))
    return np.array(tails)


def _unseen_interval(
    statistic: Statistic, counts_M: Ints, value: float, confidence: float, scale: Scale
) -> tuple[float, float]:
    """Returns the lowest and highest statistic if some kind of example had been drawn too rarely.

    The kind gets the largest share that it can have if n examples do not show it (Wilson's), and
    the other kinds shrink in proportion. This is tried with each kind.

    Args:
        statistic: Function of (R, M) counts.
        counts_M: How often each kind occurs in the sample.
        value: The statistic of the sample.
        confidence: Confidence of Wilson's interval.
        scale: Values that the statistic can have.
    """
    n = int(counts_M.sum())
    M = counts_M.size
    unseen_share = wilson_interval(0, n, confidence)[1]
    # If there are very many kinds, evenly spaced ones stand for all.
    kinds = np.unique(np.linspace(0, M - 1, min(M, MAX_KINDS)).astype(np.int64))
    shrunk_counts_M = (1 - unseen_share) * counts_M.astype(np.float64)
    moved_values = with_one_changed(statistic, shrunk_counts_M, kinds, unseen_share * n)
    low = min(value, float(np.nanmin(moved_values)))
    high = max(value, float(np.nanmax(moved_values)))
    # A value at an end of its scale (such as perfect ranks) may not move with any kind. It is no
    # surer than a share of n right examples of n.
    width = scale.highest - scale.lowest
    if math.isfinite(width) and value >= scale.highest - SAME:
        low = min(low, scale.highest - unseen_share * width)
    if math.isfinite(width) and value <= scale.lowest + SAME:
        high = max(high, scale.lowest + unseen_share * width)
    return low, high
