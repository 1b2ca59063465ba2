"""Exact match and F1 against values worked out by hand.

They are also compared with a second, slower reading of SQuAD's definitions.
"""

import math
import re
import string

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertctl.metrics.squad import (
    answer_exact,
    answer_f1,
    best_threshold,
    chosen_threshold,
    normalized_answer,
    raw_scores,
)
from tests.scoring import answer_metrics, official_scores


def _plain(text):
    """Word by word.

    Punctuation out first, so that "U.S." is one word, then articles, then blanks.
    """
    without_punctuation = "".join(c for c in text.lower() if c not in set(string.punctuation))
    parts = re.split(r"(\W+)", without_punctuation)
    without_articles = "".join(" " if part in ("a", "an", "the") else part for part in parts)
    return " ".join(without_articles.split())


def _f1_by_hand(prediction, gold, version):
    best = 0.0
    references = [_plain(text) for text in gold]
    if version == 2:
        references = [text for text in references if text]
    for reference in references or [""]:
        message = _plain(prediction).split()
        right = reference.split()
        if not message or not right:
            score = float(message == right) if version == 2 else 0.0
        else:
            left = list(right)
            common = 0
            for word in message:
                if word in left:
                    left.remove(word)
                    common += 1
            score = 2 * common / (len(message) + len(right))
        best = max(best, score)
    return best


_WORDS = st.lists(
    st.sampled_from(["the", "A", "an", "red", "Red!", "car", "U.S.", "-", "theatre", "don't", "é"]),
    max_size=5,
)
_TEXTS = _WORDS.map(" ".join)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The  U.S. Army", "us army"),
        ("an apple, a day", "apple day"),
        ("theatre of A", "theatre of"),
        ("it's", "its"),
        ("a-b", "ab"),
        ("“quoted”", "“quoted”"),  # only ASCII punctuation goes
        ("\tThe\n", ""),
    ],
)
def test_answers_are_normalised_as_the_official_scorer_does(text, normal):
    assert normalized_answer(text) == normal


@settings(max_examples=200, deadline=None)
@given(prediction=_TEXTS, gold=st.lists(_TEXTS, max_size=3), version=st.sampled_from([1, 2]))
def test_any_answer_scores_as_the_slow_reading_has_it(prediction, gold, version):
    assert normalized_answer(prediction) == _plain(prediction)
    assert answer_f1(prediction, gold, version=version) == pytest.approx(
        _f1_by_hand(prediction, gold, version)
    )
    references = [_plain(t) for t in gold if version == 1 or _plain(t)] or [""]
    assert answer_exact(prediction, gold, version=version) == float(
        _plain(prediction) in references
    )


def test_the_best_of_several_gold_answers_counts():
    assert answer_f1("the red car", ["blue house", "a red bus"]) == pytest.approx(0.5)
    assert answer_f1("red red car", ["red car car"]) == pytest.approx(2 / 3)
    assert answer_exact("The Red Car!", ["blue", "red car"]) == 1.0


def test_unanswerable_questions_want_an_empty_answer():
    assert answer_exact("", []) == 1.0
    assert answer_f1("", []) == 1.0
    assert answer_exact("red", []) == 0.0
    assert answer_f1("red", []) == 0.0
    assert answer_exact("", ["red"]) == 0.0
    assert answer_f1("", ["red"]) == 0.0


def test_a_gold_answer_of_which_nothing_is_left_differs_by_version():
    assert answer_f1("the", ["The"], version=1) == 0.0
    assert answer_exact("the", ["The"], version=1) == 1.0
    assert answer_f1("", ["The"], version=2) == 1.0
    assert answer_f1("red", ["The", "red"], version=2) == 1.0


@pytest.mark.parametrize(
    ("prediction", "gold", "expected"),
    [
        ("奥斯陆", "奥斯陆", 1.0),
        ("奥斯陆市", "奥斯陆", 6 / 7),
        ("奥斯陆。", "「奥斯陆」", 1.0),
        ("1998年5月", "1998年", 2 / 3),  # 1998 and 年
        ("東京タワー", "東京", 4 / 7),
        ("กรุงเทพ", "กรุงเทพมหานคร", 12 / 18),
        ("พื้น", "พื้นที่", 4 / 5),
        ("Windows 系统", "系统", 0.8),
        ("", "奥斯陆", 0.0),
    ],
)
def test_answers_in_scripts_without_spaces_are_compared_by_characters(prediction, gold, expected):
    exact, f1 = raw_scores([prediction], [[gold]], version=1)
    assert f1[0] == pytest.approx(expected)
    assert exact[0] == float(expected == 1.0)


def test_english_answers_are_compared_as_ever_whatever_stands_between():
    """A name in Chinese letters is one word, and quotation marks count.

    The official scorer has it so.
    """
    gold = [["the Yuan dynasty (大元)"], ["大元"], ["Kublai Khan"], ["“Great Khan”"]]
    predictions = ["大元", "大", "Khan", "Great Khan"]
    exact, f1 = raw_scores(predictions, gold, version=1)
    by_hand = [_f1_by_hand(p, g, 1) for p, g in zip(predictions, gold, strict=True)]
    assert f1.tolist() == pytest.approx(by_hand)
    assert f1.tolist() == pytest.approx([0.5, 0.0, 2 / 3, 0.0])
    assert not exact.any()


def test_metrics_of_answerable_questions_are_two():
    metrics = answer_metrics(
        ["red car", "blue"], [["a red bus", "red car"], ["green"]], resamples=200, seed=1
    )
    assert {name: metric.value for name, metric in metrics.items()} == {
        "exact_match": 0.5,
        "f1": 0.5,
    }
    assert metrics["f1"].n == 2
    assert 0 <= metrics["f1"].low < 0.5 < metrics["f1"].high <= 1


def test_metrics_with_unanswerable_questions_have_both_parts_and_thresholds():
    predictions = ["red", "blue car", "green", ""]
    gold = [["red"], ["blue"], [], []]
    metrics = answer_metrics(
        predictions, gold, null_odds=[-3.0, -1.0, 2.0, 5.0], resamples=200, seed=1
    )
    values = {name: metric.value for name, metric in metrics.items()}
    assert values.pop("f1") == pytest.approx((1 + 2 / 3 + 0 + 1) / 4)
    assert values.pop("has_answer_f1") == pytest.approx((1 + 2 / 3) / 2)
    assert values.pop("best_f1") == pytest.approx((1 + 2 / 3 + 1 + 1) / 4)
    assert values == {
        "exact_match": 0.5,
        "has_answer_exact": 0.5,
        "no_answer_exact": 0.5,
        "no_answer_f1": 0.5,
        "best_exact": 0.75,
        # answering the first alone is as good as answering two: the first best one is told
        "best_exact_thresh": -3.0,
        "best_f1_thresh": -1.0,
    }
    assert metrics["no_answer_f1"].n == 2
    assert metrics["f1"].n == 4


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.booleans(), st.sampled_from([0.0, 0.5, 1.0]), st.integers(-30, 30)),
        min_size=1,
        max_size=12,
    )
)
def test_no_threshold_is_better_than_the_best_one(rows):
    answerable = np.array([row[0] for row in rows])
    scores = np.array([row[1] if row[0] else 0.0 for row in rows])
    odds = np.array(
        [row[2] + i / 100 for i, row in enumerate(rows)]
    )  # all different: ties are the order's
    answered = np.ones(len(rows), dtype=bool)

    def at(threshold):
        return np.where(odds > threshold, ~answerable, scores).mean()

    best, threshold = best_threshold(scores, odds, answerable=answerable, answered=answered)
    tried = [at(t) for t in [odds.min() - 1, *odds]]
    assert best == pytest.approx(max(tried))
    assert at(threshold) == pytest.approx(best) or threshold == 0.0
    assert at(chosen_threshold(scores, odds, answerable=answerable)) == pytest.approx(best)


def test_a_stored_threshold_lies_between_two_questions():
    odds = np.array([-4.0, -2.0, 3.0])
    stored = chosen_threshold(
        np.array([1.0, 1.0, 0.0]), odds, answerable=np.array([True, True, False])
    )
    assert stored == 0.5


def test_official_names_and_percentages():
    gold = {"q1": ["red"], "q2": ["blue car"], "q3": []}
    predictions = {"q1": "Red.", "q2": "car", "q3": "green"}
    scores = official_scores(
        predictions, {"q1": ["red"], "q2": ["blue car"], "q4": ["x"]}, version=1
    )
    assert scores == pytest.approx(
        {"exact_match": 100 / 3, "f1": 100 * (1 + 2 / 3) / 3}
    )  # q4 has no prediction: 0
    two = official_scores(
        predictions, gold, null_odds={"q3": 4.0, "q1": -2.0, "q2": 0.5}, version=2
    )
    assert two == pytest.approx(
        {
            "exact": 200 / 3,  # odds of 4.0 are above the scorer's own threshold of 1.0
            "f1": 100 * (1 + 2 / 3 + 1) / 3,
            "total": 3,
            "HasAns_exact": 50,
            "HasAns_f1": 100 * (1 + 2 / 3) / 2,
            "HasAns_total": 2,
            "NoAns_exact": 100,
            "NoAns_f1": 100,
            "NoAns_total": 1,
            "best_exact": 200 / 3,
            "best_exact_thresh": -2.0,
            "best_f1": 100 * (1 + 2 / 3 + 1) / 3,
            "best_f1_thresh": 0.5,
        }
    )
    without_odds = official_scores(predictions, gold, version=2)
    assert without_odds["NoAns_exact"] == 0
    assert "best_f1" not in without_odds
    left_out = official_scores(
        {"q1": "red"}, gold, version=2
    )  # 2.0 leaves questions without a prediction out
    assert left_out["exact"] == 100
    assert left_out["total"] == 1


def test_wholly_right_answers_still_have_an_interval():
    metrics = answer_metrics(["red"] * 40, [["red"]] * 40, resamples=200, seed=1)
    assert metrics["f1"].value == metrics["f1"].high == 1.0
    assert 0.8 < metrics["f1"].low < 0.95
    assert math.isclose(metrics["exact_match"].low, 0.9124, abs_tol=1e-3)
