"""`bertctl cluster`."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from bertctl.cli.framework.output import Output
from bertctl.cli.inputs.vectors_given import VectorsGiven, takes_vectors
from bertctl.words import count

if TYPE_CHECKING:
    from bertctl.arrays import Ints


@takes_vectors()
def cluster(
    out: Output,
    arguments: VectorsGiven,
    file: Annotated[str, typer.Argument(metavar="FILE|-")],
    method: Annotated[
        Literal["kmeans", "agglomerative", "hdbscan"], typer.Option("--method")
    ] = "kmeans",
    clusters: Annotated[int | None, typer.Option("--clusters", min=2, metavar="K")] = None,
    smallest: Annotated[int, typer.Option("--min-size", min=2, metavar="N")] = 5,
    seed: Annotated[int, typer.Option("--seed", min=0, max=2**32 - 1)] = 42,
    approximate: Annotated[bool, typer.Option("--approximate")] = False,
) -> None:
    """Cluster a file's texts by meaning, and name each cluster by the words that are typical of it.

    Each text gets the number of its cluster (0 is the largest) and the words of that cluster. The
    model is minilm unless you give --model.

    Args:
        out: Prints the answer and messages.
        arguments: The model, the rows and where answers go, as they were typed.
        file: Lines, CSV, TSV, JSONL or Parquet (.gz too), - for stdin, or a data set's name.
        method: kmeans and agglomerative make K clusters. hdbscan chooses the number of clusters,
            and leaves out texts that are in none (-1).
        clusters: How many clusters to make (kmeans, agglomerative).
        smallest: Smallest number of texts in a cluster (hdbscan).
        seed: Seed of kmeans, and of the sample that the silhouette is computed on.
        approximate: Update the centres of kmeans by batches of 8,192 texts: many times faster, and
            nearly as good.

    Examples:
        bertctl cluster tickets.csv --clusters 12 -o groups.csv
        bertctl cluster tickets.csv --method hdbscan
    """
    from bertctl.inference.carried_columns import shown_name
    from bertctl.search.clusters import (
        COPIES,
        STARTS,
        check_clusters,
        check_measure,
        cluster_words,
        clusters_of,
        silhouette,
    )
    from bertctl.search.cost import require_room, tell_grouping

    with out.third_party_kept():
        rows = arguments.request.read(file, out)
        check_clusters(method, clusters, approximate=approximate)  # before hours of work
        model = arguments.request.model()
        check_measure(method, model.similarity)
        n_dimensions = model.made["size"]
        require_room(
            len(rows),
            n_dimensions,
            copies=COPIES[method],
            verb="cluster",
        )
        is_exact_kmeans = method == "kmeans" and not approximate
        if clusters is not None and is_exact_kmeans:
            tell_grouping(
                len(rows),
                n_dimensions,
                clusters,
                seed=seed,
                starts=STARTS,
                listener=out,
            )
        vectors = model.of(rows, out)
        numbers = clusters_of(
            vectors,
            method,
            clusters,
            smallest=smallest,
            seed=seed,
            similarity=model.similarity,
            approximate=approximate,
        )
        texts = rows.columns["text"]
        names = cluster_words(texts, numbers)
        spread = silhouette(
            vectors,
            numbers,
            texts,
            seed=seed,
            similarity=model.similarity,
        )
        sizes = [_size(number, words, texts, numbers) for number, words in enumerate(names)]
        ids = map(rows.answer_id, range(len(rows)))
        clustered = zip(ids, numbers.tolist(), texts, strict=True)
        # The column of texts is called `text`, unless the file has another column of that name.
        column = shown_name("text", rows)
        answers = (
            {
                "id": row_id,
                "cluster": number,
                "words": names[number] if number >= 0 else "",
                column: text,
            }
            for row_id, number, text in clustered
        )
        arguments.answer(out, answers, lambda: {"clusters": sizes, "silhouette": spread})
    _say_clusters(out, sizes, spread)


def _say_clusters(
    out: Output, sizes: Sequence[Mapping[str, Any]], spread: Mapping[str, Any] | None
) -> None:
    """Reports the size and the words of each cluster, and how well the clusters are separated.

    Args:
        out: Prints the messages.
        sizes: The clusters, as `_size` describes them.
        spread: The silhouette, with the number of texts that it was computed on; None if it could
            not be computed.
    """
    for size in sizes:
        copies = size["texts"] - size["different"]
        if copies:
            repeated = f" ({count(copies, 'copy', 'copies')} among them)"
        else:
            repeated = ""
        out.say(
            f"cluster {size['cluster']}: {count(size['texts'], 'text')}{repeated}: {size['words']}"
        )
    if spread:
        out.say(
            f"silhouette {spread['value']:.3f} of {count(spread['texts'], 'different text')}: 1 is "
            "clusters far apart, "
            "0 is clusters that touch, below 0 texts are nearer to another cluster"
        )


def _size(number: int, words: str, texts: Sequence[str], clusters: "Ints") -> dict[str, Any]:
    """Returns how large a cluster is, and what it is called."""
    members = [
        text for text, cluster in zip(texts, clusters.tolist(), strict=True) if cluster == number
    ]
    return {"cluster": number, "words": words, "texts": len(members), "different": len({*members})}
