"""Losses of vectors of texts.

By hand, whatever the batch is cut into, and who is nobody's negative.
"""

import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from test_objectives import Meeting, ThreadWorkers, assert_same, engine_of, gradients
from torch import Tensor, nn
from torch.nn import functional

from bertctl.config.losses import SENTENCE_LOSSES
from bertctl.modeling.sentence_folder import SentenceModules
from bertctl.modeling.sentence_head import SentenceHead
from bertctl.runtime.batching import Padding, repeated, set_apart, training_plan
from bertctl.runtime.launch import ALONE, Workers
from bertctl.runtime.seeding import WindowRandom
from bertctl.tasks.sentences.sentence_features import SentenceBatch, SentenceFeatures, text_keys
from bertctl.tasks.sentences.sentence_objectives import SentenceObjective, not_negative
from bertctl.tokenization.encode import EncodedTexts
from bertctl.training.loop.step import training_step
from bertctl.training.loop.training_engine import TrainingEngine
from tests.sentence_folders import sentence_transformers

SIZE = 12
WORDS = 40
_GENERATOR = np.random.default_rng(3)
VECTORS = torch.from_numpy(_GENERATOR.standard_normal((16, 3, SIZE))).float()
SCORES = torch.from_numpy(_GENERATOR.integers(0, 11, 16) / 10).float()
ROWS = np.random.default_rng(5).permutation(80)[:64]


def objective(loss: str, *, margin: float = 0.0, **more: Any) -> SentenceObjective:
    row = SENTENCE_LOSSES[loss]
    fields = {
        "margin": margin,
        "draws_partners": True,
        "draws_negatives": row.draws_negatives,
        "draws_third_text": row.draws_third_text,
        **more,
    }
    first_kind = next(iter(row.classes))
    objective_class: type[SentenceObjective] = row.objective_class(first_kind)
    return objective_class(Padding(0), **fields)


def batch(
    keys: Any = None, labels: Tensor | None = None, kind: str = "matches", texts: int = 3
) -> SentenceBatch:
    if keys is None:
        keys = np.arange(16 * texts).reshape(16, texts)
    if labels is None:
        labels = torch.ones(len(keys))
    classes = torch.zeros(len(keys), dtype=torch.int64)
    return SentenceBatch({}, labels, classes, torch.as_tensor(keys), kind)


def mean(objective: SentenceObjective, vectors: Tensor, batch: SentenceBatch) -> float:
    total = float(objective.losses(vectors, batch)["loss"])
    return total / objective.counts(batch)["loss"]


def by_hand(name: str, vectors: Tensor) -> tuple[SentenceObjective, SentenceBatch, Tensor]:
    """A loss, its batch, and what it should be, written out pair by pair."""
    if name == "cosine":
        expected = ((_cosines(vectors) - SCORES) ** 2).mean()
        return objective("cosine"), batch(labels=SCORES, kind="scores"), expected
    if name == "cosent":
        expected = _cosent_by_hand(_cosines(vectors))
        return objective("cosent"), batch(labels=SCORES, kind="scores"), expected
    if name == "contrastive":
        labels = (SCORES > 0.5).float()
        expected = _contrastive_by_hand(_cosines(vectors), labels, margin=0.5)
        return objective("contrastive", margin=0.5), batch(labels=labels, kind="classes"), expected
    if name == "triplet":
        expected = _triplet_by_hand(vectors, margin=5)
        return objective("triplet", margin=5.0), batch(), expected

    n_texts = 2 if "pairs" in name else 3
    is_symmetric = "symmetric" in name
    ranking = objective("multiple-negatives", symmetric=is_symmetric)
    expected = _ranking_by_hand(vectors[:, :n_texts], is_symmetric=is_symmetric)
    return ranking, batch(texts=n_texts), expected


def _unit(vectors: Tensor) -> Tensor:
    return vectors / vectors.norm(dim=-1, keepdim=True)


def _cosines(vectors: Tensor) -> Tensor:
    """Cosines of the first two texts of each row, shape [B]."""
    unit = _unit(vectors)
    return torch.stack([unit[row, 0] @ unit[row, 1] for row in range(16)])


def _cosent_by_hand(cosines: Tensor) -> Tensor:
    total = torch.tensor(1.0)
    for i in range(16):
        for j in range(16):
            if SCORES[i] < SCORES[j]:
                total = total + torch.exp(20 * (cosines[i] - cosines[j]))
    return torch.log(total)


def _contrastive_by_hand(cosines: Tensor, labels: Tensor, *, margin: float) -> Tensor:
    distances = 1 - cosines
    positives = labels * distances**2
    negatives = (1 - labels) * torch.clamp(margin - distances, min=0) ** 2
    return (0.5 * (positives + negatives)).mean()


def _triplet_by_hand(vectors: Tensor, *, margin: float) -> Tensor:
    violations = []
    for anchor, positive, negative in vectors:
        difference = (anchor - positive).norm() - (anchor - negative).norm()
        violations.append(difference + margin)
    return torch.stack(violations).clamp(min=0).mean()


def _ranking_by_hand(vectors: Tensor, *, is_symmetric: bool) -> Tensor:
    """Cross-entropy of each row's positive among all second and third texts."""
    queries, *candidates = _unit(vectors).unbind(dim=1)
    scores = 20 * queries @ torch.cat(candidates).T
    forward = (scores.logsumexp(dim=1) - scores.diagonal()).mean()
    if not is_symmetric:
        return forward

    back = scores[:, :16].T
    backward = (back.logsumexp(dim=1) - back.diagonal()).mean()
    return (forward + backward) / 2


LOSSES = ["cosine", "cosent", "contrastive", "triplet", "pairs", "triplets", "symmetric pairs"]


@pytest.mark.parametrize("name", LOSSES)
def test_each_loss_by_hand(name: str) -> None:
    loss, rows, expected = by_hand(name, VECTORS)
    vectors = VECTORS[:, : rows.keys.shape[1]]

    assert mean(loss, vectors, rows) == pytest.approx(float(expected), abs=1e-5)


@pytest.mark.parametrize("name", LOSSES)
def test_the_loss_of_cut_vectors_is_a_sum_over_their_widths(name: str) -> None:
    loss, rows, _ = by_hand(name, VECTORS)
    vectors = VECTORS[:, : rows.keys.shape[1]]
    expected = 0.0
    for width in (5, SIZE):
        cut = functional.normalize(VECTORS[..., :width], dim=-1)  # as in MatryoshkaLoss
        expected += float(by_hand(name, cut)[2])

    both_widths = mean(replace(loss, widths=(5, SIZE)), vectors, rows)
    width_twice = mean(replace(loss, widths=(5, 5)), vectors, rows)

    assert both_widths == pytest.approx(expected, abs=2e-5)
    assert width_twice == both_widths, "whole vectors are trained too, and no width twice"


@pytest.mark.slow
@pytest.mark.parametrize("name", LOSSES)
def test_each_loss_is_that_of_sentence_transformers(name: str) -> None:
    losses = sentence_transformers().sentence_transformer.losses
    ours, rows, _ = by_hand(name, VECTORS)
    vectors = VECTORS[:, : rows.keys.shape[1]]
    loss_classes = {
        "cosine": losses.CosineSimilarityLoss,
        "cosent": losses.CoSENTLoss,
        "contrastive": losses.ContrastiveLoss,
        "triplet": losses.TripletLoss,
    }
    loss_class = loss_classes.get(name, losses.MultipleNegativesRankingLoss)
    options: dict[str, Any] = {}
    if "symmetric" in name:
        options["directions"] = ("query_to_doc", "doc_to_query")
        options["partition_mode"] = "per_direction"
    theirs = loss_class(SimpleNamespace(), **options)
    n_columns = 2 if name in ("cosine", "cosent", "contrastive") else vectors.shape[1]
    columns = [vectors[:, column] for column in range(n_columns)]

    expected = theirs.compute_loss_from_embeddings(columns, rows.gold)

    assert mean(ours, vectors, rows) == pytest.approx(float(expected), abs=1e-5)


class _Given:
    """Stands for the library's model: its texts are their vectors."""

    device = torch.device("cpu")

    def __call__(self, features: Any) -> Any:
        return features


@pytest.mark.slow
def test_softmax_is_that_of_sentence_transformers() -> None:
    head = SentenceHead(SentenceModules(), SIZE, classes=3).requires_grad_(False)
    classes = torch.arange(16) % 3
    rows = replace(batch(kind="classes", texts=2), classes=classes)
    losses = sentence_transformers().sentence_transformer.losses
    softmax_loss = losses.SoftmaxLoss(_Given(), SIZE, num_labels=3)
    softmax_loss.classifier.load_state_dict(head.classifier.state_dict())
    first = {"sentence_embedding": VECTORS[:, 0]}
    second = {"sentence_embedding": VECTORS[:, 1]}

    ours = mean(objective("softmax"), head.logits(VECTORS[:, :2]), rows)
    theirs = softmax_loss([first, second], classes).detach()

    assert ours == pytest.approx(float(theirs), abs=1e-5)


@pytest.mark.parametrize(("number", "width"), [(0, 5), (1, SIZE)])
def test_softmax_reads_cut_vectors_and_their_difference(number: int, width: int) -> None:
    head = SentenceHead(SentenceModules(), SIZE, classes=3, widths=(5,))  # and whole vectors
    cut = VECTORS[:, :2].clone()
    cut[..., width:] = 0
    first, second = cut.unbind(dim=1)
    expected = head.classifier(torch.cat([first, second, (first - second).abs()], dim=1))

    logits = head.logits(VECTORS[:, :2])

    assert logits is not None
    assert logits.shape[1] == 2
    torch.testing.assert_close(logits[:, number], expected)


def test_equal_texts_are_never_negatives_of_each_other() -> None:
    first_texts = ["a", "b", "a", "c"]
    second_texts = ["x", "x", "y", "a"]

    masked = not_negative(batch(text_keys([first_texts, second_texts])))

    row_candidates = {(row, candidate) for row, candidate in masked.nonzero().tolist()}
    positives_of_a = {(0, 1), (0, 2), (2, 0), (2, 1)}  # x and y are right for it, in both rows
    a_itself = {(0, 3), (2, 3)}  # it is the last candidate
    positives_of_b = {(1, 0)}  # x is right for it, wherever it stands
    assert row_candidates == positives_of_a | a_itself | positives_of_b


def test_a_missing_third_text_is_nobodys_negative() -> None:
    blank = batch(text_keys([["a", "b"], ["x", "y"], ["z", " "]]))

    assert not_negative(blank)[:, 3].all()


def test_texts_of_one_label_are_no_negatives_of_each_other() -> None:
    pairs = batch(np.array([[0, 1], [2, 3], [4, 5]]), kind="texts")
    labelled = replace(pairs, classes=torch.tensor([0, 1, 0]))

    masked = not_negative(labelled)

    assert masked.tolist() == [
        [False, False, True],
        [False, False, False],
        [True, False, False],
    ]


def test_pairs_that_do_not_belong_together_are_negatives_and_nothing_else() -> None:
    ranking = objective("multiple-negatives")
    keys = np.array([[0, 1], [2, 3], [4, 5]])
    rows = batch(
        keys,
        labels=torch.tensor([1.0, 0.0, 1.0]),
        kind="classes",
        texts=2,
    )
    vectors = VECTORS[:3, :2]
    unit = functional.normalize(vectors, dim=-1)
    queries = unit[[0, 2], 0]
    scores = 20 * queries @ unit[:, 1].T
    expected = functional.cross_entropy(scores, torch.tensor([0, 2]))

    actual = mean(ranking, vectors, rows)

    assert actual == pytest.approx(float(expected), abs=1e-5)


@pytest.mark.parametrize("copies", [2, 5, 30])
def test_batches_hold_no_text_twice_where_that_can_be(copies: int) -> None:
    rng = np.random.default_rng(copies)
    first_keys = rng.permutation(400) // copies
    second_keys = 1000 + rng.permutation(400)
    keys = np.stack([first_keys, second_keys], axis=1)
    lengths = rng.integers(3, 40, 400)
    for epoch in range(3):
        plain = training_plan(lengths, 32, seed=1, epoch=epoch)

        plan = set_apart(training_plan(lengths, 32, seed=1, epoch=epoch), keys)

        assert sorted(np.concatenate(plan).tolist()) == list(range(400))
        assert len(plan) == len(plain) == 13
        assert max(map(len, plan)) == 32
        if copies < 30:
            assert repeated(plan, keys) <= repeated(plain, keys) / 10
        else:  # 14 texts can't fill a batch of 32
            assert 0 < repeated(plan, keys) <= repeated(plain, keys)


def test_a_text_that_a_row_has_twice_is_shared_with_no_other_row() -> None:
    twice_in_its_row = [[0, 0], [1, 1]]
    shared_by_two_rows = [[2, 3], [4, 3]]
    without_second_text = [[5, -1], [6, -1]]
    keys = np.array([*twice_in_its_row, *shared_by_two_rows, *without_second_text])
    rows_that_share_none = np.array([0, 1, 4, 5])
    all_rows = np.arange(6)

    assert repeated([rows_that_share_none], keys) == 0
    assert repeated([all_rows], keys) == 2


class Encoder(nn.Module):
    """Embeddings, and their mean, for each of a row's texts."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.table = nn.Embedding(WORDS, SIZE)
        self.layer = nn.Linear(SIZE, SIZE)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> SimpleNamespace:
        states = torch.tanh(self.layer(self.table(input_ids)))
        total = (states * attention_mask[..., None]).sum(dim=2)
        n_tokens = attention_mask.sum(dim=2, keepdim=True)
        return SimpleNamespace(vectors=total / n_tokens)


def features(texts: int) -> SentenceFeatures:
    rng = np.random.default_rng(0)
    n_tokens = rng.integers(3, 12, 80 * texts)
    starts = np.concatenate([[0], np.cumsum(n_tokens)])
    ids = rng.integers(2, WORDS, starts[-1]).astype(np.int32)
    encoded = EncodedTexts(
        ids,
        np.zeros(len(ids), np.uint8),
        starts,
        n_tokens,
        np.zeros(80 * texts, dtype=np.int64),
    )
    keys = rng.integers(0, 60, (80, texts))  # some stand twice
    scores = (rng.integers(0, 11, 80) / 10).astype(np.float32)
    ones = np.ones(80, dtype=np.float32)
    return SentenceFeatures(
        encoded,
        np.arange(80 * texts).reshape(80, texts),
        keys,
        labels=scores if texts == 2 else ones,
        classes=np.zeros(80, dtype=np.int64),
        kind="scores" if texts == 2 else "matches",
    )


def engine(objective: SentenceObjective, workers: Workers = ALONE) -> TrainingEngine:
    return replace(engine_of(objective, workers), network=Encoder())


def step(
    engine: TrainingEngine, features: SentenceFeatures, micro_batches: int
) -> tuple[float, dict[str, Tensor]]:
    """Returns the loss of one step and the gradients that it left."""
    random = WindowRandom(7)
    result = training_step(engine, features, ROWS, random, micro_batches=micro_batches)
    return result.loss, gradients(engine)


def step_of_two_workers(
    objective: SentenceObjective, features: SentenceFeatures, micro_batches: int
) -> tuple[list[float], dict[str, Tensor]]:
    """Returns the losses of two workers' common step, and the mean of their gradients."""
    meeting = Meeting(2)
    results: dict[int, tuple[float, dict[str, Tensor]]] = {}

    def work(rank: int) -> None:
        results[rank] = step(engines[rank], features, micro_batches)

    engines = [engine(objective, ThreadWorkers(rank, 2, meeting=meeting)) for rank in range(2)]
    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    first_loss, first_gradients = results[0]
    second_loss, second_gradients = results[1]
    means = {}
    for name, gradient in first_gradients.items():
        means[name] = (gradient + second_gradients[name]) / 2
    return [first_loss, second_loss], means


LOSSES_AND_TEXTS = [("cosent", 2), ("multiple-negatives", 3), ("triplet", 3), ("cosine", 2)]


@pytest.mark.parametrize(("loss", "texts"), LOSSES_AND_TEXTS)
def test_64_at_once_are_4_times_16(loss: str, texts: int) -> None:
    sentence_loss = objective(loss, margin=1.0)
    rows = features(texts)
    whole, gradient = step(engine(sentence_loss), rows, 1)

    for micro_batches in (4, 3):
        split, split_gradient = step(engine(sentence_loss), rows, micro_batches)

        assert split == pytest.approx(whole, abs=1e-6)
        assert_same(split_gradient, gradient)


@pytest.mark.parametrize(("loss", "texts"), LOSSES_AND_TEXTS)
def test_64_at_once_are_2_processes_of_32(loss: str, texts: int) -> None:
    sentence_loss = objective(loss, margin=1.0)
    rows = features(texts)
    whole, gradient = step(engine(sentence_loss), rows, 1)

    for micro_batches in (1, 2):
        losses, mean_gradient = step_of_two_workers(sentence_loss, rows, micro_batches)

        assert losses == pytest.approx([whole, whole], abs=1e-6)
        assert_same(mean_gradient, gradient)


class _Dropping(Encoder):
    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> SimpleNamespace:
        outputs = super().forward(input_ids, attention_mask)
        return SimpleNamespace(vectors=functional.dropout(outputs.vectors, 0.5))


def test_what_is_computed_twice_drops_the_same_numbers_twice() -> None:
    """With other numbers the gradient would not be that of the loss.

    A small step along it would not lower it so.
    """
    rows = features(3)
    network = _Dropping()
    dropping = replace(engine_of(objective("multiple-negatives")), network=network)

    def loss() -> float:
        torch.manual_seed(4)
        return training_step(dropping, rows, ROWS, WindowRandom(7), micro_batches=4).loss

    loss_before = loss()
    squared_norm = sum(float((gradient**2).sum()) for gradient in gradients(dropping).values())
    with torch.no_grad():
        for parameter in network.parameters():
            parameter -= 1e-3 * parameter.grad
    loss_after = loss()

    assert loss_before - loss_after == pytest.approx(1e-3 * squared_norm, rel=0.05)


@pytest.mark.parametrize("loss", ["multiple-negatives", "triplet", "contrastive"])
def test_partners_of_labelled_texts_are_drawn_by_their_label(loss: str) -> None:
    single_texts = replace(
        features(2),
        kind="texts",
        classes=np.arange(80) % 3,
        places=features(2).places[:, :1],
        keys=np.arange(80)[:, None],
    )

    drawn = objective(loss).batch(single_texts, ROWS, WindowRandom(1))

    keys = drawn.keys.numpy()
    assert (keys[:, 0] == ROWS).all()
    assert (keys[:, 1] != keys[:, 0]).all()
    labels = keys % 3
    is_positive = drawn.gold.numpy() > 0
    has_same_label = labels[:, 1] == labels[:, 0]
    assert (has_same_label == is_positive).all()
    if loss == "contrastive":
        assert 0.2 < is_positive.mean() < 0.8
    else:
        assert is_positive.all()
    if loss == "triplet":
        assert (labels[:, 2] != labels[:, 0]).all()

    reversed_rows = ROWS[::-1].copy()
    drawn_again = objective(loss).batch(single_texts, reversed_rows, WindowRandom(1))
    assert (drawn_again.keys.numpy()[::-1] == keys).all(), "whatever batch a text is in"


def test_a_row_without_a_third_text_is_no_triplet() -> None:
    keys = np.arange(48).reshape(16, 3)
    keys[::2, 2] = -1
    triplet = objective("triplet", margin=5.0)
    loss_of_triplets = triplet.losses(VECTORS[1::2], batch(keys[1::2]))["loss"]

    loss_of_all = triplet.losses(VECTORS, batch(keys))["loss"]

    assert float(loss_of_all) == pytest.approx(float(loss_of_triplets))
    assert triplet.counts(batch(keys)) == {"loss": 8.0}
