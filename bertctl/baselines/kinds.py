"""Which baselines there are, what they are called, and what is said of a run beside them.

No torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from bertctl.metrics.paired import Difference
from bertctl.run_documents.metrics_document import BaselineDifference
from bertctl.tasks.registry import find_metric

BaselineVerdict = Literal["better", "unclear", "not better"]

FROZEN = "frozen"
TFIDF = "tfidf"
WORD_TAGS = "word-tags"

MAJORITY = "majority"
"""The answer that ignores the input, under the name that tables have for it; every run has its
scores."""


@dataclass(frozen=True)
class BaselineKind:
    """A simple model that a run should beat.

    Attributes:
        title: Its name in sentences.
        tables: Its name in tables.
    """

    title: str
    tables: str


_ROUNDING = 1e-9

KINDS: Mapping[str, BaselineKind] = {
    FROZEN: BaselineKind("the frozen encoder's classifier", "frozen encoder, linear classifier"),
    TFIDF: BaselineKind("TF-IDF with a linear model", "TF-IDF, linear model"),
    WORD_TAGS: BaselineKind("the most frequent tag of each word", "most frequent tag of each word"),
}
"""The baselines that are computed beside a run, by the name that metrics.json, files and
`gate --beats` have. A task says which of them it has."""


def verdict_on(gain: float, low: float, high: float, *, higher_is_better: bool) -> BaselineVerdict:
    """Returns what the interval of a paired difference says of a run and a baseline.

    Args:
        gain: The run's metric minus the baseline's.
        low: Lower end of its interval.
        high: Upper end.
        higher_is_better: Direction of the metric.
    """
    bad_end = low if higher_is_better else -high
    signed_gain = gain if higher_is_better else -gain
    if bad_end > 0:
        return "better"
    if signed_gain > 0:
        return "unclear"
    return "not better"


def is_full_score(comparison: BaselineDifference, metric: str) -> bool:
    """Returns whether a run has all that can be had of a metric, so that no run could be better.

    Args:
        comparison: Entry of `differences` in metrics.json.
        metric: Name of the primary metric.
    """
    known = find_metric(metric)
    is_fraction = known is not None and known.is_fraction and known.higher_is_better
    return is_fraction and comparison.baseline + comparison.value >= 1.0 - _ROUNDING


def comparison_sentence(name: str, split: str, metric: str, comparison: BaselineDifference) -> str:
    """Returns how a run stands beside a baseline, in a sentence without a full stop.

    Args:
        name: Name of the baseline.
        split: Split that both were scored on.
        metric: Name of the primary metric.
        comparison: Entry of `differences` in metrics.json.
    """
    title = KINDS[name].title
    value = comparison.baseline
    gain = comparison.value
    low = comparison.corrected.low
    high = comparison.corrected.high
    known = find_metric(metric)
    is_fraction = known is not None and known.is_fraction
    higher_is_better = known is None or known.higher_is_better
    if is_fraction:
        interval = f"95 % {100 * low:.1f} to {100 * high:.1f}"
    else:
        interval = f"95 % {low:.4f} to {high:.4f}"
    if comparison.verdict == "better":
        amount = _amount(abs(gain), is_fraction=is_fraction)
        return f"{split}: beats {title} ({metric} {value:.3f}) by {amount}, {interval}"
    if comparison.verdict == "unclear":
        amount = _amount(gain, is_fraction=is_fraction, sign="+")
        return (
            f"{split}: not clearly better than {title} ({metric} {value:.3f}): {amount}, {interval}"
        )
    score = value + gain
    if is_full_score(comparison, metric):
        return f"{split}: {metric} {score:.3f}, and {title} has {value:.3f} too"
    if higher_is_better:
        comparative = "above"
    else:
        comparative = "below"
    amount = _amount(gain, is_fraction=is_fraction)
    return (
        f"{split}: {metric} {score:.3f} is not {comparative} the {value:.3f} of {title} (a "
        f"difference of {amount}, {interval})"
    )


def _amount(gain: float, *, is_fraction: bool, sign: str = "") -> str:
    """Returns a difference of a metric for people: `1.2 points` for a fraction, else `0.0123`.

    Args:
        gain: The difference.
        is_fraction: Whether the metric is a fraction, such as accuracy.
        sign: `+` shows the sign of a gain, too.
    """
    if is_fraction:
        return f"{100 * gain:{sign}.1f} points"
    return f"{gain:{sign}.4f}"


def difference_document(
    difference: Difference,
    baseline: float,
    corrected: tuple[float, float],
    *,
    higher_is_better: bool,
) -> dict[str, Any]:
    """Returns an entry of `differences` in metrics.json.

    Args:
        difference: The run's metric minus the baseline's.
        baseline: The baseline's metric.
        corrected: The interval, wider if the split chose between several evaluations of the run:
            the best of them is good by luck, too.
        higher_is_better: Direction of the metric.
    """
    low, high = corrected
    return {
        "baseline": baseline,
        **difference.as_json(),
        "corrected": {"low": low, "high": high},
        "verdict": verdict_on(difference.value, low, high, higher_is_better=higher_is_better),
    }
