"""What metrics.json has of few-shot training."""

from bertctl.run_documents.document_base import (
    Count,
    Document,
    Integer,
    Number,
    OrAbsent,
    PositiveCount,
)


class FewShotScores(Document):
    """The primary metric with few-shot training and with the frozen encoder."""

    few_shot: Number

    frozen: Number


class FewShotDraw(Document):
    """The scores of one draw of training rows."""

    seed: Integer
    """Seed of the draw."""

    few_shot: Number

    frozen: Number


class PairedDifference(Document):
    """A difference with its interval and p value."""

    value: Number

    low: Number
    """Lower end of the 95 % interval."""

    high: Number
    """Upper end."""

    p: Number
    """Two-sided p value of no difference."""

    n: Count
    """Number of examples, or of draws."""

    method: str

    clusters: OrAbsent[PositiveCount] = None

    paired: OrAbsent[bool] = None

    examples_changed: Integer | None = None
    """Examples that the two answer differently."""


class FewShotEntry(Document):
    """Few-shot training beside the frozen encoder."""

    rows: OrAbsent[Count] = None
    """Training rows of a draw."""

    draws: list[FewShotDraw]

    mean: FewShotScores

    deviation: FewShotScores | None = None
    """Standard deviation over the draws; null with one draw."""

    difference: PairedDifference

    verdict: str

    sentence: str
    """The verdict with its numbers, for people."""
