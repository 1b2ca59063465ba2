"""The tables of `tokenize --stats` and `vocab coverage`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bertctl.cli.framework.output import plain_table
from bertctl.words import shorten

_BAR = 40
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


def stats_view(named: Named) -> RenderableType:
    """Returns all tables of one or two tokenizers, side by side where there are two."""
    parts: list[RenderableType] = [_figures(named), ""]
    for name, stats in named:
        parts += [_histogram(stats, f"texts by length in tokens{_of(name, named)}"), ""]
    parts.append(_truncation(named))
    for name, stats in named:
        if stats["broken_words"]:
            parts += [
                "",
                word_table(f"split words that cost most{_of(name, named)}", stats["broken_words"]),
            ]
        if stats["unknown_words"]:
            parts += ["", word_table(f"unknown words{_of(name, named)}", stats["unknown_words"])]
    return Group(*parts)


def _of(name: str, named: Named) -> str:
    return f", {name}" if len(named) > 1 else ""


def _figures(named: Named) -> Table:
    names = [name for name, _ in named]
    padding = named[0][1]["padding"]
    rows = (
        *_ROWS,
        (f"padding, all padded to {padding['length']}", lambda s: f"{s['padding']['fixed']:.1%}"),
        (
            f"padding, batches of {padding['batch_size']}",
            lambda s: f"{s['padding']['in_order']:.1%}",
        ),
        ("padding, batches of similar lengths", lambda s: f"{s['padding']['by_length']:.1%}"),
    )
    shown = ((label, *(figure(stats) for _, stats in named)) for label, figure in rows)
    return plain_table(
        "",
        *names,
        right=tuple(names),
        rows=shown,
    )


def _histogram(stats: Stats, title: str) -> Table:
    table = plain_table(
        "tokens",
        "",
        "texts",
        "share",
        title=title,
        right=("tokens", "texts", "share"),
    )
    most = max((step["texts"] for step in stats["histogram"]), default=1)
    for step in stats["histogram"]:
        first = step["from"]
        last = step["to"]
        count = step["texts"]
        bar = "█" * round(_BAR * count / most) or ("▏" if count else "")
        if first == last:
            name = f"{first}"
        else:
            name = f"{first}-{last}"
        table.add_row(name, bar, f"{count:,}", f"{count / stats['texts']:.1%}")
    return table


def _truncation(named: Named) -> Table:
    whats = ("texts cut", "tokens lost", "windows of all", "of one text")
    headers = [f"{name}: {what}" if len(named) > 1 else what for name, _ in named for what in whats]
    title = "what truncation would lose, and the windows that would keep all"
    table = plain_table(
        "cut at",
        *headers,
        title=title,
        right=("cut at", *headers),
    )
    for losses in zip(*(stats["losses"] for _, stats in named), strict=True):
        cells = [
            f"{loss[what]:,} ({loss[what] / max(stats[what], 1):.1%})"
            if what in stats
            else f"{loss[what]:,}"
            for loss, (_, stats) in zip(losses, named, strict=True)
            for what in ("texts", "tokens", "windows", "most_windows")
        ]
        table.add_row(str(losses[0]["length"]), *cells)
    return table


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
        tokens = " ".join(word["pieces"][:_SHOWN]) + (" …" if len(word["pieces"]) > _SHOWN else "")
        table.add_row(
            Text(shorten(word["word"], 40)), f"{word['count']:,}", Text(tokens)
        )  # [UNK] is no markup
    return table
