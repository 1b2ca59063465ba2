"""What the similarity of two texts means.

It is near their score, above a threshold, or before that of all other texts.

A line is a row of the file. Lines of rows with scores have `gold` and `prediction`, the similarity
by the model's measure. Those of pairs with labels have `gold_match` beside it (whether the texts
belong together) and `match` (whether the similarity reaches the threshold; not there where no
threshold is known). Those of a search have `ranks`, at which the `relevant` right texts were found
(at most the best 100), the first of them as `prediction`, and `query`, the number of what was
searched for.

Units: scores and labels are of pairs, so of rows. What is searched is counted by query, however
many rows it has.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from bertctl.arrays import Bools, Floats, numbers_of
from bertctl.metrics import classification, ranking, retrieval
from bertctl.metrics.contributions import Contributions, Metric
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
)
from bertctl.tasks.regression.score_answers import pearson, spearman


def _of(kind: str, figure: Any, answers: "SentenceAnswers", lines: Lines) -> Contributions | None:
    """Returns what each line adds to a metric of one kind of lines; None for another kind.

    Args:
        kind: `scores`, `pairs` or `search`.
        figure: Function of answers and lines that returns what each line adds.
        answers: What the lines mean.
        lines: Labelled prediction lines.
    """
    if answers.kind(lines[0]) == kind:
        contributions: Contributions = figure(answers, lines)
        return contributions
    return None


def _gold_and_similarities(lines: Lines) -> tuple[Bools, Floats]:
    """Returns (N,) which pairs belong together, and their similarities."""
    gold = np.array([field(line, "gold_match") for line in lines], dtype=np.bool_)
    similarities = np.array([field(line, "prediction") for line in lines], dtype=np.float64)
    return gold, similarities


def _average_precision(_: Answers, lines: Lines) -> Contributions | None:
    """Returns what each pair adds to the average precision of "belongs together"."""
    gold, similarities = _gold_and_similarities(lines)
    return ranking.ranking("average_precision", gold[:, None], similarities[:, None])


def _f1(_: Answers, lines: Lines) -> Contributions | None:
    """Returns what each pair adds to the F1 of "belongs together".

    It is None without `match`: no similarity was chosen from which pairs belong together.
    """
    if "match" not in lines[0]:
        return None
    gold = _gold_and_similarities(lines)[0]
    predicted = np.array([field(line, "match") for line in lines], dtype=np.int64)
    belongs_together = 1  # as a label number; 0: the pair does not
    return classification.f1_of_labels(
        gold.astype(np.int64),
        predicted,
        n_labels=2,
        of=belongs_together,
    )


def _accuracy(answers: Answers, lines: Lines) -> Contributions | None:
    """Returns what each pair adds to accuracy; None without a threshold of the similarity."""
    if "match" in lines[0]:
        return accuracy(answers, lines)
    return None


def _mean(figure: retrieval.Figure, answers: Answers, lines: Lines) -> Contributions:
    """Returns what each query adds to the mean of a retrieval figure.

    Queries without a relevant text have no ranks, and don't count.
    """
    queries = [lines[position] for position in answers.unit_positions(lines)]
    mean = retrieval.mean_of(figure, [(line["ranks"], line["relevant"]) for line in queries])
    answerable = [line for line in queries if line["ranks"]]
    if answerable:
        return clustered(mean, answerable)
    return mean


class SentenceAnswers(Answers):
    """How alike two texts are, or at which rank a text is found."""

    task: ClassVar[str] = "sentence-embeddings"
    texts: ClassVar[tuple[str, ...]] = ("text", "pair")
    columns: ClassVar[tuple[str, ...]] = ("text", "pair", "negative")
    pipeline: ClassVar[str] = "sentence-similarity"
    tags: ClassVar[tuple[str, ...]] = ("sentence-transformers", "feature-extraction")
    usage: ClassVar[str] = """from sentence_transformers import SentenceTransformer

model = SentenceTransformer(MODEL)
vectors = model.encode(["One sentence.", "Another one."])
model.similarity(vectors, vectors)"""
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric("spearman", partial(_of, "scores", spearman), "Spearman rank correlation"),
        Metric("pearson", partial(_of, "scores", pearson), "Pearson correlation, -1 to 1"),
        Metric(
            "average_precision",
            partial(_of, "pairs", _average_precision),
            "mean precision of pairs by similarity",
        ),
        Metric("f1", partial(_of, "pairs", _f1), "F1 of pairs above the threshold"),
        Metric(
            "accuracy", partial(_of, "pairs", _accuracy), "pairs on the right side of the threshold"
        ),
        Metric(
            "best_f1",
            None,
            "f1 with the threshold that is best for these very pairs",
            is_detail=True,
        ),
        Metric(
            "best_accuracy",
            None,
            "accuracy with the threshold that is best for these very pairs",
            is_detail=True,
        ),
        *(
            Metric(name, partial(_of, "search", partial(_mean, figure)), what)
            for name, (figure, what) in retrieval.FIGURES.items()
        ),
    )

    @staticmethod
    def kind(line: Line) -> str:
        """Returns what a line is about: scores, pairs or search."""
        if "ranks" in line:
            return "search"
        if "gold_match" in line:
            return "pairs"
        return "scores"

    def figures(self, lines: Lines) -> dict[str, float]:
        """Returns F1 and accuracy of pairs at the threshold that is best for these very pairs.

        These figures are those of sentence-transformers' `BinaryClassificationEvaluator`. The
        result is empty for scores and for a search.
        """
        if self.kind(lines[0]) != "pairs":
            return {}
        return retrieval.best_of_pairs(*_gold_and_similarities(lines))

    def unit_positions(self, lines: Lines) -> Sequence[int]:
        """Returns the positions of the first line of each query; every line of pairs."""
        if self.kind(lines[0]) != "search":
            return range(len(lines))
        # A line that names neither query nor text is a query of its own.
        queries = [
            line.get("query", line.get("text", position)) for position, line in enumerate(lines)
        ]
        numbers, _ = numbers_of(queries)
        first_positions: Sequence[int] = np.unique(numbers, return_index=True)[1].tolist()
        return first_positions

    def constant_prediction(self, lines: Lines) -> str | None:
        """Returns the similarity that all lines have, as a text: "about 0.98". None if they differ.

        If all are equal, the vectors have collapsed to one.
        """
        # A query without a right text has no similarity to one.
        comparable = [line for line in lines if line.get("ranks", True)]
        if self.kind(lines[0]) == "search":
            key = "similarity"
        else:
            key = "prediction"
        similarities = [float(line[key]) for line in comparable]
        # Rounding makes similarities of equal vectors differ a little.
        if len(similarities) < 2 or np.std(similarities) >= 1e-4:
            return None
        return f"about {np.mean(similarities):.3g}"

    def is_right(self, line: Line) -> bool | None:
        """Returns whether a query finds a relevant text first, or a pair is classified rightly.

        It is None for a line that is neither right nor wrong: a pair with a score, whose similarity
        is only more or less near to it; a pair, if no threshold tells which pairs match; or a query
        without a relevant text.
        """
        kind = self.kind(line)
        if kind == "scores":
            return None
        if kind == "search":
            if line["ranks"]:
                return bool(line["prediction"] == 1)
            return None
        if "match" in line:
            return bool(line["match"] == line["gold_match"])
        return None

    def is_error(self, line: Line) -> bool:
        """Returns whether a line is an error to look at.

        A pair that is neither right nor wrong always is: its similarity may be far off.
        """
        if self.kind(line) == "search" and not line["ranks"]:
            return False
        return self.is_right(line) is not True

    def error_order(self) -> ErrorOrder:
        """Returns the order by loss."""
        return BY_LOSS

    def shown(self, line: Line) -> tuple[str, str, str]:
        """Returns the texts, what is right, and the similarity or the rank."""
        if self.kind(line) == "search":
            return self.shown_input(line), "rank 1", f"rank {line['prediction']}"
        if isinstance(line["gold"], float):
            gold = f"{line['gold']:g}"
        else:
            gold = str(line["gold"])
        return self.shown_input(line), gold, f"{float(line['prediction']):.3f}"

    def outcome(self, lines: Lines) -> Outcome:
        """Returns points (gold score, similarity) to draw; for a search, ranks of the answers."""
        kind = self.kind(lines[0])
        if kind == "search":
            return self._rank_outcome(lines)

        gold_key = "gold" if kind == "scores" else "gold_match"
        points = [(float(line[gold_key]), float(line["prediction"])) for line in lines]
        return Outcome("Similarity", points=points, same_unit=kind != "scores")

    def _rank_outcome(self, lines: Lines) -> Outcome:
        """Returns how many queries have the right text at which rank."""
        names = ("1", "2 to 5", "6 to 10", "beyond")
        bin_starts = [2, 6, 11]  # of all bins but the first
        queries = [lines[position] for position in self.unit_positions(lines)]
        ranks = [line["prediction"] for line in queries if line["ranks"]]
        bins = np.digitize(ranks, bin_starts)
        counts = np.bincount(bins, minlength=len(names)).tolist()
        rows = [
            [name, count, count / max(1, len(ranks))]
            for name, count in zip(names, counts, strict=True)
        ]
        return Outcome("Rank of the right text", ("rank", "queries", "share"), rows)
