"""`bertctl cluster`."""

from typing import Annotated, Any, Literal

import typer

from bertctl.cli.output import Output
from bertctl.cli.vectors_given import VectorsGiven, takes_vectors
from bertctl.words import count


@takes_vectors()
def cluster(
    out: Output,
    given: VectorsGiven,
    file: Annotated[str, typer.Argument(metavar="FILE|-")],
    method: Annotated[Literal["kmeans", "agglomerative", "hdbscan"], typer.Option("--method")] = "kmeans",
    clusters: Annotated[int | None, typer.Option("--clusters", min=2, metavar="K")] = None,
    smallest: Annotated[int, typer.Option("--min-size", min=2, metavar="N")] = 5,
    seed: Annotated[int, typer.Option("--seed", min=0, max=2**32 - 1)] = 42,
) -> None:
    """Put a file's texts into groups by meaning, and name each group by the words that tell it from the others.

    Each text is answered with the number of its cluster, 0 for the largest. The model is minilm unless --model says
    another.

    Args:
        file: Lines, CSV, TSV, JSONL or Parquet (.gz too), - for stdin, or a data set's name.
        method: hdbscan finds out how many clusters there are, and leaves out what is in none (-1).
        clusters: How many clusters to make (kmeans, agglomerative).
        smallest: Texts that a cluster has at least (hdbscan).
        seed: Seed of kmeans, and of the sample that the silhouette is computed on.

    Examples:
        bertctl cluster tickets.csv --clusters 12 -o groups.csv
        bertctl cluster tickets.csv --method hdbscan
    """
    from bertctl.inference.carried_columns import shown_name
    from bertctl.search.clusters import check_clusters, cluster_words, clusters_of, silhouette

    with out.third_party_kept():
        rows = given.read(file, out)
        check_clusters(method, clusters)  # before hours of work
        vectors = given.model().of(rows, out)
        found = clusters_of(vectors, method, clusters, smallest=smallest, seed=seed)
        texts = rows.columns["text"]
        names, spread = cluster_words(texts, found), silhouette(vectors, found, seed=seed)
        sizes: list[dict[str, Any]] = [
            {"cluster": i, "words": name, "texts": int((found == i).sum())} for i, name in enumerate(names)
        ]
        ids = map(rows.answer_id, range(len(rows)))
        each = zip(ids, found.tolist(), texts, strict=True)
        column = shown_name("text", rows)  # another one where the file calls something else text
        answers = ({"id": name, "cluster": number, column: text} for name, number, text in each)
        given.answer(out, answers, lambda: {"clusters": sizes, "silhouette": spread})
    for one in sizes:
        out.say(f"cluster {one['cluster']}: {count(one['texts'], 'text')}: {one['words']}")
    if spread:
        out.say(f"silhouette {spread['value']:.3f} ({count(spread['texts'], 'text')})")
