"""Which tokens are masked, and what stands in their places.

See the BERT paper, section 3.1 and appendix A.1.

Letters: L tokens of a window without its special tokens, n chosen ones.
"""

from dataclasses import dataclass

import numpy as np

from bertctl.arrays import Bools, Ints
from bertctl.config.recipe_sections import MaskingSection

_SPAN = 0.2
"""Parameter of the geometric distribution of a span's length in words (Joshi et al. 2020, 3.1)."""

_LONGEST_SPAN = 10
"""Words at which that distribution is cut off."""


@dataclass(frozen=True)
class Masking:
    """How tokens are chosen and replaced.

    Attributes:
        settings: Settings of the recipe.
        mask_id: Id of [MASK].
        ids: (V,) tokens that may come in the place of another: all but the special ones.
    """

    settings: MaskingSection
    mask_id: int
    ids: Ints

    def choose(self, begins: Bools, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """Returns (n,) places in ascending order, and the number of the span that each belongs to.

        15 % of 10 tokens are 1.5 tokens: 1 or 2 are chosen, each in half of the cases, so that the
        average is 15 % in short windows, too. A word with more tokens than are left to choose is
        skipped, as in google-research/bert (`create_masked_lm_predictions`).

        Args:
            begins: (L,) whether a token begins a word.
            rng: Random numbers of the window.
        """
        length = len(begins)
        n_masked = int(self.settings.rate * length + rng.random())  # rounds up or down at random
        if not (self.settings.whole_word or self.settings.spans):
            positions = np.sort(rng.permutation(length)[:n_masked])
            number_of_span = positions  # each token is a span by itself
            return positions, number_of_span

        word_starts = np.flatnonzero(begins)
        if not len(word_starts) or word_starts[0] != 0:
            word_starts = np.concatenate([[0], word_starts])  # the window begins within a word
        sizes = np.diff(np.append(word_starts, length))
        if self.settings.spans:
            spans = self._spans(sizes, n_masked, rng)
        else:  # each word is a span of its own
            spans = rng.permutation(len(word_starts))[:, None].tolist()

        span_of_word = np.full(len(word_starts), -1, dtype=np.int64)  # -1: is not masked
        tokens_left = n_masked
        for number, words in enumerate(spans):
            for word in words:
                if span_of_word[word] < 0 and sizes[word] <= tokens_left:
                    span_of_word[word] = number
                    tokens_left -= int(sizes[word])
            if not tokens_left:
                break
        span_of_token = np.repeat(span_of_word, sizes)
        positions = np.flatnonzero(span_of_token >= 0)
        return positions, span_of_token[positions]

    def _spans(self, sizes: Ints, n_masked: int, rng: np.random.Generator) -> list[range]:
        """Returns spans of words in the order in which they are tried.

        There are at least as many as are needed: after spans that begin at random words comes one
        that begins at each word.
        """
        # Span lengths of SpanBERT (Joshi et al. 2020, section 3.1): P(n) = p (1 - p)^(n - 1) up to
        # the longest, scaled to 1. Modulo cuts the distribution off and keeps its shape, as it has
        # no memory: 3.8 on average, where a minimum makes it 4.5.
        lengths = (rng.geometric(_SPAN, size=n_masked + len(sizes)) - 1) % _LONGEST_SPAN + 1
        begins = np.concatenate(
            [rng.integers(len(sizes), size=n_masked), rng.permutation(len(sizes))]
        )
        return [
            range(a, min(a + n, len(sizes)))
            for a, n in zip(begins.tolist(), lengths.tolist(), strict=True)
        ]

    def disguise(self, tokens: Ints, groups: Ints, rng: np.random.Generator) -> Ints:
        """Returns (n,) ids that the model reads in the places of the chosen tokens.

        Each is [MASK], a random token, or the token itself; the tokens of one span all get the
        same of the three.

        Args:
            tokens: (n,) ids of the tokens that were chosen.
            groups: (n,) number of the span that each belongs to, in any order.
            rng: Random numbers of the window.
        """
        _, span_of_token = np.unique(groups, return_inverse=True)
        n_spans = int(span_of_token.max(initial=-1)) + 1
        drawn = rng.random(n_spans)[span_of_token]
        random_tokens = self.ids[rng.integers(len(self.ids), size=len(tokens))]
        settings = self.settings
        is_changed = drawn < settings.replaced + settings.random
        disguised: Ints = np.where(is_changed, random_tokens, tokens)
        disguised[drawn < settings.replaced] = self.mask_id
        return disguised
