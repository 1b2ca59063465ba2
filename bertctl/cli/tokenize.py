"""`bertctl tokenize`."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Literal, cast, get_args

import typer

from bertctl.cli.output import Output
from bertctl.cli.texts import (
    DataDirOption,
    DataOption,
    ErrorsOption,
    InputFormatOption,
    LowercaseOption,
    PairColumnOption,
    SplitOption,
    TextColumnOption,
    TextSource,
    check_choice,
)
from bertctl.errors import DataError, UsageError

if TYPE_CHECKING:
    from bertctl.tokenization.load import OpenTokenizer
    from bertctl.tokenization.stream import Job, Portion, Totals
    from bertctl.tokenization.windows import Cut

View = Literal["view", "jsonl", "ids", "pieces", "parquet", "npz"]
_BINARY = ("parquet", "npz")

TextArguments = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TEXT ...|-]", help="Texts; - reads lines from stdin.", show_default=False),
]
FileOption = Annotated[
    list[str] | None,
    typer.Option(
        "--file",
        "-f",
        metavar="FILE|-",
        help="Lines, CSV, TSV, JSONL or Parquet (.gz too), or - for stdin; may be given again.",
        show_default=False,
    ),
]
ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        metavar="NAME|PATH|HUB-ID",
        help="Model name, folder, run, hub id, tokenizer.json or vocab.txt; bert-base when left out.",
        show_default=False,
    ),
]


def tokenize(
    out: Output,
    texts: TextArguments = None,
    file: FileOption = None,
    pair: Annotated[
        str | None, typer.Option("--pair", metavar="TEXT", help="Second sentence of the one text.", show_default=False)
    ] = None,
    data: DataOption = None,
    split: SplitOption = "train",
    data_dir: DataDirOption = None,
    text_column: TextColumnOption = None,
    pair_column: PairColumnOption = None,
    input_format: InputFormatOption = None,
    errors: ErrorsOption = "strict",
    model: ModelOption = None,
    lowercase: LowercaseOption = None,
    layout: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="|".join(get_args(View)),
            help="Layout of the answer. Left out: the aligned view on a terminal (pieces for files), jsonl in a pipe.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where to; stdout when left out.", show_default=False),
    ] = None,
    max_length: Annotated[
        int | None,
        typer.Option("--max-length", min=1, help="Longest row in tokens; no cut when left out.", show_default=False),
    ] = None,
    truncation: Annotated[
        str,
        typer.Option(
            "--truncation", metavar="longest_first|only_first|only_second", help="Which sentence of a pair is cut."
        ),
    ] = "longest_first",
    stride: Annotated[
        int | None,
        typer.Option(
            "--stride",
            min=0,
            help="Cut long texts into windows that repeat this many tokens, instead of dropping the rest.",
            show_default=False,
        ),
    ] = None,
    special_tokens: Annotated[
        bool, typer.Option("--special-tokens/--no-special-tokens", help="Whether [CLS] and [SEP] are added.")
    ] = True,
    decode: Annotated[bool, typer.Option("--decode", help="Go back: the input is ids, a text's on a line.")] = False,
    stats: Annotated[bool, typer.Option("--stats", help="Lengths, losses, padding, unknown and broken words.")] = False,
    compare: Annotated[
        str | None,
        typer.Option("--compare", metavar="MODEL", help="With --stats: a second tokenizer beside.", show_default=False),
    ] = None,
) -> None:
    """See what the model reads: pieces and ids of texts, or the numbers of a whole corpus.

    bertctl tokenize "a visually stunning rumination on love"

    bertctl tokenize --file corpus.txt --format ids > ids.txt

    bertctl tokenize --file reviews.csv --text-column review --stats
    """
    from bertctl.tokenization.load import open_tokenizer
    from bertctl.tokenization.windows import Cut

    check_choice("--errors", errors, ("strict", "replace"))
    check_choice("--truncation", truncation, ("longest_first", "only_first", "only_second"))
    files, given = _inputs(texts, file, data, pair)
    source = TextSource(
        files, data, split, data_dir, text_column, pair_column, input_format, replace=errors == "replace"
    )
    _check(given, pair=pair, stats=stats, compare=compare, decode=decode, layout=layout, output=output)
    chosen = _layout(out, layout, given=given, output=output)
    opened = open_tokenizer(model, lowercase=lowercase, listener=out)
    if decode:
        return _decode(out, opened, source, given, output)
    cut = Cut(max_length, cast(Any, truncation), stride)
    has_pair = pair is not None or source.may_have_pairs
    cut.check(opened.tokenizer, pair=has_pair, special_tokens=special_tokens)
    if stats:
        others = [open_tokenizer(compare, lowercase=lowercase, listener=out)] if compare else []
        portions = _portions(source, given, pair, out)
        return _stats(out, [opened, *others], portions, special_tokens=special_tokens, length=max_length or 128)
    if chosen == "view" or (out.as_json and output is None):
        return _view(out, opened, given, pair, cut, special_tokens=special_tokens)
    return _stream(out, opened, _portions(source, given, pair, out), chosen, output, cut, special_tokens=special_tokens)


def _inputs(
    texts: list[str] | None, file: list[str] | None, data: str | None, pair: str | None
) -> tuple[list[str], list[str]]:
    """Files to read, and texts given as arguments; exactly one of them, unless a data set is named."""
    given = list(texts or ())
    files = list(file or ())
    if given == ["-"]:
        given, files = [], [*files, "-"]
    if sum(map(bool, (given, files, data))) > 1:
        raise UsageError("texts, --file and --data exclude each other", remedy="Give one of the three.")
    if not given and not files and data is None:
        if sys.stdin is None or sys.stdin.isatty():
            raise UsageError(
                "nothing to tokenize",
                remedy='Give a text ("..."), --file FILE, --data NAME, or lines on stdin.',
            )
        files = ["-"]
    if files.count("-") > 1:
        raise UsageError("stdin can be read only once", remedy="Name - once.")
    if pair is not None and len(given) != 1:
        raise UsageError(
            f"--pair belongs to one text, and there are {len(given)} on the command line",
            remedy="Give one text; for many pairs, give a table and --pair-column.",
        )
    return files, given


def _check(
    given: Sequence[str],
    *,
    pair: str | None,
    stats: bool,
    compare: str | None,
    decode: bool,
    layout: str | None,
    output: Path | None,
) -> None:
    if compare and not stats:
        raise UsageError("--compare puts the numbers of two tokenizers side by side", remedy="Add --stats.")
    if stats and (decode or layout or output):
        raise UsageError(
            "--stats answers with a table",
            remedy="Leave --decode, --format and --output out; --json gives the numbers.",
        )
    if decode and (pair is not None or layout):
        raise UsageError("--decode turns ids back into text", remedy="Leave --pair and --format out.")
    if layout is not None:
        check_choice("--format", layout, get_args(View))
    if layout == "view" and (not given or output is not None):
        raise UsageError(
            "the aligned view is for texts on the command line", remedy="Take --format jsonl, ids or pieces."
        )
    if layout in _BINARY and output is None:
        raise UsageError(
            f"--format {layout} is no text for a terminal or a pipe", remedy=f"Say where: -o FILE.{layout}"
        )


def _layout(out: Output, layout: str | None, *, given: Sequence[str], output: Path | None) -> str:
    if layout is not None:
        return layout
    if output is not None:
        suffix = output.suffix.lower().removeprefix(".")
        return suffix if suffix in _BINARY else "jsonl"
    if out.answers.is_terminal:
        return "view" if given else "pieces"
    return "jsonl"


def _portions(source: TextSource, given: Sequence[str], pair: str | None, out: Output) -> "Iterator[Portion]":
    from bertctl.tokenization.stream import Portion

    if given:
        return iter([Portion(given, None if pair is None else [pair])])
    return source.portions(out)


def _view(
    out: Output, opened: "OpenTokenizer", given: Sequence[str], pair: str | None, cut: "Cut", *, special_tokens: bool
) -> None:
    from rich.console import Group

    from bertctl.tokenization.reference import unknown_id
    from bertctl.tokenization.stream import Portion
    from bertctl.tokenization.view import TokenView
    from bertctl.tokenization.windows import WindowJob, record

    if not given:
        raise UsageError("--json holds the answer in one document", remedy="For files take --format jsonl, or -o FILE.")
    job = WindowJob(opened.tokenizer, cut, special_tokens=special_tokens)
    _, encoded = job.encode(Portion(given, None if pair is None else [pair]))
    views: list[Any] = []
    documents: list[dict[str, Any]] = []
    for index, (text, (is_cut, parts)) in enumerate(zip(given, encoded, strict=True)):
        full = job.full_length(text, pair) if is_cut and cut.stride is None else None
        for number, part in enumerate(parts):
            views += [""] if views else []
            views.append(TokenView(part, text, pair, unknown=unknown_id(opened.tokenizer), full_length=full))
            window = number if cut.stride is not None else None
            sides = {"text": text} if pair is None else {"text": text, "pair": pair}
            documents.append(sides | record(part, index=index, window=window, truncated=full is not None))
    out.answer({"model": opened.name, "tokenizer": opened.kind, "texts": documents}, Group(*views))


def _stream(
    out: Output,
    opened: "OpenTokenizer",
    portions: "Iterator[Portion]",
    layout: str,
    output: Path | None,
    cut: "Cut",
    *,
    special_tokens: bool,
) -> None:
    from bertctl.tokenization.stream import run
    from bertctl.tokenization.windows import WindowJob

    with _opened(output, aside=layout in _BINARY) as file:
        if layout == "jsonl":
            totals = run(portions, WindowJob(opened.tokenizer, cut, special_tokens=special_tokens, records=file))
        else:
            totals = _stream_ids(opened, portions, layout, file, cut, special_tokens=special_tokens)
    _report(out, totals, cut, output)


def _stream_ids(
    opened: "OpenTokenizer",
    portions: "Iterator[Portion]",
    layout: str,
    file: BinaryIO,
    cut: "Cut",
    *,
    special_tokens: bool,
) -> "Totals":
    from bertctl.tokenization import formats
    from bertctl.tokenization.encode import TextEncoder
    from bertctl.tokenization.stream import FlatJob, run
    from bertctl.tokenization.windows import WindowJob

    writers: dict[str, Callable[[BinaryIO], formats.Writer]] = {
        "ids": lambda out: formats.ids_writer(out, opened.tokenizer),
        "pieces": lambda out: formats.pieces_writer(out, opened.tokenizer),
        "parquet": formats.ParquetWriter,
        "npz": formats.NpzWriter,
    }
    writer = writers[layout](file)
    job: Job
    if cut.stride is not None or cut.strategy != "longest_first":
        job = WindowJob(opened.tokenizer, cut, special_tokens=special_tokens, writer=writer)
    else:
        encoder = TextEncoder(opened.tokenizer, max_length=cut.max_length, special_tokens=special_tokens)
        job = FlatJob(encoder, writer)
    totals = run(portions, job)
    writer.close()
    return totals


def _report(out: Output, totals: "Totals", cut: "Cut", output: Path | None) -> None:
    if totals.truncated:
        share = totals.truncated / totals.texts
        say = out.warn if share > 0.01 else out.say
        say(
            f"{totals.truncated:,} of {totals.texts:,} texts ({share:.1%}) were cut at {cut.max_length} tokens; "
            f"{totals.lost:,} tokens are lost (--stride keeps them in windows)"
        )
    if output is not None:
        out.answer({"output": str(output), **vars(totals)})
        out.say(f"{totals.texts:,} texts, {totals.tokens:,} tokens, {totals.unknown:,} unknown, written to {output}")


@contextmanager
def _opened(output: Path | None, *, aside: bool) -> Iterator[BinaryIO]:
    """stdout, or a file: written in place where whole lines are of use, else aside and renamed when complete."""
    if output is None:
        yield sys.stdout.buffer
        return
    place = output.with_name(f".{output.name}.part") if aside else output
    try:
        with place.open("wb") as file:
            yield file
        if aside:
            place.replace(output)
    finally:
        if aside:
            place.unlink(missing_ok=True)


def _decode(
    out: Output, opened: "OpenTokenizer", source: TextSource, given: Sequence[str], output: Path | None
) -> None:
    from bertctl.tokenization.decode import Decoder

    decoder = Decoder(opened.tokenizer)
    with _opened(output, aside=False) as file:
        texts: list[str] = []
        for portion in _portions(source, given, None, out):
            lines = decoder.decode(portion.texts)
            if out.as_json:
                texts += lines
            else:
                file.write("".join(f"{line}\n" for line in lines).encode())
                file.flush()
    out.answer({"model": opened.name, "texts": texts})


def _stats(
    out: Output, opened: "Sequence[OpenTokenizer]", portions: "Iterator[Portion]", *, special_tokens: bool, length: int
) -> None:
    from bertctl.cli.token_tables import stats_view
    from bertctl.tokenization.stats import collect

    found = collect(portions, [one.tokenizer for one in opened], special_tokens=special_tokens, fixed_length=length)
    if not found[0].texts:
        raise DataError("there are no texts to count", remedy="Give a text, or a file with lines or rows.")
    documents = [
        {"model": one.name, "tokenizer": one.kind, **stats.as_json()} for one, stats in zip(opened, found, strict=True)
    ]
    document = documents[0] if len(documents) == 1 else {"models": documents}
    out.answer(document, stats_view([(one.name, stats) for one, stats in zip(opened, found, strict=True)]))


COMMAND = tokenize
