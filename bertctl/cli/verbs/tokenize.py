"""`bertctl tokenize`."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from bertctl.cli.framework import streams
from bertctl.cli.framework.output import Output
from bertctl.cli.inputs.texts import (
    LowercaseOption,
    ModelOption,
    TextSource,
    check_typed_texts,
    takes_texts,
)
from bertctl.data.file_lists import expand_patterns
from bertctl.data.file_names import names_a_file
from bertctl.errors import DataError, UsageError
from bertctl.writing import replacing_text

if TYPE_CHECKING:
    from bertctl.tokenization.stream import TextChunk, Totals
    from bertctl.tokenization.tokenizer_files import OpenTokenizer
    from bertctl.tokenization.windows import TextWindows, Truncation


@takes_texts
def tokenize(
    out: Output,
    source: TextSource,
    texts: Annotated[list[str] | None, typer.Argument(metavar="[TEXT|FILE ...|-]")] = None,
    file: Annotated[list[str] | None, typer.Option("--file", "-f", metavar="FILE|-")] = None,
    pair: Annotated[str | None, typer.Option("--pair", metavar="TEXT")] = None,
    model: ModelOption = None,
    lowercase: LowercaseOption = None,
    layout: Annotated[
        Literal["view", "jsonl", "ids", "tokens", "parquet", "pieces"] | None,
        typer.Option("--format", metavar="view|jsonl|ids|tokens|parquet"),
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE")] = None,
    max_length: Annotated[int | None, typer.Option("--max-length", min=1, metavar="N")] = None,
    truncation: Annotated[
        Literal["longest_first", "only_first", "only_second"], typer.Option("--truncation")
    ] = "longest_first",
    stride: Annotated[int | None, typer.Option("--stride", min=0, metavar="N")] = None,
    special_tokens: Annotated[bool, typer.Option("--special-tokens/--no-special-tokens")] = True,
    decode: Annotated[bool, typer.Option("--decode")] = False,
    stats: Annotated[bool, typer.Option("--stats")] = False,
    compare: Annotated[str | None, typer.Option("--compare", metavar="MODEL")] = None,
) -> None:
    """Show what the model reads: the tokens and ids of texts, or statistics of a whole corpus.

    Args:
        out: Prints the answer and messages.
        source: The texts and how they are read, as they were typed.
        texts: Texts, or files of texts: lines, CSV, TSV, JSONL or Parquet (also .gz, or a pattern
            such as 'part-*.txt'); - for stdin.
        file: A file, even if its name does not look like one; repeatable.
        pair: Second text of the pair.
        model: The tokenizer's model, as it was typed.
        lowercase: Whether texts are read in lower case.
        layout: Format of the answer. Default: the aligned view on a terminal (tokens for files),
            jsonl in a pipe.
        output: File to write. An existing file is replaced. Default: stdout.
        max_length: Longest row in tokens. Default: no limit.
        truncation: Which text of a pair is truncated.
        stride: Cut long texts into windows that overlap by this many tokens, instead of dropping
            the rest.
        special_tokens: Add [CLS] and [SEP].
        decode: Turn ids (one text per line) back into text.
        stats: Show statistics of the texts instead.
        compare: Second tokenizer for --stats.

    Examples:
        bertctl tokenize "a visually stunning rumination on love"
        bertctl tokenize corpus.txt --format ids > ids.txt
        bertctl tokenize reviews.csv --text-column review --stats
    """
    from bertctl.tokenization.stream import TextChunk
    from bertctl.tokenization.tokenizer_files import open_tokenizer
    from bertctl.tokenization.windows import Truncation

    files, typed_texts = _inputs(texts, file, source.data, pair)
    source = replace(source, files=files, beside=output)
    if decode and source.input_format is None:
        # Each line has the ids of a text, or a record that --format jsonl has written.
        source = replace(source, input_format="lines")
    if layout == "pieces":  # the former name, in scripts of users
        out.say("--format pieces is now called --format tokens")
        layout = "tokens"
    _check_answer(
        stats=stats,
        compare=compare,
        decode=decode,
        pair=pair,
        layout=layout,
        output=output,
    )
    answer_format = _format(out, layout, typed_texts, output)
    opened = open_tokenizer(model, lowercase=lowercase, listener=out)
    if typed_texts:
        chunks = iter([TextChunk(typed_texts, None if pair is None else [pair])])
    else:
        chunks = source.watched(out)
    if decode:
        return _decode(out, opened, chunks, output)

    limits = Truncation(max_length, truncation, stride, special_tokens)
    # As each chunk is read, options that don't fit together or leave no room are refused.
    chunks = limits.checked(chunks, opened.tokenizer)
    if stats:
        tokenizers = [opened]
        if compare:
            tokenizers.append(open_tokenizer(compare, lowercase=lowercase, listener=out))
        return _stats(
            out,
            tokenizers,
            chunks,
            special_tokens=special_tokens,
            length=max_length or 128,
        )

    prints_one_document = out.as_json and output is None
    if prints_one_document and not typed_texts:
        # Files may be large, and one document would have to be in memory.
        raise UsageError(
            "--json prints one document", remedy="For files take --format jsonl, or -o FILE."
        )
    # Both are only for typed texts, which are a single chunk.
    if answer_format == "view" or prints_one_document:
        return _view(out, opened, next(chunks), limits)

    totals = _write(
        opened,
        chunks,
        answer_format,
        output,
        limits,
    )
    return _report(out, totals, limits, output)


def _inputs(
    texts: list[str] | None, file: list[str] | None, data: str | None, pair: str | None
) -> tuple[list[str], list[str]]:
    """Returns the files to read, and the texts that were typed.

    One of the two is empty; both are, if a data set is named. Without any input, stdin is read.

    Args:
        texts: What was typed as arguments. If all of it looks like files, it is files.
        file: Files of `--file`.
        data: Data set of `--data`.
        pair: Text of `--pair`, the second one of a single typed text.

    Raises:
        UsageError: Several kinds of input, none at all, or a pair without its one first text.
    """
    typed_texts = list(texts or ())
    files = expand_patterns(file or ())
    if typed_texts and all(map(_is_file, typed_texts)):
        files = [*files, *expand_patterns(typed_texts)]
        typed_texts = []
    check_typed_texts(typed_texts)
    kinds_of_input = [kind for kind in (typed_texts, files, data) if kind]
    if len(kinds_of_input) > 1:
        raise UsageError(
            "texts, --file and --data exclude each other", remedy="Give one of the three."
        )
    if not typed_texts and not files and data is None:
        if sys.stdin is None or sys.stdin.isatty():
            message = "nothing to tokenize"
            raise UsageError(
                message, remedy='Give a text ("..."), --file FILE, --data NAME, or lines on stdin.'
            )
        files = ["-"]
    if files.count("-") > 1:
        raise UsageError("stdin can be read only once", remedy="Name - once.")
    if pair is not None and len(typed_texts) != 1:
        message = (
            f"--pair belongs to one text, and there are {len(typed_texts)} on the command line"
        )
        raise UsageError(
            message, remedy="Give one text; for many pairs, give a table and --pair-column."
        )
    return files, typed_texts


def _is_file(typed: str) -> bool:
    """Returns whether a word stands for a file, a pattern of files or stdin, and not for a text."""
    return typed == "-" or names_a_file(typed)


def _check_answer(
    *,
    stats: bool,
    compare: str | None,
    decode: bool,
    pair: str | None,
    layout: str | None,
    output: Path | None,
) -> None:
    """Refuses options that ask for two kinds of answer at once.

    An answer is the tokens of texts, the texts of ids (`--decode`), or a table (`--stats`).

    Raises:
        UsageError: With the options to leave out or to add.
    """
    if compare and not stats:
        raise UsageError(
            "--compare puts the numbers of two tokenizers side by side", remedy="Add --stats."
        )
    if stats and (decode or layout or output):
        message = "--stats answers with a table"
        raise UsageError(
            message, remedy="Leave --decode, --format and --output out; --json gives the numbers."
        )
    if decode and (pair is not None or layout):
        raise UsageError(
            "--decode turns ids back into text", remedy="Leave --pair and --format out."
        )


def _format(
    out: Output, layout: str | None, typed_texts: Sequence[str], output: Path | None
) -> str:
    """Returns the format of the answer: what `--format` names, else one that fits the destination.

    A file gets the format of its suffix. A terminal gets the aligned view of typed texts, and the
    tokens of files. A pipe gets jsonl.

    Args:
        out: Knows whether stdout is a terminal.
        layout: Format of `--format`; None if it was not typed.
        typed_texts: Texts of the command line; none if files are read.
        output: File of `--output`; None for stdout.

    Raises:
        UsageError: A format that can't be written there.
    """
    if layout == "view" and (not typed_texts or output is not None):
        message = "the aligned view is for texts on the command line"
        raise UsageError(message, remedy="Take --format jsonl, ids or tokens.")
    if layout == "parquet" and output is None:
        raise UsageError(
            "--format parquet can't be written to a terminal or a pipe",
            remedy="Name a file: -o FILE.parquet",
        )
    if layout is not None:
        return layout
    if output is not None:
        if output.suffix.lower() == ".parquet":
            return "parquet"
        return "jsonl"
    if out.answers.is_terminal:
        return "view" if typed_texts else "tokens"
    return "jsonl"


def _view(out: Output, opened: "OpenTokenizer", chunk: "TextChunk", limits: "Truncation") -> None:
    """Prints each window of the typed texts with its tokens aligned, or all as one JSON document.

    Args:
        out: Prints the answer.
        opened: The tokenizer.
        chunk: The texts of the command line; `--pair` gives all of them the same second text.
        limits: How texts are cut; a stride makes windows of them.
    """
    from bertctl.tokenization.reference import unknown_id
    from bertctl.tokenization.view import TokenView
    from bertctl.tokenization.windows import WindowEncoder

    unknown = unknown_id(opened.tokenizer)
    if chunk.pairs is None:
        pair = None
    else:
        pair = chunk.pairs[0]
    views: list[Any] = []
    documents: list[dict[str, Any]] = []
    for text in WindowEncoder(opened.tokenizer, limits).encode(chunk):
        sides = {"text": chunk.texts[text.index]}
        if pair is not None:
            sides["pair"] = pair
        # The windows of a stride have all tokens of the text, so no view says that some were cut.
        if limits.stride is None:
            full_length = text.full_length
        else:
            full_length = None
        for window, record in zip(text.windows, text.records(limits), strict=True):
            if views:
                views.append("")  # an empty line between two views
            views.append(
                TokenView(
                    window,
                    sides["text"],
                    pair,
                    unknown=unknown,
                    full_length=full_length,
                )
            )
            document = {**sides, **record}
            document.setdefault("truncated", False)  # records without a limit leave it out
            documents.append(document)
    out.answer({"model": opened.name, "tokenizer": opened.kind, "texts": documents}, *views)


def _write(
    opened: "OpenTokenizer",
    chunks: "Iterator[TextChunk]",
    layout: str,
    output: Path | None,
    limits: "Truncation",
) -> "Totals":
    """Writes the tokens of all texts, and returns the counts of texts, tokens and losses.

    Args:
        opened: The tokenizer.
        chunks: The texts.
        layout: `jsonl`, `ids`, `tokens` or `parquet`.
        output: A file; None writes to stdout.
        limits: How texts are cut.
    """
    from bertctl.tokenization.formats import id_writer, write_records
    from bertctl.tokenization.stream import run
    from bertctl.tokenization.windows import WindowEncoder

    window_encoder = WindowEncoder(opened.tokenizer, limits)
    destination = replacing_text(output) if output else streams.data()
    with destination as file:
        if layout == "jsonl":
            return run(chunks, window_encoder, partial(write_records, file, limits))

        # Imports numpy, which is slow, and which jsonl does not need.
        from bertctl.tokenization.encode import EncodedTexts, FlatEncoder, TextEncoder

        with id_writer(layout, file, opened.tokenizer) as write_encoded:

            def write_windows(texts: "list[TextWindows]") -> None:
                """Writes each window of the texts as a row."""
                write_encoded(EncodedTexts.of_windows(texts))

            # The fast encoder makes no windows, and cuts pairs by `longest_first` only.
            if limits.stride is not None or limits.strategy != "longest_first":
                return run(chunks, window_encoder, write_windows)
            text_encoder = TextEncoder(
                opened.tokenizer, max_length=limits.max_length, special_tokens=limits.special_tokens
            )
            return run(chunks, FlatEncoder(text_encoder), write_encoded)


def _report(out: Output, totals: "Totals", limits: "Truncation", output: Path | None) -> None:
    """Prints how many texts were cut, and the counts of what was written to a file.

    Args:
        out: Prints the answer and messages.
        totals: The counts of the run.
        limits: How texts were cut.
        output: The file; None for stdout, where the tokens themselves are the answer.
    """
    if totals.truncated:
        share = totals.truncated / totals.texts
        # A warning only where more than a text in a hundred lost something.
        say = out.warn if share > 0.01 else out.say
        say(
            f"{totals.truncated:,} of {totals.texts:,} texts ({share:.1%}) were cut at "
            f"{limits.max_length} tokens; "
            f"{totals.lost:,} tokens are lost (--stride keeps them in windows)"
        )
    if output is not None:
        out.answer({"output": str(output), **vars(totals)})
        out.say(
            f"{totals.texts:,} texts, {totals.tokens:,} tokens, {totals.unknown:,} unknown, "
            f"written to {output}"
        )


def _decode(
    out: Output, opened: "OpenTokenizer", chunks: "Iterator[TextChunk]", output: Path | None
) -> None:
    """Writes a line of text for each line of ids; with `--json` one document at the end.

    Args:
        out: Prints the answer.
        opened: The tokenizer.
        chunks: Lines of ids, such as `101 7592 102`.
        output: A file; None writes to stdout.
    """
    from bertctl.tokenization.decode import Decoder

    decoder = Decoder(opened.tokenizer)
    with replacing_text(output) if output else streams.data() as file:
        texts: list[str] = []
        for chunk in chunks:
            lines = decoder.decode(chunk.texts)
            if out.as_json:
                texts += lines
            else:
                file.write("".join(f"{line}\n" for line in lines))
                file.flush()
    # Only `--json` prints this document.
    out.answer({"model": opened.name, "texts": texts})


def _stats(
    out: Output,
    opened: "Sequence[OpenTokenizer]",
    chunks: "Iterator[TextChunk]",
    *,
    special_tokens: bool,
    length: int,
) -> None:
    """Prints the statistics of the texts: lengths, padding, and what truncation would lose.

    Args:
        out: Prints the answer.
        opened: One tokenizer, or two to compare.
        chunks: The texts.
        special_tokens: Whether [CLS] and [SEP] count.
        length: Tokens that the figure of padding to a fixed length takes.
    """
    from bertctl.cli.verbs.token_tables import stats_view
    from bertctl.tokenization.stats import collect

    stats = collect(
        chunks,
        [tokenizer.tokenizer for tokenizer in opened],
        special_tokens=special_tokens,
        fixed_length=length,
    )
    if not stats[0]["texts"]:
        raise DataError("no texts to count", remedy="Give a text, or a file with lines or rows.")
    pairs = list(zip(opened, stats, strict=True))
    documents = [
        {"model": tokenizer.name, "tokenizer": tokenizer.kind, **stats}
        for tokenizer, stats in pairs
    ]
    if len(documents) == 1:
        document = documents[0]
    else:
        document = {"models": documents}
    out.answer(document, stats_view([(tokenizer.name, stats) for tokenizer, stats in pairs]))
