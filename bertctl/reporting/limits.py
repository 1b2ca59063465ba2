"""What a gate is asked, and how one number is judged by its interval."""

import math
import re
from dataclasses import dataclass
from typing import Literal

from bertctl.baselines.kinds import KINDS, MAJORITY
from bertctl.errors import UsageError
from bertctl.metrics.clusters import TOO_FEW
from bertctl.metrics.value import MetricValue
from bertctl.tasks.classification.class_answers import OF_LABEL
from bertctl.tasks.registry import find_metric
from bertctl.words import as_number, listing, unknown

Policy = Literal["strict", "point", "lenient"]
GateVerdict = Literal["pass", "fail", "inconclusive"]
Kind = Literal["min", "max", "min-slice", "max-drop", "beats"]

ANY_GAIN = 1e-9
"""The least by which a run has to be better than a baseline: more than what rounding makes of no
difference."""

_SAME = 1e-12
"""Difference of two numbers that is rounding."""

_SLICE = re.compile(r"^(?P<column>[^=:]+)=(?P<value>.*):(?P<metric>[^=:]+)$", re.DOTALL)
_EXAMPLES = {
    "min": "accuracy=0.91",
    "max": "loss=0.4",
    "min-slice": "label=neg:recall=0.85",
    "max-drop": "accuracy=0.005",
}


@dataclass(frozen=True)
class Limit:
    """Limit that a run has to meet.

    Attributes:
        kind: Name of the option without its dashes.
        metric: Name of the metric.
        limit: The number; for a drop, how much may be lost.
        slice: Column and value, for min-slice.
        baseline: Name of the baseline, for beats.
    """

    kind: Kind
    metric: str
    limit: float
    slice: tuple[str, str] | None = None
    baseline: str | None = None

    @property
    def name(self) -> str:
        """As typed: `min accuracy=0.91`."""
        if self.baseline is not None:
            return f"{self.kind} {self.baseline}"
        if self.slice:
            where = f"{self.slice[0]}={self.slice[1]}:"
        else:
            where = ""
        return f"{self.kind} {where}{self.metric}={self.limit:g}"


def baseline_limit(name: str) -> Limit:
    """Returns the limit of `--beats NAME`.

    Its metric is the run's primary one, which is known once the run is read.

    Raises:
        UsageError: There is no such baseline.
    """
    known = [*KINDS, MAJORITY]
    if name not in known:
        raise UsageError(
            f"`beats={name}`: {unknown('baseline', name, known)}",
            remedy=f"It fits: {listing(known)}.",
        )
    return Limit("beats", "", 0.0, baseline=name)


def parse_limit(kind: Kind, text: str) -> Limit:
    """Returns the limit in `accuracy=0.91`, or in `label=neg:recall=0.85` for a slice.

    Raises:
        UsageError: it is neither, or the number is impossible.
    """
    name, equals, number = text.rpartition("=")
    if kind == "min-slice":
        slice_match = _SLICE.match(name)
    else:
        slice_match = None
    limit = as_number(number)
    has_name = bool(equals and name.strip())
    lacks_slice = kind == "min-slice" and slice_match is None
    if not has_name or lacks_slice or not math.isfinite(limit):
        if kind == "min-slice":
            message = "COLUMN=VALUE:METRIC=NUMBER"
        else:
            message = "METRIC=NUMBER"
        raise UsageError(
            f"`{parameter_of(kind)}={text}`: expected {message}",
            remedy=f"For example `{parameter_of(kind)}='{_EXAMPLES[kind]}'`.",
        )
    metric = (slice_match["metric"] if slice_match else name).strip()
    metric_type = find_metric(metric)
    is_of_label = metric.partition(":")[0] in OF_LABEL
    is_fraction = is_of_label or (metric_type is not None and metric_type.is_fraction)
    if abs(limit) > 1 and is_fraction:
        message = f"`{parameter_of(kind)}={text}`: {metric} is a fraction, at most 1"
        raise UsageError(message, remedy=f"Did you mean {metric}={limit / 100:g}?")
    if kind == "max-drop" and limit < 0:
        raise UsageError(
            f"`max_drop={text}`: a drop is 0 or more",
            remedy="Give how much may be lost, such as 0.005.",
        )
    column_and_value = None
    if slice_match is not None:
        column_and_value = (slice_match["column"].strip(), slice_match["value"].strip())
    return Limit(kind, metric, limit, column_and_value)


def has_too_few(clusters: int | None) -> bool:
    """Returns whether examples come from so few clusters that an interval says nothing."""
    return clusters is not None and clusters < TOO_FEW


def against_constant(metric: MetricValue, baseline: float, policy: Policy) -> GateVerdict:
    """Returns the best verdict that a run can have beside the best constant answer.

    The run passes only if it is clearly better. The constant answer's score is as uncertain as the
    run's: it is taken to have an interval of the same width. What is not clear fails with
    `lenient`.

    Args:
        metric: Metric of the run.
        baseline: The same metric of the answer that ignores the input.
        policy: `point` goes by the values alone.
    """
    # The end of the run's interval that is towards the constant answer, if the run is better.
    if metric.higher_is_better:
        sign = 1.0
        near_end = metric.low
    else:
        sign = -1.0
        near_end = metric.high
    gap = sign * (metric.value - baseline)
    if gap <= _SAME:
        return "fail"
    if policy == "point":
        half_width = 0.0
    elif near_end is None:
        half_width = math.inf
    else:
        half_width = sign * (metric.value - near_end)
    # The variances of two equally uncertain scores add up, hence the square root of 2. A constant
    # answer's metric of 0, such as a correlation, has no uncertainty.
    factor = math.sqrt(2) if baseline else 1.0
    if gap > half_width * factor:
        return "pass"
    if policy == "lenient":
        return "fail"
    return "inconclusive"


def decide(
    value: float,
    low: float | None,
    high: float | None,
    bound: float,
    *,
    at_least: bool,
    policy: Policy,
    clusters: int | None = None,
) -> GateVerdict:
    """Returns the verdict on a value: whether its whole interval is on the good side of a limit.

    It fails if the whole interval is on the bad side, and is inconclusive otherwise.

    Args:
        value: What is judged.
        low: Lower end of its interval; None without an interval: then the result is inconclusive,
            unless the policy is `point`.
        high: Upper end.
        bound: The limit.
        at_least: Whether the good side is above the limit (which belongs to it) or below.
        policy: `point` goes by the value alone.
        clusters: Groups of examples behind the interval; too few of them decide nothing. None where
            there are none.
    """
    sign = 1.0 if at_least else -1.0
    if policy == "point":
        if sign * (value - bound) >= -_SAME:
            return "pass"
        return "fail"
    if low is None or high is None or has_too_few(clusters):
        return "inconclusive"
    # The whole interval has to be on one side of the limit.
    bad_end, good_end = (low, high) if at_least else (high, low)
    if sign * (bad_end - bound) >= -_SAME:
        return "pass"
    if sign * (good_end - bound) < -_SAME:
        return "fail"
    return "inconclusive"


def parameter_of(kind: str) -> str:
    """Returns the name of the parameter that gives limits of this kind."""
    return kind.replace("-", "_")
