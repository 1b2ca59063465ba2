"""What a metric is.

It is a number, its interval, how many examples it stands on, and which way is better.
"""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class MetricValue:
    """One metric of one split.

    Attributes:
        value: A fraction for scores (0 to 1, or -1 to 1), the plain number for losses.
        low: Lower end of the 95 % interval; None where none can be given.
        high: Upper end.
        n: Examples it was computed from.
        higher_is_better: Direction.
        clusters: Groups of examples that belong together, such as documents; None where each stands
            by itself.
        is_defined: Whether there is such a number, as there is no correlation with a constant.
            `value` is 0 where there is none, so that it can be compared; metrics.json has null.
    """

    value: float
    low: float | None
    high: float | None
    n: int
    higher_is_better: bool = True
    clusters: int | None = None
    is_defined: bool = True

    def as_json(self) -> dict[str, Any]:
        """Returns the layout of metrics.json."""
        fields = asdict(self)
        if not fields.pop("is_defined"):
            fields["value"] = None
        if not self.clusters:
            del fields["clusters"]
        return fields
