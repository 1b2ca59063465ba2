"""EXPORT/export.json: what a folder of `bertctl export` holds, and how it was proved.

    export.json            this document
    model.onnx             the graph with its weights in one file (OpenVINO: model.xml and
                           model.bin)
    tokenizer.json         the tokenizer as the model was used with it, truncation and padding off
    tokenizer_config.json  and its like, as the model's folder has them: for other programs
    config.json            the model's config with the label names (id2label) and problem_type
    recipe.yaml            the recipe of the run, as it ran; of a model without a run, what stands
                           for it
    metrics.json           scores of the run, whose answers the export repeats; in fewer bits its
                           own, of the compared rows
    predictions/           the answers that these scores are of
    decision.json          temperature and thresholds, where some were chosen
    modules.json, 1_Pooling/  how vectors are made, where sentence-transformers' files say it
    windows.safetensors    what makes one answer of a long text's windows, where long texts are
                           read so
    proof.safetensors      token ids of 32 windows, and what the model answered (in fewer bits:
                           what the export answered where it was made)

The graph takes `input_ids`, `attention_mask` and, where `inputs` names it, `token_type_ids`: int64
of shape (B, T), both sizes free. Every number that an answer depends on is in these files: nothing
needs torch or transformers.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict, Field

from bertctl.run_documents.document_base import (
    Count,
    Document,
    Integer,
    Number,
    OrAbsent,
    PositiveCount,
    SchemaNumber,
    Sometimes,
)

ExportFormat = Literal["onnx", "openvino"]
ExportPrecision = Literal["fp32", "fp16", "bf16", "int8"]

DOCUMENT = "export.json"
PROOF = "proof.safetensors"
WINDOWS = "windows.safetensors"

VECTOR = "sentence_embedding"
LAST_STATE = "last_hidden_state"
WINDOW_VECTORS = "window_vectors"
"""Outputs of a graph that have names of their own; see `ExportDocument.outputs`."""


class ExportedFile(Document):
    """One file of the folder."""

    bytes: Count

    sha256: str


class ExportSource(Document):
    """What was exported."""

    name: str
    """The run's folder, or the model, as it was named."""

    model_hash: str
    """SHA-256 over weights, config and tokenizer of the model that was exported."""

    recipe_hash: OrAbsent[str] = None
    """Hash of the recipe with what decides the answers; absent for a model without a run."""

    family: str
    """`model_type` of its config."""

    architecture: str
    """Class of the network in transformers."""


class ExportPadding(Document):
    """How the windows of a batch are filled up to one length."""

    id: Count
    """Token that fills up."""

    left: bool
    """Whether it stands before the text."""

    unwanted: bool
    """Whether it changes the answers, so that only windows of one length may share a batch."""


class ExportWindows(Document):
    """How the windows of a long text become one answer."""

    pooling: Literal["mean", "max", "first", "attention", "logits"]
    """As `model.window_pooling`."""

    tokens_pooling: OrAbsent[str] = None
    """Of a probe: how the tokens of a window became its vector."""

    normalize: Sometimes[bool] = False
    """Of a probe: whether the vector of the text is brought to length 1 before the last layer."""

    uncounted: Sometimes[list[Integer]] = Field(default_factory=list)
    """Of a probe: ids of special tokens that don't count where windows are weighed by their
    tokens."""


class ExportVectors(Document):
    """How `sentence_embedding` is made of the tokens of a text."""

    poolings: list[str]
    """cls, mean, max; of several, the vectors stand one after the other."""

    normalize: bool
    """Whether the vector has length 1."""

    size: PositiveCount
    """Its numbers."""

    is_layered: Sometimes[bool] = False
    """Whether linear layers follow the pooling, so that it can't be made of the tokens alone."""


class ProofShape(Document):
    """One of the shapes of batch that were compared."""

    batch: PositiveCount

    windows: Count
    """Windows that were compared in batches of this size."""

    shortest: Count
    """Tokens of the shortest one."""

    longest: Count
    """Tokens of the longest one."""

    max_difference: Number
    """Largest difference of an output from the model's."""


class NearTie(Document):
    """A row whose answer differs only because two answers are equally good."""

    id: Any

    model: Any
    """Answer of the model."""

    export: Any
    """Answer of the export."""

    difference: Number
    """Largest difference of the row's outputs."""


class ExportProof(Document):
    """How the export was compared with the model."""

    source: str
    """Split or file of the rows."""

    rows: Count

    windows: Count
    """What the model reads of them, in as many passes."""

    lengths: list[Integer]
    """Six lengths in tokens, short to long, that were compared besides."""

    tolerance: Number
    """Largest difference that was allowed."""

    max_difference: Number
    """Largest difference of an output (logits, or numbers of a vector), over all shapes."""

    flips: Count
    """Rows with another answer, near ties apart."""

    near_ties: list[NearTie]

    shapes: list[ProofShape]

    folder_windows: Count
    """Windows whose outputs travel in proof.safetensors."""

    folder_difference: Number
    """Largest difference over them, each computed alone, on the machine that exported. In fp32 from
    the model's outputs; in fewer bits from its own, which it repeats."""

    folder_tolerance: Number
    """Largest difference that is accepted when the folder is opened."""

    scale: Sometimes[Number] = 1.0
    """What differences are divided by: 1 of logits and vectors, of scores their spread."""


class MetricChange(Document):
    """A metric before and after the weights were made smaller."""

    before: Number

    before_low: OrAbsent[Number] = None

    before_high: OrAbsent[Number] = None

    after: Number

    after_low: OrAbsent[Number] = None

    after_high: OrAbsent[Number] = None

    p: OrAbsent[Number] = None
    """Of the paired test of both."""

    test: OrAbsent[str] = None
    """Its name."""


class ExportQuality(Document):
    """What smaller numbers cost, measured in one go on one machine."""

    source: str
    """Split or file of the rows."""

    rows: Count

    limits: dict[str, Number]
    """Largest drop that was allowed, by metric."""

    metrics: dict[str, MetricChange]

    flips: dict[str, Count]
    """Rows with another answer, by the label that the model gave before."""

    bytes_before: Count
    """Of the weights in fp32."""

    bytes_after: Count

    rows_per_second: dict[str, Number]
    """Of the same rows: `model` (in bertctl's own precision), `fp32` and the export's precision."""

    fp32_layers: list[str]
    """Layers that were left in fp32, the most costly first."""


class ExportMachine(Document):
    """Where it was exported."""

    cpu: str

    instructions: list[str]
    """Of those that numbers of few bits depend on: avx2, avx512f, avx512_vnni, avx_vnni, amx_int8,
    avx512_bf16, amx_bf16, i8mm, bf16."""


class ExportDocument(Document):
    """What an exported model is, written by `bertctl export`."""

    published: ClassVar = "export"
    model_config = ConfigDict(title="EXPORT/export.json")

    schema_number: SchemaNumber = 1

    bertctl: str
    """Version that wrote it."""

    name: str
    """Name of the model for people."""

    task: str
    """As `task` of a recipe; an encoder without a head is exported for sentence-embeddings."""

    format: ExportFormat

    precision: ExportPrecision

    weights: str
    """File that the runtime opens."""

    inputs: list[str]
    """Inputs of the graph."""

    outputs: list[str]
    """Outputs of the graph: logits (B, C) or for tags (B, T, C); start_logits and end_logits
    (B, T); for choices logits (B, 1), a window for each; sentence_embedding (B, D);
    last_hidden_state (B, T, H); window_vectors (B, D), or (B, T, D) of words, which the last layer
    reads."""

    labels: list[str]
    """Names of the outputs, in their order; empty where answers are no labels."""

    problem_type: OrAbsent[str] = None
    """As in config.json: single_label_classification, multi_label_classification or regression."""

    max_length: PositiveCount
    """Tokens that are read of a text, special ones included."""

    reading: dict[str, Any]
    """How longer texts are read: long_text, window_stride, window_pooling, as in the recipe."""

    padding: ExportPadding

    pairs: bool | None
    """Whether it answers pairs of texts; null where the run does not say."""

    decision: OrAbsent[dict[str, Any]] = None
    """Content of decision.json."""

    windows: OrAbsent[ExportWindows] = None

    vectors: OrAbsent[ExportVectors] = None

    source: ExportSource

    proof: ExportProof

    quality: OrAbsent[ExportQuality] = None

    versions: dict[str, str]
    """Of the packages that made the graph and ran it."""

    machine: ExportMachine

    files: dict[str, ExportedFile] = Field(default_factory=dict)
    """All other files of the folder, by path."""

    digest: str
    """SHA-256 of this document without this field, as JSON with sorted keys and no spaces."""


def digest_of(document: Mapping[str, Any]) -> str:
    """Returns the SHA-256 that export.json has of itself.

    Args:
        document: Its content; a digest in it does not count.
    """
    content = {name: value for name, value in document.items() if name != "digest"}
    text = json.dumps(
        content,
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=False,
    )
    return hashlib.sha256(text.encode()).hexdigest()
