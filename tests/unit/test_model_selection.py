"""Which weights a run keeps: those of the best evaluation, or their mean with others."""

from typing import Any, cast

import numpy as np
import pytest

from bertctl.inference.evaluate import SplitResult
from bertctl.metrics.contributions import loss
from bertctl.tasks.classification.text_classification import TextClassification
from bertctl.training.loop.loop import TrainingState
from bertctl.training.model_selection import average_entry, average_sentence
from tests.scoring import lines_of

N_ROWS = 60


def scored(n_right: int, mean_loss: float) -> SplitResult:
    """Returns scores of a split whose first answers are right, and whose other ones are wrong."""
    task = TextClassification(("bad", "good"), multi_label=False, separator=None, threshold=None)
    predictions = ["good"] * n_right + ["bad"] * (N_ROWS - n_right)
    lines = lines_of(["good"] * N_ROWS, predictions)
    of_rows = loss(np.full(N_ROWS, mean_loss), np.ones(N_ROWS))
    metrics = task.answers.score(lines, resamples=0, seed=0, thorough=False)
    metrics["loss"] = of_rows.metric(resamples=0, seed=0, thorough=False)
    unused = cast("Any", None)
    return SplitResult(
        task=task,
        decision={},
        rows=unused,
        features=unused,
        outputs=unused,
        lines=lines,
        losses=np.full(N_ROWS, mean_loss),
        loss=of_rows,
        metrics=metrics,
    )


@pytest.mark.parametrize(
    ("n_right", "mean_loss", "tie_breaker", "keeps_mean"),
    [
        pytest.param(51, 0.9, "first", True, id="better"),
        pytest.param(50, 0.4, "first", False, id="equal"),
        pytest.param(48, 0.4, "first", False, id="two rows worse"),
        pytest.param(51, 0.9, "loss", True, id="better, whatever the loss"),
        pytest.param(50, 0.4, "loss", True, id="equal, lower loss"),
        pytest.param(50, 0.5, "loss", False, id="equal, equal loss"),
        pytest.param(48, 0.4, "loss", True, id="two rows worse, lower loss"),
        pytest.param(48, 0.6, "loss", False, id="two rows worse, higher loss"),
        pytest.param(40, 0.4, "loss", False, id="clearly worse, lower loss"),
    ],
)
def test_the_lower_loss_decides_on_averaged_weights_where_the_score_may_be_chance(
    n_right: int, mean_loss: float, tie_breaker: str, keeps_mean: bool
) -> None:
    best = scored(50, 0.5)
    mean = scored(n_right, mean_loss)
    state = TrainingState(best_step=30, ranked=[(50 / 60, 30), (49 / 60, 20)])

    average = average_entry(mean, best, "accuracy", state, tie_breaker=tie_breaker)

    assert average["steps"] == [20, 30]
    assert average["value"] == n_right / N_ROWS
    assert average["best_value"] == 50 / N_ROWS
    assert average["kept"] is keeps_mean


@pytest.mark.parametrize(
    ("n_right", "keeps_mean", "verdict"),
    [
        (51, True, "the mean is kept"),
        (48, True, "the mean is kept, as its accuracy may be worse by chance"),
        (48, False, "the mean is not kept"),
    ],
)
def test_the_sentence_on_averaged_weights_says_why_a_lower_score_was_kept(
    n_right: int, keeps_mean: bool, verdict: str
) -> None:
    state = TrainingState(best_step=30, ranked=[(50 / 60, 30), (49 / 60, 20)])

    sentence = average_sentence(
        scored(n_right, 0.4),
        scored(50, 0.5),
        "accuracy",
        state,
        split="validation",
        keeps_mean=keeps_mean,
    )

    assert sentence == (
        f"the mean of the weights of steps 20, 30: validation accuracy {n_right / 60:.4f}, loss "
        f"0.4000; with those of step 30 alone: accuracy 0.8333, loss 0.5000; {verdict}"
    )
