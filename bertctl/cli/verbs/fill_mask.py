"""`bertctl fill-mask`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from bertctl.cli.framework import streams
from bertctl.cli.framework.completion import model_names
from bertctl.cli.framework.output import Output
from bertctl.cli.inputs.texts import InputIds, TextSource, takes_texts, typed_text
from bertctl.errors import UsageError
from bertctl.reporting.document import TableBlock
from bertctl.words import names_in


@takes_texts
def fill_mask(
    out: Output,
    source: TextSource,
    model: Annotated[str, typer.Argument(metavar="MODEL", autocompletion=model_names)],
    given: Annotated[str, typer.Argument(metavar="TEXT|FILE|-")] = "",
    top_k: Annotated[int, typer.Option("--top-k", min=1, metavar="N")] = 5,
    targets: Annotated[str | None, typer.Option("--targets", metavar="WORD,...")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE")] = None,
) -> None:
    """Predict the masked words of a text with a masked language model.

    For a text you get a table, for a file a line of JSON per text.

    Args:
        out: Prints the answer and messages.
        source: The texts and how they are read, as they were typed.
        model: Model name, folder or hub id, with the masked-word head.
        given: A text with [MASK] (or the model's own mask token) in one or more places; or a file
            of texts, - for stdin.
        top_k: How many words to show for each mask.
        targets: Score these words instead. A word of several tokens is scored as several masks.
        output: File for the answers: lines of JSON, or by its suffix json, csv or tsv. An existing
            file is replaced. Default: stdout.

    Examples:
        bertctl fill-mask bert-base "The capital of France is [MASK]."
        bertctl fill-mask bert-base cloze.txt --targets he,she -o answers.jsonl
    """
    words = names_in(targets or "")
    if targets is not None and not words:
        raise UsageError("--targets names no word", remedy="Such as --targets good,bad.")
    typed = typed_text(
        given,
        source,
        to="fill",
        such_as="I went to the [MASK].",
    )
    from bertctl.inference.layouts import layout_of
    from bertctl.inference.masked_words import MaskedModel
    from bertctl.inference.predict import Destination

    with out.third_party_kept():
        filler = MaskedModel(model)
        if typed and filler.mask not in typed:
            raise UsageError(f"the text has no mask: {typed[:60]!r}", remedy=filler.remedy)
        files_source = replace(source, files=[given] if given else [], beside=output)
        # The answers get the ids that the texts have in the file.
        ids = InputIds()
        if typed:
            texts: Iterable[Sequence[str]] = [[typed]]
        else:
            texts = (chunk.texts for chunk in ids.collect(files_source.chunks(out)))
        filled = filler.fill(
            texts,
            top_k=top_k,
            targets=words,
            listener=out,
        )
        answers = ids.restore(filled)
        if typed and output is None:
            [answer] = answers
            return out.answer({"model": model, **answer}, *_tables(answer))
        if out.as_json and output is None:
            kind = "json"
        else:
            kind = layout_of(output)
        with streams.for_layout(kind) as stream:
            written = Destination(output, kind, stream).write(answers, None)
    if output is not None:
        out.answer({"model": model, "files": written})
        out.say(f"predictions written to {', '.join(written)}")
    return None


def _tables(answer: Mapping[str, Any]) -> Iterator[TableBlock]:
    """Yields a table of candidate words for each mask; several are numbered from 1."""
    from bertctl.reporting.document import record_table

    for number, mask in enumerate(answer["masks"], start=1):
        rows = [_row(candidate) for candidate in mask]
        if len(answer["masks"]) > 1:
            caption = f"mask {number}"
        else:
            caption = ""
        yield record_table(rows, caption)


def _row(candidate: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a word that fits as a row of the table."""
    pieces = candidate["pieces"]
    return {
        "word": candidate["word"],
        "score": candidate["score"],
        "tokens": " ".join(pieces) if len(pieces) > 1 else "",
        "text": candidate["text"],
    }
