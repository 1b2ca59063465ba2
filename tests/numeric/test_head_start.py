"""A new head that starts as a regression on the frozen encoder.

Its numbers, and the run that begins with it.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge

from bertctl.arrays import Array, Floats32
from bertctl.errors import UsageError
from bertctl.modeling.head_regression import UnfittedError, fit_labels, fit_scores, log_loss
from bertctl.modeling.heads import last_layer
from bertctl.progress import SILENT, Listener
from bertctl.run_folder import RunFolder
from bertctl.runtime.launch import ALONE
from bertctl.training.finetune import run
from bertctl.training.head_start import announcement, start_head
from bertctl.training.head_vectors import SampledFeatures, head_vectors, sampled_windows
from bertctl.training.job import Job, prepare
from tests.tiny_recipes import tiny_recipe

PROBE = {"model.head_start": "probe"}


class Heard(Listener):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.sentences: list[str] = []

    def say(self, text: str) -> None:
        """Keeps it."""
        self.sentences.append(text)


def clouds(n_labels: int, *, n_rows: int = 240, size: int = 7) -> tuple[Floats32, Array]:
    """Vectors about a centre for each label, one number of them the same in every row."""
    rng = np.random.default_rng(3)
    labels = np.arange(n_rows) % n_labels
    centres = rng.normal(size=(n_labels, size))
    vectors = (centres[labels] + rng.normal(size=(n_rows, size))).astype(np.float32)
    vectors[:, 0] = 0.25
    return vectors, labels


def common_scale(vectors: Floats32) -> tuple[Array, float]:
    centre = vectors.mean(axis=0)
    mean_variance = vectors.var(axis=0).mean()
    return centre, float(np.sqrt(mean_variance))


@pytest.mark.parametrize("n_labels", [2, 5])
def test_a_head_of_labels_is_the_logistic_regression_of_scikit_learn(n_labels: int) -> None:
    vectors, labels = clouds(n_labels)

    head = fit_labels(vectors, labels, n_labels=n_labels).function

    mean, scale = common_scale(vectors)
    theirs = LogisticRegression(C=head.strength, max_iter=1000).fit(
        (vectors - mean) / scale, labels
    )
    logits = head.logits(vectors)
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(shares, theirs.predict_proba((vectors - mean) / scale), atol=5e-3)
    assert head.weight.shape == (n_labels, 7)
    np.testing.assert_allclose(head.weight.sum(axis=0), 0.0, atol=1e-5)


def test_a_head_of_several_labels_is_a_regression_for_each() -> None:
    vectors, labels = clouds(3)
    several = np.eye(3, dtype=np.float32)[labels]
    several[:, 2] = labels >= 1

    head = fit_labels(vectors, several, n_labels=3).function

    mean, scale = common_scale(vectors)
    for column in range(3):
        theirs = LogisticRegression(C=head.strength, max_iter=1000).fit(
            (vectors - mean) / scale, several[:, column]
        )
        odds = theirs.decision_function((vectors - mean) / scale)
        np.testing.assert_allclose(head.logits(vectors)[:, column], odds, atol=2e-2)


def test_a_head_is_no_surer_of_its_rows_than_of_rows_it_has_not_seen() -> None:
    """Its rows are fewer than the numbers of a vector, so they could be learned by heart."""
    rng = np.random.default_rng(5)
    labels = np.arange(60) % 2
    vectors = rng.normal(size=(60, 100)).astype(np.float32)
    vectors[:, 0] += 2.0 * labels

    head = fit_labels(vectors, labels, n_labels=2)

    loss = log_loss(head.function.logits(vectors), labels)
    by_heart = LogisticRegression(C=1.0).fit(vectors, labels).predict_proba(vectors)
    assert -np.log(by_heart[np.arange(60), labels]).mean() < 0.1
    assert loss == pytest.approx(head.held_out_loss, abs=0.1)
    assert loss < np.log(2.0)


def test_a_head_of_scores_is_a_ridge_regression() -> None:
    vectors, labels = clouds(4)
    scores = (labels - labels.mean()) / labels.std()

    head = fit_scores(vectors, scores).function

    mean, scale = common_scale(vectors)
    theirs = Ridge(alpha=1.0 / head.strength).fit((vectors - mean) / scale, scores)
    np.testing.assert_allclose(
        head.logits(vectors)[:, 0], theirs.predict((vectors - mean) / scale), atol=1e-4
    )


def test_rows_count_as_the_loss_weighs_them() -> None:
    vectors, labels = clouds(2)
    rare = np.flatnonzero((labels == 0) | (np.arange(len(labels)) % 20 == 1))
    weights = np.where(labels[rare] == 1, 10.0, 1.0)

    plain = fit_labels(vectors[rare], labels[rare], n_labels=2).function
    weighted = fit_labels(vectors[rare], labels[rare], n_labels=2, row_weights=weights).function

    answers = [head.logits(vectors[rare]).argmax(axis=1).mean() for head in (plain, weighted)]
    assert answers[1] > answers[0]


def test_a_balanced_head_is_the_balanced_regression_of_scikit_learn() -> None:
    vectors, labels = clouds(5)
    uneven = np.flatnonzero((labels > 1) | (np.arange(len(labels)) % 4 == 0))
    vectors = vectors[uneven]
    labels = labels[uneven]

    head = fit_labels(vectors, labels, n_labels=5, is_balanced=True).function

    mean, scale = common_scale(vectors)
    theirs = LogisticRegression(C=head.strength, max_iter=1000, class_weight="balanced").fit(
        (vectors - mean) / scale, labels
    )
    logits = head.logits(vectors)
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(shares, theirs.predict_proba((vectors - mean) / scale), atol=5e-3)


def test_many_labels_of_few_rows_count_alike_in_the_start(tiny_model: Path, tmp_path: Path) -> None:
    """Without this, a head of 6 rows would hardly ever predict the labels that have fewer rows."""
    frequent = [f"the film was a film {row},film" for row in range(9)]
    rare_words = ["good", "bad", "dull", "great", "plot", "music"]
    rare = [f"the {word} was {word},{word}" for word in rare_words]
    rows = frequent + rare + rare
    data = tmp_path / "rows.csv"
    data.write_text("text,label\n" + "\n".join(rows) + "\n")
    job = job_of(tiny_model, data)
    features = SampledFeatures(job.features["train"], sampled_windows(job))
    vectors = head_vectors(job, features, ALONE, SILENT)

    start_head(job, ALONE, Listener())

    _, last = last_layer(job.loaded.network)
    weight = last.weight.detach().numpy()
    balanced = fit_labels(vectors, features.labels, n_labels=7, is_balanced=True).function
    np.testing.assert_allclose(weight, balanced.weight, atol=1e-4)


def test_a_label_without_rows_is_unlikely_and_can_be_learned() -> None:
    vectors, labels = clouds(3)

    head = fit_labels(vectors, labels, n_labels=4).function

    assert head.logits(vectors).argmax(axis=1).max() < 3
    assert not head.weight[3].any()
    assert abs(head.bias[3] - head.bias[:3].min()) < 2.0


def test_a_head_without_a_bias_gets_none() -> None:
    vectors, labels = clouds(3)

    assert not fit_labels(vectors, labels, n_labels=3, has_bias=False).function.bias.any()
    assert not fit_scores(vectors, labels.astype(np.float64), has_bias=False).function.bias.any()


def test_what_no_regression_can_be_fitted_to_is_said() -> None:
    vectors, labels = clouds(2)
    infinite = vectors.copy()
    infinite[3, 3] = np.inf

    with pytest.raises(UnfittedError, match="not all finite"):
        fit_labels(infinite, labels, n_labels=2)
    with pytest.raises(UnfittedError, match="one label only"):
        fit_labels(vectors, np.zeros_like(labels), n_labels=2)


def job_of(tiny_model: Path, data: Path, **fields: Any) -> Job:
    return prepare(tiny_recipe(tiny_model, data, **{**PROBE, **fields}))


def test_a_sample_has_every_label_and_its_share(tiny_model: Path, tmp_path: Path) -> None:
    rows = [f"the film was good {i},common" for i in range(900)] + [
        f"it was bad {i},other" for i in range(95)
    ]
    data = tmp_path / "rows.csv"
    data.write_text(
        "text,label\n" + "\n".join([*rows, *(f"dull {i},rare" for i in range(2))]) + "\n"
    )

    job = job_of(tiny_model, data, **{"training.epochs": 1})
    windows = sampled_windows(job)

    counts = np.bincount(job.features["train"].labels[windows], minlength=3)
    assert 200 <= len(windows) < 400
    assert counts[2] >= 1
    assert counts[0] / len(windows) == pytest.approx(900 / 997, abs=0.02)


def test_the_first_line_of_history_is_the_frozen_encoders_score(
    tiny_model: Path, opinions: Path, tmp_path: Path
) -> None:
    listener = Heard()
    job = job_of(tiny_model, opinions)

    result = run(job, RunFolder.create(tmp_path / "run"), listener=listener)

    first = json.loads((tmp_path / "run" / "history.jsonl").read_text().splitlines()[0])
    assert first["step"] == 0
    assert first["validation_accuracy"] == 1.0, "the regression was fitted to these rows"
    (sentence,) = [
        text
        for text in listener.sentences
        if text.startswith("head: starts as logistic regression")
    ]
    assert "16 rows" in sentence
    assert sentence.endswith(f": validation accuracy 1.0000, loss {first['validation_loss']:.4f}")
    assert result.metrics.as_json()["best_step"] == 0, "no later evaluation can be better"
    assert result.performance.as_json()["seconds"]["head_start"] > 0


def test_patience_counts_from_the_start(tiny_model: Path, opinions: Path, tmp_path: Path) -> None:
    job = job_of(tiny_model, opinions, **{"training.patience": 2})

    result = run(job, RunFolder.create(tmp_path / "run"))

    assert result.metrics.as_json()["best_step"] == 0
    assert result.metrics.as_json()["steps"] == 4
    assert result.performance.as_json()["stopped_early"]


def test_a_head_that_was_trained_for_these_labels_is_kept(
    tiny_model: Path, opinions: Path, tmp_path: Path
) -> None:
    first = run(prepare(tiny_recipe(tiny_model, opinions)), RunFolder.create(tmp_path / "first"))
    job = job_of(tmp_path / "first", opinions)
    before = job.loaded.copy_weights()

    assert start_head(job, ALONE, Listener()) is None
    assert first.trained
    assert "continues from the trained one" in announcement(job)
    after = job.loaded.copy_weights()
    assert all(bool((after[name] == before[name]).all()) for name in before)


def test_vectors_that_are_not_finite_leave_a_random_head_and_say_so(
    tiny_model: Path, opinions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    listener = Heard()
    job = job_of(tiny_model, opinions)
    with torch.no_grad():
        next(job.loaded.network.parameters()).fill_(torch.nan)

    started = start_head(job, ALONE, listener)

    assert started is not None
    assert listener.sentences == [
        "head: starts with random weights: the encoder's vectors are not all finite numbers"
    ]


def test_tasks_whose_head_can_not_start_so_refuse_it(tiny_model: Path, opinions: Path) -> None:
    from bertctl.config.load import load_recipe

    with pytest.raises(UsageError, match=r"model\.head_start"):
        load_recipe("question-answering", options={"data.train_file": str(opinions), **PROBE})
    with pytest.raises(UsageError, match=r"model\.head_start"):
        load_recipe("few-shot", options={"data.train_file": str(opinions), **PROBE})
