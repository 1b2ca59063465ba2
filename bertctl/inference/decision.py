"""What `evaluate --calibrate` and `--threshold` chose on labelled rows.

It is RUN/decision.json, applied by `predict`.

    {"schema": 1, "temperature": 1.63, "threshold": 0.41, "positive": "spam", "fitted_on":
    "validation", "n": 872}

`temperature` divides logits before they become probabilities; `threshold` is where the probability
of `positive`, one of two labels, counts as that label. With several labels per example the
threshold holds for each of them, and `positive` is null. What was not chosen is null, or missing.
Training on questions that may have no answer writes `null_threshold` into the same file: the null
odds from which there is none.
"""

import contextlib
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, ValidationError

from bertctl.arrays import Array, Bools, Floats
from bertctl.errors import UnavailableError, UsageError
from bertctl.metrics import calibration
from bertctl.run_folder import SCHEMA, RunFolder
from bertctl.tasks.classification.text_classification import TextClassification
from bertctl.words import command


class Decision(BaseModel):
    """How logits become probabilities, and from which probability a label counts."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    temperature: PositiveFloat | None = None
    """What logits are divided by; None where it was not fitted."""
    threshold: Annotated[float, Field(ge=0, le=1)] | None = None
    """Probability from which the positive label, or with several labels any label, counts; None:
    0.5."""
    positive: str | None = None
    """The label that the threshold is about; None with several labels, or without a threshold."""
    fitted_on: str
    """The split it was chosen on."""
    n: int = 0
    """Examples of that split; 0 where the file does not say."""
    selected_on: dict[str, dict[str, str]] = {}
    """The splits that chose what was left as it was when `fitted_on` chose the rest, as
    metrics.json has them."""
    null_threshold: float | None = None
    """Null odds from which a question has no answer; None for other tasks."""
    cosine_threshold: float | None = None
    """Cosine from which two texts belong together; None for other tasks."""

    def as_json(self) -> dict[str, Any]:
        """Returns the layout of decision.json, which `Task.with_decision` takes too."""
        optional = ("selected_on", "null_threshold", "cosine_threshold")
        unused = {name for name in optional if getattr(self, name) in (None, {})}
        return {"schema": SCHEMA, **self.model_dump(exclude=unused)}

    def used(self) -> dict[str, float]:
        """Returns what scores and answers depend on, as metrics.json has it of each split."""
        names = {"temperature", "threshold", "null_threshold", "cosine_threshold"}
        return self.model_dump(include=names, exclude_none=True)

    def selected(self) -> dict[str, dict[str, str]]:
        """Returns on which split temperature and threshold were chosen, as metrics.json has it.

        If both were: `{"temperature": {"split": "validation"}, "threshold": {"split": "dev"}}`.
        """
        chosen = {"temperature": self.temperature, "threshold": self.threshold}
        split_of = {name: {"split": self.fitted_on} for name in chosen} | self.selected_on
        return {name: split_of[name] for name, value in chosen.items() if value is not None}


@dataclass(frozen=True)
class ThresholdRule:
    """How a threshold is chosen: for F1, or for recall at a precision that new examples keep.

    Attributes:
        precision: The least precision on new examples; None for F1.
    """

    precision: float | None = None

    def choose(self, probability: Floats, gold: Bools) -> float:
        """Returns the threshold by this rule.

        Args:
            probability: (N,) of yes.
            gold: (N,) whether yes is right.

        Raises:
            DataError: None fits.
        """
        if self.precision is None:
            return calibration.modest_f1_threshold(probability, gold)
        return calibration.sure_precision_threshold(probability, gold, self.precision).value


def parse_rule(text: str) -> ThresholdRule:
    """Reads `f1` or `precision=0.9`, as typed after `--threshold`.

    "precision=0.9" becomes `ThresholdRule(0.9)`, and "f1" `ThresholdRule()`.

    Raises:
        UsageError: Anything else.
    """
    if text == "f1":
        return ThresholdRule()
    with contextlib.suppress(ValueError):
        precision = float(text.removeprefix("precision="))
        if text.startswith("precision=") and 0 < precision < 1:
            return ThresholdRule(precision)
    raise UsageError(
        f"`threshold={text!r}` is not a rule for a threshold",
        remedy="Type `threshold=f1` for the best F1, or `threshold=precision=0.9` for the best "
        "recall at a precision that new examples keep, 0.9 at least.",
    )


def fit_decision(
    task: TextClassification,
    logits: Array,
    gold: Array,
    *,
    fitted_on: str,
    calibrate: bool,
    rule: ThresholdRule | None,
    before: Decision | None = None,
) -> Decision:
    """Returns the run's decision with a new temperature, a new threshold, or both.

    A threshold is about the calibrated probabilities, so the temperature is fitted first. Scores of
    the same examples with this decision are a little too good; those of another split are not.

    Args:
        task: Names the C labels, and says whether an example can have several of them.
        logits: (N, C) of labelled rows that the model was not trained on.
        gold: (N,) label numbers; with several labels (N, C) 0 or 1.
        fitted_on: Name of the split.
        calibrate: Whether to fit the temperature.
        rule: How to choose the threshold; None for none.
        before: The run's decision so far; None without one. What is not fitted now stays as it is
            in there. If only the temperature is new, the threshold is moved with it, so that the
            model gives the same answers as before.

    Raises:
        UsageError: A threshold for more than two labels of which one is to be chosen.
        DataError: Rows that set no temperature, or a rule that no threshold meets.
    """
    labels = task.labels
    multi_label = task.multi_label
    if rule is not None and not multi_label and len(labels) != 2:
        message = (
            "`threshold=` needs two labels, or several for each example; this run chooses one of "
            f"{len(labels)}"
        )
        raise UsageError(
            message,
            remedy="Leave `threshold=` out; `calibrate=True` works with any number of labels.",
        )
    decision = before or Decision(fitted_on=fitted_on)
    # `null_threshold` is for question answering, and this function for classification.
    changes: dict[str, Any] = {"fitted_on": fitted_on, "n": len(logits), "null_threshold": None}
    # `selected_on` records on which split a temperature or threshold of `before` was chosen, if it
    # stays.
    is_new = {"temperature": calibrate, "threshold": rule is not None}
    changes["selected_on"] = {
        name: split for name, split in decision.selected().items() if not is_new[name]
    }
    if calibrate:
        temperature = calibration.fit_temperature(logits, gold, multi_label=multi_label)
        changes["temperature"] = temperature
        if decision.threshold is not None:
            from scipy.special import expit, logit

            # The threshold becomes the new probability of the logit at which it was, so that each
            # row is decided as before.
            scale = (decision.temperature or 1.0) / temperature
            changes["threshold"] = float(expit(logit(decision.threshold) * scale))
    if rule is not None:
        temperature = changes.get("temperature", decision.temperature) or 1.0
        probabilities = calibration.scaled_probabilities(
            logits, temperature, multi_label=multi_label
        )
        if multi_label:
            positive = None  # one threshold is for all labels
        else:
            positive = task.positive or labels[1]
        yes_probabilities, is_yes = _yes_answers(task, positive, probabilities, np.asarray(gold))
        changes |= {"threshold": rule.choose(yes_probabilities, is_yes), "positive": positive}
    return decision.model_copy(update=changes)


def _yes_answers(
    task: TextClassification, positive: str | None, probabilities: Floats, gold: Array
) -> tuple[Floats, Bools]:
    """Returns the probabilities that a threshold decides about, and for which of them yes is right.

    There is one for each row: that of the positive label. With several labels per row there is one
    for each label of each row.

    Args:
        task: Names the labels.
        positive: The positive one of two labels; None with several labels per row.
        probabilities: (N, C) of the labels.
        gold: (N,) label numbers; with several labels (N, C) 0 or 1.
    """
    if positive is None:
        return probabilities.ravel(), (gold == 1).ravel()
    number = task.labels.index(positive)
    return probabilities[:, number], gold == number


def read_decision(folder: RunFolder) -> Decision | None:
    """Returns the run's decision; None where nothing was chosen.

    Raises:
        UnavailableError: The file is there and is no decision.
    """
    if not folder.decision.is_file():
        return None
    try:
        return Decision.model_validate(folder.read(folder.decision))
    except ValidationError as error:
        message = f"{folder.decision} is not a decision that this version can read"
        remedy = (
            f"Delete it, then choose again: `{command('evaluate', folder.path, calibrate=True)}`."
        )
        raise UnavailableError(message, remedy=remedy) from error
