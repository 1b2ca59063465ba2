"""`bertctl similarity`."""

from typing import Annotated

import typer

from bertctl.cli.output import Output
from bertctl.cli.vectors_given import VectorsGiven, takes_vectors
from bertctl.errors import UsageError


@takes_vectors()
def similarity(
    out: Output,
    given: VectorsGiven,
    first: Annotated[str, typer.Argument(metavar="TEXT|FILE|-")],
    second: Annotated[str | None, typer.Argument(metavar="TEXT|FILE")] = None,
    every: Annotated[bool, typer.Option("--all")] = False,
) -> None:
    """Say how alike texts are in meaning: the cosine of their vectors, -1 to 1.

    Two texts, two files row by row, or a file with two columns of texts; where that has people's scores as well, their
    correlation with the cosines. The model is minilm unless --model says another.

    Args:
        first: A text, or a file of texts.
        second: What it is compared with.
        every: Compare each text of the one with each of the other; those of one file with each other.

    Examples:
        bertctl similarity "A man plays the guitar." "Someone makes music."
        bertctl similarity pairs.csv -o scored.csv
        bertctl similarity queries.txt answers.txt --all -o cosines.csv
    """
    from bertctl.search.nearest import both_sides, correlation, pair_lines, pairs_above, row_by_row

    with out.third_party_kept():
        other = given.read(second, out, typed=True) if second is not None else None
        sides = both_sides(given.read(first, out, pairs=second is None, typed=True), other, every=every)
        if (label := given.fields.get("data.label_column")) and not sides[0].has("label"):
            what = f"{first} has no column '{label}'"
            raise UsageError(what, remedy="Name the one with the scores, or leave it out.")
        model = given.model()
        vectors = [model.of(rows, out) for rows in sides[: 2 - (sides[1] is sides[0])]]
        figures = {} if every else correlation(sides[0], row_by_row(*vectors)[2], out)
        pairs = pairs_above(-2, *vectors) if every else [row_by_row(*vectors)]
        given.answer(out, pair_lines(*sides, pairs), lambda: figures, table=max(map(len, sides)) == 1)
    for name, figure in figures.items():
        out.say(f"{name} of cosines and scores: {figure['value']:.4f}, {figure['low']:.4f} to {figure['high']:.4f}")
