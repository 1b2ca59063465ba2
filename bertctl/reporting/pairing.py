"""Two runs on the same examples.

It is the difference of a metric, paired by id, or of their metrics alone, unpaired.
"""

from collections.abc import Sequence

from bertctl.errors import DataError, UsageError
from bertctl.metrics.contributions import Contributions
from bertctl.metrics.paired import Difference, unpaired_difference
from bertctl.reporting.runs import FinishedRun, aligned
from bertctl.tasks.answers import Answers, Line
from bertctl.tasks.registry import answer_type
from bertctl.words import command, listing, natural_order


class UnlikeRunsError(UsageError):
    """Two runs that were asked different things: of other tasks, or with other labels."""


def refuse_other_task(ours: FinishedRun, theirs: FinishedRun) -> None:
    """Refuses runs of different tasks, as far as their tasks are known.

    Raises:
        UnlikeRunsError: they are.
    """
    if None not in (ours.task, theirs.task) and ours.task != theirs.task:
        message = (
            f"{ours.path} and {theirs.path} are of different tasks: {ours.task} and {theirs.task}"
        )
        raise UnlikeRunsError(message, remedy="Compare runs of one task, on the same data.")


class Pair:
    """Compares a run with another, example by example.

    Args:
        ours: The run.
        theirs: The run that it is compared with.
        split: Split that is scored in both.
        lines: Prediction lines of our run.
        their_lines: Prediction lines of theirs, in any order.

    Raises:
        UnlikeRunsError: other tasks or labels.
        UsageError: other data.
    """

    def __init__(
        self,
        ours: FinishedRun,
        theirs: FinishedRun,
        split: str,
        *,
        lines: list[Line],
        their_lines: list[Line],
    ) -> None:
        refuse_other_task(ours, theirs)
        names = (str(ours.path), str(theirs.path))
        self.ours = ours
        self.theirs = theirs
        self.split = split
        self.task = str(ours.task)
        self.lines = lines
        self.answers = _common_answers(self.task, lines, their_lines, names)
        self.their_lines = aligned(lines, their_lines, names=names)
        # Whether all answers and losses are equal: then both runs are the same model.
        self.one_model = _is_one_model(lines, self.their_lines)

    def difference(self, name: str) -> Difference:
        """Returns our metric minus theirs, paired by example.

        For two runs of the same model it is 0 with an interval of 0: more examples would not make
        them different.

        Raises:
            UsageError: the metric can't be computed from predictions.
            DataError: predictions that don't give the value in metrics.json.
        """
        ours = self._contributions(self.ours, self.lines, name)
        theirs = self._contributions(self.theirs, self.their_lines, name)
        if self.one_model:
            return Difference(
                value=0.0,
                low=0.0,
                high=0.0,
                p=1.0,
                n=len(ours.rows),
                method="the same answers with the same losses",
                changed=0,
            )
        return ours.difference(theirs)

    def _contributions(self, run: FinishedRun, lines: Sequence[Line], name: str) -> Contributions:
        """Returns what each example adds to a run's metric, once it fits metrics.json."""
        contributions = self.answers.contributions(lines, name)
        if contributions is None:
            raise not_computable(name, self.task)
        written = run.metric(self.split, name).value
        if not contributions.agrees_with(written):
            raise DataError(
                f"{run.path}: its predictions of '{self.split}' give {name} "
                f"{contributions.value:.4f}, its metrics.json says {written:.4f}",
                remedy=f"Score it again: {command('evaluate', run.path, split=self.split)}. Or "
                f"compare without pairing: give {run.path / 'metrics.json'}.",
            )
        return contributions


def not_computable(name: str, task: str) -> UsageError:
    """Returns the refusal of a metric that prediction lines don't give."""
    return UsageError(
        f"{name} can't be computed from the predictions of a {task} run, example by example",
        remedy="For a comparison without pairing give the run's metrics.json; slices need a metric "
        "of the task's own.",
    )


def unpaired(ours: FinishedRun, theirs: FinishedRun, split: str, name: str) -> Difference | None:
    """Returns the difference of two metrics as if of different examples; None without intervals.

    Raises:
        UsageError: the metric is not there, or stands on another number of examples, so on other
            data.
    """
    a = ours.metric(split, name)
    b = theirs.metric(split, name)
    if a.n != b.n:
        message = (
            f"{ours.path} and {theirs.path} were scored on different data: {name} has {a.n} "
            f"and {b.n} examples"
        )
        raise UsageError(message, remedy="Score both on the same split of the same data.")
    if None in (a.low, a.high, b.low, b.high):
        return None
    return unpaired_difference(a, b)


def _common_answers(
    task: str, ours: Sequence[Line], theirs: Sequence[Line], names: tuple[str, str]
) -> Answers:
    """Returns what the answers of two runs mean, from the lines of both.

    Args:
        task: Task of both runs.
        ours: Prediction lines of the run.
        theirs: Prediction lines of the run that it is compared with.
        names: What to call the two in an error.

    Raises:
        UnlikeRunsError: Other labels, or another positive label.
    """
    kind = answer_type(task)
    our_labels = _labels(kind, ours)
    their_labels = _labels(kind, theirs)
    has_other_labels = set(our_labels) != set(their_labels)
    if has_other_labels or kind.from_lines(ours).positive != kind.from_lines(theirs).positive:
        only_ours = [name for name in our_labels if name not in their_labels] or our_labels
        only_theirs = [name for name in their_labels if name not in our_labels] or their_labels
        message = (
            f"{names[0]} and {names[1]} have different labels: {listing(only_ours)} and "
            f"{listing(only_theirs)}"
        )
        remedy = "Compare models that answer with the same labels and the same positive one."
        raise UnlikeRunsError(message, remedy=remedy)
    return kind.from_lines([*ours, *theirs])


def _labels(kind: type[Answers], lines: Sequence[Line]) -> Sequence[str]:
    """Returns the labels of a model, if its lines name all of them with their probabilities.

    Else it returns those that occur, such as types of entities.
    """
    answers = kind.from_lines(lines)
    if "probabilities" in lines[0]:
        return answers.labels
    occurring = set[str]()
    for line in lines:
        occurring.update(answers.labels_of(line) or ())
    return sorted(occurring, key=natural_order)


def _is_one_model(ours: Sequence[Line], theirs: Sequence[Line]) -> bool:
    """Returns whether two runs are the same model: all answers and losses are equal."""
    return all(
        "loss" in a and a["prediction"] == b["prediction"] and a["loss"] == b.get("loss")
        for a, b in zip(ours, theirs, strict=True)
    )
