"""Which tokens begin a word, as the tokenizer's pre-tokenizer sees words.

Letters: N texts, T tokens of all of them together, V in the vocabulary.
"""

from collections.abc import Sequence

import numpy as np
from tokenizers import Tokenizer, pre_tokenizers

from bertctl.arrays import Bools, Ints, Ints32
from bertctl.documents import loading
from bertctl.errors import UnavailableError
from bertctl.tokenization.encode import EncodedTexts, TextEncoder
from bertctl.tokenization.reference import (
    OTHER_TOKENIZER,
    PIECE_SPACE,
    chunks,
    continuation_prefix,
    tokens_by_id,
)


class WordStarts:
    """Encodes texts without special tokens, and says where their words begin.

    Args:
        tokenizer: with truncation and padding off; it must not change as long as this lives.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._encoder = TextEncoder(tokenizer, special_tokens=False)
        # (V,) whether a token continues a word; None asks the library for each text.
        self._continues_word = _tokens_that_continue(tokenizer)

    def encode(self, texts: Sequence[str]) -> tuple[Ints32, Ints, Bools]:
        """Returns (T,) ids, (N,) tokens of each text, and (T,) whether a token begins a word.

        If a token alone does not show whether it continues a word (`_continues_word` is None), the
        numbers of words that the tokenizers library returns show it.
        """
        if self._continues_word is not None:
            encoded = self._encoder.encode(texts)
            return encoded.ids, encoded.lengths, self.of(texts, encoded)
        ids: list[Ints32] = []
        begins: list[Bools] = []
        with loading("the tokenizer", kind=UnavailableError, remedy=OTHER_TOKENIZER):
            for chunk in chunks(texts):
                for encoding in self._tokenizer.encode_batch(chunk, add_special_tokens=False):
                    # A token without a word has None, which becomes NaN. That differs from the
                    # number of any neighbour, so the token is a word of its own.
                    words = np.array(encoding.word_ids, dtype=np.float64)
                    ids.append(np.array(encoding.ids, dtype=np.int32))
                    begins.append(np.diff(words, prepend=np.nan) != 0)
        # The empty arrays give the results their types if there are no texts.
        return (
            np.concatenate([np.zeros(0, dtype=np.int32), *ids]),
            np.array(list(map(len, ids)), dtype=np.int64),
            np.concatenate([np.zeros(0, dtype=np.bool_), *begins]),
        )

    def of(self, texts: Sequence[str], encoded: EncodedTexts) -> Bools:
        """Returns (T,) whether a token begins a word.

        Args:
            texts: N.
            encoded: The same texts, encoded without special tokens.
        """
        if self._continues_word is None:  # the texts must be encoded once more, for their words
            _, _, begins_word = self.encode(texts)
            return begins_word
        begins: Bools = ~self._continues_word[encoded.ids]
        first_tokens = encoded.starts[:-1][encoded.lengths > 0]
        begins[first_tokens] = True
        return begins


def _tokens_that_continue(tokenizer: Tokenizer) -> Bools | None:
    """Returns (V,) whether a token continues a word; None if the token alone does not show it.

    The token shows it in two kinds of tokenizers. In BERT's, a token that continues a word begins
    with `##`. In SentencePiece without a pre-tokenizer that cuts texts into words (Gemma's, which
    mmBERT has), a token that begins a word has the mark of a space.
    """
    names = tokens_by_id(tokenizer)
    prefix = continuation_prefix(tokenizer)
    if isinstance(tokenizer.pre_tokenizer, pre_tokenizers.BertPreTokenizer) and prefix:
        return np.array([name.startswith(prefix) for name in names])

    # Whether the pre-tokenizer cuts at spaces shows in a text of two words. It reads normalised
    # texts, in which a space may be a mark already.
    two_words = "a a"
    if tokenizer.normalizer is not None:
        two_words = tokenizer.normalizer.normalize_str(two_words)
    cuts_into_words = (
        tokenizer.pre_tokenizer is not None
        and len(tokenizer.pre_tokenizer.pre_tokenize_str(two_words)) > 1
    )
    marks_spaces = any(name.startswith(PIECE_SPACE) for name in names)
    if cuts_into_words or not marks_spaces:
        return None

    # Added tokens, such as [CLS], are words of their own.
    added = tokenizer.get_added_tokens_decoder()
    return np.array(
        [not name.startswith(PIECE_SPACE) and i not in added for i, name in enumerate(names)]
    )
