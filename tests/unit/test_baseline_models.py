"""The simple models beside a run, against scikit-learn; what is said of a run beside them."""

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.preprocessing import StandardScaler

from bertctl.baselines.frozen import fit_classifier
from bertctl.baselines.kinds import (
    comparison_sentence,
    difference_document,
    is_full_score,
    verdict_on,
)
from bertctl.baselines.run_baselines import paired_comparison
from bertctl.baselines.sampling import stratified
from bertctl.baselines.word_counts import LinearModel, TextFeatures, WordTags
from bertctl.data.rows import Rows
from bertctl.metrics.paired import Difference, share_difference
from bertctl.modeling.classifiers import LOGISTIC, RIDGE, ClassifierSettings
from bertctl.run_documents.metrics_document import BaselineDifference
from bertctl.tasks.classification.class_answers import OneLabelAnswers

TEXTS = ["a fine film", "a dull film", "fine food", "dull dull food", "a fine fine day", "dull"]


def rows_of(texts, pairs=None):
    columns = {"text": texts}
    if pairs is not None:
        columns["pair"] = pairs
    ids = [str(i) for i in range(len(texts))]
    return Rows("train", columns, ids, "here")


def settings(n_outputs, *, classifier=LOGISTIC, multi_label=False):
    return ClassifierSettings(
        classifier, multi_label, n_outputs, False, (1e-3, 1e-2, 1e-1, 1.0), folds=3, seed=0
    )


def drawn(n_labels, n=240, size=6):
    rng = np.random.default_rng(n_labels)
    labels = rng.integers(0, n_labels, n)
    centres = rng.normal(size=(n_labels, size))
    return (centres[labels] + rng.normal(size=(n, size))).astype(np.float32), labels


@pytest.mark.parametrize("n_labels", [2, 4])
def test_the_frozen_classifier_is_scikit_learns_at_the_strength_that_was_chosen(n_labels):
    vectors, labels = drawn(n_labels)

    fitted = fit_classifier(vectors, labels, settings(n_labels))

    scaled = StandardScaler().fit_transform(vectors)
    theirs = LogisticRegression(C=fitted.strength, max_iter=1000, tol=1e-6).fit(scaled, labels)
    logits = fitted.logits(vectors).astype(np.float64)
    ours = np.exp(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))
    np.testing.assert_allclose(ours, theirs.predict_proba(scaled), atol=2e-3)


def test_the_frozen_classifier_of_scores_is_a_ridge():
    vectors, labels = drawn(3)
    scores = labels + 0.5

    fitted = fit_classifier(vectors, scores, settings(1, classifier=RIDGE))

    scaled = StandardScaler().fit_transform(vectors)
    theirs = Ridge(alpha=1 / fitted.strength).fit(scaled, scores)
    np.testing.assert_allclose(fitted.logits(vectors)[:, 0], theirs.predict(scaled), atol=1e-3)


def test_tfidf_is_scikit_learns():
    labels = np.array([1, 0, 1, 0, 1, 0])
    features = TextFeatures(rows_of(TEXTS))

    model = LinearModel(features.of(rows_of(TEXTS)), labels, 2, "single_label_classification")

    vectorizer = TfidfVectorizer(
        ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"(?u)\b\w+\b"
    )
    theirs = LogisticRegression(C=10).fit(vectorizer.fit_transform(TEXTS), labels)
    unseen = ["a fine dull night", "food"]
    probabilities = np.exp(model.logits(features.of(rows_of(unseen))))
    np.testing.assert_allclose(
        probabilities, theirs.predict_proba(vectorizer.transform(unseen)), atol=5e-3
    )


def test_a_label_without_training_rows_is_never_answered():
    labels = np.array([2, 0, 2, 0, 2, 0])
    features = TextFeatures(rows_of(TEXTS)).of(rows_of(TEXTS))

    logits = LinearModel(features, labels, 3, "single_label_classification").logits(features)

    assert logits.argmax(axis=1).tolist() == labels.tolist()


def test_each_of_several_labels_is_decided_by_itself_and_one_that_all_have_is_always_given():
    labels = np.array(
        [[1, 1, 0], [0, 1, 0], [1, 1, 0], [0, 1, 0], [1, 1, 0], [0, 1, 0]], dtype=np.float32
    )
    features = TextFeatures(rows_of(TEXTS)).of(rows_of(TEXTS))

    logits = LinearModel(features, labels, 3, "multi_label_classification").logits(features)

    assert ((logits > 0) == labels.astype(bool)).all()


def test_words_that_both_texts_of_a_pair_have_are_features_of_their_own():
    first = ["fine film", "dull film", "fine food", "dull food"] * 4
    second = ["fine", "fine", "food", "film"] * 4
    is_shared = np.array([1, 0, 1, 0] * 4)
    rows = rows_of(first, second)

    features = TextFeatures(rows).of(rows)

    logits = LinearModel(features, is_shared, 2, "single_label_classification").logits(features)
    assert logits.argmax(axis=1).tolist() == is_shared.tolist()


def test_texts_without_spaces_are_counted_by_characters():
    rows = rows_of(["这部电影很好", "这部电影很差", "食物很好", "食物很差"])

    features = TextFeatures(rows).of(rows)

    logits = LinearModel(features, np.array([1, 0, 1, 0]), 2, "single_label_classification").logits(
        features
    )
    assert logits.argmax(axis=1).tolist() == [1, 0, 1, 0]


def test_a_word_gets_its_most_frequent_tag_and_a_new_one_the_most_frequent_of_all():
    words = ["the", "film", "the", "film", "film", "Rome"]
    tags = WordTags(words, np.array([0, 1, 0, 1, 2, 2]), 4)

    answers = tags.logits(["film", "Rome", "new"]).argmax(axis=1)

    assert answers[:2].tolist() == [1, 2]
    assert tags.size == 3
    assert WordTags(["a", "b", "c"], np.array([1, 1, -100]), 2).logits(["c"]).argmax() == 1


def test_a_sample_has_each_labels_share_and_every_label():
    labels = np.array([0] * 700 + [1] * 290 + [2] * 9 + [3])

    chosen = stratified(labels, 100, seed=1)

    counts = np.bincount(labels[chosen])
    assert len(chosen) == len(set(chosen.tolist())) == 100
    assert abs(counts - np.array([70, 29, 1, 1])).max() <= 1
    assert counts.min() >= 1
    assert (chosen == stratified(labels, 100, seed=1)).all()
    assert (np.diff(chosen) > 0).all()
    assert len(stratified(labels, 5_000, seed=1)) == 1000


@pytest.mark.parametrize(
    ("gain", "low", "high", "higher_is_better", "verdict"),
    [
        (0.05, 0.01, 0.09, True, "better"),
        (0.05, 0.0, 0.10, True, "unclear"),
        (0.0, 0.0, 0.0, True, "not better"),
        (-0.05, -0.09, 0.01, True, "not better"),
        (-0.05, -0.09, -0.01, False, "better"),
        (0.05, 0.01, 0.09, False, "not better"),
    ],
)
def test_better_is_what_the_whole_interval_says(gain, low, high, higher_is_better, verdict):
    assert verdict_on(gain, low, high, higher_is_better=higher_is_better) == verdict


@pytest.mark.parametrize(
    ("gain", "sentence"),
    [
        (
            0.051,
            "test: beats TF-IDF with a linear model (accuracy 0.871) by 5.1 points, 95 % 3.1 "
            "to 7.1",
        ),
        (
            0.011,
            "test: not clearly better than TF-IDF with a linear model (accuracy 0.871): +1.1 "
            "points, "
            "95 % -0.9 to 3.1",
        ),
        (
            -0.051,
            "test: accuracy 0.820 is not above the 0.871 of TF-IDF with a linear model (a "
            "difference of -5.1 "
            "points, 95 % -7.1 to -3.1)",
        ),
    ],
)
def test_a_sentence_has_the_values_and_the_interval_in_points(gain, sentence):
    ends = (gain - 0.02, gain + 0.02)
    difference = Difference(
        gain,
        *ends,
        p=0.01,
        n=500,
        method="McNemar, exact",
        changed=40,
    )

    comparison = difference_document(difference, 0.871, ends, higher_is_better=True)

    assert (
        comparison_sentence(
            "tfidf", "test", "accuracy", BaselineDifference.model_validate(comparison)
        )
        == sentence
    )


def test_nothing_is_better_than_a_full_score():
    difference = Difference(
        0.0,
        -0.1,
        0.1,
        p=1.0,
        n=40,
        method="McNemar, exact",
        changed=0,
    )

    document = difference_document(difference, 1.0, (-0.1, 0.1), higher_is_better=True)
    comparison = BaselineDifference.model_validate(document)

    assert comparison.verdict == "not better"
    assert is_full_score(comparison, "accuracy")
    sentence = "validation: accuracy 1.000, and TF-IDF with a linear model has 1.000 too"
    assert comparison_sentence("tfidf", "validation", "accuracy", comparison) == sentence


def test_a_comparison_is_mcnemars_and_allows_for_the_choice_of_the_epoch():
    rng = np.random.default_rng(3)
    gold = rng.choice(["no", "yes"], 300)

    def lines(right):
        hits = rng.random(300) < right
        other = np.where(gold == "yes", "no", "yes")
        return [
            {"gold": g, "prediction": g if hit else o}
            for g, o, hit in zip(gold, other, hits, strict=True)
        ]

    ours = lines(0.9)
    theirs = lines(0.8)
    answers = OneLabelAnswers(("no", "yes"), "yes")

    once = paired_comparison(answers, ours, theirs, "accuracy", compared=1)
    of_three = paired_comparison(answers, ours, theirs, "accuracy", compared=3)

    rights = [
        np.array([line["gold"] == line["prediction"] for line in entry]) for entry in (ours, theirs)
    ]
    expected = share_difference(*rights)
    assert once["value"] == expected.value
    assert once["low"] == expected.low
    assert once["high"] == expected.high
    assert once["p"] == expected.p
    assert once["corrected"] == {"low": expected.low, "high": expected.high}
    assert of_three["corrected"]["low"] < expected.low
    assert of_three["corrected"]["high"] == expected.high
