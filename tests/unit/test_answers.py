"""What answers mean, from prediction lines: metrics, differences, slices, right or wrong."""

import numpy as np
import pytest
import scipy.special
from scipy import stats
from sklearn.metrics import (
    average_precision_score,
    f1_score,
    matthews_corrcoef,
    precision_score,
    recall_score,
    roc_auc_score,
)

from bertctl.catalog.datasets import builtin_datasets
from bertctl.errors import DataError, UsageError
from bertctl.reporting.slices import slice_contributions
from bertctl.tasks.choice.choice_answers import ChoiceAnswers
from bertctl.tasks.classification.class_answers import (
    ClassAnswers,
    LabelSetAnswers,
    OneLabelAnswers,
)
from bertctl.tasks.classification.positive_label import positive_label
from bertctl.tasks.probabilities import softmax
from bertctl.tasks.questions.span_answers import SpanAnswers
from bertctl.tasks.registry import answer_type
from bertctl.tasks.regression.score_answers import ScoreAnswers
from bertctl.tasks.tagging.tag_answers import TagAnswers
from tests.scoring import (
    answer_metrics,
    contributions_of,
    lines_of,
    scores_by_type,
    tagging_metrics,
)

LABELS = ["neg", "neutral", "pos"]


def _labelled(labels, n=200, seed=0, right=0.8):
    rng = np.random.default_rng(seed)
    gold = rng.integers(0, len(labels), n)
    answers = np.where(rng.random(n) < right, gold, rng.integers(0, len(labels), n))
    return [
        {
            "id": str(i),
            "text": f"text {i}",
            "gold": labels[g],
            "prediction": labels[a],
            "probabilities": dict.fromkeys(labels, 1 / len(labels)),
            "loss": float(rng.exponential(0.5)),
            "truncated": bool(i % 10 == 0),
            "source": "mail" if i % 3 else "chat",
        }
        for i, (g, a) in enumerate(zip(gold, answers, strict=True))
    ]


def _value(lines, task, name):
    contributions = contributions_of(lines, task, name)
    assert contributions is not None
    metric = contributions.metric(resamples=200)
    assert metric.low <= metric.value <= metric.high
    assert metric.value == pytest.approx(contributions.value, abs=1e-12)
    return contributions.value


def _slice(lines, task, name, column, value):
    return slice_contributions(answer_type(task), lines, name, column=column, value=value)


@pytest.mark.parametrize("labels", [LABELS, ["yes", "no"]])
def test_one_label_an_example_equals_scikit_learn(labels):
    lines = _labelled(labels)
    gold = [line["gold"] for line in lines]
    answers = [line["prediction"] for line in lines]
    # Of two labels the second of the model's order is the positive one, where the run names none.
    if len(labels) == 2:
        assert _value(lines, "text-classification", "f1") == pytest.approx(
            f1_score(gold, answers, pos_label="no")
        )
    for average in ("macro", "micro", "weighted"):
        f1 = f1_score(gold, answers, average=average)
        assert _value(lines, "text-classification", f"f1_{average}") == pytest.approx(f1)
    chances = np.random.default_rng(3).random((len(lines), len(labels))).round(2)  # with ties
    rows = zip(lines, chances.tolist(), strict=True)
    lines = [line | {"probabilities": dict(zip(labels, row, strict=True))} for line, row in rows]
    others = np.array(gold)[:, None] == np.array(labels)
    chances = chances[:, -1] if len(labels) == 2 else chances
    others = others[:, -1] if len(labels) == 2 else others
    for name, theirs in (
        ("roc_auc", roc_auc_score),
        ("average_precision", average_precision_score),
    ):
        assert _value(lines, "text-classification", name) == pytest.approx(theirs(others, chances))
    sure = [
        line | {"probabilities": dict.fromkeys(labels, 0.0) | {line["gold"]: 1.0}} for line in lines
    ]
    perfect = contributions_of(sure, "text-classification", "roc_auc").metric(resamples=200)
    assert perfect.value == perfect.high == 1.0
    assert 0.9 < perfect.low < 1.0, "an example that is ranked wrongly could be next"
    assert _value(lines, "text-classification", "matthews") == pytest.approx(
        matthews_corrcoef(gold, answers)
    )
    assert _value(lines, "text-classification", "accuracy") == pytest.approx(
        np.mean(np.equal(gold, answers))
    )
    assert _value(lines, "text-classification", "loss") == pytest.approx(
        np.mean([line["loss"] for line in lines])
    )


def test_without_two_kinds_of_rows_there_is_no_area_under_a_curve():
    lines = [line | {"probabilities": {"yes": 0.4, "no": 0.6}} for line in _labelled(["yes", "no"])]
    selected_lines = [line for line in lines if line["gold"] == "no"]
    assert contributions_of(selected_lines, "text-classification", "roc_auc") is None
    assert _value(selected_lines, "text-classification", "average_precision") == 1.0
    other = [line for line in lines if line["gold"] == "yes"]
    assert contributions_of(other, "text-classification", "roc_auc") is None
    assert contributions_of(other, "text-classification", "average_precision") is None


def test_the_positive_label_is_guessed_from_the_names():
    for labels in (
        "ham spam",
        "OFFENSE OTHER",
        "no yes",
        "-1 1",
        "cat dog",
        "toxic non-toxic",
        "ad information",
    ):
        positive = {"OFFENSE OTHER": "OFFENSE", "toxic non-toxic": "toxic"}.get(
            labels, labels.split()[1]
        )
        assert positive_label(labels.split(), False, None) == positive
    for name in ("mrpc", "qqp"):
        official = builtin_datasets()[name].labels
        assert positive_label(official, False, None) == official[1], "as the leaderboard counts"


def test_several_labels_an_example_equal_scikit_learn():
    rng = np.random.default_rng(1)
    gold, answers = rng.random((2, 150, 3)) < 0.4
    lines = [
        {
            "id": i,
            "gold": [n for n, others in zip(LABELS, g, strict=True) if others],
            "prediction": [n for n, others in zip(LABELS, a, strict=True) if others],
            "probabilities": dict.fromkeys(LABELS, 0.5),
        }
        for i, (g, a) in enumerate(zip(gold, answers, strict=True))
    ]
    task = "text-classification"
    for average in ("macro", "micro", "weighted"):
        assert _value(lines, task, f"f1_{average}") == pytest.approx(
            f1_score(gold, answers, average=average)
        )
    assert _value(lines, task, "precision:pos") == pytest.approx(
        precision_score(gold[:, 2], answers[:, 2])
    )
    assert _value(lines, task, "accuracy") == pytest.approx((gold == answers).all(axis=1).mean())
    of_pos = _slice(lines, task, "recall", "label", "pos")
    assert of_pos.value == pytest.approx(recall_score(gold[:, 2], answers[:, 2]))


def test_scores_equal_scipy():
    rng = np.random.default_rng(2)
    gold = rng.integers(0, 6, 120).astype(float)
    answers = gold + rng.normal(size=120)
    lines = [
        {"id": i, "gold": g, "prediction": a}
        for i, (g, a) in enumerate(zip(gold, answers, strict=True))
    ]
    assert _value(lines, "text-regression", "pearson") == pytest.approx(
        stats.pearsonr(gold, answers).statistic
    )
    assert _value(lines, "text-regression", "spearman") == pytest.approx(
        stats.spearmanr(gold, answers).statistic
    )
    assert _value(lines, "text-regression", "mse") == pytest.approx(((gold - answers) ** 2).mean())


@pytest.mark.parametrize("name", ["pearson", "spearman"])
def test_one_score_for_all_is_worth_nothing(name):
    lines = [{"id": i, "gold": float(i), "prediction": 2.5} for i in range(20)]
    contributions = contributions_of(lines, "text-regression", name)
    assert contributions.value == 0.0
    better = [line | {"prediction": line["gold"]} for line in lines]
    change = contributions_of(better, "text-regression", name).difference(contributions)
    assert change.value == pytest.approx(1.0)


TAGS = [
    (["B-PER", "I-PER", "O", "B-LOC"], ["B-PER", "I-PER", "O", "O"]),
    (["O", "B-LOC", "O"], ["B-PER", "B-LOC", "O"]),
    (["O", "O"], ["O", "O"]),
    (["B-PER", "O", "B-PER"], ["B-PER", "O", "B-LOC"]),
]


def _tagged():
    lines = []
    for i, (gold, prediction) in enumerate(TAGS):
        line = {
            "id": i,
            "gold": gold,
            "prediction": prediction,
            "loss": 0.1 * i,
        }
        lines.append(line)
    return lines


@pytest.mark.parametrize("name", ["accuracy", "entity_precision", "entity_recall", "entity_f1"])
def test_tags_equal_the_scorers(name):
    expected = tagging_metrics(
        [g for g, _ in TAGS], [p for _, p in TAGS], resamples=100, seed=0, entities=True
    )
    assert _value(_tagged(), "token-classification", name) == pytest.approx(expected[name].value)


def test_the_loss_of_tags_is_the_mean_over_words():
    words = [len(g) for g, _ in TAGS]
    expected = sum(0.1 * i * count for i, count in enumerate(words)) / sum(words)
    assert contributions_of(_tagged(), "token-classification", "loss").value == pytest.approx(
        expected
    )
    cut = [line | {"truncated": True} for line in _tagged()]
    assert contributions_of(cut, "token-classification", "loss") is None, (
        "how many words were read is not told"
    )


@pytest.mark.parametrize("name", ["precision", "recall", "f1"])
def test_a_type_of_entity_is_a_slice(name):
    of_type = {
        score.type: score for score in scores_by_type([g for g, _ in TAGS], [p for _, p in TAGS])
    }
    for value in ("PER", "LOC"):
        actual = _slice(_tagged(), "token-classification", name, "label", value)
        assert actual.value == pytest.approx(getattr(of_type[value], name))
        assert _value(_tagged(), "token-classification", f"entity_{name}:{value}") == actual.value


@pytest.mark.parametrize("unanswerable", [False, True])
def test_questions_equal_the_scorer(unanswerable):
    gold = [["the red fox", "fox"], ["Paris"], ["in 1912"], ["a"]] + (
        [[], []] if unanswerable else []
    )
    answers = ["red fox", "London", "1912", "", "", "something"][: len(gold)]
    lines = [
        {"id": i, "gold": g, "prediction": p}
        for i, (g, p) in enumerate(zip(gold, answers, strict=True))
    ]
    expected = answer_metrics(answers, gold, resamples=100, seed=0)
    assert len(expected) == (6 if unanswerable else 2)
    for name, metric in expected.items():
        assert _value(lines, "question-answering", name) == pytest.approx(metric.value), name
    assert [SpanAnswers().is_right(line) for line in lines][:3] == [True, False, False]


def test_choices_have_an_accuracy():
    lines = [
        {"id": i, "gold": i % 4, "prediction": (i % 4 if i % 5 else 0), "loss": 1.0}
        for i in range(40)
    ]
    expected = np.mean([line["gold"] == line["prediction"] for line in lines])
    assert _value(lines, "multiple-choice", "accuracy") == pytest.approx(expected)


@pytest.mark.parametrize(
    ("task", "name"),
    [
        ("text-classification", "pearson"),
        ("text-regression", "accuracy"),
        ("multiple-choice", "f1"),
        ("token-classification", "bleu"),
        ("question-answering", "loss"),
        ("question-answering", "best_f1"),
    ],
)
def test_what_lines_do_not_give_is_none(task, name):
    gold = {"token-classification": ["O"], "question-answering": ["x"], "text-regression": 1.0}.get(
        task, "pos"
    )
    line = {
        "id": 1,
        "gold": gold,
        "prediction": "x" if task == "question-answering" else gold,
        "loss": 0.5,
    }
    assert contributions_of([line], task, name) is None


def test_a_line_without_a_field_is_refused():
    with pytest.raises(DataError, match="'prediction'"):
        contributions_of([{"id": 7, "gold": "pos"}], "text-classification", "accuracy")


def test_recall_and_precision_of_a_label_are_shares():
    lines = _labelled(LABELS)
    gold = [line["gold"] for line in lines]
    answers = [line["prediction"] for line in lines]
    scorers = {"recall": recall_score, "precision": precision_score, "f1": f1_score}
    for name, scorer in scorers.items():
        actual = _slice(lines, "text-classification", name, "label", "neg")
        assert actual.value == pytest.approx(scorer(gold, answers, labels=["neg"], average=None)[0])
    recall = _slice(lines, "text-classification", "recall", "label", "neg")
    trials = stats.binomtest(int(recall.rows.sum()), gold.count("neg"))
    metric = recall.metric()
    assert metric.low == pytest.approx(trials.proportion_ci(method="exact").low)
    assert metric.high == pytest.approx(trials.proportion_ci(method="wilson").high)
    assert metric.n == gold.count("neg")


def test_any_column_makes_slices():
    lines = _labelled(LABELS)
    for column, value in (("source", "chat"), ("truncated", "true")):
        chosen = [line for line in lines if line[column] in ("chat", True)]
        actual = _slice(lines, "text-classification", "accuracy", column, value)
        assert actual.value == np.mean([line["gold"] == line["prediction"] for line in chosen])
        assert 0 < len(actual.rows) == len(chosen) < len(lines)


@pytest.mark.parametrize(
    ("column", "value", "name", "message"),
    [
        ("length", "long", "accuracy", "column 'length'"),
        ("source", "letter", "accuracy", "source=letter"),
        ("label", "bad", "recall", "gold label 'bad'"),
        ("label", "bad", "accuracy", "gold label 'bad'"),
    ],
)
def test_slices_that_are_not_there_are_refused(column, value, name, message):
    with pytest.raises(UsageError, match=message) as refusal:
        _slice(_labelled(LABELS), "text-classification", name, column, value)
    assert refusal.value.remedy


def test_the_precision_of_a_label_never_answered_is_undefined():
    lines = [{"id": i, "gold": "neg" if i < 3 else "pos", "prediction": "pos"} for i in range(9)]
    with pytest.raises(UsageError, match="undefined"):
        _slice(lines, "text-classification", "precision", "label", "neg")
    recall = _slice(lines, "text-classification", "recall", "label", "neg")
    assert recall.value == 0.0, "that is known, and no undefined number"


def test_the_constant_tag_has_no_metric_of_a_type_that_is_not_there() -> None:
    """A model that does not answer it has none either.

    So it can't be the one by which weights are chosen.
    """
    answers = TagAnswers(("O", "B-A", "I-A", "B-B", "I-B"), mark_entities=True)
    baseline = answers.baseline("B-A", [{"id": 0, "gold": ["O", "B-B"]}])
    assert {name for name in baseline if ":" in name} == {
        f"entity_{subject}:B" for subject in ("precision", "recall", "f1")
    }
    assert baseline["entity_f1"] == baseline["entity_f1:B"] == 0.0


@pytest.mark.parametrize(
    ("answers", "gold", "predicted", "message"),
    [
        (OneLabelAnswers(("neg", "pos")), ["pos", "neg"], ["pos", "pos"], "'pos'"),
        (OneLabelAnswers(("neg", "pos")), ["pos", "pos"], ["pos", "pos"], None),
        (OneLabelAnswers(("neg", "pos")), ["pos", "neg"], ["pos", "neg"], None),
        (LabelSetAnswers(("a", "b")), [["a"], []], [["a", "b"]] * 2, "'a', 'b'"),
        (LabelSetAnswers(("a", "b")), [["a"], []], [[], []], "no label"),
        (ScoreAnswers(), [1.0, 2.0], [1.50001, 1.50002], "about 1.5"),
        (ScoreAnswers(), [100.0, 900.0], [489.0, 491.0], "about 490"),
        (ScoreAnswers(), [1.0, 2.0], [1.5, 1.6], None),
        (ChoiceAnswers(), [0, 1], [2, 2], "choice 2"),
        (
            TagAnswers(("O", "B-X"), mark_entities=True),
            [["O", "B-X"], ["O"]],
            [["O", "O"], ["O"]],
            "'O'",
        ),
        (TagAnswers(("O", "B-X"), mark_entities=True), [["O"]], [["O"]], None),
        (SpanAnswers(), [["x"], ["y"]], ["z", "z"], None),
    ],
)
def test_one_answer_to_everything_is_named_where_several_are_right(
    answers, gold, predicted, message
):
    assert answers.constant_prediction(lines_of(gold, predicted)) == message


def test_probabilities_are_scipys_to_the_last_bit() -> None:
    logits = np.random.default_rng(0).normal(0, 20, (300, 7)).astype(np.float32)
    logits[:9, 4:] = -np.inf  # choices that a row has not
    probabilities = softmax(logits)
    assert probabilities.dtype == np.float32
    assert np.array_equal(probabilities, scipy.special.softmax(logits, axis=1))
    assert softmax(logits[:0]).shape == (0, 7)


def test_the_table_of_labels_counts_clusters_as_gate_does():
    lines = [{**line, "cluster": i // 20} for i, line in enumerate(_labelled(LABELS))]
    for row in ClassAnswers.from_lines(lines).outcome(lines).rows:
        metric = _slice(lines, "text-classification", "recall", "label", row[0]).metric()
        assert metric.clusters == 10
        assert row[5] == (pytest.approx(metric.low), pytest.approx(metric.high)), row[0]


def test_entities_of_a_document_are_one_cluster():
    """Where whole documents are right or wrong, an entity says no more than its document."""
    lines = [
        {
            "id": str(i),
            "gold": ["B-PER"],
            "prediction": ["B-PER"] if i // 10 % 2 else ["O"],
            "cluster": i // 10,
        }
        for i in range(100)
    ]
    (together,) = TagAnswers.from_lines(lines).outcome(lines).rows
    (alone,) = (
        TagAnswers.from_lines(lines)
        .outcome([{**line, "cluster": i} for i, line in enumerate(lines)])
        .rows
    )
    assert together[:5] == alone[:5] == ["PER", 100, 50, 1.0, 0.5]
    trials = stats.binomtest(50, 100)
    plain = trials.proportion_ci(method="wilson")
    assert alone[5] == (
        pytest.approx(trials.proportion_ci(method="exact").low),
        pytest.approx(plain.high),
    )
    assert together[5][1] - together[5][0] > 2.5 * (plain.high - plain.low)


def test_the_error_of_scores_is_that_of_clusters():
    lines = [
        {"id": str(i), "gold": 1.0, "prediction": 1.0 + i // 20, "cluster": i // 20}
        for i in range(400)
    ]
    _, actual = ScoreAnswers().group_score(lines)
    metric = actual.metric(resamples=2000)
    error = np.arange(20).std(ddof=1) / np.sqrt(20)
    half = stats.t(19).ppf(0.975) * error
    assert metric.value == 9.5
    assert metric.clusters == 20
    assert metric.higher_is_better is False
    # Student's interval, which the studentised bootstrap makes a little wider; of few errors the
    # upper end reaches as far as that of a gamma distribution.
    assert metric.low == pytest.approx(9.5 - half, abs=0.6)
    assert 9.5 + half - 0.6 < metric.high < 9.5 + 1.4 * half


def test_the_table_of_questions_is_scored_as_the_metrics():
    """SQuAD 1.1 counts an answer of punctuation as a gold one of punctuation.

    SQuAD 2.0 does not.
    """
    golds = [["!", "yes"], ["no"], ["no"]]
    supplied = ["?", "no", "yes"]
    lines = [
        {"id": str(i), "gold": gold, "prediction": message}
        for i, (gold, message) in enumerate(zip(golds, supplied, strict=True))
    ]
    ((_, n, exact, _, f1, silent),) = SpanAnswers().outcome(lines).rows
    assert n == 3
    assert exact == pytest.approx(_value(lines, "question-answering", "exact_match"))
    assert silent == 0.0
    assert exact == pytest.approx(2 / 3), "the premise"
    assert f1 == pytest.approx(_value(lines, "question-answering", "f1"))
