"""Sentence embeddings as a task.

What rows are, what is refused, and what is found among all texts of a split.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from bertctl.catalog.models import locate_model
from bertctl.config.load import load_recipe
from bertctl.data.readers import READERS
from bertctl.data.recipe_data import load_data
from bertctl.data.rows import Rows
from bertctl.errors import BertctlError
from bertctl.metrics.retrieval import ranks_of
from bertctl.metrics.similarity import similarity_rows
from bertctl.runtime.batching import Padding
from bertctl.tasks.sentences.sentence_answers import SentenceAnswers
from bertctl.tasks.sentences.sentence_embeddings import SentenceEmbeddings
from bertctl.tasks.sentences.sentence_features import SentenceFeatures, text_keys
from bertctl.tokenization.encode import EncodedTexts

PAIRS = [("a film", "a movie"), ("good food", "fine food"), ("very dull", "a bore")]


def read(folder: Path, rows: list[dict[str, Any]], **fields: Any) -> tuple[Any, Rows]:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {name.replace("__", "."): value for name, value in fields.items()}
    recipe = load_recipe("sentence-embeddings", options={"model.name": "minilm", **options})
    reading = READERS[recipe.task].read(path, recipe.data, split="train", label_needed=True)
    return recipe, reading.rows


@pytest.mark.parametrize(
    ("extra", "kind", "loss"),
    [
        (({"score": 0.5}, {"score": 4.0}, {"score": 3.25}), "scores", "cosine"),
        (({"label": 0}, {"label": 1}, {"label": 1}), "classes", "contrastive"),
        (({"label": "1"}, {"label": "2"}, {"label": "entailment"}), "classes", "softmax"),
        (
            ({"label": "entailment"}, {"label": "neutral"}, {"label": "contradiction"}),
            "classes",
            "softmax",
        ),
        (({}, {}, {}), "matches", "multiple-negatives"),
        (({"negative": "x"}, {"negative": ""}, {"negative": "z"}), "matches", "multiple-negatives"),
    ],
)
def test_the_rows_say_what_is_learned(extra, kind, loss, tmp_path) -> None:
    named = {"evaluation__positive_label": "entailment"} if {"label": "entailment"} in extra else {}
    given = [{"text": a, "pair": b, **more} for (a, b), more in zip(PAIRS, extra, strict=True)]
    recipe, rows = read(tmp_path, given, **named)
    task = SentenceEmbeddings.from_data(recipe, rows, None)
    assert task.kind == kind
    assert task.loss == loss
    again = SentenceEmbeddings.from_model(recipe, task.head())
    assert again.kind == kind
    assert again.loss == loss
    assert again.labels == task.labels
    assert again.low == task.low
    assert again.high == task.high
    assert rows.has("negative") == ("negative" in extra[0])


def _rows(*labels: object, **more: Any) -> list[dict[str, Any]]:
    return [
        {"text": a, "pair": b, "label": label, **more}
        for (a, b), label in zip(PAIRS, labels, strict=False)
    ]


def _fitted(folder: Path, rows: list[dict[str, Any]], fields: dict[str, Any]) -> SentenceEmbeddings:
    recipe, found = read(folder, rows, **fields)
    task = SentenceEmbeddings.from_data(recipe, found, None)
    task.check(found)
    return task


@pytest.mark.parametrize(
    ("rows", "fields", "code", "said"),
    [
        ([{"text": "a"}, {"text": "b"}], {}, 3, "no label"),
        (_rows(1.5, 2.5, 7.0), {"sentence_embeddings__score_range": [0.0, 5.0]}, 3, "rows.jsonl:3"),
        (_rows(1.5, 1.5, 1.5), {}, 3, "every label is the same"),
        (_rows(1.5, 2.5, 3.0), {"sentence_embeddings__loss": "triplet"}, 2, "scored pairs"),
        (_rows("yes", "no", ""), {}, 3, "the label is empty"),
        (
            _rows("a", "b", "c"),
            {"sentence_embeddings__loss": "contrastive"},
            2,
            "which of the labels",
        ),
        (_rows("a", "b", "c"), {}, 2, "which of the labels"),
        (_rows("a", "b", "a"), {"evaluation__positive_label": "c"}, 2, "unknown label 'c'"),
        (
            _rows("1.5", "nan", "3"),
            {},
            3,
            "rows.jsonl:2: the label 'nan' is not a score, and 2 others are",
        ),
        (_rows("3", "5", "inf"), {}, 3, "rows.jsonl:3: the label 'inf' is not a score"),
        (_rows("1.5", "abc", "3"), {}, 3, "rows.jsonl:2: the label 'abc' is not a score"),
        (_rows(1, 2, 3), {"sentence_embeddings__score_range": [5.0, 0.0]}, 2, "5 is not below 0"),
        (
            [{"text": a, "pair": b} for a, b in PAIRS],
            {"sentence_embeddings__loss": "triplet"},
            2,
            "third text",
        ),
        (
            [{"text": a, "pair": b} for a, b in PAIRS],
            {"sentence_embeddings__loss": "cosine"},
            2,
            "bare pairs",
        ),
        (
            [{"text": a, "pair": b, "negative": " "} for a, b in PAIRS],
            {"sentence_embeddings__loss": "triplet"},
            2,
            "third text",
        ),
        (
            [{"text": a, "pair": b} for a, b in PAIRS],
            {"training__batch_size": 1},
            2,
            "batch_size is 1",
        ),
        (
            _rows(1.5, 2.5, 3.0),
            {"sentence_embeddings__loss": "cosent", "training__batch_size": 1},
            2,
            "size is 1",
        ),
        (
            [{"text": "a", "label": "x"}, {"text": "b", "label": "x"}],
            {},
            3,
            "every label is the same",
        ),
    ],
)
def test_what_does_not_fit_is_refused(rows, fields, code, said, tmp_path) -> None:
    with pytest.raises(BertctlError, match=said) as refused:
        _fitted(tmp_path, rows, fields)
    assert refused.value.exit_code == code
    assert refused.value.remedy


def test_questions_of_squad_are_read_with_their_paragraphs(tmp_path) -> None:
    qas = [
        {"id": "1", "question": "who?", "answers": [{"text": "Ada", "answer_start": 0}]},
        {"id": "2", "question": "when?", "answers": [], "is_impossible": True},
    ]
    document = {"data": [{"title": "T", "paragraphs": [{"context": "Ada wrote it.", "qas": qas}]}]}
    path = tmp_path / "squad.json"
    path.write_text(json.dumps(document))
    recipe = load_recipe("squad-retrieval")
    reading = READERS[recipe.task].read(path, recipe.data, split="train", label_needed=True)
    assert reading.rows.columns["text"] == ["who?"]
    assert reading.rows.columns["pair"] == ["Ada wrote it."]


def test_validation_rows_have_labels_of_their_own_under_another_name(tmp_path) -> None:
    train = tmp_path / "train.csv"
    validation = tmp_path / "validation.csv"
    train.write_text("sentence1,sentence2,gold_label\na film,a movie,yes\ngood food,a bore,no\n")
    validation.write_text("sentence1,sentence2,score\na film,a movie,4.5\ngood food,a bore,0.5\n")
    files = {"data.train_file": str(train), "data.validation_file": str(validation)}
    recipe = load_recipe("sentence-embeddings", options=files)
    assert load_data(recipe).splits["validation"].columns["label"] == ["4.5", "0.5"]
    with pytest.raises(BertctlError, match="no column 'gold'"):
        load_data(recipe.with_fields("data", label_column="gold"))


@pytest.mark.parametrize("named", [{}, {"data.negative_column": "worse"}])
def test_triplets_are_learned_from_and_scores_chosen_by(tmp_path, named) -> None:
    train = tmp_path / "train.csv"
    validation = tmp_path / "validation.csv"
    third = named.get("data.negative_column", "negative")
    train.write_text(f"text,pair,{third}\na film,a movie,a bore\nfood,meal,dull\n")
    validation.write_text("text,pair,score\na film,a movie,4.5\ngood food,a bore,0.5\n")
    files = {"data.train_file": str(train), "data.validation_file": str(validation)}
    splits = load_data(load_recipe("sentence-embeddings", options={**files, **named})).splits
    assert splits["train"].columns["negative"] == ["a bore", "dull"]
    assert splits["validation"].columns["label"] == ["4.5", "0.5"]
    assert not splits["validation"].has("negative")


@pytest.mark.parametrize("scored", [True, False])
@pytest.mark.parametrize(
    ("labels", "positive_label", "expected"),
    [
        (["alike", "differ", "alike"], "alike", [1, 0, 1]),
        (["entailment", "neutral", "contradiction"], "entailment", [1, 0, 0]),
        (["0", "1", "1"], None, [0, 1, 1]),
        (["1", "1", "1"], None, [1, 1, 1]),
        (["a", "b", "c"], None, None),
    ],
)
def test_labels_of_other_pairs_mean_what_was_asked(
    tmp_path, labels, positive_label, expected, scored
) -> None:
    """Learned from scores or from bare pairs, chosen by labelled ones."""
    bare_pairs = [{"text": text, "pair": pair} for text, pair in PAIRS]
    train = _rows(1.5, 2.5, 4.0) if scored else bare_pairs
    fields = {}
    if positive_label:
        fields["evaluation__positive_label"] = positive_label
    recipe, rows = read(tmp_path, train, **fields)
    task = SentenceEmbeddings.from_data(recipe, rows, None)
    tokenizer = Tokenizer.from_file(str(locate_model("minilm") / "tokenizer.json"))
    _, other_rows = read(tmp_path, _rows(*labels))

    if expected is None:
        with pytest.raises(BertctlError, match="which of the labels 'a', 'b', 'c' says"):
            task.encode(other_rows, tokenizer, max_length=8)
        return

    loaded = SentenceEmbeddings.from_model(recipe, task.head())
    assert task.encode(other_rows, tokenizer, max_length=8).labels.tolist() == expected
    assert loaded.encode(other_rows, tokenizer, max_length=8).labels.tolist() == expected


def test_labels_that_were_learned_keep_their_meaning_where_the_positive_one_is_missing(
    tmp_path,
) -> None:
    recipe, rows = read(
        tmp_path, _rows("entailment", "neutral", "no"), evaluation__positive_label="entailment"
    )
    task = SentenceEmbeddings.from_data(recipe, rows, None)
    _, others = read(tmp_path, _rows("neutral", "no", "no"))
    tokenizer = Tokenizer.from_file(str(locate_model("minilm") / "tokenizer.json"))
    assert task.encode(others, tokenizer, max_length=8).labels.tolist() == [0, 0, 0]


@pytest.mark.parametrize("is_pair", [True, False])
def test_the_baseline_of_a_search_is_a_random_order(tmp_path, is_pair) -> None:
    """Where a row has many right texts, chance finds one of them early."""
    if is_pair:
        rows = [{"text": f"q{i // 5}", "pair": f"d{i}"} for i in range(400)]
        n_relevant = 5
        n_candidates = 400
    else:
        rows = [{"text": f"text {i}", "label": "xy"[i % 2]} for i in range(400)]
        n_relevant = 199
        n_candidates = 399
    recipe, split = read(tmp_path, rows)

    baseline = SentenceEmbeddings.from_data(recipe, split, None).baseline(0.0, split)

    expected = _mean_reciprocal_rank_by_chance(n_relevant, n_candidates)
    assert baseline["mrr_at_10"] == pytest.approx(expected, abs=0.05)
    assert baseline["recall_at_10"] == pytest.approx(10 / n_candidates, abs=0.01)


def _mean_reciprocal_rank_by_chance(n_relevant: int, n_candidates: int) -> float:
    """Returns the mean of 4,000 random orders, by their first relevant text among the first 10."""
    rng = np.random.default_rng(1)
    reciprocal_ranks = []
    for _ in range(4000):
        ranks = 1 + rng.permutation(n_candidates)[:n_relevant]
        first_rank = ranks.min()
        reciprocal_ranks.append(1 / first_rank if first_rank <= 10 else 0.0)
    return float(np.mean(reciprocal_ranks))


def _features(
    columns: list[list[str]], kind: str, classes: list[int] | None = None
) -> SentenceFeatures:
    n_rows = len(columns[0])
    n_texts = n_rows * len(columns)
    encoded = EncodedTexts(
        ids=np.arange(n_texts, dtype=np.int32),
        type_ids=np.zeros(n_texts, np.uint8),
        starts=np.arange(n_texts + 1),
        full_lengths=np.ones(n_texts, dtype=np.int64),
        unknown=np.zeros(n_texts, dtype=np.int64),
    )
    return SentenceFeatures(
        encoded,
        places=np.arange(n_texts).reshape(n_rows, -1),
        keys=text_keys(columns),
        labels=np.ones(n_rows, dtype=np.float32),
        classes=np.array(classes or [0] * n_rows, dtype=np.int64),
        kind=kind,
    )


def _task() -> SentenceEmbeddings:
    return SentenceEmbeddings.from_model(load_recipe("sentence-embeddings"), {})


def _at_degrees(*degrees: float) -> np.ndarray:
    """Unit vectors in the plane, by their angles."""
    angles = np.deg2rad(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def _ranks(vectors: np.ndarray, features: SentenceFeatures) -> list[list[int]]:
    lines = _task().lines({"vectors": vectors}, features, None)
    return [line["ranks"] for line in lines]


QUERIES = _at_degrees(0, 40, 90, 0)  # the first one comes twice
DOCUMENTS = _at_degrees(10, 45, 80, 30)
TRIPLETS = np.stack([QUERIES, DOCUMENTS, QUERIES], axis=1).reshape(-1, 2)
"""A negative is its query's vector: among the candidates it would be the first."""


def _triplet_features() -> SentenceFeatures:
    queries = ["q0", "q1", "q2", "q0"]
    documents = ["d0", "d1", "d2", "d3"]
    negatives = ["n0", "n1", "n2", "n3"]
    return _features([queries, documents, negatives], "matches")


def test_each_text_is_looked_for_among_the_different_documents_of_the_split() -> None:
    features = _triplet_features()

    lines = _task().lines({"vectors": TRIPLETS}, features, None)

    ranks = [line["ranks"] for line in lines]
    assert ranks == [[1, 2], [1], [1], [1, 2]]
    assert [line["relevant"] for line in lines] == [2, 1, 1, 2]


def test_a_document_equal_to_the_query_is_a_candidate_as_in_the_evaluators() -> None:
    features = _features([["q0", "q1", "q2", "q3"], ["d0", "q0", "d2", "d2"]], "matches")
    vectors = _at_degrees(0, 10, 40, 1, 90, 80, 0, 30)  # the document "q0" at 1

    assert _ranks(vectors, features) == [[2], [2], [1], [3]]


def test_texts_with_labels_are_looked_for_among_all_others() -> None:
    features = _features([["a", "b", "c", "d"]], "texts", [0, 0, 1, 0])

    assert _ranks(QUERIES, features) == [[1, 2], [1, 2], [], [1, 2]]


def test_the_loss_of_a_search_is_the_cross_entropy_of_its_document() -> None:
    losses = _task().row_losses({"vectors": TRIPLETS}, _triplet_features())

    scores = 20 * QUERIES[1] @ DOCUMENTS.T
    expected = np.log(np.exp(scores).sum()) - scores[1]
    assert losses[1] == pytest.approx(float(expected), abs=1e-4)


def test_a_constant_vector_finds_nothing_and_ties_are_no_luck() -> None:
    task = _task()
    features = _features([["q0", "q1", "q2"], ["d0", "d1", "d2"]], "matches")
    vectors = np.ones((6, 5), dtype=np.float32)

    lines = task.lines({"vectors": vectors}, features, None)
    metrics = task.answers.score(lines, resamples=100, seed=0)

    assert [line["prediction"] for line in lines] == [3, 3, 3]
    assert metrics["mrr_at_10"].value == pytest.approx(1 / 3)
    assert metrics["ndcg_at_10"].value == pytest.approx(1 / np.log2(4))
    assert metrics["recall_at_1"].value == 0.0
    assert metrics["recall_at_5"].value == 1.0
    assert task.answers.constant_prediction(lines) == "about 1"


@pytest.mark.parametrize(
    ("labels", "constant_prediction"),
    [
        ([0, 1, 2], None),  # each text is alone with its label
        ([0, 0, 1], "about 1"),
    ],
)
def test_equal_vectors_of_labelled_texts_are_a_constant_prediction(
    labels, constant_prediction
) -> None:
    task = _task()
    features = _features([["a", "b", "c"]], "texts", labels)
    vectors = np.ones((3, 5), dtype=np.float32)

    lines = task.lines({"vectors": vectors}, features, None)

    assert task.answers.constant_prediction(lines) == constant_prediction


@pytest.fixture
def minilm_tokenizer() -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(locate_model("minilm") / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def test_a_text_is_read_once_for_scoring_however_many_rows_have_it(
    tmp_path, minilm_tokenizer
) -> None:
    texts = ["who?", "what?", "who?", "Ada wrote it."]
    rows = [{"text": text, "pair": "Ada wrote it."} for text in texts]
    recipe, read_rows = read(tmp_path, rows)
    task = SentenceEmbeddings.from_data(recipe, read_rows, None)

    features = task.encode(read_rows, minilm_tokenizer, max_length=16)

    assert len(features) == 4
    assert features.tokens.tolist() == [10, 10, 10, 12]
    scored_texts = task.scored(features)
    assert len(scored_texts) == scored_texts.num_predictions == 3

    who = [101, 2040, 1029, 102, 0, 0]
    ada = [101, 15262, 2626, 2009, 1012, 102]
    batch = features.collate(np.array([0, 3]), Padding(0))
    assert batch.inputs["input_ids"].tolist() == [[who, ada], [ada, ada]]

    vectors = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    who_unit, what_unit, ada_unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    lines = task.decode({"vectors": vectors}, features, read_rows)
    cosines = [line["prediction"] for line in lines]
    who_cosine = who_unit @ ada_unit
    what_cosine = what_unit @ ada_unit
    assert cosines == pytest.approx([who_cosine, what_cosine, who_cosine, 1.0], abs=1e-6)


def test_labels_of_texts_are_their_own_where_those_of_pairs_were_learned(tmp_path) -> None:
    recipe, rows = read(tmp_path, _rows("1", "0", "1"))
    task = SentenceEmbeddings.from_data(recipe, rows, None)
    assert task.labels == ("0", "1"), "the premise"
    labelled_texts = [
        {"text": "a", "label": "x"},
        {"text": "b", "label": "y"},
        {"text": "c", "label": "x"},
    ]
    _, texts = read(tmp_path, labelled_texts)
    tokenizer = Tokenizer.from_file(str(locate_model("minilm") / "tokenizer.json"))

    features = task.encode(texts, tokenizer, max_length=8)

    assert features.classes.tolist() == [0, 1, 0]


def test_equal_texts_are_ties_whatever_the_rounding_of_their_cosines() -> None:
    """Of equals the right one comes last; the last bits of a matrix product depend on the place."""
    rng = np.random.default_rng(0)
    queries, documents = rng.standard_normal((2, 203, 36)).astype(np.float32)
    copies = [0, 50, 111, 199, 202]
    documents[copies] = documents[7]

    for row in similarity_rows("cosine", queries, documents):
        (rank,) = ranks_of(row, np.array([7]))

        assert rank == (row > row[7] - 1e-9).sum()
        for copy in copies:
            assert ranks_of(row, np.array([copy])) == [rank]


def _searched(
    columns: list[list[str]], kind: str, classes: list[int] | None = None
) -> list[dict[str, Any]]:
    """Lines of a search in which each different text has a random vector."""
    features = _features(columns, kind, classes)
    n_texts = int(features.keys.max()) + 1
    rng = np.random.default_rng(3)
    vectors = rng.standard_normal((n_texts, 5)).astype(np.float32)
    vectors_of_rows = vectors[features.keys.ravel()]
    return _task().lines({"vectors": vectors_of_rows}, features, None)


@pytest.mark.parametrize(
    ("columns", "kind", "classes", "n"),
    [
        ([["a", "a", "a", "b"], ["1", "2", "3", "4"]], "matches", None, 2),
        ([["a", "b", "a", "b"], ["1", "2", "1", "2"]], "matches", None, 2),  # the same rows twice
        ([["a", "a", "b", "c", "d"]], "texts", [0, 0, 0, 1, 1], 4),  # a text twice with its label
        ([["a", "a", "b", "c"]], "texts", [0, 1, 0, 1], 3),  # a text with two labels
        ([["a", "b", "c"]], "texts", [0, 0, 1], 2),  # the only one with its label looks for nothing
    ],
)
def test_what_is_searched_counts_once_however_many_rows_it_has(columns, kind, classes, n) -> None:
    answers = SentenceAnswers()

    lines = _searched(columns, kind, classes)
    metrics = answers.score(lines, resamples=0, seed=0)

    assert len(lines) == len(columns[0])
    assert metrics["mrr_at_10"].n == n
    assert metrics["ndcg_at_10"].n == n
    assert metrics["recall_at_1"].n == n
    assert sum(row[1] for row in answers.outcome(lines).rows) == n

    different = [lines[position] for position in answers.unit_positions(lines)]
    queries = {line["query"] for line in different}
    assert len(queries) == len(different) == len({*columns[0]})
    metrics_of_different = answers.score(different, resamples=0, seed=0)
    assert metrics_of_different == metrics, "rows of one query say the same"


def test_a_copy_of_a_text_is_not_what_it_looks_for() -> None:
    lines = _searched([["a", "b", "c", "a"]], "texts", [0, 0, 1, 0])

    assert [line["relevant"] for line in lines] == [1, 1, 0, 1]
    n_others = 2
    for line in lines:
        assert all(rank <= n_others for rank in line["ranks"])


def test_predictions_of_older_runs_are_counted_by_their_texts() -> None:
    lines = _searched([["a", "a", "b"], ["1", "2", "3"]], "matches")
    older = [{**line, "text": text} for line, text in zip(lines, "aab", strict=True)]
    for line in older:
        del line["query"]
    answers = SentenceAnswers()
    assert answers.score(older, resamples=0, seed=0) == answers.score(lines, resamples=0, seed=0)


def test_texts_that_the_model_reads_alike_are_a_tie() -> None:
    features = _features([["q", "r"], ["Film", "film"]], "matches")
    ids = np.array([0, 1, 2, 1], dtype=np.int32)
    encoded_alike = replace(features, encoded=replace(features.encoded, ids=ids))
    vectors = np.array([[1, 0], [1, 1], [0, 1], [1, 1.0001]], dtype=np.float32)

    ranks = _ranks(vectors, encoded_alike)

    assert ranks == [[2], [2]], "of equals a right one comes last"


def _triplets(folder: Path, text: str, name: str, split: str = "train") -> list[tuple[str, ...]]:
    path = folder / name
    path.write_text(text)
    recipe = load_recipe("sentence-embeddings", options={"model.name": "minilm"})
    rows = READERS[recipe.task].read(path, recipe.data, split=split, label_needed=True).rows
    names = [column for column in ("text", "pair", "negative") if rows.has(column)]
    return list(zip(*(rows.columns[column] for column in names), strict=True))


@pytest.mark.parametrize(
    "names",
    ["negative_1,negative_2,negative_3", "negative,negative_2,negative_3", "neg,neg_1,neg_2"],
)
@pytest.mark.parametrize("separator", [",", "\t"])
def test_every_hard_negative_of_a_row_is_learned_from(
    names: str, separator: str, tmp_path: Path
) -> None:
    rows = ["anchor,positive," + names, "q1,p1,n1,n2,n3", "q2,p2,m1,,"]
    text = "".join(row.replace(",", separator) + "\n" for row in rows)
    file = "rows.csv" if separator == "," else "rows.tsv"
    triplets = _triplets(tmp_path, text, file)
    assert triplets == [
        ("q1", "p1", "n1"),
        ("q1", "p1", "n2"),
        ("q1", "p1", "n3"),
        ("q2", "p2", "m1"),
    ]
    assert len(_triplets(tmp_path, text, file, split="validation")) == 2, (
        "no negative is looked for"
    )


def test_hard_negatives_in_json_lines_are_read_alike(tmp_path: Path) -> None:
    rows = [
        {"anchor": "q1", "positive": "p1", "negative_1": "n1", "negative_2": "n2"},
        {"anchor": "q2", "positive": "p2"},
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    assert _triplets(tmp_path, text, "rows.jsonl") == [
        ("q1", "p1", "n1"),
        ("q1", "p1", "n2"),
        ("q2", "p2", ""),
    ]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"pos": ["p1"], "neg": ["n1", "n2"]}, [("q", "p1", "n1"), ("q", "p1", "n2")]),
        ({"pos": ["p1", "p2"], "neg": ["n1"]}, [("q", "p1", "n1"), ("q", "p2", "n1")]),
        ({"pos": ["p1", "p2"], "neg": []}, [("q", "p1"), ("q", "p2")]),
        ({"pos": ["p1"]}, [("q", "p1")]),
        ({"pos": ["p1", " "], "neg": ["n1"], "pos_scores": [1.0], "id": "7"}, [("q", "p1", "n1")]),
    ],
)
def test_lists_of_right_and_wrong_texts_are_read(
    row: dict[str, Any], expected: list[Any], tmp_path: Path
) -> None:
    assert _triplets(tmp_path, json.dumps({"query": "q", **row}) + "\n", "rows.jsonl") == expected


def test_right_texts_alone_are_looked_for(tmp_path: Path) -> None:
    row = {"query": "q", "pos": ["p1", "p2"], "neg": ["n1", "n2", "n3"]}
    assert _triplets(tmp_path, json.dumps(row) + "\n", "v.jsonl", split="validation") == [
        ("q", "p1"),
        ("q", "p2"),
    ]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"query": "q", "pos": [], "neg": ["n"]}, "rows.jsonl:1: 'pos' has no text"),
        ({"query": "q", "pos": [{"text": "p"}]}, "rows.jsonl:1: 'pos' holds"),
        ({"query": "q", "pos": ["p"], "neg": [3]}, "rows.jsonl:1: 'neg' holds 3 where"),
        (
            {"query": "q", "positive_passages": [{"text": "p"}], "negative_passages": []},
            "the form of Tevatron",
        ),
        (
            {"question": "q", "positive_ctxs": [{"text": "p"}], "hard_negative_ctxs": []},
            "the form of DPR",
        ),
    ],
)
def test_lists_that_can_not_be_read_are_refused_by_line_or_by_the_name_of_the_format(
    row: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(BertctlError, match=said) as refused:
        _triplets(tmp_path, json.dumps(row) + "\n", "rows.jsonl")
    assert refused.value.exit_code == 3
