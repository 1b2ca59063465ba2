"""The best score to be expected of n runs: what a result of "the best of n" is to be held against.

Dodge, Gururangan, Card, Schwartz, Smith: "Show Your Work: Improved Reporting of Experimental
Results" (EMNLP 2019, arXiv 1909.03004), section 3. Of N runs with the values v_1 <= ... <= v_N, n
drawn with replacement have a maximum of at most v_i with probability (i / N)^n, the empirical
distribution function to the n-th power. So

    E[max of n]   = sum over i of v_i   ((i / N)^n - ((i - 1) / N)^n)
    E[max^2 of n] = sum over i of v_i^2 ((i / N)^n - ((i - 1) / N)^n),   Var = E[max^2] - E[max]^2

Where lower is better, the same of the negated values. The estimate stands on the runs that there
are: near n = N it is hardly more than the best of them and too low for other runs of the same kind
(Tang et al., "Showing Your Work Doesn't Always Work", ACL 2020).
"""

import math
from collections.abc import Sequence

import numpy as np

from bertctl.run_documents.sweep_document import ExpectedBest


def expected_best(values: Sequence[float], *, higher_is_better: bool = True) -> list[ExpectedBest]:
    """Returns the expected best score of 1, 2, ... N runs, drawn with replacement from N runs.

    Args:
        values: (N,) scores of all runs, in any order.
        higher_is_better: Whether higher scores are better.

    Returns:
        For each number of runs the `value` that the best of them can be expected to reach, and its
        standard `deviation`; nothing without values.
    """
    N = len(values)
    sign = 1.0 if higher_is_better else -1.0
    ordered = np.sort(sign * np.asarray(values, dtype=np.float64))  # the best one is the last
    expected = []
    for n in range(1, N + 1):
        # The k-th value is the best of n draws if all n are among the first k, and not among the
        # first k - 1: (k / N)^n - ((k - 1) / N)^n.
        chances = np.diff((np.arange(N + 1) / N) ** n)
        # Mean and variance of the distance to the best value, which keeps more digits.
        best = ordered[-1]
        mean = math.fsum((chances * (ordered - best)).tolist())
        variance = math.fsum((chances * (ordered - best - mean) ** 2).tolist())
        value = sign * (float(best) + mean)
        deviation = math.sqrt(max(0.0, variance))
        expected.append(ExpectedBest(runs=n, value=value, deviation=deviation))
    return expected
