"""RUN/performance.json."""

from typing import ClassVar

from pydantic import ConfigDict

from bertctl.run_documents.document_base import (
    Count,
    Document,
    Integer,
    Number,
    OrAbsent,
    SchemaNumber,
)


class TimeLimitUse(Document):
    """What a run with a time limit took of it."""

    seconds: OrAbsent[Number] = None

    used_seconds: OrAbsent[Number] = None
    """Until the results were written."""

    whole_seconds: OrAbsent[Number] = None
    """Estimate for the whole run."""

    plan_changes: OrAbsent[list[list[Integer]]] = None
    """Pairs: after which step the number of steps was changed, and to how many."""


class PerformanceDocument(Document):
    """What a run took. Unlike metrics.json it is another one each time."""

    published: ClassVar = "performance"
    model_config = ConfigDict(title="RUN/performance.json")

    schema_number: SchemaNumber = 1

    compute: OrAbsent[str] = None
    """Device, precision and threads, and why these."""

    seconds: dict[str, Number]
    """By phase: read, load, encode, head_start, train, evaluate, ..."""

    examples_per_second: Number = 0.0

    tokens_per_second: OrAbsent[Number] = None

    padding_share: OrAbsent[Number] = None
    """Share of the tokens that were computed and are padding."""

    peak_memory_bytes: Count = 0

    estimated_memory_bytes: OrAbsent[Count] = None

    stopped_early: OrAbsent[bool] = None

    processes: OrAbsent[Count] = None

    skipped_steps: OrAbsent[Count] = None

    time_limit: OrAbsent[TimeLimitUse] = None
    """With training.time_limit: the limit, what was used of it, and how the number of steps was
    planned."""
