"""`bertctl index`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from bertctl.cli.framework.next_command import say_next
from bertctl.cli.framework.output import Output
from bertctl.cli.inputs.vectors_given import VectorsGiven, takes_vectors
from bertctl.words import command, count


@takes_vectors("output")
def index(
    out: Output,
    arguments: VectorsGiven,
    corpus: Annotated[list[str], typer.Argument(metavar="CORPUS ...")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="INDEX")],
    dtype: Annotated[Literal["float32", "float16", "int8"] | None, typer.Option("--dtype")] = None,
    append: Annotated[bool, typer.Option("--append")] = False,
    resume: Annotated[bool, typer.Option("--resume")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite")] = False,
) -> None:
    """Build an index of texts for `bertctl search`: a folder with texts and vectors.

    The model is minilm unless you give --model. The index records its model.

    Args:
        out: Prints the answer and messages.
        arguments: The model, the rows and where answers go, as they were typed.
        corpus: Lines, CSV, TSV, JSONL or Parquet (.gz too), - for stdin, or a data set's name.

            Several files, or a pattern such as 'part-*.parquet', are read as one.
        output: Folder of the index. Must be empty, or add --overwrite.
        dtype: Number type of the vectors. float16 needs half and int8 a quarter of the space;
            bertctl measures the loss of accuracy. Default: float32.
        append: Add the texts to an existing index, with its model, columns and settings.
        resume: Continue where an earlier attempt stopped.
        overwrite: Replace the existing index.

    Examples:
        bertctl index articles.jsonl -o articles.index --text-column body
        bertctl index more.txt -o articles.index --append
    """
    from bertctl.search.requests import index_texts

    document = index_texts(
        arguments.request,
        corpus,
        output,
        dtype=dtype,
        append=append,
        resume=resume,
        overwrite=overwrite,
        listener=out,
        quiet_libraries=out.third_party_kept(),
    )
    kind = document.dtype
    out.answer({"index": str(output), **document.as_json()})
    out.say(f"{output}: {count(document.rows, 'text')}, {document.size} x {kind}")
    cost = document.recall
    if cost:
        recall_text = f"{cost.value:.1%} of the {cost.at} nearest texts in float32"
        queries = f"{cost.queries:,} of {cost.rows:,} texts"
        out.say(f"{kind} finds {recall_text}, as {queries} looked for theirs")
    say_next(out, command("search", output, "TEXT"))
