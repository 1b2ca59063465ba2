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
    """Refuses arguments that a clustering method does not take, or a missing number of clusters.

    Args:
        method: `kmeans`, `agglomerative` or `hdbscan`.
        clusters: Number of clusters; hdbscan takes none, the others need it.
        approximate: Whether centres are moved by batches of texts; only kmeans can do this.

    Raises:
        UsageError: The arguments don't fit the method; the message says what to type.
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
    """Refuses a measure of similarity by which a clustering method can't group texts.

    Raises:
        UsageError: The method can't; the message names the methods that can.
    """
    if similarity in _METRICS[method]:
        return
    methods = [name for name, metrics in _METRICS.items() if similarity in metrics]
    if methods:
        remedy = f"Choose `method={' or '.join(methods)}`, or `similarity=cosine`."
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
    """Groups texts by their vectors, and returns (N,) the number of each text's cluster.

    Cluster 0 is the largest one. HDBSCAN gives -1 to texts that are in no cluster.

    By cosines, all vectors have length 1, and their Euclidean distances have the order of cosines.
    Agglomerative clustering averages squared distances then, which are linear in the cosine.
    scikit-learn's own cosine distance would refuse a vector of zeros, which a layer with ReLU may
    give. By Euclidean and Manhattan distances the vectors are as they are.

    Args:
        vectors: (N, D); for cosines of length 1.
        method: kmeans (Lloyd's, `STARTS` starts), agglomerative or hdbscan.
        clusters: Number of clusters, C; None for hdbscan. `check_clusters` has accepted it.
        smallest: Texts that a cluster of hdbscan has at least.
        seed: Seed of kmeans.
        similarity: Measure of two texts. `check_measure` has accepted it.
        approximate: Whether kmeans moves its centres by batches (Sculley 2010) and not by all
            texts.

    Raises:
        UsageError: too few texts, or too many.
    """
    from sklearn.cluster import HDBSCAN, AgglomerativeClustering, KMeans, MiniBatchKMeans

    n_needed = clusters or smallest
    # Counting stops once there are enough, unless the message below needs the whole number: that of
    # agglomerative clustering does, as there can be too many texts.
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
    return _numbered_by_size(labels)


def _numbered_by_size(labels: Ints) -> Ints:
    """Returns (N,) cluster labels numbered anew, from 0 for the largest cluster.

    Negative labels, of texts in no cluster, become -1.
    """
    cluster_labels, sizes = np.unique(labels[labels >= 0], return_counts=True)
    largest_first = cluster_labels[np.argsort(-sizes, kind="stable")]
    numbers = {label: number for number, label in enumerate(largest_first.tolist())}
    return np.array([numbers.get(label, -1) for label in labels.tolist()])


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
    """Returns a name for each cluster: the words that tell it from the others, the best ones first.

    The weight of a word is the number of texts of the cluster that have it, less the number to
    expect by chance, in standard deviations. It is multiplied by the square root of its idf, the
    logarithm of how few texts have it at all. So words of all texts weigh nothing, and `it` and
    `why` weigh little, in any language. Class-based tf-idf (Grootendorst 2022, section 3.3) keeps
    those on top unless stop words are removed.

    A word that only one text of the cluster has is in the name only if there are no others. Equal
    texts count once.

    Args:
        texts: The N texts.
        clusters: (N,) the number of each text's cluster, -1 for none.
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
        weights[share_with == 1] = 0  # a word that all texts have
        is_shared = n_members_with > 1
        has_shared_words = (is_shared & (weights > 0)).any()
        if has_shared_words:
            weights[~is_shared] = 0
        best = np.argsort(-weights, kind="stable")[:_WORDS]
        names.append(" ".join(shorten(words[i], _LONGEST_WORD) for i in best if weights[i] > 0))
    return names


def telling_words(text: str) -> list[str]:
    """Returns the words of a text that may name its cluster: in lower case, of two letters or more.

    Scripts that put no blanks between words have overlapping runs of characters in place of words:
    two characters of Chinese, as search engines do, more of the others. Combining marks stay with
    their letters, as in Hindi and in decomposed accents.

    # "The café is open"   the café is open -> the café is open
    # "银行卡丢了"          银行 行卡 卡丢 丢了
    """
    words, offsets = split_words(unicodedata.normalize("NFC", text).casefold())
    telling = []
    run = ""  # adjoining words of one script without blanks, so far
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
    """Returns the overlapping pieces of a text without blanks: "银行卡" -> "银行", "行卡".

    Combining marks stay with their letters. How long a piece is depends on the script.

    Args:
        run: Characters of one script, without blanks; may be empty.
    """
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
    """Returns (U,) positions at which each different text occurs first, in ascending order."""
    # Packed texts are compared by hashes, so that they need not all be unpacked at once.
    if is_packed(texts):
        # `first_positions` takes blank keys for no keys, and a blank text is a text: with a space
        # in front no key is blank.
        first_places = first_positions(f" {text}" for text in texts)
        return np.flatnonzero(first_places == np.arange(len(first_places)))
    numbers, _ = numbers_of(texts)
    positions: Ints = np.unique(numbers, return_index=True)[1]
    return positions


def silhouette(
    vectors: Floats32, clusters: Ints, texts: Sequence[str], *, seed: int, similarity: str = COSINE
) -> dict[str, Any] | None:
    """Returns the mean silhouette of a sample of texts, from -1 to 1, and the size of the sample.

    The silhouette of a text says how much nearer it is to its own cluster than to the next one. The
    sample is drawn from the different texts that are in a cluster. The result is None if it is not
    defined: all texts of the sample are in one cluster, or each is in one of its own.

    Args:
        vectors: (N, D) vectors of the texts.
        clusters: (N,) the number of each text's cluster, -1 for none.
        texts: The N texts.
        seed: Seed of the sample.
        similarity: Measure by which texts are near, as scikit-learn names it.
    """
    from sklearn.metrics import silhouette_score

    different = _different_places(texts)
    in_cluster = different[clusters[different] >= 0]
    sample = np.random.default_rng(seed).permutation(in_cluster)[:_SAMPLE]
    n_clusters = len(np.unique(clusters[sample]))
    if not 2 <= n_clusters < len(sample):
        return None
    value = silhouette_score(vectors[sample], clusters[sample], metric=similarity)
    return {"value": round(float(value), 6), "texts": len(sample)}
