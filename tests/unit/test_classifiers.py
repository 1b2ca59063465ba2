"""The linear classifiers of a probe, against scikit-learn's own pipeline."""

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bertctl.errors import DataError
from bertctl.modeling.classifiers import (
    ClassifierSettings,
    choose_strength,
    fit,
    fit_mix,
    layer_mean,
)

STRENGTHS = (1e-3, 1e-2, 1e-1, 1.0)


def settings(n_outputs: int = 2, **more: object) -> ClassifierSettings:
    fields = {
        "classifier": "logistic-regression",
        "multi_label": False,
        "balanced": False,
        "folds": 5,
        "seed": 3,
    }
    fields["stratify"] = n_outputs > 1 and not more.get("multi_label")
    return ClassifierSettings(**(fields | {"n_outputs": n_outputs, "strengths": STRENGTHS} | more))


def accuracy(labels: np.ndarray):
    """Of labels that exclude each other, or (N, C) of several: the share of right decisions."""
    if labels.ndim == 2:
        return lambda logits: ((logits > 0) == labels).mean()
    return lambda logits: (logits.argmax(axis=1) == labels).mean()


def problem(
    n_labels: int, *, n: int = 600, size: int = 12, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of unequal spread and place, and labels that a linear function half explains."""
    rng = np.random.default_rng(seed)
    independent = rng.normal(size=(n, size))
    mixing = rng.normal(size=(size, size))
    spreads = np.geomspace(0.1, 10, size)
    vectors = (independent @ mixing * spreads + 5).astype("f4")
    weights = rng.normal(size=(size, n_labels))
    logits = StandardScaler().fit_transform(vectors) @ weights
    noise = rng.gumbel(size=logits.shape)
    return vectors, (logits + noise).argmax(axis=1)


@pytest.mark.parametrize(("n_labels", "balanced"), [(2, True), (3, False)])
def test_the_strength_is_chosen_as_by_cross_validation_with_scikit_learn(n_labels, balanced):
    vectors, labels = problem(n_labels)
    folds = StratifiedKFold(5, shuffle=True, random_state=3)
    weight = "balanced" if balanced else None
    theirs = [
        cross_val_score(
            make_pipeline(
                StandardScaler(), LogisticRegression(C=c, class_weight=weight, max_iter=1000)
            ),
            vectors,
            labels,
            cv=folds,
        ).mean()
        for c in STRENGTHS
    ]
    assert max(theirs) - min(theirs) > 0.01, "the premise: the strength matters"
    strength, score = choose_strength(
        vectors, labels, settings(n_labels, balanced=balanced), accuracy(labels)
    )
    assert score == pytest.approx(max(theirs), abs=0.006)
    assert theirs[STRENGTHS.index(strength)] == pytest.approx(max(theirs), abs=0.006)


@pytest.mark.parametrize("n_labels", [2, 3])
def test_weights_for_plain_vectors_answer_as_the_pipeline_does(n_labels):
    vectors, labels = problem(n_labels)
    pipeline = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=1000, tol=1e-8))
    theirs = pipeline.fit(vectors, labels).predict_proba(vectors)
    fitted = fit(vectors, labels, 0.1, settings(n_labels))
    assert fitted.weight.shape == (n_labels, 12)
    np.testing.assert_allclose(softmax(fitted.logits(vectors), axis=1), theirs, atol=2e-3)


def test_ridge_predicts_scores_as_the_pipeline_does():
    vectors, _ = problem(2)
    scores = vectors @ np.linspace(-1, 1, 12) + 40
    ridge = settings(1, classifier="ridge")

    ours = fit(vectors, scores, 0.5, ridge).logits(vectors)[:, 0]

    pipeline = make_pipeline(StandardScaler(), Ridge(alpha=2.0))
    theirs = pipeline.fit(vectors, scores).predict(vectors)
    np.testing.assert_allclose(ours, theirs, rtol=1e-3)


def test_the_strength_of_ridge_is_chosen_by_r2():
    vectors, _ = problem(2)
    scores = vectors @ np.linspace(-1, 1, 12) + 40

    def r2(logits: np.ndarray) -> float:
        squared_errors = (logits[:, 0] - scores) ** 2
        return 1 - squared_errors.mean() / scores.var()

    strength, score = choose_strength(vectors, scores, settings(1, classifier="ridge"), r2)

    assert strength == 1.0
    assert score > 0.99


@pytest.mark.parametrize("n_labels", [2, 3])
def test_ridge_learns_labels_too(n_labels):
    vectors, labels = problem(n_labels)
    chosen, score = choose_strength(
        vectors, labels, settings(n_labels, classifier="ridge"), accuracy(labels)
    )
    fitted = fit(vectors, labels, chosen, settings(n_labels, classifier="ridge"))
    right = (fitted.logits(vectors).argmax(axis=1) == labels).mean()
    assert right == pytest.approx(score, abs=0.08)
    assert right > 0.7


def test_several_labels_are_as_many_decisions():
    vectors, first = problem(2)
    _, second = problem(2, seed=1)
    labels = np.stack([first, 1 - first, second], axis=1)
    several = settings(3, multi_label=True)
    strength, score = choose_strength(vectors, labels, several, accuracy(labels))
    fitted = fit(vectors, labels, strength, several)
    right = (fitted.logits(vectors) > 0) == labels
    assert fitted.weight.shape == (3, 12)
    assert right[:, 0].mean() == right[:, 1].mean() > 0.8
    assert score == pytest.approx(right.mean(), abs=0.08)


def test_each_of_several_labels_is_balanced_by_itself_in_choosing_too():
    vectors, common = problem(2)
    rare = np.where(np.arange(len(common)) % 6, 0, problem(2, seed=1)[1])
    labels = np.stack([common, rare], axis=1)

    def recall(logits: np.ndarray) -> float:
        return float((logits[labels[:, 1] == 1, 1] > 0).mean())

    plain = settings(2, multi_label=True)
    balanced = settings(2, multi_label=True, balanced=True)
    fold_of_row = plain.folds_of(labels, None).fold_of_row
    best_recall = 0.0
    for strength in STRENGTHS:
        classifier = LogisticRegression(C=strength, class_weight="balanced", max_iter=1000)
        n_recalled = 0
        for fold in range(5):
            is_held_out = fold_of_row == fold
            is_positive = is_held_out & (rare == 1)
            pipeline = make_pipeline(StandardScaler(), classifier)
            pipeline.fit(vectors[~is_held_out], rare[~is_held_out])
            n_recalled += pipeline.predict(vectors[is_positive]).sum()
        best_recall = max(best_recall, n_recalled / rare.sum())

    _, balanced_recall = choose_strength(vectors, labels, balanced, recall)
    _, plain_recall = choose_strength(vectors, labels, plain, recall)

    assert balanced_recall == pytest.approx(best_recall, abs=0.05)
    assert plain_recall < best_recall - 0.2, "the premise: it makes a difference"


@pytest.mark.parametrize("classifier", ["logistic-regression", "ridge"])
def test_of_several_labels_one_that_all_rows_have_is_always_answered_and_one_of_none_never(
    classifier,
):
    vectors, first = problem(2)
    labels = np.stack([first, np.ones_like(first), np.zeros_like(first)], axis=1)
    several = settings(3, multi_label=True, classifier=classifier)
    strength, score = choose_strength(vectors, labels, several, accuracy(labels))
    answers = fit(vectors, labels, strength, several).logits(vectors) > 0
    assert score > 0.9
    assert answers[:, 1].all()
    assert not answers[:, 2].any()


def test_a_label_that_no_row_has_is_never_the_answer():
    vectors, labels = problem(2)
    fitted = fit(vectors, labels * 2, 0.1, settings(4))
    assert set(fitted.logits(vectors).argmax(axis=1)) == {0, 2}


@pytest.mark.parametrize(
    ("rare", "folds", "sentences"),
    [
        (5, 5, []),
        (3, 3, ["cross-validation: 3 folds instead of 5, as the label 'rare' has 3 training rows"]),
        (2, 2, ["cross-validation: 2 folds instead of 5, as the label 'rare' has 2 training rows"]),
        (
            1,
            5,
            [
                "cross-validation: 1 label with a single training row ('rare'), which stays in "
                "training in every fold"
            ],
        ),
    ],
)
def test_there_are_as_many_folds_as_the_rarest_label_allows(
    rare: int, folds: int, sentences: list[str]
) -> None:
    vectors, labels = problem(2)
    labels[:] = np.arange(len(labels)) % 2
    labels[:rare] = 2
    three = settings(3, labels=("usual", "other", "rare"))

    found = three.folds_of(labels, None)
    strength, score = choose_strength(vectors, labels, three, accuracy(labels))

    assert found.number == folds
    assert found.sentences() == sentences
    assert found.is_held_out[:rare].all() == (rare > 1)
    assert strength in STRENGTHS
    assert np.isfinite(score)


@pytest.mark.parametrize("classifier", ["logistic-regression", "ridge"])
def test_a_row_in_no_fold_keeps_its_group_in_training(classifier: str) -> None:
    _, labels = problem(2)
    labels[0] = 2
    groups = np.arange(len(labels))
    groups[1] = groups[0]

    found = settings(3, classifier=classifier).folds_of(labels, groups)

    assert not found.is_held_out[:2].any()
    assert found.is_held_out[2:].all()


def test_rows_of_which_none_can_be_held_out_are_refused() -> None:
    labels = np.arange(4)
    with pytest.raises(DataError, match="0 of the 4 training rows can be held out"):
        settings(4).folds_of(labels, None)


def test_the_strength_is_the_best_for_the_metric_that_is_asked_for():
    """Of 12 % positives the strongest regularisation finds none.

    As accurate as any other, and worth nothing.
    """
    vectors, _ = problem(2)
    noise = np.random.default_rng(1).normal(0, 1.5, len(vectors))
    signal = StandardScaler().fit_transform(vectors)[:, 0] + noise
    labels = (signal > np.quantile(signal, 0.88)).astype(np.int64)
    seen = []

    def recall(logits: np.ndarray) -> float:
        seen.append((logits.argmax(axis=1) == labels).mean())
        return (logits[labels == 1].argmax(axis=1) == 1).mean()

    by_accuracy, _ = choose_strength(vectors, labels, settings(), accuracy(labels))
    by_recall, score = choose_strength(vectors, labels, settings(), recall)
    assert max(seen) - min(seen) < 0.05, "the premise: accuracy tells little"
    assert by_recall >= by_accuracy
    assert score > 0


def test_folds_tear_no_group_apart():
    _, labels = problem(2)
    labels_with_copies = np.concatenate([labels, 1 - labels[:200]])
    groups = np.concatenate([np.arange(600), np.arange(200)])

    folds = settings().folds_of(labels_with_copies, groups).fold_of_row

    for group in range(600):
        assert len(set(folds[groups == group])) == 1
    assert np.bincount(folds).tolist() == pytest.approx([160] * 5, abs=4)


def test_folds_of_groups_of_one_row_are_those_without_groups():
    _, labels = problem(2)

    without_groups = settings().folds_of(labels, None)
    with_groups = settings().folds_of(labels, np.arange(600))

    assert (without_groups.fold_of_row == with_groups.fold_of_row).all()


def test_a_learned_mix_finds_the_layer_that_matters():
    vectors, labels = problem(2, n=900)
    rng = np.random.default_rng(5)
    layers = [rng.normal(size=vectors.shape), vectors, rng.normal(size=vectors.shape)]
    cube = np.hstack(layers).astype("f4")

    mixed = fit_mix(cube, labels, 0.1, settings(), layers=3, few=slice(None))
    single = fit(vectors, labels, 0.1, settings())

    assert mixed.mix.sum() == pytest.approx(1.0, abs=1e-6)
    assert mixed.mix[1] > 0.7
    assert mixed.weight.shape == (2, 36)
    accuracy_of_mix = accuracy(labels)(mixed.logits(cube))
    accuracy_of_layer = accuracy(labels)(single.logits(vectors))
    assert accuracy_of_mix == pytest.approx(accuracy_of_layer, abs=0.02)
    assert layer_mean(cube, 3).shape == vectors.shape


def test_the_gradient_of_the_mix_is_that_of_its_loss(monkeypatch):
    import scipy.optimize

    vectors, labels = problem(3, n=60, size=4)
    cube = np.hstack([vectors, vectors[::-1]])
    gradients = {}

    def minimize_by_comparing(function, start, **_):
        rng = np.random.default_rng(0)
        point = rng.normal(size=len(start))
        _, gradients["ours"] = function(point)
        gradients["numeric"] = np.zeros(len(start))
        for i in range(len(start)):
            nudge = np.zeros(len(start))
            nudge[i] = 1e-4
            loss_after, _ = function(point + nudge)
            loss_before, _ = function(point - nudge)
            gradients["numeric"][i] = (loss_after - loss_before) / 2e-4
        return scipy.optimize.OptimizeResult(x=point)

    monkeypatch.setattr(scipy.optimize, "minimize", minimize_by_comparing)
    fit_mix(cube, labels, 0.7, settings(3), layers=2, few=slice(None))

    np.testing.assert_allclose(gradients["ours"], gradients["numeric"], rtol=2e-3, atol=2e-3)
