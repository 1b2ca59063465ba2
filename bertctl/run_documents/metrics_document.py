"""RUN/metrics.json."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field

from bertctl.run_documents.document_base import (
    ClosedDocument,
    Count,
    Document,
    Integer,
    Number,
    OrAbsent,
    PositiveCount,
    SchemaNumber,
    Sometimes,
)
from bertctl.run_documents.few_shot_entry import FewShotEntry
from bertctl.run_documents.metric_entry import MetricEntry
from bertctl.run_documents.probe_entry import ProbeEntry

BaselineName = Literal["frozen", "tfidf", "word-tags"]
ChoiceName = Literal["epoch", "threshold", "temperature", "layer", "C", "setting"]


class PrimaryMetric(ClosedDocument):
    """The metric and the split that a run is judged by."""

    split: str

    name: str


class SplitCounts(ClosedDocument):
    """What the model read of a split."""

    examples: Count

    truncated: Count = 0
    """Examples that lost tokens."""

    lost_tokens: Count = 0

    unknown_tokens: Count = 0

    tokens: Count = 0
    """Tokens read, special tokens included."""

    windowed: OrAbsent[PositiveCount] = None
    """Examples read in several windows."""

    sha256: OrAbsent[str] = None
    """Hash of the rows."""

    max_eval_rows: OrAbsent[PositiveCount] = None
    """Most rows of the sample that was scored."""


class DecisionUsed(ClosedDocument):
    """The decision that a split was scored with; an empty one is the likelier label."""

    temperature: OrAbsent[Number] = None

    threshold: OrAbsent[Number] = None

    null_threshold: OrAbsent[Number] = None

    cosine_threshold: OrAbsent[Number] = None


class Choice(ClosedDocument):
    """On which split something was chosen, and among how many."""

    split: str

    of: Sometimes[PositiveCount] = 1


class Interval(Document):
    """Both ends of an interval."""

    low: Number

    high: Number


class BaselineDifference(ClosedDocument):
    """The paired difference of a run and a baseline on a split."""

    baseline: Number
    """The baseline's metric."""

    value: Number
    """The run's metric minus the baseline's."""

    low: Number
    """Lower end of the 95 % interval of the paired difference."""

    high: Number
    """Upper end."""

    p: Number
    """Two-sided p value of no difference."""

    n: PositiveCount
    """Number of examples."""

    method: str

    clusters: OrAbsent[PositiveCount] = None

    paired: OrAbsent[Literal[True]] = None

    examples_changed: Integer | None
    """Examples that the two answer differently."""

    corrected: Interval
    """The interval that allows for what the split has chosen, such as the best epoch."""

    verdict: Literal["better", "unclear", "not better"]
    """better: the whole corrected interval is a gain. unclear: the value is a gain. Else not
    better."""


class BaselineEntry(ClosedDocument):
    """A simple model beside a run."""

    rows: PositiveCount = 1
    """Training rows that it was fitted to."""

    classifier: OrAbsent[Literal["logistic-regression", "ridge"]] = None

    strength: OrAbsent[Number] = None
    """C of the classifier; of ridge 1 / alpha."""

    features: OrAbsent[Count] = None
    """Words, pairs of words or characters that count."""

    words: OrAbsent[Count] = None
    """Different words of the training rows."""

    metrics: dict[str, dict[str, Number]]
    """Its metrics by split and name."""

    differences: dict[str, BaselineDifference]
    """By split: the run's primary metric minus the baseline's on the same rows."""


class ShortenedTraining(ClosedDocument):
    """How much was trained in a time limit."""

    limit: str
    """As it was given, such as 20m."""

    steps: Count

    whole_steps: PositiveCount
    """Steps of the whole run."""

    epochs: Annotated[Number, Field(ge=0)]
    """Epochs that were trained, in tenths."""

    whole_epochs: PositiveCount


class StillImprovingEntry(ClosedDocument):
    """A score that was still improving."""

    split: str

    metric: str
    """The primary metric, or loss."""

    values: list[Number]
    """At each evaluation."""

    option: str
    """Such as training.epochs=6, a field and its value."""


class AverageEntry(Document):
    """The average of the best checkpoints beside the best one."""

    steps: list[Integer]

    value: Number

    best_value: Number | None

    kept: bool


class MetricsDocument(ClosedDocument):
    """The scores of a run. Nothing in this file changes from one equal run to the next."""

    published: ClassVar = "metrics"
    model_config = ConfigDict(title="RUN/metrics.json")

    schema_number: SchemaNumber = 1

    metrics: dict[str, dict[str, MetricEntry]]
    """Every metric by split, such as validation, and by name, such as accuracy."""

    primary: PrimaryMetric
    """The metric and the split by which the best weights were chosen."""

    positive_label: OrAbsent[str] = None
    """Which of two labels f1, roc_auc and average_precision are about."""

    constant_answer: Sometimes[Any] = None
    """The best answer that ignores the input, chosen on the training rows: baseline has its
    scores."""

    baseline: Sometimes[dict[str, dict[str, Number]]] = Field(default_factory=dict)
    """The metrics of the best constant answer, by split and name."""

    data: Sometimes[dict[str, SplitCounts]] = Field(default_factory=dict)
    """What the model read of each split."""

    probe: OrAbsent[ProbeEntry] = None
    """What a probe tried: its classifier, its best choice, and a row per layer and pooling."""

    few_shot: OrAbsent[FewShotEntry] = None
    """Few-shot training beside the frozen encoder: the primary metric of each draw, and a
    verdict."""

    best_step: OrAbsent[Count] = None
    """The optimizer step whose weights were kept; 0 for those that the head started with."""

    steps: OrAbsent[Count] = None
    """The number of optimizer steps."""

    selected_on: Sometimes[dict[ChoiceName, Choice]] = Field(default_factory=dict)
    """What was chosen (epoch, threshold, temperature, layer, C, setting), on which split, and among
    how many."""

    decisions: Sometimes[dict[str, DecisionUsed]] = Field(default_factory=dict)
    """With which decision each split was scored, where any was; an empty one is the likelier
    label."""

    time_limit: OrAbsent[ShortenedTraining] = None
    """Where training.time_limit ended the run before its last step: how much was trained."""

    still_improving: OrAbsent[StillImprovingEntry] = None
    """Where the run ended while it was still improving: what improved, and the option to train
    longer."""

    average: OrAbsent[AverageEntry] = None
    """The average of the best checkpoints, with training.average_best: whether it is better and was
    kept."""

    baselines: Sometimes[dict[BaselineName, BaselineEntry]] = Field(default_factory=dict)
    """Simple models that were scored beside the run, with evaluation.baselines: frozen (a linear
    classifier on the frozen encoder), tfidf, word-tags (the most frequent tag of each word)."""
