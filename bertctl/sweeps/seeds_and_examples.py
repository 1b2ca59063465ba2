"""What a sweep's scores say of seeds and examples that it has not seen: both are samples, and both count as noise.

Scores of a setting are a table, examples down and seeds across, whose mean is the score: `Contributions.linear_parts`
of each run. Letters: G examples (or clusters, or blocks of many examples), S seeds, R draws.
"""

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import stdtr, stdtrit

from bertctl.metrics.arrays import Floats
from bertctl.metrics.paired import Difference
from bertctl.metrics.statistics import CONFIDENCE, SAME

_DRAWS = 1_000
_SEED = 0  # of PCG64: the same sweep says the same


def two_way_difference(a_GS: Floats, b_GS: Floats, *, n: int, clusters: int | None) -> Difference:
    """Returns the difference of two settings, a's mean less b's, for other seeds and other examples than these.

    The variance over examples (both settings' answers to one together) and that over seeds are added; what is in both,
    the noise of single answers, is taken off once. Student's distribution with Satterthwaite's degrees of freedom
    (1946) gives interval and p. Drawing seeds again (Sellam et al. 2022, "The MultiBERTs") needs more of them.

    Args:
        a_GS: at least two seeds.
        b_GS: the same examples.
        n: examples.
        clusters: G where examples hang together.
    """
    of_examples = float((a_GS.mean(axis=1) - b_GS.mean(axis=1)).var(ddof=1)) / len(a_GS)
    tables = (a_GS, b_GS)
    of_seeds = [float(each.mean(axis=0).var(ddof=1)) / each.shape[1] for each in tables]
    variance = of_examples + max(0.0, sum(of_seeds) - sum(map(_noise, tables)))
    value = float(a_GS.mean() - b_GS.mean())
    if variance <= SAME**2:
        return Difference(value, value, value, float(abs(value) <= SAME), n, "no spread", None, clusters)
    uncertain = [of_examples**2 / (len(a_GS) - 1)]
    uncertain += [each**2 / (table.shape[1] - 1) for each, table in zip(of_seeds, tables, strict=True)]
    freedom, error = variance**2 / sum(uncertain), math.sqrt(variance)
    half = float(stdtrit(freedom, (1 + CONFIDENCE) / 2)) * error
    p = 2 * float(stdtr(freedom, -abs(value) / error))
    return Difference(value, value - half, value + half, p, n, "seeds and examples, Satterthwaite", None, clusters)


def _noise(table_GS: Floats) -> float:
    """Returns the variance of the table's mean that is neither of its examples nor of its seeds."""
    G, S = table_GS.shape
    rest = table_GS - table_GS.mean(axis=1, keepdims=True) - table_GS.mean(axis=0) + table_GS.mean()
    return float((rest**2).sum() / ((G - 1) * (S - 1) * G * S))


def scores_of_the_choice(settings: Sequence[Floats], *, sign: float, by_best_run: bool) -> tuple[float, float]:
    """Returns what to expect of the choice: of the chosen setting with a new seed, and of its best run on new examples.

    The best of many was lucky too. So the choice is made again and again, on examples drawn with replacement and
    without one of the seeds, and scored on the examples that were not drawn, with that seed (or for the best run, as it
    is): Tsamardinos, Greasidou and Borboudakis 2018, "Bootstrapping the out-of-sample predictions for efficient and
    accurate cross-validation". Of a single seed its luck stays in the score.

    Args:
        settings: (G, S) of each.
        sign: 1 where higher is better, else -1.
        by_best_run: whether the setting of the best single run is chosen, not that of the best mean.
    """
    G, merit = len(settings[0]), np.max if by_best_run else np.mean
    rng = np.random.Generator(np.random.PCG64(_SEED))
    drawn = rng.multinomial(G, np.full(G, 1 / G), size=_DRAWS).astype(np.float64)
    drawn = drawn[(drawn == 0).any(axis=1)]
    others, every = (drawn == 0).astype(np.float64), np.arange(len(drawn))
    # einsum, not a matrix product: the same bits with any number of BLAS threads.
    before = [sign * np.einsum("rg,gs->rs", drawn, each) for each in settings]
    after = [np.einsum("rg,gs->rs", others, each) / others.sum(axis=1, keepdims=True) for each in settings]
    new_seed = []
    for number in range(max(each.shape[1] for each in settings)):
        kept = [np.delete(each, number % each.shape[1], axis=1) if each.shape[1] > 1 else each for each in before]
        chosen = np.argmax([merit(each, axis=1) for each in kept], axis=0)
        new_seed.append(np.stack([each[:, number % each.shape[1]] for each in after])[chosen, every])
    chosen = np.argmax([merit(each, axis=1) for each in before], axis=0)
    best = [each[every, of.argmax(axis=1)] for each, of in zip(after, before, strict=True)]
    return float(np.mean(new_seed)), float(np.stack(best)[chosen, every].mean())
