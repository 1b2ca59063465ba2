"""Texts in groups by their vectors, and the words that tell the groups apart.

Letters: N texts, D size of a vector, C clusters.
"""

import itertools
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np

from bertctl.arrays import Floats32, Ints, numbers_of
from bertctl.data.groups import first_positions
from bertctl.data.packed_columns import is_packed, selected
from bertctl.data.word_splitting import split_words
from bertctl.errors import UsageError
from bertctl.metrics.similarity import COSINE
from bertctl.words import shorten

_MATRIX_ROWS = 20_000
"""Texts of which all distances are in memory at once (1.6 GB)."""
STARTS = 10
"""Starts of kmeans, of which the best one is kept."""
_BATCH = 8192
"""Texts of a batch, and starts of which the best is kept, for kmeans by batches."""
_BATCH_STARTS = 3
COPIES = {"kmeans": 3, "agglomerative": 2, "hdbscan": 4}
"""Copies of all vectors that are in memory at once, by method."""
_COUNTED_AT_ONCE = 8192
"""Vectors that are compared at once, to count the different ones."""
_SAMPLE = 3_000
"""Texts that the silhouette is computed on."""
_WORDS = 4
"""Words of a cluster's name."""
_LONGEST_WORD = 30
"""Characters of a word in a name; an address or a code may have thousands."""

_METRICS = {
    "kmeans": {"cosine": "euclidean", "euclidean": "euclidean"},
    "agglomerative": {"cosine": "sqeuclidean", "euclidean": "euclidean", "manhattan": "manhattan"},
    "hdbscan": {"cosine": "euclidean", "euclidean": "euclidean", "manhattan": "manhattan"},
}
"""scikit-learn's metric of each method and measure. A dot product is no distance; kmeans has the
Euclidean one."""

_PIECES = {"CJK": 2, "HIRAGANA": 3, "KATAKANA": 4, "THAI": 4, "LAO": 4, "KHMER": 4, "MYANMAR": 4}
"""Characters that are taken for a word in scripts without blanks, by the first word of a
character's Unicode name."""


def check_clusters(method: str, clusters: int | None, *, approximate: bool = False) -> None:
    """Refuses a number of clusters that a method does not take, or none where it takes one.

    Raises:
        UsageError: with what to type.
    """
    if method == "hdbscan" and clusters is not None:
        message = (
            f"`method=hdbscan` finds out how many clusters there are, and `clusters={clusters}` "
            "was given"
        )
        raise UsageError(message, remedy="Leave `clusters=` out, or choose `method=kmeans`.")
    if approximate and method != "kmeans":
        message = f"`approximate=True` is for `method=kmeans`, not {method}"
        raise UsageError(message, remedy="Leave `approximate=True` out, or choose `method=kmeans`.")
    if method != "hdbscan" and clusters is None:
        remedy = "Give a number: `clusters=8`. Or `method=hdbscan`, which chooses it."
        raise UsageError(
            f"`method={method}` takes a number of clusters, and none was given", remedy=remedy
        )


def check_measure(method: str, similarity: str) -> None:
    """Refuses a measure that a method can't group by.

    Raises:
        UsageError: With what to type.
    """
    if similarity in _METRICS[method]:
        return
    able = [name for name, metrics in _METRICS.items() if similarity in metrics]
    if able:
        remedy = f"Choose `method={' or '.join(able)}`, or `similarity=cosine`."
    else:
        remedy = "Add `similarity=cosine`."
    raise UsageError(
        f"`method={method}` can't group texts by {similarity} similarity", remedy=remedy
    )


def clusters_of(
    vectors: Floats32,
    method: str,
    clusters: int | None,
    *,
    smallest: int,
    seed: int,
    similarity: str = COSINE,
    approximate: bool = False,
) -> Ints:
    """Returns (N,) the number of each text's cluster, the largest first; -1 for none (HDBSCAN).

    Agglomerative clustering joins by the mean cosine, as the squared distance: a vector of zeros,
    which a layer with ReLU may give, has no cosine. The others see vectors of length 1, whose
    distances have the order of cosines. By Euclidean and Manhattan distances the vectors are as
    they are.

    Args:
        vectors: (N, D); for cosines of length 1.
        method: kmeans (Lloyd's, `STARTS` starts), agglomerative or hdbscan.
        clusters: C, as `check_clusters` lets it through.
        smallest: texts of a cluster of hdbscan, at least.
        seed: of kmeans.
        similarity: Measure of two texts, as `check_measure` lets it through.
        approximate: Whether kmeans moves its centres by batches (Sculley 2010) and not by all
            texts.

    Raises:
        UsageError: too few texts, or too many.
    """
    from sklearn.cluster import HDBSCAN, AgglomerativeClustering, KMeans, MiniBatchKMeans

    n_needed = clusters or smallest
    # The message of agglomerative clustering may have the whole number, as it has an upper limit.
    if method == "agglomerative":
        counted_up_to = None
    else:
        counted_up_to = n_needed
    n_different = _number_of_different(vectors, counted_up_to)
    if n_different < n_needed or (method == "agglomerative" and len(vectors) > _MATRIX_ROWS):
        message = (
            f"{len(vectors):,} texts, {n_different:,} of them different, do not fit "
            f"`method={method}`"
        )
        if method == "agglomerative":
            upper_limit = f", {_MATRIX_ROWS:,} at most"
        else:
            upper_limit = ""
        raise UsageError(
            message, remedy=f"It takes {n_needed:,} different ones at least{upper_limit}."
        )
    metric = _METRICS[method][similarity]
    if method == "kmeans" and approximate:
        kmeans = MiniBatchKMeans(
            clusters,
            batch_size=_BATCH,
            n_init=_BATCH_STARTS,
            random_state=seed,
        )
        labels = kmeans.fit_predict(vectors)
    elif method == "kmeans":
        labels = KMeans(clusters, n_init=STARTS, random_state=seed).fit_predict(vectors)
    elif method == "agglomerative":
        labels = AgglomerativeClustering(clusters, metric=metric, linkage="average").fit_predict(
            vectors
        )
    else:
        labels = HDBSCAN(min_cluster_size=smallest, metric=metric, copy=True).fit_predict(vectors)
    found_labels, counts = np.unique(labels[labels >= 0], return_counts=True)
    rank_of_label = {
        name: i for i, name in enumerate(found_labels[np.argsort(-counts, kind="stable")].tolist())
    }
    return np.array([rank_of_label.get(name, -1) for name in labels.tolist()])


def _number_of_different(vectors: Floats32, enough: int | None) -> int:
    """Returns how many vectors are different to six decimals.

    Args:
        vectors: (N, D).
        enough: Number at which counting stops; None to count all.
    """
    hashes: set[int] = set()
    for start in range(0, len(vectors), _COUNTED_AT_ONCE):
        rounded = vectors[start : start + _COUNTED_AT_ONCE].round(6) + 0.0  # no negative zeros
        hashes.update(hash(row.tobytes()) for row in rounded)
        if enough is not None and len(hashes) >= enough:
            break
    return len(hashes)


def cluster_words(texts: Sequence[str], clusters: Ints) -> list[str]:
    """Returns the words that tell each cluster from the others, the most telling first.

    A word weighs by how many more texts of the cluster have it than would by chance, in standard
    deviations, times the square root of the logarithm of how few texts have it at all. So what is
    everywhere weighs nothing, and `it` and `why` weigh little, in any language, where class-based
    tf-idf (Grootendorst 2022, section 3.3) keeps them on top unless they are taken out first. Words
    of a single text name a cluster only where it has no other ones. A text that stands several
    times counts once.
    """
    from sklearn.feature_extraction.text import CountVectorizer

    different = _different_places(texts)
    clusters = clusters[different]
    counter = CountVectorizer(analyzer=telling_words, binary=True)
    counted = itertools.chain(selected(texts, different), ["no words"])  # it needs a vocabulary
    has_word = counter.fit_transform(counted)[:-1]
    words = counter.get_feature_names_out()
    n_texts = len(different)
    n_with = np.asarray(has_word.sum(axis=0), dtype=np.float64)[0]
    share_with = n_with / n_texts
    rarity = np.log((1 + n_texts) / np.maximum(n_with, 1))
    names = []
    for cluster in range(clusters.max() + 1):
        is_member = clusters == cluster
        n_members_with = np.asarray(has_word[is_member].sum(axis=0), dtype=np.float64)[0]
        expected = share_with * is_member.sum()
        deviation = np.sqrt(np.maximum(expected * (1 - share_with), 1e-9))
        # The number of members with a word is binomial if the word tells nothing.
        weights = (n_members_with - expected) / deviation * np.sqrt(rarity)
        is_shared = n_members_with > 1
        weights[share_with == 1] = 0  # a word that all texts have
        if (is_shared & (weights > 0)).any():
            weights[~is_shared] = 0
        best = np.argsort(-weights, kind="stable")[:_WORDS]
        names.append(" ".join(shorten(words[i], _LONGEST_WORD) for i in best if weights[i] > 0))
    return names


def telling_words(text: str) -> list[str]:
    """Returns the words of a text that may name its cluster: without case, of two letters at least.

    Marks belong to their letters, as in Hindi and in decomposed accents. Scripts that put no blanks
    between words are read in pieces of some characters: two of Chinese, as search engines do, more
    of the others.

    # "The café is open"   the café is open -> the café is open
    # "银行卡丢了"          银行 行卡 卡丢 丢了
    """
    words, offsets = split_words(unicodedata.normalize("NFC", text).casefold())
    telling = []
    run = ""
    run_end = -1
    for word, (start, end) in zip(words, offsets, strict=True):
        is_unspaced = _piece_length(word[0]) > 0
        continues_run = is_unspaced and start == run_end
        if run and not (continues_run and _piece_length(word[0]) == _piece_length(run[0])):
            telling += _pieces(run)
            run = ""
        if is_unspaced:
            run += word
            run_end = end
        elif _has_two_letters(word):
            telling.append(word)
    return telling + _pieces(run)


def _has_two_letters(word: str) -> bool:
    """Returns whether a word has at least two letters; digits and signs don't count."""
    letters = sum(unicodedata.category(character)[0] == "L" for character in word)
    return letters > 1


def _piece_length(character: str) -> int:
    """Returns how many characters of a script without blanks count as a word.

    It is 0 for other scripts.
    """
    script = unicodedata.name(character, "").partition(" ")[0]
    return _PIECES.get(script, 0)


def _pieces(run: str) -> list[str]:
    """Returns the overlapping pieces of a text without blanks; marks stay with their letters."""
    if not run:
        return []
    characters: list[str] = []
    for character in run:
        if characters and unicodedata.category(character)[0] == "M":
            characters[-1] += character
        else:
            characters.append(character)
    size = _piece_length(run[0])
    starts = range(max(1, len(characters) - size + 1))
    return ["".join(characters[start : start + size]) for start in starts]


def _different_places(texts: Sequence[str]) -> Ints:
    """Returns (U,) where each different text occurs first, in ascending order."""
    if is_packed(texts):
        first_places = first_positions(f" {text}" for text in texts)  # a blank text is one, too
        return np.flatnonzero(first_places == np.arange(len(first_places)))
    numbers, _ = numbers_of(texts)
    positions: Ints = np.unique(numbers, return_index=True)[1]
    return positions


def silhouette(
    vectors: Floats32, clusters: Ints, texts: Sequence[str], *, seed: int, similarity: str = COSINE
) -> dict[str, Any] | None:
    """Returns how much nearer texts are to their own cluster than to the next one: -1 to 1.

    It is the mean over a sample of the different texts that are in a cluster; None where fewer than
    two clusters are among them.
    """
    from sklearn.metrics import silhouette_score

    different = _different_places(texts)
    in_cluster = different[clusters[different] >= 0]
    sample = np.random.default_rng(seed).permutation(in_cluster)[:_SAMPLE]
    if not 2 <= len(np.unique(clusters[sample])) < len(sample):
        return None
    value = silhouette_score(vectors[sample], clusters[sample], metric=similarity)
    return {"value": round(float(value), 6), "texts": len(sample)}
