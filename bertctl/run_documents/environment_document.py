"""RUN/environment.json."""

from typing import ClassVar

from pydantic import ConfigDict, Field

from bertctl.run_documents.document_base import (
    Count,
    Document,
    Integer,
    OrAbsent,
    SchemaNumber,
    Sometimes,
)


class EnvironmentDocument(Document):
    """Where a run was computed, and the hashes of what decides its numbers."""

    published: ClassVar = "environment"
    model_config = ConfigDict(title="RUN/environment.json")

    schema_number: SchemaNumber = 1

    bertctl: OrAbsent[str] = None

    python: OrAbsent[str] = None

    platform: OrAbsent[str] = None

    packages: Sometimes[dict[str, str]] = Field(default_factory=dict)

    device: OrAbsent[str] = None

    precision: OrAbsent[str] = None

    threads: Sometimes[Integer | None] = None

    seed: OrAbsent[Count] = None

    deterministic: OrAbsent[bool] = None

    may_differ: OrAbsent[str] = None

    recipe_hash: str = ""

    model_hash: str = ""

    data_hashes: dict[str, str] = Field(default_factory=dict)

    slice_hashes: Sometimes[dict[str, str]] = Field(default_factory=dict)
    """Hash of the columns that the metrics of each split are sliced by."""

    columns: Sometimes[dict[str, str | list[str] | None]] = Field(default_factory=dict)
    """Columns that were read, by what they were read as."""

    command: OrAbsent[str] = None
