"""Shows how the model sees one text, aligned for a person.

Tokens are above, ids below, then segments and words.
"""

from collections.abc import Iterator

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text
from tokenizers import Encoding

_WORD_STYLES = ("cyan", "green")  # neighbouring words differ
_SPECIAL_STYLE = "magenta"
_UNKNOWN_STYLE = "bold red"
_ROWS = ("tokens", "ids", "segment", "word")
_INDENT = max(map(len, _ROWS)) + 2


class TokenView:
    """Rich renderable: the rows of an encoded text or pair, and a line of counts.

    The four rows are folded to the width.

        tokens   [CLS]  in    terms  of    architecture  …  transform ##er  [SEP]
        ids      101    1999  3408   1997  4294          …  10938     2121  102
        segment  0      0     0      0     0             …  0         0     0
        word     -      0     1      2     3             …  11        11    -

    Special tokens have no word (`-`); tokens of one word share its number and colour; unknown
    tokens are red and are named with the text they stand for.

    Args:
        encoding: by the reference library, with offsets.
        text: the (first) text.
        pair: the second text, or None.
        unknown: id of the unknown token, or None.
        full_length: tokens before truncation.
    """

    def __init__(
        self,
        encoding: Encoding,
        text: str,
        pair: str | None,
        *,
        unknown: int | None,
        full_length: int | None = None,
    ) -> None:
        self._encoding = encoding
        self._unknown = unknown
        self._sides = (text, pair or "")
        if full_length is None:
            self._full_length = len(encoding)
        else:
            self._full_length = full_length
        # Kept, since the library makes each of these lists anew at every access.
        self._ids = encoding.ids
        self._words = encoding.word_ids
        words = ("-" if word is None else str(word) for word in self._words)
        self._cells = list(
            zip(
                encoding.tokens,
                map(str, self._ids),
                map(str, encoding.type_ids),
                words,
                strict=True,
            )
        )
        self._widths = [max(map(cell_len, cells)) for cells in self._cells]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yields a table with a column per token, folded to the width of the console.

        Its rows are the token, its id, its segment and its word. A block of these rows has as many
        tokens as fit; the next tokens follow in a block below it.
        """
        if not len(self._encoding):
            yield Text("no tokens")
            return
        for first, last in self._folds(options.max_width - _INDENT):
            for row, name in enumerate(_ROWS):
                line = Text(no_wrap=True)
                line.append(f"{name:<{_INDENT}}", style="dim")
                for i in range(first, last):
                    cell = self._cells[i][row]
                    line.append(cell, style=self._style(i) if row == 0 else "")
                    if i + 1 < last:
                        line.append(" " * (self._widths[i] - cell_len(cell) + self._gap(i)))
                yield line
            yield Text("")
        yield Text(self.summary())

    def summary(self) -> str:
        """Returns the line of counts: `12 tokens, 2 special, 10 words, ..., 0 unknown`."""
        encoding = self._encoding
        special = sum(1 for sequence in encoding.sequence_ids if sequence is None)
        # Words are numbered in each text of a pair from 0.
        words = {
            (side, word)
            for side, word in zip(encoding.sequence_ids, self._words, strict=True)
            if word is not None
        }
        unknown = [
            self._sides[side or 0][start:end]
            for token, side, (start, end) in zip(
                self._ids, encoding.sequence_ids, encoding.offsets, strict=True
            )
            if token == self._unknown
        ]
        parts = [f"{len(encoding)} tokens", f"{special} special", f"{len(words)} words"]
        if words:
            parts.append(f"{(len(encoding) - special) / len(words):.2f} tokens per word")
        if unknown:
            parts.append(f"{len(unknown)} unknown ({', '.join(unknown)})")
        else:
            parts.append("0 unknown")
        if self._full_length > len(encoding):
            parts.append(f"{self._full_length - len(encoding)} tokens cut off")
        return ", ".join(parts)

    def _folds(self, width: int) -> Iterator[tuple[int, int]]:
        """Yields the first token of each line of this width, and the one after its last."""
        first = 0
        used_width = 0
        for i in range(len(self._encoding)):
            if i > first and used_width + self._widths[i] > width:
                yield first, i
                first = i
                used_width = 0
            used_width += self._widths[i] + self._gap(i)
        yield first, len(self._encoding)

    def _gap(self, i: int) -> int:
        """Returns how many spaces are behind token `i`: more at the end of a word than within."""
        word = self._words[i]
        last = len(self._words) - 1
        next_word = self._words[min(i + 1, last)]  # nothing is printed behind the last token
        is_within_word = word is not None and word == next_word
        return 1 if is_within_word else 2

    def _style(self, i: int) -> str:
        """Returns the colour of token `i`: that of its word, of special or of unknown tokens."""
        if self._ids[i] == self._unknown:
            return _UNKNOWN_STYLE
        word = self._words[i]
        if word is None:
            return _SPECIAL_STYLE
        return _WORD_STYLES[word % len(_WORD_STYLES)]
