"""Multiple choice by hand: what is encoded, padded, lost, answered and scored."""

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from bertctl.config.recipe_sections import ModelSection
from bertctl.config.schema import Recipe
from bertctl.data.rows import Rows
from bertctl.errors import DataError
from bertctl.modeling.load import load_model
from bertctl.modeling.source import inspect_model
from bertctl.modeling.trained_heads import has_trained_head, keeps_head
from bertctl.runtime.batching import Padding
from bertctl.tasks.choice.choices import ChoiceFeatures
from bertctl.tasks.choice.multiple_choice import MultipleChoice
from bertctl.tasks.regression.text_regression import TextRegression

TASK = MultipleChoice()
RECIPE = Recipe(task="multiple-choice")


def rows_of(
    choices: list[list[str]], labels: list[int] | None = None, contexts: list[str] | None = None
) -> Rows:
    columns: dict[str, list] = {
        "context": contexts or ["the film"] * len(choices),
        "choices": choices,
    }
    if labels is not None:
        columns["label"] = labels
    return Rows(
        "train",
        columns,
        [str(i) for i in range(len(choices))],
        "memory",
        [10 + i for i in range(len(choices))],
    )


@pytest.fixture(scope="module")
def tokenizer(tiny_model: Path):
    return transformers.AutoTokenizer.from_pretrained(tiny_model).backend_tokenizer


@pytest.fixture
def features(tokenizer) -> ChoiceFeatures:
    """Rows of 2, 4 and 3 choices."""
    rows = rows_of(
        [["good", "very very bad"], ["a", "b", "c", "it was fine"], ["dull", "dull food", "poor"]],
        [1, 3, 0],
        ["the film", "", "was it"],
    )
    return TASK.encode(rows, tokenizer, max_length=40)


def test_a_unit_is_a_row_and_a_slot_is_a_choice(features):
    assert len(features) == 3
    assert features.num_predictions == 9
    assert features.counts.tolist() == [2, 4, 3]
    #  [CLS] the film [SEP] good [SEP] = 6, ... very very bad = 8; [CLS] [SEP] a [SEP] = 4, it was
    # fine = 6; 6, 7, 6
    assert features.encoded.lengths.tolist() == [6, 8, 4, 4, 4, 6, 6, 7, 6]
    assert features.lengths.tolist() == [8, 6, 7]
    assert features.tokens.tolist() == [14, 18, 19]
    assert features.prediction_indices(np.array([2, 0])).tolist() == [6, 7, 8, 0, 1]
    assert features.rows.tolist() == [0, 1, 2]
    assert features.weights.tolist() == [1, 1, 1]


def test_what_is_cut_is_counted_by_row(tokenizer):
    rows = rows_of([["good", "very " * 9], ["good", "bad"], ["very " * 9, "very " * 10]])
    features = TASK.encode(rows, tokenizer, max_length=10)
    assert features.truncated_tokens.tolist() == [4, 0, 4 + 5]
    assert features.lengths.tolist() == [10, 6, 10]
    assert features.labels is None


@pytest.mark.parametrize("left", [False, True])
def test_a_batch_holds_all_choices_of_its_rows_row_after_row(features, left):
    batch = features.collate(np.array([2, 0]), Padding(0, left=left, width=9))

    assert batch.counts == (3, 2)
    assert batch.labels.tolist() == [0, 1]
    ids = batch.inputs["input_ids"]
    mask = batch.inputs["attention_mask"]
    segments = batch.inputs["token_type_ids"]
    assert ids.shape == mask.shape == segments.shape == (5, 1, 9)
    assert mask.sum(dim=2).flatten().tolist() == [6, 7, 6, 6, 8]
    assert (ids[mask == 0] == 0).all()
    assert bool(mask[0, 0, 0]) is not left

    # the last text of the batch is the second choice of the first row
    start = features.encoded.starts[1]
    expected_ids = features.encoded.ids[start : start + 8]
    is_token = mask[4, 0].bool()
    assert ids[4, 0][is_token].tolist() == expected_ids.tolist()
    assert segments[4, 0][is_token].tolist() == [0, 0, 0, 0, 1, 1, 1, 1]


def test_the_loss_is_over_a_rows_own_choices(features):
    batch = features.collate(np.arange(3), Padding(0))
    first_row = [1.0, 2.0]
    second_row = [0.0, 0.0, 0.0, 3.0]
    third_row = [-1.0, 0.5, 0.5]
    scores = torch.tensor([*first_row, *second_row, *third_row], requires_grad=True)

    losses = TASK.objective(Padding(0)).window_losses(scores, batch)
    losses.sum().backward()

    by_hand = [
        np.log(np.exp(first_row).sum()) - 2,
        np.log(np.exp(second_row).sum()) - 3,
        np.log(np.exp(third_row).sum()) + 1,
    ]
    assert losses.tolist() == pytest.approx(by_hand, rel=1e-6)
    assert torch.isfinite(scores.grad).all()
    gradient_of_first_row = scores.grad[:2].sum().item()
    assert gradient_of_first_row == pytest.approx(0.0, abs=1e-6), "it stays within the row"


def test_answers_and_accuracy_by_hand(features):
    scores_of_rows = [
        [1.0, 2.0],
        [0.0, 0.0, 0.0, 3.0],
        [-1.0, 0.5, 0.4],
    ]
    scores = np.concatenate(scores_of_rows).astype(np.float32)
    rows = rows_of([["a", "b"], ["a", "b", "c", "d"], ["a", "b", "c"]], [1, 3, 0])

    answers = TASK.decode({"logits": scores}, features, rows)
    lines = TASK.lines({"logits": scores}, features, rows)
    accuracy = TASK.answers.score(lines, resamples=100, seed=0)["accuracy"]

    assert [answer["prediction"] for answer in answers] == [1, 3, 1]
    for answer, row_scores in zip(answers, scores_of_rows, strict=True):
        powers = np.exp(row_scores)
        softmax = powers / powers.sum()
        assert answer["probabilities"] == pytest.approx(softmax.tolist(), rel=1e-6)
    assert accuracy.value == pytest.approx(2 / 3)
    assert accuracy.n == 3
    assert accuracy.low < 2 / 3 < accuracy.high
    assert [TASK.gold(rows, row) for row in range(3)] == [1, 3, 0]


def test_the_baseline_is_the_better_of_one_number_and_chance():
    train = rows_of([["a", "b"]] * 4, [1, 1, 1, 0])
    constant_answer = TASK.constant_answer(train)
    mostly_one = rows_of([["a", "b"]] * 5, [1, 1, 1, 1, 0])
    # Always 1 would be right for none of these; guessing is right for (1/2 + 1/4) / 2 of them.
    mixed = rows_of([["a", "b"], ["a", "b", "c", "d"]], [0, 3])

    baseline_of_mostly_one = TASK.baseline(constant_answer, mostly_one)
    baseline_of_mixed = TASK.baseline(constant_answer, mixed)

    assert baseline_of_mostly_one == {"accuracy": pytest.approx(0.8)}
    assert baseline_of_mixed == {"accuracy": pytest.approx(0.375)}


def test_what_is_said_of_a_split():
    assert (
        TASK.describe(rows_of([["a", "b"], ["a", "b", "c"]], [1, 1]))
        == "2 to 3 choices; right one 0: 0, 1: 2, 2: 0"
    )
    assert TASK.describe(rows_of([["a", "b"]])) == "2 choices"


def test_labels_outside_are_refused_with_their_line():
    with pytest.raises(DataError, match=r"memory:11: .*label 2 .*2 choices") as caught:
        TASK.check(rows_of([["a", "b"], ["a", "b"]], [1, 2]))
    assert "0 to 1 fit" in caught.value.remedy
    with pytest.raises(DataError, match="memory:10"):
        MultipleChoice.from_data(RECIPE, rows_of([["a", "b"]], [1]), None).check(
            rows_of([["a", "b"]], [-1])
        )


def test_its_head_is_kept_by_itself_and_renewed_by_a_regression(tiny_model, tmp_path):
    """Both have one output of the same size: only the label's name tells them apart."""
    source = inspect_model(ModelSection(name=str(tiny_model), max_length=32))
    loaded = load_model(source, TASK.auto_class, head=TASK.head())
    assert type(loaded.network).__name__ == "BertForMultipleChoice"
    with torch.no_grad():
        loaded.network.classifier.weight.fill_(1.0)
    loaded.save(tmp_path / "model")
    trained = inspect_model(ModelSection(name=str(tmp_path / "model"), max_length=32))
    assert has_trained_head(trained)
    assert keeps_head(trained, TASK.head(), TASK.auto_class)
    assert (
        load_model(trained, TASK.auto_class, head=TASK.head()).network.classifier.weight.min()
        == 1.0
    )
    regression = TextRegression(None, None)
    assert not keeps_head(trained, regression.head(), regression.auto_class)
    renewed = load_model(trained, regression.auto_class, head=regression.head())
    assert renewed.network.classifier.weight.shape == loaded.network.classifier.weight.shape
    assert renewed.network.classifier.weight.abs().max() < 0.2
