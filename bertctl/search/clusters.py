"""Texts in groups by their vectors, and the words that tell the groups apart.

Letters: N texts, D size of a vector, C clusters.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bertctl.arrays import Floats32, Ints
from bertctl.errors import UsageError

_MATRIX_ROWS = 20_000
"""Texts of which all distances are in memory at once (1.6 GB)."""
_SAMPLE = 3_000
"""Texts that the silhouette is computed on."""
_WORDS = 4


def check_clusters(method: str, clusters: int | None) -> None:
    """Refuses a number of clusters that a method does not take, or none where it takes one.

    Raises:
        UsageError: with what to type.
    """
    if method == "hdbscan" and clusters is not None:
        what = f"--method hdbscan finds out how many clusters there are, and --clusters {clusters} was given"
        raise UsageError(what, remedy="Leave --clusters out, or choose --method kmeans.")
    if method != "hdbscan" and clusters is None:
        remedy = "Say how many: --clusters 8. Or --method hdbscan, which finds it out."
        raise UsageError(f"--method {method} takes a number of clusters, and none was given", remedy=remedy)


def clusters_of(vectors: Floats32, method: str, clusters: int | None, *, smallest: int, seed: int) -> Ints:
    """Returns (N,) the number of each text's cluster, the largest first; -1 for none (HDBSCAN).

    Agglomerative clustering joins by the mean cosine, as the squared distance: a vector of zeros, which a layer with
    ReLU may give, has no cosine. The others see vectors of length 1, whose distances have the
    order of cosines.

    Args:
        vectors: (N, D) of length 1.
        method: kmeans (Lloyd's, 10 starts), agglomerative or hdbscan.
        clusters: C, as `check_clusters` lets it through.
        smallest: texts of a cluster of hdbscan, at least.
        seed: of kmeans.

    Raises:
        UsageError: too few texts, or too many.
    """
    from sklearn.cluster import HDBSCAN, AgglomerativeClustering, KMeans

    least, different = clusters or smallest, len(np.unique(vectors.round(6), axis=0))
    if different < least or (method == "agglomerative" and len(vectors) > _MATRIX_ROWS):
        told = f"{len(vectors):,} texts, {different:,} of them different, do not fit --method {method}"
        most = f", {_MATRIX_ROWS:,} at most" if method == "agglomerative" else ""
        raise UsageError(told, remedy=f"It takes {least:,} different ones at least{most}.")
    if method == "kmeans":
        found = KMeans(clusters, n_init=10, random_state=seed).fit_predict(vectors)
    elif method == "agglomerative":
        found = AgglomerativeClustering(clusters, metric="sqeuclidean", linkage="average").fit_predict(vectors)
    else:
        found = HDBSCAN(min_cluster_size=smallest, copy=True).fit_predict(vectors)
    names, counts = np.unique(found[found >= 0], return_counts=True)
    place = {name: i for i, name in enumerate(names[np.argsort(-counts, kind="stable")].tolist())}
    return np.array([place.get(name, -1) for name in found.tolist()])


def cluster_words(texts: Sequence[str], clusters: Ints) -> list[str]:
    """Returns the words that tell each cluster from the others, the most telling first.

    A word weighs its share of the cluster's words times the logarithm of how much larger that is than its share of all
    words: what is everywhere weighs nothing, in any language. Class-based tf-idf (Grootendorst 2022, section 3.3) has
    another logarithm, and keeps `the` on top unless such words are taken out first.
    """
    from sklearn.feature_extraction.text import CountVectorizer

    counter = CountVectorizer(token_pattern=r"(?u)\b[^\W\d_]{2,}\b")  # noqa: S106 - no password
    counts = counter.fit_transform([*texts, "no words"])[:-1]  # those two: a vocabulary is never empty
    overall = np.asarray(counts.sum(axis=0))[0] / max(counts.sum(), 1)
    words, found = counter.get_feature_names_out(), []
    for cluster in range(clusters.max() + 1):
        inside = np.asarray(counts[clusters == cluster].sum(axis=0), dtype=np.float64)[0]
        share = inside / max(inside.sum(), 1)
        weights = share * np.log(np.maximum(share, 1e-12) / np.maximum(overall, 1e-12))
        found.append(" ".join(words[i] for i in np.argsort(-weights, kind="stable")[:_WORDS] if weights[i] > 0))
    return found


def silhouette(vectors: Floats32, clusters: Ints, *, seed: int) -> dict[str, Any] | None:
    """Returns how much nearer texts are to their own cluster than to the next one, by cosine: -1 to 1.

    It is the mean over a sample of the texts that are in a cluster; None where fewer than two clusters are among them.
    """
    from sklearn.metrics import silhouette_score

    sample = np.random.default_rng(seed).permutation(np.flatnonzero(clusters >= 0))[:_SAMPLE]
    if not 2 <= len(np.unique(clusters[sample])) < len(sample):
        return None
    value = silhouette_score(vectors[sample], clusters[sample], metric="cosine")
    return {"value": round(float(value), 6), "texts": len(sample)}
