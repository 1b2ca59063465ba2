"""What `evaluate --calibrate` and `--threshold` chose on labelled rows: RUN/decision.json, applied by `predict`.

    {"schema": 1, "temperature": 1.63, "threshold": 0.41, "positive": "spam", "fitted_on": "validation", "n": 872}

`temperature` divides logits before they become probabilities; `threshold` is where the probability of `positive`, the
second of two labels, counts as that label. With several labels per example the threshold holds for each of them, and
`positive` is null. What was not chosen is null, or missing. Training on questions that may have no answer writes
`null_threshold` into the same file: the null odds from which there is none.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bertctl.errors import UnavailableError, UsageError
from bertctl.metrics.calibration import (
    Threshold,
    best_f1_threshold,
    fit_temperature,
    precision_threshold,
    scaled_probabilities,
)
from bertctl.run_folder import SCHEMA, RunFolder, write_json
from bertctl.tasks.text_classification import TextClassification


@dataclass(frozen=True)
class Decision:
    """How logits become probabilities, and from which probability a label counts.

    Attributes:
        temperature: that logits are divided by; None where it was not fitted.
        threshold: probability from which the positive label, or with several labels any label, counts; None: 0.5.
        positive: the label that the threshold is about; None with several labels, or without a threshold.
        fitted_on: the split it was chosen on.
        n: examples of that split; 0 where the file does not say.
        null_threshold: null odds from which a question has no answer; None for other tasks.
    """

    temperature: float | None
    threshold: float | None
    positive: str | None
    fitted_on: str
    n: int = 0
    null_threshold: float | None = None

    def as_json(self) -> dict[str, Any]:
        """Returns the layout of decision.json, which `Task.with_decision` takes too."""
        fields = asdict(self)
        if self.null_threshold is None:
            del fields["null_threshold"]
        return {"schema": SCHEMA, **fields}


@dataclass(frozen=True)
class ThresholdRule:
    """What `--threshold` asks for.

    Attributes:
        kind: the best F1, or the best recall at a precision.
        floor: the precision, where it is asked for.
    """

    kind: Literal["f1", "precision"]
    floor: float | None = None

    def choose(self, probability: NDArray[np.float64], gold: NDArray[np.bool_]) -> Threshold:
        """Returns the threshold by this rule.

        Args:
            probability: (N,) of yes.
            gold: (N,) whether yes is right.

        Raises:
            DataError: none fits.
        """
        if self.floor is None:
            return best_f1_threshold(probability, gold)
        return precision_threshold(probability, gold, self.floor)


def parse_rule(text: str) -> ThresholdRule:
    """Reads `f1` or `precision=0.9`, as typed after `--threshold`.

    Raises:
        UsageError: anything else.
    """
    name, equals, number = text.partition("=")
    if text == "f1":
        return ThresholdRule("f1")
    try:
        floor = float(number)
    except ValueError:
        floor = -1.0
    if name == "precision" and equals and 0 < floor <= 1:
        return ThresholdRule("precision", floor)
    raise UsageError(
        f"--threshold {text!r} is no rule for a threshold",
        remedy="Type `--threshold f1` for the best F1, or `--threshold precision=0.9` for the best recall at a "
        "precision of at least 0.9.",
    )


def fit_decision(
    task: TextClassification,
    logits: NDArray[np.floating[Any]],
    gold: NDArray[np.generic],
    *,
    fitted_on: str,
    calibrate: bool,
    rule: ThresholdRule | None,
    before: Decision | None = None,
) -> Decision:
    """Chooses a temperature, a threshold, or both: the threshold then applies to the calibrated probabilities.

    Scores of the same examples with this decision are a little too good; those of another split are not.

    Args:
        task: names the C labels, and says whether an example can have several of them.
        logits: (N, C) of labelled rows that the model was not trained on.
        gold: (N,) label numbers; with several labels (N, C) 0 or 1.
        fitted_on: name of the split.
        calibrate: whether to fit the temperature.
        rule: how to choose the threshold; None for none.
        before: the run's decision so far; a temperature in it stays where `calibrate` is off, a threshold of it is
            dropped with a new temperature.

    Raises:
        UsageError: a threshold for more than two labels of which one is to be chosen.
        DataError: rows that set no temperature, or a rule that no threshold meets.
    """
    labels, multi_label = task.labels, task.multi_label
    if rule is not None and not multi_label and len(labels) != 2:
        raise UsageError(
            f"--threshold needs two labels, or several for each example; this run chooses one of {len(labels)}",
            remedy="Leave --threshold out; --calibrate works with any number of labels.",
        )
    kept = before.temperature if before else None
    temperature = fit_temperature(logits, gold, multi_label=multi_label) if calibrate else kept
    threshold, positive = (before.threshold, before.positive) if before and not calibrate else (None, None)
    if rule is not None:
        probabilities = scaled_probabilities(logits, temperature or 1.0, multi_label=multi_label)
        if multi_label:
            threshold, positive = (
                rule.choose(probabilities.ravel(), np.asarray(gold, dtype=np.bool_).ravel()).value,
                None,
            )
        else:
            threshold, positive = rule.choose(probabilities[:, 1], np.asarray(gold) == 1).value, labels[1]
    return Decision(temperature, threshold, positive, fitted_on, len(logits))


def write_decision(folder: RunFolder, decision: Decision) -> Path:
    """Stores the decision in the run; `predict` and `evaluate` apply it from then on.

    Raises:
        UnavailableError: the place can't be written.
    """
    write_json(folder.decision, decision.as_json())
    return folder.decision


def read_decision(folder: RunFolder) -> Decision | None:
    """Returns the run's decision; None where nothing was chosen.

    Raises:
        UnavailableError: the file is there and is no decision.
    """
    if not folder.decision.is_file():
        return None
    document = folder.read(folder.decision)
    try:
        given = {name: document[name] for name in Decision.__dataclass_fields__ if name in document}
        decision = Decision(**{"temperature": None, "threshold": None, "positive": None, **given})
        fits = (decision.temperature is None or decision.temperature > 0) and (
            decision.threshold is None or 0 <= decision.threshold <= 1
        )
    except (KeyError, TypeError):
        fits = False
    if not fits:
        raise UnavailableError(
            f"{folder.decision} is not a decision that this version can read",
            remedy=f"Delete it, then choose again: `bertctl evaluate {folder.path} --calibrate`.",
        )
    return decision
