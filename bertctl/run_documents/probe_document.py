"""RUN/probe.json."""

from typing import Any, ClassVar, Literal

from pydantic import ConfigDict

from bertctl.run_documents.document_base import Document, Number, SchemaNumber, Sometimes

Pooling = Literal["cls", "mean", "max", "mean-max", "pooler", "first", "model"]
WindowPooling = Literal["mean", "max", "first", "logits"]


class ProbeDocument(Document):
    """What a linear probe reads of which encoder, and what its outputs are called."""

    published: ClassVar = "probe"
    model_config = ConfigDict(title="RUN/probe.json")

    schema_number: SchemaNumber

    encoder: str

    encoder_hash: str

    layer: str

    pooling: Pooling

    special_tokens: bool

    normalize: bool

    classifier: str

    strength: Number

    windows: Sometimes[WindowPooling] = "mean"
    """How the vectors of a long text's windows become one (`model.window_pooling`)."""

    head: dict[str, Any]
    """The outputs, as a fine-tuned model's config.json has them (num_labels, id2label, ...)."""
