"""Metrics of sentence vectors against those of the field.

Sentence-transformers' evaluators, and their definitions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bertctl.arrays import Floats32
from bertctl.config.load import load_recipe
from bertctl.metrics.similarity import MEASURES
from bertctl.tasks.sentences.sentence_embeddings import SentenceEmbeddings
from bertctl.tasks.sentences.sentence_features import SentenceFeatures, different, text_keys
from bertctl.tokenization.encode import EncodedTexts
from tests.sentence_folders import sentence_transformers

SEARCH_METRICS = ("mrr_at_10", "ndcg_at_10", "recall_at_1", "recall_at_5", "recall_at_10")
SETS = range(10)


@dataclass(frozen=True)
class PairSet:
    """Rows of two texts each, with a vector for every different text."""

    first: list[str]
    second: list[str]
    gold: list[float]
    vectors: dict[str, Floats32]

    def of(self, texts: Sequence[str]) -> Floats32:
        return np.stack([self.vectors[text] for text in texts])


def made_set(seed: int) -> PairSet:
    """Queries of several passages, and passages of several queries.

    There are rows twice, and a passage equal to its query.
    """
    rng = np.random.default_rng(seed)
    n_rows = int(rng.integers(20, 160))
    n_queries = max(4, n_rows // 3)
    n_passages = max(15, n_rows // 2)
    queries = [f"query {i}" for i in rng.integers(0, n_queries, n_rows)]
    passages = [f"passage {i}" for i in rng.integers(0, n_passages, n_rows)]
    passages[3] = queries[0]
    texts = list(dict.fromkeys([*queries, *passages]))
    size = int(rng.choice([8, 33, 64]))
    drawn = rng.standard_normal((len(texts), size)).astype(np.float32)
    vectors = dict(zip(texts, drawn, strict=True))
    for query, passage in zip(queries, passages, strict=True):
        vectors[passage] += np.float32(0.8) * vectors[query]
    drawn *= rng.uniform(0.5, 2, (len(texts), 1)).astype(np.float32)
    gold = rng.integers(0, 2, n_rows).tolist()
    return PairSet(queries, passages, gold, vectors)


def scored(
    pairs: PairSet, kind: str, measure: str
) -> tuple[SentenceEmbeddings, list[dict[str, Any]], Any]:
    """The task's own lines of these rows, and their metrics."""
    columns = [pairs.first, pairs.second]
    positions, texts = different(columns)
    ids = np.arange(len(texts), dtype=np.int32)
    ones = np.ones(len(texts), dtype=np.int64)
    encoded = EncodedTexts(
        ids, np.zeros(len(ids), np.uint8), np.arange(len(ids) + 1), ones, 0 * ones
    )
    labels = np.array(pairs.gold, dtype=np.float32)
    classes = np.zeros(len(pairs.first), dtype=np.int64)
    features = SentenceFeatures(encoded, positions, text_keys(columns), labels, classes, kind)
    task = SentenceEmbeddings.from_model(load_recipe("sentence-embeddings"), {})
    task = replace(task, modules=replace(task.modules, similarity=measure))
    outputs = {"vectors": pairs.of(texts)}
    if kind == "scores":
        lines = [
            {**line, "gold": gold}
            for line, gold in zip(task.decode(outputs, features, None), pairs.gold, strict=True)
        ]
    elif kind == "classes":
        lines = task.decode(outputs, features, None)
        for line, gold in zip(lines, pairs.gold, strict=True):
            line |= {"gold_match": bool(gold)}
    else:
        lines = task.lines(outputs, features, None)
    return task, lines, task.answers.score(lines, resamples=0, seed=0)


PLAIN: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "cosine": lambda a, b: (
        (a / np.linalg.norm(a)) @ (b / np.linalg.norm(b, axis=1, keepdims=True)).T
    ),
    "dot": lambda a, b: a @ b.T,
    "euclidean": lambda a, b: -np.sqrt(((a - b) ** 2).sum(axis=1)),
    "manhattan": lambda a, b: -np.abs(a - b).sum(axis=1),
}


def searched_by_definition(pairs: PairSet, measure: str) -> dict[str, float]:
    """Each different query ranks each different passage; figures are means over queries."""
    corpus = list(dict.fromkeys(pairs.second))
    vectors = pairs.of(corpus).astype(np.float64)
    figures: dict[str, list[float]] = {name: [] for name in SEARCH_METRICS}
    for query in dict.fromkeys(pairs.first):
        right = {
            passage
            for entry, passage in zip(pairs.first, pairs.second, strict=True)
            if entry == query
        }
        order = np.argsort(
            -PLAIN[measure](pairs.vectors[query].astype(np.float64), vectors), kind="stable"
        )
        hits = [corpus[i] in right for i in order]
        figures["mrr_at_10"].append(1 / (1 + hits.index(True)) if True in hits[:10] else 0.0)
        gain = sum(hit / np.log2(i + 2) for i, hit in enumerate(hits[:10]))
        figures["ndcg_at_10"].append(
            gain / sum(1 / np.log2(i + 2) for i in range(min(10, len(right))))
        )
        for k in (1, 5, 10):
            figures[f"recall_at_{k}"].append(sum(hits[:k]) / len(right))
    return {name: float(np.mean(values)) for name, values in figures.items()}


@pytest.mark.parametrize("measure", MEASURES)
def test_a_search_is_scored_by_query_as_defined(measure: str) -> None:
    for seed in SETS:
        pairs = made_set(seed)
        _, lines, metrics = scored(pairs, "matches", measure)
        assert len(lines) == len(pairs.first), "a line for each row"
        assert len({*pairs.first}) < len(pairs.first), "the premise"
        for name, value in searched_by_definition(pairs, measure).items():
            assert metrics[name].value == pytest.approx(value, abs=1e-9), (seed, name)
            assert metrics[name].n == len({*pairs.first}), "n is queries"


@pytest.mark.parametrize("measure", MEASURES)
def test_pairs_are_scored_as_defined(measure: str) -> None:
    from scipy.stats import pearsonr, spearmanr
    from sklearn.metrics import average_precision_score

    for seed in SETS[:2]:
        pairs = made_set(seed)
        a = pairs.of(pairs.first).astype(np.float64)
        b = pairs.of(pairs.second).astype(np.float64)
        similarities = np.array(
            [PLAIN[measure](entry, other[None])[0] for entry, other in zip(a, b, strict=True)]
        )
        gold = np.array(pairs.gold)
        _, _, metrics = scored(pairs, "classes", measure)
        assert metrics["average_precision"].value == pytest.approx(
            average_precision_score(gold, similarities), abs=1e-9
        )
        accepted = similarities[None, :] >= similarities[:, None]
        best_f1 = (2 * (accepted * gold).sum(axis=1) / (accepted.sum(axis=1) + gold.sum())).max()
        assert metrics["best_f1"].value == pytest.approx(best_f1, abs=1e-9)
        cuts = [*similarities, np.inf]
        assert metrics["best_accuracy"].value == pytest.approx(
            max(((similarities >= c) == gold).mean() for c in cuts)
        )
        _, _, correlations = scored(pairs, "scores", measure)
        assert correlations["spearman"].value == pytest.approx(
            spearmanr(gold, similarities).statistic, abs=1e-9
        )
        assert correlations["pearson"].value == pytest.approx(
            pearsonr(gold, similarities).statistic, abs=1e-6
        )


@pytest.mark.slow
@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("seed", SETS)
def test_metrics_equal_those_of_sentence_transformers(measure: str, seed: int) -> None:
    sentence_transformers()
    from sentence_transformers.sentence_transformer import evaluation
    from sentence_transformers.util import SimilarityFunction

    pairs = made_set(seed)
    model = _GivenVectors(pairs, measure, SimilarityFunction.to_similarity_fn(measure))
    queries = {text: f"q{i}" for i, text in enumerate(dict.fromkeys(pairs.first))}
    corpus = {text: f"d{i}" for i, text in enumerate(dict.fromkeys(pairs.second))}
    relevant: dict[str, set[str]] = {}
    for query, passage in zip(pairs.first, pairs.second, strict=True):
        relevant.setdefault(queries[query], set()).add(corpus[passage])
    theirs = evaluation.InformationRetrievalEvaluator(
        {number: text for text, number in queries.items()},
        {number: text for text, number in corpus.items()},
        relevant,
        precision_recall_at_k=[1, 5, 10],
    )(model)
    _, _, ours = scored(pairs, "matches", measure)
    for name in SEARCH_METRICS:
        expected = theirs[f"{measure}_{name.replace('_at_', '@')}"]
        assert ours[name].value == pytest.approx(expected, abs=1e-9), name

    theirs = evaluation.EmbeddingSimilarityEvaluator(pairs.first, pairs.second, pairs.gold)(model)
    _, _, ours = scored(pairs, "scores", measure)
    for name in ("spearman", "pearson"):
        assert ours[name].value == pytest.approx(theirs[f"{name}_{measure}"], abs=1e-9), name

    theirs = evaluation.BinaryClassificationEvaluator(pairs.first, pairs.second, pairs.gold)(model)
    _, _, ours = scored(pairs, "classes", measure)
    for name, key in (
        ("average_precision", "ap"),
        ("best_f1", "f1"),
        ("best_accuracy", "accuracy"),
    ):
        assert ours[name].value == pytest.approx(theirs[f"{measure}_{key}"], abs=1e-9), name


class _GivenVectors:
    """What an evaluator asks of a model, with vectors that are given."""

    model_card_data = SimpleNamespace(set_evaluation_metrics=lambda *_, **__: None)

    def __init__(self, pairs: PairSet, measure: str, similarity: Any) -> None:
        self._pairs = pairs
        self.similarity_fn_name = measure
        self.similarity = similarity

    def encode(self, texts: Sequence[str], *, convert_to_tensor: bool = False, **_: Any) -> Any:
        import torch

        vectors = self._pairs.of(list(texts))
        return torch.from_numpy(vectors) if convert_to_tensor else vectors

    encode_query = encode_document = encode
