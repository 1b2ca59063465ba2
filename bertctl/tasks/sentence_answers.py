"""What the similarity of two texts means: near their score, above a threshold, or before that of all other texts.

Lines of rows with scores have `gold` and `prediction`, the cosine. Those of pairs with labels have `gold_match` and
`match` beside it: whether the texts belong together, and whether the cosine says so. Those of a search have `ranks`,
at which the `relevant` right texts were found (at most the best 100), and the first of them as `prediction`.
"""

from functools import partial
from typing import Any, ClassVar

import numpy as np

from bertctl.metrics import classification, ranking, retrieval
from bertctl.metrics.contributions import Contributions, Metric
from bertctl.tasks.answers import BY_LOSS, Answers, ErrorOrder, Line, Lines, Outcome, accuracy, field
from bertctl.tasks.score_answers import pearson, spearman


def _of(kind: str, figure: Any, answers: "SentenceAnswers", lines: Lines) -> Contributions | None:
    return figure(answers, lines) if answers.kind(lines[0]) == kind else None


def _precision(_: Answers, lines: Lines) -> Contributions | None:
    gold, cosines = (np.array([[field(line, key)] for line in lines]) for key in ("gold_match", "prediction"))
    return ranking.ranking("average_precision", gold, cosines.astype(np.float64))


def _f1(_: Answers, lines: Lines) -> Contributions:
    gold, said = (np.array([field(line, key) for line in lines], dtype=np.int64) for key in ("gold_match", "match"))
    return classification.f1_of_labels(gold, said, n_labels=2, of=1)


def _mean(figure: retrieval.Figure, _: Answers, lines: Lines) -> Contributions:
    return retrieval.mean_of(figure, [(line["ranks"], line["relevant"]) for line in lines])


class SentenceAnswers(Answers):
    """How alike two texts are, or at which rank a text is found."""

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
        Metric("average_precision", partial(_of, "pairs", _precision), "mean precision of pairs by their cosine"),
        Metric("f1", partial(_of, "pairs", _f1), "F1 of pairs above the threshold"),
        Metric("accuracy", partial(_of, "pairs", accuracy), "pairs on the right side of the threshold"),
        *(
            Metric(name, partial(_of, "search", partial(_mean, figure)), what)
            for name, (figure, what) in retrieval.FIGURES.items()
        ),
    )

    @staticmethod
    def kind(line: Line) -> str:
        """Returns what a line is about: scores, pairs or search."""
        return "search" if "ranks" in line else "pairs" if "gold_match" in line else "scores"

    def constant_prediction(self, lines: Lines) -> str | None:
        """Returns the cosine that all pairs have: the vectors have collapsed; no question for a search."""
        near = [line for line in lines if line.get("ranks", True)]  # none are of a text that is alone with its label
        cosines = [float(line["similarity" if self.kind(line) == "search" else "prediction"]) for line in near]
        return f"about {np.mean(cosines):.3g}" if len(cosines) > 1 and np.std(cosines) < 1e-4 else None

    def is_right(self, line: Line) -> bool | None:
        """Returns whether the right text comes first, or the pair is on its side; a score is more or less near."""
        kind = self.kind(line)
        if kind == "scores":
            return None
        return bool(line["prediction"] == 1 if kind == "search" else line["match"] == line["gold_match"])

    def is_error(self, line: Line) -> bool:
        """Returns whether a line is an error to look at; of scores any may be."""
        return self.is_right(line) is not True

    def error_order(self) -> ErrorOrder:
        """Returns the order by loss."""
        return BY_LOSS

    def shown(self, line: Line) -> tuple[str, str, str]:
        """Returns the texts, what is right, and the cosine or the rank."""
        if self.kind(line) == "search":
            return self.shown_input(line), "rank 1", f"rank {line['prediction']}"
        gold = f"{line['gold']:g}" if isinstance(line["gold"], float) else str(line["gold"])
        return self.shown_input(line), gold, f"{float(line['prediction']):.3f}"

    def outcome(self, lines: Lines) -> Outcome:
        """Returns scores and cosines, to be drawn; or how often the right text is found at which rank."""
        if self.kind(lines[0]) != "search":
            is_scored = self.kind(lines[0]) == "scores"
            gold = [float(line["gold" if is_scored else "gold_match"]) for line in lines]
            points = [(each, float(line["prediction"])) for each, line in zip(gold, lines, strict=True)]
            return Outcome("Similarity", points=points, same_unit=not is_scored)
        names = ("1", "2 to 5", "6 to 10", "beyond")
        place = np.digitize([line["prediction"] for line in lines], [2, 6, 11])
        counts = np.bincount(place, minlength=4).tolist()
        rows = [[name, count, count / len(lines)] for name, count in zip(names, counts, strict=True)]
        return Outcome("Rank of the right text", ("rank", "queries", "share"), rows)
