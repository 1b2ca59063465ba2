"""Lines of RUN/history.jsonl and RUN/predictions/SPLIT.jsonl."""

from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field

from bertctl.run_documents.document_base import (
    Count,
    Document,
    Integer,
    Number,
    OrAbsent,
    PositiveCount,
    Sometimes,
)

Probability = Annotated[float, Field(ge=0, le=1.000001)]


class HistoryLine(Document):
    """What was measured at a step.

    Of training it is every training.log_every steps, and of an evaluation it is under SPLIT_METRIC.
    """

    __pydantic_extra__: dict[str, Number]

    published: ClassVar = "history"
    model_config = ConfigDict(title="A line of RUN/history.jsonl")

    step: Count
    """The optimizer step; 0 before the first one, where model.head_start is probe."""

    samples: OrAbsent[list[str]] = None
    """Of pretraining: the same masked texts at each evaluation, as [word: what the model says]."""


class PredictionLine(Document):
    """The answer to one example.

    Its texts stand under the names of their columns (left out with --no-text), and so do the
    columns that evaluation.slice_columns names.
    """

    published: ClassVar = "prediction"
    model_config = ConfigDict(title="A line of RUN/predictions/SPLIT.jsonl")

    id: str | Number | bool
    """The id of the row in its file, of the type that it has there (a list or an object as its
    JSON). Else the number of the row, from 0, as a text."""

    file_id: Sometimes[Any] = None
    """The id of the row in its file, where ids are blank or repeat and rows are numbered
    instead."""

    gold: Any
    """The right answer: a label, a list of labels or tags, a number, the number of a choice, or the
    texts that answer a question. Of a corpus: how many tokens of the document were masked."""

    prediction: str | Number | list[Any]
    """The answer of the model, of the same kind. Of a corpus: how many masked tokens it names
    first."""

    probabilities: OrAbsent[dict[str, Probability] | list[Probability]] = None
    """Probabilities by label (classification) or by choice (multiple choice)."""

    probability: OrAbsent[Probability] = None
    """Of the answer to a question."""

    start: Sometimes[Integer | None] = None
    """Where the answer begins in its context, in characters."""

    end: Sometimes[Integer | None] = None
    """The character after its last."""

    null_odds: OrAbsent[Number] = None
    """Score of no answer less that of the best answer."""

    n_best: OrAbsent[list[dict[str, Any]]] = None
    """The best answers to a question."""

    masked_loss: OrAbsent[Number] = None
    """Sum of the losses of a document's masked tokens."""

    pairs: OrAbsent[Count] = None
    """Windows of a document with two parts."""

    pairs_right: OrAbsent[Count] = None
    """How many of them the model tells to follow or not."""

    gold_match: OrAbsent[bool] = None
    """Whether the two texts belong together."""

    match: OrAbsent[bool] = None
    """Whether the cosine says that they do."""

    ranks: OrAbsent[list[PositiveCount]] = None
    """Ranks of the right texts, at most the best 100."""

    relevant: OrAbsent[PositiveCount] = None
    """How many right texts there are."""

    similarity: OrAbsent[Number] = None
    """Cosine of the right text that is most alike."""

    entities: OrAbsent[list[dict[str, Any]]] = None
    """The entities of a sentence."""

    loss: Number = 0.0

    cluster: OrAbsent[Integer] = None
    """Number of the group that it hangs together with, where examples do."""

    tokens: Count = 0
    """Tokens read, special tokens included."""

    truncated: bool = False
    """Whether the example lost tokens."""

    windows: OrAbsent[Count] = None
    """Windows that the example is read in, where some of the split have several."""
