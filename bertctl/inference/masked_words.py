"""Words for the masked places of texts, by the head of a model that was trained on masked words.

Letters: T tokens of a text, V tokens in the vocabulary.
"""

import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from tokenizers import AddedToken, Encoding, Tokenizer

from bertctl.arrays import Floats32, Ints32
from bertctl.catalog.models import MODELS
from bertctl.config.recipe_sections import RuntimeSection
from bertctl.errors import DataError, UnavailableError, UsageError
from bertctl.inference.engine import Engine
from bertctl.modeling.pooling import finite
from bertctl.modeling.source import ModelSource, find_encoder
from bertctl.modeling.stored_weights import stored_weights, trained_as
from bertctl.progress import SILENT, Listener
from bertctl.tokenization.reference import PIECE_SPACE, continuation_prefix
from bertctl.tokenization.vocab import word_ids

if TYPE_CHECKING:
    from torch import Tensor

Lines = Sequence[str]

_ARCHITECTURE = re.compile("(ForMaskedLM|ForPreTraining|WithLMHeadModel)$")
_LOGITS = 2**25
"""Logits of a batch, V for each masked place: 128 MB."""

_TOKENS = 4096
"""Most tokens of a batch, as a few heads compute the V logits of each token at once."""

_TEXTS = 64
"""Texts that are computed together."""


class MaskedLine(NamedTuple):
    """A text with some of its tokens masked.

    Attributes:
        ids: Its tokens.
        type_ids: Their segments.
        places: Positions of the masked tokens that are asked for.
    """

    ids: Sequence[int] | Ints32
    type_ids: Sequence[int]
    places: Sequence[int]


class MaskedModel:
    """A model with its masked-word head, in fp32.

    Args:
        name: Name of a model, its folder or hub id.

    Attributes:
        tokenizer: Turns texts into ids.
        length: Tokens that are read of a text.
        mask: The token that stands for a masked word.
        mask_id: Id of that token.
        remedy: What errors advise for a text without it.

    Raises:
        UsageError: No such model, or one without that head.
        UnavailableError: Files that are not there.
    """

    def __init__(self, name: str) -> None:
        """Loads the model, unless it has no trained head for masked words.

        A head that the folder lacks would be random, and so would be its answers.
        """
        source, self.length = find_encoder(name)
        # The class of the weights, such as BertForMaskedLM; or with the words "without the weights
        # of its head" behind it.
        trained = trained_as(source.config, stored_weights(source.folder))
        architecture = trained.partition(" ")[0]
        if not _ARCHITECTURE.search(architecture):
            raise _no_head(source, f"its weights are those of {trained}")
        lacks_head = trained != architecture
        if lacks_head:
            raise _head_without_weights(
                source, f"its weights are those of {trained}, so its answers would be random"
            )
        from bertctl.modeling.load import load_model

        compute = source.compute(RuntimeSection(precision="fp32"))
        try:
            loaded = load_model(source, "AutoModelForMaskedLM", head=None)
        except UnavailableError as error:  # some weights of the head are missing
            raise _head_without_weights(source, error.message) from error
        loaded.network.to(compute.device)
        self.name = name
        self.tokenizer = loaded.tokenizer
        self.mask = str(loaded.saved_tokenizer.mask_token)
        self.mask_id = loaded.saved_tokenizer.mask_token_id
        self._mask_token = self.tokenizer.get_added_tokens_decoder().get(self.mask_id)
        self.remedy = (
            f"Write {self.mask} where a word is to be found, such as: I went to the {self.mask}."
        )
        self._engine = Engine.of(loaded, compute)

    def logarithms(self, lines: Sequence[MaskedLine]) -> "Iterator[tuple[int, Tensor]]":
        """Yields the number of each line, in any order, and its (K, V) log-probabilities.

        They are those of the whole vocabulary at each of the line's K masked places.

        Args:
            lines: Lines of tokens, with the places that are asked for.
        """
        # Logits at masked places take most of the memory. A batch with this budget of tokens has at
        # most `places_at_once` masked places, however short its lines are.
        shortest = min(len(line.ids) for line in lines)
        most_places = max(len(line.places) for line in lines)
        tokens_per_place = shortest // most_places or 1
        places_at_once = max(1, _LOGITS // self.tokenizer.get_vocab_size())
        budget = min(_TOKENS, tokens_per_place * places_at_once)
        for indices, inputs in self._engine.line_batches(lines, budget):
            # Padding may be on the left: places count from the first token.
            starts = inputs["attention_mask"].argmax(dim=1).tolist()
            positions = []
            for row, i in enumerate(indices):
                positions += [(row, starts[row] + place) for place in lines[i].places]
            # Rows and columns of these positions, as an index of (B, T, D) and (B, T, V) arrays.
            masked = tuple(map(list, zip(*positions, strict=True)))
            # The hook hands only the masked positions to the output layer, so that it computes
            # (1, K, V) logits and not (B, T, V).
            head: Any = self._engine.network.get_output_embeddings()
            hook = head.register_forward_pre_hook(_keeping_positions(masked))
            with self._engine.backend.inference(), hook:
                logits = self._engine.backend(**inputs).logits
            if logits.shape[:2] == (1, len(positions)):
                logits = logits[0]
            else:  # this network computes logits without a call of the layer, so no hook ran
                logits = logits[masked]
            counts = [len(lines[i].places) for i in indices]
            yield from zip(
                indices.tolist(), logits.float().log_softmax(-1).split(counts), strict=True
            )

    def fill(
        self,
        texts: Iterable[Lines],
        *,
        top_k: int = 5,
        targets: Sequence[str] = (),
        listener: Listener = SILENT,
    ) -> Iterator[dict[str, Any]]:
        """Yields an answer per text.

        `masks` has for each mask the words that fit, the likeliest first.

        A word's score is its probability. For a word of several tokens the mask is replaced by one
        mask for each token. Its score is the product of the tokens' probabilities, each computed
        without knowing the other tokens.

        Args:
            texts: Some at a time, each with at least one mask.
            top_k: Words for each mask, where there are no targets.
            targets: The words to score, all of them.
            listener: Receives progress messages.

        Raises:
            DataError: A text without a mask, or with more tokens than the model reads.
            UsageError: A target that the vocabulary does not know.
        """
        target_ids = [word_ids(self.tokenizer, target) for target in dict.fromkeys(targets)]
        mask_counts = {1, *map(len, target_ids)}
        number = 0
        for text_batch in _text_batches(texts):
            encodings = [self._encode(text, number + i) for i, text in enumerate(text_batch)]
            # The model reads a text once for each of its masks and each number of masks there.
            lines_of_texts = [self._variants(encoding, mask_counts) for encoding in encodings]
            lines = list(itertools.chain.from_iterable(lines_of_texts))
            logarithms_of_line = {
                i: finite(values.cpu().numpy(), self.name) for i, values in self.logarithms(lines)
            }
            line_number = 0
            for text, encoding, text_lines in zip(
                text_batch, encodings, lines_of_texts, strict=True
            ):
                # Logarithms by the place of the mask, and by the number of masks in its place.
                by_place: dict[int, dict[int, Floats32]] = {}
                for line in text_lines:
                    by_count = by_place.setdefault(line.places[0], {})
                    by_count[len(line.places)] = logarithms_of_line[line_number]
                    line_number += 1

                masks = []
                for place, by_count in by_place.items():
                    begin, end = encoding.offsets[place]
                    answers = [
                        self._answer(ids, score, text[:begin], text[end:])
                        for score, ids in _ranked(by_count, target_ids, top_k)
                    ]
                    masks.append(answers)
                yield {"id": number, "text": text, "masks": masks}
                number += 1
            listener.advance("filling", number, 0)
        listener.finish("filling")

    def _encode(self, text: str, number: int) -> Encoding:
        """Returns a text as tokens, one of them at least a mask.

        Raises:
            DataError: The text has no mask; the error counts from 1, and `number` from 0.
        """
        encoding = self.tokenizer.encode(text)
        if self.mask_id not in encoding.ids:
            raise DataError(f"text {number + 1} has no mask: {text[:60]!r}", remedy=self.remedy)
        return encoding

    def _variants(self, encoding: Encoding, lengths: Iterable[int]) -> list[MaskedLine]:
        """Returns a text for each of its masks and each length: with so many masks in its place.

        A word of 2 tokens is scored in "I went to the [MASK] [MASK]."; lengths 1 and 2 make two
        lines of a text with one mask.

        Raises:
            DataError: A line is longer than the model reads.
        """
        lines = []
        for place, token_id in enumerate(encoding.ids):
            if token_id != self.mask_id:
                continue
            for n_masks in lengths:
                # Positions of the text, that of the mask as often as it is repeated.
                order = [*range(place), *[place] * n_masks, *range(place + 1, len(encoding))]
                ids = [encoding.ids[i] for i in order]
                type_ids = [encoding.type_ids[i] for i in order]
                lines.append(MaskedLine(ids, type_ids, range(place, place + n_masks)))
        longest = max(len(line.ids) for line in lines)
        if longest > self.length:
            message = f"a text has {longest} tokens, and the model reads {self.length}"
            raise DataError(message, remedy="Give what stands around the mask.")
        return lines

    def _answer(self, ids: list[int], logarithm: float, before: str, after: str) -> dict[str, Any]:
        """Returns a word for a mask as answers show it, with the text that has it.

        Args:
            ids: Tokens of the word.
            logarithm: Log-probability of these tokens.
            before: The text before the mask.
            after: The text behind it.
        """
        # The word keeps its space if the space is part of a token.
        word = self.tokenizer.decode(ids, skip_special_tokens=False)
        pieces = [self.tokenizer.id_to_token(i) or "" for i in ids]
        text = filled_text(
            self.tokenizer,
            self._mask_token,
            ids,
            before,
            after,
        )
        return {
            "word": word.strip(),
            "score": math.exp(logarithm),
            "ids": ids,
            "pieces": pieces,
            "text": text,
        }


def _keeping_positions(positions: tuple[list[int], ...]) -> "Callable[..., tuple[Tensor]]":
    """Returns a hook of torch that gives a layer the vectors at some positions alone.

    Args:
        positions: Window and position of each vector, as an index of (B, T, D) vectors.
    """

    def keep_positions(_: Any, inputs: "tuple[Tensor, ...]") -> "tuple[Tensor]":
        """Returns (1, K, D) of the (B, T, D) vectors that the layer would read."""
        return (inputs[0][positions][None],)

    return keep_positions


def _text_batches(chunks: Iterable[Lines]) -> Iterator[Sequence[str]]:
    """Yields texts in batches of at most `_TEXTS`, in their order.

    A chunk may have any number of texts, such as all lines of a file. A batch has texts of one
    chunk only, so that nothing waits for the next chunk.
    """
    for chunk in chunks:
        for begin in range(0, len(chunk), _TEXTS):
            yield chunk[begin : begin + _TEXTS]


def _ranked(
    by_count: Mapping[int, Floats32], target_ids: Sequence[list[int]], top_k: int
) -> list[tuple[float, list[int]]]:
    """Returns the words for one mask with the logarithm of their scores, the likeliest first.

    The score of a word of several tokens is the product of their probabilities.

    Args:
        by_count: Number of masks K that replaced the mask -> (K, V) log-probabilities of the
            vocabulary at these masks. A word of K tokens is scored with K masks.
        target_ids: Token ids of each word to score. If it is empty, the words are the likeliest
            tokens of the vocabulary.
        top_k: Number of words if there are no targets.
    """
    words = target_ids
    if not words:
        single_mask = by_count[1][0]
        words = np.argsort(-single_mask, kind="stable")[:top_k, None].tolist()
    sums = []
    for ids in words:
        # Token k of the word is scored at mask k.
        logarithms = by_count[len(ids)][range(len(ids)), ids]
        sums.append(float(logarithms.sum(dtype=np.float64)))
    return sorted(zip(sums, words, strict=True), key=lambda scored: -scored[0])


def filled_text(
    tokenizer: Tokenizer, mask: AddedToken | None, ids: Sequence[int], before: str, after: str
) -> str:
    """Returns a text with tokens in the place of its mask, and with the right spaces around them.

    It is what `fill-mask` of transformers returns, but the rest of the text stays as it was
    written. Special tokens among the tokens are left out.

    Args:
        tokenizer: The tokenizer that has read the text.
        mask: The mask with its properties, where the tokenizer has them.
        ids: The tokens, at least one.
        before: The text before the mask.
        after: The text behind it.
    """
    word = tokenizer.decode(ids, skip_special_tokens=True)
    piece = tokenizer.id_to_token(ids[0]) or ""
    prefix = continuation_prefix(tokenizer)
    # The token continues the word before it, as `##ing` does in WordPiece.
    if prefix and piece.startswith(prefix) and before.strip():
        return before.rstrip() + word.removeprefix(prefix) + after
    # The token begins a word, though there was no space before the mask: "un[MASK]".
    if prefix and word and before[-1:].isalnum():
        return f"{before} {word}{after}"
    # A mask such as RoBERTa's contains the spaces beside it.
    if mask is not None and mask.lstrip:
        before = before.rstrip()
    if mask is not None and mask.rstrip:
        after = after.lstrip()
    # A token of SentencePiece begins with a mark for the space before the word. `decode` drops this
    # space from the first token, as a text doesn't begin with one.
    if before and piece.startswith(PIECE_SPACE) and not word.startswith(" "):
        word = f" {word}"
    return before + word + after


def _no_head(source: ModelSource, reason: str) -> UsageError:
    """Returns the refusal of a model without a masked-word head, with models that have one.

    Args:
        source: The model.
        reason: Why its head is missing, as the end of the sentence.
    """
    # An objective such as "masked words, then pairs of texts" is of a fine-tuned model: only the
    # first step trained the head, and the head was dropped in the second one.
    only_masked_words = re.compile("masked(?!.*, then)")
    names = ", ".join(row.name for row in MODELS.values() if only_masked_words.match(row.objective))
    return UsageError(
        f"'{source.name}' has no trained masked-word head: {reason}",
        remedy=f"Models that have one: {names}; or give the folder of a model that was saved with "
        "its head, such as a BertForMaskedLM.",
    )


def _head_without_weights(source: ModelSource, reason: str) -> UnavailableError:
    """Returns the refusal of a model with a masked-word head whose weights are missing.

    It says the same as `_no_head`, but the cause is the folder's files, not the choice of model.
    """
    refusal = _no_head(source, reason)
    return UnavailableError(refusal.message, remedy=refusal.remedy)
