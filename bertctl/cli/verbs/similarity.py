"""`bertctl similarity`."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertctl.cli.framework.output import Output
from bertctl.cli.inputs.vectors_given import VectorsGiven, takes_vectors
from bertctl.errors import UsageError

if TYPE_CHECKING:
    from bertctl.search.nearest import Pairs


@takes_vectors()
def similarity(
    out: Output,
    given: VectorsGiven,
    first: Annotated[str, typer.Argument(metavar="TEXT|FILE|-")],
    second: Annotated[str | None, typer.Argument(metavar="TEXT|FILE")] = None,
    every: Annotated[bool, typer.Option("--all")] = False,
) -> None:
    """Say how alike texts are in meaning: the cosine of their vectors, -1 to 1, or the model's own
    measure.

    Two texts, two files row by row, or a file with two columns of texts; where that has people's
    scores as well, their correlation with the similarities. The model is minilm unless --model says
    another.

    Args:
        first: A text, or a file of texts.
        second: What it is compared with.
        every: Compare each text of the one with each of the other; those of one file with each
            other.

    Examples:
        bertctl similarity "A man plays the guitar." "Someone makes music."
        bertctl similarity pairs.csv -o scored.csv
        bertctl similarity queries.txt answers.txt --all -o cosines.csv
    """
    import numpy as np

    from bertctl.metrics.similarity import COSINE
    from bertctl.search.nearest import both_sides, correlation, pair_lines, pairs_above, row_by_row

    with out.third_party_kept():
        if second is not None:
            other = given.read(second, out, typed=True)
        else:
            other = None
        sides = both_sides(
            given.read(
                first,
                out,
                pairs=second is None,
                typed=True,
            ),
            other,
            every=every,
        )
        if (label := given.fields.get("data.label_column")) and not sides[0].has("label"):
            message = f"{first} has no column '{label}'"
            raise UsageError(message, remedy="Name the one with the scores, or leave it out.")
        model = given.model(exact=True)  # correlations go by ranks
        different_sides = sides[:1] if sides[1] is sides[0] else sides
        of_sides = model.of_sides(different_sides, out)
        vectors = [side_vectors for side_vectors, _ in of_sides]
        unreadable = [side_unreadable for _, side_unreadable in of_sides]
        figures: dict[str, Any] = {}
        pairs: Iterable[Pairs] = pairs_above(
            -np.inf, vectors[0], vectors[1] if len(vectors) > 1 else None, model.similarity
        )
        if not every:
            row_pairs = row_by_row(vectors[0], vectors[-1], model.similarity)
            figures |= correlation(sides[0], row_pairs[2], out)
            pairs = [row_pairs]
        if model.similarity != COSINE:
            figures["similarity"] = model.similarity
        are_typed = [rows.split == "typed" for rows in sides]
        hidden = ("id", "pair_id") if all(are_typed) else ()
        lines = pair_lines(*sides, pairs, *unreadable)
        given.answer(
            out,
            lines,
            lambda: figures,
            table=max(map(len, sides)) == 1,
            hidden=hidden,
        )
    for name in ("spearman", "pearson"):
        if name in figures:
            figure = figures[name]
            interval = f"{figure['low']:.4f} to {figure['high']:.4f}"
            out.say(
                f"{name} of {_PLURALS[model.similarity]} and scores: {figure['value']:.4f}, "
                f"{interval}"
            )


_PLURALS = {
    "cosine": "cosines",
    "dot": "dot products",
    "euclidean": "negative Euclidean distances",
    "manhattan": "negative Manhattan distances",
}
