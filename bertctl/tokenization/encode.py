"""Texts to ids, for training, evaluation, prediction and features: the library `tokenizers`, no padding, no torch.

Letters: N texts, T tokens of all of them together.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

_CHUNK = 4096  # texts handed to the library at once; bounds the memory of its Encoding objects


@dataclass(frozen=True)
class EncodedTexts:
    """N texts (or pairs) as one flat run of ids.

    Attributes:
        ids: (T,) piece ids, special tokens included.
        type_ids: (T,) segment of each token: 0 first sentence, 1 second.
        starts: (N + 1,) where each text begins in `ids`; the last entry is T.
        full_lengths: (N,) tokens each text would have had without the cut.
        unknown: (N,) unknown tokens in each text, before the cut.

        # pair    [CLS] it rained . [SEP] the ground is wet . [SEP]
        # segment   0    0    0   0   0    1    1    1  1   1   1
    """

    ids: NDArray[np.int32]
    type_ids: NDArray[np.uint8]
    starts: NDArray[np.int64]
    full_lengths: NDArray[np.int64]
    unknown: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(N,) tokens of each text as the model reads it."""
        return np.diff(self.starts)

    @property
    def truncated(self) -> NDArray[np.bool_]:
        """(N,) whether something was cut off."""
        return self.full_lengths > self.lengths


def load_tokenizer(tokenizer_json: str) -> Tokenizer:
    """A `tokenizers.Tokenizer` from its serialised form, with any stored truncation and padding switched off.

    (The file of all-MiniLM-L6-v2 carries both, set to 128.)
    """
    tokenizer = Tokenizer.from_str(tokenizer_json)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def encode_texts(
    tokenizer: Tokenizer, texts: Sequence[str], pairs: Sequence[str] | None = None, *, max_length: int
) -> EncodedTexts:
    """Encode texts or pairs, special tokens added, the longer sentence of a pair cut first.

    Args:
        tokenizer: with truncation and padding off; it is left that way.
        texts: N first (or only) sentences.
        pairs: N second sentences, or None.
        max_length: longest result in tokens (google-research/bert `run_classifier.py::_truncate_seq_pair`).
    """
    inputs: Sequence[str | tuple[str, str]] = texts if pairs is None else list(zip(texts, pairs, strict=True))
    unknown_id = _unknown_id(tokenizer)
    ids: list[NDArray[np.int32]] = []
    type_ids: list[NDArray[np.uint8]] = []
    full_lengths = np.zeros(len(texts), dtype=np.int64)
    lengths = np.zeros(len(texts), dtype=np.int64)
    unknown = np.zeros(len(texts), dtype=np.int64)
    for first in range(0, len(inputs), _CHUNK):
        chunk = inputs[first : first + _CHUNK]
        encodings = tokenizer.encode_batch_fast(chunk)
        long = [i for i, encoding in enumerate(encodings) if len(encoding) > max_length]
        for i, encoding in enumerate(encodings):
            full_lengths[first + i] = len(encoding)
            if unknown_id is not None:
                unknown[first + i] = encoding.ids.count(unknown_id)
        if long:
            for i, cut in zip(long, _cut(tokenizer, [chunk[i] for i in long], max_length), strict=True):
                encodings[i] = cut
        for i, encoding in enumerate(encodings):
            lengths[first + i] = len(encoding)
            ids.append(np.array(encoding.ids, dtype=np.int32))
            type_ids.append(np.array(encoding.type_ids, dtype=np.uint8))
    return EncodedTexts(
        ids=np.concatenate(ids) if ids else np.zeros(0, dtype=np.int32),
        type_ids=np.concatenate(type_ids) if type_ids else np.zeros(0, dtype=np.uint8),
        starts=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        full_lengths=full_lengths,
        unknown=unknown,
    )


def _cut(tokenizer: Tokenizer, inputs: Sequence[str | tuple[str, str]], max_length: int) -> list:  # type: ignore[type-arg]
    tokenizer.enable_truncation(max_length, strategy="longest_first")
    try:
        return list(tokenizer.encode_batch_fast(inputs))
    finally:
        tokenizer.no_truncation()


def _unknown_id(tokenizer: Tokenizer) -> int | None:
    name = getattr(tokenizer.model, "unk_token", None)
    return tokenizer.token_to_id(name) if name else None
