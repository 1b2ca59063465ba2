"""What a pretrained model's answers mean.

Masked words and pairs of sentences, document by document.
"""

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from bertctl.metrics import contributions
from bertctl.metrics.contributions import Contributions, Metric, Proportion, ratio_statistic
from bertctl.metrics.resampling import Statistic
from bertctl.tasks.answers import Answers, ErrorOrder, Line, Lines, Outcome, Value, field


class _Perplexity(Contributions):
    """Perplexity: e to the power of the mean loss. So are the ends of its interval."""

    def _interval(self, resamples: int, seed: int) -> tuple[float | None, float | None]:
        """Returns the interval of the mean loss, with e to the power of its ends."""
        sums, weights = self.rows.T
        mean_loss = replace(contributions.loss(sums, weights), clusters=self.clusters)
        ends = mean_loss._interval(resamples, seed)
        low, high = (None if end is None else float(np.exp(end)) for end in ends)
        return low, high


def _perplexity_statistic(rows_MS: Any) -> Statistic:
    """Returns perplexity as a function of how often each row counts in a resample."""
    mean_loss = ratio_statistic(rows_MS)
    return lambda counts: np.exp(mean_loss(counts))


def _ratio(lines: Lines, numerator: str, denominator: str) -> Contributions:
    """Returns what each line adds to the sum of one field divided by the sum of another."""
    rows = np.array(
        [(field(line, numerator), field(line, denominator)) for line in lines], dtype=np.float64
    )
    # Other metrics name rows that their interval takes into account though they did not occur, such
    # as a wrong answer where all are right. A ratio of any numbers names none.
    no_kinds = np.empty((0, 2))
    no_pairs_of_kinds = np.empty((0, 4))
    return Contributions(
        rows,
        family="ratio",
        make=ratio_statistic,
        unseen=no_kinds,
        possible=no_pairs_of_kinds,
    )


def _perplexity(_: Answers, lines: Lines) -> Contributions:
    """Returns what each document adds to perplexity: its loss, and how many tokens are masked."""
    # Not by `contributions.loss`: it leaves the second column out if each document has one masked
    # token, and `_Perplexity` needs both columns.
    loss_per_token = _ratio(lines, "masked_loss", "gold")
    return _Perplexity(
        loss_per_token.rows,
        family="statistic",
        make=_perplexity_statistic,
        unseen=loss_per_token.unseen,
        possible=loss_per_token.possible,
    )


def _share(lines: Lines, hits_key: str, count_key: str) -> Contributions:
    """Returns what each document adds to a share: right masked tokens of all masked ones, say.

    Args:
        lines: Prediction lines, one per document.
        hits_key: Field with how many were right.
        count_key: Field with how many there were.
    """
    ratio = _ratio(lines, hits_key, count_key)
    usual = max(1.0, float(np.median(ratio.rows[:, 1])))
    # For the interval, as (hits, trials): documents that could occur and perhaps did not, of usual
    # length with one wrong, or one right.
    unseen = np.array([(usual - 1, usual), (1, usual)])
    # For the comparison of two models: a token that only the first, or only the second has right.
    right = (1.0, 1.0)
    wrong = (0.0, 1.0)
    possible = np.array([(*right, *wrong), (*wrong, *right)])
    hits, trials = ratio.rows.T
    return replace(
        ratio,
        family="statistic",
        unseen=unseen,
        possible=possible,
        proportion=Proportion(hits, trials),
    )


def _masked_accuracy(_: Answers, lines: Lines) -> Contributions:
    """Returns what each document adds to the share of masked tokens that are predicted."""
    return _share(lines, "prediction", "gold")


def _order_accuracy(_: Answers, lines: Lines) -> Contributions | None:
    """Returns what each document adds to the share of pairs whose order is predicted right."""
    if "pairs" in lines[0]:
        return _share(lines, "pairs_right", "pairs")
    return None


class PretrainingAnswers(Answers):
    """Counts of a document: its masked tokens, its pairs, and how many the model predicts right.

    `gold` is how many tokens are masked, `prediction` for how many of them the model's likeliest
    token is the right one, and `masked_loss` the sum of their losses. `pairs` is how many pairs of
    sentences there are, `pairs_right` for how many of them the order is predicted right.
    """

    task: ClassVar[str] = "pretraining"
    texts: ClassVar[tuple[str, ...]] = ("text",)
    in_windows: ClassVar[bool] = True
    pipeline: ClassVar[str] = "fill-mask"
    tags: ClassVar[tuple[str, ...]] = ("pretraining",)
    usage: ClassVar[str] = """from transformers import pipeline

fill = pipeline("fill-mask", model=MODEL)
fill(f"I went to the {fill.tokenizer.mask_token}.")"""
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric(
            "perplexity",
            _perplexity,
            "of masked tokens: e to the power of their mean loss",
            higher_is_better=False,
            is_fraction=False,
        ),
        Metric("masked_accuracy", _masked_accuracy, "share of masked tokens named first"),
        Metric("order_accuracy", _order_accuracy, "share of pairs told to follow or not"),
    )

    def losses(self, lines: Lines) -> Contributions:
        """Returns what each document adds to the mean loss of a masked token."""
        weights = np.array([field(line, "gold") for line in lines], dtype=np.float64)
        sums = np.array([field(line, "masked_loss") for line in lines], dtype=np.float64)
        return contributions.loss(sums, weights)

    def baseline(self, constant: Any, lines: Lines) -> dict[str, float]:
        """Returns loss and perplexity of a guess by the frequencies of tokens alone.

        Args:
            constant: The loss of this guess in nats; None if it is not known.
            lines: Labelled lines, which are not needed here.
        """
        if constant is None:
            return {}
        return {"loss": float(constant), "perplexity": float(np.exp(constant))}

    def constant_prediction(self, lines: Lines) -> None:
        """Returns None: nothing is answered here."""
        return

    def is_right(self, line: Line) -> None:
        """Returns None: a document has many masked tokens, of which some are predicted right."""
        return

    def is_error(self, line: Line) -> bool:
        """Returns whether anything was masked: all are looked at, the worst first."""
        return bool(field(line, "gold"))

    def error_order(self) -> ErrorOrder:
        """Returns the order by loss."""
        return ErrorOrder("Documents with the highest loss", "the highest first", "loss", "{:.3f}")

    def shown(self, line: Line) -> tuple[str, str, str]:
        """Returns the text, how much was masked, and how much of it was named first."""
        return self.shown_input(line), f"{line['gold']} masked", f"{line['prediction']} right"

    def outcome(self, lines: Lines) -> Outcome:
        """Returns a table of the masked tokens, and of the pairs: their number, and how many right.

        Pairs are in it if the model predicts their order.
        """
        keys_by_name = {"masked tokens": ("prediction", "gold"), "pairs": ("pairs_right", "pairs")}
        rows: list[list[Value]] = []
        for name, (hits_key, count_key) in keys_by_name.items():
            if count_key in lines[0]:
                hits = sum(int(line[hits_key]) for line in lines)
                count = sum(int(line[count_key]) for line in lines)
                share = hits / count if count else None
                rows.append([name, count, hits, share])
        return Outcome("Masked tokens", ("what", "asked", "right", "share"), rows)
