"""Which of two models is better.

It has differences of a metric on the same examples, their intervals and p values.

Letters: R resamples, N examples, M kinds of examples, S numbers that a metric needs to know of an
example.

A difference is always a - b. Proportions get Tango's score interval and McNemar's test, all else a
bootstrap of the examples (both models' answers to an example are drawn together) and an exchange
test: were the models equal, then which answer came from which would be chance. Both tests are exact
when few answers differ, where the bootstrap is not: four examples won and none lost look certain to
it, and happen by chance one time in eight. So an interval is made to hold 0 wherever the test's p
is above 0.05: two models of the same quality are told apart in at most 5 % of all cases, a
worse-than verdict comes to at most 2.5 % of them.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from bertctl.arrays import Bools, Floats, Ints
from bertctl.metrics import resampling, statistics
from bertctl.metrics.clusters import cluster_means, cluster_units, design_effect, number_of
from bertctl.metrics.value import MetricValue

RESAMPLES = 2_000
"""Resamples of a difference, and exchanges behind its p value, whose smallest value is then
0.0005."""

MANY = 2_000
"""Examples above which half as many resamples have to do: a comparison is to answer within 2 s."""

POWER = 0.8
"""How often a drop of the smallest detectable size is found."""

DISAGREEMENT = 0.1
"""Share of the answers in which two fine-tuned runs of one recipe differ, about: what power is
reckoned with."""

_SEED = 0  # of PCG64: the same two runs differ by the same
_EXACT_EXCHANGES = 4_096


@dataclass(frozen=True)
class Difference:
    """By how much a metric of model a exceeds that of model b.

    Attributes:
        value: The metric of a minus that of b.
        low: Lower end of the 95 % interval.
        high: Upper end.
        p: Two-sided p-value of no difference.
        n: Examples.
        method: How interval and p were found, in a few words.
        changed: Examples on which the models differ in what the metric sees; None where not paired.
        clusters: Groups of examples that were drawn and exchanged together; None where each stands
            by itself.
    """

    value: float
    low: float
    high: float
    p: float
    n: int
    method: str
    changed: int | None
    clusters: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Returns the layout in the answers of `gate` and `compare`."""
        fields = asdict(self)
        changed = fields.pop("changed")
        clusters = fields.pop("clusters")
        fields |= {"clusters": clusters} if clusters else {}
        return fields | {"paired": changed is not None, "examples_changed": changed}


def mcnemar(only_a: int, only_b: int) -> float:
    """Returns the two-sided p of McNemar's test (1947), by the binomial distribution.

    Args:
        only_a: Examples that only a answers rightly.
        only_b: Examples that only b answers rightly.
    """
    from scipy.special import bdtr

    return min(1.0, 2 * float(bdtr(min(only_a, only_b), only_a + only_b, 0.5)))


def share_difference(right_a: Bools, right_b: Bools, clusters: Ints | None = None) -> Difference:
    """Returns the difference of two proportions on the same examples.

    The interval is Tango's, and p McNemar's exact one. With clusters, the examples count as fewer
    for the interval, by the design effect, and p comes from exchanging whole clusters.

    Args:
        right_a: (N,) whether a answered an example rightly; N at least 1.
        right_b: (N,) the same for b.
        clusters: (N,) number of each example's cluster.
    """
    n = int(right_a.size)
    only_a = int((right_a & ~right_b).sum())
    only_b = int((right_b & ~right_a).sum())
    p = mcnemar(only_a, only_b)
    method = "McNemar, exact"
    low, high = _consistent_with_p(score_interval(only_a, only_b, n), p)
    if clusters is not None:
        gaps = right_a.astype(np.float64) - right_b
        effect = design_effect(gaps, clusters)
        p = mean_difference(gaps, np.zeros(n), clusters).p
        method = "score interval, exchange of clusters"
        low, high = _consistent_with_p(
            score_interval(only_a / effect, only_b / effect, n / effect), p
        )
    return Difference(
        value=(only_a - only_b) / n,
        low=low,
        high=high,
        p=p,
        n=n,
        method=method,
        changed=only_a + only_b,
        clusters=number_of(clusters),
    )


def score_interval(only_a: float, only_b: float, n: float) -> tuple[float, float]:
    """Returns Tango's 95 % score interval of a difference of paired proportions.

    See Statistics in Medicine 17, 1998.

    The interval has the differences that a score test (McNemar's for 0) does not reject. If both
    models answer all examples alike, it is Wilson's interval of 0 of n, in both directions.

    Args:
        only_a: Examples that only a answers rightly.
        only_b: Examples that only b answers rightly.
        n: All examples.
    """
    z = statistics.quantile_of_normal()
    value = (only_a - only_b) / n

    def end(outside: float, target: float) -> float:
        """Returns where the score reaches the target, between the value and `outside`."""
        inner = value
        for _ in range(60):  # halvings: more than a double has digits
            middle = (inner + outside) / 2
            if abs(_tango_score(only_a, only_b, n, middle)) < target:
                inner = middle
            else:
                outside = middle
        return inner

    return end(-1.0, z), end(1.0, z)


def bootstrap_difference(
    rows_a: Floats,
    rows_b: Floats,
    make: Callable[[Floats], resampling.Statistic],
    *,
    possible: Floats | None = None,
    resamples: int = RESAMPLES,
    method: statistics.Method = "bca",
    clusters: Ints | None = None,
) -> Difference:
    """Returns the difference of any metric between two models on the same examples.

    The interval is that of the paired bootstrap, and p that of the exchange test.

    Args:
        rows_a: (N, S) what the metric needs to know of each example and a's answer.
        rows_b: (N, S) the same for b.
        make: Rows (M, S) to the metric as a function of how often each of them counts.
        possible: (P, 2 S) kinds that could occur, a's numbers before b's; used where the models
            never differ.
        resamples: How many times to draw, and to exchange.
        method: Method of `bootstrap_interval`, or `posterior`; with `posterior`, `possible` has
            every kind there can be.
        clusters: (N,) number of each example's cluster.
    """
    n, S = rows_a.shape  # joined rows have S columns of a, then S columns of b
    resamples = _affordable(resamples, n)
    changed = int((rows_a != rows_b).any(axis=1).sum())
    if possible is None:
        possible = np.empty((0, 2 * S))
    kinds, counts, kind_of_example = resampling.counted_kinds(np.hstack([rows_a, rows_b]), possible)
    difference = _difference_of(make, kinds)
    value = float(_of_all(make(kinds[:, :S]), counts) - _of_all(make(kinds[:, S:]), counts))
    interval = None
    if method == "posterior":
        # The interval is that of examples. With clusters, they count as fewer: their number is
        # divided by the design effect.
        influences = resampling.influence(difference, counts)[kind_of_example]
        effect = design_effect(influences, clusters)
        interval = statistics.posterior_interval(difference, counts / effect, seed=_SEED)
    if clusters is not None:
        # From here on clusters stand in the place of examples: a row is the number of a unit. The
        # exchange test below needs them even if there is an interval already.
        (rows_a, rows_b), units, make = cluster_units(
            clusters, (rows_a, rows_b), possible.reshape(-1, S), make
        )
        kinds, counts, _ = resampling.counted_kinds(
            np.hstack([rows_a, rows_b]), units.reshape(-1, 2)
        )
        difference = _difference_of(make, kinds)
    interval = interval or statistics.statistic_interval(
        difference,
        counts,
        resamples=resamples,
        seed=_SEED,
        method=method,
    )
    p = _exchange_test(make, kinds, counts, resamples=resamples)
    low, high = _consistent_with_p((min(interval[0], value), max(interval[1], value)), p)
    if method == "posterior":
        interval_method = "posterior, "
    else:
        interval_method = "paired bootstrap, "
    return Difference(
        value=value,
        low=low,
        high=high,
        p=p,
        n=n,
        method=interval_method + _exchange(clusters),
        changed=changed,
        clusters=number_of(clusters),
    )


def _of_all(statistic: resampling.Statistic, counts: Ints) -> float:
    """Returns the metric of all examples, 0 where it is undefined."""
    one_draw = counts[None, :].astype(np.float64)
    [value] = statistic(one_draw)
    return float(np.nan_to_num(value))


def _difference_of(
    make: Callable[[Floats], resampling.Statistic], kinds: Floats
) -> resampling.Statistic:
    """Returns a's metric less b's, as a function of how often each kind occurs.

    The columns are a's numbers, then b's.
    """
    S = kinds.shape[1] // 2
    of_a = make(kinds[:, :S])
    of_b = make(kinds[:, S:])
    return lambda counts: of_a(counts) - of_b(counts)


def mean_difference(
    values_a: Floats,
    values_b: Floats,
    clusters: Ints | None = None,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Difference:
    """Returns the difference of two means over the same examples.

    The interval is that of the studentised bootstrap, and p that of the exchange test.

    Args:
        values_a: (N,) finite; N at least 2.
        values_b: (N,).
        clusters: (N,) number of each example's cluster.
        resamples: How many times to draw, and to exchange.
        seed: Seed of the random generator PCG64.
    """
    changed = int((values_a != values_b).sum())
    n = int(values_a.size)
    gaps = cluster_means(values_a - values_b, clusters)
    G = int(gaps.size)
    value = float(gaps.mean())
    resamples = _affordable(resamples, G)
    # Clusters are of several sizes, so their sums vary even where all examples differ by the same.
    if clusters is None:
        centred = gaps
    else:
        centred = value + cluster_means(values_a - values_b - value, clusters)
    interval = statistics.mean_interval(centred, resamples=resamples, seed=seed)
    if not gaps.any():
        p = 1.0
    elif G >= statistics.LARGE:
        standard_error = float(gaps.std(ddof=1)) / math.sqrt(G)
        p = math.erfc(abs(value) / standard_error / math.sqrt(2))
    else:
        p = _exchange_p_of_mean(gaps, resamples=resamples, seed=seed)
    low, high = _consistent_with_p(interval, p)
    return Difference(
        value=value,
        low=low,
        high=high,
        p=p,
        n=n,
        method="paired bootstrap, " + _exchange(clusters),
        changed=changed,
        clusters=number_of(clusters),
    )


def _exchange_p_of_mean(gaps: Floats, *, resamples: int, seed: int) -> float:
    """Returns how often exchanged answers move two means as far apart as they are.

    Exchanging the two answers to an example turns the sign of its gap, so signs are drawn.

    Args:
        gaps: (G,) differences of the two models on each example or cluster.
        resamples: How many times to exchange.
        seed: Seed of the random generator PCG64.
    """
    G = gaps.size
    distance = abs(float(gaps.mean()))
    rng = np.random.Generator(np.random.PCG64(seed))
    n_reached = 0
    for rows in resampling.chunk_sizes(resamples, G):
        signs = 2.0 * rng.integers(0, 2, (rows, G), dtype=np.int8) - 1
        exchanged = np.abs(np.einsum("rn,n->r", signs, gaps)) / G
        n_reached += int((exchanged >= distance - resampling.SAME).sum())
    # The answers as they are count as one more exchange, so that p is never 0.
    return (1 + n_reached) / (1 + resamples)


def unpaired_difference(a: MetricValue, b: MetricValue) -> Difference:
    """Returns the difference of two metrics as if of different examples.

    Only the value and the interval of each are known.

    The interval is that of variance estimates recovered (Zou and Donner 2008), for proportions
    Newcombe's (1998, method 10). It is wider than a paired interval if the models err on the same
    examples, as they usually do.

    Args:
        a: A metric with an interval.
        b: The metric to take from it, also with an interval.

    Raises:
        ValueError: One of them has no interval.
    """
    if a.low is None or a.high is None or b.low is None or b.high is None:
        raise ValueError("both metrics need an interval")
    value = a.value - b.value
    # Each end is as far away as the two errors that move the difference there, taken together.
    low = value - math.hypot(a.value - a.low, b.high - b.value)
    high = value + math.hypot(a.high - a.value, b.value - b.low)
    # The normal p of the side on which 0 lies, from that side's width.
    if value > 0:
        width = value - low
    else:
        width = high - value
    if not value:
        p = 1.0
    elif width > 0:
        z = statistics.quantile_of_normal() * abs(value) / width
        p = math.erfc(z / math.sqrt(2))
    else:  # intervals without a width, so that no error explains the difference
        p = 0.0
    return Difference(
        value,
        low,
        high,
        p=p,
        n=a.n,
        method="unpaired",
        changed=None,
    )


def simultaneous(
    value: float, ends: tuple[float | None, float | None], k: int, *, at_least: bool
) -> tuple[float | None, float | None]:
    """Returns the interval of the best of k models, with a larger distance to its worse end.

    The best of several is partly lucky, so its value is too good rather than too bad. The worse end
    is moved by Bonferroni's method; the better one stays.

    Args:
        value: The metric of the best.
        ends: Low and high end of its 95 % interval; None where there is none.
        k: How many models were compared on the same examples.
        at_least: Whether the low end is the worse one: higher values are better.
    """
    low, high = ends
    if low is None or high is None or k <= 1:
        return ends
    wider = (
        statistics.quantile_of_normal(1 - (1 - statistics.CONFIDENCE) / k)
        / statistics.quantile_of_normal()
    )
    if at_least:
        return (value - (value - low) * wider, high)
    return (low, value + (high - value) * wider)


def holm(p_values: Sequence[float]) -> list[float]:
    """Returns p values adjusted by Holm's step-down method (1979).

    They are in the order given, each at most 1.
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted = [1.0] * len(p_values)
    largest = 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = largest
    return adjusted


def detectable(low: float, high: float) -> float:
    """Returns the smallest distance from a limit that examples with this interval can show.

    They show it in 4 of 5 cases.

    Half the interval is 1.96 standard errors; a true distance of 1.96 + 0.84 of them puts the whole
    interval on one side of the limit with a probability of 80 %.
    """
    z = statistics.quantile_of_normal()
    return (high - low) / 2 * (z + NormalDist().inv_cdf(POWER)) / z


def _exchange(clusters: Ints | None) -> str:
    """Returns the name of the test in results: whole clusters are exchanged if there are any."""
    if clusters is None:
        return "exchange test"
    return "exchange of clusters"


def detectable_shares(n: int) -> dict[str, float]:
    """Returns how far apart shares of right answers must be to be told apart.

    Then n examples show it in 4 of 5 cases.

    Returns:
        `runs`: of two runs that answer a tenth (`DISAGREEMENT`) of the examples differently, by
            McNemar's test;
        `limit`: of a run from a fixed limit, where nine in ten answers are right.
    """
    z = statistics.quantile_of_normal()
    variances = {"runs": DISAGREEMENT, "limit": 0.9 * 0.1}
    errors = {name: math.sqrt(variance / n) for name, variance in variances.items()}
    return {name: detectable(-z * error, z * error) for name, error in errors.items()}


def _affordable(resamples: int, n: int) -> int:
    """Returns how many resamples are drawn: fewer of many examples, to take no longer."""
    if n <= MANY:
        return resamples
    return min(resamples, RESAMPLES // 2)


def _consistent_with_p(interval: tuple[float, float], p: float) -> tuple[float, float]:
    """Returns the interval of a difference; it contains 0 if p says that it is not significant."""
    low, high = interval
    if p > 1 - statistics.CONFIDENCE:
        return (min(low, 0.0), max(high, 0.0))
    return (low, high)


def _tango_score(only_a: float, only_b: float, n: float, shift: float) -> float:
    """Returns how many standard errors the observed difference lies from `shift`.

    The standard error depends on how many examples only one model answers rightly; that number is
    taken at its likeliest for a difference of `shift`.

    Args:
        only_a: Examples that only a answers rightly.
        only_b: Examples that only b answers rightly.
        n: All examples.
        shift: A difference of the two shares, from -1 to 1.
    """
    # The likeliest share q of examples that only b answers, given that only a's is q + shift: a
    # quadratic equation.
    linear = -only_a - only_b + (2 * n - only_a + only_b) * shift
    constant = -only_b * shift * (1 - shift)
    q = (math.sqrt(max(0.0, linear * linear - 8 * n * constant)) - linear) / (4 * n)
    gap = only_a - only_b - n * shift
    variance = n * (2 * q + shift * (1 - shift))
    if variance <= 0:
        if gap:
            return math.copysign(math.inf, gap)
        return 0.0
    return gap / math.sqrt(variance)


def _exchange_test(
    make: Callable[[Floats], resampling.Statistic], kinds: Floats, counts: Ints, *, resamples: int
) -> float:
    """Returns the p value of a difference: 1 if the models answer all examples alike.

    Args:
        make: Rows (M, S) to the metric as a function of how often each of them counts.
        kinds: (M, 2 S) kinds of examples: a's numbers, then b's.
        counts: (M,) how often each kind occurs.
        resamples: Exchanges drawn where there are too many to go through.
    """
    S = kinds.shape[1] // 2
    occurs = counts > 0
    differs = (kinds[:, :S] != kinds[:, S:]).any(axis=1)
    discordant = kinds[occurs & differs]
    if not len(discordant):
        return 1.0

    answered_alike = kinds[occurs & ~differs, :S]
    return _exchange_p(
        make(np.vstack([answered_alike, discordant[:, :S], discordant[:, S:]])),
        counts[occurs & ~differs],
        counts[occurs & differs],
        resamples=resamples,
    )


def _exchange_p(
    statistic: resampling.Statistic, same_K: Ints, changed_J: Ints, *, resamples: int
) -> float:
    """Returns how often exchanging answers at random moves the models as far apart as they are.

    Args:
        statistic: The metric as a function of (R, K + 2 J) counts: kinds answered alike, then a's
            answers to the others, then b's.
        same_K: How often each kind answered alike occurs.
        changed_J: How often each of the others occurs.
        resamples: Exchanges drawn where there are too many to go through.
    """
    from scipy.special import gammaln

    def distance(exchanged_RJ: Floats) -> Floats:
        """Returns (R,) how far the models are apart with so many answers of each kind exchanged."""
        same_RK = np.broadcast_to(same_K.astype(np.float64), (len(exchanged_RJ), same_K.size))
        kept_RJ = changed_J - exchanged_RJ
        of_a = np.nan_to_num(statistic(np.hstack([same_RK, kept_RJ, exchanged_RJ])))
        of_b = np.nan_to_num(statistic(np.hstack([same_RK, exchanged_RJ, kept_RJ])))
        return np.abs(of_a - of_b)

    observed = float(distance(np.zeros((1, changed_J.size)))[0])
    # Of each kind, 0 to all answers can be exchanged. If there are few such exchanges, all are
    # computed, each with its probability.
    if math.log(_EXACT_EXCHANGES) >= float(np.log(changed_J + 1).sum()):
        exchanges = np.indices(tuple(changed_J + 1)).reshape(changed_J.size, -1).T
        # Logarithms of binomial coefficients: how many ways there are to exchange so many.
        log_ways = (
            gammaln(changed_J + 1) - gammaln(exchanges + 1) - gammaln(changed_J - exchanges + 1)
        )
        chance = np.exp((log_ways - changed_J * math.log(2)).sum(axis=1))
        is_as_far = distance(exchanges.astype(np.float64)) >= observed - resampling.SAME
        return min(1.0, float(chance[is_as_far].sum()))

    rng = np.random.Generator(np.random.PCG64(_SEED))
    n_reached = 0
    for rows in resampling.chunk_sizes(resamples, same_K.size + 2 * changed_J.size):
        drawn = rng.binomial(changed_J, 0.5, size=(rows, changed_J.size)).astype(np.float64)
        n_reached += int((distance(drawn) >= observed - resampling.SAME).sum())
    return (1 + n_reached) / (1 + resamples)
