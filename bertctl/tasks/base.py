"""The base class of tasks.

One object for each task type turns columns into numbers and numbers into answers.

Letters: N rows of a split, U windows and P predictions of it B windows in a batch, T tokens, C
outputs of the head. The loop, inference and the command line know tasks only through this.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, Self, TextIO, TypeVar

from bertctl.arrays import Array, Floats32, Ints, as_array
from bertctl.data.readers import Reader, TextReader
from bertctl.runtime.batching import Padding
from bertctl.runtime.seeding import WindowRandom
from bertctl.tasks.answers import Answers
from bertctl.tasks.batches import ArrayBatch, Batch
from bertctl.tasks.targets import Answered, Target, text_parts

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from torch import Tensor

    from bertctl.config.recipe_sections import TrainingSection
    from bertctl.config.schema import Recipe
    from bertctl.data.rows import Rows


Outputs = Mapping[str, Array]
"""What a forward pass keeps of a split: name -> (P, ...) array, one entry per prediction."""


@dataclass(frozen=True)
class AnswerFormat:
    """A layout of answers besides JSON Lines and CSV.

    Examples are CoNLL columns and the official SQuAD files.

    Attributes:
        write: Writes the answers (the dictionaries that `predict` makes, `id` first) as text.
        extra: Files beside the main one, by suffix such as `.nbest.json`; they need `-o FILE`.
        reads: Further columns of the rows that it writes, where they have them.
        to_file: Whether it can't be written to a terminal or a pipe.
        by_id: Whether answers are written by their ids, so that no two rows may have the same.
    """

    write: Callable[[Iterable[dict[str, Any]], TextIO], None]
    extra: Mapping[str, Callable[[Iterable[dict[str, Any]], TextIO], None]] = field(
        default_factory=dict
    )
    reads: tuple[str, ...] = ()
    to_file: bool = False
    by_id: bool = False


@dataclass(frozen=True)
class TruncationMessage:
    """What is cut off an example that is too long, and what to do about it.

    `{max_length}` is filled in.

    Attributes:
        what: Follows "12 of 100 examples (12.0 %)".
        remedy: Which setting keeps it.
    """

    what: str = "are longer than {max_length} tokens"
    remedy: str = "a larger `model.max_length=` keeps them"


@dataclass(frozen=True)
class ReadingNote:
    """Something that a person should know of how a split is read.

    Attributes:
        text: What it is.
        is_warning: Whether answers suffer from it.
    """

    text: str
    is_warning: bool = False


def label_fields(names: Sequence[str], problem_type: str) -> dict[str, Any]:
    """Returns the fields of a model's config about its outputs, by name."""
    return {
        "num_labels": len(names),
        "id2label": dict(enumerate(names)),
        "label2id": {name: number for number, name in enumerate(names)},
        "problem_type": problem_type,
    }


def alike_labels(usual: str, variants: Sequence[str], counts: Mapping[str, int]) -> str:
    """Returns a warning of labels that differ from the usual one in case or spacing alone.

    Args:
        usual: The most frequent spelling.
        variants: Its other spellings.
        counts: How many rows have each label.
    """
    listed = ", ".join(f"{name!r} ({counts[name]:,})" for name in variants)
    return (
        f"the labels {listed} and {usual!r} ({counts[usual]:,}) differ only in case or spacing, "
        "and are learned as different labels; write them alike if they are one"
    )


class Features(Protocol):
    """A split as the model reads it: numbers, no padding yet.

    A window is what the model reads in one pass: a row, a part of a long row, or all the choices of
    a row. A prediction is what it answers: a row, a word, or a choice.
    """

    def __len__(self) -> int:
        """Returns U."""

    @property
    def lengths(self) -> Ints:
        """(U,) tokens of each window, for batches of like lengths."""

    @property
    def rows(self) -> Ints:
        """(U,) row that each window belongs to, ascending."""

    @property
    def weights(self) -> Ints:
        """(U,) how many things each window's loss is a sum over: 1, or its labelled words."""

    @property
    def num_predictions(self) -> int:
        """How many predictions there are."""

    def prediction_indices(self, indices: Ints) -> Ints:
        """Returns the numbers of the predictions that these windows make.

        The order is that of `Task.collect_outputs`.
        """

    @property
    def tokens(self) -> Ints:
        """(N,) tokens read of each row; what several windows share counts once."""

    @property
    def truncated_tokens(self) -> Ints:
        """(N,) tokens of each row that were cut off."""

    @property
    def unknown(self) -> Ints:
        """(N,) unknown tokens of each row."""

    prediction_noun: ClassVar[str]
    """What one prediction is about, for people."""

    def prediction_labels(self) -> Array | None:
        """Returns (P,) or (P, C) labels of the predictions, or None."""

    def texts_to_keep_apart(self) -> Ints | None:
        """Returns (U, K) numbers of texts of which none should stand twice in a batch, or None."""

    @property
    def splits_long_texts(self) -> bool:
        """Whether one long text is read in several passes that share a loss."""

    def windows_of_rows(self) -> Ints:
        """Returns (N,) windows that each row is read in."""

    def release_memory(self) -> None:
        """Gives back memory of token ids that were read from a disk; they can be read again."""

    def tokens_in(self, indices: Ints) -> int:
        """Returns how many tokens are read for these windows."""

    def collate(self, indices: Ints, padding: Padding) -> Batch:
        """Returns some windows as padded tensors."""


class ConvertibleFeatures(Features, Protocol):
    """A split that converted models read as well, without torch."""

    def arrays(self, indices: Ints, padding: Padding) -> ArrayBatch:
        """Returns some windows as padded arrays."""


class Task(ABC):
    """One task, fitted to one data set: it knows its label names.

    Class attributes:
        name: Name of the task in a recipe, such as `text-classification`.
        auto_class: The Auto class of transformers that has the head.
        columns: Canonical columns it needs; `label` only for training and scoring.
        answer_type: Class of the task's `Answers`; the property `answers` is an object of it that
            knows the labels of the fitted task.
        reader: Reader of its files, where `data.readers.READERS` names no other.
        formats: Layouts of answers that are this task's own.
        truncation: Message about examples of which something was cut off.
        baselines: Simple models that a run of this task is scored beside, by their names in
            metrics.json.
        compares_vectors: Whether similarities are ranked; a trained model is then scored in fp32 on
            a CPU.
    """

    name: ClassVar[str]
    auto_class: ClassVar[str]
    columns: ClassVar[tuple[str, ...]]
    answer_type: ClassVar[type[Answers]]
    reader: ClassVar[Reader] = TextReader(stratify=True)
    formats: ClassVar[Mapping[str, AnswerFormat]] = {}
    truncation: ClassVar[TruncationMessage] = TruncationMessage()
    baselines: ClassVar[tuple[str, ...]] = ()
    compares_vectors: ClassVar[bool] = False

    @property
    def answers(self) -> Answers:
        """What the answers mean.

        Metrics, the constant answer, right or wrong, and how a line is shown.
        """
        return self.answer_type()

    @property
    def label_names(self) -> tuple[str, ...]:
        """Names of the labels, in the order of the head's outputs.

        It is empty if answers are no labels.
        """
        return ()

    @property
    def explained_labels(self) -> tuple[str, ...]:
        """What an explanation may be asked for: the labels, and what they are parts of."""
        return self.label_names

    def reading_notes(self, features: Any, recipe: "Recipe") -> Iterator[ReadingNote]:
        """Yields what a person should know of how a split is read; here nothing."""
        yield from ()

    @property
    @abstractmethod
    def primary_metric(self) -> str:
        """Name of the metric that picks the best weights."""

    @classmethod
    @abstractmethod
    def from_data(cls, recipe: "Recipe", train: "Rows", labels: Sequence[str] | None) -> Self:
        """Learns the label names from the training rows, which are still to be checked.

        Args:
            recipe: The recipe, which may name labels.
            train: The training rows.
            labels: Names in the data set's official order, or None.

        Raises:
            DataError: Labels that don't fit the task, each with file and line.
        """

    @classmethod
    @abstractmethod
    def from_model(cls, recipe: "Recipe", model_config: Mapping[str, Any]) -> Self:
        """Returns the task of a trained model: label names from `id2label` of its config.json."""

    @abstractmethod
    def head(self) -> dict[str, Any]:
        """Returns fields of the model's config that the head needs.

        They are num_labels, id2label, label2id and problem_type.
        """

    @abstractmethod
    def check(self, rows: "Rows") -> None:
        """Refuses labels that this task doesn't know.

        Raises:
            DataError: There is such a label; the message has file, line, and what fits.
        """

    @abstractmethod
    def encode(self, rows: "Rows", tokenizer: "Tokenizer", *, max_length: int) -> Features:
        """Returns columns as numbers; labels too where the rows have them."""

    def scored(self, features: Any) -> Features:
        """Returns the windows that are read for scoring and predicting.

        Here they are the same ones as in training.
        """
        windows: Features = features
        return windows

    @abstractmethod
    def objective(
        self, padding: Padding, training: "TrainingSection | None" = None, train: Any = None
    ) -> "TaskObjective":
        """Returns what fine-tuning minimises; without `training` the loss that evaluation reports.

        Args:
            padding: How batches are filled up.
            training: Section of the recipe with class weights and label smoothing; None for
                scoring.
            train: The training rows, encoded, which balanced weights are counted on.

        Raises:
            UsageError: Weights that are not one per label.
        """

    def array_outputs(self, outputs: Any) -> Array:
        """Returns the numbers of a batch that answers are made of, such as logits.

        The objective's `forward` reads the same ones of a network of torch.

        Args:
            outputs: What a converted model returned for a batch: arrays by attribute.
        """
        logits: Array = outputs.logits
        return logits

    def array_losses(self, outputs: Array, batch: Any) -> Floats32 | None:
        """Returns the (B,) losses of labelled windows, in numpy.

        The objective of scoring reports the same ones. It is None, as here, where a loss belongs to
        no single window.
        """
        return None

    def collect_outputs(self, outputs: Any, batch: Any, features: Any, indices: Ints) -> Outputs:
        """Returns what decoding needs of a batch.

        They are arrays with an entry per `features.prediction_indices(indices)`.
        """
        return {"logits": as_array(outputs)}

    def samples(self, outputs: Outputs, features: Any, tokenizer: "Tokenizer") -> list[str]:
        """Returns a few answers to show during training.

        It is empty here: predictions are written at the end.
        """
        return []

    def tune(self, outputs: Outputs, features: Any, rows: "Rows") -> dict[str, Any]:
        """Returns what is chosen on labelled validation rows after training.

        A threshold is such a choice.
        """
        return {}

    def with_decision(self, decision: Mapping[str, Any]) -> Self:
        """Returns the same task, deciding as `tune` chose; what it doesn't know it leaves alone."""
        return self

    def row_losses(self, outputs: Outputs, features: Any) -> Floats32 | None:
        """Returns (N,) losses of the rows, for a task whose loss compares the rows of a split.

        It is None, as here, for a task whose windows each have a loss of their own.
        """
        return None

    def as_teacher(self) -> "Task":
        """Returns the task whose outputs a student learns.

        Its output `logits` has an entry for each answer of a teacher. Here it is the task itself,
        and a teacher gives one answer for each prediction.
        """
        return self

    @abstractmethod
    def decode(self, outputs: Outputs, features: Any, rows: "Rows") -> list[dict[str, Any]]:
        """Returns one answer per row: `prediction`, and `probabilities` where there are any."""

    def targets(self, answered: Answered, label: str | None) -> list[Target]:
        """Returns the logits that an explanation attributes to the input, row by row.

        Here it is the largest logit of each row.

        Args:
            answered: Rows that were answered.
            label: Label to explain instead of the answered one; only where the task has
                `labels`.
        """
        largest_outputs = answered.outputs["logits"].argmax(axis=1).tolist()
        targets = []
        for row, output in enumerate(largest_outputs):
            target = Target(
                row,
                window=row,
                places=((output,),),  # index of the logit in the window's outputs
                named={},
                parts=text_parts(answered.rows, row, self.answers.texts),
            )
            targets.append(target)
        return targets

    def lines(self, outputs: Outputs, features: Any, rows: "Rows") -> Sequence[dict[str, Any]]:
        """Returns one answer per labelled row with its gold answer.

        Metrics are computed from these lines.
        """
        return [
            {"gold": self.gold(rows, i), **answer}
            for i, answer in enumerate(self.decode(outputs, features, rows))
        ]

    @property
    def line_bytes(self) -> int:
        """Bytes of memory that scoring takes for each row.

        They are those of its prediction line, and of what metrics hold of it.
        """
        return 2_500

    def constant_answer(self, train: "Rows") -> Any:
        """Returns the answer that ignores the input, chosen on the training rows.

        It is a value of JSON.
        """
        return self.answers.baseline_answer([self.gold(train, i) for i in range(len(train))])

    def baseline(self, constant: Any, rows: "Rows") -> dict[str, float]:
        """Returns the metrics of the answer that ignores the input, scored on labelled rows."""
        lines = [
            {"gold": self.gold(rows, i), **rows.fields(i, self.answers.columns)}
            for i in range(len(rows))
        ]
        return self.answers.baseline(constant, lines)

    @abstractmethod
    def describe(self, rows: "Rows") -> str:
        """Returns the label counts (or the range of the scores) of a split, in a line."""

    def doubts(self, train: "Rows") -> list[str]:
        """Returns warnings about the labels of training rows that are learned as they are."""
        return []

    @abstractmethod
    def gold(self, rows: "Rows", index: int) -> Any:
        """Returns the label of a row, as prediction files show it."""


FeaturesT = TypeVar("FeaturesT", bound=Features)
BatchT = TypeVar("BatchT", bound=Batch)
OutputsT = TypeVar("OutputsT")

Network = Callable[..., Any]
"""Called with a batch's inputs by name; returns what the model's forward returns."""


class Objective(ABC, Generic[FeaturesT, BatchT, OutputsT]):
    """What training minimises: the sum of its named losses.

    Its parameters are the features that it makes batches of, its batches, and the outputs that its
    losses are computed from. `forward`, `counts` and the losses receive what `batch` returned.
    """

    spans_batch: ClassVar[bool] = False
    """Whether a loss looks across the batch, as with negatives from the same batch. `losses` then
    gets the outputs of the whole global batch."""

    is_log_likelihood: ClassVar[bool] = True
    """Whether a loss is a mean of log likelihoods, so that a single large one tells that training
    has diverged."""

    @abstractmethod
    def batch(self, features: FeaturesT, indices: Ints, rng: WindowRandom) -> BatchT:
        """Returns some windows as padded tensors.

        Args:
            features: Features of a split.
            indices: (B,) which of its windows.
            rng: What is drawn for a window in this step is the same, whatever batch it is in.
        """

    def forward(self, network: Network, batch: BatchT) -> OutputsT:
        """Returns the outputs that the losses are computed from.

        If the loss compares the windows of a batch (`spans_batch`), it must be a tensor with an
        entry per window.

        Args:
            network: The network, called with the batch's inputs by name.
            batch: A batch on the network's device.
        """
        outputs: OutputsT = network(**batch.inputs)
        return outputs

    @abstractmethod
    def counts(self, batch: BatchT) -> Mapping[str, float]:
        """Returns by name how many things each loss of this batch is a sum over."""

    @abstractmethod
    def losses(self, outputs: OutputsT, batch: BatchT) -> "dict[str, Tensor]":
        """Returns each loss by name, summed over the things that `counts` counts."""

    def window_losses(self, outputs: OutputsT, batch: BatchT) -> "Tensor | None":
        """Returns the (B,) losses that evaluation reports, one per window.

        A window's loss is a sum over its labelled things, such as words: `Features.weights` has
        their number. The result is None, as here, if a loss belongs to no single window.
        """
        return None


TaskObjective = Objective[Any, Any, Any]
"""Objective of some task, for code that only passes its batches and outputs on."""
