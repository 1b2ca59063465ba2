"""What can be done about a check that is inconclusive.

More examples, another limit, or another policy.
"""

import math

from bertctl.metrics.value import MetricValue
from bertctl.reporting.limits import Limit, parameter_of
from bertctl.tasks.classification.class_answers import OF_LABEL
from bertctl.tasks.registry import find_metric

_SAME = 1e-12
"""Difference of two numbers that is rounding."""

_DIGITS = 4
_MOST = 10_000_000
"""Examples beyond which nobody collects them."""


def examples_needed(limit: Limit, value: float, end: float, bound: float, n: int) -> int | None:
    """Returns about how many examples a check would need to pass with the same value.

    It is None if the value itself misses the limit, or if far too many would be needed.

    Args:
        limit: The limit that was checked.
        value: Metric of the run, or its change from the baseline.
        end: The end of its interval on the bad side of the limit.
        bound: The whole interval has to be on the good side of this.
        n: Examples that the interval rests on.
    """
    gap = abs(value - bound)
    # The bad side is below the value if the bad end is.
    if end < value:
        is_good = value > bound
    else:
        is_good = value < bound
    if not is_good or gap <= _SAME:
        return None
    is_share = limit.kind not in ("max-drop", "beats") and _is_fraction(limit.metric)
    if is_share and 0 < end < 1 and 0 < bound < 1:
        # Wilson's interval of a share p has its end e where n = z^2 e (1 - e) / (p - e)^2. So n
        # examples give this end, and the number for an end at the bound is in this ratio to n.
        ratio = (bound * (1 - bound) / gap**2) / (end * (1 - end) / (value - end) ** 2)
    else:
        # The width of other intervals falls with the square root of the number of examples.
        ratio = ((value - end) / gap) ** 2
    needed = math.ceil(n * ratio)
    return needed if needed <= _MOST else None


def _is_fraction(metric: str) -> bool:
    """Returns whether a metric lies between 0 and 1."""
    known = find_metric(metric)
    return metric.partition(":")[0] in OF_LABEL or (known is not None and known.is_fraction)


def limit_that_passes(limit: Limit, end: float) -> str:
    """Returns the option with the strictest limit that an interval passes.

    Args:
        limit: The limit that was checked, which is not of a baseline (`beats`).
        end: The end of the interval on the bad side. Rounded to four digits, away from the good
            side, it is the strictest limit.
    """
    scale = 10**_DIGITS
    if limit.kind == "max-drop":
        # The end is a change, below 0 if higher is better. The option has the size of the drop.
        number = math.ceil(abs(end) * scale - _SAME) / scale
    elif limit.kind == "max":
        number = math.ceil(end * scale - _SAME) / scale
    else:
        number = math.floor(end * scale + _SAME) / scale
    metric = limit.metric
    if limit.slice:
        column, value = limit.slice
        metric = f"{column}={value}:{metric}"
    return f"`{parameter_of(limit.kind)}={metric}={number:g}`"


def ways_out(
    limit: Limit, value: float, end: float | None, bound: float, metric: MetricValue
) -> tuple[str, ...]:
    """Returns what would decide an inconclusive check, a sentence each.

    Args:
        limit: What was asked.
        value: Metric of the run, or its change from the baseline.
        end: The end of its interval on the bad side; None if it has no interval.
        bound: The whole interval has to be on the good side of this.
        metric: Metric of the run.
    """
    if end is None:
        return ("`policy=point` decides by the value alone.",)

    needed = examples_needed(
        limit,
        value,
        end,
        bound,
        metric.n,
    )
    if needed is not None:
        about_examples = (
            f"About {needed:,} examples would be enough to pass if the value stays at "
            f"{value:.4f} (you have {metric.n:,})."
        )
    else:
        # The bad side is below the value if the bad end is.
        value_should_be_above = end < value
        value_meets_limit = (value > bound) == value_should_be_above
        if value_meets_limit:
            about_examples = "More examples would hardly help: the value is at the limit."
        else:
            about_examples = (
                "More examples like these would fail it: the value itself misses the limit."
            )
    policies = (
        "`policy=point` decides by the value alone, `policy=lenient` passes inconclusive checks "
        "with a warning."
    )
    if limit.kind == "beats":
        return about_examples, policies
    return (
        about_examples,
        f"These examples are enough for {limit_that_passes(limit, end)}.",
        policies,
    )
