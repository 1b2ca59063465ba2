"""`bertctl fill-mask`."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from bertctl.cli import streams
from bertctl.cli.completion import model_names
from bertctl.cli.output import Output, plain_table
from bertctl.cli.recipe_options import names_in
from bertctl.cli.texts import TextSource, takes_texts
from bertctl.errors import DataError, UsageError

if TYPE_CHECKING:
    from rich.table import Table


@takes_texts
def fill_mask(
    out: Output,
    source: TextSource,
    model: Annotated[str, typer.Argument(metavar="MODEL", autocompletion=model_names)],
    given: Annotated[str, typer.Argument(metavar="TEXT|FILE|-")] = "",
    top_k: Annotated[int, typer.Option("--top-k", min=1, metavar="N")] = 5,
    targets: Annotated[str | None, typer.Option("--targets", metavar="WORD,...")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE")] = None,
    layout: Annotated[Literal["jsonl", "json", "csv", "tsv"] | None, typer.Option("--format")] = None,
    safe_csv: Annotated[bool, typer.Option("--safe-csv")] = False,
) -> None:
    """Say which words fit the masked places of a text, by a model that was trained on masked words.

    A text is answered with a table, a file with a line of JSON for each of its texts; --format csv makes a row of each
    word.

    Args:
        model: Model name, folder or hub id, with the masked-word head.
        given: A text with [MASK] (or what the model calls it) in one or more places; or a file of texts, - for stdin.
        top_k: How many words to show for each mask.
        targets: Score these words instead. One of several tokens is scored as several masks.
        output: File for the answers. Default: stdout.
        layout: Layout of the answers. Default: by the suffix of -o, else jsonl.
        safe_csv: In CSV, put ' before texts that a spreadsheet would take for a formula.

    Examples:
        bertctl fill-mask bert-base "The capital of France is [MASK]."
        bertctl fill-mask bert-base cloze.txt --targets he,she -o answers.csv
    """
    from bertctl.data.text_files import is_text, require_file

    words = names_in(targets or "")
    if targets is not None and not words:
        raise UsageError("--targets names no word", remedy="Such as --targets good,bad.")
    if not given.strip() and source.data is None:
        raise UsageError("nothing to fill", remedy='Give a text ("I went to the [MASK]."), a file, or - for stdin.')
    typed = bool(given) and is_text(given)
    if not typed and given not in ("", "-"):
        require_file(Path(given))
    from bertctl.inference.layouts import layout_of
    from bertctl.inference.predict import Destination
    from bertctl.interpretability.masked_words import MaskFiller

    with out.third_party_kept():
        filler = MaskFiller(model)
        files = [given] if given else []
        chunks = (
            [[given]] if typed else (chunk.texts for chunk in replace(source, files=files, beside=output).chunks(out))
        )
        answers = filler.fill(chunks, top_k=top_k, targets=words, listener=out)
        if typed and output is None and layout is None:
            try:
                [answer] = answers
            except DataError as error:
                if filler.mask in given:
                    raise
                raise UsageError(error.message, remedy=error.remedy) from error
            return out.answer({"model": model, **answer}, *_tables(answer))
        kind = layout or ("json" if out.as_json and output is None else layout_of(output))
        lines = answers if kind in ("jsonl", "json") else _rows(answers)
        with streams.whole() if kind == "json" else streams.data() as stream:
            written = Destination(output, kind, stream, safe_csv=safe_csv).write(lines, None)
    if output is not None:
        out.answer({"model": model, "files": written})
        out.say(f"answers written to {', '.join(written)}")
    return None


def _rows(answers: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yields a row for each word of each mask."""
    for answer in answers:
        for number, mask in enumerate(answer["masks"], start=1):
            for rank, one in enumerate(mask, start=1):
                place = {"id": answer["id"], "mask": number, "rank": rank}
                yield place | {name: one[name] for name in ("word", "score", "text")}


def _tables(answer: Mapping[str, Any]) -> "Iterator[Table]":
    for number, mask in enumerate(answer["masks"], start=1):
        title = f"mask {number}" if len(answer["masks"]) > 1 else None
        table = plain_table("word", "score", "tokens", "text", title=title, right=("score",))
        for one in mask:
            pieces = " ".join(one["pieces"]) if len(one["pieces"]) > 1 else ""
            table.add_row(one["word"], f"{one['score']:.4f}", pieces, one["text"])
        yield table
