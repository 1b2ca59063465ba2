"""What a label means, or several: text classification."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress
from typing import Any, ClassVar

import numpy as np

from bertctl.arrays import Bools, Floats, Ints
from bertctl.errors import DataError, UsageError
from bertctl.metrics import calibration, classification, contributions, ranking
from bertctl.metrics.contributions import Contributions, Metric
from bertctl.metrics.tagging import entity_score
from bertctl.run_documents.metrics_document import MetricsDocument
from bertctl.tasks.answers import (
    BY_LOSS,
    Answers,
    ErrorOrder,
    Line,
    Lines,
    Outcome,
    accuracy,
    clustered,
    field,
    sides,
)
from bertctl.tasks.classification.class_lines import ClassLines
from bertctl.words import label_order, listing

POSITIVE = "positive"
"""Field of lines that were read with the run's positive label."""

OF_LABEL = ("precision", "recall", "f1")
"""Metrics of one label against all else: `recall:spam`."""

_OF_WHICH = "of the positive label, else the mean over labels, each against the rest"
_MEANS: Mapping[classification.Average, str] = {
    "macro": "mean of the labels' F1",
    "micro": "F1 of all decisions; with one label per row the accuracy",
    "weighted": "mean of the labels' F1, by how often each is there",
}


def _f1(answers: "ClassAnswers", lines: Lines) -> Contributions | None:
    """Returns what each line adds to the F1 of the positive label; None where none is positive."""
    if answers.positive is None:
        return None
    positive = answers.labels.index(answers.positive)
    return classification.f1_of_labels(*answers.numbers(lines), n_labels=2, of=positive)


def _mean_f1(
    average: classification.Average, answers: "ClassAnswers", lines: Lines
) -> Contributions:
    """Returns what each line adds to the mean F1 of the labels.

    A metric is defined by a function of answers and lines, with no other arguments: `average` is
    fixed in the definition.
    """
    return answers.mean_f1(average, lines)


def _ranking(name: ranking.Name, answers: "ClassAnswers", lines: Lines) -> Contributions | None:
    """Returns what each line adds to a ranking metric, such as the area under the ROC curve.

    With a positive label it is about this label alone. It is None without all probabilities.
    """
    distributions = answers.distributions(lines)
    if distributions is None:
        return None
    probabilities, gold = distributions
    if answers.positive is not None:
        column = [answers.labels.index(answers.positive)]
        probabilities = probabilities[:, column]
        gold = gold[:, column]
    return ranking.ranking(name, gold, probabilities)


def _matthews(answers: "ClassAnswers", lines: Lines) -> Contributions | None:
    """Returns what each line adds to the Matthews correlation, as a metric's definition needs."""
    return answers.matthews(lines)


@dataclass(frozen=True)
class ClassAnswers(Answers):
    """C labels of texts or pairs: what one label per example and several of them have in common.

    `f1:LABEL` is the F1 of one label.

    Class attributes:
        multi_label: Whether an example can have several labels or none.

    Attributes:
        labels: Names, in the model's order.
        positive: The one of two labels that `f1` is about.
    """

    multi_label: ClassVar[bool]

    labels: tuple[str, ...] = ()
    positive: str | None = None

    task: ClassVar[str] = "text-classification"
    texts: ClassVar[tuple[str, ...]] = ("text", "pair")
    checks: ClassVar[frozenset[str]] = frozenset({"labels"})
    usage: ClassVar[str] = """from transformers import pipeline

answer = pipeline("text-classification", model=MODEL, top_k=None)
answer({example})"""
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric("accuracy", accuracy, "share of examples answered right (all labels, if several)"),
        Metric("f1", _f1, "F1 of the positive one of two labels"),
        *(
            Metric(
                f"f1_{average}",
                partial(_mean_f1, average),
                description,
                hub_name="f1",
                is_detail=average != "macro",
            )
            for average, description in _MEANS.items()
        ),
        Metric("roc_auc", partial(_ranking, "roc_auc"), f"area under the ROC curve: {_OF_WHICH}"),
        Metric(
            "average_precision",
            partial(_ranking, "average_precision"),
            f"mean precision: {_OF_WHICH}",
        ),
        Metric(
            "matthews",
            _matthews,
            "Matthews correlation, -1 to 1; 0 for one answer to all",
            hub_name="matthews_correlation",
        ),
    )

    @classmethod
    def from_lines(cls, lines: Lines) -> "ClassAnswers":
        """Returns answers with the labels of prediction lines, in the model's order.

        Probabilities of a line have this order. Labels that occur without a probability come
        behind, sorted. Of two labels the later one is positive if the lines don't name one, as in
        older runs.
        """
        probabilities = lines[0].get("probabilities")
        if isinstance(probabilities, Mapping):
            model_labels = list(probabilities)
        else:
            model_labels = []
        occurring = set[str]()
        for line in lines:
            occurring.update(_names(field(line, "gold")), _names(field(line, "prediction")))
        labels = (*model_labels, *sorted(occurring - set(model_labels), key=label_order))
        if isinstance(field(lines[0], "gold"), list):
            return LabelSetAnswers(labels)
        if len(labels) != 2:
            return OneLabelAnswers(labels)
        positive = lines[0].get(POSITIVE, labels[-1])
        return OneLabelAnswers(labels, positive if positive in labels else None)

    @abstractmethod
    def mean_f1(self, average: classification.Average, lines: Lines) -> Contributions:
        """Returns what each line adds to the mean of the labels' F1."""

    @abstractmethod
    def matthews(self, lines: Lines) -> Contributions | None:
        """Returns what each line adds to the Matthews correlation; None where it has no meaning."""

    @abstractmethod
    def targets(self, lines: Lines) -> Ints:
        """Returns (N,) numbers of the gold labels; of several labels (N, C) 0 and 1."""

    @property
    @abstractmethod
    def older_name_of_f1(self) -> str:
        """What older runs called `f1` where there are more than two labels."""

    @abstractmethod
    def constant_for(self, label: str | None) -> Any:
        """Returns the constant answer that scores best in a metric of one label, such as its F1.

        Args:
            label: Name of the label; empty or None if the metric is not about one.

        Returns:
            An answer as predictions show it: a label, or a list of labels. Empty or None if no
            answer is better than the most frequent label.
        """

    @abstractmethod
    def certainties(self, probabilities: Floats, gold: Ints) -> tuple[Floats, Bools]:
        """Returns the probabilities that a calibration is measured on, and whether each came true.

        With one label per example they are those of the answers, with several those of all labels.

        Args:
            probabilities: (N, C) of the labels.
            gold: Gold labels as numbers, as `targets` returns them.
        """

    def named_today(self, metrics: MetricsDocument) -> MetricsDocument:
        """Returns metrics.json with the metric that older runs call `f1` under its name of today.

        With two labels the name stays, and the positive label is added. With more labels older
        runs had a mean over the labels under this name.
        """
        if self.positive:
            return metrics.model_copy(update={"positive_label": self.positive})
        f1_today = self.older_name_of_f1

        def renamed(name: str) -> str:
            """Returns the name of a metric today."""
            return f1_today if name == "f1" else name

        def with_new_names(by_split: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
            """Returns the metrics of each split under their names of today."""
            renamed_by_split = {}
            for split, by_name in by_split.items():
                renamed_by_split[split] = {renamed(name): value for name, value in by_name.items()}
            return renamed_by_split

        primary = metrics.primary
        changes: dict[str, Any] = {
            "metrics": with_new_names(metrics.metrics),
            "primary": primary.model_copy(update={"name": renamed(primary.name)}),
        }
        if metrics.baseline:
            changes["baseline"] = with_new_names(metrics.baseline)
        return metrics.model_copy(update=changes)

    def contributions(self, lines: Lines, name: str) -> Contributions | None:
        """Returns what each line adds to a metric; `recall:spam` is that of one label."""
        if ":" in name:
            return self._of_labels(lines).get(name)
        return super().contributions(lines, name)

    def each_contributions(self, lines: Lines) -> Iterator[tuple[str, Contributions]]:
        """Yields what each line adds to every metric, those of each label too."""
        yield from super().each_contributions(lines)
        yield from self._each_of_labels(lines)

    def _of_labels(self, lines: Lines) -> dict[str, Contributions]:
        """Returns the metrics of single labels by name, such as `recall:spam`."""
        return dict(self._each_of_labels(lines))

    def _each_of_labels(self, lines: Lines) -> Iterator[tuple[str, Contributions]]:
        """Yields each metric of one label by its name, such as `recall:spam`."""
        gold, predicted = self.present(lines)
        for label, is_gold, is_predicted in zip(self.labels, gold.T, predicted.T, strict=True):
            # 0 or 1 per line: gold, predicted, right. The scores of entities are defined by such
            # counts, so they fit a label, too.
            rows = np.stack([is_gold, is_predicted, is_gold & is_predicted], axis=1)
            for name in OF_LABEL:
                yield f"{name}:{label}", clustered(entity_score(f"entity_{name}", rows), lines)

    def numbers(self, lines: Lines) -> tuple[Ints, Ints]:
        """Returns (N,) numbers of the gold labels and of those answered."""
        if isinstance(lines, ClassLines) and lines.labels == self.labels:
            return lines.gold, lines.predicted
        number = {label: i for i, label in enumerate(self.labels)}
        gold, predicted = sides(lines)
        return (
            np.array([number[str(name)] for name in gold], dtype=np.int64),
            np.array([number[str(name)] for name in predicted], dtype=np.int64),
        )

    def present(self, lines: Lines) -> tuple[Bools, Bools]:
        """Returns (N, C) whether each label is there, and whether it was answered."""
        if isinstance(lines, ClassLines) and lines.labels == self.labels:
            return lines.present()
        gold, predicted = sides(lines)
        return self._present_in(gold), self._present_in(predicted)

    def _present_in(self, answers: Sequence[Any]) -> Bools:
        """Returns (N, C) whether each of N answers, gold or predicted, has each label."""
        rows = []
        for names in map(_names, answers):
            row = [label in names for label in self.labels]
            rows.append(row)
        return np.array(rows, dtype=np.bool_)

    def answered(self, line: Line, constant: Any) -> Line:
        """Returns a line with the constant answer, with a probability of 1."""
        return {
            **super().answered(line, constant),
            "probabilities": dict.fromkeys(_names(constant), 1.0),
        }

    def best_constant(self, name: str, lines: Lines, of_most_frequent: float) -> float:
        """Returns a metric of the best constant answer.

        For a metric of one label (`f1:LABEL`) it is the better one of two answers: the most
        frequent label, and this label.

        Args:
            name: Name of the metric.
            lines: Labelled lines.
            of_most_frequent: The metric if every answer is the most frequent label.
        """
        if name == "f1":
            label = self.positive
        else:
            _, _, label = name.partition(":")  # empty for a metric of all labels
        answer = self.constant_for(label)
        if answer:
            return max(of_most_frequent, self.baseline(answer, lines).get(name, of_most_frequent))
        return of_most_frequent

    def constant_prediction(self, lines: Lines) -> str | None:
        """Returns the only label, or set of labels, that was answered."""
        if super().constant_prediction(lines) is None:
            return None
        return listing(_names(lines[0]["prediction"])) or "no label"

    def rights(self, lines: Lines) -> Sequence[bool] | Bools:
        """Returns whether each line is right."""
        if isinstance(lines, ClassLines):
            is_right: Bools = lines.gold == lines.predicted
            return is_right
        return super().rights(lines)

    def shown(self, line: Line) -> tuple[str, str, str]:
        """Returns the texts and both labels."""
        gold, predicted = (
            ", ".join(_names(line[key])) or "(none)" for key in ("gold", "prediction")
        )
        return self.shown_input(line), gold, predicted

    def labels_of(self, line: Line) -> list[str]:
        """Returns the gold label, or labels."""
        return _names(field(line, "gold"))

    def of_label(self, lines: Lines, name: str, label: str) -> Contributions | None:
        """Returns precision, recall or F1 of a label against all else."""
        if name not in OF_LABEL:
            return None
        gold_side, predicted_side = sides(lines)
        gold = np.array([label in _names(labels) for labels in gold_side])
        predicted = np.array([label in _names(labels) for labels in predicted_side])
        # Recall is a share of the lines with the label in gold, precision of those with it in the
        # prediction.
        if name == "recall":
            return clustered(contributions.share(predicted[gold]), list(compress(lines, gold)))
        if name == "precision" and not predicted.any():
            raise UsageError(
                f"the precision of '{label}' is undefined: the model never answers '{label}'"
            )
        if name == "precision":
            return clustered(contributions.share(gold[predicted]), list(compress(lines, predicted)))
        return self._of_labels(lines)[f"f1:{label}"]

    def outcome(self, lines: Lines) -> Outcome:
        """Returns a row per label."""
        pairs: list[list[tuple[str | None, str | None]]] = []
        for line in lines:
            gold = set(_names(line["gold"]))
            predicted = set(_names(line["prediction"]))
            pairs.append([_pair(name, gold, predicted) for name in gold | predicted])
        return Outcome.counted("By label", "label", self.labels, lines, pairs)

    def distributions(self, lines: Lines) -> tuple[Floats, Bools] | None:
        """Returns (N, C) probabilities of the labels and which are right.

        It is None where lines don't give all of them.
        """
        if isinstance(lines, ClassLines) and lines.labels == self.labels:
            return lines.probabilities.astype(np.float64), lines.present()[0]
        if not isinstance(lines[0].get("probabilities"), Mapping):
            return None
        probabilities = []
        for line in lines:
            by_name = line["probabilities"]
            probabilities.append([by_name.get(name, 0.0) for name in self.labels])
        return np.array(probabilities), self.present(lines)[0]

    def calibrated(self, lines: Lines) -> tuple[float, Floats, Bools] | None:
        """Returns a temperature fitted on these lines, and how certain the answers are with it.

        The second and third values are those of `certainties`: the probabilities at this
        temperature, and whether each came true. The result is None if lines lack probabilities or
        no temperature can be fitted.
        """
        distributions = self.distributions(lines)
        if distributions is None:
            return None
        logits = calibration.log_odds(distributions[0], multi_label=self.multi_label)
        gold = self.targets(lines)
        try:
            temperature = calibration.fit_temperature(logits, gold, multi_label=self.multi_label)
        except DataError:
            return None
        scaled = calibration.scaled_probabilities(logits, temperature, multi_label=self.multi_label)
        return temperature, *self.certainties(scaled, gold)


@dataclass(frozen=True)
class OneLabelAnswers(ClassAnswers):
    """One of C labels per example: labels exclude each other."""

    multi_label: ClassVar[bool] = False

    def mean_f1(self, average: classification.Average, lines: Lines) -> Contributions:
        """Returns what each line adds to the mean of the labels' F1."""
        gold, predicted = self.numbers(lines)
        return classification.f1_of_labels(gold, predicted, n_labels=len(self.labels), of=average)

    def matthews(self, lines: Lines) -> Contributions | None:
        """Returns what each line adds to the Matthews correlation."""
        gold, predicted = self.numbers(lines)
        return classification.matthews(gold, predicted, n_labels=len(self.labels))

    def targets(self, lines: Lines) -> Ints:
        """Returns (N,) numbers of the gold labels."""
        return self.numbers(lines)[0]

    @property
    def older_name_of_f1(self) -> str:
        """What older runs called `f1` where there are more than two labels."""
        return "f1_macro"

    def constant_for(self, label: str | None) -> Any:
        """Returns the label itself."""
        return label

    def certainties(self, probabilities: Floats, gold: Ints) -> tuple[Floats, Bools]:
        """Returns (N,) probabilities of the answers, and whether they are right."""
        return probabilities.max(axis=1), probabilities.argmax(axis=1) == gold

    def is_right(self, line: Line) -> bool:
        """Returns whether the label is right."""
        return bool(field(line, "gold") == field(line, "prediction"))

    def outcome(self, lines: Lines) -> Outcome:
        """Returns a row per label, and the confusions."""
        return replace(super().outcome(lines), labels=self.labels)


@dataclass(frozen=True)
class LabelSetAnswers(ClassAnswers):
    """Any number of C labels per example, none included."""

    multi_label: ClassVar[bool] = True

    def mean_f1(self, average: classification.Average, lines: Lines) -> Contributions:
        """Returns what each line adds to the mean of the labels' F1."""
        gold, predicted = self.present(lines)
        return classification.f1_of_sets(gold, predicted, average)

    def matthews(self, lines: Lines) -> Contributions | None:
        """Returns None: sets of labels have no table of confusions."""
        return None

    def targets(self, lines: Lines) -> Ints:
        """Returns (N, C) 0 and 1."""
        return self.present(lines)[0].astype(np.int64)

    @property
    def older_name_of_f1(self) -> str:
        """What older runs called `f1`."""
        return "f1_micro"

    def baseline_answer(self, gold: Sequence[Any]) -> Any:
        """Returns the most frequent set of labels of the training rows."""
        sets = Counter[tuple[bool, ...]]()
        for names in gold:
            sets[tuple(label in names for label in self.labels)] += 1
        chosen = max(sorted(sets), key=sets.__getitem__)
        return [label for label, is_present in zip(self.labels, chosen, strict=True) if is_present]

    def constant_for(self, label: str | None) -> Any:
        """Returns all labels: whatever is asked for is then found."""
        return list(self.labels)

    def certainties(self, probabilities: Floats, gold: Ints) -> tuple[Floats, Bools]:
        """Returns (N * C,) probabilities of all labels, and whether each is there."""
        return probabilities.ravel(), gold.ravel() > 0

    def is_right(self, line: Line) -> bool:
        """Returns whether all labels are right."""
        return set(field(line, "gold")) == set(field(line, "prediction"))

    def error_order(self) -> ErrorOrder:
        """Returns the order by loss: there is no one answer that is sure of itself."""
        return BY_LOSS

    def stated(self, lines: Lines) -> tuple[Floats, Bools] | None:
        """Returns (N C,) probabilities of all labels of each line, and (N C,) which are gold."""
        if not lines or not lines[0].get("probabilities"):
            return super().stated(lines)
        probabilities: list[float] = []
        is_gold: list[bool] = []
        for line in lines:
            probabilities += line["probabilities"].values()
            is_gold += [name in line["gold"] for name in line["probabilities"]]
        return np.clip(probabilities, 0.0, 1.0), np.array(is_gold, dtype=np.bool_)


def _pair(
    name: str, gold: Collection[str], predicted: Collection[str]
) -> tuple[str | None, str | None]:
    """Returns a label as it is in gold and in the prediction; None where it is not there."""
    return name if name in gold else None, name if name in predicted else None


def _names(answer: Any) -> list[str]:
    """Returns the names in an answer: `"a" -> ["a"]`, `["a", "b"] -> ["a", "b"]`."""
    if isinstance(answer, list):
        return list(map(str, answer))
    return [str(answer)]
