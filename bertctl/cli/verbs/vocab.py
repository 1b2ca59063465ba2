"""`bertctl vocab show|search|stats|coverage|diff|neighbours|train|grow|shrink`."""

import dataclasses
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from bertctl.cli.framework import streams
from bertctl.cli.framework.completion import model_names
from bertctl.cli.framework.next_command import say_next
from bertctl.cli.framework.output import Output, plain_table
from bertctl.cli.inputs.texts import LowercaseOption, ModelOption, TextSource, takes_files
from bertctl.errors import DataError, UsageError
from bertctl.words import command

ModelArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[MODEL]",
        help="Model name, folder, run, hub id, tokenizer.json or vocab.txt. Default: bert-base.",
        autocompletion=model_names,
    ),
]


def show(out: Output, model: ModelArgument = None, lowercase: LowercaseOption = None) -> None:
    """Print a vocabulary, one token per line after its id; paged on a terminal.

    Examples:
        bertctl vocab show minilm | grep -i transform
    """
    from rich.text import Text

    from bertctl.tokenization.reference import tokens_by_id
    from bertctl.tokenization.tokenizer_files import open_tokenizer

    opened = open_tokenizer(model, lowercase=lowercase, listener=out)
    tokens = tokens_by_id(opened.tokenizer)
    document = {"model": opened.name, "tokenizer": opened.kind, "pieces": tokens}
    if out.as_json:
        out.answer(document)
    elif out.answers.is_terminal:
        with out.answers.pager():
            out.answers.print(Text(_lines(enumerate(tokens))))
    else:
        with streams.data() as stream:
            # Rich would take a second to print tens of thousands of lines.
            stream.write(_lines(enumerate(tokens)))


def _lines(tokens: Iterable[tuple[int, str]]) -> str:
    """Returns a line for each id and its token: `2293`, a tab, `love`."""
    return "".join(f"{index}\t{token}\n" for index, token in tokens)


def search(
    out: Output,
    pattern: Annotated[str, typer.Argument(metavar="PATTERN")],
    model: ModelArgument = None,
    lowercase: LowercaseOption = None,
) -> None:
    """Find tokens by name, glob or id; exit code 3 if none matches.

    Args:
        out: Prints the answer and messages.
        pattern: A token, a glob such as 'embed*', or an id.
        model: The tokenizer's model, as it was typed.
        lowercase: Whether texts are read in lower case.

    Examples:
        bertctl vocab search 'embed*'
    """
    from bertctl.tokenization import vocab
    from bertctl.tokenization.tokenizer_files import open_tokenizer

    opened = open_tokenizer(model, lowercase=lowercase, listener=out)
    matches = vocab.search(opened.tokenizer, pattern)
    if not matches:
        tokens = opened.tokenizer.encode(pattern.replace("*", ""), add_special_tokens=False).tokens
        message = f"no token of {opened.name} fits '{pattern}'"
        raise DataError(
            message, remedy=f"The tokenizer makes of it: {' '.join(tokens) or 'nothing'}."
        )
    document = {"model": opened.name, "found": [vocab.named(*item) for item in matches]}
    if out.as_json:
        out.answer(document)
    else:
        with streams.data() as stream:
            stream.write(_lines((index, token) for token, index in matches))


def stats(out: Output, model: ModelArgument = None, lowercase: LowercaseOption = None) -> None:
    """Count the kinds of tokens, and show where each kind begins and ends."""
    from bertctl.tokenization import vocab
    from bertctl.tokenization.tokenizer_files import open_tokenizer

    opened = open_tokenizer(model, lowercase=lowercase, listener=out)
    counted = vocab.stats(opened.tokenizer)
    table = plain_table(
        "kind",
        "tokens",
        "first",
        "last",
        title=opened.kind,
        right=("tokens",),
    )
    names = ("unused slots", "single characters", "whole words", "continuations")
    for name, kind in zip(names, vocab.KINDS, strict=True):
        # A kind without tokens has no first and no last one; those cells stay empty.
        if counted[kind]["count"]:
            ends = [counted[kind]["first"], counted[kind]["last"]]
        else:
            ends = []
        table.add_row(
            name, f"{counted[kind]['count']:,}", *(f"{end['piece']} {end['id']}" for end in ends)
        )
    longest = [(token["piece"], token["id"]) for token in counted["longest"]]
    lists = {
        "special tokens": counted["special"].items(),
        "scripts": counted["scripts"].items(),
        "longest": longest,
    }
    lines = []
    for name, items in lists.items():
        listed = ", ".join(f"{label} {number}" for label, number in items)
        lines.append(f"{name}: {listed}")
    out.answer({"model": opened.name, "tokenizer": opened.kind, **counted}, table, *lines)


@takes_files
def coverage(
    out: Output,
    source: TextSource,
    model: ModelOption = None,
    top: Annotated[int, typer.Option("--top-k", "--top", min=1, metavar="N")] = 20,
    lowercase: LowercaseOption = None,
) -> None:
    """Show words of a corpus that are not a single token, and what new tokens would gain.

    Args:
        out: Prints the answer and messages.
        source: The texts and how they are read, as they were typed.
        model: The tokenizer's model, as it was typed.
        top: How many words to show.
        lowercase: Whether texts are read in lower case.

    Examples:
        bertctl vocab coverage abstracts.txt --top-k 50
    """
    from bertctl.cli.verbs.token_tables import word_table
    from bertctl.tokenization import vocab
    from bertctl.tokenization.tokenizer_files import open_tokenizer

    opened = open_tokenizer(model, lowercase=lowercase, listener=out)
    vocab.require_bert(opened, "coverage")
    coverage_facts = vocab.coverage(opened.tokenizer, source.watched(out), top=top)
    if not coverage_facts["texts"]:
        raise DataError("no texts to count", remedy="Give a file with lines or rows.")
    names = ("new tokens", "tokens saved")
    title = "what new tokens would save"
    gains = [
        (f"{gain['new_pieces']:,}", f"{gain['tokens_saved']:.1%}")
        for gain in coverage_facts["gains"]
    ]
    single = coverage_facts["own_piece"] / max(coverage_facts["words"], 1)
    out.answer(
        {"model": opened.name, "tokenizer": opened.kind, **coverage_facts},
        f"{coverage_facts['words']:,} words in {coverage_facts['texts']:,} texts; "
        f"{single:.1%} are a single token, "
        f"{coverage_facts['lacking_words']:,} different words are not",
        word_table("most frequent words that are not a single token", coverage_facts["top"]),
        plain_table(
            *names,
            title=title,
            right=names,
            rows=gains,
        ),
    )


def diff(
    out: Output,
    first: Annotated[str, typer.Argument(metavar="A")],
    second: Annotated[str, typer.Argument(metavar="B")],
    lowercase: LowercaseOption = None,
    top: Annotated[int, typer.Option("--top-k", "--top", min=1, metavar="N")] = 20,
) -> None:
    """Show how two vocabularies differ: tokens only in one, tokens under other ids.

    Args:
        out: Prints the answer and messages.
        first: A model, folder, tokenizer.json or vocab.txt.
        second: The one to compare it with.
        lowercase: Whether texts are read in lower case.
        top: How many tokens of each side to show.
    """
    from bertctl.tokenization import vocab
    from bertctl.tokenization.tokenizer_files import open_tokenizer

    opened_first = open_tokenizer(first, lowercase=lowercase, listener=out)
    opened_second = open_tokenizer(second, lowercase=lowercase, listener=out)
    difference = vocab.diff(opened_first.tokenizer, opened_second.tokenizer)
    # In the document the tokens of one vocabulary alone are under that vocabulary.
    tokens_of_one = {first: difference.pop("only_first"), second: difference.pop("only_second")}
    if difference["identical"]:
        lines = [f"identical: {difference['common']:,} tokens under the same ids"]
    else:
        lines = [
            f"{difference['common']:,} tokens in both, {len(difference['moved']):,} under other ids"
        ]
        for name, tokens in tokens_of_one.items():
            listed_tokens = " ".join(tokens[:top])
            if len(tokens) > top:
                listed_tokens += " …"
            # Without tokens the line ends behind their number.
            lines.append(f"only in {name}: {len(tokens):,}  {listed_tokens}".rstrip())
    document = {
        "first": {"model": first, "tokenizer": opened_first.kind, "only": tokens_of_one[first]},
        "second": {"model": second, "tokenizer": opened_second.kind, "only": tokens_of_one[second]},
        **difference,
    }
    out.answer(document, *lines)


@takes_files
def train(
    out: Output,
    source: TextSource,
    size: Annotated[int, typer.Option("--size", min=1, metavar="N")] = 30522,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="DIR")] = None,
    lowercase: Annotated[bool, typer.Option("--lowercase/--cased")] = True,
    min_frequency: Annotated[int, typer.Option("--min-frequency", min=1)] = 2,
    overwrite: Annotated[bool, typer.Option("--overwrite")] = False,
) -> None:
    """Train a new WordPiece vocabulary on texts; its folder can then be given to --model.

    Args:
        out: Prints the answer and messages.
        source: The texts and how they are read, as they were typed.
        size: Upper limit of tokens, special ones included.
        output: Folder for the vocabulary. Must be empty, or add --overwrite.
        lowercase: Whether texts are lower-cased and accents stripped first.
        min_frequency: How often a token must be seen.
        overwrite: Replace the vocabulary in the folder.

    Examples:
        bertctl vocab train abstracts.txt --size 8000 -o medical-vocab
    """
    from bertctl.tokenization.train import FILES, save
    from bertctl.tokenization.train import train as train_tokenizer

    if output is None:
        raise UsageError("no place for the vocabulary was named", remedy="Name a folder: -o DIR.")
    _check_free(output, replaceable=set(FILES) if overwrite else set())
    # Training reads the texts twice.
    with _rereadable(source) as rereadable:
        trained = train_tokenizer(
            lambda: rereadable.watched(out),
            size=size,
            lowercase=lowercase,
            min_frequency=min_frequency,
        )
    n_tokens = save(trained, output, lowercase=lowercase).get_vocab_size()
    out.answer({"output": str(output), "pieces": n_tokens, "lowercase": lowercase})
    if n_tokens < size:
        out.say(
            f"the texts gave {n_tokens:,} tokens, not {size:,}: more text, or a smaller "
            "--min-frequency, gives more"
        )
    out.say(f"{n_tokens:,} tokens written to {output}")
    say_next(out, command("pretrain CORPUS", from_scratch="base", vocab=output))


def _check_free(output: Path, *, replaceable: set[str]) -> None:
    """Refuses a folder for a vocabulary that has other files in it, and a file in its place.

    Args:
        output: The folder; it may be missing.
        replaceable: Names of files in the folder that may be replaced.

    Raises:
        UsageError: There is something else, which would be lost.
    """
    if output.is_dir():
        existing = {path.name for path in output.iterdir()}
    elif output.exists():  # a file: a folder never replaces it
        existing = {str(output)}
    else:
        existing = set()
    if existing - replaceable:
        message = f"{output} exists already"
        raise UsageError(
            message, remedy="Choose another folder with -o, or add --overwrite for a vocabulary."
        )


@takes_files
def grow(
    out: Output,
    source: TextSource,
    model: Annotated[str, typer.Argument(metavar="MODEL", autocompletion=model_names)],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR")],
    words: Annotated[int, typer.Option("--words", min=1, metavar="N")] = 1000,
    overwrite: Annotated[bool, typer.Option("--overwrite")] = False,
) -> None:
    """Add words of a corpus to a model's vocabulary: those that save most tokens.

    New words become WordPiece tokens, those first that save most tokens. Each starts as the mean of
    its former tokens. Texts without new words keep their hidden states, bit for bit.

    Args:
        out: Prints the answer and messages.
        source: The texts and how they are read, as they were typed.
        model: Model name, folder, run or hub id.
        output: New folder for the model. Must be empty, or add --overwrite.
        words: Largest number of words to add.
        overwrite: Replace the model that an earlier such command has written there.

    Examples:
        bertctl vocab grow minilm abstracts.txt --words 5000 -o medical
    """
    from bertctl.cli.verbs.token_tables import word_table
    from bertctl.modeling import own_vocabulary

    document = own_vocabulary.grow(
        model,
        source.watched(out),
        output,
        words=words,
        overwrite=overwrite,
    )
    n_before = document["corpus_pieces"]["before"]
    n_after = document["corpus_pieces"]["after"]
    change = n_after / n_before - 1
    summary_line = f"the corpus had {n_before:,} tokens, and has {n_after:,} ({change:+.1%})"
    out.answer(
        document, summary_line, word_table("new words that save most", document["words"][:20])
    )
    out.say(f"model with {len(document['words']):,} new words written to {output}")
    say_next(out, command("pretrain CORPUS", model=output))


@takes_files
def shrink(
    out: Output,
    source: TextSource,
    model: Annotated[str, typer.Argument(metavar="MODEL", autocompletion=model_names)],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR")],
    overwrite: Annotated[bool, typer.Option("--overwrite")] = False,
) -> None:
    """Remove the tokens that a corpus does not use from a model's vocabulary.

    Special tokens and single characters are kept. Texts of the corpus keep their tokens and hidden
    states, bit for bit. Words that are not in it break into smaller tokens.

    Args:
        out: Prints the answer and messages.
        source: The texts and how they are read, as they were typed.
        model: Model name, folder, run or hub id.
        output: New folder for the model. Must be empty, or add --overwrite.
        overwrite: Replace the model that an earlier such command has written there.

    Examples:
        bertctl vocab shrink bert-multilingual german.txt -o german-bert
    """
    from bertctl.modeling import own_vocabulary

    document = own_vocabulary.shrink(model, source.watched(out), output, overwrite=overwrite)
    n_before = document["vocabulary"]["before"]
    n_after = document["vocabulary"]["after"]
    out.answer(document, f"{n_after:,} of {n_before:,} tokens are left ({n_after / n_before:.1%})")
    out.say(f"model of {n_after:,} tokens written to {output}")
    say_next(out, command("finetune FILE", model=output))


def neighbours(
    out: Output,
    word: Annotated[str, typer.Argument(metavar="WORD")],
    model: Annotated[str, typer.Argument(metavar="MODEL", autocompletion=model_names)],
    context: Annotated[str | None, typer.Option("--context", metavar="TEXT")] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", metavar="FILE")] = None,
    text_column: Annotated[str | None, typer.Option("--text-column", metavar="NAME")] = None,
    layer: Annotated[str | None, typer.Option("--layer", metavar="NAME")] = None,
    top: Annotated[int, typer.Option("--top-k", "--top", min=1, metavar="N")] = 10,
    whole_words: Annotated[bool, typer.Option("--whole-words")] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE.html")] = None,
) -> None:
    """Find the tokens nearest to a token, or places where a word is used in the same sense.

    With --context and --file, bertctl compares the uses of a word in a corpus with its use in
    --context, from the most to the least similar.

    Args:
        out: Prints the answer and messages.
        word: A token of the vocabulary, or 'a - b + c' in quotes.
        model: Model name, folder, run or hub id.
        context: A text that uses the word in the sense that you mean.
        file: Corpus for --context: lines, CSV, TSV, JSONL or Parquet.
        text_column: Column of --file with the texts.
        layer: Layer whose vectors are compared with --context, by number or name. Default: last.
        top: Number of results; with --context, that many of the nearest and of the farthest.
        whole_words: Leave out tokens that continue a word, unused and special ones.
        output: Page to write, with a picture in two dimensions. An existing file is replaced.

    Examples:
        bertctl vocab neighbours "king - man + woman" minilm
        bertctl vocab neighbours bank minilm --context "river bank" -f corpus.txt
    """
    has_one_of_two = (context is None) != (file is None)
    if has_one_of_two or (layer and context is None):
        message = (
            "--context, --file and --layer belong together: places of a word are compared with one "
            "in a text"
        )
        raise UsageError(
            message, remedy='Such as --context "the bank of the river" --file corpus.txt'
        )
    from bertctl.interpretability.neighbours import near_places, near_tokens
    from bertctl.reporting.document import record_table

    if context is None:
        neighbourhood = near_tokens(
            model,
            word,
            top=top,
            whole_words=whole_words,
        )
    else:
        settings = {"text_column": text_column} if text_column else {}
        source = TextSource([str(file)], settings=settings)
        texts = (chunk.texts for chunk in source.chunks(out))
        with out.third_party_kept():
            neighbourhood = near_places(
                model,
                word,
                context,
                texts,
                layer=layer or "last",
                top=top,
                listener=out,
            )
    column = "text" if context else "token"
    rows = [
        {"cosine": neighbour["score"], column: neighbour["text"]}
        for neighbour in neighbourhood["neighbours"]
    ]
    tables: list[Any] = [record_table(rows[:top])]
    # Of the uses of a word, the least similar ones come after the `top` most similar ones.
    farthest = rows[top:]
    if farthest:
        tables += ["… the least alike:", record_table(farthest)]
    if output is not None:
        from bertctl.reporting.inside_pages import neighbours_page
        from bertctl.writing import write_text

        write_text(output, neighbours_page(neighbourhood))
        out.say(f"page written to {output}")
    out.answer(neighbourhood, *tables)


@contextmanager
def _rereadable(source: TextSource) -> Iterator[TextSource]:
    """Yields a source whose texts can be read several times.

    Stdin can be read only once. So it is copied to a temporary file, which replaces `-` among the
    source's files and is deleted at the end of the context. A source without stdin stays as it is.

    Raises:
        DataError: A line of stdin is too long to be a text.
    """
    if "-" not in source.files:
        yield source
        return
    from bertctl.tokenization.lines import LONGEST_LINE
    from bertctl.words import human_bytes

    with tempfile.NamedTemporaryFile(suffix=".txt") as copy:
        while line := sys.stdin.buffer.readline(LONGEST_LINE + 1):
            if len(line) > LONGEST_LINE:
                # A device such as /dev/zero has no line ends, and its copy would fill the disk.
                raise DataError(
                    f"stdin: a line has more than {human_bytes(LONGEST_LINE)}", remedy="Cut it up."
                )
            copy.write(line)
        copy.flush()
        files = [copy.name if file == "-" else file for file in source.files]
        yield dataclasses.replace(source, files=files)


COMMANDS = {
    "show": show,
    "search": search,
    "stats": stats,
    "coverage": coverage,
    "diff": diff,
    "neighbours": neighbours,
    "train": train,
    "grow": grow,
    "shrink": shrink,
}
