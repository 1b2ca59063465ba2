"""`bertctl similarity`."""

from typing import TYPE_CHECKING, Annotated

import typer

from bertctl.cli.framework.output import Output
from bertctl.cli.inputs.vectors_given import VectorsGiven, takes_vectors

if TYPE_CHECKING:
    pass


@takes_vectors()
def similarity(
    out: Output,
    arguments: VectorsGiven,
    first: Annotated[str, typer.Argument(metavar="TEXT|FILE|-")],
    second: Annotated[str | None, typer.Argument(metavar="TEXT|FILE")] = None,
    every: Annotated[bool, typer.Option("--all")] = False,
) -> None:
    """Compare texts by meaning: the cosine of their embeddings, or the model's own measure.

    The cosine goes from -1 to 1.

    Compare two texts, two files row by row, or two columns of one file. If the file also has human
    scores, you get their correlation with the similarities. The model is minilm unless you give
    --model.

    Args:
        out: Prints the answer and messages.
        arguments: The model, the rows and where answers go, as they were typed.
        first: A text, or a file of texts.
        second: The text or file to compare it with.
        every: Compare every text of the first file with every text of the second, or all texts of
            one file with each other.

    Examples:
        bertctl similarity "A man plays the guitar." "Someone makes music."
        bertctl similarity pairs.csv -o scored.csv
        bertctl similarity queries.txt answers.txt --all -o cosines.csv
    """
    from bertctl.search.requests import compare_texts

    with out.third_party_kept():
        compared = compare_texts(
            arguments.request,
            first,
            second,
            all_pairs=every,
            listener=out,
        )
        # Texts of the command line have no ids that somebody would look for.
        are_typed = [rows.split == "typed" for rows in compared.sides]
        hidden = ("id", "pair_id") if all(are_typed) else ()
        most_texts = max(map(len, compared.sides))
        arguments.answer(
            out,
            compared.lines,
            lambda: dict(compared.figures),
            table=most_texts == 1,
            hidden=hidden,
        )
    figures = compared.figures
    for name in ("spearman", "pearson"):
        if name in figures:
            figure = figures[name]
            interval = f"{figure['low']:.4f} to {figure['high']:.4f}"
            out.say(
                f"{name} of {_PLURALS[compared.similarity]} and scores: {figure['value']:.4f}, "
                f"{interval}"
            )


_PLURALS = {
    "cosine": "cosines",
    "dot": "dot products",
    "euclidean": "negative Euclidean distances",
    "manhattan": "negative Manhattan distances",
}
