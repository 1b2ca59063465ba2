"""INDEX/index.json."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, WithJsonSchema

from bertctl.run_documents.document_base import (
    Count,
    Document,
    Integer,
    OrAbsent,
    PositiveCount,
    SchemaNumber,
    Sometimes,
)

Pooling = Literal["cls", "mean", "max", "mean-max", "pooler", "model"]
Dtype = Literal["float32", "float16", "int8"]
Similarity = Literal["cosine", "dot", "euclidean", "manhattan"]

_Share = Annotated[
    float,
    Field(ge=0, le=1),
    WithJsonSchema({"type": "number", "minimum": 0, "maximum": 1}),
]


class Reading(Document):
    """How rows are read."""

    fields: dict[str, Any]
    """Recipe fields such as data.text_column, by name."""

    guessed: list[str]
    """Those that were guessed: they count where another file has such columns."""

    input_format: str | None
    """As typed; it counts for stdin."""


class IndexSource(Document):
    """A file or a data set in an index."""

    source: str

    rows: Count


class IndexCorpus(Document):
    """What was read last."""

    source: str

    rows: Count
    """Its rows that are in the index."""

    texts_sha256: str
    """Hash over their texts."""


class Recall(Document):
    """How many of the nearest rows are found with the numbers as they are kept."""

    at: Integer

    value: _Share

    queries: Integer

    rows: Integer
    """Among which each query looked."""


class IndexDocument(Document):
    """What an index of texts holds, and which model made it: written by `bertctl index`."""

    published: ClassVar = "index"
    model_config = ConfigDict(title="INDEX/index.json")

    corpus: IndexCorpus
    """What was read last."""

    model: str
    """As it was named; a folder by its whole path."""

    model_hash: str
    """SHA-256 over its weights, config and tokenizer, and what its folder says of vectors and
    prompts."""

    layer: str

    pooling: Pooling

    max_length: PositiveCount
    """Tokens that are read of a text, special ones included."""

    size: PositiveCount
    """Numbers of a vector."""

    long_text: Sometimes[dict[str, Any] | None] = None
    """What is read of longer texts, in the recipe's names; null where they are cut."""

    similarity: OrAbsent[Similarity] = None
    """Measure by which its texts are searched; without it the cosine. For others vectors keep their
    length."""

    reading: OrAbsent[Reading] = None
    """How its first file was read; files that are added are read alike."""

    rows: Count
    """Rows that are whole."""

    vectors: Count
    """The same number, of vectors.npy."""

    bytes: Count
    """Of rows.jsonl that are whole."""

    offsets_sha256: OrAbsent[str] = None
    """Hash of where each row begins in rows.jsonl, as offsets.npy has it; absent from older
    indexes."""

    schema_number: SchemaNumber
    """Version of this layout."""

    dtype: Dtype
    """Of the numbers in vectors.npy."""

    complete: bool
    """Whether all of it is in the index."""

    sources: Sometimes[list[IndexSource]] = Field(default_factory=list)
    """Files and data sets that its rows are of, in their order."""

    recall: OrAbsent[Recall] = None
    """Share of the nearest rows in float32 that are found with the numbers as they are kept."""
