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
    MetricName("accuracy", True, "share of examples answered exactly right (all labels, if several); of words, where "
        "words are tagged", "Wilson; of words: bootstrap of sentences, BCa"),
    MetricName(
        "f1", True, "harmonic mean of precision and recall: of the positive label of two, else the mean over labels "
        "(macro); with several labels for an example, over all decisions (micro); of questions, the mean of the F1 of "
        "each answer's words", "bootstrap, BCa"
    ),
    MetricName("f1_macro", True, "several labels for an example: mean of the labels' F1", "bootstrap, BCa"),
    MetricName("matthews", True, "Matthews correlation of labels, -1 to 1; 0 for one answer to all", "bootstrap, BCa"),
    MetricName("entity_precision", True, "share of the entities answered that are right in type, first and last "
        "word, as conlleval counts them", "bootstrap of sentences, BCa"),
    MetricName("entity_recall", True, "share of the entities there that are answered", "bootstrap of sentences, BCa"),
    MetricName("entity_f1", True, "harmonic mean of entity_precision and entity_recall", "bootstrap of sentences, BCa"),
    MetricName("pearson", True, "Pearson correlation of scores, -1 to 1", "bootstrap, percentile"),
    MetricName("spearman", True, "Spearman rank correlation of scores, -1 to 1", "bootstrap, percentile"),
    MetricName("mse", False, "mean squared error of scores", "bootstrap, studentised"),
    MetricName("exact_match", True, "share of questions whose answer equals a gold one, normalised as SQuAD's scorer "
        "does", "Wilson"),
    MetricName("has_answer_exact", True, "exact_match of the questions that have an answer", "Wilson"),
    MetricName("has_answer_f1", True, "f1 of the questions that have an answer", "bootstrap, BCa"),
    MetricName("no_answer_exact", True, "share of the unanswerable questions left without an answer", "Wilson"),
    MetricName("no_answer_f1", True, "the same: an unanswerable question is answered rightly or not", "bootstrap, BCa"),
    MetricName("best_exact", True, "exact_match with the threshold that is best for these very questions", "none"),
    MetricName("best_exact_thresh", True, "that threshold of the null odds", "none"),
    MetricName("best_f1", True, "f1 with the threshold that is best for these very questions", "none"),
    MetricName("best_f1_thresh", True, "that threshold of the null odds", "none"),
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
