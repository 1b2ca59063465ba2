"""The tables of `tokenize --stats` and `vocab coverage`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bertctl.cli.framework.output import plain_table
from bertctl.words import shorten

_BAR = 40  # characters of the longest bar
_SHOWN = 12  # tokens of a word that are shown

Stats = Mapping[str, Any]
"""The numbers of one tokenizer, as `tokenization/stats.py` returns them."""

Named = Sequence[tuple[str, Stats]]

_ROWS: Sequence[tuple[str, Callable[[Stats], str]]] = (
    ("texts", lambda s: f"{s['texts']:,}"),
    ("tokens", lambda s: f"{s['tokens']:,}"),
    ("mean length", lambda s: f"{s['length']['mean']:.1f}"),
    ("median", lambda s: f"{s['length']['median']:,}"),
    ("90 % have at most", lambda s: f"{s['length']['p90']:,}"),
    ("95 %", lambda s: f"{s['length']['p95']:,}"),
    ("99 %", lambda s: f"{s['length']['p99']:,}"),
    ("longest", lambda s: f"{s['length']['longest']:,}"),
    ("enough for 99 % of the texts", lambda s: f"{s['enough_for_99_percent']['of_texts']:,}"),
    ("enough for 99 % of the tokens", lambda s: f"{s['enough_for_99_percent']['of_tokens']:,}"),
    ("tokens per word", lambda s: f"{s['pieces_per_word']:.3f}"),
    ("unknown tokens", lambda s: f"{s['unknown']:,} ({s['unknown_share']:.3%})"),
)


def stats_view(by_name: Named) -> RenderableType:
    """Returns all tables of the statistics of one tokenizer, or of two tokenizers to compare."""
    parts: list[RenderableType] = [_figures(by_name), ""]
    for name, stats in by_name:
        parts += [_histogram(stats, f"texts by length in tokens{_of(name, by_name)}"), ""]
    parts.append(_truncation(by_name))
    for name, stats in by_name:
        if stats["broken_words"]:
            parts += [
                "",
                word_table(
                    f"split words that cost most{_of(name, by_name)}", stats["broken_words"]
                ),
            ]
        if stats["unknown_words"]:
            parts += ["", word_table(f"unknown words{_of(name, by_name)}", stats["unknown_words"])]
    return Group(*parts)


def _of(name: str, by_name: Named) -> str:
    """Returns a tokenizer's name as the end of a title, if there are two tokenizers."""
    return f", {name}" if len(by_name) > 1 else ""


def _figures(by_name: Named) -> Table:
    """Returns the table with a row per figure, such as `mean length`, and a column per tokenizer.

    The labels of the padding rows name the padded length and the batch size, which are the same
    for each tokenizer.
    """
    names = [name for name, _ in by_name]
    padding = by_name[0][1]["padding"]
    rows = (
        *_ROWS,
        (f"padding, all padded to {padding['length']}", lambda s: f"{s['padding']['fixed']:.1%}"),
        (
            f"padding, batches of {padding['batch_size']}",
            lambda s: f"{s['padding']['in_order']:.1%}",
        ),
        ("padding, batches of similar lengths", lambda s: f"{s['padding']['by_length']:.1%}"),
    )
    table_rows = []
    for label, figure in rows:
        cells = [figure(stats) for _, stats in by_name]
        table_rows.append([label, *cells])
    return plain_table(
        "",
        *names,
        right=tuple(names),
        rows=table_rows,
    )


def _histogram(stats: Stats, title: str) -> Table:
    """Returns the bar chart of text lengths: a row per range of lengths, such as `9-16` tokens."""
    table = plain_table(
        "tokens",
        "",
        "texts",
        "share",
        title=title,
        right=("tokens", "texts", "share"),
    )
    largest_count = max((step["texts"] for step in stats["histogram"]), default=1)
    for step in stats["histogram"]:
        shortest = step["from"]
        longest = step["to"]
        count = step["texts"]
        bar = "█" * round(_BAR * count / largest_count)
        if count and not bar:
            bar = "▏"  # a few texts look different from none
        if shortest == longest:
            lengths = f"{shortest}"
        else:
            lengths = f"{shortest}-{longest}"
        table.add_row(lengths, bar, f"{count:,}", f"{count / stats['texts']:.1%}")
    return table


def _truncation(by_name: Named) -> Table:
    """Returns the table with a row per `--max-length` that could be chosen, and what it would lose.

    Each tokenizer has four columns; with two tokenizers their headers begin with its name.
    """
    titles = ("texts cut", "tokens lost", "windows of all", "of one text")
    headers: list[str] = []
    for name, _ in by_name:
        headers += [f"{name}: {figure}" if len(by_name) > 1 else figure for figure in titles]
    title = "what truncation would lose, and the windows that would keep all"
    table = plain_table(
        "cut at",
        *headers,
        title=title,
        right=("cut at", *headers),
    )
    for losses in zip(*(stats["losses"] for _, stats in by_name), strict=True):
        cells: list[str] = []
        for loss, (_, stats) in zip(losses, by_name, strict=True):
            cells += _loss_cells(loss, stats)
        table.add_row(str(losses[0]["length"]), *cells)
    return table


def _loss_cells(loss: Mapping[str, Any], stats: Mapping[str, Any]) -> Iterator[str]:
    """Yields what truncation at one length loses, each figure with its share if that is known."""
    for figure in ("texts", "tokens", "windows", "most_windows"):
        cell = f"{loss[figure]:,}"
        if figure in stats:
            cell += f" ({loss[figure] / max(stats[figure], 1):.1%})"
        yield cell


def word_table(title: str, words: Sequence[Mapping[str, Any]]) -> Table:
    """Returns a table of words, how often they were seen, and what the tokenizer makes of them."""
    table = plain_table(
        "word",
        "times",
        "tokens",
        title=title,
        right=("times",),
    )
    for word in words:
        tokens = " ".join(word["pieces"][:_SHOWN])
        if len(word["pieces"]) > _SHOWN:
            tokens += " …"
        # As `Text`, a token such as [UNK] is not read as markup.
        table.add_row(Text(shorten(word["word"], 40)), f"{word['count']:,}", Text(tokens))
    return table
