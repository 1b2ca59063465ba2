"""`bertctl mine`."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertctl.cli.framework.output import Output
from bertctl.cli.inputs.vectors_given import VectorsGiven, takes_vectors
from bertctl.errors import DataError, UsageError
from bertctl.words import count, percent

if TYPE_CHECKING:
    from bertctl.search.approximate_pairs import Recall


@takes_vectors()
def mine(
    out: Output,
    arguments: VectorsGiven,
    file: Annotated[str, typer.Argument(metavar="FILE|-")],
    threshold: Annotated[float | None, typer.Option("--threshold", metavar="NUMBER")] = None,
    max_pairs: Annotated[int | None, typer.Option("--max-pairs", min=1, metavar="N")] = None,
    strict: Annotated[bool, typer.Option("--strict")] = False,
    approximate: Annotated[bool, typer.Option("--approximate")] = False,
) -> None:
    """Find paraphrases and duplicates: every pair of a file's texts above a threshold.

    A pair whose similarity equals the threshold is found, too.

    All pairs are compared, unless you add --approximate. The model (minilm, unless you give
    --model) defines the similarity, usually the cosine.

    Args:
        out: Prints the answer and messages.
        arguments: The model, the rows and where answers go, as they were typed.
        file: Lines, CSV, TSV, JSONL or Parquet (.gz too), - for stdin, or a data set's name.
        threshold: Lowest similarity of a pair. Default: 0.8 for cosines, where 1 means equal
            vectors.
        max_pairs: Keep the N nearest pairs, the nearest first, and report how many there are.
        strict: Exit with code 3 if --max-pairs has left pairs out.
        approximate: Compare each text with few others, and report how many of the pairs that finds
            (needs usearch).

    Examples:
        bertctl mine questions.csv --threshold 0.9 -o pairs.csv
        bertctl mine questions.csv --max-pairs 100
    """
    from bertctl.data.groups import first_positions
    from bertctl.search.approximate_pairs import ApproximatePairs
    from bertctl.search.cost import require_room, tell_comparing, tell_graph
    from bertctl.search.graph import require_graph
    from bertctl.search.nearest import NearestPairs, pair_lines, pairs_above

    with out.third_party_kept():
        rows = arguments.request.read(file, out)
        model = arguments.request.model()
        threshold = _threshold_of(threshold, model.similarity)
        if approximate:
            require_graph(model.similarity)
        # The graph of an approximate search has a copy of the vectors.
        require_room(
            len(rows),
            model.made["size"],
            copies=2 if approximate else 1,
            verb="mine",
        )
        # Reports how long it will take, if that is a minute or more.
        tell_cost = tell_graph if approximate else tell_comparing
        tell_cost(len(rows), model.made["size"], model.similarity, out)
        vectors = model.of(rows, out)
        summary: dict[str, Any] = {"complete": True}
        if approximate:
            equals = first_positions(rows.columns["text"])
            graph_pairs = ApproximatePairs(threshold, vectors, equals, model.similarity)
            pairs = graph_pairs.pairs()
            recall = graph_pairs.recall()
            summary = {"complete": False, "recall": recall.as_json()}
        else:
            pairs = pairs_above(threshold, vectors, measure=model.similarity)
        if max_pairs is None:
            lines = pair_lines(rows, rows, pairs, model.unreadable)
            n_pairs = arguments.answer(out, lines, lambda: summary)["count"]
        else:
            nearest = NearestPairs(max_pairs)
            for chunk_of_pairs in pairs:
                nearest.see(chunk_of_pairs)
            n_pairs = nearest.seen
            summary["complete"] = not approximate and n_pairs <= max_pairs
            summary["pairs"] = n_pairs
            lines = pair_lines(rows, rows, [nearest.nearest()], model.unreadable)
            arguments.answer(out, lines, lambda: summary)
    have = "has" if n_pairs == 1 else "have"
    message = (
        f"{count(n_pairs, 'pair')} of {len(rows):,} texts {have} a {_NAMES[model.similarity]} of "
        f"{threshold:g} or more"
    )
    if approximate:
        out.say(_recall_sentence(recall))
    if max_pairs is None or n_pairs <= max_pairs:
        return out.say(message)
    left_out = f"{message}; the {max_pairs:,} nearest are given (--max-pairs)"
    if strict:
        raise DataError(left_out, remedy="Raise --threshold or --max-pairs.")
    return out.warn(left_out)


def _recall_sentence(recall: "Recall") -> str:
    """Returns how many of the right pairs an approximate search has found."""
    if not recall.n_pairs:
        return f"recall: not known, as none of {recall.n_texts:,} texts that were tried has a pair"
    share = percent(recall.n_found, recall.n_pairs)
    pairs = count(recall.n_pairs, "pair")
    texts = count(recall.n_texts, "text")
    return f"recall: {share} of the {pairs} that {texts} have, compared with all"


_NAMES = {
    "cosine": "cosine",
    "dot": "dot product",
    "euclidean": "negative Euclidean distance",
    "manhattan": "negative Manhattan distance",
}


def _threshold_of(threshold: float | None, similarity: str) -> float:
    """Returns the lowest similarity of a pair: as typed, or 0.8 for cosines.

    Args:
        threshold: The number that was typed, or None.
        similarity: The measure: cosine, dot, euclidean or manhattan.

    Raises:
        UsageError: No number was typed for another measure than the cosine, or the measure has no
            such values.
    """
    if similarity == "cosine":
        if threshold is not None and not -1 <= threshold <= 1:
            raise UsageError(
                f"--threshold {threshold:g} is not a cosine", remedy="Give a number from -1 to 1."
            )
        if threshold is None:
            return 0.8
        return threshold
    if threshold is None:
        message = (
            f"the model compares texts by {similarity} similarity, which has no usual threshold"
        )
        raise UsageError(message, remedy="Add --threshold NUMBER, or --similarity cosine.")
    # Distances are negated, so that the larger similarity is always the nearer one.
    is_negative_distance = similarity != "dot"
    if is_negative_distance and threshold > 0:
        message = (
            f"--threshold {threshold:g} is above 0, and {similarity} similarity is a negative "
            "distance"
        )
        raise UsageError(
            message,
            remedy=f"Type --threshold {-threshold:g} for pairs at a distance up to {threshold:g}.",
        )
    return threshold
