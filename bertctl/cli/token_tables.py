"""The tables of `tokenize --stats` and `vocab coverage`."""

from collections.abc import Callable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bertctl.cli.output import plain_table
from bertctl.tokenization.stats import TokenStats, bins
from bertctl.tokenization.word_counts import CountedWord
from bertctl.words import shorten

_BAR = 40
_SHOWN = 12  # tokens of a word that are shown

Named = Sequence[tuple[str, TokenStats]]

_ROWS: Sequence[tuple[str, Callable[[TokenStats], str]]] = (
    ("texts", lambda s: f"{s.texts:,}"),
    ("tokens", lambda s: f"{s.tokens:,}"),
    ("mean length", lambda s: f"{s.lengths['mean']:.1f}"),
    ("median", lambda s: f"{s.lengths['median']:,}"),
    ("90 % have at most", lambda s: f"{s.lengths['p90']:,}"),
    ("95 %", lambda s: f"{s.lengths['p95']:,}"),
    ("99 %", lambda s: f"{s.lengths['p99']:,}"),
    ("longest", lambda s: f"{s.lengths['longest']:,}"),
    ("enough for 99 % of the texts", lambda s: f"{s.enough_for_texts:,}"),
    ("enough for 99 % of the tokens", lambda s: f"{s.enough_for_tokens:,}"),
    ("tokens per word", lambda s: f"{s.tokens_per_word:.3f}"),
    ("unknown tokens", lambda s: f"{s.unknown:,} ({s.unknown_share:.3%})"),
)


def stats_view(named: Named) -> RenderableType:
    """Returns all tables of one or two tokenizers, side by side where there are two."""
    parts: list[RenderableType] = [_figures(named), ""]
    for name, stats in named:
        parts += [_histogram(stats, f"texts by length in tokens{_of(name, named)}"), ""]
    parts.append(_truncation(named))
    for name, stats in named:
        if stats.split_words:
            parts += ["", word_table(f"split words that cost most{_of(name, named)}", stats.split_words)]
        if stats.unknown_words:
            parts += ["", word_table(f"unknown words{_of(name, named)}", stats.unknown_words)]
    return Group(*parts)


def _of(name: str, named: Named) -> str:
    return f", {name}" if len(named) > 1 else ""


def _figures(named: Named) -> Table:
    names = [name for name, _ in named]
    padding = named[0][1].padding
    rows = (
        *_ROWS,
        (f"padding, all padded to {padding.length}", lambda s: f"{s.padding.fixed:.1%}"),
        (f"padding, batches of {padding.batch_size}", lambda s: f"{s.padding.in_order:.1%}"),
        ("padding, batches of similar lengths", lambda s: f"{s.padding.by_length:.1%}"),
    )
    table = plain_table("", *names, right=tuple(names))
    for label, shown in rows:
        table.add_row(label, *(shown(stats) for _, stats in named))
    return table


def _histogram(stats: TokenStats, title: str) -> Table:
    table = plain_table("tokens", "", "texts", "share", title=title, right=("tokens", "texts", "share"))
    rows = bins(stats.histogram)
    most = max((count for _, _, count in rows), default=1)
    for first, last, count in rows:
        bar = "█" * round(_BAR * count / most) or ("▏" if count else "")
        name = f"{first}" if first == last else f"{first}-{last}"
        table.add_row(name, bar, f"{count:,}", f"{count / stats.texts:.1%}")
    return table


def _truncation(named: Named) -> Table:
    headers = [
        f"{name}: {what}" if len(named) > 1 else what for name, _ in named for what in ("texts cut", "tokens lost")
    ]
    table = plain_table("cut at", *headers, title="what truncation would lose", right=("cut at", *headers))
    for losses in zip(*(stats.losses for _, stats in named), strict=True):
        cells = [
            f"{number:,} ({number / max(total, 1):.1%})"
            for loss, (_, stats) in zip(losses, named, strict=True)
            for number, total in ((loss.texts, stats.texts), (loss.tokens, stats.tokens))
        ]
        table.add_row(str(losses[0].length), *cells)
    return table


def word_table(title: str, words: Sequence[CountedWord]) -> Table:
    """Returns a table of words, how often they were seen, and what the tokenizer makes of them."""
    table = plain_table("word", "times", "tokens", title=title, right=("times",))
    for word in words:
        tokens = " ".join(word.tokens[:_SHOWN]) + (" …" if len(word.tokens) > _SHOWN else "")
        table.add_row(Text(shorten(word.word, 40)), f"{word.count:,}", Text(tokens))  # [UNK] is no markup
    return table
