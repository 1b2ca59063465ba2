"""What words of a text mean as an answer: extractive question answering."""

from functools import partial
from itertools import compress
from typing import Any, ClassVar

import numpy as np

from bertctl.arrays import Bools, Floats
from bertctl.metrics import contributions
from bertctl.metrics.contributions import Contributions, Metric
from bertctl.metrics.squad import (
    Version,
    answer_exact,
    best_threshold,
    counts_characters,
    raw_scores,
)
from bertctl.tasks.answers import Answers, Line, Lines, Outcome, Value, clustered, field, sides

NO_ANSWER = ""
"""The prediction that says that there is no answer."""


def raw(lines: Lines) -> tuple[Floats, Floats, Bools]:
    """Returns (N,) exact matches, (N,) F1, and (N,) whether each question has an answer.

    Lines without unanswerable questions are scored as SQuAD 1.1, others as 2.0.
    """
    gold, predicted = sides(lines)
    answerable = np.array([len(texts) > 0 for texts in gold], dtype=np.bool_)
    version: Version = 1 if answerable.all() else 2
    return *raw_scores(predicted, gold, version=version), answerable


def _exact(_: Any, lines: Lines, *, answerable: bool | None = None) -> Contributions | None:
    """Returns what each question adds to the share of exact matches.

    Args:
        lines: Labelled prediction lines.
        answerable: Whether to take questions with an answer or those without; None for all.
    """
    scored = _of_kind(lines, answerable)
    if scored is None:
        return None
    exact, _, lines_of_kind = scored
    return clustered(contributions.share(exact > 0), lines_of_kind)


def _f1(_: Any, lines: Lines, *, answerable: bool | None = None) -> Contributions | None:
    """Returns what each question adds to the mean F1.

    Args:
        lines: Labelled prediction lines.
        answerable: Whether to take questions with an answer or those without; None for all.
    """
    scored = _of_kind(lines, answerable)
    if scored is None:
        return None
    _, f1, lines_of_kind = scored
    return clustered(contributions.fraction(f1), lines_of_kind)


def _of_kind(lines: Lines, answerable: bool | None) -> tuple[Floats, Floats, Lines] | None:
    """Returns (n,) exact matches, (n,) F1 and the n lines of one kind of question.

    It is None if all questions have an answer, as then there is one kind only, or if none is of
    this kind.

    Args:
        lines: Labelled prediction lines.
        answerable: Whether to take questions with an answer or those without; None for all.
    """
    exact, f1, has_answer = raw(lines)
    if answerable is None:
        return exact, f1, lines
    is_of_kind = has_answer == answerable
    if has_answer.all() or not is_of_kind.any():
        return None
    return exact[is_of_kind], f1[is_of_kind], list(compress(lines, is_of_kind))


_has_answer_exact, _no_answer_exact = (partial(_exact, answerable=kind) for kind in (True, False))
_has_answer_f1, _no_answer_f1 = (partial(_f1, answerable=kind) for kind in (True, False))


class SpanAnswers(Answers):
    """Words of a text, or none: exact match and F1 as the official scorers of SQuAD have them."""

    task: ClassVar[str] = "question-answering"
    texts: ClassVar[tuple[str, ...]] = ("question", "context")
    checks: ClassVar[frozenset[str]] = frozenset({"answers"})
    in_windows: ClassVar[bool] = True
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric(
            "exact_match", _exact, "share of answers that equal a gold one, normalised as by SQuAD"
        ),
        Metric(
            "f1",
            _f1,
            "mean of the F1 of each answer's words (of its characters in scripts without spaces)",
        ),
        Metric(
            "has_answer_exact", _has_answer_exact, "exact_match of questions that have an answer"
        ),
        Metric("has_answer_f1", _has_answer_f1, "f1 of questions that have an answer"),
        Metric(
            "no_answer_exact", _no_answer_exact, "share of unanswerable questions left unanswered"
        ),
        Metric("no_answer_f1", _no_answer_f1, "the same: such a question is right or not"),
        Metric(
            "best_exact",
            None,
            "exact_match with the threshold that is best for these very questions",
        ),
        Metric("best_exact_thresh", None, "that threshold of the null odds", is_fraction=False),
        Metric("best_f1", None, "f1 with the threshold that is best for these very questions"),
        Metric("best_f1_thresh", None, "that threshold of the null odds", is_fraction=False),
    )

    def figures(self, lines: Lines) -> dict[str, float]:
        """Returns the best exact match and F1 that a threshold of the null odds can give.

        The thresholds are returned, too. The names are those of the official scorer of SQuAD 2.0:
        best_exact, best_exact_thresh, best_f1, best_f1_thresh. The result is empty if every
        question has an answer.
        """
        exact, f1, answerable = raw(lines)
        if answerable.all() or any("null_odds" not in line for line in lines):
            return {}
        odds = np.array([line["null_odds"] for line in lines], dtype=np.float64)
        answered = np.array([bool(line["prediction"]) for line in lines], dtype=np.bool_)
        thresholds: dict[str, float] = {}
        for name, scores in (("best_exact", exact), ("best_f1", f1)):
            best, threshold = best_threshold(
                scores,
                odds,
                answerable=answerable,
                answered=answered,
            )
            thresholds |= {name: best, f"{name}_thresh": threshold}
        return thresholds

    def losses(self, lines: Lines) -> None:
        """Returns None, as the lines don't tell the loss.

        The loss is a mean over windows, and the lines don't say how many there were.
        """
        return

    def baseline_answer(self, gold: Any) -> str:
        """Returns "no answer"."""
        return NO_ANSWER

    def constant_prediction(self, lines: Lines) -> None:
        """Returns None: answers are words of different texts."""
        return

    def is_right(self, line: Line) -> bool:
        """Returns whether the answer is a gold one, after normalisation."""
        gold = field(line, "gold")
        return (
            answer_exact(field(line, "prediction"), gold, by_characters=counts_characters([gold]))
            > 0
        )

    def shown(self, line: Line) -> tuple[str, str, str]:
        """Returns question and context, the different gold answers, and the answer."""
        gold = " | ".join(dict.fromkeys(line["gold"])) or "(no answer)"
        return self.shown_input(line), gold, line["prediction"] or "(no answer)"

    def outcome(self, lines: Lines) -> Outcome:
        """Returns a row per kind of question: with an answer, and without."""
        rows: list[list[Value]] = []
        answerable_by_name = {"all": None, "answerable": True, "unanswerable": False}
        for name, answerable in answerable_by_name.items():
            scored = _of_kind(lines, answerable)
            if scored:
                exact, f1, group = scored
                match = clustered(contributions.share(exact > 0), group).metric()
                interval = (match.low or 0.0, match.high or 0.0)
                unanswered = sum(not line["prediction"] for line in group) / len(group)
                mean_f1 = float(f1.mean())
                rows.append([name, len(group), match.value, interval, mean_f1, unanswered])
        if counts_characters(sides(lines)[0]):
            f1_name = "F1 of characters"
        else:
            f1_name = "F1"
        header = ("questions", "n", "exact match", "95 % interval", f1_name, "left unanswered")
        return Outcome("Answerable or not", header, rows)
