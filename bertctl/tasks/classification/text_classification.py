"""Sentence and sentence-pair classification (paper, section 4.1: GLUE).

An example has one label or several.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from tokenizers import Tokenizer

from bertctl.arrays import Array, Floats32
from bertctl.config.losses import CLASS_LOSSES
from bertctl.config.recipe_sections import TrainingSection
from bertctl.config.schema import Recipe
from bertctl.data.label_cells import (
    joined_labels,
    label_name,
    oddly_written_numbers,
    spelt_alike,
    words_for_nothing,
)
from bertctl.data.packed_columns import CodedValues, is_many
from bertctl.data.rows import Rows
from bertctl.data.table import require_label
from bertctl.errors import DataError, UnknownLabelError
from bertctl.modeling.output_names import output_names
from bertctl.runtime.batching import Padding
from bertctl.tasks.answers import Answers
from bertctl.tasks.array_losses import binary_cross_entropies, cross_entropies
from bertctl.tasks.base import Outputs, Task, TaskObjective, alike_labels, label_fields
from bertctl.tasks.batches import present
from bertctl.tasks.classification.class_answers import (
    ClassAnswers,
    LabelSetAnswers,
    OneLabelAnswers,
)
from bertctl.tasks.classification.class_lines import ClassLines
from bertctl.tasks.classification.class_weights import class_weights
from bertctl.tasks.classification.positive_label import positive_label
from bertctl.tasks.probabilities import softmax
from bertctl.tasks.sequences import SequenceFeatures, encode_rows, long_text_of
from bertctl.tasks.targets import Answered, Target, text_parts
from bertctl.tokenization.long_texts import HEAD, LongText
from bertctl.words import as_number, did_you_mean, label_order, listing


@dataclass(frozen=True)
class TextClassification(Task):
    """One of C labels for each text or pair; or, multi-label, any number of them.

    Attributes:
        labels: Names, in the order of the head's outputs.
        multi_label: Whether an example can have several labels or none.
        separator: What separates several labels in one field.
        threshold: Probability from which a label counts (multi-label).
        temperature: What logits are divided by before they become probabilities.
        positive: The one of two labels that `f1` is about; None where there are not two.
        positive_threshold: With two labels, the probability from which the positive one is the
            answer; the likelier one is where this is None.
        long: What is read of a text that is too long.
    """

    labels: tuple[str, ...]
    multi_label: bool
    separator: str | None
    threshold: float
    temperature: float = 1.0
    positive: str | None = None
    positive_threshold: float | None = None
    long: LongText = HEAD

    name: ClassVar[str] = "text-classification"
    auto_class: ClassVar[str] = "AutoModelForSequenceClassification"
    columns: ClassVar[tuple[str, ...]] = ("text",)
    answer_type: ClassVar[type[Answers]] = ClassAnswers
    baselines: ClassVar[tuple[str, ...]] = ("frozen", "tfidf")

    @property
    def answers(self) -> ClassAnswers:
        """What the labels mean."""
        if self.multi_label:
            return LabelSetAnswers(self.labels)
        return OneLabelAnswers(self.labels, self.positive)

    @classmethod
    def of(cls, task: Task) -> "TextClassification | None":
        """Returns the task if it is text classification, and None if it is another one.

        Callers use it to calibrate probabilities, or to choose the threshold of a label.
        """
        return task if isinstance(task, cls) else None

    @property
    def label_names(self) -> tuple[str, ...]:
        """Names of the labels, in the order of the head's outputs."""
        return self.labels

    @property
    def primary_metric(self) -> str:
        """Accuracy; micro F1 where several labels are possible."""
        if self.multi_label:
            return "f1_micro"
        return "accuracy"

    @classmethod
    def from_data(
        cls, recipe: Recipe, train: Rows, labels: Sequence[str] | None
    ) -> "TextClassification":
        """Learns the label names.

        They are those of the recipe, else the data set's official order, else sorted.

        Raises:
            DataError: Missing or float labels, one label only, too many labels for so few rows.
        """
        settings = recipe.text_classification
        multi_label = settings.multi_label
        if multi_label is None:
            has_lists = any(isinstance(label, list | tuple) for label in train.columns["label"])
            multi_label = has_lists or settings.label_separator is not None
        known_labels = tuple(settings.labels or labels or ())
        task = cls(known_labels, multi_label, settings.label_separator, settings.threshold)
        counts = task._label_counts(train)
        if not (known_labels or multi_label):
            _refuse_odd_numbers(counts, train)
        names = known_labels or tuple(sorted(counts, key=label_order))
        if len(set(names)) != len(names):
            raise DataError(f"the label list names a label twice: {listing(names)}")
        least_labels = 1 if multi_label else 2  # one label of several can be there or not
        if len(counts) < least_labels:
            raise _too_few_labels(counts, train)
        # Texts and numbers that were taken for labels hardly recur. Real labels may be as rare in
        # few rows, so up to 50 are accepted.
        hardly_recur = len(names) > max(50, counts.total() // 2)
        if hardly_recur and not known_labels:
            message = f"{train.source}: {len(names)} different labels in {len(train)} rows"
            raise DataError(
                message,
                remedy="Is `data.label_column=` the right one? For numbers use the recipe "
                "text-regression.",
            )
        positive = positive_label(names, multi_label, recipe.evaluation.positive_label)
        return replace(
            task,
            labels=names,
            positive=positive,
            long=long_text_of(recipe, train),
        )

    @classmethod
    def from_model(cls, recipe: Recipe, model_config: Mapping[str, Any]) -> "TextClassification":
        """Returns the task of a trained model, with labels and kind as its config.json has them."""
        settings = recipe.text_classification
        labels = output_names(model_config)
        multi_label = model_config.get("problem_type") == "multi_label_classification"
        positive = None
        if len(labels) == 2 and not multi_label:
            configured = model_config.get("positive_label")
            if configured in labels:
                positive = configured
            else:
                positive = labels[1]  # as in older runs, whose config does not name it
        task = cls(
            labels,
            multi_label,
            settings.label_separator,
            settings.threshold,
            positive=positive,
        )
        return replace(task, long=long_text_of(recipe))

    def head(self) -> dict[str, Any]:
        """Returns the names of the labels and the problem type; of two labels the positive one."""
        if self.multi_label:
            problem_type = "multi_label_classification"
        else:
            problem_type = "single_label_classification"
        fields = label_fields(self.labels, problem_type)
        if self.positive:
            fields |= {"positive_label": self.positive}
        return fields | self.long.fields()

    def check(self, rows: Rows) -> None:
        """Refuses labels that training has never seen.

        Raises:
            DataError: There is such a label; the message has file, line, and the known labels.
        """
        known = set(self.labels)
        for i in _first_rows(rows):  # the same label in later rows is the same fault
            for name in self._names(rows, i):
                if name not in known:
                    raise UnknownLabelError(
                        f"{rows.where(i)}: the label {name!r} is not one the model knows "
                        f"({listing(self.labels)})",
                        remedy=f"{did_you_mean(name, self.labels)} Correct the label, or train "
                        "with rows that have it (or `finetune` with all labels named: "
                        "`text_classification.labels='[a, b]'`).".lstrip(),
                    )

    def encode(self, rows: Rows, tokenizer: Tokenizer, *, max_length: int) -> SequenceFeatures:
        """Returns texts as ids; label names as class numbers, (N,), or as 0/1 rows, (N, C)."""
        if rows.has("label"):
            labels = self._numbers(rows)
        else:
            labels = None
        return encode_rows(rows, labels, tokenizer, replace(self.long, max_length=max_length))

    def objective(
        self, padding: Padding, training: TrainingSection | None = None, train: Any = None
    ) -> TaskObjective:
        """Returns the objective of training, or of scoring if there is nothing to train on.

        The objective of training is the recipe's loss (`training.loss`). That of scoring is the
        cross-entropy of the answered probabilities, after the logits are divided by the run's
        temperature.

        Args:
            padding: How batches are padded.
            training: The recipe's section; None for scoring.
            train: Features of the training rows, whose labels weigh the classes; None for scoring.
        """
        if self.multi_label:
            labels = "several labels"
        else:
            labels = "one label"
        scoring = CLASS_LOSSES["cross-entropy"].objective_class(labels)
        if training is None or train is None:
            scored: TaskObjective = scoring(padding, temperature=self.temperature)
            return scored

        loss = CLASS_LOSSES[training.loss]
        minimised: TaskObjective = loss.objective_class(labels)(
            padding,
            class_weights(training, present(train.labels), self.labels),
            training.label_smoothing,
            **loss.keywords(training),
        )
        return minimised

    def array_losses(self, outputs: Array, batch: Any) -> Floats32:
        """Returns the cross-entropies of the probabilities that are answered."""
        logits = outputs / np.float32(self.temperature)
        if self.multi_label:
            losses = binary_cross_entropies(logits, batch.labels)
            return np.asarray(losses.mean(axis=1), dtype=np.float32)
        return cross_entropies(logits, batch.labels)

    def with_decision(self, decision: Mapping[str, Any]) -> "TextClassification":
        """Returns the task with the temperature and threshold that were chosen on validation rows.

        With several labels per row the threshold is that of each label, otherwise that of the
        positive one of two.
        """
        changes: dict[str, Any] = {}
        if decision.get("temperature") is not None:
            changes["temperature"] = float(decision["temperature"])
        if decision.get("threshold") is not None:
            name = "threshold" if self.multi_label else "positive_threshold"
            changes[name] = float(decision["threshold"])
        return replace(self, **changes)

    def decode(
        self, outputs: Outputs, features: SequenceFeatures, rows: Rows
    ) -> list[dict[str, Any]]:
        """Returns for each row its label, or list of labels, and the probability of every label.

        Of two labels with a threshold, the positive one is answered from this probability on.
        """
        answers: list[dict[str, Any]] = []
        for row in self._probabilities(outputs["logits"]):
            by_name = {name: float(p) for name, p in zip(self.labels, row, strict=True)}
            if self.multi_label:
                chosen: Any = [name for name, p in by_name.items() if p >= self.threshold]
            elif self.positive_threshold is None:
                chosen = self.labels[int(row.argmax())]
            else:
                is_positive = row[self._positive_number] >= self.positive_threshold
                number = self._positive_number if is_positive else 1 - self._positive_number
                chosen = self.labels[number]
            answers.append({"prediction": chosen, "probabilities": by_name})
        return answers

    def lines(self, outputs: Outputs, features: Any, rows: Rows) -> Sequence[dict[str, Any]]:
        """Returns one answer per labelled row with its gold answer.

        For many rows with one label they are `ClassLines`, which keep arrays and take less memory.
        """
        if self.multi_label or not is_many(len(rows)):
            return super().lines(outputs, features, rows)
        probabilities = self._probabilities(outputs["logits"])
        predicted = probabilities.argmax(axis=1)
        if self.positive_threshold is not None:
            positive = self._positive_number
            is_positive = probabilities[:, positive] >= self.positive_threshold
            predicted = np.where(is_positive, positive, 1 - positive)
        return ClassLines(self.labels, self._numbers(rows), predicted, probabilities)

    @property
    def _positive_number(self) -> int:
        """Number of the positive one of two labels; the second one where none is named."""
        return self.labels.index(self.positive or self.labels[1])

    @property
    def line_bytes(self) -> int:
        """Bytes of memory that scoring takes for each row."""
        if self.multi_label:
            return super().line_bytes
        return 300 + 100 * len(self.labels)

    def baseline(self, constant: Any, rows: Rows) -> dict[str, float]:
        """Returns the metrics of the answer that ignores the input.

        For many rows with one label they are computed from arrays, which take less memory.

        Args:
            constant: The answer: a label, or a list of labels.
            rows: Labelled rows.
        """
        if self.multi_label or not is_many(len(rows)) or constant not in self.labels:
            return super().baseline(constant, rows)

        number = self.labels.index(constant)
        predicted = np.full(len(rows), number)
        probabilities = np.zeros((len(rows), len(self.labels)), dtype=np.float32)
        probabilities[:, number] = 1.0
        lines = ClassLines(self.labels, self._numbers(rows), predicted, probabilities)
        return {name: by_line.value for name, by_line in self.answers.each_contributions(lines)}

    def targets(self, answered: Answered, label: str | None) -> list[Target]:
        """Returns what is explained of each row: the logit of each label that was answered.

        If several labels are possible and none was answered, it is the logit of the likeliest one.

        Args:
            answered: Rows with their answers.
            label: Label whose logit is returned instead; None for the answered ones.
        """
        targets: list[Target] = []
        for i, answer in enumerate(answered.answers):
            probabilities = answer["probabilities"]
            if label:
                names = [label]
            elif not self.multi_label:
                names = [answer["prediction"]]
            elif answer["prediction"]:
                names = answer["prediction"]
            else:
                names = [max(probabilities, key=probabilities.__getitem__)]
            texts = text_parts(answered.rows, i, self.answers.texts)
            targets += [
                Target(
                    i,
                    window=i,
                    # One logit is explained: its index in the window's outputs.
                    places=((self.labels.index(name),),),
                    named={"label": name},
                    parts=texts,
                )
                for name in names
            ]
        return targets

    def describe(self, rows: Rows) -> str:
        """Returns how many rows each label has.

        If there are many labels, it names the rarest and the most frequent one.
        """
        counts = self._label_counts(rows)
        if len(self.labels) <= 10:
            return ", ".join(f"{name}: {counts[name]}" for name in self.labels)

        rarest, *_, commonest = sorted(self.labels, key=counts.__getitem__)
        return (
            f"{len(self.labels)} labels, from {rarest}: {counts[rarest]} "
            f"to {commonest}: {counts[commonest]}"
        )

    def doubts(self, train: Rows) -> list[str]:
        """Returns which labels of the training rows may not be what they are learned as.

        They differ in case or spacing alone, are several labels in one cell, or stand for no label.
        """
        counts = self._label_counts(train)
        doubts = [alike_labels(usual, variants, counts) for usual, variants in spelt_alike(counts)]
        joined = None
        if not self.multi_label:
            joined = joined_labels(counts)
        if joined is not None:
            separator, single_labels = joined
            doubts.append(
                f"{len(counts):,} different labels are {len(single_labels):,} with {separator!r} "
                "between them; if it separates labels, add "
                f"`text_classification.label_separator={separator!r}`"
            )
        doubts += [
            f"{word!r} ({counts[word]:,}) is learned as a label; if it means no label, take "
            "these rows out"
            for word in words_for_nothing(counts)
        ]
        return doubts

    def gold(self, rows: Rows, index: int) -> Any:
        """Returns the label (or labels) of a row, as prediction files show it."""
        names = self._names(rows, index)
        if self.multi_label:
            return names
        return names[0]

    def _probabilities(self, logits: Floats32) -> Floats32:
        """Returns (N, C) probabilities of (N, C) logits, at the calibrated temperature.

        Those of one label per row add up to 1. Those of several labels are independent.
        """
        if self.temperature != 1.0:
            logits = logits / np.float32(self.temperature)
        if not self.multi_label:
            return softmax(logits)
        from scipy.special import expit

        probabilities: Floats32 = expit(logits)
        return probabilities

    def _numbers(self, rows: Rows) -> Array:
        """Returns the labels of N rows as numbers of the model's outputs.

        They are (N,) int64, or (N, C) float32 zeros and ones where a row may have several.
        """
        number = {name: i for i, name in enumerate(self.labels)}
        if not self.multi_label:
            column = rows.columns["label"]
            if isinstance(column, CodedValues):
                # Each different label is looked up once, in the first row that has it.
                number_of_code = np.zeros(len(column.values), dtype=np.int64)
                for i in _first_rows(rows):
                    number_of_code[column.codes[i]] = number[self._names(rows, i)[0]]
                return number_of_code[column.codes]
            numbers = (number[self._names(rows, i)[0]] for i in range(len(rows)))
            return np.fromiter(numbers, dtype=np.int64, count=len(rows))
        labels = np.zeros((len(rows), len(self.labels)), dtype=np.float32)
        for i in range(len(rows)):
            labels[i, [number[name] for name in self._names(rows, i)]] = 1.0
        return labels

    def _label_counts(self, rows: Rows) -> Counter[str]:
        """Returns how many rows have each label, in the order in which the labels come."""
        column = rows.columns["label"]
        counts = Counter[str]()
        if not isinstance(column, CodedValues):
            for i in range(len(rows)):
                counts.update(self._names(rows, i))
            return counts
        # Coded values are numbers of the different cells: each different cell is read once, in the
        # first row that has it, and counts as often as its number occurs.
        n_rows = np.bincount(column.codes, minlength=len(column.values))
        for i in _first_rows(rows):
            for name in self._names(rows, i):
                counts[name] += int(n_rows[column.codes[i]])
        return counts

    def _names(self, rows: Rows, index: int) -> list[str]:
        """Returns the label names of a row; exactly one unless multi-label.

        Raises:
            DataError: Missing, a float, or a list where one label is expected.
        """
        if self.multi_label:
            return self._label_set(rows, index)

        label = rows.columns["label"][index]
        require_label(rows, index)
        if isinstance(label, list | tuple):
            remedy = "For several labels per example add `text_classification.multi_label=true`."
            raise DataError(f"{rows.where(index)}: the label is a list ({label!r})", remedy=remedy)
        if label in self.labels:  # a name that the recipe lists is a name, even if it is 3.5
            return [str(label)]
        _refuse_number(label, rows.where(index))
        return [label_name(label)]

    def _label_set(self, rows: Rows, index: int) -> list[str]:
        """Returns the different label names of a row that may have several, in the row's order.

        A list is taken as it is; a text is split: with the separator "," `"a,b" -> ["a", "b"]`.
        An empty label is no label: `"" -> []`.

        Raises:
            DataError: The label is missing in a row that must have one.
        """
        label = rows.columns["label"][index]
        if isinstance(label, list | tuple):
            names = []
            for cell in label:
                if cell is not None:
                    # A name that the recipe lists stays as it is, even if it looks like a number.
                    is_known = str(cell) in self.labels
                    names.append(str(cell) if is_known else label_name(cell))
            return list(dict.fromkeys(names))

        if label is None or label == "":
            return []
        require_label(rows, index)
        if self.separator:
            cells = str(label).split(self.separator)
        else:
            cells = [str(label)]
        return list(dict.fromkeys(cell.strip() for cell in cells if cell.strip()))


def _first_rows(rows: Rows) -> Sequence[int]:
    """Returns the first row of each label, in the order of rows; all rows if no label recurs."""
    column = rows.columns["label"]
    if not isinstance(column, CodedValues):
        return range(len(rows))
    first_rows: list[int] = np.sort(np.unique(column.codes, return_index=True)[1]).tolist()
    return first_rows


def _too_few_labels(counts: Counter[str], train: Rows) -> DataError:
    """Returns the refusal of training rows that all have the same label, or none."""
    label_counts = ", ".join(f"only '{name}', {count} rows" for name, count in counts.items())
    if label_counts:
        labels_there = f"one label ({label_counts})"
    else:
        labels_there = "no label"
    return DataError(
        f"{train.source}: the training rows have {labels_there}; nothing can be learned",
        remedy="Check `data.label_column=`, or add rows with another label.",
    )


def _refuse_odd_numbers(counts: Counter[str], rows: Rows) -> None:
    """Refuses a number that is written otherwise than the classes beside it: 1e3 beside 0 and 1.

    Raises:
        DataError: There is such a label; the message has file and line.
    """
    odd_labels = oddly_written_numbers(counts)
    if not odd_labels:
        return
    odd_label = odd_labels[0]
    labels = rows.columns["label"]
    odd_row = next(i for i in _first_rows(rows) if label_name(labels[i]) == odd_label)
    usual_labels = listing([name for name in counts if name not in odd_labels])
    raise DataError(
        f"{rows.where(odd_row)}: the label {odd_label!r} is a number that is written otherwise "
        f"than the other labels ({usual_labels})",
        remedy="Correct it, or take the row out. If it is the name of a class, name all of them: "
        "`text_classification.labels='[...]'`. To learn numbers use the recipe "
        "text-regression.",
    )


def _refuse_number(label: object, where: str) -> None:
    """Refuses what is a number but no class.

    That is 3.5, '0.25' or 'nan', but not 3, '3', '3.0' or the float 3.0 of a Parquet file.

    Raises:
        DataError: There is such a label; the message has file and line.
    """
    if str(label).strip().lower() == "nan":
        raise DataError(
            f"{where}: the label is {str(label).strip()}, which is not a class",
            remedy="Fill the label in, or take the row out. If it is a class's name, name all of "
            "them: `text_classification.labels='[..., nan]'`.",
        )
    number = as_number(label)
    is_written_as_number = isinstance(label, float) or "." in str(label)
    if is_written_as_number and not math.isnan(number) and not number.is_integer():
        raise DataError(
            f"{where}: the label {label!r} is a decimal number, not a class",
            remedy="To learn numbers use the recipe text-regression; else check "
            "`data.label_column=`. If the numbers are the names of classes, name all of them: "
            "`text_classification.labels='[...]'`.",
        )
