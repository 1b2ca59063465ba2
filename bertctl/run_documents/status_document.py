"""RUN/status.json."""

from typing import ClassVar, Literal

from pydantic import ConfigDict

from bertctl.run_documents.document_base import (
    ClosedDocument,
    Count,
    Integer,
    OrAbsent,
    SchemaNumber,
)

State = Literal["running", "done", "failed", "interrupted"]


class StatusDocument(ClosedDocument):
    """Whether a run is still going, and how it ended."""

    published: ClassVar = "status"
    model_config = ConfigDict(title="RUN/status.json")

    schema_number: SchemaNumber = 1

    state: State

    step: Count = 0
    """The last optimizer step."""

    pid: Integer = 0
    """Process that wrote the file."""

    host: str = ""
    """Machine that wrote the file."""

    message: OrAbsent[str] = None
    """A sentence for people."""

    reason: OrAbsent[str] = None
    """Why a run failed (diverged, error), or how it ended other than well (collapsed: the same
    answer to everything)."""

    @property
    def is_complete(self) -> bool:
        """Whether the file has all that every version writes, so that it is no other program's."""
        return {"schema_number", "state", "step", "pid", "host"} <= self.model_fields_set
