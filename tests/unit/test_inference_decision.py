"""RUN/decision.json: what is chosen, and that it comes back as it was written."""

import numpy as np
import pytest

from bertctl.errors import DataError, UnavailableError, UsageError
from bertctl.inference.decision import (
    Decision,
    ThresholdRule,
    fit_decision,
    parse_rule,
    read_decision,
)
from bertctl.metrics.calibration import fit_temperature, modest_f1_threshold, scaled_probabilities
from bertctl.reporting.report import decision_words
from bertctl.run_folder import RunFolder
from bertctl.tasks.classification.text_classification import TextClassification
from bertctl.writing import write_json


def _binary(n=400, seed=0):
    rng = np.random.default_rng(seed)
    gold = rng.integers(0, 2, n)
    return np.stack([np.zeros(n), rng.normal(4 * gold - 3, 3)], axis=1), gold


def _fit(
    logits,
    gold,
    *,
    calibrate,
    rule,
    labels=("ham", "spam"),
    multi_label=False,
    before=None,
    on="validation",
):
    task = TextClassification(labels, multi_label, None, 0.5)
    return fit_decision(
        task, logits, gold, fitted_on=on, calibrate=calibrate, rule=rule, before=before
    )


@pytest.mark.parametrize(
    ("text", "rule"),
    [("f1", ThresholdRule()), ("precision=0.9", ThresholdRule(0.9))],
)
def test_rules_as_typed(text, rule):
    assert parse_rule(text) == rule


@pytest.mark.parametrize(
    "text",
    [
        "",
        "F1",
        "recall=0.9",
        "precision",
        "precision=",
        "precision=0",
        "precision=1",
        "precision=nan",
        "precision=high",
        "0.5",
        "f1=0.5",
    ],
)
def test_what_is_no_rule_is_refused_with_both_that_are(text):
    with pytest.raises(UsageError) as refusal:
        parse_rule(text)
    assert "`threshold=f1`" in refusal.value.remedy
    assert "precision=0.9" in refusal.value.remedy


def test_a_threshold_cuts_the_calibrated_probabilities():
    logits, gold = _binary()
    decision = _fit(logits, gold, calibrate=True, rule=ThresholdRule())
    assert decision.temperature == fit_temperature(logits, gold)
    probability = scaled_probabilities(logits, decision.temperature)[:, 1]
    assert decision.threshold == modest_f1_threshold(probability, gold)
    assert decision.positive == "spam"
    assert decision.fitted_on == "validation"
    assert decision.n == 400


def test_a_new_threshold_keeps_an_old_temperature():
    logits, gold = _binary()
    first = _fit(logits, gold, calibrate=True, rule=ThresholdRule())

    again = _fit(logits, gold, calibrate=False, rule=ThresholdRule(0.8), before=first)

    assert again.temperature == first.temperature
    assert again.threshold > first.threshold


def test_an_old_threshold_decides_as_before_under_a_new_temperature():
    logits, gold = _binary()
    calibrated = _fit(logits, gold, calibrate=True, rule=ThresholdRule())
    alone = _fit(logits, gold, calibrate=False, rule=ThresholdRule())

    both = _fit(logits, gold, calibrate=True, rule=None, before=alone)

    assert both.temperature == calibrated.temperature
    assert both.positive == "spam"
    decided = [
        scaled_probabilities(logits, entry.temperature or 1.0)[:, 1] >= entry.threshold - 1e-12
        for entry in (alone, both)
    ]
    assert (decided[0] == decided[1]).all()


def test_what_is_kept_is_still_of_the_split_that_chose_it():
    logits, gold = _binary()
    on_test = _fit(logits, gold, calibrate=False, rule=ThresholdRule(), on="test")
    assert "selected_on" not in on_test.as_json()
    both = Decision.model_validate(
        _fit(logits, gold, calibrate=True, rule=None, before=on_test).as_json()
    )
    assert both.selected() == {
        "temperature": {"split": "validation"},
        "threshold": {"split": "test"},
    }
    moved = _fit(
        logits,
        gold,
        calibrate=False,
        rule=ThresholdRule(),
        before=both,
        on="confirm",
    )
    assert moved.selected() == {
        "temperature": {"split": "validation"},
        "threshold": {"split": "confirm"},
    }
    anew = _fit(logits, gold, calibrate=True, rule=ThresholdRule(), before=moved)
    assert anew.selected() == {
        "temperature": {"split": "validation"},
        "threshold": {"split": "validation"},
    }
    assert "(fitted on 400 examples of validation; the threshold on test)" in decision_words(both)


def test_several_labels_share_one_threshold_and_no_label_is_the_positive_one():
    rng = np.random.default_rng(1)
    gold = rng.random((300, 3)) < 0.3
    logits = np.where(gold, 1.0, -1.5) + rng.normal(0, 1.5, gold.shape)
    decision = _fit(
        logits, gold, labels=("a", "b", "c"), multi_label=True, calibrate=True, rule=ThresholdRule()
    )
    assert decision.positive is None
    assert 0 < decision.threshold < 1


def test_one_of_three_labels_has_no_threshold_but_a_temperature():
    rng = np.random.default_rng(2)
    logits = rng.normal(0, 3, (100, 3))
    gold = rng.integers(0, 3, 100)
    gold[:60] = logits[:60].argmax(axis=1)
    assert _fit(logits, gold, labels=("a", "b", "c"), calibrate=True, rule=None).temperature > 1
    with pytest.raises(UsageError, match="one of 3"):
        _fit(
            logits,
            gold,
            labels=("a", "b", "c"),
            calibrate=False,
            rule=ThresholdRule(),
        )


def test_rows_without_the_positive_label_choose_nothing():
    logits, _ = _binary(20)
    with pytest.raises(DataError, match="no example has the label"):
        _fit(logits, np.zeros(20, dtype=int), calibrate=False, rule=ThresholdRule())


def test_it_comes_back_as_it_was_written(tmp_path):
    folder = RunFolder.create(tmp_path / "run")
    assert read_decision(folder) is None
    decision = Decision(
        temperature=1.5, threshold=0.25, positive="spam", fitted_on="validation", n=872
    )
    write_json(folder.decision, decision.as_json())
    assert (tmp_path / "run" / "decision.json").is_file()
    assert read_decision(folder) == decision


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"temperature": "warm"}',
        "[]",
        "not json",
        '{"schema":1,"temperature":-1,"threshold":null,"positive":null,"fitted_on":"v","n":1}',
        '{"schema":1,"temperature":null,"threshold":2.0,"positive":"a","fitted_on":"v","n":1}',
    ],
)
def test_a_damaged_file_is_refused_not_ignored(tmp_path, text):
    folder = RunFolder.create(tmp_path / "run")
    (tmp_path / "run" / "decision.json").write_text(text)
    with pytest.raises(UnavailableError, match=r"decision\.json"):
        read_decision(folder)


def test_what_training_on_questions_chose_is_read_too(tmp_path):
    folder = RunFolder.create(tmp_path / "run")
    folder.decision.write_text('{"schema": 1, "null_threshold": -1.5, "fitted_on": "validation"}')
    decision = read_decision(folder)
    assert decision == Decision(fitted_on="validation", null_threshold=-1.5)
    write_json(folder.decision, decision.as_json())
    assert read_decision(folder) == decision
