"""`bertctl index`."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal

import typer

from bertctl.cli.framework.output import Output
from bertctl.cli.inputs.vectors_given import VectorsGiven, takes_vectors
from bertctl.data.rows import Rows
from bertctl.errors import UsageError
from bertctl.words import count


def _remembered(parts: Iterable[Rows], rows_read: list[Rows]) -> Iterator[Rows]:
    """Yields rows and keeps them: an input that is a pipe is read once."""
    for rows in parts:
        rows_read.append(rows)
        yield rows


@takes_vectors("output")
def index(
    out: Output,
    given: VectorsGiven,
    corpus: Annotated[list[str], typer.Argument(metavar="CORPUS ...")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="INDEX")],
    dtype: Annotated[Literal["float32", "float16", "int8"] | None, typer.Option("--dtype")] = None,
    append: Annotated[bool, typer.Option("--append")] = False,
    resume: Annotated[bool, typer.Option("--resume")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite")] = False,
) -> None:
    """Make an index of texts that `bertctl search` searches: their vectors, and themselves, in a
    folder.

    The model is minilm unless --model says another; the index knows which one made it.

    Args:
        corpus: Lines, CSV, TSV, JSONL or Parquet (.gz too), - for stdin, or a data set's name.

            Several files, or a pattern such as 'part-*.parquet', are read as one.
        output: Folder of the index.
        dtype: Type of its numbers: half and a quarter of the room, and what that costs is measured.
            Default: float32.
        append: Add the texts to an index that is there, with its own model, columns and settings.
        resume: Continue where an earlier attempt stopped.
        overwrite: Replace the index that is there.

    Examples:
        bertctl index articles.jsonl -o articles.index --text-column body
        bertctl index more.txt -o articles.index --append
    """
    from bertctl.features.source import input_name
    from bertctl.run_folder import hold
    from bertctl.search.index import identified, make_index, there

    on = {"append": append, "resume": resume, "overwrite": overwrite}
    before = there(output, **on)
    kind = dtype or (before.document.dtype if before else "float32")
    texts = given.corpus(corpus, out, before)
    is_new = False
    if append and resume and before is not None and before.document.complete:
        # Killed before its first rows were written, an --append has left no trace: it begins now.
        rows_read: list[Rows] = []
        is_new = not before.has_begun(_remembered(texts.rows, rows_read))
        texts = replace(texts, rows=chain(rows_read, texts.rows))
    expected = before
    if is_new and before is not None:
        before = before.to_append()
        out.say(
            f"{output} has no rows of {input_name(corpus)} yet: they are added from the first one "
            "on"
        )
    rows = identified(texts.rows, before, out, has_ids=texts.has_ids)
    with out.third_party_kept():
        model = given.model(before, "document", dtype=kind)
        with hold(output / ".lock"):
            if there(output, **on) != expected:  # another command has ended since
                raise UsageError(f"{output} has changed just now", remedy="Type the command again.")
            document = make_index(
                output,
                input_name(corpus),
                rows,
                model,
                kind,
                before=before,
                listener=out,
                remembered=texts.remembered,
            )
    out.answer({"index": str(output), **document.as_json()})
    out.say(f"{output}: {count(document.rows, 'text')}, {document.size} x {kind}")
    if cost := document.recall:
        told = f"{cost.value:.1%} of the {cost.at} nearest texts in float32"
        out.say(
            f"{kind} finds {told}, as {cost.queries:,} of {cost.rows:,} texts looked for theirs"
        )
