"""Names of clusters: words by Unicode's rules, in any script."""

import unicodedata

import numpy as np
import pytest

from bertctl.checking.near import near_duplicates
from bertctl.data.word_splitting import cuts_word, words_alone
from bertctl.errors import UsageError
from bertctl.search.clusters import (
    check_measure,
    cluster_words,
    clusters_of,
    silhouette,
    telling_words,
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("हिन्दी भाषा बहुत", ["हिन्दी", "भाषा", "बहुत"]),
        ("தமிழ் மொழி", ["தமிழ்", "மொழி"]),
        ("বাংলা ভাষা", ["বাংলা", "ভাষা"]),
        (unicodedata.normalize("NFD", "café crème"), ["café", "crème"]),
        ("שָׁלוֹם עולם", ["שָׁלוֹם", "עולם"]),
        ("مرحبًا بالعالم", ["مرحبًا", "بالعالم"]),
        ("银行卡丢了", ["银行", "行卡", "卡丢", "丢了"]),
        ("A 7 é don't", ["don't"]),
    ],
)
def test_words_that_may_name_a_cluster(text: str, words: list[str]) -> None:
    expected = [unicodedata.normalize("NFC", word) for word in words]
    actual = telling_words(text)
    assert [word for word in actual if word not in ("do", "n't")] == [
        word for word in expected if word != "don't"
    ]


def test_scripts_without_blanks_are_read_in_pieces() -> None:
    for text in ("ภาษาไทยง่ายมากสำหรับทุกคน", "これはとてもよいほんです", "トヨタジドウシャ"):
        words = telling_words(text)
        assert len(words) > 3
        assert all(len(word) < 12 for word in words)


def test_a_word_of_any_length_is_cut() -> None:
    (name,) = cluster_words(["x" * 3000, "x" * 3000 + " y", "z"], np.array([0, 0, 0]))[:1]
    names = cluster_words(["x" * 3000, "x" * 3000 + " aa", "zz"], np.array([0, 0, 1]))
    assert len(names[0]) < 60
    assert len(name) < 60


def test_words_that_stand_everywhere_name_no_cluster() -> None:
    texts = [
        f"why is it that the {word} {i}"
        for i, word in enumerate(["bank card", "bank loan", "cup final", "cup team"])
    ]
    assert cluster_words(texts, np.array([0, 0, 1, 1])) == ["bank", "cup"]


def test_a_text_that_is_copied_names_no_cluster() -> None:
    texts = ["odd words"] * 50 + ["bank card", "bank loan", "cup final", "cup team"]
    assert cluster_words(texts, np.array([0] * 52 + [1, 1]))[0] == "bank"
    vectors = np.vstack(
        [np.tile([1.0, 0], (50, 1)), [[1, 0.1], [1, 0.2], [0, 1], [0.1, 1]]]
    ).astype(np.float32)
    spread = silhouette(vectors, np.array([0] * 52 + [1, 1]), texts, seed=0)
    assert spread is not None
    assert spread["texts"] == 5, "different texts"


@pytest.mark.parametrize(
    ("method", "similarity", "fits"),
    [
        ("kmeans", "cosine", True),
        ("kmeans", "euclidean", True),
        ("kmeans", "manhattan", False),
        ("agglomerative", "manhattan", True),
        ("hdbscan", "manhattan", True),
        ("hdbscan", "dot", False),
    ],
)
def test_a_measure_is_grouped_by_or_refused_by_name(
    method: str, similarity: str, fits: bool
) -> None:
    if not fits:
        with pytest.raises(
            UsageError, match=f"`method={method}` can't group texts by {similarity}"
        ):
            check_measure(method, similarity)
        return
    check_measure(method, similarity)
    vectors = np.array([[0, 1], [0, 1.1], [5, 0], [5, 0.1]], dtype=np.float32)
    count = None if method == "hdbscan" else 2
    clusters = clusters_of(vectors, method, count, smallest=2, seed=0, similarity=similarity)
    assert clusters[0] == clusters[1] != clusters[2] == clusters[3]


def test_clear_groups_are_found_by_batches_too() -> None:
    rng = np.random.default_rng(0)
    centres = np.eye(3, 8, dtype=np.float32)
    group = rng.integers(0, 3, 600)
    vectors = centres[group] + rng.normal(0, 0.05, (600, 8)).astype(np.float32)

    clusters = clusters_of(vectors, "kmeans", 3, smallest=2, seed=0, approximate=True)

    assert np.array_equal(clusters, clusters_of(vectors, "kmeans", 3, smallest=2, seed=0))
    assert len(set(zip(clusters.tolist(), group.tolist(), strict=True))) == 3


@pytest.mark.parametrize(
    ("text", "start", "end", "cuts"),
    [
        ("हिन्दी भाषा", 0, 6, False),
        ("हिन्दी भाषा", 0, 5, True),  # before a vowel sign
        (unicodedata.normalize("NFD", "café noir"), 0, 4, True),  # before an accent
        ("a film", 0, 3, True),
        ("a film", 2, 6, False),
        ("安娜从奥斯陆", 0, 2, False),  # where a Chinese word ends can't be seen
        ("คุณสมชาย", 3, 8, False),
    ],
)
def test_a_word_is_cut_by_the_rules_of_unicode(text: str, start: int, end: int, cuts: bool) -> None:
    assert cuts_word(text, start, end) == cuts


def test_words_that_differ_in_their_vowel_signs_are_no_near_duplicates() -> None:
    first = "कि की कु के का कौ कं कः गि गी गु गे गा"
    second = first.replace("ि", "ो").replace("ी", "ौ").replace("ु", "ा").replace("े", "ि")
    assert words_alone(first) == first
    assert not near_duplicates([first * 2, second * 2])
    assert words_alone("It's good_food, no?") == "It s good food no"
