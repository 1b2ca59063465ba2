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

SIZE, WORDS = 12, 40
_GENERATOR = np.random.default_rng(3)
VECTORS = torch.from_numpy(_GENERATOR.standard_normal((16, 3, SIZE))).float()
SCORES = torch.from_numpy(_GENERATOR.integers(0, 11, 16) / 10).float()
ROWS = np.random.default_rng(5).permutation(80)[:64]


def objective(loss: str, *, margin: float = 0.0, **more: Any) -> SentenceObjective:
    row = SENTENCE_LOSSES[loss]
    drawing = {"draws_negatives": row.draws_negatives, "draws_third_text": row.draws_third_text}
    objective_class: type[SentenceObjective] = row.objective_class(next(iter(row.classes)))
    return objective_class(Padding(0), margin=margin, draws_partners=True, **{**drawing, **more})


def batch(
    keys: Any = None, labels: Tensor | None = None, kind: str = "matches", texts: int = 3
) -> SentenceBatch:
    keys = np.arange(16 * texts).reshape(16, texts) if keys is None else keys
    labels = torch.ones(len(keys)) if labels is None else labels
    return SentenceBatch(
        {}, labels, torch.zeros(len(keys), dtype=torch.int64), torch.as_tensor(keys), kind
    )


def mean(given: SentenceObjective, vectors: Tensor, of: SentenceBatch) -> float:
    return float(given.losses(vectors, of)["loss"]) / given.counts(of)["loss"]


def by_hand(name: str, v: Tensor) -> tuple[SentenceObjective, SentenceBatch, Tensor]:
    """A loss, its batch, and what it should be, written out pair by pair."""
    unit = v / v.norm(dim=-1, keepdim=True)
    cosines = torch.stack([unit[i, 0] @ unit[i, 1] for i in range(16)])
    near = (SCORES > 0.5).float()
    if name == "cosine":
        return (
            objective("cosine"),
            batch(labels=SCORES, kind="scores"),
            ((cosines - SCORES) ** 2).mean(),
        )
    if name == "cosent":
        pairs = [(i, j) for i in range(16) for j in range(16) if SCORES[i] < SCORES[j]]
        total = 1 + sum(torch.exp(20 * (cosines[i] - cosines[j])) for i, j in pairs)
        return (
            objective("cosent"),
            batch(labels=SCORES, kind="scores"),
            torch.log(torch.as_tensor(total)),
        )
    if name == "contrastive":
        far = torch.clamp(0.5 - (1 - cosines), min=0)
        expected = 0.5 * (near * (1 - cosines) ** 2 + (1 - near) * far**2)
        return (
            objective("contrastive", margin=0.5),
            batch(labels=near, kind="classes"),
            expected.mean(),
        )
    if name == "triplet":
        away = [(v[i, 0] - v[i, 1]).norm() - (v[i, 0] - v[i, 2]).norm() + 5 for i in range(16)]
        return objective("triplet", margin=5.0), batch(), torch.stack(away).clamp(min=0).mean()
    columns = v[:, :2] if "pairs" in name else v
    candidates = torch.cat([unit[:, k] for k in range(1, columns.shape[1])])
    scores = 20 * unit[:, 0] @ candidates.T
    expected = (scores.logsumexp(dim=1) - scores.diagonal()).mean()
    if "symmetric" in name:
        back = scores[:, :16].T
        expected = (expected + (back.logsumexp(dim=1) - back.diagonal()).mean()) / 2
    given = objective("multiple-negatives", symmetric="symmetric" in name)
    return given, batch(texts=columns.shape[1]), expected


LOSSES = ["cosine", "cosent", "contrastive", "triplet", "pairs", "triplets", "symmetric pairs"]


@pytest.mark.parametrize("name", LOSSES)
def test_each_loss_by_hand(name: str) -> None:
    given, of, expected = by_hand(name, VECTORS)
    vectors = VECTORS[:, : of.keys.shape[1]]
    assert mean(given, vectors, of) == pytest.approx(float(expected), abs=1e-5)
    both = replace(given, widths=(5, SIZE))
    cut = [
        by_hand(name, functional.normalize(VECTORS[..., :width], dim=-1))[2] for width in (5, SIZE)
    ]
    assert mean(both, vectors, of) == pytest.approx(float(sum(cut)), abs=2e-5), (
        "of length 1, as in MatryoshkaLoss"
    )
    alone = replace(given, widths=(5, 5))
    assert mean(alone, vectors, of) == mean(both, vectors, of), (
        "whole vectors are trained too, and no width twice"
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", LOSSES)
def test_each_loss_is_that_of_sentence_transformers(name: str) -> None:
    losses = sentence_transformers().sentence_transformer.losses
    given, of, _ = by_hand(name, VECTORS)
    vectors = VECTORS[:, : of.keys.shape[1]]
    model = SimpleNamespace()
    kinds = {
        "cosine": losses.CosineSimilarityLoss,
        "cosent": losses.CoSENTLoss,
        "contrastive": losses.ContrastiveLoss,
        "triplet": losses.TripletLoss,
    }
    both = {"directions": ("query_to_doc", "doc_to_query"), "partition_mode": "per_direction"}
    more = both if "symmetric" in name else {}
    theirs = kinds.get(name, losses.MultipleNegativesRankingLoss)(model, **more)
    columns = [
        vectors[:, k]
        for k in range(2 if name in ("cosine", "cosent", "contrastive") else vectors.shape[1])
    ]
    expected = theirs.compute_loss_from_embeddings(columns, of.gold)
    assert mean(given, vectors, of) == pytest.approx(float(expected), abs=1e-5)


class _Given:
    """Stands for the library's model: its texts are their vectors."""

    device = torch.device("cpu")

    def __call__(self, features: Any) -> Any:
        return features


@pytest.mark.slow
def test_softmax_is_that_of_sentence_transformers() -> None:
    head = SentenceHead(SentenceModules(), SIZE, classes=3).requires_grad_(False)
    classes = torch.arange(16) % 3
    of = replace(batch(kind="classes", texts=2), classes=classes)
    ours = mean(objective("softmax"), head.logits(VECTORS[:, :2]), of)
    theirs = sentence_transformers().sentence_transformer.losses.SoftmaxLoss(
        _Given(), SIZE, num_labels=3
    )
    theirs.classifier.load_state_dict(head.classifier.state_dict())
    expected = theirs([{"sentence_embedding": VECTORS[:, k]} for k in (0, 1)], classes).detach()
    assert ours == pytest.approx(float(expected), abs=1e-5)


def test_softmax_reads_cut_vectors_and_their_difference() -> None:
    head = SentenceHead(SentenceModules(), SIZE, classes=3, widths=(5,))  # and whole vectors
    logits = head.logits(VECTORS[:, :2])
    assert logits is not None
    for number, width in enumerate((5, SIZE)):
        u, v = (
            torch.cat([VECTORS[:, k, :width], torch.zeros(16, SIZE - width)], dim=1) for k in (0, 1)
        )
        expected = head.classifier(torch.cat([u, v, (u - v).abs()], dim=1))
        torch.testing.assert_close(logits[:, number], expected)


def test_equal_texts_are_never_negatives_of_each_other() -> None:
    texts = [["a", "x"], ["b", "x"], ["a", "y"], ["c", "a"]]
    masked = not_negative(batch(text_keys(list(zip(*texts, strict=True)))))
    out = {(i, j) for i, j in masked.nonzero().tolist()}
    # a: x and y are right for it, and it is the last candidate itself; b: x is right for it,
    # wherever it stands.
    assert out == {(0, 1), (0, 2), (0, 3), (1, 0), (2, 0), (2, 1), (2, 3)}
    blank = batch(text_keys([["a", "b"], ["x", "y"], ["z", " "]]))
    assert not_negative(blank)[:, 3].all(), "a third text that there is none of"
    labelled = replace(
        batch(np.array([[0, 1], [2, 3], [4, 5]]), kind="texts"), classes=torch.tensor([0, 1, 0])
    )
    assert not_negative(labelled).tolist() == [
        [False, False, True],
        [False] * 3,
        [True, False, False],
    ]


def test_pairs_that_do_not_belong_together_are_negatives_and_nothing_else() -> None:
    near = torch.tensor([1.0, 0.0, 1.0])
    given = objective("multiple-negatives")
    of = batch(np.array([[0, 1], [2, 3], [4, 5]]), near, "classes", 2)
    unit = functional.normalize(VECTORS[:3, :2], dim=-1)
    scores = 20 * unit[[0, 2], 0] @ unit[:, 1].T
    expected = functional.cross_entropy(scores, torch.tensor([0, 2]))
    assert mean(given, VECTORS[:3, :2], of) == pytest.approx(float(expected), abs=1e-5)


@pytest.mark.parametrize("copies", [2, 5, 30])
def test_batches_hold_no_text_twice_where_that_can_be(copies: int) -> None:
    rng = np.random.default_rng(copies)
    keys = np.stack([rng.permutation(400) // copies, 1000 + rng.permutation(400)], axis=1)
    lengths = rng.integers(3, 40, 400)
    for epoch in range(3):
        plan = set_apart(training_plan(lengths, 32, seed=1, epoch=epoch), keys)
        assert sorted(np.concatenate(plan).tolist()) == list(range(400))
        assert len(plan) == len(training_plan(lengths, 32, seed=1, epoch=epoch)) == 13
        assert max(map(len, plan)) == 32
        equal, plain = (
            repeated(plan, keys),
            repeated(training_plan(lengths, 32, seed=1, epoch=epoch), keys),
        )
        if copies < 30:
            assert equal <= plain / 10
        else:  # 14 texts can't fill a batch of 32
            assert 0 < equal <= plain


def test_a_text_that_a_row_has_twice_is_shared_with_no_other_row() -> None:
    keys = np.array([[0, 0], [1, 1], [2, 3], [4, 3], [5, -1], [6, -1]])
    assert repeated([np.array([0, 1, 4, 5])], keys) == 0
    assert repeated([np.arange(6)], keys) == 2


class Encoder(nn.Module):
    """Embeddings, and their mean, for each of a row's texts."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.table, self.layer = nn.Embedding(WORDS, SIZE), nn.Linear(SIZE, SIZE)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> SimpleNamespace:
        states = torch.tanh(self.layer(self.table(input_ids))) * attention_mask[..., None]
        return SimpleNamespace(vectors=states.sum(dim=2) / attention_mask.sum(dim=2, keepdim=True))


def features(texts: int) -> SentenceFeatures:
    rng = np.random.default_rng(0)
    starts = np.concatenate([[0], np.cumsum(rng.integers(3, 12, 80 * texts))])
    ids = rng.integers(2, WORDS, starts[-1]).astype(np.int32)
    zeros = np.zeros(80 * texts, dtype=np.int64)
    encoded = EncodedTexts(ids, np.zeros(len(ids), np.uint8), starts, np.diff(starts), zeros)
    places = np.arange(80 * texts).reshape(80, texts)
    keys = rng.integers(0, 60, (80, texts))  # some stand twice
    labels = (rng.integers(0, 11, 80) / 10).astype(np.float32)
    kind = "scores" if texts == 2 else "matches"
    labels = labels if texts == 2 else np.ones(80, dtype=np.float32)
    return SentenceFeatures(encoded, places, keys, labels, np.zeros(80, dtype=np.int64), kind)


def engine(given: SentenceObjective, workers: Workers = ALONE) -> TrainingEngine:
    return replace(engine_of(given, workers), network=Encoder())


def step(engine: TrainingEngine, of: SentenceFeatures, micro_batches: int) -> Any:
    found = training_step(engine, of, ROWS, WindowRandom(7), micro_batches=micro_batches)
    return found.loss, gradients(engine)


@pytest.mark.parametrize(
    ("loss", "texts"), [("cosent", 2), ("multiple-negatives", 3), ("triplet", 3), ("cosine", 2)]
)
def test_64_at_once_are_4_times_16_are_2_processes_of_32(loss: str, texts: int) -> None:
    given, of = objective(loss, margin=1.0), features(texts)
    whole, gradient = step(engine(given), of, 1)
    for micro_batches in (4, 3):
        split, of_split = step(engine(given), of, micro_batches)
        assert split == pytest.approx(whole, abs=1e-6)
        assert_same(of_split, gradient)
    for micro_batches in (1, 2):
        meeting, found = Meeting(2), [None, None]
        engines = [engine(given, ThreadWorkers(rank, 2, meeting=meeting)) for rank in range(2)]

        def work(
            rank: int, n: int = micro_batches, by: Any = engines, into: list[Any] = found
        ) -> None:
            into[rank] = step(by[rank], of, n)

        threads = [threading.Thread(target=work, args=(rank,)) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [each[0] for each in found] == pytest.approx([whole] * 2, abs=1e-6)
        grads = [each[1] for each in found]
        assert_same(
            {name: torch.stack([one[name] for one in grads]).mean(dim=0) for name in grads[0]},
            gradient,
        )


class _Dropping(Encoder):
    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> SimpleNamespace:
        found = super().forward(input_ids, attention_mask)
        return SimpleNamespace(vectors=functional.dropout(found.vectors, 0.5))


def test_what_is_computed_twice_drops_the_same_numbers_twice() -> None:
    """With other numbers the gradient would not be that of the loss.

    A small step along it would not lower it so.
    """
    given, of = objective("multiple-negatives"), features(3)
    network = _Dropping()
    dropping = replace(engine_of(given), network=network)

    def loss() -> float:
        torch.manual_seed(4)
        return training_step(dropping, of, ROWS, WindowRandom(7), micro_batches=4).loss

    before = loss()
    square = sum(float((one.grad**2).sum()) for one in network.parameters() if one.grad is not None)
    with torch.no_grad():
        for one in network.parameters():
            one -= 1e-3 * one.grad
    assert before - loss() == pytest.approx(1e-3 * square, rel=0.05)


def test_partners_of_labelled_texts_are_drawn_by_their_label() -> None:
    of = replace(features(2), kind="texts", classes=np.arange(80) % 3)
    of = replace(of, places=of.places[:, :1], keys=np.arange(80)[:, None])
    for loss in ("multiple-negatives", "triplet", "contrastive"):
        drawn = objective(loss).batch(of, ROWS, WindowRandom(1))
        again = objective(loss).batch(of, ROWS[::-1].copy(), WindowRandom(1))
        keys = drawn.keys.numpy()
        assert (again.keys.numpy()[::-1] == keys).all(), "whatever batch a text is in"
        assert (keys[:, 0] == ROWS).all()
        assert (keys[:, 1] != keys[:, 0]).all()
        near = drawn.gold.numpy() > 0
        assert (keys[near, 1] % 3 == keys[near, 0] % 3).all()
        assert (keys[~near, 1] % 3 != keys[~near, 0] % 3).all()
        assert near.all() if loss != "contrastive" else 0.2 < near.mean() < 0.8
        if loss == "triplet":
            assert (keys[:, 2] % 3 != keys[:, 0] % 3).all()


def test_a_row_without_a_third_text_is_no_triplet() -> None:
    keys = np.arange(48).reshape(16, 3)
    keys[::2, 2] = -1
    given = objective("triplet", margin=5.0)
    whole = given.losses(VECTORS[1::2], batch(keys[1::2]))["loss"]
    assert float(given.losses(VECTORS, batch(keys))["loss"]) == pytest.approx(float(whole))
    assert given.counts(batch(keys)) == {"loss": 8.0}
