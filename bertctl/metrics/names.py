"""The table of metrics: a new one is a row here and a function in its family's file."""

from collections.abc import Mapping
from dataclasses import dataclass

from bertctl.metrics.value import MetricValue


@dataclass(frozen=True)
class MetricName:
    """One row.

    Attributes:
        name: as in metrics.json, `--min NAME=...` and `evaluation.primary_metric`.
        higher_is_better: direction.
        description: what it is, in a line.
        interval: where its 95 % interval comes from.
    """

    name: str
    higher_is_better: bool
    description: str
    interval: str


_ROWS = (
    MetricName("accuracy", True, "share of examples answered exactly right (all labels, if several)", "Wilson"),
    MetricName(
        "f1", True, "harmonic mean of precision and recall: of the positive label of two, else the mean over labels "
        "(macro); with several labels for an example, over all decisions (micro)", "bootstrap, BCa"
    ),
    MetricName("f1_macro", True, "several labels for an example: mean of the labels' F1", "bootstrap, BCa"),
    MetricName("matthews", True, "Matthews correlation of labels, -1 to 1; 0 for one answer to all", "bootstrap, BCa"),
    MetricName("pearson", True, "Pearson correlation of scores, -1 to 1", "bootstrap, percentile"),
    MetricName("spearman", True, "Spearman rank correlation of scores, -1 to 1", "bootstrap, percentile"),
    MetricName("mse", False, "mean squared error of scores", "bootstrap, studentised"),
    MetricName("loss", False, "mean of the loss that training minimises", "bootstrap, studentised"),
)  # fmt: skip

METRICS: Mapping[str, MetricName] = {row.name: row for row in _ROWS}
"""Built-in metrics by name."""


def metric_value(name: str, value: float, interval: tuple[float, float] | None, n: int) -> MetricValue:
    """A value of a built-in metric, with the direction that the table gives it.

    Args:
        name: a key of `METRICS`.
        value: finite.
        interval: low and high, or None where none can be given.
        n: examples it was computed from.
    """
    low, high = interval if interval is not None else (None, None)
    return MetricValue(float(value), low, high, n, higher_is_better=METRICS[name].higher_is_better)
