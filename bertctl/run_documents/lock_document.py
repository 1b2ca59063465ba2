"""bertctl.lock."""

from typing import ClassVar, Literal

from pydantic import ConfigDict

from bertctl.run_documents.document_base import Count, Document, SchemaNumber


class LockedFile(Document):
    """Content of a file."""

    sha256: str

    bytes: Count


class LockedPart(Document):
    """A model or a data set."""

    kind: Literal["model", "dataset"]

    name: str
    """Repository of the hub; of what is not from there, its name in the catalog or the last word of
    its path."""

    asked: str
    """Revision that was asked for; empty where it is not from the hub."""

    revision: str
    """Commit; empty where it is not from the hub."""

    licence: str
    """As the hub states it; empty where it doesn't."""

    files: dict[str, LockedFile]
    """Content by path."""


class LockDocument(Document):
    """What commands with --locked may read, by hash: written by `bertctl fetch`."""

    published: ClassVar = "lock"
    model_config = ConfigDict(title="bertctl.lock")

    schema_number: SchemaNumber
    """Version of this layout."""

    folder: str
    """Folder beside the lock that holds the hub's files, as a cache of huggingface_hub; empty where
    they are in the hub's own cache."""

    parts: list[LockedPart]
