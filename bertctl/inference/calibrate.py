"""`evaluate --calibrate` and `--threshold`.

Temperature and threshold are chosen on labelled rows and stored in the run.
"""

from typing import Any

import numpy as np

from bertctl.arrays import Array
from bertctl.errors import UsageError
from bertctl.inference.decision import ThresholdRule, fit_decision, read_decision
from bertctl.inference.score_run import score_splits
from bertctl.inference.trained_run import TrainedRun
from bertctl.metrics import calibration
from bertctl.progress import SILENT, Listener
from bertctl.runtime.launch import ALONE, Workers
from bertctl.tasks.classification.text_classification import TextClassification
from bertctl.writing import write_json


def calibrate_run(
    run: TrainedRun,
    *,
    split: str | None,
    calibrate: bool,
    rule: ThresholdRule | None,
    workers: Workers = ALONE,
    listener: Listener = SILENT,
) -> dict[str, Any]:
    """Chooses a temperature or threshold on a split, and stores the decision in the run.

    The files metrics.json and predictions stay as they are.

    Args:
        run: An opened run.
        split: Which; the first validation split when left out.
        calibrate: Whether to fit a temperature.
        rule: How to choose a threshold; None for none.
        workers: The processes that share the work; the first one writes.
        listener: Receives progress messages.

    Returns:
        `decision`, and the scores "before" and "after" it: `metrics`, `brier`, `calibration_error`
        (None with several labels) and `classwise_calibration_error`. They are computed on the rows
        on which the decision was chosen, so the scores after it are slightly optimistic.

    Raises:
        UsageError: The run's task has no such decision, or more than two labels of which one is
            chosen.
        DataError: Rows that set none.
    """
    task = TextClassification.of(run.task)
    if task is None:
        message = (
            f"`calibrate=True` and `threshold=` are for text-classification; {run.folder.path} is "
            f"a run of {run.task.name}"
        )
        raise UsageError(
            message,
            remedy="Leave them out; a question answerer has chosen its threshold in training.",
        )
    data = run.load_data([split] if split else None, listener=listener)
    name = split or data.validation_splits[0]
    result = score_splits(run, {name: data.splits[name]}, workers, listener)[name]
    decision_before = read_decision(run.folder)
    logits = result.outputs["logits"]
    gold = task.answers.targets(result.lines)
    decision = fit_decision(
        task,
        logits,
        gold,
        fitted_on=name,
        calibrate=calibrate,
        rule=rule,
        before=decision_before,
    )
    if workers.is_first:
        with run.folder.held():
            write_json(run.folder.decision, decision.as_json())
    decided = task.with_decision(decision.as_json())
    lines = decided.lines(result.outputs, result.features, result.rows)
    resamples = run.recipe.evaluation.bootstrap_resamples
    seed = run.recipe.training.seed
    scores_by_time = {
        "before": result.metrics,
        "after": decided.answers.score(lines, resamples=resamples, seed=seed),
    }
    metrics = {}
    for time, scores in scores_by_time.items():
        metrics[time] = {name: value.as_json() for name, value in scores.items()}

    # The errors "before" are those of the logits as the model gives them, even if the run had a
    # temperature already.
    temperatures = {"before": 1.0, "after": decision.temperature or 1.0}
    errors_by_time = {}
    for time, temperature in temperatures.items():
        errors_by_time[time] = _calibration_errors(
            logits, gold, temperature, multi_label=task.multi_label
        )
    errors = {}
    for name in errors_by_time["before"]:
        errors[name] = {time: by_name[name] for time, by_name in errors_by_time.items()}
    return {"decision": decision.as_json(), "metrics": metrics, **errors}


def _calibration_errors(
    logits: Array, gold: Array, temperature: float, *, multi_label: bool
) -> dict[str, float | None]:
    """Returns the calibration errors and the Brier score of logits at a temperature, by name.

    Args:
        logits: (N, C) of labelled rows.
        gold: (N,) label numbers; with several labels (N, C) 0 or 1.
        temperature: What logits are divided by.
        multi_label: Whether a row may have several labels. It then has no single answer whose
            probability could be checked, and `calibration_error` is None.
    """
    probabilities = calibration.scaled_probabilities(logits, temperature, multi_label=multi_label)
    calibration_error = None
    if multi_label:
        is_gold = gold
    else:
        is_gold = gold[:, None] == np.arange(logits.shape[1])  # (N, C)
        is_right = is_gold[np.arange(len(probabilities)), probabilities.argmax(axis=1)]
        calibration_error = calibration.expected_calibration_error(
            probabilities.max(axis=1), is_right
        )
    return {
        "calibration_error": calibration_error,
        "classwise_calibration_error": calibration.classwise_calibration_error(
            probabilities, is_gold
        ),
        "brier": calibration.brier_score(probabilities, is_gold, multi_label=multi_label),
    }
