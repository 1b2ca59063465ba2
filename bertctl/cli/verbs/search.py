"""`bertctl search`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from bertctl.cli.framework.output import Output
from bertctl.cli.inputs.vectors_given import VectorsGiven, takes_vectors
from bertctl.data.file_names import is_text
from bertctl.writing import protect


@takes_vectors("layer", "pooling", "similarity")
def search(
    out: Output,
    arguments: VectorsGiven,
    folder: Annotated[Path, typer.Argument(metavar="INDEX")],
    query: Annotated[str, typer.Argument(metavar="TEXT|FILE|-")],
    top_k: Annotated[
        int,
        typer.Option(
            "--top-k",
            "-k",
            min=1,
            metavar="N",
        ),
    ] = 10,
    approximate: Annotated[bool, typer.Option("--approximate")] = False,
) -> None:
    """Find the texts of an index that are nearest in meaning.

    The search is exact: it compares the query with each text.

    Args:
        out: Prints the answer and messages.
        arguments: The model, the rows and where answers go, as they were typed.
        folder: Index, as `bertctl index` writes it; it names the model.
        query: Text to search for, or a file of texts.
        top_k: How many texts to find for each.
        approximate: Compare with a part of the index, and report how many of the nearest texts that
            finds (needs usearch).

    Examples:
        bertctl search articles.index "how to repair a bicycle"
        bertctl search articles.index questions.txt -k 5 -o found.csv
    """
    from bertctl.search.index import Index, with_graph

    index = Index.open(folder)
    summary = dict[str, Any](index=str(folder))
    protect(*folder.iterdir())  # so that -o can't name a file of the index
    if approximate:
        graph = with_graph(index, out.say)
        summary["approximate"] = graph.measured
        index = graph
    queries = arguments.request.rows(query, out, typed=True)
    with out.third_party_kept():
        answers = index.search(arguments.request.model(index, "query").stream(queries, out), top_k)
        arguments.answer(out, answers, lambda: summary, table=is_text(query))
    measured = summary.get("approximate")
    if measured:
        # The recall is that of a sample: `of` is `queries`, or `texts` of the index.
        sample = f"{measured['queries']} {measured['of']}"
        recall_text = f"{measured['recall']:.1%} of the {measured['at']} nearest texts are found"
        out.say(f"--approximate: {recall_text}, as {sample} looked for theirs")
