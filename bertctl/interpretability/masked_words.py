"""What a model would have said: the words that fit masked places, by the head that was trained on masked words.

Letters: T tokens of a text, V tokens in the vocabulary.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding

from bertctl.catalog.models import MODELS
from bertctl.config.recipe_sections import RuntimeSection
from bertctl.errors import DataError, UnavailableError, UsageError
from bertctl.inference.engine import TorchBackend
from bertctl.interpretability.anatomy import trained_as
from bertctl.interpretability.vectors import find_encoder
from bertctl.modeling.pooling import finite
from bertctl.modeling.source import ModelSource
from bertctl.modeling.stored_weights import stored_weights
from bertctl.progress import SILENT, Listener
from bertctl.runtime.batching import token_budget_plan
from bertctl.tasks.sequences import padded_texts
from bertctl.tokenization.encode import EncodedTexts
from bertctl.tokenization.vocab import word_ids

_ARCHITECTURE = re.compile("(ForMaskedLM|ForPreTraining|WithLMHeadModel)$")
_LOGITS = 2**25
"""Logits of a batch, V for each token: 128 MB."""

_TEXTS = 64  # texts that are looked at together

Texts = Iterable[Sequence[str]]
"""Texts, some at a time."""

_Logarithms = NDArray[np.float32]
_Scored = tuple[list[int], float]
"""The ids of a word's tokens, and the logarithm of its probability."""


class _Masked(NamedTuple):
    """A text with one of its masks written as several.

    Attributes:
        ids: its tokens.
        type_ids: their segments.
        masks: where the masks are that are read.
    """

    ids: list[int]
    type_ids: list[int]
    masks: list[int]


class MaskFiller:
    """A model with its masked-word head, in fp32.

    Args:
        name: of a model, its folder or hub id.

    Attributes:
        mask: the token that stands for a masked word.

    Raises:
        UsageError: no such model, or one without that head.
        UnavailableError: files that are not there.
    """

    def __init__(self, name: str) -> None:
        source, self._length = find_encoder(name)
        self._name = name
        trained = trained_as(source.config, stored_weights(source.folder))
        if not _ARCHITECTURE.search(trained):
            raise _no_head(source, f"its weights are those of {trained}")
        from bertctl.modeling.load import load_model

        compute = source.compute(RuntimeSection(precision="fp32"))
        try:
            loaded = load_model(source, "AutoModelForMaskedLM", head=None)
        except UnavailableError as error:  # weights of the head are missing
            raise _no_head(source, error.message) from error
        loaded.network.to(compute.device)
        self._backend = TorchBackend(loaded.network, loaded.has_segments, compute)
        self._tokenizer, self._padding, self._device = loaded.tokenizer, loaded.padding, compute.device
        self.mask = str(loaded.saved_tokenizer.mask_token)
        self._mask_id = loaded.saved_tokenizer.mask_token_id

    def fill(
        self, texts: Texts, *, top_k: int = 5, targets: Sequence[str] = (), listener: Listener = SILENT
    ) -> Iterator[dict[str, Any]]:
        """Yields an answer per text: `masks` has for each mask the words that fit, the likeliest first.

        A word's score is its probability. One of several tokens stands in the place of as many masks, and its score is
        the product of their probabilities, each without knowing the others.

        Args:
            texts: some at a time, each with at least one mask.
            top_k: words for each mask, where there are no targets.
            targets: the words to score, all of them.
            listener: hears of progress.

        Raises:
            DataError: a text without a mask, or with more tokens than the model reads.
            UsageError: a target that the vocabulary does not know.
        """
        wanted = [word_ids(self._tokenizer, target) for target in dict.fromkeys(targets)]
        lengths = {1, *map(len, wanted)}
        number = 0
        for part in (chunk[i : i + _TEXTS] for chunk in texts for i in range(0, len(chunk), _TEXTS)):
            encodings = [self._encode(text, number + i) for i, text in enumerate(part)]
            variants = [self._variants(encoding, lengths) for encoding in encodings]
            probabilities = iter(self._probabilities([one for each in variants for one in each.values()]))
            for text, encoding, each in zip(part, encodings, variants, strict=True):
                found = {key: next(probabilities) for key in each}
                masks = []
                for j, place in enumerate(each[0, 1].masks):
                    begin, end = encoding.offsets[place]
                    scored = _scored(found, j, wanted) if wanted else _likeliest(found[0, 1][j], top_k)
                    masks.append([self._answer(*one, text[:begin], text[end:]) for one in scored])
                yield {"id": number, "text": text, "masks": masks}
                number += 1
            listener.advance("filling", number, 0)
        listener.finish("filling")

    def _encode(self, text: str, number: int) -> Encoding:
        encoding = self._tokenizer.encode(text)
        if self._mask_id not in encoding.ids:
            raise DataError(
                f"text {number + 1} has no mask: {text[:60]!r}",
                remedy=f"Write {self.mask} where a word is to be found, such as: I went to the {self.mask}.",
            )
        return encoding

    def _variants(self, encoding: Encoding, lengths: Iterable[int]) -> dict[tuple[int, int], _Masked]:
        """Returns the text as it is, by (0, 1), and with its j-th mask written as n masks, by (j, n)."""
        places = [i for i, number in enumerate(encoding.ids) if number == self._mask_id]
        found = {(0, 1): _Masked(encoding.ids, encoding.type_ids, places)}
        for n in (n for n in lengths if n > 1):
            for j, at in enumerate(places):
                ids, types = encoding.ids, encoding.type_ids
                more = ids[:at] + [self._mask_id] * n + ids[at + 1 :]
                found[j, n] = _Masked(more, types[:at] + [types[at]] * n + types[at + 1 :], [*range(at, at + n)])
        longest = max(len(one.ids) for one in found.values())
        if longest > self._length:
            told = f"a text has {longest} tokens, and the model reads {self._length}"
            raise DataError(told, remedy="Give what stands around the mask.")
        return found

    def _probabilities(self, texts: Sequence[_Masked]) -> list[_Logarithms]:
        """Returns for each text the (masks, V) logarithms of probabilities."""
        ids = [np.array(one.ids, dtype=np.int32) for one in texts]
        types = [np.array(one.type_ids, dtype=np.uint8) for one in texts]
        encoded = EncodedTexts.joined(ids, types, [*map(len, ids)], [0] * len(ids))
        found: dict[int, _Logarithms] = {}
        budget = max(1, _LOGITS // self._tokenizer.get_vocab_size())
        with self._backend.inference():
            for indices in token_budget_plan(encoded.lengths, budget, one_length=self._padding.unwanted):
                inputs = padded_texts(encoded, indices, self._padding)
                logits = self._backend(**{name: one.to(self._device) for name, one in inputs.items()}).logits
                for row, i in enumerate(indices.tolist()):
                    found[i] = finite(logits[row, texts[i].masks].float().log_softmax(-1).cpu().numpy(), self._name)
        return [found[i] for i in range(len(texts))]

    def _answer(self, ids: list[int], logarithm: float, before: str, after: str) -> dict[str, Any]:
        word = self._tokenizer.decode(ids, skip_special_tokens=False)  # with its space where that is part of a token
        pieces = [self._tokenizer.id_to_token(i) or "" for i in ids]
        text = before + word + after
        return {"word": word.strip(), "score": math.exp(logarithm), "ids": ids, "pieces": pieces, "text": text}


def _likeliest(logarithms: _Logarithms, top_k: int) -> list[_Scored]:
    return [([int(i)], float(logarithms[i])) for i in np.argsort(-logarithms, kind="stable")[:top_k]]


def _scored(found: Mapping[tuple[int, int], _Logarithms], mask: int, wanted: Sequence[list[int]]) -> list[_Scored]:
    """Returns the words wanted in the place of a mask, the likeliest first."""
    rows = {len(ids): found[0, 1][mask : mask + 1] if len(ids) == 1 else found[mask, len(ids)] for ids in wanted}
    scored = [(ids, float(rows[len(ids)][range(len(ids)), ids].sum(dtype=np.float64))) for ids in wanted]
    return sorted(scored, key=lambda one: -one[1])


def _no_head(source: ModelSource, why: str) -> UsageError:
    names = ", ".join(row.name for row in MODELS.values() if re.match("masked(?!.*, then)", row.objective))
    return UsageError(
        f"'{source.name}' has no trained masked-word head: {why}",
        remedy=f"Models that have one: {names}; or give the folder of a model that was saved with its head, such as "
        "a BertForMaskedLM.",
    )
