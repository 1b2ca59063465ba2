"""What the answers of a task mean: the base class of one torch-free object per task.

An `Answers` knows which columns are read, which metrics there are and what each line adds to them,
the answer that ignores the input, what is right, how a line and an error are shown, and how a
trained model is used in plain transformers. Evaluation, sweeps, folds, gates, comparisons and
reports know tasks only through it.

A line is an entry of a prediction file: a mapping with `id`, the shown columns, `gold`,
`prediction`, `probabilities` where there are any, `loss`, `tokens` and `truncated`.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from bertctl.arrays import Bools, Floats, Ints
from bertctl.errors import DataError
from bertctl.metrics import contributions
from bertctl.metrics.clusters import numbered
from bertctl.metrics.contributions import LOSS, Contributions, Metric
from bertctl.metrics.value import MetricValue
from bertctl.plugins import all_plugins
from bertctl.run_documents.metrics_document import MetricsDocument
from bertctl.tasks.classification.class_lines import ClassLines
from bertctl.words import command

Line = Mapping[str, Any]
Lines = Sequence[Line]
Value = str | int | float | tuple[float, float] | None
Pairs = Sequence[Iterable[tuple[str | None, str | None]]]


_COUNTED = ("in gold", "predicted", "precision", "recall", "95 % interval of recall", "F1")


@dataclass(frozen=True)
class Outcome:
    """What was right, in the form that fits the task: a section of the report.

    Attributes:
        title: Title of the section.
        header: Names of the table's columns; empty where there is no table.
        rows: Rows of the table. A whole number is a count, a float a score, a pair an interval,
            None a value that is not defined, and a text is one of the data.
        labels: Labels that exclude each other, for a table of confusions; empty for none.
        points: Pairs of gold and predicted scores.
        same_unit: Whether a predicted score is right where it equals the gold one.
    """

    title: str
    header: tuple[str, ...] = ()
    rows: Sequence[Sequence[Value]] = ()
    labels: Sequence[str] = ()
    points: Sequence[tuple[float, float]] = ()
    same_unit: bool = True

    @classmethod
    def counted(
        cls, title: str, heading: str, names: Sequence[str], lines: Lines, pairs: Pairs
    ) -> Self:
        """Returns a table with counts, precision, recall and F1 of each label or entity type.

        Args:
            title: Title of the section.
            heading: Header of the column of names, such as "label".
            names: Labels or types, one row each.
            lines: N labelled prediction lines.
            pairs: For each line its (gold, predicted) pairs. None is for nothing: ("PER", None) is
                a missed entity, (None, "PER") one that is not in the text.
        """
        occurrences = defaultdict[str | None, list[tuple[Hashable, bool]]](list)
        answers = Counter[str | None]()
        for number, (line, line_pairs) in enumerate(zip(lines, pairs, strict=True)):
            # Lines of one cluster depend on each other. The interval of recall allows for it.
            cluster = line.get("cluster", number)
            for gold, predicted in line_pairs:
                occurrences[gold].append((cluster, gold == predicted))
                answers[predicted] += 1

        rows: list[list[Value]] = []
        for name in names:
            n_right = sum(is_hit for _, is_hit in occurrences[name])
            n_gold = len(occurrences[name])
            n_answered = answers[name]
            if n_gold:
                recall, interval = _recall(occurrences[name])
            else:
                recall = None
                interval = None
            if n_gold + n_answered:
                f1 = 2 * n_right / (n_gold + n_answered)
            else:
                f1 = None
            rows.append(
                [
                    name,
                    n_gold,
                    n_answered,
                    n_right / n_answered if n_answered else None,
                    recall,
                    interval,
                    f1,
                ]
            )
        return cls(title, (heading, *_COUNTED), rows)


def _recall(occurrences: Sequence[tuple[Hashable, bool]]) -> tuple[float, tuple[float, float]]:
    """Returns the recall of one label or entity type, and its 95 % interval.

    Args:
        occurrences: At least one: for each time that it is in gold, the cluster of its line and
            whether it was found.
    """
    clusters, hits = zip(*occurrences, strict=True)
    recall = replace(contributions.share(hits), clusters=numbered(clusters)).metric()
    return recall.value, (recall.low or 0.0, recall.high or 0.0)


@dataclass(frozen=True)
class TaskMetric:
    """A metric that a plug-in adds to a task.

    Attributes:
        task: Name of the task.
        metric: What is computed.
    """

    task: str
    metric: Metric


@dataclass(frozen=True)
class ErrorOrder:
    """How errors are ranked.

    Attributes:
        title: Title of the list.
        words: Which of them comes first.
        column: What the number is called.
        layout: How the number is written.
    """

    title: str = "Most confident errors"
    words: str = "the surest first"
    column: str = "probability"
    layout: str = "{:.4f}"


BY_LOSS = ErrorOrder(words="the highest loss first", column="loss", layout="{:.3f}")


class Answers:
    """Interpretation of one task's prediction lines: metrics, right or wrong, and how they look.

    Each task has a subclass, such as `ClassAnswers`. An object of it knows the labels of one run.
    The methods take prediction lines (`Line`), and never a model or torch.

    Class attributes:
        task: Name of the task.
        texts: Columns that a model of this task can read. A row need not have all of them: `pair`
            is there only in rows of two texts.
        metrics: The task's metrics, in the order of metrics.json, without `loss`, which every task
            has. Reports compare groups of lines by the first metric that the lines give.
        checks: Families of checks that `data check` runs for this task only.
        multi_label: Whether a line may have several labels, or none.
        in_windows: Whether a long row is read in windows, so that nothing of it is cut off.
        pipeline: The task's name on the Hugging Face hub; None where the hub has the same name.
        tags: Tags of the model card, besides the task's name.
        usage: Python code of the model card that loads a trained model in plain transformers.
            `usage_snippet` puts an input in the place of `{example}`, and the transformers class
            with the head in the place of `{auto_class}`.
    """

    task: ClassVar[str] = ""
    texts: ClassVar[tuple[str, ...]]
    metrics: ClassVar[tuple[Metric, ...]]
    checks: ClassVar[frozenset[str]] = frozenset()
    multi_label: ClassVar[bool] = False
    in_windows: ClassVar[bool] = False
    pipeline: ClassVar[str | None] = None
    tags: ClassVar[tuple[str, ...]] = ()
    usage: ClassVar[str] = """from transformers import {auto_class}, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(MODEL)
model = {auto_class}.from_pretrained(MODEL)"""

    labels: tuple[str, ...] = ()
    """Label names in the model's order; empty where answers have no names."""
    positive: str | None = None
    """The one of two labels that `f1` is about; None where there are not two."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that prediction files show: here those that a model reads."""
        return self.texts

    @classmethod
    def from_lines(cls, lines: Lines) -> Self:
        """Returns the answers of a task, with the labels that its prediction lines name.

        Args:
            lines: Prediction lines, at least one.
        """
        return cls()

    def named_today(self, metrics: MetricsDocument) -> MetricsDocument:
        """Returns the content of metrics.json under the names that metrics have now.

        The positive label decides the name of `f1`.
        """
        return metrics

    # Metrics

    @classmethod
    def defined_metrics(cls) -> tuple[Metric, ...]:
        """Returns the definitions of all metrics but `loss`.

        Built-in ones, then those of plug-ins.
        """
        names = {metric.name for metric in cls.metrics}
        plugins = all_plugins("metrics").values()
        added = [plugin.metric for plugin in plugins if plugin.task == cls.task]
        return (*cls.metrics, *(metric for metric in added if metric.name not in names))

    def contributions(self, lines: Lines, name: str) -> Contributions | None:
        """Returns what each line adds to a metric.

        Args:
            lines: Labelled prediction lines, at least one.
            name: Name of the metric, as in metrics.json.

        Returns:
            None where these lines don't give a metric of this name.

        Raises:
            DataError: Lines that lack a field.
        """
        metric = self._definition(name)
        if metric is None or metric.contribute is None:  # a figure of the split as a whole
            return None
        by_line = metric.contribute(self, lines)
        if by_line is None:
            return None
        return clustered(replace(by_line, higher_is_better=metric.higher_is_better), lines)

    def _definition(self, name: str) -> Metric | None:
        """Returns the definition of a metric by its name in metrics.json; None for another name."""
        for metric in (*self.defined_metrics(), LOSS):
            if metric.name == name:
                return metric
        return None

    def all_contributions(self, lines: Lines) -> dict[str, Contributions]:
        """Returns what each line adds to every metric that the lines give, without `loss`."""
        return dict(self.each_contributions(lines))

    def each_contributions(self, lines: Lines) -> Iterator[tuple[str, Contributions]]:
        """Yields the name of each metric and what each line adds to it, without `loss`.

        One by one, as contributions of many lines take much memory.
        """
        for metric in self.defined_metrics():
            contributions_of_metric = self.contributions(lines, metric.name)
            if contributions_of_metric is not None:
                yield metric.name, contributions_of_metric

    def score(
        self, lines: Lines, *, resamples: int, seed: int, thorough: bool = False
    ) -> dict[str, MetricValue]:
        """Returns all metrics but `loss`, with 95 % intervals, as metrics.json has them.

        Args:
            lines: Labelled prediction lines, at least one.
            resamples: Number of resamples of the bootstrap; 0 for the values alone.
            seed: Seed of the bootstrap.
            thorough: Whether intervals get more resamples; see `Contributions.metric`.
        """
        scored = {
            name: by_line.metric(resamples=resamples, seed=seed, thorough=thorough)
            for name, by_line in self.each_contributions(lines)
        }
        # Figures have no interval, as they are not made of the lines' own contributions.
        figures = {
            name: MetricValue(value, None, None, len(lines))
            for name, value in self.figures(lines).items()
        }
        return scored | figures

    def figures(self, lines: Lines) -> dict[str, float]:
        """Returns metrics of a split that are no sum over lines, by name; here there are none."""
        return {}

    def losses(self, lines: Lines) -> Contributions | None:
        """Returns what each line adds to the loss, which is a weighted mean over lines.

        Here each line has the weight 1. It is None where lines don't give their weights.
        """
        sums = np.array([field(line, "loss") for line in lines], dtype=np.float64)
        return contributions.loss(sums, np.ones(len(sums)))

    # The answer that ignores the input

    def baseline_answer(self, gold: Sequence[Any]) -> Any:
        """Returns the best answer that ignores the text.

        It is the most frequent gold answer of the training rows.
        """
        counts = Counter(gold)
        names = [*self.labels, *sorted(counts.keys() - set(self.labels))]
        return max(names, key=counts.__getitem__)  # of equals the first in the model's order

    def answered(self, line: Line, constant: Any) -> Line:
        """Returns a copy of a line that has the constant answer as its prediction."""
        return {**line, "prediction": constant}

    def baseline(self, constant: Any, lines: Lines) -> dict[str, float]:
        """Returns the metrics of the answer that ignores the input.

        Args:
            constant: The answer that `baseline_answer` chose.
            lines: Labelled lines, at least one; they need no prediction.
        """
        answered = [self.answered(line, constant) for line in lines]
        return {name: by_line.value for name, by_line in self.each_contributions(answered)}

    def best_constant(self, name: str, lines: Lines, of_most_frequent: float) -> float:
        """Returns the best value of a metric that one answer for all lines can reach.

        A gate compares a run with it. Here it is taken to be the value of the most frequent answer;
        a task overrides this where another constant scores higher, as for the F1 of a rare label.

        Args:
            name: Name of the metric.
            lines: Labelled lines.
            of_most_frequent: The metric's value for the most frequent answer.
        """
        return of_most_frequent

    def constant_prediction(self, lines: Lines) -> str | None:
        """Returns the one answer that every line got although their gold answers differ.

        A model that always answers the same has learned nothing. The answer is written for a
        person. It is None where predictions differ, and where one answer is right for all lines.
        """
        gold, predicted = sides(lines)
        if len(lines) < 2:
            return None

        predictions_differ = any(answer != predicted[0] for answer in predicted)
        gold_is_constant = all(answer == gold[0] for answer in gold)
        if predictions_differ or gold_is_constant:
            return None
        return repr(predicted[0])

    # One line

    def is_right(self, line: Line) -> bool | None:
        """Returns whether a line is right as a whole; None where that is no question (scores)."""
        return bool(field(line, "gold") == field(line, "prediction"))

    def rights(self, lines: Lines) -> Sequence[bool] | Bools:
        """Returns whether each line is right as a whole."""
        return [bool(self.is_right(line)) for line in lines]

    def is_error(self, line: Line) -> bool:
        """Returns whether a line is an error to look at."""
        return self.is_right(line) is False

    def confidence(self, line: Line) -> float | None:
        """Returns the probability of the line's prediction; None if the line has no probability.

        `probabilities` is a mapping by label name or a list by choice. Other tasks have the
        `probability` of their prediction alone.
        """
        probabilities = line.get("probabilities")
        prediction = line["prediction"]
        if isinstance(probabilities, Mapping):
            return float(probabilities.get(prediction, 0.0))
        if isinstance(probabilities, Sequence):
            return float(probabilities[prediction])

        probability = line.get("probability")
        if probability is None:
            return None
        return float(probability)

    def error_order(self) -> ErrorOrder:
        """Returns how errors are ranked."""
        return ErrorOrder()

    def gravity(self, line: Line) -> float | None:
        """Returns the number that errors are ranked by, from the largest absolute value down.

        `error_order` names it: the loss of the line, or the confidence of its prediction.
        """
        if self.error_order().column == "loss":
            return float(line.get("loss", 0.0))
        return self.confidence(line)

    def shown(self, line: Line) -> tuple[str, str, str]:
        """Returns input, gold answer and prediction of a line, as a person reads them.

        The input is missing if the line has none.
        """
        return self.shown_input(line), str(line["gold"]), str(line["prediction"])

    def shown_input(self, line: Line) -> str:
        """Returns the columns that were read, one below the other."""
        return "\n".join(str(line[name]) for name in self.texts if line.get(name) is not None)

    # Groups of lines

    def unit_positions(self, lines: Lines) -> Sequence[int]:
        """Returns the position of one line for each thing that metrics count.

        Here each line is counted. A task overrides this where metrics count something that is in
        several lines, such as a search query with several right texts.
        """
        return range(len(lines))

    def labels_of(self, line: Line) -> list[str] | None:
        """Returns the gold labels that a slice `label=NAME` goes by.

        None where the task has no labels.
        """
        return None

    def of_label(self, lines: Lines, name: str, label: str) -> Contributions | None:
        """Returns precision, recall or F1 of a label against all else; None for other metrics.

        Args:
            lines: Labelled prediction lines; at least one has the label.
            name: Name of the metric.
            label: Name of the label.

        Raises:
            UsageError: The metric is not defined, as the label was never answered.
        """
        return None

    def group_score(self, lines: Lines) -> tuple[str, Contributions]:
        """Returns the score that groups of lines are compared by, and its name for a person.

        It is the first of the task's metrics that these lines determine.

        Raises:
            ValueError: They determine none.
        """
        for metric in self.metrics:
            by_line = self.contributions(lines, metric.name)
            if by_line is not None:
                return metric.name.replace("_", " "), by_line
        raise ValueError("these lines determine no metric")

    def outcome(self, lines: Lines) -> Outcome:
        """Returns the report's section of what was right: counts and scores by label, confusions.

        Here it has a title and no content.
        """
        return Outcome("Answers")

    def stated(self, lines: Lines) -> tuple[Floats, Bools] | None:
        """Returns (N,) probabilities of the answers, and (N,) whether the answers are right.

        It is None where lines have no probabilities, or where no answer is right or wrong (scores).
        """
        pairs = [(self.confidence(line), self.is_right(line)) for line in lines]
        if not pairs or pairs[0][0] is None or pairs[0][1] is None:
            return None
        probabilities = np.array([probability or 0.0 for probability, _ in pairs])
        is_right = np.array([line_is_right for _, line_is_right in pairs], dtype=np.bool_)
        return np.clip(probabilities, 0.0, 1.0), is_right

    def distributions(self, lines: Lines) -> tuple[Floats, Bools] | None:
        """Returns (N, C) probabilities of the labels and which are right.

        It is None where lines don't give all of them.
        """
        return None

    def calibrated(self, lines: Lines) -> tuple[float, Floats, Bools] | None:
        """Returns a temperature fitted on these lines, and what `stated` would return with it.

        The second and third values are probabilities at this temperature, and whether each came
        true. The result is None for tasks and lines to which no temperature can be fitted, as here.
        """
        return None

    @classmethod
    def usage_snippet(cls, line: Line, auto_class: str) -> str:
        """Returns Python code that asks a trained model in plain transformers.

        Args:
            line: One of the model's, which shows whether its inputs are pairs.
            auto_class: The class of transformers that has the head.
        """
        pair = '{"text": "One sentence.", "text_pair": "Another one."}'
        if line.get("pair") is not None:
            example = pair
        else:
            example = '"A text."'
        return cls.usage.replace("{example}", example).replace("{auto_class}", auto_class)


def field(line: Line, key: str) -> Any:
    """Returns a field of a prediction line.

    Raises:
        DataError: The line lacks it.
    """
    if key not in line:
        message = f"a prediction line (id {line.get('id')!r}) has no '{key}'"
        raise DataError(
            message,
            remedy=f"Write the predictions again: {command('evaluate RUN', split='SPLIT')}.",
        )
    return line[key]


def accuracy(answers: Answers, lines: Lines) -> Contributions:
    """Returns the share of lines that are right."""
    return contributions.share(answers.rights(lines))


def clustered(by_line: Contributions, lines: Lines) -> Contributions:
    """Returns contributions with the clusters that lines name, if they name some.

    They stay as they are if they have clusters already, or if a row of theirs is not a line (it may
    be a token or a sentence).
    """
    rows_are_lines = len(by_line.rows) == len(lines)
    if by_line.clusters is not None or not rows_are_lines or "cluster" not in lines[0]:
        return by_line
    if isinstance(lines, ClassLines):
        return replace(by_line, clusters=lines.clusters)
    return replace(by_line, clusters=numbered([field(line, "cluster") for line in lines]))


def with_clusters(lines: Sequence[dict[str, Any]], clusters: Ints) -> Sequence[dict[str, Any]]:
    """Returns lines that name the (N,) clusters which their rows belong to."""
    if isinstance(lines, ClassLines):
        return replace(lines, clusters=clusters)
    numbered_lines = zip(lines, clusters.tolist(), strict=True)
    return [{**line, "cluster": cluster} for line, cluster in numbered_lines]


def sides(lines: Lines) -> tuple[list[Any], list[Any]]:
    """Returns the gold answers and the predictions."""
    if isinstance(lines, ClassLines):
        return lines.side("gold"), lines.side("prediction")
    return [field(line, "gold") for line in lines], [field(line, "prediction") for line in lines]
