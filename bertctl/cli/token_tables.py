"""The tables of `tokenize --stats`."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bertctl.cli.output import plain_table
from bertctl.tokenization.stats import TokenStats, bins
from bertctl.tokenization.words import CountedWord

_BAR = 40
_SHOWN = 12  # pieces of a word that are shown

Named = Sequence[tuple[str, TokenStats]]


def stats_view(named: Named) -> RenderableType:
    """All tables of one or two tokenizers, side by side where there are two."""
    parts: list[RenderableType] = [_figures(named), ""]
    for name, stats in named:
        title = "texts by length in tokens" + (f", {name}" if len(named) > 1 else "")
        parts += [_histogram(stats, title), ""]
    parts.append(_losses(named))
    for name, stats in named:
        of = f", {name}" if len(named) > 1 else ""
        if stats.broken:
            parts += ["", word_table(f"broken words that cost most{of}", stats.broken)]
        if stats.unknown_words:
            parts += ["", word_table(f"unknown words{of}", stats.unknown_words)]
    return Group(*parts)


def _figures(named: Named) -> Table:
    names = [name for name, _ in named]
    table = plain_table("", *names, right=tuple(names))
    all_stats = [stats for _, stats in named]
    table.add_row("texts", *(f"{s.texts:,}" for s in all_stats))
    table.add_row("tokens", *(f"{s.tokens:,}" for s in all_stats))
    table.add_row("mean length", *(f"{s.mean:.1f}" for s in all_stats))
    for label, field in (
        ("median", "median"),
        ("90 % have at most", "p90"),
        ("95 %", "p95"),
        ("99 %", "p99"),
        ("longest", "longest"),
    ):
        table.add_row(label, *(f"{getattr(s, field):,}" for s in all_stats))
    table.add_row("enough for 99 % of the texts", *(f"{s.enough_for_texts:,}" for s in all_stats))
    table.add_row("enough for 99 % of the tokens", *(f"{s.enough_for_tokens:,}" for s in all_stats))
    table.add_row("pieces a word", *(f"{s.pieces_per_word:.3f}" for s in all_stats))
    table.add_row("unknown tokens", *(f"{s.unknown:,} ({s.unknown_share:.3%})" for s in all_stats))
    size, length = all_stats[0].padding.batch_size, all_stats[0].padding.length
    table.add_row(f"padding, all {length} long", *(f"{s.padding.fixed:.1%}" for s in all_stats))
    table.add_row(f"padding, batches of {size}", *(f"{s.padding.in_order:.1%}" for s in all_stats))
    table.add_row("padding, batches of like lengths", *(f"{s.padding.by_length:.1%}" for s in all_stats))
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


def _losses(named: Named) -> Table:
    headers = [
        header
        for name, _ in named
        for header in (
            (f"{name}: texts cut", f"{name}: tokens lost") if len(named) > 1 else ("texts cut", "tokens lost")
        )
    ]
    table = plain_table("cut at", *headers, title="what a cut would lose", right=("cut at", *headers))
    for i, loss in enumerate(named[0][1].losses):
        cells = []
        for _, stats in named:
            cut = stats.losses[i]
            cells += [
                f"{cut.texts:,} ({cut.texts / max(stats.texts, 1):.1%})",
                f"{cut.tokens:,} ({cut.tokens / max(stats.tokens, 1):.1%})",
            ]
        table.add_row(str(loss.length), *cells)
    return table


def word_table(title: str, words: Sequence[CountedWord]) -> Table:
    """Words, how often they were seen, and what they become."""
    table = plain_table("word", "times", "pieces", title=title, right=("times",))
    for word in words:
        pieces = " ".join(word.pieces[:_SHOWN]) + (" …" if len(word.pieces) > _SHOWN else "")
        table.add_row(Text(_short(word.word)), f"{word.count:,}", Text(pieces))  # [UNK] is no markup
    return table


def _short(word: str, width: int = 40) -> str:
    return word if len(word) <= width else word[: width - 1] + "…"
