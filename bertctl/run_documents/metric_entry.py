"""A metric with its interval, as documents have it."""

from bertctl.run_documents.document_base import (
    ClosedDocument,
    Count,
    Number,
    OrAbsent,
    PositiveCount,
)


class MetricEntry(ClosedDocument):
    """A metric of a split, with its interval."""

    value: Number | None
    """A fraction for scores, a plain number for losses; null where the metric is undefined, such as
    a correlation with one answer to all."""

    low: Number | None = None
    """Lower end of the 95 % interval."""

    high: Number | None = None
    """Upper end of the 95 % interval."""

    n: Count = 0
    """Number of examples."""

    higher_is_better: bool = True

    clusters: OrAbsent[PositiveCount] = None
    """Number of groups of examples that hang together (documents, articles, premises,
    data.group_column), where they do: intervals and tests draw these."""
