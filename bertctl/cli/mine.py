"""`bertctl mine`."""

from itertools import islice
from typing import Annotated

import typer

from bertctl.cli.output import Output
from bertctl.cli.vectors_given import VectorsGiven, takes_vectors
from bertctl.errors import DataError
from bertctl.words import count


@takes_vectors()
def mine(
    out: Output,
    given: VectorsGiven,
    file: Annotated[str, typer.Argument(metavar="FILE|-")],
    threshold: Annotated[float, typer.Option("--threshold", min=-1, max=1)] = 0.8,
    max_pairs: Annotated[int | None, typer.Option("--max-pairs", min=1, metavar="N")] = None,
    strict: Annotated[bool, typer.Option("--strict")] = False,
) -> None:
    """Find paraphrases and duplicates: every pair of a file's texts whose cosine is at or above a threshold.

    Each text is compared with each, and no pair is left out. The model is minilm unless --model says another.

    Args:
        file: Lines, CSV, TSV, JSONL or Parquet (.gz too), - for stdin, or a data set's name.
        threshold: Cosine from which two texts are a pair; 1 for equal vectors.
        max_pairs: Stop after so many pairs, and say so.
        strict: Exit with 3 where --max-pairs has left some out.

    Examples:
        bertctl mine questions.csv --threshold 0.9 -o pairs.csv
    """
    from bertctl.search.nearest import pair_lines, pairs_above

    with out.third_party_kept():
        rows = given.read(file, out)
        pairs = pair_lines(rows, rows, pairs_above(threshold, given.model().of(rows, out)))
        found = given.answer(out, islice(pairs, max_pairs), lambda: {"complete": next(pairs, None) is None})
    have = "has" if found["count"] == 1 else "have"
    told = f"{count(found['count'], 'pair')} of {len(rows):,} texts {have} a cosine of {threshold:g} or more"
    if found["complete"]:
        return out.say(told)
    if strict:
        raise DataError(f"{told}, and there are others", remedy="Raise --threshold or --max-pairs.")
    return out.warn(f"{told}, and there are others: --max-pairs {max_pairs}")
