"""Texts that look for others by their vectors.

It says which belong to which, and at what rank they are found.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bertctl.arrays import Floats, Floats32, Ints
from bertctl.metrics.retrieval import ranks_of
from bertctl.metrics.similarity import COSINE, similarity_rows
from bertctl.tasks.sentences.sentence_features import SentenceFeatures

_KEPT = 100
"""Ranks that a prediction line keeps."""


@dataclass(frozen=True)
class SearchResult:
    """What one query has found.

    Attributes:
        line: Fields of the prediction line of each of its rows.
        loss: How unlikely its right texts are among all, as in `multiple-negatives`.
    """

    line: dict[str, Any]
    loss: float


@dataclass(frozen=True)
class SearchPlan:
    """Different queries of a split and the different texts that they are looked for among.

    Letters: Q queries, C candidates.

    Attributes:
        query_of_row: (N,) number of each row's query.
        query_texts: (Q,) which text of the split each query is.
        candidate_texts: (C,) which text of the split each candidate is.
        relevant: For each query the candidates that belong to it.
        own_candidate: For each query the candidate that is the same text; -1 for none.
        leaves_out_itself: Whether that one is no candidate for its own query. Of pairs it is one,
            as it is for sentence-transformers' evaluator, which knows queries and documents by
            their ids.
    """

    query_of_row: Ints
    query_texts: Ints
    candidate_texts: Ints
    relevant: Sequence[Ints]
    own_candidate: Sequence[int]
    leaves_out_itself: bool


def search(
    plan: SearchPlan, vectors: Floats32, *, measure: str, scale: float
) -> list[SearchResult]:
    """Returns what each of the Q different queries finds.

    Args:
        plan: Which texts look for which.
        vectors: (M, D) vectors of the different texts of the split.
        measure: Name of the similarity that texts are ranked by.
        scale: What cosines are multiplied by in the loss, which is that of `multiple-negatives`.
    """
    queries = vectors[plan.query_texts]
    candidates = vectors[plan.candidate_texts]
    measured = list(similarity_rows(measure, queries, candidates))
    cosines = measured
    if measure != COSINE:
        cosines = list(similarity_rows(COSINE, queries, candidates))
    return [
        _result(
            plan,
            query,
            similarities=row,
            cosines=cosine_row,
            scale=scale,
        )
        for query, (row, cosine_row) in enumerate(zip(measured, cosines, strict=True))
    ]


def _result(
    plan: SearchPlan, query: int, similarities: Floats, cosines: Floats, scale: float
) -> SearchResult:
    """Returns the ranks of a query's relevant texts among the candidates, and its loss.

    Args:
        plan: Queries, candidates, and which of them are relevant.
        query: Number of the query in the plan.
        similarities: Similarities of the query to each candidate, which decide the ranks.
        cosines: Cosines of the query to each candidate, for the loss.
        scale: What cosines are multiplied by in the loss.
    """
    relevant = plan.relevant[query]
    if not len(relevant):
        line = {
            "prediction": len(plan.candidate_texts),
            "ranks": [],
            "relevant": 0,
            "similarity": 0.0,
        }
        return SearchResult(line, loss=0.0)
    # The query's own text may be among the candidates (-1: it is not), as an irrelevant one.
    own_candidate = plan.own_candidate[query]
    is_irrelevant_candidate = own_candidate >= 0 and own_candidate not in relevant
    # The loss always leaves it out: as in training, a text is never its own negative.
    if is_irrelevant_candidate:
        cosines = cosines.copy()
        cosines[own_candidate] = -np.inf
    # It has a rank like any candidate, unless the plan leaves it out.
    if is_irrelevant_candidate and plan.leaves_out_itself:
        similarities = similarities.copy()
        similarities[own_candidate] = -np.inf
    ranks = ranks_of(similarities, relevant)
    scaled = cosines * scale
    loss = np.logaddexp.reduce(scaled) - np.logaddexp.reduce(scaled[relevant])
    line = {
        "prediction": ranks[0],
        "ranks": ranks[:_KEPT],
        "relevant": len(relevant),
        "similarity": float(similarities[relevant].max()),
    }
    return SearchResult(line, loss=float(max(loss, 0.0)))


def random_search(n_relevant_of: Mapping[str, int], n_candidates: int) -> list[dict[str, Any]]:
    """Returns a prediction line for each query: its relevant texts have random ranks.

    Args:
        n_relevant_of: Each different query -> how many texts are relevant to it.
        n_candidates: Number of texts that are ranked for each query.
    """
    random = np.random.default_rng(0)
    lines = []
    for query, n_relevant in n_relevant_of.items():
        # Different numbers from 0 to n_candidates - 1; ranks count from 1.
        drawn = random.choice(
            n_candidates,
            n_relevant,
            replace=False,
            shuffle=False,
        )
        ranks = np.sort(1 + drawn).tolist()
        lines.append(
            {
                "query": query,
                "prediction": ranks[0] if ranks else 0,
                "ranks": ranks,
                "relevant": n_relevant,
            }
        )
    return lines


def plan_of_pairs(features: SentenceFeatures) -> SearchPlan:
    """Returns a plan in which first texts look for their second ones among all second texts.

    Equal texts have one key: they are one query, or one candidate.
    """
    query_keys, query_rows, query_of_row = np.unique(
        features.keys[:, 0], return_index=True, return_inverse=True
    )
    candidate_keys, candidate_rows, candidate_of_row = np.unique(
        features.keys[:, 1], return_index=True, return_inverse=True
    )
    query_texts = features.places[query_rows, 0]
    candidate_texts = features.places[candidate_rows, 1]
    candidate_of_key = {key: candidate for candidate, key in enumerate(candidate_keys.tolist())}
    return SearchPlan(
        query_of_row=query_of_row,
        # Texts with the same token ids share the vector of the first of them.
        query_texts=features.first_alike[query_texts],
        candidate_texts=features.first_alike[candidate_texts],
        relevant=_grouped(query_of_row, candidate_of_row, len(query_keys)),
        # A first text may also be the second text of a row. The loss does not take it for its own
        # negative, but it gets a rank as any candidate.
        own_candidate=[candidate_of_key.get(key, -1) for key in query_keys.tolist()],
        leaves_out_itself=False,
    )


def plan_of_labelled_texts(features: SentenceFeatures) -> SearchPlan:
    """Returns a plan in which texts look for the others that have one of their labels.

    Equal texts have one key and are one text here, with the labels of all rows that have it. Each
    text is a query, and a candidate for all other texts.
    """
    keys, first_row_of_text, text_of_row = np.unique(
        features.keys[:, 0], return_index=True, return_inverse=True
    )
    label_of_row = features.classes
    n_labels = int(label_of_row.max(initial=0)) + 1
    texts_of_label = _grouped(label_of_row, text_of_row, n_labels)
    labels_of_text = _grouped(text_of_row, label_of_row, len(keys))
    relevant = []
    for text, labels in enumerate(labels_of_text):
        same_label = np.unique(np.concatenate([texts_of_label[label] for label in labels]))
        relevant.append(same_label[same_label != text])
    # Texts with the same token ids share the vector of the first of them.
    texts_with_vectors = features.first_alike[features.places[first_row_of_text, 0]]
    return SearchPlan(
        query_of_row=text_of_row,
        query_texts=texts_with_vectors,
        candidate_texts=texts_with_vectors,
        relevant=relevant,
        own_candidate=list(range(len(keys))),  # query i is candidate i
        leaves_out_itself=True,
    )


def _grouped(owners: Ints, members: Ints, n_owners: int) -> list[Ints]:
    """Returns the different members of each owner, in ascending order.

    Args:
        owners: (N,) number of the owner in each pair.
        members: (N,) number of the member in each pair.
        n_owners: Owners are numbered from 0 to here, and each has a pair.
    """
    pairs = np.unique(np.stack([owners, members], axis=1), axis=0)
    starts = np.searchsorted(pairs[:, 0], np.arange(1, n_owners))
    return np.split(pairs[:, 1], starts)
